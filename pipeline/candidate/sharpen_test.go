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
		flat := &candidate{target: &target{name: "identity", k: w.k}, strength: 10}
		both := must.Get(sharpen([]*candidate{flat, c, {target: c.target, strength: 10}},
			[]float64{1, 1, 1}, halves, o))(t)
		if got := both[1].log; both[0] != both[2] {
			t.Errorf("beside a candidate of its target: %v, alone %v", both[2], both[0])
		} else {
			measured += got / seeds
		}
		h := s.in(c.target).at(c.strength, nil)
		l := must.Get(r.refit(h, 1, o))(t)
		rows, labels := w.rows(4000)
		g := judge{rows: rows, labels: labels}
		plain, _, _ := verdict(g.ask(h.basis, h.linear()))
		again, _, _ := verdict(g.ask(h.basis, l))
		fresh += (again - plain) / seeds
	}
	if !(fresh > 0.02 && measured > 0.02) || math.Abs(measured-fresh) > 0.06 {
		t.Errorf("sharper by %.3f, by fresh images %.3f", measured, fresh)
	}
	w := newWorld(1)
	if halves, err := w.round(t, minHalves-1, 9).halves(&Options{Threads: 1}); halves != nil ||
		err != nil {
		t.Errorf("%d halves of few clients, %v", len(halves), err)
	}
}

// TestMore: the temperature falls as one over the number of images does, where halves of the
// clients are asked about all of them.
func TestMore(t *testing.T) {
	const n = 6
	all := []int{0, 1, 2, 3, 4, 5, 6, 7}
	for _, c := range []struct {
		name            string
		holds           [][]int
		left, half, log float64
	}{
		{"three", [][]int{all, all, all}, 1, 1.2, .1},
		{"four", [][]int{all, all, all, all}, 1, 1.2, .1},
		{"ten", [][]int{all, all, all, all, all, all, all, all, all, all}, 1, 1.8, .1},
		{"no fall", [][]int{all, all, all, all}, 1, .9, 0},
		{"much", [][]int{all, all, all, all}, 1, 3, maxSharper},
		{"a class in one half", [][]int{all, all[1:], all, all[1:]}, 1, 1.2, 0},
		{"two", [][]int{all, all}, 1, 1.2, 0},
	} {
		w := newWorld(3)
		w.c, w.mean = 8, make([]float64, 8*w.k)
		r := &Round{K: w.k, C: w.c}
		for _, holds := range c.holds {
			x, _ := w.rows(n * len(holds))
			var y []int
			for _, class := range holds {
				y = append(y, class, class, class, class, class, class)
			}
			r.Clients = append(r.Clients, upload(t, x, w.k, y, w.c))
		}
		s := must.Get(r.sum(1))(t)
		halves := must.Get(r.halves(&Options{Threads: 1}))(t)
		near(t, c.name, []float64{s.toAllImages(c.left, c.half, halves)}, []float64{c.log}, 1e-9)
	}
}
