package shipped

import (
	"errors"
	"io/fs"
	"math"
	"slices"
	"testing"

	"fmp/assets"
	"fmp/models"
	"fmp/onnx/must"
)

// TestAnchor: each data set's client graph has an anchor of ten images a class, whose classes
// follow the graph's names, in the coordinates of a graph of its predictor as well; another
// extractor, class or form has none.
func TestAnchor(t *testing.T) {
	for _, d := range assets.Datasets() {
		g, f := must.Get2(Load(d, models.KindClient))(t)
		u := must.Get(Anchor(f, g))(t)
		if u.N != 10*f.C || u.Model != f.Digest || u.Points.N != f.C || u.Points.Dx != f.Dx {
			t.Errorf("%s: %d images in %d means of %d numbers", d, u.N, u.Points.N, u.Points.Dx)
		}
		turned := f
		turned.Classes = slices.Clone(f.Classes)
		slices.Reverse(turned.Classes)
		v := must.Get(Anchor(turned, g))(t)
		for i := range f.C {
			if at := f.C - 1 - i; v.Points.Indices()[at] != int32(at) ||
				!slices.Equal(v.Points.Features(at), u.Points.Features(i)) {
				t.Errorf("%s: class %d is not where its name is", d, i)
			}
		}
		p, q := must.Get2(Predictor(f))(t)
		q.ClassMeans, q.Classes, q.Extractor = true, f.Classes, f.Extractor
		w := must.Get(Anchor(q, p))(t)
		to, origin := p.Graph.Initializers[models.ConjMap].F32(),
			p.Graph.Initializers[models.ConjOrigin].F32()
		if w.Points.Dx != q.K {
			t.Fatalf("%s: %d coordinates of %d", d, w.Points.Dx, q.K)
		}
		for j, got := range w.Points.Features(1) {
			want := -float64(origin[j])
			for i, x := range u.Points.Features(1) {
				want += float64(x) * float64(to[i*q.K+j])
			}
			if math.Abs(want-float64(got)) > 1e-4 {
				t.Errorf("%s: coordinate %d is %v; want %v", d, j, got, want)
			}
		}
		for what, change := range map[string]func(*models.Manifest){
			"extractor": func(f *models.Manifest) { f.Extractor = "other" },
			"class":     func(f *models.Manifest) { f.Classes = slices.Clone(f.Classes); f.Classes[0] = "another" },
			"no names":  func(f *models.Manifest) { f.Classes = nil },
			"moments":   func(f *models.Manifest) { f.Bytes = 1 << 20 },
			"points":    func(f *models.Manifest) { f.ClassMeans = false },
			"width":     func(f *models.Manifest) { f.K = 3 },
		} {
			other := f
			change(&other)
			if _, err := Anchor(other, g); !errors.Is(err, fs.ErrNotExist) {
				t.Errorf("%s, another %s: %v", d, what, err)
			}
		}
	}
}
