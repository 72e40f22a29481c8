package candidate

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"gonum.org/v1/gonum/floats"

	"fmp/models/rng"
	"fmp/onnx/dense"
	"fmp/onnx/must"
	"fmp/pipeline/internal/moment"
	"fmp/pipeline/moments"
	"fmp/pipeline/point"
)

// world is Gaussian classes whose variances within differ between coordinates by a factor of 225.
type world struct {
	k, c int
	mean []float64
	sd   []float64
	r    *rand.Rand
	far  bool // images have tails: Student's t of freedom degrees
}

func newWorld(seed uint64) *world {
	w := &world{k: 12, c: 4, r: rng.New(seed, "world")}
	for range w.c * w.k {
		w.mean = append(w.mean, .6*w.r.NormFloat64())
	}
	for j := range w.k {
		w.sd = append(w.sd, .2*math.Pow(15, float64(j)/float64(w.k-1)))
	}
	return w
}

// rows are n images of classes at random.
func (w *world) rows(n int) ([]float32, []int) {
	x, y := make([]float32, 0, n*w.k), make([]int, n)
	for i := range y {
		y[i] = w.r.IntN(w.c)
		z := make([]float64, w.k)
		if w.far {
			residual(z, w.r)
		} else {
			for j := range z {
				z[j] = w.r.NormFloat64()
			}
		}
		for j, s := range w.sd {
			x = append(x, float32(w.mean[y[i]*w.k+j]+s*z[j]))
		}
	}
	return x, y
}

// upload is what a client sends of rows, with class indices and a whole scatter.
func upload(t *testing.T, x []float32, k int, y []int, c int) Client {
	t.Helper()
	means, within := must.Get2(moments.Parted(x, k, y, c, nil))(t)
	out := Client{Means: &point.Set{N: means.N, Dx: k, C: c, W: means.W, Y: means.Indices()},
		Within: wholeWithin(within), Curve: must.Get(moments.CurveOf(x, k, y, c, "client"))(t)}
	for i := range means.N {
		out.Means.Z = append(out.Means.Z, means.Features(i)...)
	}
	return out
}

func (w *world) round(t *testing.T, clients, images int) *Round {
	r := &Round{K: w.k, C: w.c}
	for range clients {
		x, y := w.rows(images)
		r.Clients = append(r.Clients, upload(t, x, w.k, y, w.c))
	}
	return r
}

// covariance is the diagonal matrix of variances in the world's order or the reverse.
func (w *world) covariance(reverse bool) []float64 {
	out := make([]float64, w.k*w.k)
	for j, s := range w.sd {
		if reverse {
			j = w.k - 1 - j
		}
		out[j*w.k+j] = s * s
	}
	return out
}

// logProbabilities returns the logarithms of the posterior's class probabilities, [N, C], of
// feature rows, [N, K].
func (m *Mixture) logProbabilities(rows []float32) []float64 {
	k, c := m.Components[0].Head.D-1, m.Components[0].Head.C
	n := len(rows) / k
	x, out := dense.As[float64](rows), make([]float64, n*c)
	for _, p := range m.places() {
		h := p.head()
		l := times(x, h.W[:k*c], n, k, c)
		for at := 0; at < len(l); at += c {
			row := l[at : at+c]
			axpy(1, h.Row(k), row)
			lse := floats.LogSumExp(row)
			for y, v := range row {
				out[at+y] += p.weight * math.Exp(v-lse)
			}
		}
	}
	for i, v := range out {
		out[i] = math.Log(max(v, minProbability))
	}
	return out
}

func posterior(t *testing.T, r *Round, o Options) *Mixture {
	t.Helper()
	return must.Get(r.Posterior(o))(t)
}

// nll is the mean negative log-likelihood of labels.
func nll(logp []float64, y []int, c int) (sum float64) {
	for i, at := range y {
		sum -= logp[i*c+at] / float64(len(y))
	}
	return sum
}

// A corpus whose covariance is the clients' is believed, and one that is unlike is not; the
// posterior is about as good as the best candidate at its best temperature in hindsight. Images
// have tails, or none.
func TestLikeCorpusIsBelieved(t *testing.T) {
	for _, far := range []bool{true, false} {
		if over := overHindsight(t, far); !(over < .035) {
			t.Errorf("tails %v: NLL is %.4f more than in hindsight on average; want at most .035", far, over)
		}
	}
}

