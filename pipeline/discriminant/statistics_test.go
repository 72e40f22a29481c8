package discriminant

import (
	"math"
	"runtime"
	"slices"
	"testing"

	"gonum.org/v1/gonum/floats"
	"gonum.org/v1/gonum/mat"

	"fmp/onnx/must"
	"fmp/pipeline/honesty"
	"fmp/pipeline/moments"
)

func within1e9(a, b float64) bool { return math.Abs(a-b) <= 1e-9*(math.Abs(a)+math.Abs(b)) }

// TestStatistics: b and n0 are those of the package's doc, computed here from a dense inverse,
// class by class. One class is held by one client, which tells nothing of b.
func TestStatistics(t *testing.T) {
	cs := newWorld(7, 0).clients(t, 4, 30)
	for m := range cs[1:] { // class 0 is that of client 0
		_, labels := cs[m+1].Means.Labelled()
		cs[m+1].Means.W[slices.Index(labels, 0)] = 0
	}
	p := must.Get(pool(cs))(t)
	h := must.Get(p.head(nil))(t)
	var inverse mat.Dense
	must.Do(t, inverse.Inverse(h.within))
	a := mat.NewDense(k, c, nil)
	for y := range c {
		var col mat.VecDense
		col.MulVec(&inverse, h.away.RowView(y))
		a.SetCol(y, col.RawVector().Data)
	}
	for j := range k {
		floats.AddConst(-floats.Sum(a.RawRowView(j))/c, a.RawRowView(j))
	}
	var sum, unit float64
	cells := 0
	for _, e := range p.cells {
		if e.class == 0 {
			continue
		}
		cells++
		for y := range c {
			var along float64
			for j := range k {
				along += (e.mean[j] - p.mean.At(e.class, j)) * a.At(j, y)
			}
			sum += e.n * along * along
		}
	}
	for y := range c {
		unit += mat.Inner(a.ColView(y), h.within, a.ColView(y))
	}
	if want := (sum/unit + 4) / float64(cells-(c-1)+4); cells != 4*(c-1) || !within1e9(h.spread, want) {
		t.Errorf("b is %v, want %v", h.spread, want)
	}

	// n0 is a fixed point of its rounds, but for the last ones.
	noise := 0.0
	for i := range k {
		noise += mat.Dot(inverse.RowView(i), mat.DenseCopyOf(p.scatter).ColView(i)) / p.dof / k
	}
	pseudo := 8.0
	for range rounds {
		origin, all := make([]float64, k), 0.0
		for y, n := range p.n {
			all += n / (n + pseudo)
			floats.AddScaled(origin, n/(n+pseudo), p.mean.RawRowView(y))
		}
		floats.Scale(1/all, origin)
		var off, of float64
		for y, n := range p.n {
			d := mat.NewVecDense(k, nil)
			for j := range k {
				d.SetVec(j, p.mean.At(y, j)-origin[j])
			}
			// With weights w, sum w |d|^2 has the mean tau sum w (1 - w/all) and as much of each
			// mean's own noise.
			w := n / (n + pseudo)
			off += w * mat.Inner(d, &inverse, d) / k
			off -= w * (1 - w/all) * noise / n
			of += w * (1 - w/all)
		}
		pseudo = caution * noise / max(off/of, noise/200)
	}
	if !within1e9(h.pseudo, pseudo) {
		t.Errorf("n0 is %v, want %v", h.pseudo, pseudo)
	}
}

// TestDrawn: class means of heads have the tempered variance of the posterior, b W / (n_c + n0)
// along rows, in antithetic pairs.
func TestDrawn(t *testing.T) {
	p := must.Get(pool(newWorld(7, 0).clients(t, 2, 24)))(t)
	h := must.Get(p.head(p.rows))(t)
	h.pseudo = 9
	const samples = 4000
	heads := must.Get(p.draw(t.Context(), h, slices.Repeat([]float64{1}, samples),
		Options{Seed: 1, Stream: "test"}))(t)
	temperature := h.temperature(1)
	var upper mat.TriDense
	h.chol.UTo(&upper)
	for y := range c {
		var square float64
		for s := 0; s < samples; s += 2 {
			d := mat.NewVecDense(k, nil)
			for j := range k {
				d.SetVec(j, temperature*(heads[s].Row(j)[y]-heads[s+1].Row(j)[y])/2)
			}
			d.MulVec(&upper, d)
			square += mat.Dot(d, d) / k / (samples / 2)
		}
		if want := Tempering * h.rowSpread / (p.n[y] + h.pseudo); math.Abs(square/want-1) > 0.05 {
			t.Errorf("class %d: variance %v, want %v", y, square, want)
		}
	}
}

