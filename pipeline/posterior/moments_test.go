package posterior

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"
	"testing"

	"gonum.org/v1/gonum/floats"
	"gonum.org/v1/gonum/mat"

	"fmp/models/rng"
	"fmp/onnx"
	"fmp/onnx/build"
	"fmp/onnx/must"
	"fmp/pipeline/discriminant"
	"fmp/pipeline/internal/effect"
	"fmp/pipeline/metric"
	"fmp/pipeline/moments"
)

// momentsClients returns uploads of moments of clients with images of Gaussian classes.
func momentsClients(t *testing.T, many, images, k, c int) []discriminant.Client {
	t.Helper()
	mean := make([]float32, c*k)
	rng.Normal(rng.New(1, "mean"), mean)
	out := make([]discriminant.Client, many)
	for m := range out {
		r := rng.New(1, "client", m)
		x, y := make([]float32, images*k), make([]int, images)
		rng.Normal(r, x)
		for i := range x {
			if i%k == 0 {
				y[i/k] = r.IntN(c)
			}
			x[i] = (mean[y[i/k]*k+i%k] + x[i]) / 20
		}
		out[m].Means, out[m].Within = must.Get2(moments.Compute(x, k, y, c, fmt.Sprint(m)))(t)
	}
	return out
}

// judging are options of a round whose clients are judged.
func judging(samples int) MomentsOptions {
	return MomentsOptions{Options: discriminant.Options{Samples: samples, Seed: 1, Stream: "test"},
		Honesty: true, Threads: 1}
}

// momentsAttacks are ways to send false moments.
func momentsAttacks(k, c int) map[string]func(u *discriminant.Client, w *moments.Within) {
	turn := func(n int) func(y []int) {
		return func(y []int) {
			for i := range y {
				y[i] = (y[i] + n) % c
			}
		}
	}
	return map[string]func(u *discriminant.Client, w *moments.Within){
		"none": func(*discriminant.Client, *moments.Within) {},
		"means of the next class": func(u *discriminant.Client, _ *moments.Within) {
			means := *u.Means
			means.Z = slices.Clone(means.Z)
			for i := range means.N {
				row := means.Row(i)
				copy(row[:k], u.Means.Row((i + 1) % means.N)[:k])
			}
			u.Means = &means
		},
		"names of calibration points": func(_ *discriminant.Client, w *moments.Within) {
			turn(1)(w.Labels)
		},
		"scatter that hides": func(u *discriminant.Client, w *moments.Within) {
			w.Rank, w.Data = 1, slices.Clone(u.Means.Row(0)[:k])
			for j := range w.Data {
				w.Data[j] *= 100
			}
		},
		"scatter of nothing": func(_ *discriminant.Client, w *moments.Within) { clear(w.Data) },
		"scatter that is no covariance": func(_ *discriminant.Client, w *moments.Within) {
			for i, at := 0, 0; i < k; i++ {
				for j := i; j < k; j++ {
					if w.Data[at] = -100; i == j {
						w.Data[at] = 100
					}
					at++
				}
			}
		},
	}
}

func attacked(u discriminant.Client,
	attack func(u *discriminant.Client, w *moments.Within)) discriminant.Client {
	w := *u.Within
	w.Data, w.Labels = slices.Clone(w.Data), slices.Clone(w.Labels)
	attack(&u, &w)
	u.Within = &w
	return u
}

// TestMomentsAgainst: false moments are found in clients that others judge alone, of whom some lie
// too, no less often than all at once, and honest clients are kept; of a large claim the median
// counts.
func TestMomentsAgainst(t *testing.T) {
	const k, c, judges, honest = 12, 4, 30, 10
	clients := momentsClients(t, judges+honest, 60, k, c)
	attacks := momentsAttacks(k, c)
	for i, name := range slices.Sorted(maps.Keys(attacks)) {
		clients[i] = attacked(clients[i], attacks[name])
	}
	by := must.Get(NewMomentsAgainst(t.Context(), clients[:judges], nil, 1, 1))(t)
	o := judging(1)
	missed, atOnce := 0, 0
	for name, attack := range attacks {
		for i, u := range clients[judges:] {
			u := attacked(u, attack)
			share := must.Get(by.Share(u))(t)
			if name == "none" {
				if share != 1 {
					t.Errorf("%v of honest client %d counts", share, i)
				}
				continue
			}
			p := must.Get(Moments(t.Context(), append(slices.Clone(clients[:judges]), u), nil, o))(t)
			if share > 0 {
				missed++
			}
			if p.Judgement.Honest[judges] >= 0.5 {
				atOnce++
			}
			if share > 0 && strings.HasPrefix(name, "means") {
				t.Errorf("%s: client %d counts", name, i)
			}
		}
	}
	if t.Logf("of %d false clients %d are missed, and %d all at once", honest*(len(attacks)-1), missed,
		atOnce); missed > atOnce {
		t.Error("judged alone more are missed")
	}
	if share, err := by.Share(claiming(clients[judges], 10)); err != nil || share < 0.1 || share > 0.12 {
		t.Errorf("%v of a claim ten times as large counts, %v", share, err)
	}
	few := momentsClients(t, 1, 60, k+1, c)
	must.Fail(by.Share(few[0]))(t, "", "a client of other coordinates is judged")
}