// overHindsight returns by how much the posterior's NLL is above that of the best candidate at its
// best temperature, on average over rounds.
func overHindsight(t *testing.T, far bool) (over float64) {
	const seeds = 8
	believed := 0
	for seed := range uint64(seeds) {
		w := newWorld(seed)
		w.far = far
		r := w.round(t, 6, 25)
		r.Corpora = []Corpus{{Within: w.covariance(false)}, {Within: w.covariance(true)}}
		m := posterior(t, r, Options{Seed: seed})
		e, ok := m.Corpora()
		if first := strings.HasPrefix(m.Components[0].Name, "corpus 0"); first && e > 0 && ok {
			believed++
		}
		for _, c := range m.Components {
			if strings.HasPrefix(c.Name, "corpus 1") {
				t.Errorf("seed %d: %s has weight %.3f, want none", seed, c.Name, c.Weight)
			}
		}
		x, y := w.rows(1000)
		best := math.Inf(1)
		cands := must.Get(r.candidates())(t)
		s := must.Get(r.sum(1))(t)
		for _, c := range cands {
			h := s.all.in(*c.target).at(c.strength, c.prior)
			for _, by := range inverseTemperatures {
				hot := Mixture{Components: []Component{{Weight: 1, Head: h.head(h.linear())}}}
				scale(by, hot.Components[0].Head.W)
				best = min(best, nll(hot.logProbabilities(x), y, w.c))
			}
		}
		over += (nll(m.logProbabilities(x), y, w.c) - best) / seeds
	}
	if believed < seeds-1 { // 150 images may tell nothing by chance, and the odds are even
		t.Errorf("tails %v: the like corpus is the first candidate, with evidence, in %d rounds of %d", far, believed, seeds)
	}
	return over
}

// A corpus of images of the round's kind never costs more than .005 nats an image, also under wrong
// names of some classes, whose images do not count then.
func TestNames(t *testing.T) {
	for seed := range uint64(3) {
		w := newWorld(seed)
		r := w.round(t, 6, 25)
		x, y := w.rows(400)
		fresh, labels := w.rows(2000)
		loss := func(m *Mixture) (sum float64) {
			for i, v := range m.logProbabilities(fresh) {
				if i%w.c == labels[i/w.c] {
					sum -= v / float64(len(labels))
				}
			}
			return sum
		}
		r.Corpora = []Corpus{{Within: w.covariance(false)}}
		without := loss(posterior(t, r, Options{Seed: seed}))
		for name, of := range map[string]struct {
			is            []int
			least, atMost float64
			unlike        []int
		}{
			"right":   {[]int{0, 1, 2, 3}, 0.9, 1, nil},
			"rotated": {[]int{1, 2, 3, 0}, 0, 0.1, nil},
			"swapped": {[]int{1, 0, 2, 3}, 0.4, 0.6, []int{0, 1}},
		} {
			names := slices.Clone(y)
			for i := range names {
				names[i] = of.is[names[i]]
			}
			r.Corpora = []Corpus{{Within: w.covariance(false), Rows: x, Labels: names}}
			m := posterior(t, r, Options{Seed: seed})
			if with := loss(m); with > without+.005 {
				t.Errorf("seed %d, names %s: loss %.4f, without the corpus's names %.4f", seed,
					name, with, without)
			}
			if v := m.Counted; v < of.least || v > of.atMost {
				t.Errorf("seed %d, names %s: %.2f of the images count; want %g to %g", seed, name, v,
					of.least, of.atMost)
			}
			if !slices.Equal(m.Unlike, of.unlike) {
				t.Errorf("seed %d, names %s: classes %v are unlike the corpus's, want %v", seed, name,
					m.Unlike, of.unlike)
			}
		}
	}
}

// A judge finds a head's temperature: of logits that are twice too large half of it.
func TestJudge(t *testing.T) {
	w := newWorld(4)
	r := w.round(t, 6, 40)
	h := must.Get(r.sum(1))(t).in(&target{name: "identity", k: w.k}).at(2, nil)
	l := h.linear()
	rows, labels := w.rows(1500)
	g := judge{rows: rows, labels: labels, images: 1}
	at, e, blocks := verdict(g.ask(h.basis, l))
	twice, _, others := verdict(g.ask(h.basis, *l.over(0.5)))
	likelihood, same := floats.Sum(blocks)/judgeBlocks, floats.Sum(others)/judgeBlocks
	if math.Abs(twice-at-math.Log(2)) > 0.02 || math.Abs(same-likelihood) > 1e-3 || !(e < 0.2) {
		t.Errorf("log temperatures %.3f and of logits twice as large %.3f, error %.3f, likelihoods "+
			"%.4f and %.4f", at, twice, e, likelihood, same)
	}
	r.Points = Points{Rows: rows, Labels: labels}
	m := posterior(t, r, Options{})
	if d := m.Components[0].Deviation; !(d < 0.15) {
		t.Errorf("1,500 calibration points leave a deviation of %.2f", d)
	}
	r.Points.Labels = append(slices.Clone(labels[1:]), w.c)
	must.Fail(r.Posterior(Options{}))(t, "", "a calibration point of no class is taken")
}

