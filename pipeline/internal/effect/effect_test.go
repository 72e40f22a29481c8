package effect

import (
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"gonum.org/v1/gonum/floats"
	"gonum.org/v1/gonum/mat"

	"fmp/models/rng"
	"fmp/onnx/must"
	"fmp/pipeline/honesty"
	"fmp/pipeline/point"
)

const (
	dx, classes, clients = 12, 6, 8
	images               = 10 // of each class of a client
)

// round returns class means of clients whose classes scatter with covariance LL', L = back', each
// moved by move(client, class).
func round(r *rand.Rand, back *mat.Dense, held func(m, c int) bool,
	move func(m, c int) []float64) []*point.Set {
	class := mat.NewDense(classes, dx, nil)
	for i := range class.RawMatrix().Data {
		class.RawMatrix().Data[i] = 2 * r.NormFloat64()
	}
	var sets []*point.Set
	for m := range clients {
		s := point.New(classes, dx, classes)
		for c := range classes {
			u := make([]float64, dx)
			for j := range u {
				u[j] = class.At(c, j) + r.NormFloat64()/math.Sqrt(images)
			}
			if b := move(m, c); b != nil {
				floats.Add(u, b)
			}
			var x mat.VecDense
			x.MulVec(back.T(), mat.NewVecDense(dx, u))
			for j := range dx {
				s.Row(c)[j] = float32(x.AtVec(j))
			}
			s.Row(c)[dx+c], s.W[c] = 1, images
			if !held(m, c) {
				s.W[c] = 0
			}
		}
		sets = append(sets, s.Held())
	}
	return sets
}

// maps returns a map to coordinates of covariance I, and back, that mixes and stretches
// coordinates.
func maps(t *testing.T, r *rand.Rand) (white, back *mat.Dense) {
	t.Helper()
	back = mat.NewDense(dx, dx, nil)
	for i := range dx {
		for j := range dx {
			back.Set(i, j, r.NormFloat64()/4)
		}
		back.Set(i, i, back.At(i, i)+math.Pow(10, float64(i%4)-2))
	}
	white = new(mat.Dense)
	must.Do(t, white.Inverse(back))
	return white, back
}

func all(int, int) bool { return true }

// camera is the effect of clients 0 and 1, of length 3 standard deviations.
func camera(m int) []float64 {
	if m > 1 {
		return nil
	}
	b := make([]float64, dx)
	for j := range b {
		b[j] = 3 * math.Sqrt(2./dx) * math.Sin(float64(j+m)*math.Pi/2+math.Pi/4)
	}
	return b
}

// TestEffects: the clients with another camera are found in most rounds and no others in any, their
// effects are near the true ones, and class means less these agree with the others'.
func TestEffects(t *testing.T) {
	const rounds = 40
	found := 0
	for i := range rounds {
		r := rng.New(uint64(i), "effects")
		white, back := maps(t, r)
		sets := round(r, back, all, func(m, _ int) []float64 { return camera(m) })
		e := must.Get(Estimate(sets, white, back))(t)
		if e == nil {
			continue
		}
		for m, b := range e.Shift {
			if m > 1 {
				if b != nil {
					t.Errorf("round %d: client %d has an effect of %.2f, and has none", i, m, e.Size[m])
				}
				continue
			}
			if b == nil {
				continue
			}
			found++
			var u mat.VecDense
			u.MulVec(white.T(), mat.NewVecDense(dx, b))
			floats.Sub(u.RawVector().Data, camera(m))
			// The error of a mean of 6 classes of 10 images about medians of 5 to 7 others, and
			// some shrinkage.
			if off := mat.Norm(&u, 2); off > 1.1 {
				t.Errorf("round %d: the effect of client %d is off by %.2f standard deviations", i,
					m, off)
			}
			if e.Size[m] < 2 || e.Size[m] > 4 {
				t.Errorf("round %d: the effect of client %d has length %.2f; want about 3",
					i, m, e.Size[m])
			}
			apart := e.Subtract(sets, nil)[m]
			for j := range dx {
				if got, want := float64(apart.Row(0)[j]),
					float64(sets[m].Row(0)[j])-b[j]; math.Abs(got-want) > 1e-4*(1+math.Abs(want)) {
					t.Fatalf("round %d: class mean %v less its effect is %v", i, want, got)
				}
			}
		}
		if d := e.ToCome().Directions(); d.Rest != 0 || e.Any() && !(d.Trace > 0) {
			t.Errorf("round %d: outside of the directions effects have variance %v, and the classes %v", i,
				d.Rest, d.Trace)
		}
		cov := e.ToCome().Covariance()
		for j := range dx {
			want := 0.0
			for _, b := range e.Shift {
				if b != nil {
					want += b[j] * b[j] / clients
				}
			}
			if math.Abs(cov.At(j, j)-want) > 1e-9*(1+want) {
				t.Errorf("variance %v of coordinate %d; want %v", cov.At(j, j), j, want)
			}
		}
	}
	if found < 2*rounds*9/10 {
		t.Errorf("%d of %d effects are found", found, 2*rounds)
	}
}

