package candidate

import (
	"math/rand/v2"
	"testing"

	"fmp/onnx/must"
	"fmp/pipeline/moments"
	"fmp/pipeline/point"
)

// BenchmarkClasses pools 100 uploads of 1,000 class means of 1,280 features, each with a whole
// scatter: 816 MB of uploads.
func BenchmarkClasses(b *testing.B) {
	const m, c, k = 100, 1000, 1280
	r := rand.New(rand.NewPCG(1, 2))
	noise, at := make([]float32, 1<<20), 0
	for i := range noise {
		noise[i] = float32(r.NormFloat64())
	}
	next := func() float32 { at = (at + 7919) & (1<<20 - 1); return noise[at] }
	means := make([]float32, c*k)
	for i := range means {
		means[i] = .3 * next()
	}
	q := Round{K: k, C: c}
	for range m {
		s := &point.Set{N: c, Dx: k, C: c, Z: make([]float32, c*k), Y: make([]int32, c),
			W: make([]float32, c)}
		for y := range c {
			s.Y[y], s.W[y] = int32(y), 5
		}
		for i, v := range means {
			s.Z[i] = v + .4*next()
		}
		w := &moments.Within{K: k, Dof: 4 * c, Data: make([]float32, 0, k*(k+1)/2)}
		for i := range k {
			for j := i; j < k; j++ {
				v := 60 * next()
				if i == j {
					v += 4 * c
				}
				w.Data = append(w.Data, v)
			}
		}
		q.Clients = append(q.Clients, Client{Means: s, Within: w})
	}
	for b.Loop() {
		must.Get(q.Posterior(Options{Seed: 1}))(b)
	}
}
