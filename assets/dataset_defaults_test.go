package assets

import "testing"

// TestDefaultsFor: each data set with models has settings of its own, another has those of all
// others.
func TestDefaultsFor(t *testing.T) {
	for _, d := range Datasets() {
		if s := DefaultsFor(d); s == others || s.L2 <= 0 || s.Points <= 0 || s.Fresh <= 0 {
			t.Errorf("%s: %+v", d, s)
		}
	}
	if s := DefaultsFor("a folder"); s != others {
		t.Errorf("%+v", s)
	}
}