// TestNoEffect: where no client has another camera, hardly any round has an effect: not with all
// classes at each client, nor with a few, nor where false names of classes, a lie in one class or
// one mean for all classes, of up to all clients but two, set clients apart.
func TestNoEffect(t *testing.T) {
	const rounds = 100
	few := func(m, c int) bool { return (c+m)%3 == 0 || c == m%classes }
	still := func(*rand.Rand, int, int) []float64 { return nil }
	for name, of := range map[string]struct {
		held func(m, c int) bool
		move func(r *rand.Rand, m, c int) []float64
		one  int // clients that send the first client's mean of its first class for all
	}{
		"alike":       {all, still, 0},
		"few classes": {few, still, 0},
		"a lie in one class": {all, func(_ *rand.Rand, m, c int) []float64 {
			if m > 0 || c > 0 {
				return nil
			}
			return slices.Repeat([]float64{3}, dx)
		}, 0},
		"all classes at one mean":              {all, still, 1},
		"half at one mean":                     {all, still, clients / 2},
		"few classes, half at one mean":        {few, still, clients / 2},
		"few classes, more than half":          {few, still, clients/2 + 1},
		"few classes, all but two at one mean": {few, still, clients - 2},
		"false names": {all, func(r *rand.Rand, m, _ int) []float64 {
			if m > 1 {
				return nil
			}
			return normal(r.NormFloat64, dx, 3)
		}, 0},
	} {
		wrong := 0
		for i := range rounds {
			r := rng.New(uint64(i), "none", name)
			white, back := maps(t, r)
			sets := round(r, back, of.held, func(m, c int) []float64 { return of.move(r, m, c) })
			for _, s := range sets[clients-of.one:] {
				for i := range s.N {
					copy(s.Row(i)[:dx], sets[0].Row(0)[:dx])
				}
			}
			e := must.Get(Estimate(sets, white, back))(t)
			if e.Any() {
				wrong++
			}
		}
		if wrong > rounds*5/100 {
			t.Errorf("%s: %d of %d rounds have an effect; want at most 5%%", name, wrong, rounds)
		}
	}
}

// TestOneMean: where no client has another camera, few rounds have an effect in which up to eight
// of ten clients send one mean for all classes, with a few images of each, in coordinates of unequal
// variance.
func TestOneMean(t *testing.T) {
	const rounds, k, classes, clients = 40, 48, 10, 10
	one := mat.NewDense(k, k, nil)
	for j := range k {
		one.Set(j, j, 1)
	}
	for _, liars := range []int{4, 5, 8} {
		wrong := 0
		for i := range rounds {
			r := rng.New(uint64(i), "one mean", liars)
			deviation := func(j int) float64 { return math.Pow(float64(j+1), -0.5) }
			class := normal(r.NormFloat64, classes*k, 2)
			var sets []*point.Set
			for m := range clients {
				s := point.New(classes, k, classes)
				for c := range classes {
					n := math.Floor(20 * math.Pow(r.Float64(), 4))
					from := c
					if m < liars {
						from = 0
					}
					for j, row := 0, s.Row(c); j < k && n > 0; j++ {
						x := class[from*k+j]
						if from == c {
							x += r.NormFloat64() / math.Sqrt(n)
						}
						row[j] = float32(x * deviation(j))
					}
					s.Row(c)[k+c], s.W[c] = 1, float32(n)
				}
				sets = append(sets, s.Held())
			}
			if must.Get(Estimate(sets, one, one))(t).Any() {
				wrong++
			}
		}
		t.Logf("%d of %d clients: %d of %d rounds have an effect", liars, clients, wrong, rounds)
		if wrong > rounds*15/100 {
			t.Errorf("%d of %d clients: %d of %d rounds have an effect; want at most 15%%", liars, clients,
				wrong, rounds)
		}
	}
}

// TestMedian: a median leaves one value out, wherever it is.
func TestMedian(t *testing.T) {
	r := reference{sorted: [][]float64{{1, 2, 4, 8, 16}}}
	for _, c := range []struct {
		own   float64
		among bool
		want  float64
	}{{0, false, 4}, {1, true, 6}, {2, true, 6}, {4, true, 5}, {8, true, 3}, {16, true, 3}} {
		if got := r.median(0, c.own, c.among); got != c.want {
			t.Errorf("median without %v (%v) is %v; want %v", c.own, c.among, got, c.want)
		}
	}
}

