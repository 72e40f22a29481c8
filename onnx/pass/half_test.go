package pass

import (
	"fmt"
	"math"
	"slices"
	"testing"

	"fmp/onnx"
	"fmp/onnx/build"
	"fmp/onnx/check"
	"fmp/onnx/internal/modeltest"
	"fmp/onnx/must"
	"fmp/onnx/serde"
	"fmp/onnx/shape"
)

func TestToFloat32(t *testing.T) {
	b := build.New("half")
	x := b.Input("x", onnx.Float16, "n", 2)
	w := b.Param("w", &onnx.Tensor{DType: onnx.Float16, Shape: []int{2}, Data: []uint16{0x3c00, 0xc000}})
	c := b.Op("Constant", nil,
		onnx.TensorAttr("value",
			&onnx.Tensor{DType: onnx.Float16, Shape: []int{}, Data: []uint16{0x3800}}))
	b.Output("y", b.Cast(b.Cast(b.Mul(b.Add(x, w), c), onnx.Float32), onnx.Float16))
	m := must.Get(b.Model())(t)
	before := must.Get(serde.Marshal(m))(t)
	c32 := onnx.Clone(m)
	must.Do(t, ToFloat32(c32))
	if after, _ := serde.Marshal(m); string(after) != string(before) {
		t.Error("the model that was cloned has changed")
	}
	types := must.Get(shape.Types(c32))(t)
	for name, v := range types {
		if v.DType != onnx.Float32 {
			t.Errorf("%q is %v", name, v)
		}
	}
	if got := c32.Graph.Initializers["w"].F32(); len(got) != 2 || got[0] != 1 || got[1] != -2 {
		t.Errorf("w is %v", got)
	}
	must.Do(t, check.Model(c32))
	c32.Graph.Values = nil
	must.Do(t, ToFloat32(c32))
	if c32.Graph.Values != nil {
		t.Error("a model without half precision has changed")
	}
}

func TestStoreHalf(t *testing.T) {
	b := build.New("linear")
	x := b.Input("x", onnx.Float32, "batch", 3)
	w := onnx.NewTensor([]float32{1, 0.1, -3, 1e-3, 65504, 7}, 3, 2)
	huge := onnx.NewTensor([]float32{1e6, 1, 1, 1, 1, 1}, 6)
	small := onnx.NewTensor([]float32{0.1, 0.2}, 2)
	h := b.Add(b.MatMul(x, b.Param("w", w.Clone())), b.Param("small", small.Clone()))
	b.Output("y", h)
	b.Output("z", b.Relu(b.Param("huge", huge.Clone())))
	m := must.Get(b.Model())(t)
	nodes := len(m.Graph.Nodes)
	if n, beyond := StoreHalf(m, 6); n != 1 || beyond != 1 {
		t.Fatalf("%d tensors stored in half precision, %d beyond it; want w alone: one is too small, one too "+
			"large to hold", n, beyond)
	}
	must.Do(t, check.Model(m))
	must.Do(t, shape.Infer(m))
	data := must.Get(serde.Marshal(m))(t)
	back := must.Get(serde.Unmarshal(data))(t)
	RestoreHalf(back)
	if len(back.Graph.Nodes) != nodes || len(m.Graph.Nodes) != nodes+1 {
		t.Errorf("%d nodes, %d with weights in half precision, %d after restoring", nodes,
			len(m.Graph.Nodes), len(back.Graph.Nodes))
	}
	got := back.Graph.Initializers["w"]
	if got == nil || got.DType != onnx.Float32 || !slices.Equal(got.Shape, w.Shape) {
		t.Fatalf("w is %v", got)
	}
	for i, v := range w.F32() {
		if e := math.Abs(float64(got.F32()[i]-v)) / math.Abs(float64(v)); e > 1.0/2048 {
			t.Errorf("element %d is %v; was %v", i, got.F32()[i], v)
		}
	}
	if !slices.Equal(back.Graph.Initializers["huge"].F32(), huge.F32()) ||
		!slices.Equal(back.Graph.Initializers["small"].F32(), small.F32()) {
		t.Error("tensors that were not to be stored in half precision changed")
	}
	if n, _ := StoreHalf(back, 6); n != 1 {
		t.Errorf("stored again: %d tensors", n)
	}
}

