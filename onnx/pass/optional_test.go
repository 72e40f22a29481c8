package pass_test

import (
	"testing"

	"fmp/onnx"
	"fmp/onnx/build"
	"fmp/onnx/engine"
	"fmp/onnx/engine/pure"
	"fmp/onnx/internal/modeltest"
	"fmp/onnx/must"
	"fmp/onnx/pass"
	"fmp/onnx/serde"
)

// TestOptionalInputs: an optional input keeps its name through composition and the file, half
// precision leaves it as it is, its default is what a model computes with, and another value may be
// set.
func TestOptionalInputs(t *testing.T) {
	part := func(name, in, out, optional string) *onnx.Model {
		b := build.New(name)
		x := b.Input(in, onnx.Float32, "n")
		b.Output(out, b.Add(b.Mul(x, b.F32(2)), b.Optional(optional, onnx.Vector[float32](3))))
		return must.Get(b.Model())(t)
	}
	m := must.Get(pass.Compose(part("a", "x", "y", "first"), part("b", "y", "z", "second"), nil))(t)
	pass.StoreHalf(m, 1)
	data := must.Get(serde.Marshal(m))(t)
	m = must.Get(serde.Unmarshal(data))(t)
	if o := m.Graph.Optional; len(m.Graph.Inputs) != 1 || len(o) != 2 || o[0].Name != "first" ||
		o[1].Name != "second" ||
		o[1].Type() != "float32[1]" {
		t.Fatalf("inputs %v, optional %v", m.Graph.Inputs, m.Graph.Optional)
	}
	eng := must.Get(pure.New(engine.Options{Threads: 1}))(t)
	value := func(m *onnx.Model) float32 {
		out := modeltest.Eval(t, eng, m, map[string]*onnx.Tensor{"x": onnx.Vector[float32](1)})
		return out["z"].F32()[0]
	}
	if got := value(m); got != 13 { // 2 (2 x + 3) + 3
		t.Errorf("with the defaults: %v", got)
	}
	set := onnx.Clone(m)
	must.Do(t, set.Graph.SetDefault("second", onnx.Vector[float32](5)))
	if got, before := value(set), value(m); got != 15 || before != 13 {
		t.Errorf("with a value set: %v, and %v before", got, before)
	}
	for name, v := range map[string]*onnx.Tensor{"third": onnx.Vector[float32](1),
		"first":  onnx.Vector[float32](1, 2),
		"second": onnx.Vector[int64](1)} {
		must.Fail(set.Graph.SetDefault(name, v))(t, "", name, v)
	}
	must.Fail(pass.Compose(part("a", "x", "y", "same"), part("b", "y", "z", "same"), nil))(t, "",
		"two optional inputs of one name are composed")
	if err := pass.Simplify(set); err != nil || len(set.Graph.Optional) != 0 || value(set) != 15 {
		t.Errorf("simplified: %v, optional %v", err, set.Graph.Optional)
	}
	m.Graph.Outputs[0].Name = m.Graph.Nodes[0].Outputs[0]
	if pass.RemoveUnused(m.Graph); len(m.Graph.Optional) > 1 {
		t.Errorf("optional inputs that nothing reads stay: %v", m.Graph.Optional)
	}
}
