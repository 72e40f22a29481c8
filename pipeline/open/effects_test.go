package open

import (
	"math"
	"testing"

	"gonum.org/v1/gonum/floats"
	"gonum.org/v1/gonum/mat"

	"fmp/onnx/must"
)

// TestEffects: what an image tells of its client's effect is the effect where it shows outside the
// span of the corpus's class means, and nothing of an image at a class mean; a predictor moved by
// an effect finds in moved uploads what it found before; maps to white coordinates and back are
// inverse.
func TestEffects(t *testing.T) {
	_, p, s := load(t)
	k := len(p.M0)
	p.Known = mat.DenseCopyOf(p.Known.Slice(0, 3, 0, k)) // so that they do not span all coordinates
	for j := range k {
		p.M0[j] = (p.Known.At(0, j) + p.Known.At(1, j) + p.Known.At(2, j)) / 3
	}
	to, back := must.Get2(p.White())(t)
	var one, cov mat.Dense
	one.Mul(to, back)
	cov.Mul(to.T(), p.W)
	cov.Mul(&cov, to)
	for i := range k {
		for j := range k {
			want := 0.0
			if i == j {
				want = 1
			}
			if math.Abs(one.At(i, j)-want) > 1e-8 || math.Abs(cov.At(i, j)-want) > 1e-8 {
				t.Fatalf("element %d, %d of to·back is %v, of the covariance within classes "+
					"%v; want %v", i, j, one.At(i, j), cov.At(i, j), want)
			}
		}
	}
	u := make([]float64, k)
	for j := range u {
		u[j] = 30 * math.Cos(float64(3*j+1))
	}
	var effect mat.VecDense
	effect.MulVec(back.T(), mat.NewVecDense(k, u))
	b := effect.RawVector().Data
	effects := mat.NewSymDense(k, nil)
	effects.SymRankOne(effects, 1, &effect)
	a, c := must.Get2(p.Unshift(effects))(t)
	told := func(phi []float64) []float64 {
		var out mat.VecDense
		out.MulVec(a.T(), mat.NewVecDense(k, phi))
		floats.Sub(out.RawVector().Data, c)
		return out.RawVector().Data
	}
	for y := range 3 {
		mean := p.Known.RawRowView(y)
		if off := floats.Norm(told(mean), 2); off > 1e-6 {
			t.Errorf("the mean of class %d is told an effect of length %v", y, off)
		}
		moved := make([]float64, k)
		floats.AddTo(moved, mean, b)
		got := told(moved)
		floats.Sub(got, b)
		if off := floats.Norm(got, 2) / floats.Norm(b, 2); off > 0.02 {
			t.Errorf("the effect of an image of class %d is off by the share %.3f", y, off)
		}
	}
	want, limit := must.Get2(p.Novelty(s))(t)
	q := must.Get(p.Posterior(s))(t)
	classes, _ := s.Mean.Dims()
	at := *s
	at.Mean = mat.DenseCopyOf(s.Mean)
	for y := range classes {
		floats.Add(at.Mean.RawRowView(y), b)
	}
	there := p.Moved(b)
	if got, l, err := there.Novelty(&at); err != nil || math.Abs(got-want) > 1e-6*want || l != limit {
		t.Errorf("novelty of moved uploads is %v, %v; want %v", got, err, want)
	}
	if got, err := there.Posterior(&at); err != nil || math.Abs(got.Rho-q.Rho) > 1e-6*q.Rho {
		t.Errorf("temperature of moved uploads: %v; want %v", err, q.Rho)
	}
	wider := p.Wider(effects)
	for i := range k {
		for j := range k {
			if got, want := wider.W.At(i, j),
				p.W.At(i, j)+b[i]*b[j]; math.Abs(got-want) > 1e-9*(1+math.Abs(want)) {
				t.Fatalf("covariance %v; want %v", got, want)
			}
		}
	}
}
