package candidate

import (
	"math"
	"testing"

	"fmp/onnx/must"
)

// TestSharper: by halves of the clients a refit is found as much too sharp as fresh images find it,
// where clients hold two classes each; and few clients tell nothing.
func TestSharper(t *testing.T) {
	var measured, fresh float64
	const seeds = 5
	for seed := range uint64(seeds) {
		w := newWorld(seed + 20)
		w.k, w.c, w.mean, w.sd = 48, 8, nil, nil // many coordinates for a regression to fit
		for range w.c * w.k {
			w.mean = append(w.mean, .3*w.r.NormFloat64())
		}
		for range w.k {
			w.sd = append(w.sd, 1)
		}
		r := &Round{K: w.k, C: w.c}
		for m := range 40 {
			x, y := []float32{}, []int{}
			for len(y) < 12 {
				row, label := w.rows(1)
				if label[0] == m%w.c || label[0] == (m+1)%w.c {
					x, y = append(x, row...), append(y, label[0])
				}
			}
			r.Clients = append(r.Clients, upload(t, x, w.k, y, w.c))
		}
		s := must.Get(r.sum(1))(t)
		o := &Options{Seed: seed, Threads: 1}
		c := &candidate{target: &target{name: "identity", k: w.k}, strength: 0.1}
		halves := must.Get(r.halves(o))(t)
		got := must.Get(c.sharper(halves, 1, o))(t)
		h := s.in(c.target).at(c.strength, nil)
		l := must.Get(r.refit(h, 1, o))(t)
		rows, labels := w.rows(4000)
		g := judge{rows: rows, labels: labels}
		plain, _, _ := verdict(g.ask(h.basis, h.linear()))
		again, _, _ := verdict(g.ask(h.basis, l))
		measured, fresh = measured+got/seeds, fresh+(again-plain)/seeds
	}
	if !(fresh > 0.02 && measured > 0.02) || math.Abs(measured-fresh) > 0.06 {
		t.Errorf("sharper by %.3f, by fresh images %.3f", measured, fresh)
	}
	w := newWorld(1)
	if halves, err := w.round(t, minHalved-1, 9).halves(&Options{Threads: 1}); halves != nil ||
		err != nil {
		t.Errorf("%d halves of few clients, %v", len(halves), err)
	}
}
