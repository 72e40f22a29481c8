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

// withoutDots turns products of bytes in vectors off for the test; false where the processor has none.
func withoutDots(t *testing.T) bool {
	was := haveDots
	haveDots = false
	t.Cleanup(func() { haveDots = was })
	return was
}
