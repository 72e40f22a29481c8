package assets

import (
	"strconv"
	"testing"
)

// TestSuits: each data set with models has settings of its own, another has those of all others.
func TestSuits(t *testing.T) {
	for _, d := range Datasets() {
		if s := SuitsOf(d); s == others || s.L2 <= 0 || s.Points <= 0 || s.Fresh <= 0 {
			t.Errorf("%s: %+v", d, s)
		}
	}
	if s := SuitsOf("a folder"); s != others {
		t.Errorf("%+v", s)
	}
}

func TestBySet(t *testing.T) {
	for _, c := range []struct {
		points []int
		want   string
	}{{[]int{35, 20, 10}, "35 for a, 10 for c and 20 for others"}, {[]int{1, 7, 1, 1}, "1 for a, c and d, 7 for b, and 20 for others"}} {
		var known []suited
		for i, p := range c.points {
			known = append(known, suited{string(rune('a' + i)), Suits{Points: p}})
		}
		if got := bySet(known, func(s Suits) string { return strconv.Itoa(s.Points) }); got != c.want {
			t.Errorf("%q; want %q", got, c.want)
		}
	}
}
