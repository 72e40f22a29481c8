package effect

import (
	"math"
	"math/rand/v2"
	"testing"

	"gonum.org/v1/gonum/floats"
	"gonum.org/v1/gonum/mat"

	"fmp/models/rng"
	"fmp/onnx/must"
)

// TestShrinkLiar: a client whose class means differ each in its own way is noisy, and has a smaller
// effect than the mean of its differences.
func TestShrinkLiar(t *testing.T) {
	r := rng.New(1, "liar")
	const k = 12
	cells, lies := cellsOf(r, clients, k, 2, 0.5, 0.3), make([]float64, k)
	for y := range classes {
		lie := normal(r.NormFloat64, k, 3)
		floats.Add(cells[0][y].x, lie)
		floats.AddScaled(lies, 1./classes, lie)
	}
	s := must.Get(fitted(cells, classes, k, lowRank))(t)
	for m := 1; m < clients; m++ {
		if s.noise[0] < 10*s.noise[m] {
			t.Errorf("noise of the liar is %.2f, of client %d %.2f", s.noise[0], m, s.noise[m])
		}
	}
	if got, of := floats.Norm(s.shift[0], 2), floats.Norm(lies, 2); got > of/2 {
		t.Errorf("the liar has an effect of %.2f; the mean of its lies is %.2f", got, of)
	}
}

// cellsOf returns the cells of clients that hold all classes, of k coordinates, where class means,
// shifts of clients and noise have deviations.
func cellsOf(r *rand.Rand, clients, k int, apart, moved, noise float64) [][]cell {
	cells, class := make([][]cell, clients), make([][]float64, classes)
	for y := range class {
		class[y] = normal(r.NormFloat64, k, apart)
	}
	for m := range cells {
		shift := normal(r.NormFloat64, k, moved)
		for y := range class {
			x := normal(r.NormFloat64, k, noise)
			floats.Add(x, shift)
			floats.Add(x, class[y])
			cells[m] = append(cells[m], cell{y, 10, 1, x})
		}
	}
	return cells
}

func normal(draw func() float64, k int, by float64) []float64 {
	out := make([]float64, k)
	for j := range out {
		out[j] = by * draw()
	}
	return out
}

// TestShrinkLeftOut: clients that are left out, or that share too few classes, change nothing,
// however many they are.
func TestShrinkLeftOut(t *testing.T) {
	r := rng.New(1, "left out")
	const k = 5
	cells := cellsOf(r, clients, k, 2, 0.5, 0.3)
	for _, f := range []form{lowRank, isotropic, none} {
		alone := must.Get(fitted(cells, classes, k, f))(t)
		beside := must.Get(fitted(append(make([][]cell, clients), cells...), classes, k, f))(t)
		if a, b := alone.rest, beside.rest; math.Abs(a-b) > 1e-9*a {
			t.Errorf("form %d: effects have variance %g, and %g beside clients that are left out",
				f, a, b)
		}
		for m, b := range alone.shift {
			if !floats.EqualApprox(b, beside.shift[clients+m], 1e-9) {
				t.Errorf("form %d: effect of client %d is %.3f, and %.3f beside clients that "+
					"are left out", f, m, b, beside.shift[clients+m])
			}
		}
		if a, b := alone.bound(), beside.bound(); math.Abs(a-b) > 1e-9*math.Abs(a) {
			t.Errorf("form %d: bound %g, and %g beside clients that are left out", f, a, b)
		}
	}
}

// TestShrinkNoise: the noise of clients is that which they were drawn with, though the classes'
// means are estimated from few of them.
func TestShrinkNoise(t *testing.T) {
	const k, of = 200, 3
	cells := cellsOf(rng.New(1, "noise"), of, k, 3, 0.7, 1)
	s := must.Get(fitted(cells, classes, k, lowRank))(t)
	if got := floats.Sum(s.noise) / of; got < 0.9 || got > 1.1 {
		t.Errorf("noise %.3f, want 1", got)
	}
}