// TestMomentsHonesty: each way to send false moments is found, in means, scatter or calibration
// points alone, honest clients are kept, and the samples are those of a round without the bad
// client.
func TestMomentsHonesty(t *testing.T) {
	const k, c, bad = 12, 4, 2
	for name, attack := range momentsAttacks(k, c) {
		t.Run(name, func(t *testing.T) {
			clients := momentsClients(t, 7, 60, k, c)
			clients[bad] = attacked(clients[bad], attack)
			o := judging(20)
			p := must.Get(Moments(t.Context(), clients, nil, o))(t)
			for m, honest := range p.Judgement.Honest {
				if want := m != bad || name == "none"; (honest > 0.9) != want || !want && honest > 0.2 {
					t.Errorf("P(honest) of client %d is %.3f", m, honest)
				}
			}
			o.Honesty = false
			if name != "none" {
				clients = slices.Delete(clients, bad, bad+1)
			}
			want := must.Get(Moments(t.Context(), clients, nil, o))(t)
			if got := p.Diagnostics["spread"]; len(p.Ensembles[0]) != 20 ||
				got != want.Diagnostics["spread"] {
				t.Errorf("%d heads, spread %v; want that of the honest clients, %v",
					len(p.Ensembles[0]), got, want.Diagnostics["spread"])
			}
		})
	}
}

// TestStatesOfSamples: samples of one set of honest clients are counted together, and those of rare
// sets go to the most frequent one.
func TestStatesOfSamples(t *testing.T) {
	a, b, c := []bool{true, true, true}, []bool{true, false, true}, []bool{false, true, true}
	var drawn [][]bool
	for i := range 40 {
		switch {
		case i == 0:
			drawn = append(drawn, c)
		case i%4 == 1:
			drawn = append(drawn, a)
		default:
			drawn = append(drawn, slices.Clone(b))
		}
	}
	got := count(drawn)
	if fmt.Sprint(got) != "[{[0 2] 30} {[0 1 2] 10}]" {
		t.Error(got)
	}
}

// TestMomentsOutside: class means that are false in all directions but those in which the classes
// lie apart are found, among more coordinates than are principal, and a client whose images all
// differ by one vector is kept.
func TestMomentsOutside(t *testing.T) {
	const many, images, k, c, bad = 7, 60, 192, 4, 2
	// in standard deviations of an image
	for name, of := range map[string]struct{ shift, lie float32 }{
		"none":                     {},
		"one shift of all images":  {shift: 1},
		"one lie for each of them": {lie: 2},
	} {
		t.Run(name, func(t *testing.T) {
			// of images of a class; the classes lie apart in the first of them
			deviation := func(j int) float32 {
				if j < c {
					return 1
				}
				return 0.3
			}
			shift := make([]float32, k)
			rng.Normal(rng.New(1, "shift"), shift)
			clients := make([]discriminant.Client, many)
			for m := range clients {
				r := rng.New(1, "client", m)
				x, y := make([]float32, images*k), make([]int, images)
				rng.Normal(r, x)
				for i := range x {
					j := i % k
					if y[i/k] = i / k % c; m == bad && j >= c {
						x[i] += of.shift * shift[j]
					}
					if x[i] *= deviation(j); j == y[i/k] {
						x[i] += 4
					}
				}
				clients[m].Means, clients[m].Within =
					must.Get2(moments.Compute(x, k, y, c, fmt.Sprint(m)))(t)
			}
			r := rng.New(1, "lies")
			for i := range clients[bad].Means.N {
				row := clients[bad].Means.Row(i)
				for j := c; j < k; j++ {
					row[j] += of.lie * deviation(j) * float32(r.NormFloat64())
				}
			}
			p := must.Get(Moments(t.Context(), clients, nil, judging(20)))(t)
			for m, honest := range p.Judgement.Honest {
				if want := m != bad || of.lie == 0; (honest > 0.9) != want || !want && honest > 0.2 {
					t.Errorf("P(honest) of client %d is %.3f", m, honest)
				}
			}
			by := must.Get(NewMomentsAgainst(t.Context(),
				slices.Concat(clients[:bad], clients[bad+1:]), nil, 1, 1))(t)
			if share, err := by.Share(clients[bad]); err != nil || (share == 1) != (of.lie == 0) {
				t.Errorf("judged alone, %v of its images count, %v", share, err)
			}
		})
	}
}

