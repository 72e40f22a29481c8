package kernel

import (
	"math/rand/v2"
	"testing"

	"fmp/onnx/must"
)

// narrower turns AVX-512 off for the test; false where the processor has none.
func narrower(t *testing.T) bool {
	was := haveAVX512
	haveAVX512 = false
	t.Cleanup(func() { haveAVX512 = was })
	return was
}

// inGo has the test run without the processor's vectors; false where it can't, or does so anyway.
func inGo(t *testing.T) bool {
	was := havePanels
	havePanels = false
	t.Cleanup(func() { havePanels = was })
	return was
}

// byteKernels runs f with each set of kernels of bytes that the processor has, and without any.
func byteKernels(t *testing.T, f func(t *testing.T)) {
	dots, short, words := haveDots, haveShortDots, haveWords
	t.Cleanup(func() { haveDots, haveShortDots, haveWords = dots, short, words })
	if dots {
		t.Run("bytes", f)
	}
	if haveDots = false; short {
		t.Run("bytes of short vectors", f)
	}
	if haveShortDots = false; words {
		t.Run("words", f)
	}
	haveWords = false
	t.Run("go", f)
}

// TestOwnLines: products whose kernels start and end lines by themselves, or set what they are
// written to, have the bits of AVX2's, which go over lines before and after.
func TestOwnLines(t *testing.T) {
	if !haveAVX512 {
		t.Skip("this processor has no AVX-512")
	}
	r := rand.New(rand.NewPCG(43, 44))
	for range 120 {
		m, n, k, steps := 1+r.IntN(60), 8+r.IntN(90), 8+r.IntN(60), r.IntN(3) == 0
		if r.IntN(8) == 0 {
			m, k = 240+r.IntN(300), 380+r.IntN(20)
		}
		a, b := dense(tame(r, m*k), m, k), dense(tame(r, k*n), k, n)
		by := &lines{gelu: r.IntN(2) == 0}
		if r.IntN(2) == 0 {
			by.bias = tame(r, n)
		}
		if r.IntN(2) == 0 {
			by.scale = tame(r, n)
		}
		run := func(wide bool) []float32 {
			haveAVX512 = wide
			defer func() { haveAVX512 = true }()
			out := make([]float32, 2*m*n+40)
			fillRange(out, 7)
			c := NewCall(&Env{Pool: &Pool{}, Threads: 1 + m%2, Reproducible: steps}, 1, 1)
			must.Do(t, c.Do(func(*Call) error {
				parallelMultiply(c, a, b, dense(out, m, n), &right{matrix: b, steps: steps}, by)
				return nil
			}))
			z := dense(out[m*n:2*m*n], m, n)
			if !wide {
				clear(z.data)
			}
			multiplyPanels(a, b, z, steps, wide)
			return out
		}
		if got, want := run(true), run(false); !sameBits(got, want) {
			t.Fatalf("%d x %d x %d, %+v: not the bits of AVX2", m, k, n, by)
		}
	}
}
