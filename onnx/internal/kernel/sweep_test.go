package kernel

import (
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"fmp/onnx/must"
)

// Windows that are swept down planes have the bits of windows over phases with padding, in strips
// and two planes side by side, and write nothing behind a plane.
func TestSweeps(t *testing.T) {
	if !haveMasks() {
		t.Skip("this processor has no AVX-512")
	}
	r := rand.New(rand.NewPCG(27, 28))
	kinds := map[[3]int]int{} // by size, stride and planes at once
	for range 4000 {
		in, size, stride := []int{1 + r.IntN(12), 1 + r.IntN(60)}, 3+2*r.IntN(2), 1+r.IntN(2)
		if r.IntN(2) == 0 {
			in[1] = 1 + r.IntN(16)
		}
		pair := func(low, n int) []int { return []int{low + r.IntN(n), low + r.IntN(n)} }
		win := window{size: []int{size, size}, stride: []int{stride, stride}, dilation: []int{1, 1},
			begin: pair(0, 4), end: pair(0, 4)}
		w, out, err := win.fit(in)
		if err != nil || out[0] < 1 || out[1] < 1 {
			continue
		}
		s := newSweeps(w, in, out)
		if s == nil {
			continue
		}
		channels, pos := 1+r.IntN(4), out[0]*out[1]
		p := must.Get(newPhases(w, in, out))(t)
		x, weights, bias := tame(r, 2*channels*in[0]*in[1]), tame(r, channels*size*size),
			tame(r, channels)
		then := &after{lo: -1, hi: 1, scale: tame(r, channels), shift: tame(r, channels)}
		if r.IntN(2) == 0 {
			then.lo, then.hi = float32(math.Inf(-1)), float32(math.Inf(1))
		}
		room := tame(r, 2*channels*pos+20)
		v := &convolution[float32]{Call: NewCall(&Env{Pool: &Pool{}, Threads: 1}, 3, 1), window: w,
			group: channels, then: then,
			xs: []int{2, channels, in[0], in[1]}, sp: out, x: x, weights: weights, bias: bias,
			out:      room[:2*channels*pos],
			channels: 1, filters: 1, in: in[0] * in[1], pos: pos, taps: size * size}
		rest := slices.Clone(room[len(v.out):])
		must.Do(t, v.Do(func(*Call) error { s.run(v); return nil }))
		got, at := slices.Clone(v.out), [3]int{size, stride, 1}
		if s.two.masks[0] != 0 && channels%2 == 0 {
			at[2] = 2
		}
		kinds[at]++
		must.Do(t, v.Do(func(*Call) error { return v.depthwise() }))
		if !same(got, v.out) || !same(room[len(v.out):], rest) {
			t.Fatalf("%v by %+v, %d channels, %+v, %+v:\n%v, want\n%v", in, w, channels, s, p, got, v.out)
		}
	}
	if len(kinds) != 8 {
		t.Errorf("windows and planes at once: %v", kinds)
	}
}

// tame returns finite numbers.
func tame(r *rand.Rand, n int) []float32 {
	v := make([]float32, n)
	for i := range v {
		v[i] = float32(r.NormFloat64())
	}
	return v
}