// TestMomentsCopies: a client under two names counts as one, and one that claims three times as
// many images as the others as one of these.
func TestMomentsCopies(t *testing.T) {
	const k, c = 12, 4
	clients := momentsClients(t, 6, 60, k, c)
	clients[1] = clients[0]
	clients[5] = claiming(clients[5], 3)
	o := judging(20)
	got, _, _, err := judgeMoments(t.Context(), clients, nil, o)
	must.Do(t, err)
	for m, want := range []float64{0.5, 0.5, 1, 1, 1, 60 / images(clients[5])} {
		if math.Abs(got[m].Share-want) > 1e-9 {
			t.Errorf("of client %d the share %v counts, want %v", m, got[m].Share, want)
		}
	}
}

// TestCapped: of three clients the largest counts as the median one; of two each as it claims.
func TestCapped(t *testing.T) {
	clients := slices.Concat(momentsClients(t, 1, 200, 6, 3), momentsClients(t, 2, 20, 6, 3))
	for n, want := range map[int]float64{2: 1, 3: 0.1} {
		if got := cmp.Or(capped(clients[:n])[0].Share, 1); math.Abs(got-want) > 0.02 {
			t.Errorf("of %d clients the largest counts for %v of its images, want %v", n, got, want)
		}
	}
}

// cameras are Gaussian classes, of which each client's images have a shift of their own, along
// three directions.
type cameras struct {
	k, c  int
	mean  []float32
	shift func(m int) [3]float64
}

// images returns rows of camera m, and their classes.
func (w *cameras) images(m, n int, part string) ([]float32, []int) {
	r := rng.New(3, "images", part, m)
	x, y := make([]float32, n*w.k), make([]int, n)
	rng.Normal(r, x)
	shift := w.shift(m)
	for i := range x {
		if i%w.k == 0 {
			y[i/w.k] = r.IntN(w.c)
		}
		x[i] = (w.mean[y[i/w.k]*w.k+i%w.k] + x[i] + float32(shift[i%3])) / 20
	}
	return x, y
}

// noShift leaves images as they are.
func noShift(int) (none [3]float64) { return none }

// newCameras are four classes in twelve coordinates that a seed and a factor set apart.
func newCameras(seed uint64, apart float32) *cameras {
	w := &cameras{k: 12, c: 4, mean: make([]float32, 12*4), shift: noShift}
	rng.Normal(rng.New(seed, "mean"), w.mean)
	for i := range w.mean {
		w.mean[i] *= apart
	}
	return w
}

func (w *cameras) clients(t *testing.T, many int) []discriminant.Client {
	t.Helper()
	out := make([]discriminant.Client, many)
	for m := range out {
		x, y := w.images(m, 60, "client")
		out[m].Means, out[m].Within = must.Get2(moments.Compute(x, w.k, y, w.c, fmt.Sprint(m)))(t)
	}
	return out
}

// sizes are clients of Gaussian classes with unequal numbers of images, of whom each counts as few.
type sizes struct {
	cameras
	few float64
}

func newSizes(apart float32) *sizes { return &sizes{*newCameras(2, apart), 24} }

// client returns client m with n images of classes below c, which claims times as many.
func (w *sizes) client(t *testing.T, m, n, c int, times float32, name func(y int) int) discriminant.Client {
	t.Helper()
	x, y := w.images(m, n, "client")
	var rows []float32
	var labels []int
	for i, y := range y {
		if y < c {
			rows, labels = append(rows, x[i*w.k:(i+1)*w.k]...), append(labels, name(y))
		}
	}
	means, within := must.Get2(moments.Compute(rows, w.k, labels, w.c, fmt.Sprint(m)))(t)
	for i := range means.W {
		means.W[i] *= times
	}
	u := discriminant.Client{Means: means, Within: within}
	u.Share = min(1, w.few/images(u))
	return u
}

