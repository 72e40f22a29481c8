package differential

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"

	"fmp/onnx"
	"fmp/onnx/grad"
	"fmp/onnx/internal/kernel"
	"fmp/onnx/op"
)

// generator draws one case.
type generator struct {
	*rand.Rand
	double bool // float64 alone, and operators with a gradient
	opset  int
	model  *onnx.Model
	feeds  map[string]*onnx.Tensor
	values []value // what nodes gave so far
	next   int
}

// value is a value of the graph with its content for these inputs.
type value struct {
	name   string
	tensor *onnx.Tensor
}

// recipe draws a node's inputs and attributes for a first input of element type d; outputs is the
// number of outputs, 0 for one, and -1 where it has none for the operator set.
type recipe func(g *generator, d onnx.DType) (in []*onnx.Tensor, attrs []onnx.Attr, outputs int)

// graph draws one to three nodes of a family. The first input of a node may be an output of one
// before; their values are known, since each node but the last is evaluated as it is drawn. A draw
// that gives no graph is thrown away, and the next one draws its operator set anew.
func (g *generator) graph(family string) (*onnx.Model, map[string]*onnx.Tensor) {
	if family == "control" {
		return g.control()
	}
	recipes := families[family]
	names := make([]string, 0, len(recipes))
	for name := range recipes {
		if !g.double || slices.Contains(grad.Operators(), name) || name == "LSTM" ||
			name == "GRU" || name == "RNN" {
			names = append(names, name)
		}
	}
	// The order of a Go map is random, and would draw another graph at each run.
	slices.Sort(names)
	for {
		g.opset = onnx.MinOpset + g.IntN(onnx.MaxOpset-onnx.MinOpset+1)
		if g.double {
			g.opset = max(g.opset, 13)
		}
		g.model = onnx.NewModel(&onnx.Graph{Name: family, Initializers: map[string]*onnx.Tensor{}})
		g.model.Opsets[""] = int64(g.opset)
		g.model.IR = 8
		if g.opset > 18 {
			g.model.IR = 10
		}
		g.feeds, g.values, g.next = map[string]*onnx.Tensor{}, nil, 0
		nodes := 1 + g.IntN(3)
		ok := true
		for i := 0; ok && i < nodes; i++ {
			name := names[g.IntN(len(names))]
			ok = g.node(name, recipes[name], i == nodes-1)
		}
		if ok {
			return g.model, g.feeds
		}
	}
}

// pick draws one of several.
func pick[T any](g *generator, of ...T) T { return of[g.IntN(len(of))] }

// node adds a node; false where the operator set has none such, or it cannot be evaluated and is
// not the last.
func (g *generator) node(name string, r recipe, last bool) bool {
	s := op.Lookup("", name, g.opset)
	if s == nil || s.Deprecated {
		return false
	}
	d, ok := g.elementType(s)
	if !ok {
		return false
	}
	in, attrs, outputs := r(g, d)
	if in == nil && attrs == nil && outputs < 0 {
		return false
	}
	// Recipes name attributes of all versions, and those that the operator set lacks are dropped.
	attrs = slices.DeleteFunc(attrs, func(a onnx.Attr) bool { return s.Attr(a.Name) == nil })
	for len(in) > 0 && in[len(in)-1] == nil { // one that is left out at the end need not be named
		in = in[:len(in)-1]
	}
	n := &onnx.Node{Name: fmt.Sprintf("n%d", len(g.model.Graph.Nodes)), Op: name, Attrs: attrs}
	tensors := g.operands(n, in)
	for range max(1, outputs) {
		n.Outputs = append(n.Outputs, fmt.Sprintf("v%d", g.next))
		g.next++
	}
	g.model.Graph.Nodes = append(g.model.Graph.Nodes, n)
	for _, o := range n.Outputs {
		g.model.Graph.Outputs = append(g.model.Graph.Outputs, onnx.ValueInfo{Name: o})
	}
	if last {
		return true
	}
	out, err := kernel.Evaluate(n, g.opset, tensors)
	if err != nil {
		return false
	}
	g.values = append(g.values, value{n.Outputs[0], out[0]})
	return true
}

// elementType draws the type of an operator's first input, mostly float32; false where gradients
// are wanted and it takes no float64. A third of draws takes any type of the schema but strings, as
// do those of a schema without float32.
func (g *generator) elementType(s *op.Schema) (onnx.DType, bool) {
	var types []onnx.DType
	if len(s.In) > 0 {
		for d := onnx.DType(1); d < 32; d++ {
			if s.In[0].Types.Has(d) && d != onnx.String {
				types = append(types, d)
			}
		}
	}
	d := onnx.Float32
	switch {
	case g.double:
		d = onnx.Float64
	case len(types) > 0 && (g.IntN(3) == 0 || !slices.Contains(types, onnx.Float32)):
		d = pick(g, types...)
	}
	return d, len(types) == 0 || slices.Contains(types, d)
}

// operands names a node's inputs and returns their tensors; an earlier value of the same type and
// shape does as the first as well. Only the node just before is looked at, which makes chains.
func (g *generator) operands(n *onnx.Node, in []*onnx.Tensor) []*onnx.Tensor {
	tensors := slices.Clone(in)
	for i, t := range in {
		if t == nil {
			n.Inputs = append(n.Inputs, "")
			continue
		}
		if i == 0 && len(g.values) > 0 {
			if v := g.values[len(g.values)-1]; v.tensor.DType == t.DType &&
				slices.Equal(v.tensor.Shape, t.Shape) {
				n.Inputs = append(n.Inputs, v.name)
				tensors[0] = v.tensor
				continue
			}
		}
		n.Inputs = append(n.Inputs, g.place(t, i))
	}
	return tensors
}

