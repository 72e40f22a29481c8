package conformal

import (
	"slices"
	"testing"
)

// TestShares: shares are divided by their sum, which must be finite.
func TestShares(t *testing.T) {
	for text, want := range map[string][]float64{"a=1,b=3": {0.25, 0.75}, "equal": {0.5, 0.5},
		"a=1e308": {1, 0}, "a=1e308,b=1e308": nil, "a=Inf": nil, "a=-1": nil} {
		got, err := Shares(text, []string{"a", "b"}, 2)
		if !slices.Equal(got, want) || (err == nil) != (want != nil) {
			t.Errorf("%s: %v, %v; want %v", text, got, err, want)
		}
	}
}
