package models

import (
	"slices"
	"strings"
	"testing"

	"fmp/onnx/check"
	"fmp/onnx/must"
)

// TestOfClasses: a predictor of some of the classes, in another order, has the parameters of all and
// the images of these alone, under their new numbers; one of the same classes is the same, and there
// is none of a class that it lacks.
func TestOfClasses(t *testing.T) {
	m, _, _ := pictured(t)
	f := must.Get(ReadManifest(m))(t)
	f.Classes = []string{"a", "b"}
	all, _ := must.Get2(Images(m))(t)
	if same, g, err := OfClasses(m, f, []string{"a", "b"}); same != m || err != nil || g.C != 2 {
		t.Errorf("of the same classes: %v, %v", g, err)
	}
	back, g, err := OfClasses(m, f, []string{"b", "a"})
	must.Do(t, err)
	must.Do(t, check.Model(back))
	rows, labels := must.Get2(Images(back))(t)
	if !slices.Equal(rows, all) || !slices.Equal(labels, []int{1, 0, 0}) || g.C != 2 ||
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
	if rows, labels = must.Get2(Images(some))(t); !slices.Equal(rows, all[3:]) ||
		!slices.Equal(labels, []int{1, 1}) || g.C != 2 {
		t.Errorf("of two classes, one without images: rows %v, labels %v, manifest %v", rows, labels, g)
	}
	if none, _, err := OfClasses(m, f, []string{"a", "d"}); none != nil || err != nil {
		t.Errorf("of a class that it lacks: %v, %v", none, err)
	}
	if _, _, err := OfClasses(m, f, []string{"a", "a"}); err == nil || !strings.Contains(err.Error(), "named twice") {
		t.Errorf("of one class twice: %v", err)
	}
	if _, _, err := OfClasses(m, f, []string{"a"}); err == nil {
		t.Error("of one class: no error")
	}
}