func kappaOf(t *testing.T, r *Round) normal {
	t.Helper()
	return must.Get(r.logKappa(must.Get(r.sum(1))(t).all, &Options{Threads: 1}))(t)
}

// Gaussian images have no heavy tails; a client of one image a class has no scatter and no curves.
func TestKappa(t *testing.T) {
	w := newWorld(0)
	r := w.round(t, 6, 25)
	if k := kappaOf(t, r); !(k.mean < .35) {
		t.Errorf("log kappa %.2f of Gaussian images, want less than .35", k.mean)
	}
	x := dense.As[float32](w.mean)
	single := Round{K: w.k, C: w.c, Clients: []Client{upload(t, x, w.k, []int{0, 1, 2, 3}, w.c)}}
	if u := single.Clients[0]; u.dof() != 0 || u.Curve != nil {
		t.Errorf("%v degrees of freedom and curves %v of single images", u.dof(), u.Curve)
	}
	// where no curve tells it, it is the nearer to that of single images the fewer a class mean has
	half := 0.5 // log 2/log fewImages
	for n, far := range map[int]float64{1: 0, 2: half, fewImages: 1, 10: 1} {
		var rows []float32
		var labels []int
		for range n {
			rows, labels = append(rows, x...), append(labels, 0, 1, 2, 3)
		}
		of := Round{K: w.k, C: w.c, Clients: []Client{upload(t, rows, w.k, labels, w.c)}}
		want := normal{singleKappa + far*(priorKappa.mean-singleKappa), far * priorKappa.deviation}
		if k := kappaOf(t, &of); math.Abs(k.mean-want.mean) > 1e-9 ||
			math.Abs(k.deviation-want.deviation) > 1e-9 {
			t.Errorf("log kappa %v of class means of %d images, want %v", k, n, want)
		}
	}
	one := x[:w.k]
	mixed := Round{K: w.k, C: w.c, Clients: []Client{upload(t, slices.Concat(one, one, one, one, x[w.k:2*w.k]),
		w.k, []int{0, 0, 0, 0, 1}, w.c)}}
	if k, want := kappaOf(t, &mixed), 0.8*priorKappa.deviation; math.Abs(k.deviation-want) > 1e-9 {
		t.Errorf("deviation %v of log kappa, a fifth of single images; want %v", k.deviation, want)
	}
}

// Equally likely heads have the mixture's probabilities within what counts of heads can say.
func TestEnsemble(t *testing.T) {
	w := newWorld(2)
	r := w.round(t, 5, 20)
	m := posterior(t, r, Options{})
	var weights []float64
	for _, p := range m.places() {
		weights = append(weights, p.weight)
	}
	if len(weights) < 3 {
		t.Fatalf("%d heads of a mixture", len(weights))
	}
	const s = 100
	var far float64
	spread := &Mixture{}
	for _, h := range m.Ensemble(s, Options{}) {
		spread.Components = append(spread.Components, Component{Weight: 1. / s, Head: h})
	}
	fresh, _ := w.rows(300)
	own := spread.logProbabilities(fresh)
	for i, v := range m.logProbabilities(fresh) {
		far += math.Abs(math.Exp(v)-math.Exp(own[i])) / float64(len(own))
	}
	if far > 0.02 || slices.Equal(spread.Components[0].Head.W, spread.Components[1].Head.W) {
		t.Errorf("samples have the mixture's probabilities but for %.4f", far)
	}
	for i := range m.Components {
		m.Components[i].spread = nil
	}
	count := map[*float64]float64{}
	for _, h := range m.Ensemble(s, Options{}) {
		count[&h.W[0]]++
	}
	if len(count) > len(weights) {
		t.Errorf("%d heads of %d", len(count), len(weights))
	}
	var got []float64
	for _, n := range count {
		got = append(got, n)
	}
	slices.Sort(got)
	slices.Sort(weights)
	for i, n := range got {
		if v := s * weights[len(weights)-len(got)+i]; math.Abs(n-v) >= 1.5 {
			t.Errorf("a head of weight %.4f appears %v times of %d", weights[i], n, s)
		}
	}
}

