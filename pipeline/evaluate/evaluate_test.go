package evaluate

import "testing"

// TestShare: a share of nothing is none, not 0.
func TestShare(t *testing.T) {
	for _, x := range []struct {
		some, all int
		want      float64 // -1: none
	}{{0, 0, -1}, {0, 4, 0}, {1, 4, 0.25}} {
		if got := share(x.some, x.all); (got == nil) != (x.want < 0) || got != nil && *got != x.want {
			t.Errorf("%d of %d: %v; want %v", x.some, x.all, got, x.want)
		}
	}
}