// TestCovariance: that of a law is back' (U diag(along) U' + rest (I - UU')) back.
func TestCovariance(t *testing.T) {
	white, back := maps(t, rng.New(1, "law"))
	u := mat.NewDense(dx, 2, nil)
	u.Set(1, 0, 1)
	u.Set(4, 1, 1)
	l := Law{basis: u, along: []float64{5, 3}, rest: 0.5, white: white, back: back}
	var half, got mat.Dense
	half.Mul(white.T(), l.Covariance())
	got.Mul(&half, white)
	for i := range dx {
		for j := range dx {
			want := 0.0
			if i == j {
				want = map[int]float64{1: 5, 4: 3}[i]
				if want == 0 {
					want = 0.5
				}
			}
			if math.Abs(got.At(i, j)-want) > 1e-6 {
				t.Errorf("element %d, %d is %v, want %v", i, j, got.At(i, j), want)
			}
		}
	}
}

// TestCompare: the F statistic of a client's shift, by hand: of two classes and two coordinates, of
// which the client differs by 3 and 5 in the first.
func TestCompare(t *testing.T) {
	cells := make([][]cell, 4)
	for m := range cells {
		for y := range 2 {
			x := []float64{0, 10 * float64(y)}
			if m == 3 {
				x[0] = 3 + 2*float64(y)
			}
			cells[m] = append(cells[m], cell{y, 1, 1, x})
		}
	}
	d := compare(3, nil, cells[3], references(cells, make([][]float64, 4), 2, 2))
	d.test(2)
	// R0 = 9 + 25, b = 4, R1 = 1 + 1, of k = 2 and (N-1) k = 2 degrees of freedom.
	if d.r0 != 34 || d.r1 != 2 || d.shared != 2 || d.free != 2 || d.statistic != 16 ||
		d.mean[0] != 4 ||
		d.mean[1] != 0 || d.noise != 2 {
		t.Errorf("difference %+v", d)
	}
	// of F with 2 and 2 degrees of freedom, 1/(1 + F)
	if want := 1. / 17; math.Abs(d.tail-want) > 1e-9 {
		t.Errorf("tail %v, want %v", d.tail, want)
	}
}

// TestNear: in a round in which all have another camera, the client whose classes lie a third as
// far apart as the others', or nowhere apart, is near, and no other; the law has no variance along
// its shift.
func TestNear(t *testing.T) {
	for name, c := range map[string]struct {
		nearer float64
		want   bool
	}{
		"nearer":    {0.3, true},
		"alike":     {0, true},
		"as others": {1, false},
	} {
		r := rng.New(5, "near")
		white, back := maps(t, r)
		shift := make([][]float64, clients)
		for m := range shift {
			shift[m] = make([]float64, dx)
			shift[m][0], shift[m][1] = 2*r.NormFloat64(), 2*r.NormFloat64()
		}
		sets := round(r, back, all, func(m, _ int) []float64 { return shift[m] })
		mean := make([]float64, dx)
		for i := range sets[0].N {
			for j, v := range sets[0].Row(i)[:dx] {
				mean[j] += float64(v) / float64(sets[0].N)
			}
		}
		far := mat.NewVecDense(dx, nil) // eight standard deviations along the third direction
		far.MulVec(back.T(), mat.NewVecDense(dx, append([]float64{0, 0, 8}, make([]float64, dx-3)...)))
		for i := range sets[0].N {
			for j := range dx {
				at := &sets[0].Row(i)[j]
				*at = float32(mean[j] + c.nearer*(float64(*at)-mean[j]) + far.AtVec(j))
			}
		}
		e, err := Estimate(sets, white, back)
		if err != nil || e == nil {
			t.Fatalf("%s: %v, %v", name, e, err)
		}
		for m, near := range e.Near {
			if near != (c.want && m == 0) || near && e.Shift[m] != nil {
				t.Errorf("%s: client %d: near %v, shift %v", name, m, near, e.Shift[m])
			}
		}
		var third mat.VecDense
		third.MulVec(e.ToCome().Covariance(), white.ColView(2))
		if v := mat.Dot(white.ColView(2), &third); (v > 2) == (c.nearer < 1) {
			t.Errorf("%s: the law has variance %.2f along the shift", name, v)
		}
	}
}
