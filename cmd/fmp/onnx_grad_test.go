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
	for _, c := range []struct {
		args []string
		code int
		want string
	}{
		{[]string{in, "--wrt", "x"}, exitUsage, "-o"},
		{[]string{in, "--wrt", "nope", "-o", out}, exitUsage, `"nope"`},
		{[]string{filepath.Join(dir, "none.onnx"), "--wrt", "x", "-o", out}, exitMissing, "none.onnx"},
	} {
		refused(t, c.code, c.want, append([]string{"onnx", "grad"}, c.args...)...)
	}
}
