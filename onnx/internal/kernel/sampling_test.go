package kernel

import (
	"math"
	"slices"
	"testing"

	"fmp/onnx"
)

// A position beyond the borders is folded back between them, as often as it takes: about half a
// pixel beyond the outer pixels, or about these where corners are aligned.
func TestGridReflection(t *testing.T) {
	for _, c := range []struct {
		align   bool
		v, want float64
	}{
		{false, 1.25, 1.25}, {false, 4.2, 2.8}, {false, -1.2, .2}, {false, 9, 1}, {true, 4.2, 1.8},
		{true, -1.2, 1.2}, {true, 7.4, 1.4},
	} {
		if got := (gridSample{padding: "reflection", align: c.align}).reflect(c.v, 4); math.Abs(got-c.want) > 1e-12 {
			t.Errorf("aligned %v: %v is folded to %v, want %v", c.align, c.v, got, c.want)
		}
	}
	if got := (gridSample{align: true}).reflect(5, 1); got != 0 {
		t.Errorf("one pixel: %v", got)
	}
}

// Where the output is not cut to a whole size evenly, half_pixel_symmetric keeps its centre on the
// input's: 5 positions by .5 are 2 of 2.5.
func TestHalfPixelSymmetric(t *testing.T) {
	for transform, want := range map[string][]float64{"half_pixel_symmetric": {1, 3}, "half_pixel": {.5, 2.5}} {
		r := resizing{mode: "linear", transform: transform}
		var got []float64
		for _, tap := range r.taps(5, 2, .5, [2]float64{}) {
			x := 0.0
			for i, at := range tap.at {
				x += tap.weight[i] * float64(at)
			}
			got = append(got, x)
		}
		if !slices.Equal(got, want) {
			t.Errorf("%s: positions %v, want %v", transform, got, want)
		}
	}
}

// TestSimpleNearest: Resize of version 10 takes the next element where an axis shrinks, and the one
// before where it grows.
func TestSimpleNearest(t *testing.T) {
	for _, c := range []struct {
		in, out int
		scale   float64
		want    []int
	}{{4, 2, .6, []int{0, 2}}, {4, 3, .75, []int{0, 2, 3}}, {4, 6, 1.5, []int{0, 0, 1, 2, 2, 3}},
		{12, 8, float64(float32(.7)),
			[]int{0, 2, 3, 5, 6, 8, 9, 10}}} {
		var got []int
		for _, tap := range (resizing{mode: "nearest", transform: "asymmetric", nearest: "simple"}).taps(
			c.in, c.out, c.scale, [2]float64{}) {
			got = append(got, tap.at...)
		}
		if !slices.Equal(got, c.want) {
			t.Errorf("%d to %d: positions %v, want %v", c.in, c.out, got, c.want)
		}
	}
}

// Sizes and positions are those of float32, as in the ONNX Runtime, which gave these numbers.
func TestResizeInFloat32(t *testing.T) {
	for _, c := range []struct {
		in                 int
		scale              float32
		size               int64
		transform, nearest string
		want               []float32
	}{
		{10, .7, 0, "asymmetric", "floor", []float32{0, 1, 2, 4, 5, 7, 8}},
		{3, .6, 0, "half_pixel", "floor", []float32{0}},
		{11, .6, 0, "half_pixel", "ceil", []float32{1, 2, 4, 6, 7, 9}},
		{24, .8, 0, "asymmetric", "floor",
			[]float32{0, 1, 2, 3, 5, 6, 7, 8, 10, 11, 12, 13, 15, 16, 17, 18, 20, 21, 22}},
		{7, 1.4, 0, "asymmetric", "floor", []float32{0, 0, 1, 2, 2, 3, 4, 5, 5}},
		{14, 0, 4, "asymmetric", "floor", []float32{0, 3, 6, 10}},
		{7, 0, 9, "half_pixel", "floor", []float32{0, 0, 1, 2, 3, 3, 4, 5, 6}},
		{7, 0, 2, "asymmetric", "round_prefer_ceil", []float32{0, 4}},
		{11, 0, 13, "align_corners", "ceil", []float32{0, 1, 2, 3, 4, 5, 5, 6, 7, 8, 9, 10, 10}},
	} {
		x := onnx.ZerosF32(c.in)
		for i := range x.F32() {
			x.F32()[i] = float32(i)
		}
		in := []*onnx.Tensor{x, nil, onnx.Vector(c.scale)}
		if c.size > 0 {
			in = []*onnx.Tensor{x, nil, nil, onnx.Vector(c.size)}
		}
		n := &onnx.Node{Op: "Resize", Attrs: []onnx.Attr{onnx.StrAttr("nearest_mode", c.nearest),
			onnx.StrAttr("coordinate_transformation_mode", c.transform)}}
		for i, name := range []string{"x", "", "scales", "sizes"}[:len(in)] {
			if in[i] == nil {
				name = ""
			}
			n.Inputs = append(n.Inputs, name)
		}
		n.Outputs = []string{"y"}
		out, err := Evaluate(n, 18, in)
		if err != nil || !slices.Equal(out[0].F32(), c.want) {
			t.Errorf("%+v: got %v, %v", c, out, err)
		}
	}
}

// A whole scale is exact beyond the whole numbers of float32.
func TestResizeKeepsLargeAxes(t *testing.T) {
	n := &onnx.Node{Op: "Resize", Inputs: []string{"x", "", "scales"}, Outputs: []string{"y"}}
	const size = 1<<24 + 1
	out, err := Evaluate(n, 18, []*onnx.Tensor{onnx.ZerosF32(size, 0), nil, onnx.Vector[float32](1, 1)})
	if err != nil || out[0].Shape[0] != size {
		t.Errorf("got %v, %v; want %d rows", out, err, size)
	}
}
