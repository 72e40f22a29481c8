package discriminant

import (
	"fmt"
	"math"
	"slices"
	"testing"

	"gonum.org/v1/gonum/floats"
	"gonum.org/v1/gonum/mat"

	"fmp/models/rng"
	"fmp/onnx"
	"fmp/onnx/must"
	"fmp/pipeline/internal/moment"
	"fmp/pipeline/moments"
	"fmp/pipeline/point"
)

const k, c = 12, 4

// world draws labelled rows of Gaussian classes of one covariance, with heavier tails where nu is
// not 0.
type world struct {
	mean []float32
	nu   float64
}

func newWorld(seed uint64, nu float64) *world {
	w := &world{mean: make([]float32, c*k), nu: nu}
	rng.Normal(rng.New(seed, "mean"), w.mean)
	return w
}

func (w *world) draw(seed uint64, n int) ([]float32, []int) {
	x, y := make([]float32, n*k), make([]int, n)
	r := rng.New(seed, "draw")
	rng.Normal(r, x)
	for i := range y {
		y[i] = r.IntN(c)
		scale := 1.0
		if w.nu > 0 { // chi-squared of 4 degrees of freedom
			scale = math.Sqrt(w.nu / (-2 * math.Log(r.Float64()*r.Float64())))
		}
		for j := range k {
			s := 0.3
			if j < 3 {
				s = 1
			}
			x[i*k+j] = (3 + w.mean[y[i]*k+j] + float32(1.5*s*scale)*x[i*k+j]) / 10
		}
	}
	return x, y
}

func (w *world) clients(t testing.TB, many, n int) []Client {
	t.Helper()
	var out []Client
	for m := range many {
		x, y := w.draw(uint64(100+m), n)
		means, within := must.Get2(moments.Compute(x, k, y, c, fmt.Sprint(m)))(t)
		out = append(out, Client{Means: means, Within: within})
	}
	return out
}

// nll is the mean negative log-likelihood of a posterior's mean probabilities, at temperature
// factor f.
func (w *world) nll(p *Posterior, f float64) float64 {
	x, y := w.draw(9999, 1500)
	var sum float64
	for i, l := range y {
		var prob float64
		for _, h := range p.Heads {
			z := make([]float64, c)
			h.Logits(x[i*k:(i+1)*k], z)
			floats.Scale(1/f, z)
			prob += math.Exp(z[l] - floats.LogSumExp(z))
		}
		sum -= math.Log(prob / float64(len(p.Heads)))
	}
	return sum / float64(len(y))
}

func of(t testing.TB, cs []Client, o Options) *Posterior {
	t.Helper()
	if o.Samples == 0 {
		o.Samples = 40
	}
	o.Stream = "test"
	return must.Get(Compute(t.Context(), cs, o))(t)
}

// TestCalibrated: with Gaussian and with heavy-tailed classes, no other temperature is much better,
// though the prior starts from the same value; and more images are better.
func TestCalibrated(t *testing.T) {
	for _, nu := range []float64{0, 4} {
		w := newWorld(1, nu)
		var before float64
		for i, n := range []int{20, 200} {
			p := of(t, w.clients(t, 8, n), Options{})
			got, best := w.nll(p, 1), math.Inf(1)
			for _, f := range []float64{0.5, 0.6, 0.7, 0.8, 0.9, 1.1, 1.25, 1.5, 2} {
				best = min(best, w.nll(p, f))
			}
			if got-best > 0.03 {
				t.Errorf("tails %v, %d images: NLL %.3f, and %.3f at the best temperature",
					nu, n, got, best)
			}
			if i > 0 && got >= before {
				t.Errorf("tails %v: NLL %.3f with %d images, %.3f with fewer", nu, got, n, before)
			}
			before = got
		}
	}
}

// TestCalibrationPointsCount: they take no part in the head that they judge, and take part in the
// one that is returned; counts, means and scatter are then those of all images, times the share of
// the client's images that count.
func TestCalibrationPointsCount(t *testing.T) {
	w := newWorld(2, 0)
	x, y := w.draw(5, 50)
	means, within := must.Get2(moments.Compute(x, k, y, c, "a"))(t)
	images := must.Get(moment.Compute(moment.Rows(x, k), y, c, 1))(t)
	for _, share := range []float64{1, 0.25} {
		p := must.Get(pool([]Client{{Means: means, Within: within, Share: share}}))(t)
		if p.total() != 40*share {
			t.Fatalf("%v images behind the means of 50 of share %v, want %v", p.total(),
				share, 40*share)
		}
		p.addCalibration()
		counts, all := make([]float64, c), mat.NewSymDense(k, nil)
		floats.AddScaled(counts, share, images.Count)
		all.ScaleSym(share*(50-c), images.Within)
		if p.dof != share*(50-c) || !floats.Equal(p.n, counts) ||
			!mat.EqualApprox(p.mean, images.Means, 1e-6) ||
			!mat.EqualApprox(p.scatter, all, 1e-6) {
			t.Errorf("share %v: moments with calibration points added are not those of all images",
				share)
		}
	}
}