// TestConfirmedClaims: a client of many images counts in full where the others' images bear it out, beside
// a false claim too; not one that claims them without having them, or whose class means are others'. Of a
// class that no other holds no more counts.
func TestConfirmedClaims(t *testing.T) {
	const few, many = 24, 1200
	near, w, far := newSizes(0.3), newSizes(0.5), newSizes(2)
	as := func(y int) int { return y }
	claims := func(w *sizes, m int, times float32) discriminant.Client { return w.client(t, m, few, 4, times, as) }
	for name, c := range map[string]struct {
		world   *sizes
		large   []discriminant.Client
		classes int // of the others
		want    []int
	}{
		"many images":          {w, []discriminant.Client{w.client(t, 0, many, 4, 1, as)}, 4, []int{0}},
		"a claim alone":        {w, []discriminant.Client{claims(w, 0, 50)}, 4, nil},
		"two claims":           {far, []discriminant.Client{claims(far, 0, 50), claims(far, 1, 50)}, 4, nil},
		"as few as the others": {w, []discriminant.Client{claims(w, 0, 1)}, 4, nil},
		"names of the next class": {w, []discriminant.Client{w.client(t, 0, many, 4, 1,
			func(y int) int { return (y + 1) % 4 })}, 4, nil},
		"many images and a claim": {w, []discriminant.Client{claims(w, 1, 400), w.client(t, 0, many, 4, 1, as)}, 4, []int{1}},
		"classes of its own":      {near, []discriminant.Client{near.client(t, 0, many, 4, 1, as)}, 3, []int{0}},
	} {
		clients, honest := slices.Clone(c.large), []int(nil)
		for m := len(clients); m < 8; m++ {
			clients = append(clients, c.world.client(t, m, few*4/c.classes, c.classes, 1, as))
		}
		for m := range clients {
			honest = append(honest, m)
		}
		got := must.Get(confirm(t.Context(), clients, honest, nil, MomentsOptions{Threads: 1}))(t)
		got = slices.DeleteFunc(got, func(m int) bool { return m >= len(c.large) })
		if !slices.Equal(got, c.want) {
			t.Errorf("%s: clients %v count more, want %v", name, got, c.want)
		}
		for m, u := range c.large {
			if !slices.Contains(got, m) && clients[m].Share != u.Share {
				t.Errorf("%s: of client %d %v counts, and %v before", name, m, clients[m].Share, u.Share)
			}
			for i, y := range u.Means.Indices() { // "classes of its own" has some
				is, was := clients[m].Share*float64(clients[m].Means.W[i]), u.Share*float64(u.Means.W[i])
				if int(y) >= c.classes && is > was+1e-3 {
					t.Errorf("%s: %v images of class %d count, which no other holds, and %v before", name, is, y, was)
				}
			}
		}
	}
	known := claims(w, 20, 1)
	for _, o := range []MomentsOptions{{}, {Known: &known}} { // beside images that the server knows, too
		clients := []discriminant.Client{w.client(t, 0, many, 4, 1, as)}
		for m := 1; m < 6; m++ {
			clients = append(clients, claims(w, m, 1))
		}
		o.Honesty, o.Threads, o.Samples = true, 1, 10
		got, _, _, err := judgeMoments(t.Context(), clients, nil, o)
		must.Do(t, err)
		if got[0].Share != 1 {
			t.Errorf("known images %v: of many images %v count", o.Known != nil, got[0].Share)
		}
	}
	// the server's own site: of its claim nobody else could tell
	own := w.client(t, 0, many, 4, 1, as)
	site := []discriminant.Client{own, w.client(t, 1, 2, 4, 1, as), w.client(t, 2, 2, 4, 1, as)}
	for _, known := range []*discriminant.Client{nil, &known, &own} {
		o := MomentsOptions{Known: known, Honesty: true, Threads: 1}
		o.Samples = 10
		got, _, j, err := judgeMoments(t.Context(), site, nil, o)
		must.Do(t, err)
		if full := known == &own; (got[0].Share == 1) != full || math.Abs(j.Counted[0]-j.Claimed[0]) < 1 != full {
			t.Errorf("own site known %v: %v counts, %v of %v", full, got[0].Share, j.Counted[0], j.Claimed[0])
		}
	}
	// its copies, by other names, share one claim
	copies := []discriminant.Client{own, w.client(t, 1, 2, 4, 1, as), own, w.client(t, 2, 2, 4, 1, as), own}
	o := MomentsOptions{Known: &own, Honesty: true, Threads: 1}
	o.Samples = 10
	_, _, j, err := judgeMoments(t.Context(), copies, nil, o)
	must.Do(t, err)
	if n := j.Counted[0] + j.Counted[2] + j.Counted[4]; math.Abs(n-j.Claimed[0]) > 1 {
		t.Errorf("three copies of the own site: %v of %v images count", n, j.Claimed[0])
	}
	// another's claim is confirmed beside it; and one that claims more than the anchor holds is none
	others := []discriminant.Client{w.client(t, 9, many, 4, 1, as)}
	for m := 1; m < 8; m++ {
		others = append(others, claims(w, m, 1))
	}
	for name, c := range map[string]struct {
		clients []discriminant.Client
		at      int
		full    bool
	}{
		"another's claim":      {append([]discriminant.Client{own}, others...), 1, true},
		"more than the anchor": {append([]discriminant.Client{w.client(t, 0, many, 4, 10, as)}, site[1:]...), 0, false},
	} {
		got, _, _, err := judgeMoments(t.Context(), c.clients, nil, o)
		must.Do(t, err)
		if (got[c.at].Share == 1) != c.full {
			t.Errorf("%s: of client %d %v counts", name, c.at, got[c.at].Share)
		}
	}
	stopped, stop := context.WithCancel(t.Context())
	stop()
	clients := []discriminant.Client{w.client(t, 0, many, 4, 1, as), claims(w, 1, 1), claims(w, 2, 1)}
	must.Fail(confirm(stopped, clients, []int{0, 1, 2}, nil, MomentsOptions{Threads: 1}))(t, "canceled")
}

