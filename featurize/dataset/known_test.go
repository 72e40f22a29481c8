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
	if got, want := BySet(func(s Suits) string { return strconv.Itoa(s.Points) }), "35 for mnist, 10 for cifar10, 40 for cifar100 and 20 for others"; got != want {
		t.Errorf("%q; want %q", got, want)
	}
	if got, want := BySet(func(s Suits) string { return strconv.FormatFloat(s.L2, 'g', -1, 64) }), "1 for digits and digits-color, 0.1 for mnist, 7 for cifar10 and cifar100, and 3 for others"; got != want {
		t.Errorf("%q; want %q", got, want)
	}
}
