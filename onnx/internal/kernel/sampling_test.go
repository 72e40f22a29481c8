package kernel

import (
	"math"
	"slices"
	"strings"
	"testing"

	"fmp/onnx"
	"fmp/onnx/must"
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
		taps := r.taps(NewCall(&Env{Pool: &Pool{}}, 0, 0), 5, 2, .5, [2]float64{})
		for p := range 2 {
			x := 0.0
			at, weight := taps.of(p)
			for i, at := range at {
				x += weight[i] * float64(at)
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
		want    []int64
	}{{4, 2, .6, []int64{0, 2}}, {4, 3, .75, []int64{0, 2, 3}}, {4, 6, 1.5, []int64{0, 0, 1, 2, 2, 3}},
		{12, 8, float64(float32(.7)),
			[]int64{0, 2, 3, 5, 6, 8, 9, 10}}} {
		got := resizing{mode: "nearest", transform: "asymmetric", nearest: "simple"}.taps(
			NewCall(&Env{Pool: &Pool{}}, 0, 0), c.in, c.out, c.scale, [2]float64{}).at
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

// Elements that are not floats take the extrapolation value outside of a crop as floats do, in their
// own type, and so does a crop that is not a number.
func TestResizeBeyondCrop(t *testing.T) {
	nan := math.NaN()
	for _, c := range []struct {
		from, to []float64 // of the crop, on both axes
		want     []float64 // [3, 3]
	}{
		{[]float64{0, 0}, []float64{1, 1}, []float64{1, 2, 3, 4, 5, 6, 7, 8, 9}},
		{[]float64{0, -.5}, []float64{1, .5}, []float64{55, 1, 2, 55, 4, 5, 55, 7, 8}},
		{[]float64{.5, .5}, []float64{1.5, 1.5}, []float64{5, 6, 55, 8, 9, 55, 55, 55, 55}},
		{[]float64{0, nan}, []float64{1, nan}, []float64{55, 55, 55, 55, 55, 55, 55, 55, 55}},
	} {
		for _, d := range []onnx.DType{onnx.Uint8, onnx.Int32, onnx.Int64, onnx.Float16, onnx.Float32, onnx.Float64} {
			x := must.Get(onnx.Zeros(d, 3, 3))(t)
			castEach(x, func(i int) float64 { return float64(i + 1) })
			n := &onnx.Node{Op: "Resize", Attrs: []onnx.Attr{onnx.FloatAttr("extrapolation_value", 55.5),
				onnx.StrAttr("coordinate_transformation_mode", "tf_crop_and_resize")}}
			got := evaluated(t, 1, n, nil, x, onnx.Vector(append(c.from, c.to...)...), nil, onnx.Vector[int64](3, 3))
			for i, want := range c.want {
				if want == 55 && (d == onnx.Float16 || d == onnx.Float32 || d == onnx.Float64) {
					want = 55.5
				}
				if got.At(i) != want {
					t.Errorf("%v of %v to %v: element %d is %v, want %v", d, c.from, c.to, i, got.At(i), want)
				}
			}
		}
	}
}

// TestResizeWithinMemory: positions, their weights and the tensors between two axes are memory of
// the run, which a file may make far larger than its input and output.
func TestResizeWithinMemory(t *testing.T) {
	const n = 1 << 10
	for name, c := range map[string]struct {
		x     *onnx.Tensor
		sizes []int64
		attrs []onnx.Attr
	}{
		"an axis that grows before one that shrinks": {onnx.ZerosF32(1, n), []int64{n, 1}, nil},
		"bytes of one axis":                          {must.Get(onnx.Zeros(onnx.Uint8, 1))(t), []int64{n * n}, nil},
		"positions of many": {onnx.ZerosF32(n*n/8, 1), []int64{1, 1}, []onnx.Attr{onnx.StrAttr("mode", "cubic"),
			onnx.IntAttr("antialias", 1)}},
	} {
		node := &onnx.Node{Op: "Resize", Inputs: []string{"x", "", "", "sizes"}, Outputs: []string{"y"}, Attrs: c.attrs}
		s := &Spec{Node: node, Opset: 19, In: []onnx.DType{c.x.DType, 0, 0, onnx.Int64}, Const: make([]*onnx.Tensor, 4)}
		k := must.Get(Prepare(s))(t)
		for _, most := range []int64{4 * n * n, 32 * n * n} {
			call := NewCall(&Env{Pool: &Pool{Most: most}, Threads: 1}, 4, 1)
			call.In[0], call.In[3], call.Want[0] = c.x, onnx.Vector(c.sizes...), true
			err := call.Do(k)
			if small := most < 8*n*n; small == (err == nil) ||
				small && !strings.Contains(err.Error(), "take more than") {
				t.Errorf("%s, in %d bytes: %v", name, most, err)
			}
		}
	}
}