// Weights whose bits would be lost stay, and so do those whose new name another value has. Rows of
// small values beside large ones keep their tensor in float32, unless they are as few as the filters
// that training switches off.
func TestStoreHalfRefuses(t *testing.T) {
	rows := func(faint int) []float32 {
		return append(slices.Repeat([]float32{1e-8}, 64*faint), slices.Repeat([]float32{1.1}, 64*(64-faint))...)
	}
	for _, c := range []struct {
		name           string
		weight         []float32
		value          string // of the product
		stored, beyond int
	}{
		{"some small values", []float32{1, 1e-6, 0, -.5}, "h", 1, 0},
		{"a row of small values", []float32{1, -.5, 1e-8, 2e-8}, "h", 0, 1},
		{"a row of zeros", []float32{1, -.5, 0, 0}, "h", 1, 0},
		{"zeros", []float32{0, 0, 0, 0}, "h", 1, 0},
		{"small values", []float32{1e-6, -3e-6, 2e-6, 7e-6}, "h", 0, 1},
		{"values that would be zeros", []float32{1e-9, -3e-9, 2e-9, 7e-9}, "h", 0, 1},
		{"values beyond", []float32{1e6, 1, 1, 1}, "h", 0, 1},
		{"a name that is taken", []float32{1, 2, 3, 4}, "w/half", 0, 0},
		{"no faint row", rows(0), "h", 1, 0},
		{"a faint row of 64", rows(1), "h", 1, 0},
		{"four faint rows of 64", rows(4), "h", 1, 0},
		{"five faint rows of 64", rows(5), "h", 0, 1},
		{"half of the rows faint", rows(32), "h", 0, 1},
	} {
		side := int(math.Sqrt(float64(len(c.weight))))
		values := fmt.Sprintf(":float32[n,%d]", side)
		w := onnx.NewTensor(c.weight, side, side)
		nodes := []*onnx.Node{modeltest.Node("MatMul", "x w", c.value), modeltest.Node("Relu", c.value, "y")}
		stated := modeltest.Node("Constant", "", "w", onnx.TensorAttr("value", w))
		for _, m := range []*onnx.Model{
			onnx.NewModel(modeltest.Graph("x"+values, "y"+values, map[string]*onnx.Tensor{"w": w}, nodes...)),
			onnx.NewModel(modeltest.Graph("x"+values, "y"+values, nil, append([]*onnx.Node{stated}, nodes...)...)),
		} {
			before := len(m.Graph.Nodes) - len(nodes)
			if stored, beyond := StoreHalf(m, 1); stored != c.stored || beyond != c.beyond {
				t.Errorf("%s: %d stored and %d beyond, want %d and %d", c.name, stored, beyond, c.stored, c.beyond)
			}
			must.Do(t, check.Model(m))
			if RestoreHalf(m); len(m.Graph.Nodes) != len(nodes)+before*(1-c.stored) {
				t.Errorf("%s: %d nodes are left", c.name, len(m.Graph.Nodes))
			}
		}
	}
}

// TestToFloat32Optional: an input that may be left out is widened with the value in its place.
func TestToFloat32Optional(t *testing.T) {
	for _, d := range []onnx.DType{onnx.Float16, onnx.BFloat16} {
		b := build.New("half")
		b.Output("y", b.Add(b.Input("x", d, 2), b.Input("w", d, 2)))
		m := must.Get(b.Model())(t)
		m.Graph.Inputs = m.Graph.Inputs[:1]
		m.Graph.AddOptional("w", &onnx.Tensor{DType: d, Shape: []int{2}, Data: []uint16{0x3c00, 0xc000}})
		must.Do(t, check.Model(m))
		must.Do(t, ToFloat32(m))
		if w := m.Graph.Optional[0]; w.DType != onnx.Float32 {
			t.Errorf("%v: the optional input is %v", d, w)
		}
		must.Do(t, check.Model(m))
	}
}