// place gives a tensor a name: as an input, with known or unknown sizes, or as an initializer.
// Sizes, axes and indices are constants more often than data. Integers of int64 behind the first
// input are constants half of the time, others a quarter.
func (g *generator) place(t *onnx.Tensor, i int) string {
	name := fmt.Sprintf("x%d", g.next)
	g.next++
	constants := 4
	if i > 0 && t.DType == onnx.Int64 {
		constants = 2
	}
	if g.IntN(constants) == 0 || i > 0 && t.DType == onnx.Int64 && g.double {
		g.model.Graph.Initializers[name] = t
		return name
	}
	g.feeds[name] = t
	v := onnx.ValueInfo{Name: name, DType: t.DType, Shape: []onnx.Dim{}}
	// Gradients are drawn with known sizes, which some rules need.
	symbolic := !g.double && g.IntN(2) == 0
	for k, d := range t.Shape {
		dim := onnx.Known(d)
		if symbolic && g.IntN(2) == 0 {
			dim = onnx.Symbolic(fmt.Sprintf("%s_%d", name, k))
		}
		v.Shape = append(v.Shape, dim)
	}
	g.model.Graph.Inputs = append(g.model.Graph.Inputs, v)
	return name
}

// tensor draws elements: floats about 0 with some whole numbers and zeros among them, small
// integers. Ties, zeros and whole numbers are where engines differ in rounding and in the sign of
// 0. For gradients floats are normal alone, as kinks at 0 have no slope.
func (g *generator) tensor(d onnx.DType, shape ...int) *onnx.Tensor {
	t, err := onnx.Zeros(d, shape...)
	if err != nil {
		panic(err) // the shapes drawn here are small
	}
	float := func() float64 {
		if g.double {
			return g.NormFloat64()
		}
		switch g.IntN(12) {
		case 0:
			return 0
		case 1:
			return float64(g.IntN(7) - 3)
		}
		return g.NormFloat64()
	}
	for i := range t.Len() {
		k := g.IntN(9) - 4
		switch v := t.Data.(type) {
		case []float32:
			v[i] = float32(float())
		case []float64:
			v[i] = float()
		case []int8:
			v[i] = int8(k)
		case []int16:
			v[i] = int16(k)
		case []int32:
			v[i] = int32(k)
		case []int64:
			v[i] = int64(k)
		case []uint8:
			v[i] = uint8(k + 4)
		case []uint16:
			if d == onnx.Uint16 {
				v[i] = uint16(k + 4)
			} else if d == onnx.Float16 {
				v[i] = onnx.Float32ToFloat16(float32(float()))
			} else {
				// As bfloat16 k / 2 is exact: it is the upper half of the float32.
				v[i] = uint16(math.Float32bits(float32(k)/2) >> 16)
			}
		case []uint32:
			v[i] = uint32(k + 4)
		case []uint64:
			v[i] = uint64(k + 4)
		case []bool:
			v[i] = k > 0
		}
	}
	if d.Bits() < 8 && d != onnx.String { // what the type can hold
		if err := onnx.UnpackData(t, onnx.PackedData(t)); err != nil {
			panic(err)
		}
	}
	return t
}

// index draws integers from lo to hi-1. With hi at lo or below all elements are lo.
func (g *generator) index(lo, hi int, shape ...int) *onnx.Tensor {
	t, err := onnx.Zeros(onnx.Int64, shape...)
	if err != nil {
		panic(err)
	}
	for i := range t.I64() {
		t.I64()[i] = int64(lo + g.IntN(max(1, hi-lo)))
	}
	return t
}

// vector is a vector of int64, the type of shapes and axes.
func vector(v []int) *onnx.Tensor {
	out := make([]int64, len(v))
	for i, x := range v {
		out[i] = int64(x)
	}
	return onnx.Vector(out...)
}

// shape draws sizes of a rank from lo to hi; one size in twenty is 0. For gradients none is 0, as
// nothing has no slope to measure.
func (g *generator) shape(lo, hi int) []int {
	s := make([]int, lo+g.IntN(hi-lo+1))
	for i := range s {
		s[i] = 1 + g.IntN(4)
		if g.IntN(20) == 0 && !g.double {
			s[i] = 0
		}
	}
	return s
}

// broadcastable draws a shape that can be broadcast to s. It drops leading axes and makes a third
// of the others 1, by the rules of numpy.
func (g *generator) broadcastable(s []int) []int {
	out := slices.Clone(s[g.IntN(len(s)+1):])
	for i := range out {
		if g.IntN(3) == 0 {
			out[i] = 1
		}
	}
	return out
}

// axis draws one of rank axes, counted from either end. Of a scalar it is 0.
func (g *generator) axis(rank int) int {
	if rank == 0 {
		return 0
	}
	return g.IntN(2*rank) - rank
}

// axes draws some of rank axes, each once. nil is drawn as well, which reductions take for all
// axes.
func (g *generator) axes(rank int) []int {
	var out []int
	for a := range rank {
		if g.IntN(2) == 0 {
			out = append(out, a-rank*g.IntN(2))
		}
	}
	return out
}

// some gives an attribute half of the time.
func (g *generator) some(attrs ...onnx.Attr) []onnx.Attr {
	return slices.DeleteFunc(attrs, func(onnx.Attr) bool { return g.IntN(2) == 0 })
}

// product is 1 of no sizes, as a scalar has one element.
func product(s []int) int {
	p := 1
	for _, d := range s {
		p *= d
	}
	return p
}
