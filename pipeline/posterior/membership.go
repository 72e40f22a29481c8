package posterior

import (
	"context"
	"fmt"

	"fmp/pipeline/metric"
)

// Plain are the features themselves as Coordinates.
type Plain struct{}

// Of returns its argument.
func (Plain) Of(_ context.Context, features []float32) ([]float32, error) { return features, nil }

// membership is how well an attacker tells a client's own points from test points by the class means that the client uploads
// ([metric.Attacker]), mean over points. Coordinates of results' class means are Result.Means; of results without, and of test
// points too few for their covariance, there is no figure.
func (t *Task) membership(ctx context.Context, by Coordinates, k *Test) (*float64, error) {
	if by == nil {
		return nil, nil
	}
	test, err := by.Of(ctx, k.Features)
	if err != nil {
		return nil, fmt.Errorf("membership: %w", err)
	}
	attacker, err := metric.NewAttacker(test, len(test)/len(k.Labels), k.Labels, t.c)
	if attacker == nil {
		return nil, err
	}
	var sum, members float64
	for _, set := range t.in.Clients {
		features, labels := set.Labelled()
		rows, err := by.Of(ctx, features)
		if err != nil {
			return nil, fmt.Errorf("membership: %w", err)
		}
		auc, n, err := attacker.AUC(rows, labels)
		if err != nil {
			return nil, err
		}
		sum += float64(n) * auc
		members += float64(n)
	}
	if members == 0 {
		return nil, nil
	}
	sum /= members
	return &sum, nil
}
