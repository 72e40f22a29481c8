package kernel

import "testing"

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
