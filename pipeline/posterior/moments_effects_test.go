package posterior

import (
	"fmt"
	"math"
	"slices"
	"testing"

	"gonum.org/v1/gonum/floats"
	"gonum.org/v1/gonum/mat"

	"fmp/models/rng"
	"fmp/onnx"
	"fmp/onnx/build"
	"fmp/onnx/must"
	"fmp/pipeline/discriminant"
	"fmp/pipeline/internal/effect"
	"fmp/pipeline/moments"
)

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

func (w *cameras) clients(t *testing.T, many int) []discriminant.Client {
	t.Helper()
	out := make([]discriminant.Client, many)
	for m := range out {
		x, y := w.images(m, 60, "client")
		out[m].Means, out[m].Within = must.Get2(moments.Compute(x, w.k, y, w.c, fmt.Sprint(m)))(t)
	}
	return out
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
	k, c := r.Ensembles[0][0].D-1, r.Ensembles[0][0].C
	var sum float64
	for i, label := range y {
		var p float64
		for _, h := range r.Ensembles[0] {
			logit := append([]float64(nil), h.Row(k)...)
			for j, v := range rows[i*k : (i+1)*k] {
				floats.AddScaled(logit, float64(v), h.Row(j)[:c])
			}
			p += math.Exp(logit[label]-floats.LogSumExp(logit)) / float64(len(r.Ensembles[0]))
		}
		sum -= math.Log(p) / float64(len(y))
	}
	return sum
}

// TestMomentsEffects: where each client has another camera, moments give a lower NLL for a client
// of the round and for one to come than where all are taken for alike, and a much lower one to one
// to come who gives images without labels of a kind that no client has. All clients are honest.
// Without cameras nothing changes.
func TestMomentsEffects(t *testing.T) {
	const many = 8
	w := &cameras{k: 12, c: 4, mean: make([]float32, 12*4)}
	rng.Normal(rng.New(1, "mean"), w.mean)
	at := identity(t, w.k)
	o := MomentsOptions{Options: discriminant.Options{Samples: 20, Seed: 1, Stream: "test"},
		Honesty: true, Threads: 1}
	of := func(change func(o *MomentsOptions)) *Result {
		own := o
		change(&own)
		return must.Get(Moments(t.Context(), w.clients(t, many), at, own))(t)
	}
	come, plain := func(*MomentsOptions) {}, func(o *MomentsOptions) { o.Alike = true }
	w.shift = func(int) [3]float64 { return [3]float64{} }
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
	w := &cameras{k: 12, c: 4, mean: make([]float32, 12*4),
		shift: func(int) [3]float64 { return [3]float64{} }}
	rng.Normal(rng.New(1, "mean"), w.mean)
	o := MomentsOptions{Options: discriminant.Options{Samples: 20, Seed: 1, Stream: "test"},
		Honesty: true, Threads: 1}
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
	w := &cameras{k: 12, c: 4, mean: make([]float32, 12*4),
		shift: func(int) [3]float64 { return [3]float64{} }}
	rng.Normal(rng.New(1, "mean"), w.mean)
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
