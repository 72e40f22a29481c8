package metric

import (
	"context"
	"fmt"
	"iter"
	"math"

	"fmp/onnx/dense"
	"fmp/pipeline/erm"
)

// Answers holds the individual predictions of an ensemble's heads on labelled points, as far as
// joint scores and disagreement need them beyond the ensemble's own probabilities: S x N numbers,
// not S x N x C.
type Answers struct {
	// Heads is S, the number of heads.
	Heads int
	// Mean is the ensemble's prediction: the mean of the heads' probabilities.
	Mean *Probabilities
	// LogLikelihood holds log p_s(y_i | x_i), one row of N per head; nil where the points have no
	// labels.
	LogLikelihood [][]float64
	// Entropy holds, for every point, the mean of the entropies of the heads' predictions, in nats.
	Entropy []float64
}

// Examine is [Predict] with the predictions of every head. labels holds one class index per point,
// or is nil.
func Examine(ctx context.Context, heads []erm.Theta, features []float32, labels []int,
	threads int) (*Answers, error) {
	if len(heads) == 0 {
		return nil, fmt.Errorf("predict: the ensemble is empty; give at least one head")
	}
	dx := heads[0].D - 1
	if labels != nil && len(labels)*dx != len(features) {
		return nil, fmt.Errorf("predict: %d labels for %d feature values of dx %d; want one a point",
			len(labels), len(features), dx)
	}
	for i, y := range labels {
		if y < 0 || y >= heads[0].C {
			return nil, fmt.Errorf("predict: label %d of point %d; allowed are 0 to %d", y,
				i, heads[0].C-1)
		}
	}
	n, c := len(features)/max(dx, 1), heads[0].C
	out := &Answers{Heads: len(heads), Mean: &Probabilities{N: n, C: c, P: make([]float64, n*c)},
		Entropy: make([]float64, n)}
	if labels != nil {
		out.LogLikelihood = make([][]float64, len(heads))
		for s := range heads {
			out.LogLikelihood[s] = make([]float64, len(labels))
		}
	}
	share := 1 / float64(len(heads))
	err := eachHead(ctx, heads, features, threads,
		func(from, n int, logits iter.Seq2[int, dense.Columns], b *blockSpace) {
			p := dense.Columns{C: c, N: dense.Padded(n), Stride: predictRows, Data: b.p}
			for s, l := range logits {
				dense.Softmax(l, p, b.top, b.sum)
				entropy := out.Entropy[from : from+n]
				for i := range entropy {
					// -log p = top + log sum - logit
					entropy[i] += share * (b.top[i] + math.Log(b.sum[i]))
				}
				for k := range c {
					row, logit := p.Data[k*predictRows:][:n], l.Data[k*predictRows:][:n]
					for i, v := range row {
						entropy[i] -= share * v * logit[i]
						out.Mean.P[(from+i)*c+k] += share * v
					}
				}
				if labels != nil {
					for i, y := range labels[from : from+n] {
						out.LogLikelihood[s][from+i] = math.Log(p.Data[y*predictRows+i] + nllFloor)
					}
				}
			}
		})
	if err != nil {
		return nil, err
	}
	for i, v := range out.Entropy {
		out.Entropy[i] = max(v, 0) // only rounding makes it negative
	}
	return out, nil
}

// Combine returns the answers of an ensemble from the probabilities that each member gives to the
// labelled points.
func Combine(members []*Probabilities, labels []int) (*Answers, error) {
	if len(members) == 0 {
		return nil, fmt.Errorf("predict: the ensemble is empty; give at least one member")
	}
	n, c := members[0].N, members[0].C
	out := &Answers{Heads: len(members), Mean: &Probabilities{N: n, C: c, P: make([]float64, n*c)},
		Entropy: make([]float64, n)}
	share := 1 / float64(len(members))
	for s, p := range members {
		if p.N != n || p.C != c || n != len(labels) {
			return nil, fmt.Errorf("predict: member %d has %d x %d probabilities, member 0 %d x %d, and "+
				"there are %d labels; want one size", s, p.N, p.C, n, c, len(labels))
		}
		likelihood := make([]float64, n)
		for i, y := range labels {
			if y < 0 || y >= c {
				return nil, fmt.Errorf("predict: label %d of point %d; allowed are 0 to %d", y, i, c-1)
			}
			likelihood[i] = math.Log(p.Row(i)[y] + nllFloor)
			out.Entropy[i] += share * Entropy(p.Row(i))
		}
		for i, v := range p.P {
			out.Mean.P[i] += share * v
		}
		out.LogLikelihood = append(out.LogLikelihood, likelihood)
	}
	return out, nil
}

// Add adds the answers of further heads of the same ensemble on the same points.
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

// Entropies returns, for every point, the entropy of the prediction and the part of it that is
// disagreement: the mutual information of label and head, which is the entropy of the mean less the
// mean of the entropies (Houlsby et al. 2011, arXiv 1112.5745). Both are in nats; for one head the
// disagreement is 0.
func (a *Answers) Entropies() (total, disagreement []float64) {
	total, disagreement = make([]float64, a.Mean.N), make([]float64, a.Mean.N)
	for i := range total {
		total[i] = Entropy(a.Mean.Row(i))
		disagreement[i] = max(total[i]-a.Entropy[i], 0)
	}
	return total, disagreement
}

// Entropy returns the entropy of a distribution, in nats.
func Entropy(p []float64) float64 {
	var h float64
	for _, v := range p {
		if v > 0 {
			h -= v * math.Log(v)
		}
	}
	return h
}