// Rounds at the edge have probabilities: one client, one class, no scatter, equal images, a class
// that nobody holds.
func TestEdges(t *testing.T) {
	w := newWorld(4)
	none := w.round(t, 3, 8)
	for i := range none.Clients {
		none.Clients[i].Within, none.Clients[i].Curve = nil, nil
	}
	equal := w.round(t, 2, 5)
	for i := range equal.Clients {
		equal.Clients[i].Within = nil
		for j := range equal.Clients[i].Means.Z {
			equal.Clients[i].Means.Z[j] = 1
		}
	}
	one := &Round{K: w.k, C: w.c,
		Clients: []Client{upload(t, dense.As[float32](w.mean[:w.k]), w.k, []int{2}, w.c)}}
	thin := w.round(t, 4, 10)
	thin.Corpora = []Corpus{{Within: make([]float64, w.k*w.k)}}
	thin.Corpora[0].Within[0] = 1 // of rank one
	x, _ := w.rows(3)
	for name, r := range map[string]*Round{"one client": w.round(t, 1, 30), "one image": one,
		"no scatter": none, "equal": equal, "thin": thin} {
		m := posterior(t, r, Options{})
		for i := range 3 {
			var sum float64
			for _, v := range m.logProbabilities(x)[i*w.c : (i+1)*w.c] {
				sum += math.Exp(v)
			}
			if !(math.Abs(sum-1) < 1e-9) {
				t.Errorf("%s: probabilities sum to %v", name, sum)
			}
		}
	}
}

// Taking a group's rows away from the whole's basis is making a basis without them.
func TestDowndate(t *testing.T) {
	w := newWorld(7)
	r := &Round{K: w.k, C: w.c}
	for i := range 5 {
		x, y := w.rows([]int{20, 20, 20, 1, 1}[i])
		r.Clients = append(r.Clients, upload(t, x, w.k, y, w.c))
	}
	r.Clients[4].Means.W[0] = 9 // with a scatter of one row
	row, _ := w.rows(1)
	r.Clients[4].Within = &moments.Within{K: w.k, Rank: 1, Dof: 8, Data: row}
	s := must.Get(r.sum(2))(t)
	corpus := must.Get(newTarget("corpus", w.covariance(false), 0, w.k))(t)
	used := 0
	for g := range s.folds {
		p := s.without(g)
		for _, to := range []*target{{name: "identity", k: w.k}, &corpus} {
			f, own := s.fold(p, to), p.whole().in(*to)
			if f.down != nil {
				used++
			}
			for _, strength := range strengths {
				a, b := f.basis.head(f.at(strength, nil)), own.head(own.at(strength, nil).linear())
				near(t, fmt.Sprintf("fold %d, strength %v", g, strength), a.W, b.W, 1e-8)
			}
		}
	}
	if used != 4 {
		t.Errorf("%d downdates, want 4", used)
	}
}

func TestCheck(t *testing.T) {
	w := newWorld(5)
	nan := float32(math.NaN())
	for name, spoil := range map[string]func(r *Round){
		"one class":           func(r *Round) { r.C = 1 },
		"no clients":          func(r *Round) { r.Clients = nil },
		"no class means":      func(r *Round) { r.Clients[1].Means = nil },
		"another width":       func(r *Round) { r.Clients[1].Means.Dx++ },
		"NaN":                 func(r *Round) { r.Clients[1].Means.Z[3] = nan },
		"a class twice":       func(r *Round) { r.Clients[1].Means.Y[0] = r.Clients[1].Means.Y[1] },
		"half an image":       func(r *Round) { r.Clients[1].Means.W[0] = .5 },
		"infinite counts":     func(r *Round) { r.Clients[1].Means.W[0] = float32(math.Inf(1)) },
		"scatter of NaN":      func(r *Round) { r.Clients[1].Within.Data[2] = nan },
		"scatter's width":     func(r *Round) { r.Clients[1].Within.K++ },
		"covariance of zeros": func(r *Round) { r.Corpora = []Corpus{{Within: make([]float64, w.k*w.k)}} },
		"a class beyond": func(r *Round) {
			r.Corpora = []Corpus{{Within: w.covariance(false), Rows: make([]float32, w.k),
				Labels: []int{w.c}}}
		},
		"half a row": func(r *Round) {
			r.Corpora = []Corpus{{Within: w.covariance(false), Rows: make([]float32, w.k-1),
				Labels: []int{0}}}
		},
	} {
		r := w.round(t, 3, 20)
		must.Do(t, r.Check())
		spoil(r)
		if _, err := r.Posterior(Options{}); err == nil ||
			!strings.HasPrefix(err.Error(), "candidate: ") {
			t.Errorf("%s: error %v", name, err)
		}
	}
}

