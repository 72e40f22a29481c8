package kernel

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"fmp/onnx"
	"fmp/onnx/must"
)

// Windows that are swept down planes have the bits of windows over phases with padding, in strips
// and two planes side by side, and write nothing behind a plane.
func TestSweeps(t *testing.T) {
	if !haveMasks() {
		t.Skip("this processor has no AVX-512")
	}
	sweepWindows(t, false, 4*2+1) // windows, on one plane or two, and 7x7
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
		in, size, stride := []int{1 + r.IntN(12), 1 + r.IntN(60)}, 3+2*r.IntN(3), 1+r.IntN(2)
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
		if s == nil || eights && s.eights == nil {
			continue
		}
		channels, pos := 1+r.IntN(4), out[0]*out[1]
		p := must.Get(newPhases(w, in, out))(t)
		x, weights, bias := tame(r, 2*channels*in[0]*in[1]), tame(r, channels*size*size),
			tame(r, channels)
		if eights && r.IntN(2) == 0 {
			x = odd(r, len(x))
		}
		then := &after{lo: -1, hi: 1, scale: tame(r, channels), shift: tame(r, channels)}
		if r.IntN(2) == 0 {
			then.lo, then.hi = float32(math.Inf(-1)), float32(math.Inf(1))
		}
		if r.IntN(2) == 0 {
			then.scale, then.shift = nil, nil
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
			if at.columns = min(out[1], 9); !env.Reproducible { // else as any processor runs it
				sweep = func(v *convolution[float32]) { lastFirst(s, v, r) }
			}
		case s.two.masks[0] != 0 && channels%2 == 0:
			at.columns = 17
		default:
			at.columns = 16
		}
		kinds[at]++
		must.Do(t, v.Do(func(*Call) error { sweep(v); return nil }))
		got := slices.Clone(v.out)
		must.Do(t, v.Do(func(*Call) error { v.depthwise(); return nil }))
		if !sameBits(got, v.out) || !sameBits(room[len(v.out):], rest) {
			t.Fatalf("%v by %+v, %d channels, %+v, %+v:\n%v, want\n%v", in, w, channels, at, p, got, v.out)
		}
	}
	if len(kinds) != want {
		t.Errorf("kinds of sweeps: %v", kinds)
	}
}

// BenchmarkEights measures windows that are swept in vectors of eight columns beside the same over
// phases with padding, in turns, both bounded as in MobileNetV2: how many times as long these take, by
// the least times.
func BenchmarkEights(b *testing.B) {
	if !haveEights() {
		b.Skip("this processor has no AVX2")
	}
	r := rand.New(rand.NewPCG(1, 2))
	for _, s := range []struct{ planes, high, wide, size, stride int }{{32, 112, 112, 3, 1},
		{96, 112, 112, 3, 2}, {144, 56, 56, 3, 1}, {144, 56, 56, 5, 2}, {240, 28, 28, 5, 1}, {384, 14, 14, 3, 1},
		{480, 14, 14, 5, 1}, {960, 7, 7, 3, 1}, {64, 400, 1, 5, 1}, {4, 3, 20000, 3, 1}} {
		for _, steps := range []bool{false, true} {
			b.Run(fmt.Sprintf("%dx%d/%d/%dx%dx%d/steps=%t", s.size, s.size, s.stride, s.planes, s.high, s.wide,
				steps), func(b *testing.B) {
				in, both := []int{s.high, s.wide}, func(n int) []int { return []int{n, n} }
				w, out, err := window{size: both(s.size), stride: both(s.stride), dilation: both(1),
					begin: both(s.size / 2), end: both(s.size / 2)}.fit(in)
				must.Do(b, err)
				sweeps, n := newSweeps(w, in, out), s.planes*s.high*s.wide
				v := &convolution[float32]{Call: NewCall(&Env{Pool: &Pool{}, Threads: 1, Reproducible: steps}, 3, 1),
					window: w, group: s.planes, then: &after{lo: 0, hi: 6}, xs: []int{1, s.planes, s.high, s.wide},
					sp: out, x: tame(r, n),
					weights: tame(r, s.planes*s.size*s.size), out: make([]float32, s.planes*out[0]*out[1]),
					channels: 1, filters: 1, in: s.high * s.wide, pos: out[0] * out[1], taps: s.size * s.size}
				least := [2]float64{math.Inf(1), math.Inf(1)}
				for b.Loop() {
					for i, f := range []func(*Call) error{func(*Call) error { v.depthwise(); return nil },
						func(*Call) error { sweeps.runEights(v); return nil }} {
						start := time.Now()
						must.Do(b, v.Do(f))
						least[i] = min(least[i], float64(time.Since(start).Nanoseconds()))
					}
				}
				b.ReportMetric(least[1], "least-ns")
				b.ReportMetric(least[0]/least[1], "times")
			})
		}
	}
}

// lastFirst sweeps shares of the planes, the last ones first, as threads may.
func lastFirst(s *sweeps, v *convolution[float32], r *rand.Rand) {
	for hi := v.xs[0] * v.xs[1]; hi > 0; {
		lo := max(0, hi-1-r.IntN(4))
		s.planes(v, lo, hi)
		hi = lo
	}
}

// sweepKind names a kernel: size and stride of the window, and columns of output: up to 9 in vectors
// of eight (9: more than eight), 16, or 17 for two planes side by side.
type sweepKind struct {
	size, stride, columns int
	steps                 bool
}

// sameBits is same that tells zeros apart.
func sameBits(a, b []float32) bool {
	return slices.EqualFunc(a, b, func(a, b float32) bool {
		return math.Float32bits(a) == math.Float32bits(b) || a != a && b != b
	})
}

// tame returns finite numbers.
func tame(r *rand.Rand, n int) []float32 {
	v := make([]float32, n)
	for i := range v {
		v[i] = float32(r.NormFloat64())
	}
	return v
}

// TestDepthwiseSevens: a window of 7x7 rounds each product before it is added where a client
// computes, and elsewhere is as near as fused products are.
func TestDepthwiseSevens(t *testing.T) {
	const channels, high, wide, size = 3, 9, 23, 7
	r := rand.New(rand.NewPCG(41, 42))
	x := onnx.NewTensor(tame(r, channels*high*wide), 1, channels, high, wide)
	w := onnx.NewTensor(tame(r, channels*size*size), channels, 1, size, size)
	want := make([]float32, x.Len())
	for i := range want {
		for tap := range size * size {
			y, c := i/wide%high+tap/size-size/2, i%wide+tap%size-size/2
			if y >= 0 && y < high && c >= 0 && c < wide {
				want[i] += float32(w.F32()[i/high/wide*size*size+tap] * x.F32()[i/high/wide*high*wide+y*wide+c])
			}
		}
	}
	for _, steps := range []bool{true, false} {
		got := evaluatedIn(t, &Env{Pool: &Pool{}, Threads: 1, Reproducible: steps}, &onnx.Node{Op: "Conv",
			Attrs: []onnx.Attr{onnx.IntAttr("group", channels), onnx.IntsAttr("pads", 3, 3, 3, 3)}},
			map[int]bool{1: true}, x, w).F32()
		for i, v := range got {
			if steps && v != want[i] || math.Abs(float64(v-want[i])) > 1e-5 {
				t.Fatalf("rounded: %t: output %d is %v, want %v", steps, i, v, want[i])
			}
		}
	}
}