// identity returns coordinates that are k features as they are.
func identity(t *testing.T, k int) *Embedded {
	t.Helper()
	b := build.New("identity")
	b.Output("coordinates", b.Op("Identity", []build.Ref{b.Input("features", onnx.Float32, "n", k)}))
	return must.Get(embedded(must.Get(b.Model())(t), k))(t)
}

// nll returns the mean negative log-likelihood of rows under a result.
func nll(t *testing.T, r *Result, x []float32, y []int) float64 {
	t.Helper()
	rows := must.Get(r.Rows(t.Context(), x))(t)
	p := must.Get(metric.Predict(t.Context(), r.Ensembles[0], rows, 1))(t)
	return must.Get(metric.Score(p, y))(t).NLL
}

// TestMomentsEffects: where each client has another camera, moments give a lower NLL for a client
// of the round and for one to come than where all are taken for alike, and a much lower one to one
// to come who gives images without labels of a kind that no client has. All clients are honest.
// Without cameras nothing changes.
func TestMomentsEffects(t *testing.T) {
	const many = 8
	w := newCameras(1, 1)
	at := identity(t, w.k)
	o := MomentsOptions{Options: discriminant.Options{Kappa: discriminant.Unknown, Samples: 20, Seed: 1,
		Stream: "test"}, Honesty: true, Threads: 1}
	of := func(change func(o *MomentsOptions)) *Result {
		own := o
		change(&own)
		return must.Get(Moments(t.Context(), w.clients(t, many), at, own))(t)
	}
	come, plain := func(*MomentsOptions) {}, func(o *MomentsOptions) { o.Alike = true }
	x, y := w.images(many, 400, "test")
	if a, b := of(come), of(plain); a.Effects.Any() || a.Shift != nil ||
		nll(t, a, x, y) != nll(t, b, x, y) {
		t.Errorf("without cameras, effects %v and NLL %v of %v", a.Effects, nll(t, a, x, y),
			nll(t, b, x, y))
	}
	w.shift = func(m int) [3]float64 {
		r := rng.New(2, "shift", m)
		return [3]float64{1.5 * r.NormFloat64(), 0.2 * r.NormFloat64()}
	}
	alike, any := of(plain), of(come)
	if !any.Effects.Any() || any.Shift == nil {
		t.Fatal("no client has an effect")
	}
	for m, p := range any.Judgement.Honest {
		if p < 0.9 {
			t.Errorf("client %d of another camera is honest with probability %.2f", m, p)
		}
	}
	var known, own, to float64
	for m := range many {
		x, y := w.images(m, 400, "test")
		f := of(func(o *MomentsOptions) { o.For = m + 1 })
		if f.Shift == nil {
			t.Errorf("the result for client %d cannot be adapted", m)
		}
		known, own, to = known+nll(t, alike, x, y)/many, own+nll(t, f, x, y)/many,
			to+nll(t, any, x, y)/many
	}
	if own > known-0.05 || to > known-0.02 || own > to {
		t.Errorf(
			"NLL of clients of the round: all alike %.3f, for a client to come %.3f, for each client %.3f",
			known, to, own)
	}
	t.Logf(
		"NLL of clients of the round: all alike %.3f, for a client to come %.3f, for each client %.3f",
		known, to, own)
	for kind, c := range map[string]struct {
		shift  func(int) [3]float64
		gained float64 // at least
	}{"a kind of the round": {w.shift, -0.02},
		"another kind": {func(int) [3]float64 { return [3]float64{0, 0, 4} }, 0.5}} {
		w.shift = c.shift
		seen, _ := w.images(many, 60, "unlabelled")
		x, y := w.images(many, 400, "test")
		adapted := must.Get(any.Adapt(seen))(t)
		if before, after := nll(t, any, x, y), nll(t, adapted, x, y); after > before-c.gained {
			t.Errorf("%s: NLL %.3f, adapted %.3f", kind, before, after)
		} else {
			t.Logf("%s: NLL %.3f, adapted %.3f", kind, before, after)
		}
	}
}

