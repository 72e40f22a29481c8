package kernel

import (
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"fmp/onnx"
)

func drawnNumbers(seed uint64, n int) []float32 {
	r, v := rand.New(rand.NewPCG(seed, 2)), make([]float32, n)
	for i := range v {
		v[i] = float32(3 + 2*r.NormFloat64())
	}
	return v
}

// TestNormalisedLines: a line's moments in lanes are those of one number after the other to the last
// places of float64, and the line itself has the bits of numbers one by one.
func TestNormalisedLines(t *testing.T) {
	for n := 1; n < 80; n++ {
		src, scale, bias := drawnNumbers(uint64(n), n), drawnNumbers(100, n), drawnNumbers(200, n)
		mean, variance := moments(src)
		for _, reproducible := range []bool{true, false} {
			m, v := lineMoments(src, reproducible)
			if bound := 1e-14 * (1 + math.Abs(mean)); math.Abs(m-mean) > bound || math.Abs(v-variance) > 10*bound {
				t.Fatalf("%d numbers: moments %v and %v, of one after the other %v and %v", n, m, v, mean, variance)
			}
			if reproducible && (m != mean || v != variance) {
				t.Fatalf("%d numbers: other bits than on every processor", n)
			}
		}
		for _, b := range [][]float32{nil, bias} {
			got := make([]float32, n)
			normaliseLine(got, src, scale, b, mean, 0.7)
			for i, v := range src {
				want := float32(float32((float64(v)-mean)*0.7) * scale[i]) // rounded, so that nothing is fused
				if b != nil {
					want += b[i]
				}
				if math.Float32bits(got[i]) != math.Float32bits(want) {
					t.Fatalf("number %d of %d is %v in place of %v", i, n, got[i], want)
				}
			}
		}
	}
}

// TestTurned: axes that change places, in sizes around the vectors' and blocks'.
func TestTurned(t *testing.T) {
	for _, s := range [][]int{{1, 8, 8}, {2, 9, 130}, {3, 8, 129}, {2, 128, 16}, {2, 17, 23}, {1, 7, 20}} {
		n, high, wide := s[0], s[1], s[2]
		x := onnx.NewTensor(drawnNumbers(uint64(high), n*high*wide), n, high, wide)
		got := onnx.ZerosF32(n, wide, high)
		c := NewCall(&Env{Pool: &Pool{}, Threads: 2}, 1, 1)
		gather(c, got, x, 0, []int{high * wide, 1, wide})
		for i := range n {
			for y := range high {
				for z := range wide {
					if got.F32()[(i*wide+z)*high+y] != x.F32()[(i*high+y)*wide+z] {
						t.Fatalf("%v: element %d, %d of %d is another's", s, y, z, i)
					}
				}
			}
		}
	}
}

// TestLinesNormalised: lines that are normalised whole are within a unit of the last place of those
// by moments of two passes, far from zero and with one number far from the others as well, and
// nothing is written behind them.
func TestLinesNormalised(t *testing.T) {
	one := []float32{1, 1, 1, 1}
	if !normalisedLines(make([]float32, 4), one, one, one, 1) {
		t.Skip("this processor has no kernel for them")
	}
	for n := 1; n < 80; n++ {
		for kind := range 3 {
			const rows, eps = 3, 1e-5
			src, scale, bias := drawnNumbers(uint64(n), rows*n), drawnNumbers(100, n), drawnNumbers(200, n)
			switch kind {
			case 1:
				src[0], bias = 1e6, nil
			case 2:
				for i := range src {
					src[i] += 4096
				}
			}
			got := drawnNumbers(300, rows*n+16)
			rest := slices.Clone(got[rows*n:])
			normalisedLines(got, src, scale, bias, eps)
			if !sameBits(got[rows*n:], rest) {
				t.Fatalf("%d lines of %d: something is written behind them", rows, n)
			}
			for i := range rows {
				mean, variance := moments(src[i*n:][:n])
				for k, v := range src[i*n:][:n] {
					want := float32((float64(v)-mean)/math.Sqrt(variance+eps)) * scale[k]
					if bias != nil {
						want += bias[k]
					}
					if d := got[i*n+k] - want; math.Abs(float64(d)) > 2e-7*(8+math.Abs(float64(want))) {
						t.Fatalf("number %d of %d is %v in place of %v", k, n, got[i*n+k], want)
					}
				}
			}
		}
	}
}