// TestScatterOdds: the log ratio of the densities of the most distant variance, that of an honest
// client and that of a mixture.
func TestScatterOdds(t *testing.T) {
	normal := func(x, v float64) float64 { return math.Exp(-x*x/2/v) / math.Sqrt(2*math.Pi*v) }
	for _, v := range []struct {
		variances []float64
		dof       int
		furthest  float64 // logarithm of its ratio to the others'
	}{{[]float64{1, 4}, 2, 0}, {[]float64{2, 4}, 5, math.Log(2)},
		{[]float64{0.5, 20}, 50, math.Log(5)}, {[]float64{1, 1e-30}, 50, math.Log(1e-6)}} {
		honest := logSpread*logSpread + 2/float64(v.dof)
		a := normal(v.furthest, honest)
		far := normal(v.furthest, honest+logFalse*logFalse)
		want := math.Log(a / (falseShare*a + falseShare*far))
		if got := scatterOdds(v.variances, []float64{1, 2}, v.dof); math.Abs(got-want) > 1e-9*(1+math.Abs(want)) {
			t.Errorf("%v of %d degrees of freedom: %v, want %v", v.variances, v.dof, got, want)
		}
	}
}

// TestCentre: a client's shift is told by its other classes: of three classes moved alike and one
// moved further, the three lose the shift but for its prior and the lie, and the lie stays but for
// the shift.
func TestCentre(t *testing.T) {
	const shift, lie, n = 5.0, 100.0, 1e6
	u := honesty.Uploads{Clients: 2, Classes: 4, K: 1, Masses: slices.Repeat([]float64{n}, 8),
		Means: make([]float64, 8)}
	copy(u.Means[4:], []float64{shift, shift, shift, shift + lie})
	all := newTally(4, 1)
	all.add(&u, 0, 0, 1)
	all.add(&u, 1, 0, 1)
	all.centre(&u, 1, 0, 1)
	// The precision of a mean of many images is 1/.3, as that of the shift's prior: four terms,
	// three of other classes.
	for y, want := range []float64{shift - (3*shift+lie)/4, shift - (3*shift+lie)/4,
		shift - (3*shift+lie)/4, shift + lie - 3*shift/4} {
		if got := u.Means[4+y]; math.Abs(got-want) > 1e-4*lie {
			t.Errorf("class %d is at %v, want %v", y, got, want)
		}
	}
}

// TestAlike: directions in which classes do not lie apart share one variance, divided by the square
// of [tightness].
func TestAlike(t *testing.T) {
	cs := newWorld(7, 0).clients(t, 3, 40)[:1]
	v := mat.NewDense(k, 3, nil)
	for j := range 3 {
		v.Set(j+1, j, 1)
	}
	plain := variances(cs[0], v)
	deviations, _ := scatters(cs, v, 1)
	alike := math.Sqrt((plain[1]+plain[2])/2) / tightness
	for j, want := range []float64{math.Sqrt(plain[0]), alike, alike} {
		if !within1e9(deviations[j], want) {
			t.Errorf("direction %d: deviation %v, want %v", j, deviations[j], want)
		}
	}
}

// TestWithoutNegative: a scatter that is no covariance counts without its negative directions, and
// Improper names its client.
func TestWithoutNegative(t *testing.T) {
	w := newWorld(1, 0)
	p := must.Get(pool(w.clients(t, 4, 20)))(t)
	of := mat.Trace(p.scatter)
	clean := mat.NewSymDense(k, nil)
	clean.CopySym(p.scatter)
	for j := range k { // nothing along the first coordinate, then less
		clean.SetSym(0, j, 0)
	}
	p.scatter.CopySym(clean)
	p.scatter.SetSym(0, 0, -of/10)
	bad := w.clients(t, 2, 60)
	bad[1].Within.Rank = 0
	bad[1].Within.Data = make([]float32, k*(k+1)/2)
	bad[1].Within.Data[0], bad[1].Within.Data[1] = 1e-3, 50
	if got := must.Get(Improper(bad))(t); !slices.Equal(got, []bool{false, true}) {
		t.Errorf("improper are %v, want the second", got)
	}
	got, _, _, err := p.within()
	must.Do(t, err)
	if want := p.smoothed(clean, p.dof); !mat.EqualApprox(got, want, 1e-9*of) {
		t.Errorf("W is\n%v, want\n%v", mat.Formatted(got), mat.Formatted(want))
	}
}