// A Within of low rank says the same as the whole triangle.
func TestFormsOfScatter(t *testing.T) {
	w := newWorld(6)
	x, y := w.rows(9)
	whole := upload(t, x, w.k, y, w.c)
	r := &Round{K: w.k, C: w.c, Clients: []Client{whole, whole}}
	root := wholeRoot([]*moments.Within{whole.Within})
	got := make([]float64, w.k*w.k)
	g := moment.Factor{K: w.k, To: got}
	for i := range root.rank {
		row := g.Row()
		axpy(math.Sqrt(whole.dof()), root.root[i*w.k:(i+1)*w.k], row)
	}
	g.Flush()
	mirror(got, w.k)
	near(t, "root", got, whole.Within.Whole(), 1e-5)
	second := *whole.Within
	second.Rank, second.Data = root.rank, dense.As[float32](root.root)
	for i := range second.Data {
		second.Data[i] *= float32(math.Sqrt(whole.dof()))
	}
	a, _ := r.sum(1)
	r.Clients[1].Within = &second
	b, _ := r.sum(1)
	mirror(a.all.scatter, w.k)
	mirror(b.all.scatter, w.k)
	near(t, "scatter", b.all.scatter, a.all.scatter, 1e-5)
}

// Of too many class means those that are asked stand for all images, each about as often as it has
// images.
func TestSampling(t *testing.T) {
	const classes = maxLogits / 8
	r := &Round{K: 1, C: classes}
	u := Client{Means: &point.Set{Dx: 1, C: classes, Y: []int32{}}}
	var images float64
	for y := range 40 {
		u.Means.N++
		n := float32(1 + y)
		if y == 20 {
			n = 2000 // several times the step
		}
		u.Means.Z, u.Means.W, u.Means.Y = append(u.Means.Z, 0), append(u.Means.W, n),
			append(u.Means.Y, int32(y))
		images += float64(n)
	}
	r.Clients = []Client{u, u}
	asked := r.ask([]int{0}, &must.Get(r.sum(1))(t).without(0).pool,
		func([]int, int) []residuals { return make([]residuals, 1) })
	var share float64
	for _, v := range asked[0].cells {
		share += v.share
		if step := images / 4; math.Abs(v.share-v.n) > step {
			t.Errorf("a class mean of %v images stands for %v", v.n, v.share)
		}
	}
	if n := len(asked[0].cells); n > 4 || math.Abs(share-images) > 1e-9 {
		t.Errorf("%d class means stand for %v images, want 4 at most for %v", n, share, images)
	}
}

// Draws are the same where they are fewer than the rows of the root, and stand in its place.
func TestFewDraws(t *testing.T) {
	w := newWorld(8)
	r := w.round(t, 2, 30)
	few := Options{}
	d := few.residuals(r)([]int{0}, 2)[0]
	cells := r.Clients[0].cells()[:3]
	a := r.asked(cells, d)
	if a.rank != 6 || len(a.rows) != 9*w.k || a.z != nil {
		t.Fatalf("%d draws in %d numbers, want 6 beside 3 class means", a.rank, len(a.rows))
	}
	for i, v := range cells {
		want := times(d.z(v), d.root, 2, d.rank, w.k)
		scale(math.Sqrt(1-1/v.n), want)
		near(t, "draws", a.rows[(3+2*i)*w.k:][:2*w.k], want, 1e-12)
	}
}

func Example() {
	r := &Round{K: 2, C: 2, Clients: []Client{
		{Means: &point.Set{N: 2, Dx: 2, C: 2, Z: []float32{0, 0, 3, 1}, W: []float32{5, 5},
			Y: []int32{0, 1}}},
		{Means: &point.Set{N: 2, Dx: 2, C: 2, Z: []float32{.5, .5, 3, 2}, W: []float32{5, 5},
			Y: []int32{0, 1}}},
	}}
	m, err := r.Posterior(Options{Seed: 1})
	if err != nil {
		fmt.Println(err)
		return
	}
	p := m.logProbabilities([]float32{0, 0, 3, 2})
	fmt.Println(p[0] > p[1], p[2] < p[3])
	// Output: true true
}

