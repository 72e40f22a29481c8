package metric

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"

	"gonum.org/v1/gonum/blas"

	"fmp/onnx/dense"
)

// Sizes of the batches of joint scores. Osband et al. 2023, "Epistemic neural networks", arXiv
// 2107.08924, score batches made of the neighbourhoods of two random anchors ("dyadic sampling").
const (
	JointPoints = 10 // points of a batch
	Neighbours  = 20 // nearest points of an anchor from which its half of a batch is drawn
)

// Joint holds the joint scores of an ensemble: the mean over batches of -1/B log (1/S sum_s prod_b
// p_s(y_b | x_b)), in nats per point. They distinguish a posterior's heads from their mean, which
// scores of single points cannot do.
type Joint struct {
	Random float64 `json:"random"` // batches of JointPoints random points
	Near   float64 `json:"near"`   // batches of two random points' neighbours
}

// Batches are the index sets on which joint scores are computed: the same for all methods.
type Batches struct{ Random, Near [][]int }

// NewBatches draws count batches of each kind from points: features holds n x dx numbers on one
// scale. Batches are chosen by features alone, never by labels: a batch of points of two chosen
// classes rewards a posterior that learns the batch's own class proportions, and favours one that
// is too wide (TestJointOfKnownPosterior demonstrates this, and the effect of larger batches with
// few heads). Fewer than Neighbours points are an error.
func NewBatches(r *rand.Rand, features []float32, dx, count int) (*Batches, error) {
	if dx < 1 || len(features)%dx != 0 || len(features)/dx < Neighbours || count < 1 {
		return nil, fmt.Errorf("joint scores: %d feature values of dx %d, %d batches; "+
			"want %d points or more and a batch or more", len(features), dx, count, Neighbours)
	}
	out := &Batches{}
	for range count {
		out.Random = append(out.Random, choose(r, len(features)/dx, JointPoints))
	}
	out.Near = NearBatches(r, features, dx, count)
	return out, nil
}

// NearBatches draws only batches of the second kind, from at least Neighbours points: training
// scores them.
// A point may be in both halves of a batch, where anchors are near each other.
func NearBatches(r *rand.Rand, features []float32, dx, count int) [][]int {
	anchors := make([]int, 2*count)
	for i := range anchors {
		anchors[i] = r.IntN(len(features) / dx)
	}
	near := nearest(features, dx, anchors, Neighbours)
	out := make([][]int, count)
	for i := range out {
		for _, around := range near[2*i : 2*i+2] {
			for _, k := range choose(r, len(around), JointPoints/2) {
				out[i] = append(out[i], around[k])
			}
		}
	}
	return out
}

// choose returns k distinct numbers of 0 to n-1 (Floyd's algorithm).
// Their order is not uniform, and k is at most n. It costs k draws and O(k^2) comparisons.
func choose(r *rand.Rand, n, k int) []int {
	out := make([]int, 0, k)
	for j := n - k; j < n; j++ {
		v := r.IntN(j + 1)
		if slices.Contains(out, v) {
			v = j
		}
		out = append(out, v)
	}
	return out
}

// nearest returns the k points nearest to each of the points with the indices at, including the
// point itself. The distance of x to an anchor a is |x|^2 - 2 <x, a> + |a|^2: the last term is the
// same for all x and is left out. The inner products of predictRows anchors at once are one matrix
// product: O(A n dx) in time for A anchors, and predictRows n numbers of room.
func nearest(features []float32, dx int, at []int, k int) [][]int {
	n := len(features) / dx
	x := make([]float64, len(features))
	square := make([]float64, n)
	for i := range n {
		for j, v := range features[i*dx : (i+1)*dx] {
			x[i*dx+j] = float64(v)
			square[i] += float64(v) * float64(v)
		}
	}
	out := make([][]int, len(at))
	inner, anchors := make([]float64, predictRows*n), make([]float64, predictRows*dx)
	for from := 0; from < len(at); from += predictRows {
		some := at[from:min(from+predictRows, len(at))]
		for i, a := range some {
			copy(anchors[i*dx:(i+1)*dx], x[a*dx:(a+1)*dx])
		}
		dense.Gemm(blas.NoTrans, blas.Trans, 1, dense.General(len(some), dx, anchors),
			dense.General(n, dx, x), 0, dense.General(len(some), n, inner))
		for i := range some {
			row := inner[i*n : (i+1)*n]
			for j, v := range square {
				row[j] = v - 2*row[j]
			}
			out[from+i] = smallest(row, k)
		}
	}
	return out
}

// smallest returns the places of the k smallest values, in ascending order of value, the first
// place first at ties. A value that is not below k others before it costs O(1), and every other
// O(k).
func smallest(of []float64, k int) []int {
	at, values := make([]int, 0, k+1), make([]float64, 0, k+1)
	bound := math.Inf(1) // of the values to come, once there are k
	for j, v := range of {
		if !(v < bound) && len(at) == k {
			continue
		}
		to := len(at)
		for to > 0 && v < values[to-1] {
			to--
		}
		at, values = slices.Insert(at, to, j), slices.Insert(values, to, v)
		at, values = at[:min(len(at), k)], values[:min(len(values), k)]
		bound = values[len(values)-1]
	}
	return at
}

// direct is a number of points whose likelihoods, 1e-12 at least, have a product of 1e-288 or more.
// That is a normal float64, as those reach down to 2e-308.
const direct = 24

// JointNLL returns the joint score on batches of points, in nats a point; NaN without either.
// Batches of more than direct points go by the logarithms of their heads' products, of which the
// largest is taken out of the sum. The cost is one product for each head and point of a batch.
func JointNLL(l Likelihood, batches [][]int) float64 {
	if len(l) == 0 || len(batches) == 0 {
		return math.NaN()
	}
	heads := len(l[0])
	products, logs := make([]float64, heads), make([]float64, heads)
	var total float64
	for _, batch := range batches {
		var mean float64
		if len(batch) <= direct {
			l.product(batch, products)
			for _, v := range products {
				mean += v
			}
			total -= math.Log(mean/float64(heads)) / float64(len(batch))
			continue
		}
		clear(logs)
		for from := 0; from < len(batch); from += direct {
			l.product(batch[from:min(from+direct, len(batch))], products)
			for s, v := range products {
				logs[s] += math.Log(v)
			}
		}
		// log sum_s exp(log_s) = top + log sum_s exp(log_s - top), where no term is above 1.
		top := slices.Max(logs)
		for _, v := range logs {
			mean += math.Exp(v - top)
		}
		total -= (top + math.Log(mean/float64(heads))) / float64(len(batch))
	}
	return total / float64(len(batches))
}

// product sets out to the product of the points' rows.
// There is one point at least, and out has a number for each head.
func (l Likelihood) product(points []int, out []float64) {
	copy(out, l[points[0]])
	points = points[1:]
	for ; len(points) >= 3; points = points[3:] { // fewer passes over out
		a, b, c := l[points[0]][:len(out)], l[points[1]][:len(out)], l[points[2]][:len(out)]
		for s := range out {
			out[s] *= a[s] * b[s] * c[s]
		}
	}
	for _, i := range points {
		for s, v := range l[i][:len(out)] {
			out[s] *= v
		}
	}
}

// Score returns both joint scores.
func (b *Batches) Score(l Likelihood) Joint {
	return Joint{Random: JointNLL(l, b.Random), Near: JointNLL(l, b.Near)}
}
