package open

import (
	"encoding/json"
	"math"
	"math/rand/v2"
	"os"
	"slices"
	"testing"

	"gonum.org/v1/gonum/mat"

	"fmp/models"
	"fmp/models/rng"
	"fmp/onnx"
	"fmp/onnx/check"
	"fmp/onnx/dense"
	"fmp/onnx/engine"
	"fmp/onnx/engine/ort/orttest"
	"fmp/onnx/engine/pure"
	"fmp/onnx/must"
	"fmp/onnx/serde"
	"fmp/pipeline/honesty"
	"fmp/pipeline/point"
	"fmp/pipeline/sample"
)

// reference is a task and what an independent implementation in numpy makes of it, which solves
// with n B + W for every class and draws by Matheron's rule.
type reference struct {
	H       [][]float64 `json:"h"`
	Y       []int       `json:"y"`
	Clients []struct {
		X [][]float64 `json:"x"`
		Y []int       `json:"y"`
	} `json:"clients"`
	Scalars []float64
	C       []float64 `json:"c"`
	R       float64   `json:"r"`
	M0      []float64 `json:"m0"`
	W0, B0  [][]float64
	Mass    []float64
	Scatter [][]float64
	DF      float64
	Mt      []float64
	Mean    [][]float64
	Cov     [][][]float64
	Trv     []float64
	Rho, Q  float64
	Theta   [][]float64
	Bias    []float64
	Novelty float64
	Known4  [][]float64
}

func load(t *testing.T) (*reference, *Predictor, *Stats) {
	t.Helper()
	data := must.Get(os.ReadFile("testdata/reference.json"))(t)
	ref := &reference{}
	must.Do(t, json.Unmarshal(data, ref))
	d, features := len(ref.C), dense.As[float32](flat(ref.H))
	coords := must.Get(NewCoordinates(features, d, d))(t)
	rows := must.Get(coords.Rows(features))(t)
	m, known := must.Get2(NewMoments(rows, d, ref.Y, 5))(t)
	p := &Predictor{Coordinates: *coords, Moments: m, Known: known}
	copy(p.Scalars[:], ref.Scalars)
	var uploads []*point.Set
	for _, c := range ref.Clients {
		phi := must.Get(coords.Map(t.Context(), dense.As[float32](flat(c.X))))(t)
		uploads = append(uploads, must.Get(point.FromLabelled(phi, d, c.Y, 4))(t))
	}
	return ref, p, must.Get(Pool(uploads))(t)
}

// near fails where got is not want to the precision of float32 rows.
func near(t *testing.T, what string, got, want []float64) {
	t.Helper()
	if len(got) != len(want) {
		t.Fatalf("%s: %d numbers; want %d", what, len(got), len(want))
	}
	for i := range got {
		if math.Abs(got[i]-want[i]) > 2e-5*(1+math.Abs(want[i])) {
			t.Errorf("%s: number %d is %v; the reference has %v", what, i, got[i], want[i])
			return
		}
	}
}

func flat(rows [][]float64) []float64 { return slices.Concat(rows...) }

