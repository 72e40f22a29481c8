package metric

import (
	"context"
	"fmt"
	"iter"
	"math"

	"gonum.org/v1/gonum/stat"

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
	// Likelihood is nil where the points have no labels.
	Likelihood Likelihood
	// Entropy holds, for every point, the mean of the entropies of the heads' predictions, in nats.
	Entropy []float64
}

// Likelihood holds p_s(y_i | x_i) + 1e-12, one row of S numbers per point, so that a batch's
// product over points runs along rows.
type Likelihood [][]float64

// NewLikelihood returns room for the likelihoods of n points by some heads.
func NewLikelihood(n, heads int) Likelihood {
	out, all := make(Likelihood, n), make([]float64, n*heads)
	for i := range out {
		out[i] = all[i*heads : (i+1)*heads : (i+1)*heads]
	}
	return out
}

// first returns the likelihoods of the first heads. It shares memory with l.
func (l Likelihood) first(heads int) Likelihood {
	if l == nil {
		return nil
	}
	out := make(Likelihood, len(l))
	for i, row := range l {
		out[i] = row[:heads]
	}
	return out
}

// Examine is [Predict] with the predictions of every head. labels holds one class index per point,
// or is nil.
func Examine(ctx context.Context, heads []erm.Theta, features []float32, labels []int,
	threads int) (*Answers, error) {
	all, err := ExamineFirst(ctx, heads, []int{len(heads)}, features, labels, threads)
	if err != nil {
		return nil, err
	}
	return all[0], nil
}

// ExamineFirst returns the answers of the first heads of an ensemble, for each of some ascending
// numbers of them, the last of which is all. They share the memory of likelihoods.
// The heads run once over the points, in O(S n C dx) for all numbers together. Kept are S n
// likelihoods and, for each number, n (C + 1) figures. A label outside the classes, no heads, and
// numbers that do not ascend to len(heads) are errors.
func ExamineFirst(ctx context.Context, heads []erm.Theta, numbers []int, features []float32,
	labels []int, threads int) ([]*Answers, error) {
	if len(heads) == 0 {
		return nil, fmt.Errorf("predict: the ensemble is empty; give at least one head")
	}
	last := 0
	for _, n := range numbers {
		if n <= last {
			return nil, fmt.Errorf("predict: first %d heads of %d; want ascending numbers",
				n, len(heads))
		}
		last = n
	}
	if last != len(heads) {
		return nil, fmt.Errorf("predict: first %d heads at most; the last is %d", last, len(heads))
	}
	dx := heads[0].D - 1
	if labels != nil && len(labels)*dx != len(features) {
		return nil, fmt.Errorf("predict: %d labels for %d feature values of dx %d; "+
			"want one a point", len(labels), len(features), dx)
	}
	for i, y := range labels {
		if y < 0 || y >= heads[0].C {
			return nil, fmt.Errorf("predict: label %d of point %d; allowed are 0 to %d", y,
				i, heads[0].C-1)
		}
	}
	n, c := len(features)/max(dx, 1), heads[0].C
	var likelihood Likelihood
	if labels != nil {
		likelihood = NewLikelihood(n, len(heads))
	}
	out := make([]*Answers, len(numbers))
	for j, some := range numbers {
		out[j] = &Answers{Heads: some, Mean: &Probabilities{N: n, C: c, P: make([]float64, n*c)},
			Entropy: make([]float64, n), Likelihood: likelihood.first(some)}
	}
	err := eachHead(ctx, heads, features, threads,
		func(from, n int, logits iter.Seq2[int, dense.Columns], b *blockSpace) {
			e := newExamination(c, n, b)
			next := 0
			for s, l := range logits {
				e.add(l)
				if labels != nil {
					for i, y := range labels[from : from+n] {
						likelihood[from+i][s] = e.p.Data[y*predictRows+i] + nllFloor
					}
				}
				if s+1 == numbers[next] {
					e.write(out[next], from)
					next++
				}
			}
		})
	if err != nil {
		return nil, err
	}
	return out, nil
}

// examination is one block of points on its way through the heads of an ensemble. The entropy of a
// prediction p of logits l is
//
//	H = -sum_k p_k log p_k = top + log sum - <p, l>,  top = max_k l_k,  sum = sum_k exp(l_k - top)
//
// of which the logarithms are taken of products of sums, many heads at a time: a logarithm costs
// more than a product. Columns are classes and rows points, as dense.Softmax takes them.
type examination struct {
	n, heads       int
	p, mean        dense.Columns
	top, sum       []float64
	tops, products []float64 // of the heads so far: sum of top + log sum, and the product not in it
	inner          []float64 // sum of <p, logits>
	pending, most  int       // how many heads products is of, and how many it has room for
}

