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
	sweepWindows(t, false, 4*2) // windows, on one plane or two
}

// The same in vectors of eight columns, with products that are rounded before they are added or not,
// on planes of each width up to eight, and of more.
func TestEights(t *testing.T) {
	if !haveEights() {
		t.Skip("this processor has no AVX2")
	}
	sweepWindows(t, true, 4*2*9)
}

func sweepWindows(t *testing.T, eights bool, want int) {
	t.Helper()
	r := rand.New(rand.NewPCG(27, 28))
	kinds := map[sweepKind]int{}
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
		env := &Env{Pool: &Pool{}, Threads: 1, Reproducible: eights && r.IntN(2) == 0}
		v := &convolution[float32]{Call: NewCall(env, 3, 1), window: w,
			group: channels, then: then,
			xs: []int{2, channels, in[0], in[1]}, sp: out, x: x, weights: weights, bias: bias,
			out:      room[:2*channels*pos],
			channels: 1, filters: 1, in: in[0] * in[1], pos: pos, taps: size * size}
		rest := slices.Clone(room[len(v.out):])
		sweep, at := s.run, sweepKind{size: size, stride: stride, steps: env.Reproducible}
		switch {
		case eights:
			sweep, at.columns = s.runEights, min(out[1], 9)
		case s.two.masks[0] != 0 && channels%2 == 0:
			at.columns = 17
		default:
			at.columns = 16
		}
		kinds[at]++
		must.Do(t, v.Do(func(*Call) error { sweep(v); return nil }))
		got := slices.Clone(v.out)
		must.Do(t, v.Do(func(*Call) error { return v.depthwise() }))
		if !same(got, v.out) || !same(room[len(v.out):], rest) {
			t.Fatalf("%v by %+v, %d channels, %+v, %+v:\n%v, want\n%v", in, w, channels, at, p, got, v.out)
		}
	}
	if len(kinds) != want {
		t.Errorf("kinds of sweeps: %v", kinds)
	}
}

// sweepKind names a kernel: size and stride of the window, and columns of output: up to 9 in vectors
// of eight (9: more than eight), 16, or 17 for two planes side by side.
type sweepKind struct {
	size, stride, columns int
	steps                 bool
}

// tame returns finite numbers.
func tame(r *rand.Rand, n int) []float32 {
	v := make([]float32, n)
	for i := range v {
		v[i] = float32(r.NormFloat64())
	}
	return v
}