// TestParity: moments, statistics, posterior, temperature, heads and novelty are the reference's.
func TestParity(t *testing.T) {
	ref, p, s := load(t)
	near(t, "centre", p.Centre, ref.C)
	near(t, "radius", []float64{p.Radius}, []float64{ref.R})
	near(t, "m0", p.M0, ref.M0)
	near(t, "W0", full(p.W), flat(ref.W0))
	near(t, "B0", full(p.B), flat(ref.B0))
	near(t, "masses", s.Mass, ref.Mass)
	near(t, "scatter", full(s.Scatter), flat(ref.Scatter))
	near(t, "degrees of freedom", []float64{s.DF}, []float64{ref.DF})
	q := must.Get(p.Posterior(s))(t)
	near(t, "mt", q.Centre, ref.Mt)
	var mean mat.Dense
	mean.Mul(q.Mean, q.g.basis.T())
	near(t, "posterior means", mean.RawMatrix().Data, flat(ref.Mean))
	for c := range ref.Cov { // E diag(tau v) E'
		half := mat.DenseCopyOf(q.g.basis)
		for j, v := range q.Variance.RawRowView(c) {
			for i := range p.M0 {
				half.Set(i, j, half.At(i, j)*math.Sqrt(q.Tau*v))
			}
		}
		var cov mat.Dense
		cov.Mul(half, half.T())
		near(t, "posterior covariance", cov.RawMatrix().Data, flat(ref.Cov[c]))
	}
	near(t, "tr G V", q.Spread, ref.Trv)
	near(t, "Q and rho", []float64{q.Separation, q.Rho}, []float64{ref.Q, ref.Rho})
	theta, bias := q.rows(q.Mean)
	near(t, "head", mat.DenseCopyOf(theta.T()).RawMatrix().Data, flat(ref.Theta))
	near(t, "bias", bias, ref.Bias)
	p.Known = mat.NewDense(4, len(p.M0), flat(ref.Known4))
	origin := make([]float64, len(p.M0)) // the reference takes the mean of the known class means
	for c := range 4 {
		for j, v := range p.Known.RawRowView(c) {
			origin[j] += v / 4
		}
	}
	p.M0 = origin
	// The reference does not take the mean of the classes away: it is zero where each class has a
	// mirror image. Nor does it allow for drift: masses are such that class means vary as its do.
	c, k := s.Mean.Dims()
	mirrored := &Stats{Mass: slices.Concat(s.Mass, s.Mass), Mean: mat.NewDense(2*c, k, nil)}
	for y, n := range mirrored.Mass {
		mirrored.Mass[y] = n / (1 - n*drift)
	}
	for y := range c {
		for j, v := range s.Mean.RawRowView(y) {
			mirrored.Mean.Set(y, j, v)
			mirrored.Mean.Set(c+y, j, 2*origin[j]-v)
		}
	}
	novelty, limit := must.Get2(p.Novelty(mirrored))(t)
	near(t, "novelty and its limit", []float64{novelty, limit},
		[]float64{ref.Novelty * 2 * 9 / 15, 1.3 + 2*math.Sqrt(2./15)})
	// Another camera, which moves all classes alike, does not make them new.
	plain, _ := must.Get2(p.Novelty(s))(t)
	for y := range c {
		for j := range k {
			s.Mean.Set(y, j, s.Mean.At(y, j)+3*math.Sin(float64(j)))
		}
	}
	moved, _ := must.Get2(p.Novelty(s))(t)
	near(t, "novelty of shifted images", []float64{moved}, []float64{plain})
	// However many images, a small difference of classes does not make them new.
	for y := range s.Mass {
		s.Mass[y] *= 1e6
	}
	if many, _, err := p.Novelty(s); err != nil || many > 1.01*plain*400/slices.Min(ref.Mass) {
		t.Errorf("novelty of a million times as many images: %v, %v; of as many: %v", many, err, plain)
	}
}

// TestDraws: the heads of many posterior samples have the mean of the posterior, and as much spread
// as it says.
func TestDraws(t *testing.T) {
	_, p, s := load(t)
	q := must.Get(p.Posterior(s))(t)
	c, k := q.Mean.Dims()
	const samples = 4000
	noise := make([]float64, samples*c*k)
	r := rand.New(rand.NewPCG(1, 2))
	for i := range noise {
		noise[i] = r.NormFloat64()
	}
	theta, _ := q.rows(q.draw(q.g.turned(noise)))
	mean, _ := q.rows(q.Mean)
	for y := range c {
		want := 0.0 // trace of the covariance of theta_y = rho G mu_y
		for j, v := range q.Variance.RawRowView(y) {
			for i := range k {
				h := q.Rho * q.g.heads.At(i, j)
				want += h * h * q.Tau * v
			}
		}
		got, bias := 0.0, 0.0
		for s := range samples {
			for i := range k {
				d := theta.At(s*c+y, i) - mean.At(y, i)
				got += d * d / samples
				bias += d / samples
			}
		}
		if math.Abs(got/want-1) > 0.1 || math.Abs(bias) > 5*math.Sqrt(want*float64(k)/samples) {
			t.Errorf("class %d: spread of the heads %v, bias %v; want %v and 0", y, got, bias, want)
		}
	}
}

