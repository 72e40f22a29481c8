package dataset

import (
	"strconv"
	"strings"
	"testing"
)

func TestKnownIsComplete(t *testing.T) {
	for _, s := range All() {
		if (s.Kind == "") != (len(s.Folders) == 0) || s.Kind == "" && s.Files != nil || s.Suits.L2 <= 0 || s.Suits.Points <= 0 || s.Suits.Fresh <= 0 {
			t.Errorf("%+v", s)
		}
		for _, f := range s.Files {
			if len(f.MD5) != 32 || len(f.SHA256) != 64 || len(f.URLs) == 0 || f.Max <= 0 {
				t.Errorf("%s: %+v", s.Name, f)
			}
			for _, u := range f.URLs {
				if !strings.HasPrefix(u, "https://") {
					t.Errorf("%s: %s is not https", s.Name, u)
				}
			}
		}
	}
	if _, err := LookupPublished("nothing"); err == nil || !strings.Contains(err.Error(), "mnist") {
		t.Error(err)
	}
}

func TestBySet(t *testing.T) {
	known := func(points ...int) (out []Known) {
		for i, p := range points {
			out = append(out, Known{Name: string(rune('a' + i)), Suits: Suits{Points: p}})
		}
		return out
	}
	for _, c := range []struct {
		points []int
		want   string
	}{{[]int{35, 20, 10}, "35 for a, 10 for c and 20 for others"}, {[]int{1, 7, 1, 1}, "1 for a, c and d, 7 for b, and 20 for others"}} {
		if got := bySet(known(c.points...), func(s Suits) string { return strconv.Itoa(s.Points) }); got != c.want {
			t.Errorf("%q; want %q", got, c.want)
		}
	}
}
