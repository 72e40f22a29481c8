package posterior

import (
	"math"
	"slices"
	"testing"

	"fmp/models"
	"fmp/onnx"
	"fmp/onnx/engine"
	"fmp/onnx/engine/pure"
	"fmp/onnx/must"
	"fmp/pipeline/discriminant"
)

// TestBeyond: intervals of moments are wider than the heads' spread by a variance that falls with
// the images of the class and of the others; a classifier's are the same.
func TestBeyond(t *testing.T) {
	const k, c = 6, 3
	clients := momentsClients(t, 4, 30, k, c)
	at := must.Get(NewEmbedded(k, nil, nil, nil))(t)
	for _, kappa := range []discriminant.Kappa{{}, discriminant.Unknown} {
		r := must.Get(Moments(t.Context(), clients, at, MomentsOptions{Threads: 1,
			Options: discriminant.Options{Kappa: kappa, Samples: 40, Seed: 1, Stream: "test"}}))(t)
		n := make([]float64, c)
		for _, u := range clients {
			for i, y := range u.Means.Indices() {
				n[y] += float64(u.Means.W[i])
			}
		}
		var mean float64
		for _, v := range n {
			mean += 1 / (v + 1) / c
		}
		own := r.Intervals.(*headIntervals)
		claim := slices.Clone(clients)
		claim[0].Share = 1e-3 // of which one image a class counts
		for y, v := range beyond(claim) {
			if held := float64(clients[0].Means.W[y]); math.Abs(v-own.beyond[y]) < 48*(held-1)/(n[y]+1)/(n[y]+1)/2 {
				t.Errorf("class %d: %v beyond where most of a client does not count, %v where all does", y, v,
					own.beyond[y])
			}
		}
		for y, v := range n {
			if want := 1.7 + 48*(1/(v+1)+mean)/2; math.Abs(own.beyond[y]-want) > 1e-9 {
				t.Errorf("class %d of %g images: %v beyond; want %v", y, v, own.beyond[y], want)
			}
		}
		rows := clients[0].Means.Features(0)
		low, high := must.Get2(r.Intervals.Compute(t.Context(), rows, IntervalLevel))(t)
		narrow := *own
		narrow.beyond = nil
		from, to := must.Get2(narrow.Compute(t.Context(), rows, IntervalLevel))(t)
		m := must.Get(r.Classifier(t.Context(), nil, false, models.Manifest{}, models.Origin{}))(t)
		eng := must.Get(pure.New(engine.Options{Threads: 1}))(t)
		s := must.Get(eng.Load(m))(t)
		out := must.Get(engine.Eval(s, map[string]*onnx.Tensor{"features": onnx.NewTensor(rows, 1, k)}))(t)
		for y := range c {
			reach := (logit(high[y]) - logit(low[y])) / 2 / 1.6448536
			spread := (logit(to[y]) - logit(from[y])) / 2 / 1.6448536
			if got := reach*reach - spread*spread; math.Abs(got-own.beyond[y]) > 1e-6*own.beyond[y] {
				t.Errorf("class %d: %v is added to the variance; want %v", y, got, own.beyond[y])
			}
			for name, want := range map[string]float64{"low": low[y], "high": high[y]} {
				if got := float64(out[name].F32()[y]); math.Abs(got-want) > 2e-3 { // 1 - p of float32
					t.Errorf("class %d: %s of the classifier is %v; want %v", y, name, got, want)
				}
			}
		}
	}
}

func logit(p float64) float64 { return math.Log(p / (1 - p)) }
