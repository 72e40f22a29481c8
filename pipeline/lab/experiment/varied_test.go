package experiment

import "testing"

// TestBrief: a setting that is empty is not named.
func TestBrief(t *testing.T) {
	got := Brief([]string{"dataset.classes", "erm.l2", "predictor.fresh"}, []string{"", "3", "100"})
	if want := "l2 = 3, fresh = 100"; got != want {
		t.Errorf("%q; want %q", got, want)
	}
}
