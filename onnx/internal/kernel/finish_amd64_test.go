package kernel

import (
	"math"
	"math/rand/v2"
	"slices"
	"testing"
)

// Rows are ended, and sums folded, with the bits of the loops one after the other, on either
// instruction set, and nothing is written beside them.
func TestFinishes(t *testing.T) {
	for havePanels {
		r := rand.New(rand.NewPCG(37, 38))
		for i := range 400 {
			n, high := 1+r.IntN(100), 1+r.IntN(4)
			a := &after{lo: -.5, hi: 1.5, curve: curve(i % 4), scale: odd(r, high+1), shift: odd(r, high+1)}
			if a.curve != bounds { // there is one or the other
				a.lo, a.hi = float32(math.Inf(-1)), float32(math.Inf(1))
			}
			if r.IntN(2) == 0 {
				a.scale, a.shift = nil, nil
			}
			rows := matrix[float32]{data: odd(r, high*(n+3)), rows: high, cols: n, stride: n + 3}
			want := slices.Clone(rows.data)
			for y := range high {
				endSlowly(a, want[y*(n+3):][:n], 1+y)
			}
			if !finishRows(a, rows, 1) || !sameBits(rows.data, want) {
				t.Fatalf("curve %d of %d rows of %d: %v, want %v", a.curve, high, n, rows.data, want)
			}
			v := normal(r, 1+r.IntN(100)).F32()
			var lanes [sumLanes]float64
			for i, x := range v {
				lanes[i%sumLanes] += float64(x)
			}
			if got, ok := laneSums(v); !ok || got != folded(lanes) {
				t.Fatalf("sum of %d numbers: %v, want %v", len(v), got, folded(lanes))
			}
		}
		if !narrower(t) {
			return
		}
	}
}

// endSlowly is what an ending does to numbers of one channel, operation after operation.
func endSlowly(a *after, v []float32, channel int) {
	l, h := a.of(channel), make([]float32, len(v))
	if limitGo(v, v, l.scale, l.shift, l.lo, l.hi); a.curve == bounds {
		return
	}
	if a.curve == hardSwish {
		limitGo(h, v, 1.0/6, .5, 0, 1)
		mulRow(v, v, h)
		return
	}
	limitGo(h, v, -1, negativeZero, float32(math.Inf(-1)), float32(math.Inf(1)))
	expRow(h, h)
	for i, e := range h {
		h[i] = 1 / (1 + e)
	}
	if a.curve == swish {
		mulRow(v, v, h)
		return
	}
	copy(v, h)
}

func folded(lanes [sumLanes]float64) float64 {
	for n := sumLanes / 2; n > 0; n /= 2 {
		for i := range n {
			lanes[i] += lanes[i+n]
		}
	}
	return lanes[0]
}

// Softmaxes and GELU have the same bits in vectors of sixteen and of eight, of numbers that are
// infinite or none as well, where they lie or elsewhere, and write nothing behind their lines.
func TestWiderCurves(t *testing.T) {
	if !haveAVX512 {
		t.Skip("this processor has no AVX-512")
	}
	r := rand.New(rand.NewPCG(39, 40))
	for range 400 {
		n, high := 1+r.IntN(70), 1+r.IntN(4)
		src := tame(r, n*high)
		if r.IntN(2) == 0 {
			src = odd(r, n*high)
		}
		for i := range src {
			src[i] *= 20
		}
		run := func(wide bool) []float32 {
			haveAVX512 = wide
			defer func() { haveAVX512 = true }()
			dst, own := make([]float32, 2*n*high+16), slices.Clone(src)
			fillRange(dst, 7)
			softmaxRows(dst, src, n)
			geluRow(dst[n*high:], src)
			softmaxRows(own, own, n)
			return slices.Concat(dst, own)
		}
		if got, want := run(true), run(false); !sameBits(got, want) {
			t.Fatalf("%d lines of %d, %v: %v, want %v", high, n, src, got, want)
		}
	}
}