// TestMomentsNear: a client whose shift cannot be told from classes that lie nearer together is not
// honest, whatever its class means say.
func TestMomentsNear(t *testing.T) {
	w := newCameras(1, 1)
	o := judging(20)
	near := &effect.Effects{Near: []bool{false, true, false, false, false}}
	_, states, j, err := judgeMoments(t.Context(), w.clients(t, 5), near, o)
	must.Do(t, err)
	for m, p := range j.Honest {
		if near.Near[m] && p > 1e-3 || !near.Near[m] && p < 0.9 {
			t.Errorf("client %d is honest with probability %.2f", m, p)
		}
	}
	for _, s := range states {
		if slices.Contains(s.clients, 1) {
			t.Errorf("clients %v are in a sample", s.clients)
		}
	}
}

// TestWiderWithin: heads for clients whose shifts have a covariance are less steep along it, and as
// steep across.
func TestWiderWithin(t *testing.T) {
	w := newCameras(1, 1)
	steep := func(effects *mat.SymDense) (along, across float64) {
		p := must.Get(discriminant.Compute(t.Context(), w.clients(t, 8),
			discriminant.Options{Samples: 2, Seed: 1, Stream: "test", Effects: effects}))(t)
		return floats.Norm(p.Heads[0].Row(0), 2), floats.Norm(p.Heads[0].Row(1), 2)
	}
	effects := mat.NewSymDense(w.k, nil)
	effects.SetSym(0, 0, 1) // twenty standard deviations
	a, b := steep(nil)
	if along, across := steep(effects); along > a/50 || across < b/2 {
		t.Errorf("weights of %.3g along effects and %.3g across; without effects %.3g and %.3g",
			along, across, a, b)
	}
}

// TestClientsLeftOut: the temperature is that of clients left out where kappa is not known and the
// others can be asked about a quarter of the images, and there alone, with calibration points and
// without; it is nearer to the best than that of an unknown kappa.
func TestClientsLeftOut(t *testing.T) {
	const many = 6
	w := newCameras(1, 1)
	at := identity(t, w.k)
	all := w.clients(t, many)
	plain := withoutPoints(all)
	x, y := w.images(many, 2000, "test")
	w.shift = func(m int) [3]float64 { return [3]float64{2 * rng.New(2, "shift", m).NormFloat64()} }
	shifted := withoutPoints(w.clients(t, many))
	few := only(plain[1], 2, 4) // one image of class 2
	for i := range few.Means.N {
		few.Means.Shares(i, func(y int, _ float32) {
			if y == 2 {
				few.Means.W[i] = min(few.Means.W[i], 1)
			}
		})
	}
	found, judging := map[string]float64{}, map[string]float64{"points": 60}
	for name, c := range map[string]struct {
		clients []discriminant.Client
		change  func(o *MomentsOptions)
		left    bool
	}{
		"few points":         {slices.Concat(all[:1], plain[1:]), func(*MomentsOptions) {}, true},
		"unknown":            {plain, func(*MomentsOptions) {}, true},
		"clients are judged": {plain, func(o *MomentsOptions) { o.Honesty = true }, true},
		"a corpus":           {plain, func(o *MomentsOptions) { o.Corpus = &all[0] }, true},
		"kappa":              {plain, func(o *MomentsOptions) { o.Kappa = discriminant.Unknown }, false},
		"points":             {all, func(*MomentsOptions) {}, true},
		"points and kappa":   {all, func(o *MomentsOptions) { o.Kappa = discriminant.Unknown }, false},
		"one client":         {plain[:1], func(*MomentsOptions) {}, false},
		"no class is shared": {[]discriminant.Client{only(plain[0], 0, 2), only(plain[1], 2, 4)},
			func(*MomentsOptions) {}, false},
		"one class is shared": {[]discriminant.Client{only(plain[0], 0, 3), only(plain[1], 2, 4)},
			func(*MomentsOptions) {}, true},
		"one claims many": {append([]discriminant.Client{claiming(plain[0], 1000)}, plain[1:]...),
			func(*MomentsOptions) {}, true},
		"two claim many of a class each": {append([]discriminant.Client{
			claiming(only(plain[0], 0, 1), 1000), claiming(only(plain[1], 1, 2), 1000)}, plain[2:]...),
			func(o *MomentsOptions) { o.Honesty = true }, true},
		"few images are shared": {[]discriminant.Client{only(plain[0], 0, 3), few},
			func(*MomentsOptions) {}, false},
		"cameras": {shifted, func(*MomentsOptions) {}, false},
		"merged":  {plain[1:], func(o *MomentsOptions) { o.Rest = &plain[0] }, false},
	} {
		o := MomentsOptions{Options: discriminant.Options{Samples: 20, Seed: 1, Stream: "test"},
			Threads: 1}
		c.change(&o)
		r := must.Get(Moments(t.Context(), c.clients, at, o))(t)
		if got := r.Diagnostics[DiagnosticLeftOut] == 1; got != c.left {
			t.Errorf("%s: the temperature is of clients left out: %v, want %v", name, got, c.left)
		}
		if got := r.Diagnostics[DiagnosticPoints]; got != judging[name] {
			t.Errorf("%s: %v calibration points corrected it, want %v", name, got, judging[name])
		}
		found[name] = nll(t, r, x, y)
	}
	if found["a corpus"] == found["unknown"] {
		t.Errorf("NLL %v: a corpus takes no part", found)
	}
	if !(found["unknown"] < found["kappa"]) || !(found["clients are judged"] < found["kappa"]) {
		t.Errorf("NLL %v: with clients left out it is not below that of an unknown kappa", found)
	}
	t.Logf("NLL %v", found)
}

