package experiment

import (
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