// TestClaimsBesideImproper: clients whose scatters pass beside the larger ones of improper clients, and
// whose sum is no covariance without these, leave judges that take an honest client.
func TestClaimsBesideImproper(t *testing.T) {
	cs := newWorld(7, 0).clients(t, 12, 40)
	scatter := func(dof int, set func(s *mat.SymDense)) *moments.Within {
		s, w := mat.NewSymDense(k, nil), &moments.Within{K: k, Dof: dof}
		set(s)
		for i := range k {
			for j := i; j < k; j++ {
				w.Data = append(w.Data, float32(s.At(i, j)))
			}
		}
		return w
	}
	for m := range cs {
		switch {
		case m < 7: // honest: hardly anything beyond two coordinates
			cs[m].Within = scatter(30, func(s *mat.SymDense) {
				for i := range k {
					s.SetSym(i, i, 1e-4)
				}
				s.SetSym(0, 0, 1)
				s.SetSym(1, 1, 1)
			})
		case m < 9: // large and improper
			cs[m].Within = scatter(100, func(s *mat.SymDense) {
				s.SetSym(0, 0, 20)
				s.SetSym(1, 1, 20)
				s.SetSym(0, 1, 36)
			})
		default: // improper by less than a client's part of the prior, which the large ones enlarge
			cs[m].Within = scatter(100, func(s *mat.SymDense) {
				for i := 0; i < k; i += 2 {
					s.SetSym(i, i+1, .99*strength*(6*2+2*40)/(6*30+5*100)/11)
				}
			})
		}
	}
	improper := must.Get(Improper(cs[1:]))(t)
	if want := []bool{6: true, 7: true, 10: false}; !slices.Equal(improper, want) {
		t.Fatalf("improper are %v, want %v", improper, want)
	}
	by, _, _, err := NewJudges(cs[1:])
	must.Do(t, err)
	if u := must.Get(by.Claims(cs[0]))(t); math.IsInf(u.Odds[0], -1) {
		t.Error("an honest client is refused for its scatter")
	}
}

// TestDirections: along the directions the covariance is I, and the class means are uncorrelated
// with the sums of squares that come with them, in descending order; of many classes they take no
// table of classes by classes.
func TestDirections(t *testing.T) {
	for _, c := range []struct{ k, classes, want int }{
		{4, 3, 2}, {6, 40, 6}, {70, 20, 19}, {70, 300, honesty.Leading}, {110, 30, 29}, {20, 3000, 20},
	} {
		noise := gaussian(c.k, 2*c.k, 5)
		within := mat.NewSymDense(c.k, nil)
		within.SymOuterK(1/float64(c.k), noise)
		away := mat.DenseCopyOf(gaussian(c.k, c.classes, 6).T())
		for j := range c.k {
			col := mat.Col(nil, j, away)
			floats.AddConst(-floats.Sum(col)/float64(c.classes), col)
			away.SetCol(j, col)
		}
		h := &head{within: within, away: away, a: mat.NewDense(c.k, c.classes, nil)}
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		v, values, err := directions(h)
		runtime.ReadMemStats(&after)
		must.Do(t, err)
		if took := after.TotalAlloc - before.TotalAlloc; took > 16<<20 {
			t.Errorf("%+v: directions take %d MB", c, took>>20)
		}
		if _, r := v.Dims(); r != c.want || len(values) != r {
			t.Fatalf("%+v: %d directions with %d values", c, r, len(values))
		}
		var on, unit, along, squares mat.Dense
		on.Mul(within, v)
		unit.Mul(v.T(), &on)
		along.Mul(away, v)
		squares.Mul(along.T(), &along)
		for i := range values {
			for j := range values {
				one, square := 0.0, 0.0
				if i == j {
					one, square = 1, values[i]
				}
				if math.Abs(unit.At(i, j)-one) > 1e-9 || math.Abs(squares.At(i, j)-square) > 1e-9*values[0] {
					t.Fatalf("%+v: element %d, %d is %v and %v; want %v and %v", c, i, j, unit.At(i, j),
						squares.At(i, j), one, square)
				}
			}
			if i > 0 && values[i] > values[i-1] {
				t.Fatalf("%+v: value %d is above the one before", c, i)
			}
		}
	}
}