// TestSameHeads: the order of clients does not matter beyond rounding, and the same seed gives the
// same heads.
func TestSameHeads(t *testing.T) {
	w := newWorld(3, 0)
	cs := w.clients(t, 4, 30)
	o := Options{Kappa: Kappa{2, 1e-9}, Samples: 6, Seed: 7}
	a, again := of(t, cs, o), of(t, cs, o)
	b := of(t, []Client{cs[2], cs[0], cs[3], cs[1]}, o)
	for s := range a.Heads {
		if !floats.Equal(a.Heads[s].W, again.Heads[s].W) {
			t.Fatal("the same seed gives other heads")
		}
		// The first calibration points measure errors of means, so that the spread of heads, not
		// their mean, may change a little.
		if s%2 == 0 {
			mean, other := make([]float64, len(a.Heads[s].W)), make([]float64, len(a.Heads[s].W))
			floats.AddTo(mean, a.Heads[s].W, a.Heads[s+1].W)
			floats.AddTo(other, b.Heads[s].W, b.Heads[s+1].W)
			if !floats.EqualApprox(mean, other, 1e-5*floats.Norm(mean, math.Inf(1))) {
				t.Fatal("the order of clients changes the mean of antithetic heads")
			}
		}
	}
	other := of(t, cs, Options{Kappa: o.Kappa, Samples: 6, Seed: 8})
	mean, want := make([]float64, len(a.Heads[0].W)), make([]float64, len(a.Heads[0].W))
	floats.AddTo(mean, a.Heads[0].W, a.Heads[1].W)
	floats.AddTo(want, other.Heads[0].W, other.Heads[1].W)
	if !floats.EqualApprox(mean, want, 1e-5*floats.Norm(mean, math.Inf(1))) {
		t.Error("the mean of two antithetic heads depends on the seed")
	}
	if floats.EqualApprox(a.Heads[0].W, a.Heads[1].W, 1e-9) {
		t.Error("two heads are the same: nothing is drawn")
	}
}

// TestHead: the mean of two antithetic heads is the discriminant of the package's doc, computed
// here from a dense inverse.
func TestHead(t *testing.T) {
	w := newWorld(7, 0)
	cs := w.clients(t, 3, 40)
	const kappa = 2.0
	got := of(t, cs, Options{Kappa: Kappa{kappa, 1e-9}, Samples: 2})
	p := must.Get(pool(cs))(t)
	p.addCalibration()
	cov, trace := mat.NewDense(k, k, nil), mat.Trace(p.scatter)/p.dof/k
	for i := range k {
		for j := range k {
			cov.Set(i, j, p.scatter.At(i, j)/(2*k+p.dof))
		}
		cov.Set(i, i, cov.At(i, i)+2*k*trace/(2*k+p.dof))
	}
	var inv mat.Dense
	must.Do(t, inv.Inverse(cov))
	// n0 is what the last round but the final shrinkage weighs with; the origin follows from it
	// within the rounds' convergence.
	origin, all := make([]float64, k), 0.0
	for y, n := range p.n {
		all += n / (n + got.Pseudo)
		floats.AddScaled(origin, n/(n+got.Pseudo), p.mean.RawRowView(y))
	}
	floats.Scale(1/all, origin)
	var apart float64
	for y, n := range p.n {
		m := mat.NewVecDense(k, nil)
		for j := range k {
			m.SetVec(j, (p.mean.At(y, j)-origin[j])*n/(n+got.Pseudo))
		}
		apart += mat.Inner(m, &inv, m) / c
	}
	temperature := kappa * math.Sqrt(apart*got.Spread)
	x, _ := w.draw(77, 20)
	for i := range 20 {
		z := make([]float64, c)
		for y, n := range p.n {
			d, m := mat.NewVecDense(k, nil), mat.NewVecDense(k, nil)
			for j := range k {
				d.SetVec(j, float64(x[i*k+j])-origin[j])
				m.SetVec(j, (p.mean.At(y, j)-origin[j])*n/(n+got.Pseudo))
			}
			var a mat.VecDense
			a.MulVec(&inv, m)
			z[y] = (mat.Dot(d, &a) - mat.Dot(m, &a)/2) / temperature
		}
		have := make([]float64, c)
		for _, h := range got.Heads {
			floats.AddScaled(have, 0.5, h.Row(k))
			for j := range k {
				floats.AddScaled(have, 0.5*float64(x[i*k+j]), h.Row(j))
			}
		}
		for y := range z {
			if math.Abs((z[y]-z[0])-(have[y]-have[0])) > 0.02*(1+math.Abs(z[y])) {
				t.Fatalf("row %d: logits %v, want %v", i, have, z)
			}
		}
	}
}

