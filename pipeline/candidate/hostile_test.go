package candidate

import (
	"math"
	"slices"
	"testing"

	"fmp/models/rng"
	"fmp/onnx/dense"
	"fmp/onnx/must"
	"fmp/pipeline/moments"
	"fmp/pipeline/point"
)

// wide returns a world of four classes and k features, of which few vary much.
func wide(seed uint64, k int) *world {
	w := &world{k: k, c: 4, r: rng.New(seed, "world")}
	for range w.c * w.k {
		w.mean = append(w.mean, .3*w.r.NormFloat64())
	}
	for j := range w.k {
		w.sd = append(w.sd, math.Pow(float64(j+1), -.5))
	}
	return w
}

// TestUnit: of more features than a leaf of the eigenvalues' division, and beside a corpus, no figure
// depends on the unit, nor on threads.
func TestUnit(t *testing.T) {
	w := wide(5, 60)
	x, y := w.rows(180)
	fresh, _ := w.rows(50)
	var want []float64
	for i, unit := range []float32{1, 1 << 40, 1. / (1 << 20), 1. / (1 << 40)} {
		turn := func(x []float32) []float32 {
			out := slices.Clone(x)
			for i := range out {
				out[i] *= unit
			}
			return out
		}
		r := &Round{K: w.k, C: w.c, Corpora: []Corpus{{Within: w.covariance(false)}}}
		scale(float64(unit)*float64(unit), r.Corpora[0].Within)
		for m := range 6 {
			r.Clients = append(r.Clients, upload(t, turn(x[m*30*w.k:][:30*w.k]), w.k, y[m*30:][:30], w.c))
		}
		got := posterior(t, r, Options{Seed: 1, Threads: 1 + 2*i}).logProbabilities(turn(fresh))
		if want == nil {
			want = got
		}
		if !slices.Equal(got, want) {
			t.Errorf("figures of features times %g, on %d threads, are others", unit, 1+2*i)
		}
	}
}

// TestOrderOfClassMeans: an upload may hold its class means, and the holders of each, in any order.
func TestOrderOfClassMeans(t *testing.T) {
	w := newWorld(1)
	r, turned := w.round(t, 6, 25), &Round{K: w.k, C: w.c}
	for i, c := range r.Clients {
		c.Curve = &moments.ClientCurve{Curve: c.Curve.Curve, Clients: 3, Holders: make([]float64, c.Means.N)}
		for j := range c.Means.N {
			c.Curve.Holders[j] = 1 + float64(j)/2
		}
		r.Clients[i] = c
		m := &point.Set{N: c.Means.N, Dx: w.k, C: w.c}
		curve := &moments.ClientCurve{Curve: c.Curve.Curve, Clients: 3}
		for j := range slices.Backward(c.Means.W) {
			m.Z = append(m.Z, c.Means.Features(j)...)
			m.W, m.Y = append(m.W, c.Means.W[j]), append(m.Y, c.Means.Indices()[j])
			curve.Holders = append(curve.Holders, c.Curve.Holders[j])
		}
		turned.Clients = append(turned.Clients, Client{Means: m, Within: c.Within, Curve: curve})
	}
	x, _ := w.rows(50)
	want := posterior(t, r, Options{Seed: 3}).logProbabilities(x)
	if got := posterior(t, turned, Options{Seed: 3}).logProbabilities(x); !slices.Equal(got, want) {
		t.Error("figures depend on the order of class means")
	}
}

// TestSpaceOfHostileCorpora: a client of single images has no scatter in a space either, and a
// corpus whose images do not vary there has none.
func TestSpaceOfHostileCorpora(t *testing.T) {
	w := wide(1, spaceWidth+2)
	r := w.round(t, 4, 30)
	x, y := w.rows(24)
	r.Clients = append(r.Clients, upload(t, dense.As[float32](w.mean), w.k, []int{0, 1, 2, 3}, w.c))
	r.Clients[4].Within = &moments.Within{K: w.k}
	r.Points = Points{Rows: x, Labels: y, Clients: slices.Repeat([]int{4}, len(y))}
	r.Corpora = []Corpus{{Within: w.covariance(false), Dof: 500, Means: dense.As[float32](w.mean)}}
	posterior(t, r, Options{Seed: 1})
	c := Corpus{Within: make([]float64, w.k*w.k), Dof: 100}
	c.Within[w.k*w.k-1] = 1e-6
	for i := range w.k - 1 {
		row := make([]float32, w.k)
		row[i] = 1 + .01*float32(i)
		c.Means = append(c.Means, row...)
	}
	r.Corpora = []Corpus{c}
	posterior(t, r, Options{Seed: 1})
	r.Corpora[0].Within[0] = 1e300
	must.Fail(r.Posterior(Options{}))(t, "", "a covariance of 1e300 is taken")
}

// TestRoom: neither few classes nor many features make questions large.
func TestRoom(t *testing.T) {
	for _, c := range [][3]int{{1280, 10, 1 << 19 / 10}, {1280, 2, 64 << 20 / 1280}, {32, 1000, 1 << 19 / 1000},
		{1 << 30, 2, 2}, {1, 1 << 30, 2}} {
		if got := room(c[0], c[1]); got != c[2] {
			t.Errorf("room for %d rows of %d numbers and %d classes; want %d", got, c[0], c[1], c[2])
		}
	}
}