// TestRound: the conjugate predictor of a round says what the open form says, whatever is
// projected, from class means of softened features.
func TestRound(t *testing.T) {
	ref, p, s := load(t)
	eng := must.Get(pure.New(engine.Options{Threads: 1}))(t)
	p.Widening, p.Scale = 1.5, 0.25
	m, q := must.Get2(p.Round(s))(t)
	// Intervals give heads the variance of the fit's prior, times s once more where classes scatter
	// more widely.
	if q.Scale != 0.25 || math.Abs(q.Doubt*q.Penalty-penalty) > 1e-9 {
		t.Errorf("scale %v, doubt %v at penalty %v", q.Scale, q.Doubt, q.Penalty)
	}
	k := must.Get(sample.NewConjugate(eng, m))(t)
	defer k.Close()
	features := dense.As[float32](flat(ref.H[:20]))
	rows := must.Get(k.Map(t.Context(), features))(t)
	phi := must.Get(p.Rows(features))(t)
	soft := point.New(4, len(p.M0), 4) // the pooled class means are what the clients' add up to
	for y, n := range s.Mass {
		copy(soft.Row(y), dense.As[float32](s.Mean.RawRowView(y)))
		soft.Row(y)[len(p.M0)+y], soft.W[y] = 1, float32(n)
	}
	head := must.Get(k.Mean(t.Context(), soft.Held()))(t)
	theta, bias := q.rows(q.Mean)
	for i := range 20 {
		got, want := append([]float64(nil), head.Row(head.D-1)...), append([]float64(nil), bias...)
		for j := range len(p.M0) {
			for y := range 4 {
				got[y] += float64(rows[i*len(p.M0)+j]) * head.Row(j)[y]
				want[y] += phi[i*len(p.M0)+j] * theta.At(y, j)
			}
		}
		for y := range 4 { // a head is what it says up to the same number for all classes
			if math.Abs((got[y]-got[0])-(want[y]-want[0])) > 1e-3 {
				t.Fatalf("row %d: logits %v; want %v", i, got, want)
			}
		}
	}
}

// TestModel: a predictor written and read again is the same, and its graph computes the
// coordinates.
func TestModel(t *testing.T) {
	ref, p, s := load(t)
	eng := orttest.New(t)
	for _, most := range []int{len(p.Centre), 3} {
		features := dense.As[float32](flat(ref.H))
		c := must.Get(NewCoordinates(features, len(p.Centre), most))(t)
		rows := must.Get(c.Rows(features))(t)
		m, known := must.Get2(NewMoments(rows, most, ref.Y, 5))(t)
		ends := models.SizedEnds{Few: models.Ends{Down: 0.75, Up: 1.25},
			Many: models.Ends{Down: 2, Up: 0.5}}
		model := must.Get((&Predictor{Coordinates: *c, Moments: m, Known: known, Scalars: p.Scalars,
			Widening: 1.5, Scale: 0.25, Deviation: 0.125, Ends: ends}).Model())(t)
		must.Do(t, check.Model(model))
		data := must.Get(serde.Marshal(model))(t)
		model = must.Get(serde.Unmarshal(data))(t)
		got := must.Get(FromModel(model))(t)
		near(t, "scalars", got.Scalars[:], p.Scalars[:])
		near(t, "h of the intervals, the scale and the deviation",
			[]float64{got.Widening, got.Scale, got.TemperatureSpread()}, []float64{1.5, 0.25, 0.125})
		if got.Ends != ends {
			t.Errorf("ends %v, want %v", got.Ends, ends)
		}
		delete(model.Graph.Initializers, models.OpenScale)
		delete(model.Graph.Initializers, models.OpenDeviation)
		delete(model.Graph.Initializers, models.OpenEnds)
		if older, err := FromModel(model); err != nil || older.Scale != 0 ||
			older.TemperatureSpread() != defaultDeviation ||
			older.Ends != (models.SizedEnds{}) {
			t.Errorf("a model without scale, deviation and ends has %v, %v and %v, %v", older.Scale,
				older.TemperatureSpread(), older.Ends, err)
		}
		near(t, "W", full(got.W), full(m.W))
		session := must.Get(eng.Load(model))(t)
		defer session.Close()
		out := must.Get(engine.Eval(session,
			map[string]*onnx.Tensor{"features": onnx.NewTensor(features, len(ref.H), len(p.Centre))},
			"coordinates"))(t)
		near(t, "coordinates", dense.As[float64](out["coordinates"].F32()), rows)
		if most < len(p.Centre) {
			continue
		}
		a := must.Get(p.Posterior(s))(t)
		b := must.Get(got.Posterior(s))(t)
		wantTheta, wantBias := a.rows(a.Mean)
		gotTheta, gotBias := b.rows(b.Mean)
		near(t, "heads", gotTheta.RawMatrix().Data, wantTheta.RawMatrix().Data)
		near(t, "biases", gotBias, wantBias)
	}
}

