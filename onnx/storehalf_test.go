package onnx

import (
	"math"
	"slices"
	"testing"
)

func TestStoreHalf(t *testing.T) {
	b := NewBuilder("linear")
	x := b.Input("x", Float32, "batch", 3)
	w := NewTensor([]float32{1, 0.1, -3, 1e-3, 65504, 7}, 3, 2)
	huge := NewTensor([]float32{1e6, 1, 1, 1, 1, 1}, 6)
	small := NewTensor([]float32{0.1, 0.2}, 2)
	h := b.Add(b.MatMul(x, b.Param("w", w.Clone())), b.Param("small", small.Clone()))
	b.Output("y", h)
	b.Output("z", b.Relu(b.Param("huge", huge.Clone())))
	m, err := b.Model()
	if err != nil {
		t.Fatal(err)
	}
	nodes := len(m.Graph.Nodes)
	if n := StoreHalf(m, 6); n != 1 {
		t.Fatalf("%d tensors stored in half precision; want w alone: one is too small, one too large to hold", n)
	}
	if err := Check(m); err != nil {
		t.Fatal(err)
	}
	if err := Infer(m); err != nil {
		t.Fatal(err)
	}
	data, err := Marshal(m)
	if err != nil {
		t.Fatal(err)
	}
	back, err := Unmarshal(data)
	if err != nil {
		t.Fatal(err)
	}
	RestoreHalf(back)
	if len(back.Graph.Nodes) != nodes || len(m.Graph.Nodes) != nodes+1 {
		t.Errorf("%d nodes, %d with weights in half precision, %d after restoring", nodes, len(m.Graph.Nodes), len(back.Graph.Nodes))
	}
	got := back.Graph.Initializers["w"]
	if got == nil || got.DType != Float32 || !slices.Equal(got.Shape, w.Shape) {
		t.Fatalf("w is %v", got)
	}
	for i, v := range w.F32() {
		if e := math.Abs(float64(got.F32()[i]-v)) / math.Abs(float64(v)); e > 1.0/2048 {
			t.Errorf("element %d is %v; was %v", i, got.F32()[i], v)
		}
	}
	if !slices.Equal(back.Graph.Initializers["huge"].F32(), huge.F32()) || !slices.Equal(back.Graph.Initializers["small"].F32(), small.F32()) {
		t.Error("tensors that were not to be stored in half precision changed")
	}
	if n := StoreHalf(back, 6); n != 1 {
		t.Errorf("stored again: %d tensors", n)
	}
}
