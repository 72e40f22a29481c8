package main

import (
	"path/filepath"
	"testing"

	"fmp/onnx"
	"fmp/onnx/build"
	"fmp/onnx/must"
	"fmp/onnx/serde"
)

func TestONNXGradCommand(t *testing.T) {
	dir := t.TempDir()
	b := build.New("square")
	x := b.Input("x", onnx.Float32, "n")
	b.Output("y", b.Mul(x, x))
	in, out := saved(t)(b.Model()), filepath.Join(dir, "g.onnx")
	ran(t, "onnx", "grad", in, "--output", "y", "--wrt", "x", "-o", out)
	g := must.Get(serde.Load(out))(t)
	if _, ok := g.Graph.Input("grad_y"); !ok {
		t.Error("the gradient model has no input grad_y")
	}
	if _, ok := g.Graph.Output("grad_x"); !ok {
		t.Error("the gradient model has no output grad_x")
	}
}
