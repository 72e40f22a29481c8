package posterior

import (
	"fmt"
	"math"
	"testing"

	"fmp/models/rng"
	"fmp/onnx/must"
	"fmp/pipeline/meta"
	"fmp/pipeline/open"
	"fmp/pipeline/point"
	"fmp/pipeline/task"
)

// TestBounded: in open scope heads read the class means of few clients as they are, and of more
// than maxMeans some of them, with the masses and means of all.
func TestBounded(t *testing.T) {
	const dx, c = 5, 3
	rows := func(name string, n int) (features []float32, labels []int) {
		r := rng.New(1, name)
		for i := range n {
			labels = append(labels, i%c)
			for j := range dx {
				features = append(features, float32(r.NormFloat64())+2*float32((i%c+j)%c))
			}
		}
		return features, labels
	}
	features, labels := rows("corpus", 600)
	bank := must.Get(task.NewBank(features, dx, labels, c))(t)
	p := must.Get(meta.UntrainedOpen(bank, dx))(t)
	for _, clients := range []int{5, maxMeans/c + 1} {
		var sets []*point.Set
		for m := range clients {
			h, y := rows(fmt.Sprint("client ", m), 2*c)
			s := point.New(len(y), dx, c)
			for i, label := range y {
				copy(s.Row(i), h[i*dx:(i+1)*dx])
				s.Row(i)[dx+label], s.W[i] = 1, 1+float32(m%4)
			}
			sets = append(sets, must.Get(p.Soften(s))(t))
		}
		fmp := must.Get(New(Input{Open: p, Soft: sets, Scope: ScopeOpen, Samples: 4, Honesty: true,
			Seed: 1, Threads: 1}))(t)
		f := must.Get(fmp.Form())(t)
		all := must.Get(point.Pool(sets...))(t)
		seen := must.Get(f.pool(nil, func(int) bool { return true }))(t)
		if most := min(clients*c, maxMeans+2*c); seen.N > most || seen.N < most/3 {
			t.Errorf("%d clients: heads read %d points; want up to %d", clients, seen.N, most)
		}
		got, want := open.Means(seen), open.Means(all)
		for y := range c {
			if math.Abs(got.Mass[y]-want.Mass[y]) > 1e-6*want.Mass[y] {
				t.Errorf("%d clients: mass %v of class %d; want %v", clients, got.Mass[y],
					y, want.Mass[y])
			}
			for j, v := range want.Mean.RawRowView(y) {
				if math.Abs(got.Mean.At(y, j)-v) > 1e-6 {
					t.Errorf("%d clients: mean %v of class %d; want %v", clients,
						got.Mean.At(y, j), y, v)
				}
			}
		}
		// What a classifier of the round is made from is bounded too.
		r := must.Get(fmp.Sample(t.Context()))(t)
		if n := r.Intervals.(*conjugateIntervals).drawn.Seen.N; n > maxMeans+2*c {
			t.Errorf("%d clients: intervals read %d points; want %d at most", clients, n, maxMeans+2*c)
		}
	}
}
