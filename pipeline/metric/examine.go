package metric

import (
	"context"
	"fmt"
	"math"

	"fmp/pipeline/erm"
)

// Answers are what the heads of an ensemble, one by one, say of labelled points. They are what joint scores and
// disagreement need beyond the ensemble's own probabilities, in S x N numbers, not S x N x C.
type Answers struct {
	// Heads is S, their number.
	Heads int
	// Mean is the ensemble's prediction: the mean of the heads' probabilities.
	Mean *Probabilities
	// LogLikelihood holds log p_s(y_i | x_i), one row of N a head; nil where the points have no labels.
	LogLikelihood [][]float64
	// Entropy is, of every point, the mean of the entropies of the heads' predictions, in nats.
	Entropy []float64
}

// Examine is [Predict] with what every head says. labels holds one class index a point, or is nil.
func Examine(ctx context.Context, heads []erm.Theta, features []float32, labels []int, threads int) (*Answers, error) {
	if len(heads) == 0 {
		return nil, fmt.Errorf("predict: the ensemble is empty; give at least one head")
	}
	dx := heads[0].D - 1
	if labels != nil && len(labels)*dx != len(features) {
		return nil, fmt.Errorf("predict: %d labels for %d feature values of dx %d; want one a point", len(labels), len(features), dx)
	}
	for i, y := range labels {
		if y < 0 || y >= heads[0].C {
			return nil, fmt.Errorf("predict: label %d of point %d; allowed are 0 to %d", y, i, heads[0].C-1)
		}
	}
	out := &Answers{Heads: len(heads)}
	if dx > 0 {
		out.Entropy = make([]float64, len(features)/dx)
	}
	if labels != nil {
		out.LogLikelihood = make([][]float64, len(heads))
		for s := range heads {
			out.LogLikelihood[s] = make([]float64, len(labels))
		}
	}
	var err error
	out.Mean, err = predict(ctx, heads, features, threads, func(head, row int, p []float64) {
		out.Entropy[row] += Entropy(p) / float64(len(heads))
		if labels != nil {
			out.LogLikelihood[head][row] = math.Log(p[labels[row]] + nllFloor)
		}
	})
	if err != nil {
		return nil, err
	}
	return out, nil
}

// Add takes in what further heads of the same ensemble say of the same points.
func (a *Answers) Add(b *Answers) {
	a.Heads += b.Heads
	share := float64(b.Heads) / float64(a.Heads)
	for i, v := range b.Mean.P {
		a.Mean.P[i] += share * (v - a.Mean.P[i])
	}
	for i, v := range b.Entropy {
		a.Entropy[i] += share * (v - a.Entropy[i])
	}
	a.LogLikelihood = append(a.LogLikelihood, b.LogLikelihood...)
}

// Entropies are the entropy of every point's prediction, and the part of it that is disagreement: the mutual
// information of label and head, which is the entropy of the mean less the mean of the entropies (Houlsby et al.
// 2011, arXiv 1112.5745). Both are in nats; one head never disagrees.
func (a *Answers) Entropies() (total, disagreement []float64) {
	total, disagreement = make([]float64, a.Mean.N), make([]float64, a.Mean.N)
	for i := range total {
		total[i] = Entropy(a.Mean.Row(i))
		disagreement[i] = max(total[i]-a.Entropy[i], 0)
	}
	return total, disagreement
}

// Entropy is the entropy of a distribution, in nats.
func Entropy(p []float64) float64 {
	var h float64
	for _, v := range p {
		if v > 0 {
			h -= v * math.Log(v)
		}
	}
	return h
}