// TestUnmeasured: where nothing tells the temperature the result says why, and kappa and its deviation
// are those of the prior. With calibration points, or a kappa that is known, there is no reason.
func TestUnmeasured(t *testing.T) {
	w := &cameras{k: 12, c: 4, mean: make([]float32, 12*4),
		shift: func(int) [3]float64 { return [3]float64{} }}
	rng.Normal(rng.New(1, "mean"), w.mean)
	all := w.clients(t, 6)
	plain := withoutPoints(all)
	w.shift = func(m int) [3]float64 { return [3]float64{2 * rng.New(2, "shift", m).NormFloat64()} }
	shifted := withoutPoints(w.clients(t, 6))
	given := discriminant.Kappa{Median: 0.7, Deviation: 0.15}
	for name, c := range map[string]struct {
		clients []discriminant.Client
		kappa   discriminant.Kappa
		rest    *discriminant.Client
		why     string
	}{
		"clients left out":  {plain, discriminant.Kappa{}, nil, ""},
		"points":            {all[:1], discriminant.Kappa{}, nil, ""},
		"kappa":             {plain, given, nil, ""},
		"kappa, one client": {plain[:1], given, nil, ""},
		"one client":        {plain[:1], discriminant.Kappa{}, nil, "one client alone counts"},
		"merged":            {plain[1:], discriminant.Kappa{}, &plain[0], "is summed cannot be left out"},
		"cameras":           {shifted, discriminant.Kappa{}, nil, "clients differ by a shift"},
		"no class is shared": {[]discriminant.Client{only(plain[0], 0, 2), only(plain[1], 2, 4)},
			discriminant.Kappa{}, nil, "less than a quarter"},
	} {
		o := MomentsOptions{Options: discriminant.Options{Kappa: c.kappa, Samples: 2, Seed: 1, Stream: "test"},
			Rest: c.rest, Threads: 1}
		r := must.Get(Moments(t.Context(), c.clients, identity(t, w.k), o))(t)
		if !strings.Contains(r.Unmeasured, c.why) || (r.Unmeasured == "") != (c.why == "") {
			t.Errorf("%s: the temperature is unmeasured as %q; want %q", name, r.Unmeasured, c.why)
		}
		prior := cmp.Or(c.kappa, discriminant.Unknown)
		got := discriminant.Kappa{Median: r.Diagnostics["kappa"], Deviation: r.Diagnostics["kappa deviation"]}
		if told := name == "points" || name == "clients left out"; (got == prior) == told {
			t.Errorf("%s: kappa is %v, and that of the prior %v", name, got, prior)
		}
	}
}