// newExamination takes top and sum of b, and has columns of its own.
func newExamination(c, n int, b *blockSpace) *examination {
	wide := dense.Padded(n)
	columns := func() dense.Columns {
		return dense.Columns{C: c, N: wide, Stride: predictRows,
			Data: make([]float64, c*predictRows)}
	}
	e := &examination{n: n, p: columns(), mean: columns(), top: b.top, sum: b.sum,
		tops: make([]float64, wide), products: make([]float64, wide), inner: make([]float64, wide)}
	// A sum is from 1 to C, as its largest term is 1, and a float64 is up to 1e308.
	e.most = max(1, int(300/max(1, math.Log10(float64(c)))))
	for i := range e.products {
		e.products[i] = 1
	}
	return e
}

// add adds the answers of the next head.
// It leaves the head's probabilities in p, until the next call.
func (e *examination) add(logits dense.Columns) {
	dense.Softmax(logits, e.p, e.top, e.sum)
	dense.Blend(logits, e.p, e.mean, e.inner)
	for i := range e.tops {
		e.tops[i] += e.top[i]
		e.products[i] *= e.sum[i]
	}
	e.heads++
	if e.pending++; e.pending == e.most {
		e.settle()
	}
}

// settle moves products to tops.
// It is called before a product of sums could exceed a float64.
func (e *examination) settle() {
	for i, v := range e.products {
		e.tops[i] += math.Log(v)
		e.products[i] = 1
	}
	e.pending = 0
}

// write writes the answers of the heads so far, to the points from from on.
// More heads may be added afterwards, for a larger ensemble.
func (e *examination) write(to *Answers, from int) {
	e.settle()
	share := 1 / float64(e.heads)
	for i := range e.n {
		to.Entropy[from+i] = max(0, share*(e.tops[i]-e.inner[i])) // only rounding makes it negative
		row := to.Mean.Row(from + i)
		for k := range row {
			row[k] = share * e.mean.Data[k*predictRows+i]
		}
	}
}

// Said returns the probabilities of every head: one row of S numbers per point and class. Head s
// gives class k of point i the number at (i C + k) S + s. That is n C S numbers of 8 bytes: it is
// for few points.
func Said(ctx context.Context, heads []erm.Theta, features []float32,
	threads int) ([]float64, error) {
	var out []float64
	if len(heads) > 0 && heads[0].D > 1 {
		out = make([]float64, len(features)/(heads[0].D-1)*heads[0].C*len(heads))
	}
	err := eachHead(ctx, heads, features, threads,
		func(from, n int, logits iter.Seq2[int, dense.Columns], b *blockSpace) {
			c := heads[0].C
			p := dense.Columns{C: c, N: dense.Padded(n), Stride: predictRows, Data: b.p}
			for s, l := range logits {
				dense.Softmax(l, p, b.top, b.sum)
				for k := range c {
					for i, v := range p.Data[k*predictRows:][:n] {
						out[((from+i)*c+k)*len(heads)+s] = v
					}
				}
			}
		})
	if err != nil {
		return nil, err
	}
	return out, nil
}

// Combine returns the answers of an ensemble from the probabilities that each member gives to the
// labelled points. Members of another size than the first, or than labels, and labels outside the
// classes are errors. It is for members that are no linear heads, such as those of other programs.
func Combine(members []*Probabilities, labels []int) (*Answers, error) {
	if len(members) == 0 {
		return nil, fmt.Errorf("predict: the ensemble is empty; give at least one member")
	}
	n, c := members[0].N, members[0].C
	out := &Answers{Heads: len(members), Mean: &Probabilities{N: n, C: c, P: make([]float64, n*c)},
		Entropy: make([]float64, n), Likelihood: NewLikelihood(len(labels), len(members))}
	share := 1 / float64(len(members))
	for s, p := range members {
		if p.N != n || p.C != c || n != len(labels) {
			return nil, fmt.Errorf("predict: member %d has %d x %d probabilities, member 0 "+
				"%d x %d, and there are %d labels; want one size", s, p.N, p.C, n, c, len(labels))
		}
		for i, y := range labels {
			if y < 0 || y >= c {
				return nil, fmt.Errorf("predict: label %d of point %d; allowed are 0 "+
					"to %d", y, i, c-1)
			}
			out.Likelihood[i][s] = p.Row(i)[y] + nllFloor
			out.Entropy[i] += share * stat.Entropy(p.Row(i))
		}
		for i, v := range p.P {
			out.Mean.P[i] += share * v
		}
	}
	return out, nil
}

// Entropies returns, for every point, the entropy of the prediction and the part of it that is
// disagreement: the mutual information of label and head, which is the entropy of the mean less the
// mean of the entropies (Houlsby et al. 2011, arXiv 1112.5745). Both are in nats; for one head the
// disagreement is 0.
func (a *Answers) Entropies() (total, disagreement []float64) {
	total, disagreement = make([]float64, a.Mean.N), make([]float64, a.Mean.N)
	for i := range total {
		total[i] = stat.Entropy(a.Mean.Row(i))
		disagreement[i] = max(total[i]-a.Entropy[i], 0)
	}
	return total, disagreement
}
