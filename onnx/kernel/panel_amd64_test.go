package kernel

import "testing"

// narrower turns AVX-512 off for the test; false where the processor has none.
func narrower(t *testing.T) bool {
	was := haveAVX512
	haveAVX512 = false
	t.Cleanup(func() { haveAVX512 = was })
	return was
}