// TestSureAtTheMean: the logit of a class at its own mean does not depend on where the mean is
// drawn.
func TestSureAtTheMean(t *testing.T) {
	w := newWorld(9, 0)
	p := must.Get(pool(w.clients(t, 3, 30)))(t)
	h := must.Get(p.head(p.rows))(t)
	e := mat.NewDense(k, c, nil)
	for i := range k * c {
		e.Set(i/c, i%c, math.Sin(float64(i)))
	}
	a, b := p.at(h, e, 1, 1), p.at(h, e, -1, 1)
	for y := range c {
		x := make([]float64, k)
		floats.AddTo(x, h.origin, h.away.RawRowView(y))
		var up, down float64
		for j, v := range x {
			up, down = up+v*a.Row(j)[y], down+v*b.Row(j)[y]
		}
		if up, down = up+a.Row(k)[y], down+b.Row(k)[y]; math.Abs(up-down) > 1e-6*(1+math.Abs(up)) {
			t.Errorf("class %d: logits %v and %v at its mean", y, up, down)
		}
	}
}

// TestKappa: the posterior lies between prior and calibration points, and a sure prior stays.
func TestKappa(t *testing.T) {
	w := newWorld(4, 0)
	cs := w.clients(t, 8, 100)
	if got := of(t, cs, Options{Kappa: Kappa{3, 1e-6}}).Kappa.Median; math.Abs(got-3) > 1e-3 {
		t.Errorf("kappa is %v of a sure prior of 3", got)
	}
	wide := of(t, cs, Options{Kappa: Kappa{3, 0.8}}).Kappa
	if !(wide.Median < 2.2) || !(wide.Deviation < 0.7) {
		t.Errorf("kappa is %v with deviation %v of Gaussian classes and a wide prior of 3; want about 1",
			wide.Median, wide.Deviation)
	}
}

func TestRefused(t *testing.T) {
	w := newWorld(5, 0)
	good := w.clients(t, 2, 20)
	one := w.clients(t, 1, 20)[0]
	one.Means.Z = append([]float32(nil), one.Means.Z...)
	for i := range one.Means.N {
		row := one.Means.Row(i)
		clear(row[k:])
		row[k] = 1
	}
	one.Within = &moments.Within{K: k, Dof: one.Within.Dof, Rank: one.Within.Rank,
		Data: one.Within.Data}
	flat := w.clients(t, 1, 20)[0]
	flat.Within.Data, flat.Within.Labels, flat.Within.Calibration = make([]float32,
		len(flat.Within.Data)), nil, nil
	scaled := func(by, within float32) Client {
		x, y := w.draw(100, 20)
		for i := range x {
			x[i] *= by
		}
		means, scatter := must.Get2(moments.Compute(x, k, y, c, "scaled"))(t)
		for i := range scatter.Data {
			scatter.Data[i] *= within
		}
		scatter.Labels, scatter.Calibration = nil, nil
		return Client{Means: means, Within: scatter}
	}
	must.Get(Compute(t.Context(), []Client{scaled(1e-6, 1)}, Options{Samples: 1}))(t)
	must.Get(Compute(t.Context(), []Client{scaled(1, 1e-8)}, Options{Samples: 1}))(t)
	for name, v := range map[string]struct {
		cs   []Client
		o    Options
		want string
	}{
		"none":      {nil, Options{Samples: 1}, "at least one"},
		"samples":   {good, Options{}, "samples"},
		"kappa":     {good, Options{Samples: 1, Kappa: Kappa{-1, 1}}, "kappa"},
		"one class": {[]Client{one}, Options{Samples: 1}, "one class"},
		"flat":      {[]Client{flat}, Options{Samples: 1}, "do not differ"},
		"rounding":  {[]Client{scaled(1e-6, 1e-13)}, Options{Samples: 1}, "by rounding alone"},
		"missing":   {[]Client{good[0], {Means: good[1].Means}}, Options{Samples: 1}, "client 1"},
	} {
		must.Fail(Compute(t.Context(), v.cs, v.o))(t, v.want, name)
	}
}

