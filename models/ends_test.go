package models

import (
	"testing"

	"fmp/onnx/must"
)

// TestSizedEnds: ends lie on a line in the logarithm of the images a class, and no farther than at
// few and at many.
func TestSizedEnds(t *testing.T) {
	s := SizedEnds{Ends{1, 2}, Ends{3, 0.5}}
	for images, want := range map[float64]Ends{0: {1, 2}, 2: {1, 2}, 8: {1.8, 1.4}, 64: {3, 0.5},
		1e6: {3, 0.5}} {
		got := s.At(images)
		if d, u := got.Down-want.Down, got.Up-want.Up; d > 1e-5 || d < -1e-5 || u > 1e-5 || u < -1e-5 {
			t.Errorf("%v images: %v, want %v", images, got, want)
		}
	}
	if e := (SizedEnds{}).At(20); e != (Ends{}) {
		t.Errorf("ends that were not learned are %v", e)
	}
}

// TestOpenEnds: ends of a file that are no numbers above 0, or not four, are refused.
func TestOpenEnds(t *testing.T) {
	p := OpenParameters{Centre: []float32{0, 0}, Radius: 1, Origin: []float32{0, 0},
		Within:  []float32{1, 0, 0, 1},
		Between: []float32{1, 0, 0, 1}, Known: []float32{0, 0, 1, 1}, Widening: 1}
	for _, bad := range []Ends{{-1, 1}, {1, 0}, {1, 17}} {
		p.Ends = SizedEnds{Ends{1, 1}, bad}
		must.Fail(NewOpen(p))(t, "", bad)
	}
	p.Ends = SizedEnds{Ends{1, 1}, Ends{1, 2}}
	m := must.Get(NewOpen(p))(t)
	if got, err := OpenValues(m); err != nil || got.Ends != p.Ends {
		t.Errorf("%v, %v", got.Ends, err)
	}
	m.Graph.Initializers[OpenEnds].Data, m.Graph.Initializers[OpenEnds].Shape = []float32{1, 1},
		[]int{2}
	must.Fail(OpenValues(m))(t, "", "two ends are no error")
}