// Images that are added one by one leave the statistics that they have when they are there from the
// start.
func TestPointsCount(t *testing.T) {
	for name, images := range map[string]int{"a factor": 7, "a matrix": 40} {
		w := newWorld(8)
		x, y := w.rows(images + 4)
		r := &Round{K: w.k, C: w.c, Clients: []Client{upload(t, x[:images*w.k], w.k, y[:images], w.c)}}
		r.Points = Points{Rows: x[images*w.k:], Labels: y[images:], Clients: []int{0, 0, 0, 0}}
		got := must.Get(r.counted().sum(1))(t)
		whole := &Round{K: w.k, C: w.c, Clients: []Client{upload(t, x, w.k, y, w.c)}}
		want := must.Get(whole.sum(1))(t)
		near(t, name+": counts", got.all.n, want.all.n, 0)
		near(t, name+": means", got.all.mean, want.all.mean, 1e-6)
		near(t, name+": scatter", got.all.scatter, want.all.scatter, 1e-5)
		if got.all.dof != want.all.dof {
			t.Errorf("%s: %v degrees of freedom, want %v", name, got.all.dof, want.all.dof)
		}
	}
}

// TestNoScatter: class means of one client alone, without scatter, are drawn towards their mean as
// those of images that vary by W, and have finite heads.
func TestNoScatter(t *testing.T) {
	w := newWorld(3)
	r := w.round(t, 1, 40)
	r.Clients[0].Within, r.Clients[0].Curve = nil, nil
	for _, corpora := range [][]Corpus{nil, {{Within: w.covariance(false)}}} {
		r.Corpora = corpora
		s := must.Get(r.sum(1))(t)
		if n0 := s.in(&target{name: "identity", k: w.k}).at(2, nil).n0; !(n0 > 0.1) {
			t.Errorf("class means are drawn as if by %g images", n0)
		}
		x, _ := w.rows(10)
		for i, v := range posterior(t, r, Options{}).logProbabilities(x) {
			if math.IsNaN(v) || math.IsInf(v, 0) {
				t.Fatalf("%d corpora: log probability %d is %v", len(corpora), i, v)
			}
		}
	}
}

// TestAsks: a client is asked about as many of its images as the others have at most, and about a
// given number.
func TestAsks(t *testing.T) {
	for _, c := range []struct {
		images, want []float64
		most         float64
	}{
		{[]float64{200, 10, 10}, []float64{0.1, 1, 1}, 0}, {[]float64{30, 10}, []float64{1. / 3, 1}, 0},
		{[]float64{10, 10}, []float64{1, 1}, 0}, {[]float64{20, 10, 10}, []float64{1, 1, 1}, 0},
		{[]float64{40, 8, 20}, []float64{0.2, 1, 0.4}, 8}, {[]float64{40}, []float64{1}, 0},
	} {
		r := &Round{K: 2, C: 2, Most: c.most}
		for _, n := range c.images {
			means := &point.Set{N: 2, Dx: 2, C: 2, Z: make([]float32, 4), Y: []int32{0, 1},
				W: []float32{float32(n / 4), float32(3 * n / 4)}}
			r.Clients = append(r.Clients, Client{Means: means})
		}
		shares, images := r.askedShares()
		if !slices.Equal(shares, c.want) || !slices.Equal(images, c.images) {
			t.Errorf("of %v images %v are asked about, want %v", images, shares, c.want)
		}
		if got, want := r.askedImages([]int{0}), c.want[0]*c.images[0]; math.Abs(got-want) > 1e-9 {
			t.Errorf("of %v images the first client is asked about %v, want %v", images, got, want)
		}
		all := must.Get(r.sum(1))(t)
		if want := floats.Dot(c.want, c.images); all.images != want {
			t.Errorf("%v images: %v are asked about, want %v", c.images, all.images, want)
		}
		for m, a := range c.images {
			draw := func(group []int, _ int) []residuals { return make([]residuals, len(group)) }
			var asked float64
			for _, q := range r.ask([]int{m}, all.all, draw) {
				for _, v := range q.cells {
					asked += v.share
				}
			}
			if want := c.want[m] * a; math.Abs(asked-want) > 1e-9 {
				t.Errorf("%v images: client %d is asked about %v, want %v", c.images, m, asked, want)
			}
		}
	}
}
