package score

import (
	"context"
	"fmt"

	"fmp/pipeline/point"
	"fmp/pipeline/posterior"
)

// Plain is the identity as Coordinates: the features themselves. It is for uploads of means of the
// features as they are.
type Plain struct{}

// Map returns its argument. The memory is the argument's: a caller that writes the result changes
// the features.
func (Plain) Map(_ context.Context, features []float32) ([]float32, error) { return features, nil }

// membership returns the AUC with which an attacker tells a client's own points from test points by
// the class means that the client uploads ([Attacker]), mean over points. Class means are in the
// coordinates Result.Means; it is nil for results without them, and where there are too few test
// points for their covariance. The areas of clients are weighted by the members that they count.
// The attacker is made once, from test points, which serve as its knowledge of the classes and as
// non-members. It therefore assumes that test and clients have one distribution.
func membership(ctx context.Context, clients []*point.Set, by posterior.Coordinates,
	k *Test) (*float64, error) {
	if by == nil {
		return nil, nil
	}
	test, err := by.Map(ctx, k.Features)
	if err != nil {
		return nil, fmt.Errorf("membership: %w", err)
	}
	attacker, err := NewAttacker(test, len(test)/len(k.Labels), k.Labels, clients[0].C)
	if attacker == nil {
		return nil, err
	}
	var sum, members float64
	for _, set := range clients {
		features, labels := set.Labelled()
		rows, err := by.Map(ctx, features)
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
