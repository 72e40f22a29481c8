package sample

import (
	"fmt"
	"math"
	"testing"

	"fmp/models"
	"fmp/onnx"
	"fmp/onnx/must"
	"fmp/pipeline/point"
)

// TestStudentWidth: t quantiles of the tables (19 and 1 degrees of freedom), times the root of 1 +
// 1/S of a prediction.
func TestStudentWidth(t *testing.T) {
	for _, c := range []struct {
		samples     int
		level, want float64
	}{{20, .9, 1.729133 * math.Sqrt(1.05)}, {2, .5, math.Sqrt(1.5)}} {
		w, err := studentWidth(c.samples, c.level)
		if err != nil || math.Abs(float64(w)-c.want) > 1e-5 {
			t.Errorf("%d samples at level %v: %v, %v, want %v", c.samples, c.level, w, err, c.want)
		}
	}
	for _, level := range []float64{0, 1, math.NaN()} {
		must.Refuse(studentWidth(20, level))(t, fmt.Sprintf("level %v is no error", level))
	}
	must.Refuse(studentWidth(1, .9))(t, "one sample is no error")
}

// TestProject: w = phi V - origin, by hand; labels and weights stay.
func TestProject(t *testing.T) {
	c := &Conjugate{config: models.ConjugateConfig{Dx: 3, K: 2}, values: map[string]*onnx.Tensor{
		models.ConjMap:    onnx.NewTensor([]float32{1, 2, 3, 4, 5, 6}, 3, 2),
		models.ConjOrigin: onnx.NewTensor([]float32{10, -20}, 2),
	}}
	seen := point.New(1, 3, 2)
	copy(seen.Row(0), []float32{1, .5, -1, 0, 1})
	seen.W[0] = 7
	out := c.project(seen)
	want := []float32{1 + 1.5 - 5 - 10, 2 + 2 - 6 + 20, 0, 1}
	for i, v := range out.Row(0) {
		if v != want[i] {
			t.Errorf("number %d is %v, want %v", i, v, want[i])
		}
	}
	if out.W[0] != 7 {
		t.Errorf("the weight is %v", out.W[0])
	}
}
