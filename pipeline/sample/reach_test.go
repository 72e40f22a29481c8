package sample

import (
	"testing"

	"gonum.org/v1/gonum/floats"

	"fmp/models"
	"fmp/onnx/dense"
	"fmp/onnx/must"
	"fmp/pipeline/point"
)

// TestReach: means of images lie within the radius, and a hundredth beyond at most for rounding; of
// means in coordinates it is the nearest features that count.
func TestReach(t *testing.T) {
	c, _, _ := conjugateWorld(t)
	dx, k := c.config.Dx, c.config.K
	radius := float64(c.values[models.ConjRadius].F32()[0])
	if dx == k {
		t.Fatal("the coordinates are features")
	}
	for _, v := range []struct {
		share float64 // of the radius
		ok    bool
	}{{0.5, true}, {1, true}, {1.009, true}, {1.011, false}, {1.03, false}, {50, false}} {
		phi := make([]float64, dx)
		w := make([]float64, k)
		// The direction of a column of V has no shorter phi of the same coordinates.
		for d := range phi {
			phi[d] = float64(c.values[models.ConjMap].F32()[d*k])
		}
		floats.Scale(v.share*radius/floats.Norm(phi, 2), phi)
		for j := range w {
			w[j] = -float64(c.values[models.ConjOrigin].F32()[j])
			for d, x := range phi {
				w[j] += x * float64(c.values[models.ConjMap].F32()[d*k+j])
			}
		}
		for coordinates, mean := range map[int][]float64{0: phi, k: w} {
			r := must.Get(NewReach(c.model, dx, coordinates))(t)
			set := point.New(1, len(mean), c.config.C)
			copy(set.Z, dense.As[float32](mean))
			if err := r.Check(set); (err == nil) != v.ok {
				t.Errorf("a mean at %v of the radius, of %d coordinates: %v", v.share, coordinates, err)
			}
			if err := r.CheckSum(set); (err == nil) != (v.ok || v.share < 1.02) {
				t.Errorf("a sum at %v of the radius, of %d coordinates: %v", v.share, coordinates, err)
			}
			set.Dx++
			must.Fail(r.Compute(set))(t, "", "means of another width have a reach")
		}
	}
}