// TestDeadUnit: a corpus of which a feature is the same in all images has a model that can be read
// again, with moments of the other features as they are without it.
func TestDeadUnit(t *testing.T) {
	const dead, dx, classes, n = 1, 4, 5, 100
	r := rng.New(1, "dead")
	features, labels := make([]float32, n*dx), make([]int, n)
	rng.Normal(r, features)
	for i := range labels {
		labels[i] = i % classes
		features[i*dx] += float32(labels[i])
		features[i*dx+dead] = 0.25
	}
	c := must.Get(NewCoordinates(features, dx, dx))(t)
	rows := must.Get(c.Rows(features))(t)
	q := &Predictor{Coordinates: *c, Scalars: Start, Widening: 1}
	q.Moments, q.Known = must.Get2(NewMoments(rows, dx, labels, classes))(t)
	model := must.Get(q.Model())(t)
	got := must.Get(FromModel(model))(t)
	if v := got.W.At(dead, dead); !(v > 1e-8*mat.Trace(got.W) && v < 1e-4*mat.Trace(got.W)) {
		t.Errorf("the variance of the feature is %v, of %v in all", v, mat.Trace(got.W))
	}
}

// TestGradient: the gradient of an episode's loss is that of central differences, in every scalar,
// also where eigenvalues are all but equal and their eigenvectors may turn at a touch.
func TestGradient(t *testing.T) {
	_, p, s := load(t)
	t.Run("moments of a corpus", func(t *testing.T) { testGradient(t, p, s) })
	k := len(p.M0)
	for _, m := range []*mat.SymDense{p.W, p.B} {
		for i := range k {
			for j := i; j < k; j++ {
				m.SetSym(i, j, m.At(i, j)*1e-9)
			}
			m.SetSym(i, i, 0.1+m.At(i, i))
		}
	}
	s.Scatter.ScaleSym(1e-9, s.Scatter)
	t.Run("equal eigenvalues", func(t *testing.T) { testGradient(t, p, s) })
}

func testGradient(t *testing.T, p *Predictor, s *Stats) {
	c, k := s.Mean.Dims()
	r := rand.New(rand.NewPCG(3, 4))
	e := &Episode{Moments: &p.Moments, Stats: s, Noise: make([]float64, 5*c*k)}
	for i := range e.Noise {
		e.Noise[i] = r.NormFloat64()
	}
	for range 30 {
		e.Labels = append(e.Labels, r.IntN(c))
		for range k {
			e.Rows = append(e.Rows, r.NormFloat64())
		}
	}
	for b := range 4 {
		e.Batches = append(e.Batches, []int{b, b + 7, b + 11})
	}
	_, _, gradient, err := e.Loss(&p.Scalars, true)
	must.Do(t, err)
	moved := 0
	for i := range gradient {
		loss := func(by float64) float64 {
			at := p.Scalars
			at[i] += by
			nll, joint, _, err := e.Loss(&at, false)
			must.Do(t, err)
			return nll + joint
		}
		const h = 1e-4
		want := (loss(h) - loss(-h)) / (2 * h)
		if math.Abs(gradient[i]-want) > 1e-5+1e-4*math.Abs(want) {
			t.Errorf("scalar %d: %v; central differences give %v", i, gradient[i], want)
		}
		if math.Abs(want) > 1e-4 {
			moved++
		}
	}
	if moved < 12 {
		t.Errorf("only %d scalars move the loss", moved)
	}
}

