package models

import (
	"slices"
	"strings"
	"testing"

	"fmp/onnx/check"
	"fmp/onnx/must"
)

// TestOfClasses: a predictor of some of the classes, in another order, has the parameters of all and
// the images of these alone, under their new numbers, unless they are few; one of the same classes is
// the same, and there is none of a class that it lacks.
func TestOfClasses(t *testing.T) {
	m, features, labels := pictured(t) // one image of a, two of b
	m = must.Get(WithImages(m, slices.Repeat(features, LeastImages), slices.Repeat(labels, LeastImages)))(t)
	f := must.Get(ReadManifest(m))(t)
	f.Classes = []string{"a", "b"}
	all, of := must.Get2(Images(m))(t)
	if same, g, err := OfClasses(m, f, []string{"a", "b"}); same != m || err != nil || g.C != 2 {
		t.Errorf("of the same classes: %v, %v", g, err)
	}
	back, g, err := OfClasses(m, f, []string{"b", "a"})
	must.Do(t, err)
	must.Do(t, check.Model(back))
	rows, labels := must.Get2(Images(back))(t)
	for i := range of {
		of[i] = 1 - of[i]
	}
	if !slices.Equal(rows, all) || !slices.Equal(labels, of) || g.C != 2 ||
		strings.Join(must.Get(ReadManifest(back))(t).Classes, " ") != "b a" {
		t.Errorf("in another order: rows %v, labels %v, manifest %v", rows, labels, g)
	}
	_, want := must.Get2(ConjugateValues(m))(t)
	_, got := must.Get2(ConjugateValues(back))(t)
	for name, v := range want {
		if !slices.Equal(v.F32(), got[name].F32()) {
			t.Errorf("%s is %v; want %v", name, got[name].F32(), v.F32())
		}
	}
	f.C, f.Classes = 3, []string{"a", "b", "c"}
	must.Do(t, f.Write(m))
	some, g, err := OfClasses(m, f, []string{"c", "b"})
	must.Do(t, err)
	if rows, labels = must.Get2(Images(some))(t); !slices.Equal(rows, slices.Repeat(all[3:9], LeastImages)) ||
		!slices.Equal(labels, slices.Repeat([]int{1}, 2*LeastImages)) || g.C != 2 {
		t.Errorf("of two classes, one without images: rows %v, labels %v, manifest %v", rows, labels, g)
	}
	few, _, err := OfClasses(m, f, []string{"c", "a"})
	must.Do(t, err)
	if rows, labels = must.Get2(Images(few))(t); len(rows)+len(labels) > 0 {
		t.Errorf("of two classes that have %d images: %d are held", LeastImages, len(labels))
	}
	if none, _, err := OfClasses(m, f, []string{"a", "d"}); none != nil || err != nil {
		t.Errorf("of a class that it lacks: %v, %v", none, err)
	}
	must.Fail(OfClasses(m, f, []string{"a", "a"}))(t, "named twice", "of one class twice")
	must.Fail(OfClasses(m, f, []string{"a"}))(t, "", "of one class")
}
