package open

import (
	"testing"

	"gonum.org/v1/gonum/mat"

	"fmp/onnx/must"
	"fmp/pipeline/honesty"
	"fmp/pipeline/point"
)

// TestRefuses: uploads that do not go together, or that a predictor was not made for, are refused.
func TestRefuses(t *testing.T) {
	set := func(dx, c int, mass float32) *point.Set {
		s := point.New(1, dx, c)
		s.Row(0)[dx], s.W[0] = 1, mass
		return s
	}
	for name, uploads := range map[string][]*point.Set{
		"none": nil, "a missing first": {nil}, "a missing second": {set(3, 2, 1), nil},
		"other coordinates": {set(3, 2, 1), set(4, 2, 1)},
		"other classes":     {set(3, 2, 1), set(3, 4, 1)}, "no mass": {set(3, 2, 0)},
	} {
		must.Refuse(pool(len(uploads), Each(uploads)))(t, name)
	}
	w := &Whitening{Lambda: []float64{1, 1}}
	if _, err := w.Sets(honesty.Uploads{Clients: 1, Classes: 2, K: 3, Masses: make([]float64, 2),
		Means: make([]float64, 6)}); err == nil {
		t.Error("claims of other coordinates: no error")
	}
	p := new(Predictor)
	p.M0 = make([]float64, 3)
	must.Refuse(p.Posterior(&Stats{Mean: mat.NewDense(2, 4, nil)}))(
		t, "uploads of other coordinates than the predictor's: no error")
}