// orthonormal fails unless the columns of a basis are.
func orthonormal(t *testing.T, basis *onnx.Tensor) {
	t.Helper()
	b := moment.Rows(basis.F32(), basis.Shape[1])
	var gram mat.Dense
	gram.Mul(b.T(), b)
	one := mat.NewDiagDense(basis.Shape[1], slices.Repeat([]float64{1}, basis.Shape[1]))
	if !mat.EqualApprox(&gram, one, 1e-5) {
		t.Fatalf("columns have the products\n%v", mat.Formatted(&gram))
	}
}

// TestHeadBasis: the basis holds the directions in which a layer's classes lie apart, and is
// orthonormal also where the layer has fewer.
func TestHeadBasis(t *testing.T) {
	const dx, classes, k = 30, 12, 5
	strong := RandomBasis(dx, 3, 9) // directions
	orthonormal(t, strong)
	lead := strong.F32()
	noise := make([]float32, classes*(dx+3))
	rng.Normal(rng.New(1, "layer"), noise)
	w := mat.NewDense(classes, dx, nil)
	for c := range classes {
		for j := range dx {
			v := 5 + 0.1*float64(noise[c*dx+j]) // 5: common to all classes
			for r := range 3 {
				v += 3 * float64(noise[classes*dx+c*3+r]*lead[j*3+r])
			}
			w.Set(c, j, v)
		}
	}
	for _, k := range []int{k, 20} {
		basis := HeadBasis(w, k, 3)
		orthonormal(t, basis)
		b := basis.F32()
		for r := range 3 {
			var held float64
			for i := range k {
				var dot float64
				for j := range dx {
					dot += float64(lead[j*3+r]) * float64(b[j*k+i])
				}
				held += dot * dot
			}
			if held < 0.99 {
				t.Errorf("k %d: %.3f of direction %d is in the basis", k, held, r)
			}
		}
	}
}

// TestOneImageAClass: clients of one image of each class have no scatter; that between clients
// stands in.
func TestOneImageAClass(t *testing.T) {
	w := newWorld(6, 0)
	cs := w.clients(t, 12, 1)
	p := of(t, cs, Options{Samples: 4})
	if v := w.nll(p, 1); !(v < math.Log(c)+0.3) {
		t.Errorf("NLL %.3f", v)
	}
}

// TestTemperature: it grows as the square root of the classes' separation, and is never below that
// of Gaussian rows.
func TestTemperature(t *testing.T) {
	h := &head{spread: 3, separation: 16}
	for kappa, want := range map[float64]float64{1: 12, 0.5: 6, 0.1: 3} {
		if got := h.temperature(kappa); got != want {
			t.Errorf("kappa %v: temperature %v, want %v", kappa, got, want)
		}
	}
}

// TestCounts: a calibration point counts as half an image, on top of the prior.
func TestCounts(t *testing.T) {
	p := must.Get(pool(newWorld(8, 0).clients(t, 4, 40)))(t)
	h := must.Get(p.head(p.rows))(t)
	o := Options{Kappa: Kappa{1, 0.5}, Stream: "test"}
	kappas, weights, _, err := p.calibrate(h, o)
	must.Do(t, err)
	l := must.Get(p.logLikelihood(h, p.rows, p.labels, kappas, o))(t)
	prior := func(kappa float64) float64 { d := math.Log(kappa) / 0.5; return -d * d / 2 }
	for g := 1; g < len(kappas); g++ {
		want := (l[g]-l[0])/2 + prior(kappas[g]) - prior(kappas[0])
		if got := math.Log(weights[g] / weights[0]); math.Abs(got-want) > 1e-6*(1+math.Abs(want)) {
			t.Fatalf("kappa %v: log weight %v, want %v", kappas[g], got, want)
		}
	}
}

// TestNobodyHolds: a class that nobody holds changes neither the spread nor the separation of the
// others.
func TestNobodyHolds(t *testing.T) {
	cs := newWorld(3, 0).clients(t, 4, 40)
	before := of(t, cs, Options{})
	for i := range cs {
		old := cs[i].Means
		wide := point.New(old.N, old.Dx, old.C+1)
		copy(wide.W, old.W)
		for j := range old.N {
			copy(wide.Row(j), old.Row(j))
		}
		cs[i].Means = wide
	}
	after := of(t, cs, Options{})
	if math.Abs(after.Separation-before.Separation) > 1e-6*before.Separation {
		t.Errorf("separation %v with a class that nobody holds, %v without", after.Separation,
			before.Separation)
	}
}
