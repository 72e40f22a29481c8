package point

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"fmp/onnx/must"
)

// TestIndexed: a set with class indices answers as the same set with labels.
func TestIndexed(t *testing.T) {
	t.Parallel()
	wide := New(3, 2, MaxDense)
	for i := range wide.N {
		wide.W[i] = float32(i)
		copy(wide.Row(i), []float32{float32(i), 7})
		wide.Row(i)[2+(5*i+3)%11] = 1
	}
	c := wide.Compact()
	if c.Y == nil || len(c.Z) != 6 || cmp.Diff([]int32{3, 8, 2}, c.Y) != "" {
		t.Fatalf("compact: %v classes, %d numbers", c.Y, len(c.Z))
	}
	if d := cmp.Diff(wide, c.Dense()); d != "" {
		t.Errorf("dense again (-want +got):\n%s", d)
	}
	both := must.Get(Pool(c, c.Held()))(t)
	mixed := must.Get(Pool(wide, c.Held()))(t)
	if both.N != 5 || both.Y == nil || mixed.Y != nil || cmp.Diff(mixed, both.Dense()) != "" {
		t.Errorf("pooled: %d points with %d classes, and %d numbers", both.N, len(both.Y), len(mixed.Z))
	}
	features, labels := c.Labelled()
	wantFeatures, wantLabels := wide.Labelled()
	if cmp.Diff(wantFeatures, features) != "" || cmp.Diff(wantLabels, labels) != "" {
		t.Errorf("labelled: %v, %v", features, labels)
	}
	for i := range wide.N {
		if d := cmp.Diff(wide.Row(i), c.Row(i)); d != "" {
			t.Errorf("row %d (-want +got):\n%s", i, d)
		}
		for _, s := range []*Set{wide, c} {
			n := 0
			s.Shares(i, func(y int, p float32) {
				if n++; y != int(c.Y[i]) || p != 1 {
					t.Errorf("row %d: share %v of class %d", i, p, y)
				}
			})
			if n != 1 {
				t.Errorf("row %d has %d shares", i, n)
			}
		}
	}
	wide.Row(1)[2], wide.Row(1)[2+8] = 0.5, 0.5
	if wide.Compact() != wide {
		t.Error("a label of two classes became a class")
	}
	if small := New(2, 1, 2); small.Compact() != small {
		t.Error("a small set was changed")
	}
}
