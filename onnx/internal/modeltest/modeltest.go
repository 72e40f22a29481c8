// Package modeltest holds small models that the tests of several packages use.
package modeltest

import (
	"cmp"
	"fmt"
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
			{Name: "first", Op: "scale", Domain: "own", Inputs: []string{"x"},
				Outputs: []string{"h"}, Attrs: []onnx.Attr{onnx.FloatAttr("factor", 3)}},
			{Name: "second", Op: "scale", Domain: "own", Inputs: []string{"h"},
				Outputs: []string{"out", "same"}},
		}}
	m := onnx.NewModel(g)
	m.Opsets["own"] = 1
	m.Functions = []*onnx.Function{times, scale}
	return m
}

// Linear returns a model of y = max(0, x w) over "batch" rows. Its weights are zeros.
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

// OneNode returns a model of a node, of operator set opset, and tensors for its inputs x0, x1 and
// so on; nil ones are left out. The model has sizes of dim: [onnx.Known], or [Open] where a run
// tells them. Inputs that constant reports are initializers. Outputs are y0, y1 and so on where the
// node names none.
func OneNode(n *onnx.Node, opset int64, in []*onnx.Tensor, outputs int, dim func(int) onnx.Dim,
	constant func(i int) bool) (*onnx.Model, map[string]*onnx.Tensor) {
	m, feeds := onnx.NewModel(Graph("", "", nil, n)), map[string]*onnx.Tensor{}
	m.Opsets[""], n.Name = opset, "node"
	for i, t := range in {
		name := fmt.Sprintf("x%d", i)
		switch {
		case t == nil:
			name = ""
		case constant != nil && constant(i):
			m.Graph.Initializers[name] = t
		default:
			v := onnx.ValueInfo{Name: name, DType: t.DType, Shape: []onnx.Dim{}}
			for _, d := range t.Shape {
				v.Shape = append(v.Shape, dim(d))
			}
			m.Graph.Inputs, feeds[name] = append(m.Graph.Inputs, v), t
		}
		n.Inputs = append(n.Inputs, name)
	}
	for i := range outputs {
		n.Outputs = append(n.Outputs, fmt.Sprintf("y%d", i))
	}
	for _, o := range n.Outputs {
		if o != "" {
			m.Graph.Outputs = append(m.Graph.Outputs, onnx.ValueInfo{Name: o})
		}
	}
	return m, feeds
}

// Open is a size that is not known.
func Open(int) onnx.Dim { return onnx.Symbolic("") }

// Feeds draws values for a model's inputs: numbers of a normal distribution, bytes, truths, and
// whole numbers of 0 and 1. An open size is open, or where that is 0, the same from 2 to 5 wherever
// its symbol stands.
func Feeds(t testing.TB, m *onnx.Model, r *rand.Rand, open int) map[string]*onnx.Tensor {
	t.Helper()
	sizes, feeds := map[string]int{}, map[string]*onnx.Tensor{}
	for _, in := range m.Graph.Inputs {
		shape := make([]int, len(in.Shape))
		for i, d := range in.Shape {
			if shape[i] = d.Size; !d.IsKnown() {
				if sizes[d.Symbol] == 0 {
					sizes[d.Symbol] = cmp.Or(open, 2+r.IntN(4))
				}
				shape[i] = sizes[d.Symbol]
			}
		}
		x := must.Get(onnx.Zeros(in.DType, shape...))(t)
		for i := range x.Len() {
			switch d := x.Data.(type) {
			case []float32:
				d[i] = float32(r.NormFloat64())
			case []uint8:
				d[i] = uint8(r.IntN(256))
			case []int64:
				d[i] = r.Int64N(2)
			case []bool:
				d[i] = r.IntN(2) == 0
			default:
				t.Fatalf("input %q is of type %v", in.Name, in.DType)
			}
		}
		feeds[in.Name] = x
	}
	return feeds
}
