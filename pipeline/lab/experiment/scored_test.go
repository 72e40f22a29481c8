package experiment

import (
	"maps"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"fmp/onnx/engine"
	"fmp/onnx/engine/pure"
	"fmp/onnx/must"
)

// TestScoredImages: other and spoiled images are made of the test images that are scored, and classes
// without such images are noted.
func TestScoredImages(t *testing.T) {
	c := Default()
	c.Methods, c.Seeds, c.Dataset.Test = []string{"NCM"}, 1, 5
	c.Scores.Other = []string{"inverted"}
	c.Scores.Domains = []Domain{{Rotation, 0}, {"contrast", 1}, {"digits", 0}}
	eng := must.Get(pure.New(engine.Options{}))(t)
	defer eng.Close()
	p := must.Get(Prepare(t.Context(), c, eng, nil, nil))(t)
	defer p.Close()
	if n := len(p.Data.TestLabels); n != 5 || len(p.Data.Shifts) != 4 {
		t.Fatalf("%d test images, %d kinds of others", n, len(p.Data.Shifts))
	}
	of := slices.Sorted(slices.Values(p.Data.TestLabels))
	for i, s := range p.Data.Shifts {
		labels := slices.Sorted(slices.Values(s.Labels))
		if len(s.Features) != len(p.Data.Test) || i > 0 && !slices.Equal(labels, of) {
			t.Errorf("%s: %d numbers of classes %v; want those of the test images %v", s.Name,
				len(s.Features), s.Labels, of)
		}
	}
	if !slices.ContainsFunc(p.Manifest.Notes, func(n string) bool {
		return strings.HasSuffix(n, " of 10 classes have no test images: figures are of the others")
	}) {
		t.Errorf("notes %q", p.Manifest.Notes)
	}
}

// TestUnscored: the note counts the classes without images, and there is none where all have some.
func TestUnscored(t *testing.T) {
	for want, labels := range map[string][]int{"": {2, 0, 1, 1}, "1 of 3 classes": {0, 2}, "2 of 3": {1}} {
		if got := unscored(labels, 3); !strings.HasPrefix(got, want) || (want == "") != (got == "") {
			t.Errorf("%v: %q; want %q", labels, got, want)
		}
	}
}

// TestStoppedBeforeScoredImages: a stopped run whose spoiled images were of all test images is refused
// by name, as its identity has no word of the first. A run without such images has no such word.
func TestStoppedBeforeScoredImages(t *testing.T) {
	eng := must.Get(pure.New(engine.Options{}))(t)
	defer eng.Close()
	for _, x := range []struct {
		name        string
		test        int
		corruptions bool
		other       []string
		domains     []Domain
		want        string
	}{
		{"inverted", 5, false, []string{"inverted"}, nil, "first 5"},
		{"noise", 6, false, []string{"noise"}, nil, "first 6"},
		{"corruptions", 2, true, nil, nil, "first 2"},
		{"a domain", 5, false, nil, []Domain{{"contrast", 1}}, "first 5"},
		{"a rotation by none", 5, false, nil, []Domain{{Rotation, 0}}, "first 5"},
		{"the data set's own", 5, false, nil, []Domain{{"digits", 0}}, "first 5"},
		{"all test images", 0, false, []string{"inverted"}, nil, ""},
		{"more than there are", 100000, false, []string{"inverted"}, nil, ""},
		{"no others", 5, false, nil, nil, ""},
	} {
		c := Default()
		c.Methods, c.Seeds, c.Dataset.Test, c.Scores.Images = []string{"NCM"}, 1, x.test, 2
		c.Scores.Corruptions, c.Scores.Other, c.Scores.Domains = x.corruptions, x.other, x.domains
		p := must.Get(Prepare(t.Context(), c, eng, nil, nil))(t)
		m := p.Manifest
		must.Do(t, p.Close())
		if m.Data["spoiled"] != x.want {
			t.Errorf("%s: spoiled images are of %q; want %q", x.name, m.Data["spoiled"], x.want)
		}
		old := m
		old.Data = maps.Clone(m.Data)
		delete(old.Data, "spoiled")
		old.Identity = must.Get(Identity(p.Config, old.Models, old.Data))(t)
		dir := filepath.Join(t.TempDir(), "run")
		must.Do(t, must.Get(Open(dir, p.Config, old))(t).Close())
		d, err := Open(dir, p.Config, m)
		if x.want != "" {
			must.Fail(d, err)(t, "data spoiled are none there and "+x.want+" here", x.name)
			continue
		}
		must.Do(t, must.Get(d, err)(t).Close())
	}
}