// TestWidening: of classes that differ in their covariance, few class means give the h that the
// covariances say, on average; a round in which no class has three of them takes the corpus's.
func TestWidening(t *testing.T) {
	_, p, s := load(t)
	k := len(p.M0)
	g := must.Get(p.geometry(&p.Scalars, s))(t)
	const classes, cells, rounds = 10, 4, 400
	r := rand.New(rand.NewPCG(1, 2))
	roots := make([]*mat.Dense, classes) // W_c = A_c A_c'
	var of, by float64
	for y := range roots {
		roots[y] = mat.NewDense(k, k, nil)
		for j := range k {
			roots[y].Set(j, j, math.Exp(0.5*r.NormFloat64()))
			roots[y].Set(j, r.IntN(k), r.NormFloat64())
		}
		var w, gw, gc, one, two mat.Dense
		w.Mul(roots[y], roots[y].T())
		gc.Mul(g.metric, &w)
		gw.Mul(g.metric, g.within)
		one.Mul(&gc, &gc)
		two.Mul(&gw, &gc)
		of += mat.Trace(&one)
		by += mat.Trace(&two)
	}
	mean := 0.0
	for range rounds {
		var uploads []*point.Set
		for range cells {
			u := point.New(classes, k, classes)
			for y := range classes {
				var x mat.VecDense
				e := make([]float64, k)
				for j := range e {
					e[j] = r.NormFloat64() / math.Sqrt(2) // class means of two points
				}
				x.MulVec(roots[y], mat.NewVecDense(k, e))
				copy(u.Row(y), dense.As[float32](x.RawVector().Data))
				u.Row(y)[k+y], u.W[y] = 1, 2
			}
			uploads = append(uploads, u)
		}
		h, pairs := g.widening(must.Get(Pool(uploads))(t).Own)
		if want := float64(classes * (cells - 2) * (cells + 1) / 2); pairs != want {
			t.Fatalf("%v pairs; want %v", pairs, want)
		}
		mean += h / rounds
	}
	if want := excess * of / by; math.Abs(mean/want-1) > 0.1 {
		t.Errorf("h is %v on average; want %v", mean, want)
	}
	few := *s
	few.Own = nil
	if h := p.widening(g, &few); h != p.Widening {
		t.Errorf("h of a round that says nothing is %v; want the corpus's, %v", h, p.Widening)
	}
}

// TestRefuses: uploads that do not go together, or that a predictor was not made for, are refused.
func TestRefuses(t *testing.T) {
	set := func(dx, c int, mass float32) *point.Set {
		s := point.New(1, dx, c)
		s.Row(0)[dx], s.W[0] = 1, mass
		return s
	}
	for name, uploads := range map[string][]*point.Set{
		"none": nil, "a missing first": {nil}, "a missing second": {set(3, 2, 1), nil},
		"other coordinates": {set(3, 2, 1), set(4, 2, 1)},
		"other classes":     {set(3, 2, 1), set(3, 4, 1)}, "no mass": {set(3, 2, 0)},
	} {
		must.Fail(pool(len(uploads), Each(uploads)))(t, "", name)
	}
	w := &Whitening{Lambda: []float64{1, 1}}
	if _, err := w.Sets(honesty.Uploads{Clients: 1, Classes: 2, K: 3, Masses: make([]float64, 2),
		Means: make([]float64, 6)}); err == nil {
		t.Error("claims of other coordinates: no error")
	}
	p := new(Predictor)
	p.M0 = make([]float64, 3)
	must.Fail(p.Posterior(&Stats{Mean: mat.NewDense(2, 4, nil)}))(
		t, "",
		"uploads of other coordinates than the predictor's: no error")

}