// TestOneClass: images of one class make no classifier, whether or not kappa is known; those of a
// second may be calibration points.
func TestOneClass(t *testing.T) {
	all := momentsClients(t, 3, 60, 8, 3)
	for m := range all {
		all[m] = only(all[m], 1, 2)
	}
	plain := withoutPoints(all)
	for i, c := range []struct {
		clients []discriminant.Client
		kappa   discriminant.Kappa
		one     bool
	}{{plain, discriminant.Kappa{}, true}, {plain, discriminant.Unknown, true}, {plain[:1], discriminant.Kappa{}, true},
		{all, discriminant.Kappa{}, false}} {
		o := MomentsOptions{Options: discriminant.Options{Kappa: c.kappa, Samples: 2, Seed: 1, Stream: "test"}, Threads: 1}
		if _, err := Moments(t.Context(), c.clients, nil, o); errors.Is(err, discriminant.ErrOneClass) != c.one {
			t.Errorf("%d: %v", i, err)
		}
	}
}

// TestAlikeWithinClasses: images that differ within their classes by rounding alone are refused,
// whether or not kappa is known and clients are judged.
func TestAlikeWithinClasses(t *testing.T) {
	for _, apart := range []float32{1e-7, 1e-5} {
		var clients []discriminant.Client
		for m := range 4 {
			x, y := make([]float32, 60*8), make([]int, 60)
			rng.Normal(rng.New(1, "alike", m), x)
			for i := range x {
				y[i/8], x[i] = i/8%3, 0.35*(1+apart*x[i])
			}
			means, within := must.Get2(moments.Parted(x, 8, y, 3, nil))(t)
			clients = append(clients, discriminant.Client{Means: means, Within: within})
		}
		for i, o := range []MomentsOptions{{}, {Alike: true}, {Honesty: true},
			{Options: discriminant.Options{Kappa: discriminant.Unknown}}} {
			o.Samples, o.Seed, o.Stream, o.Threads = 2, 1, "test", 1
			for _, n := range []int{2, len(clients)} {
				_, err := Moments(t.Context(), clients[:n], identity(t, 8), o)
				if refused := strings.Contains(fmt.Sprint(err), "by rounding alone"); refused != (apart < 1e-6) {
					t.Errorf("options %d, %d clients %g apart: %v", i, n, apart, err)
				}
			}
		}
	}
}

// TestCorpusUnread: a corpus that nothing weighs has no log evidence, but the reason that is true.
func TestCorpusUnread(t *testing.T) {
	all := momentsClients(t, 3, 60, 8, 3)
	one := withoutPoints([]discriminant.Client{only(all[2], 1, 2)})[0]
	for i, c := range []struct {
		clients []discriminant.Client
		kappa   discriminant.Kappa
		corpus  *discriminant.Client
		want    string
	}{
		{all[:2], discriminant.Unknown, nil, ""},
		{all[:2], discriminant.Unknown, &all[2], ""},
		{all[:2], discriminant.Kappa{}, &one, ""},
		{all[:2], discriminant.Unknown, &one, "of one class"},
		{all[:1], discriminant.Kappa{}, &one, "of one class"},
		{withoutPoints(all[:2]), discriminant.Unknown, &all[2], "no client that counts has calibration points"},
	} {
		o := MomentsOptions{Options: discriminant.Options{Kappa: c.kappa, Samples: 2, Seed: 1, Stream: "test",
			Corpus: c.corpus}, Threads: 1}
		r := must.Get(Moments(t.Context(), c.clients, identity(t, 8), o))(t)
		if _, ok := r.Diagnostics["corpus"]; !strings.Contains(r.Unread, c.want) || (r.Unread == "") != (c.want == "") ||
			ok != (c.corpus != nil && c.want == "") {
			t.Errorf("%d: the corpus is unread as %q, diagnostics %v; want %q", i, r.Unread, r.Diagnostics, c.want)
		}
	}
}

// only returns a client with the class means of classes from one to below another.
func only(c discriminant.Client, from, to int) discriminant.Client {
	means := *c.Means
	means.W = slices.Clone(means.W)
	for i := range means.N {
		means.Shares(i, func(y int, share float32) {
			if share > 0 && (y < from || y >= to) {
				means.W[i] = 0
			}
		})
	}
	c.Means = &means
	return c
}

// claiming returns a client that claims so much more images of each class.
func claiming(c discriminant.Client, times float32) discriminant.Client {
	means := *c.Means
	means.W = slices.Clone(means.W)
	for i := range means.W {
		means.W[i] *= times
	}
	c.Means = &means
	return c
}

// withoutPoints returns clients without their calibration points.
func withoutPoints(clients []discriminant.Client) []discriminant.Client {
	out := slices.Clone(clients)
	for m := range out {
		out[m] = withoutCalibration(out[m])
	}
	return out
}
