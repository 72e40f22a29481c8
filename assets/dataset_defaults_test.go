package assets

import (
	"strconv"
	"testing"
)

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

func TestBySet(t *testing.T) {
	for _, c := range []struct {
		points []int
		want   string
	}{{[]int{35, 20, 10}, "35 for a, 10 for c and 20 for others"},
		{[]int{1, 7, 1, 1}, "1 for a, c and d, 7 for b, and 20 for others"}} {
		var known []namedDefaults
		for i, p := range c.points {
			known = append(known, namedDefaults{string(rune('a' + i)), DatasetDefaults{Points: p}})
		}
		if got := describe(known, func(s DatasetDefaults) string { return strconv.Itoa(s.Points) }); got != c.want {
			t.Errorf("%q; want %q", got, c.want)
		}
	}
}
