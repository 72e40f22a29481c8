// Package modeltest holds small models that the tests of several packages use.
package modeltest

import (
	"math/rand/v2"
	"testing"

	"fmp/onnx"
	"fmp/onnx/build"
	"fmp/onnx/engine"
	"fmp/onnx/must"
)

// Doubler returns a model whose one node calls scale(x) = x * factor + x through a second function.
func Doubler(t *testing.T) *onnx.Model {
	t.Helper()
	factor := onnx.Attr{Name: "value_float", Kind: onnx.AttrFloat, Ref: "factor"}
	times := &onnx.Function{Domain: "own", Name: "times", Inputs: []string{"x"},
		Outputs:  []string{"y"},
		Defaults: []onnx.Attr{onnx.FloatAttr("factor", 2)},
		Opsets:   map[string]int64{"": onnx.DefaultOpset}, Nodes: []*onnx.Node{
			{Op: "Constant", Outputs: []string{"c"}, Attrs: []onnx.Attr{factor}},
			{Op: "Mul", Inputs: []string{"x", "c"}, Outputs: []string{"y"}},
		}}
	scale := &onnx.Function{Domain: "own", Name: "scale", Inputs: []string{"x"},
		Outputs: []string{"y", "x"}, Attributes: []string{"factor"},
		Opsets: map[string]int64{"": onnx.DefaultOpset, "own": 1}, Nodes: []*onnx.Node{
			{Op: "times", Domain: "own", Inputs: []string{"x"}, Outputs: []string{"z"},
				Attrs: []onnx.Attr{{Name: "factor", Kind: onnx.AttrFloat, Ref: "factor"}}},
			{Op: "Add", Inputs: []string{"x", "z"}, Outputs: []string{"y"}},
		}}
	g := &onnx.Graph{Name: "doubler",
		Inputs:       []onnx.ValueInfo{{Name: "x", DType: onnx.Float32, Shape: onnx.Shape("n")}},
		Initializers: map[string]*onnx.Tensor{},
		Outputs: []onnx.ValueInfo{{Name: "out", DType: onnx.Float32},
			{Name: "same", DType: onnx.Float32}},
		Nodes: []*onnx.Node{
			{Name: "first", Op: "scale", Domain: "own", Inputs: []string{"x"}, Outputs: []string{"h"},
				Attrs: []onnx.Attr{onnx.FloatAttr("factor", 3)}},
			{Name: "second", Op: "scale", Domain: "own", Inputs: []string{"h"},
				Outputs: []string{"out", "same"}},
		}}
	m := onnx.NewModel(g)
	m.Opsets["own"] = 1
	m.Functions = []*onnx.Function{times, scale}
	return m
}

// Linear returns a model of y = x w over "batch" rows.
func Linear(t testing.TB, name, in, out string, from, to int) *onnx.Model {
	t.Helper()
	b := build.New(name)
	x := b.Input(in, onnx.Float32, "batch", from)
	b.Output(out, b.Relu(b.MatMul(x, b.Param("w", onnx.ZerosF32(from, to)))))
	return must.Get(b.Model())(t)
}

// Normal returns numbers of a normal distribution of that deviation.
func Normal(r *rand.Rand, deviation float64, shape ...int) *onnx.Tensor {
	t := onnx.ZerosF32(shape...)
	for i := range t.F32() {
		t.F32()[i] = float32(deviation * r.NormFloat64())
	}
	return t
}

// Floats returns the names of a model's inputs of floating-point numbers.
func Floats(m *onnx.Model) (names []string) {
	for _, v := range m.Graph.Inputs {
		if v.DType.IsFloat() {
			names = append(names, v.Name)
		}
	}
	return names
}

// Eval returns the outputs of a model on an engine.
func Eval(t testing.TB, e engine.Engine, m *onnx.Model,
	feeds map[string]*onnx.Tensor) map[string]*onnx.Tensor {
	t.Helper()
	s := must.Get(e.Load(m))(t)
	defer s.Close()
	return must.Get(engine.Eval(s, feeds))(t)
}
