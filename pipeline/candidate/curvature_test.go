package candidate

import (
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"gonum.org/v1/gonum/floats"
	"gonum.org/v1/gonum/mat"

	"fmp/onnx/must"
	"fmp/pipeline/erm"
)

// unit returns a discriminant of n rows of random features in which the covariance within classes
// is I, and the rows.
func unit(n, k, c int) (*discriminant, *images) {
	b := &basis{pool: &pool{k: k, c: c, m0: make([]float64, k)}, v: make([]float64, k*k)}
	h := &discriminant{basis: b, precision: make([]float64, k)}
	for j := range k {
		b.v[j*k+j], h.precision[j] = 1, 1
	}
	r := rand.New(rand.NewPCG(1, 2))
	on := &images{}
	for i := range n {
		row := make([]float64, k)
		for j := range row {
			row[j] = float64(1+j) * r.NormFloat64()
		}
		on.add(row, 1+float64(i%3), i%c)
	}
	return h, on
}

// TestSure: at a temperature below 1 labels vary less about a regression's probabilities than it
// says, and its weights with them.
func TestSure(t *testing.T) {
	const n, k, c = 200, 3, 3
	h, on := unit(n, k, c)
	l := linear{[]float64{1, 0, 0, 0, 1, 0, 0, 0, 1}, []float64{0, .5, 1}}
	logits := timesT(on.withOnes(k), h.withBias(l), n, k+1, c)
	var varied, said float64
	for i, m := range on.mass {
		p := logits[i*c : (i+1)*c]
		q := []float64{2 * p[0], 2 * p[1], 2 * p[2]}
		softmax(p)
		softmax(q)
		for y := range c { // of gradients, if y is the label
			away := slices.Clone(p)
			away[y]--
			varied, said = varied+m*q[y]*dot(away, away), said+m*p[y]*dot(away, away)
		}
	}
	got := floats.Sum(h.curvature(on, l, .5).deviation) / floats.Sum(h.curvature(on, l, 1).deviation)
	if want := math.Sqrt(varied / said); math.Abs(got-want) > 1e-9 || want > .95 {
		t.Errorf("weights deviate by %.4f of what the regression says, want %.4f", got, want)
	}
}

// A head that knows nothing has the same probabilities at all rows, where the product form of the
// Hessian is the Hessian: the covariance of drawn weights is its inverse.
func TestCurvature(t *testing.T) {
	const n, k, c, d = 400, 3, 3, 4
	h, on := unit(n, k, c)
	l := linear{make([]float64, c*k), make([]float64, c)}
	u := h.curvature(on, l, 2)
	hessian := mat.NewSymDense(d*c, nil)
	x := on.withOnes(k)
	for i, m := range on.mass {
		for a := range d * c {
			for b := a; b < d*c; b++ {
				p := -1. / (c * c)
				if a%c == b%c {
					p += 1. / c
				}
				hessian.SetSym(a, b, hessian.At(a, b)+m*p*x[i*d+a/c]*x[i*d+b/c])
			}
		}
	}
	for a := range d * c {
		hessian.SetSym(a, a, hessian.At(a, a)+tie)
	}
	var want mat.Dense
	must.Do(t, want.Inverse(hessian))
	const draws = 20000
	got := mat.NewDense(d*c, d*c, nil)
	r := rand.New(rand.NewPCG(3, 4))
	for range draws {
		v := mat.NewVecDense(d*c, u.draw(erm.NewTheta(d, c), r).W)
		got.RankOne(got, 1./draws/(u.size*u.size), v, v)
	}
	scale := mat.Max(&want)
	for a := range d * c {
		for b := range d * c {
			if e := math.Abs(got.At(a, b) - want.At(a, b)); e > .03*scale {
				t.Errorf("covariance of weights %d and %d is %.5f, want %.5f", a, b,
					got.At(a, b), want.At(a, b))
			}
		}
	}
	if math.Abs(u.size*2-u.sharper) > 1e-12 {
		t.Errorf("size %v at temperature 2, want half of sharper, %v", u.size, u.sharper)
	}
}

// Samples scatter, and their mean prediction is the head's: sharper than 1 where weights are
// uncertain.
func TestSamplesMean(t *testing.T) {
	const n, k, c = 60, 3, 3
	h, on := unit(n, k, c)
	l := linear{make([]float64, c*k), make([]float64, c)}
	for i := range l.w {
		l.w[i] = float64(i/k) - 1
	}
	u := h.curvature(on, l, 1)
	if !(u.sharper > 1.02 && u.sharper < sharpest) {
		t.Errorf("sharper is %v", u.sharper)
	}
	head := h.head(l)
	confidence := func(heads ...erm.Theta) (sum float64) {
		x := on.withOnes(k)
		for i := range n {
			mean := make([]float64, c)
			for _, t := range heads {
				row := make([]float64, c)
				for j := range k + 1 {
					axpy(x[i*(k+1)+j], t.Row(j), row)
				}
				lse := floats.LogSumExp(row)
				for y, v := range row {
					mean[y] += math.Exp(v-lse) / float64(len(heads))
				}
			}
			sum += floats.Max(mean) / n
		}
		return sum
	}
	r := rand.New(rand.NewPCG(5, 6))
	var heads, blunt []erm.Theta
	for range 300 {
		heads = append(heads, u.draw(head, r))
	}
	u.sharper, u.size = 1, 1
	for range 300 {
		blunt = append(blunt, u.draw(head, r))
	}
	want, got, without := confidence(head), confidence(heads...), confidence(blunt...)
	if math.Abs(got-want) > .5*math.Abs(without-want) {
		t.Errorf(
			"mean confidence %.4f of samples, %.4f of the head; %.4f of samples as sharp as the head",
			got, want, without)
	}
}