// TestMostDiffer: where every client has an effect of its own, shrinkage estimates them better than
// a client's mean does, by little where all clients hold all classes and by much where classes are
// missing.
func TestMostDiffer(t *testing.T) {
	few := func(m, c int) bool { return (c+m)%3 != 0 }
	for name, held := range map[string]func(m, c int) bool{"all classes": all, "some classes": few} {
		var off, none, centring float64
		for i := range 20 {
			r := rng.New(uint64(i), "most", name)
			white, back := maps(t, r)
			shift := make([][]float64, clients)
			for m := range shift { // along two directions
				shift[m] = make([]float64, dx)
				shift[m][0], shift[m][1] = 1.5*r.NormFloat64(), 1.5*r.NormFloat64()
			}
			sets := round(r, back, held, func(m, _ int) []float64 { return shift[m] })
			e := must.Get(Estimate(sets, white, back))(t)
			if !e.Any() {
				t.Errorf("%s: round %d: no client has an effect", name, i)
				continue
			}
			got, own := make([][]float64, clients), make([][]float64, clients)
			for m, s := range sets {
				got[m], own[m] = make([]float64, dx), make([]float64, dx)
				if e.Shift[m] != nil {
					toUnits(white, e.Shift[m], got[m])
				}
				mean := make([]float64, dx)
				for j := range s.N {
					for d, v := range s.Row(j)[:dx] {
						mean[d] += float64(v) / float64(s.N)
					}
				}
				toUnits(white, mean, own[m])
			}
			off, none, centring = off+apartFrom(got, shift),
				none+apartFrom(make([][]float64, clients), shift), centring+apartFrom(own, shift)
			if trace := mat.Trace(e.ToCome().Covariance()); !(trace > 0) {
				t.Errorf("%s: round %d: effects of a client to come have variance %v", name, i, trace)
			}
		}
		if off > none/12 || off > centring {
			t.Errorf(
				"%s: effects are off by %.1f, a client's mean by %.1f, no effects by %.1f (sums "+
					"of squares)",
				name, off, centring, none)
		}
	}
}

func toUnits(white *mat.Dense, b, out []float64) {
	var u mat.VecDense
	u.MulVec(white.T(), mat.NewVecDense(len(b), b))
	copy(out, u.RawVector().Data)
}

// apartFrom returns the sum of squares of differences of vectors from others, up to a vector that
// all have in common.
func apartFrom(a, b [][]float64) (sum float64) {
	mean := make([]float64, dx)
	for m, row := range b {
		if a[m] == nil {
			a[m] = make([]float64, dx)
		}
		for j, v := range row {
			mean[j] += (a[m][j] - v) / float64(len(b))
		}
	}
	for m, row := range b {
		for j, v := range row {
			d := a[m][j] - v - mean[j]
			sum += d * d
		}
	}
	return sum
}

// TestSlope: the slope of a client's classes on the others' is that of their expectations, where
// the others' means are mostly noise. It is 0 of one mean for all classes.
func TestSlope(t *testing.T) {
	r := rand.New(rng.New(5, "slope"))
	const k, clients, classes, images = 200, 8, 12, 2
	for _, c := range []struct{ spread, slope float64 }{{0.5, 1}, {1, 1}, {1, 0.6}, {3, 1}, {1, 0}} {
		mean := make([][]float64, classes)
		for y := range mean {
			mean[y] = normal(r.NormFloat64, k, c.spread)
		}
		cells := make([][]cell, clients)
		for m := range cells {
			camera := normal(r.NormFloat64, k, 0.5)
			for y := range mean {
				a := honesty.Precision(images)
				x := normal(r.NormFloat64, k, 1/math.Sqrt(a))
				by := 1.
				if m == 0 {
					by = c.slope
				}
				floats.AddScaled(x, by, mean[y])
				floats.Add(x, camera)
				cells[m] = append(cells[m], cell{y, images, a, x})
			}
		}
		got := differences(cells, make([][]float64, clients), classes, k)[0].slope
		if math.Abs(got-c.slope) > 0.15 {
			t.Errorf("classes %g apart: slope %.3f; want %g", c.spread, got, c.slope)
		}
	}
}

// TestNoneIn: a round of clients whose means are alike for all classes has no effects.
func TestNoneIn(t *testing.T) {
	r := rand.New(rng.New(6, "none"))
	white := mat.NewDense(dx, dx, nil)
	for j := range dx {
		white.Set(j, j, 1)
	}
	sets := round(r, white, all, func(int, int) []float64 { return nil })
	for m, s := range sets {
		for c := range classes {
			for j := range dx {
				s.Row(c)[j] = float32(10*math.Sin(float64(m*dx+j)) + 0.01*r.NormFloat64())
			}
		}
	}
	if e, err := Estimate(sets, white, white); e != nil || err != nil {
		t.Errorf("effects %+v, error %v", e, err)
	}
}
