package ort

import (
	"maps"
	"sync"

	"fmp/onnx"
	"fmp/onnx/op"
	"fmp/onnx/pass"
	"fmp/onnx/shape"
)

// guard restates computations on which the runtime ends the process, in all graphs of a model. The
// least int32 or int64 is not divided by -1, which the processor refuses. Diagonals of Trilu stay
// near the matrix. Col2Im reads no columns that its image does not have. A division whose element
// type is not known, as of a value that an If within an If gives, stays.
type guard struct {
	opsets map[string]int64
	taken  map[string]bool
	// inferred are the types of the outermost graph's values
	inferred func() map[string]onnx.ValueInfo
}

// guarded returns the graph of a model, restated so that no integers end the process. m is not
// changed; nodes that stay as they are are shared with it. The types of all values are inferred
// where a division needs them alone.
func guarded(m *onnx.Model) *onnx.Graph {
	taken := map[string]bool{}
	m.Graph.AddNames(taken)
	return guard{opsets: m.Opsets, taken: taken,
		inferred: sync.OnceValue(func() map[string]onnx.ValueInfo {
			types, _ := shape.Types(m) // of a model in error, the runtime says so
			return types
		})}.graph(m.Graph, nil, nil)
}

// farthest is beyond every diagonal of a matrix.
const farthest = 1 << 30

// graph returns g with its nodes restated; types and constants are those of the values around it.
func (w guard) graph(g *onnx.Graph, types map[string]onnx.DType,
	constants map[string]*onnx.Tensor) *onnx.Graph {
	own, fixed := map[string]onnx.DType{}, map[string]*onnx.Tensor{}
	maps.Copy(own, types)
	maps.Copy(fixed, constants)
	types, constants = own, fixed
	for _, vs := range [][]onnx.ValueInfo{g.Values, g.Outputs, g.Inputs} {
		for _, v := range vs {
			if v.DType != onnx.Undefined {
				types[v.Name] = v.DType
			}
		}
	}
	for name, t := range g.Initializers {
		types[name], constants[name] = t.DType, t
	}
	c := *g
	c.Nodes = nil
	for _, n := range g.Nodes {
		if t, _ := n.Attr("value"); n.Op == "Constant" && t.Tensor != nil && len(n.Outputs) == 1 {
			types[n.Outputs[0]], constants[n.Outputs[0]] = t.Tensor.DType, t.Tensor
		} else if s := op.Find(n, w.opsets); s != nil {
			in := make([]onnx.DType, len(n.Inputs))
			for i, name := range n.Inputs {
				in[i] = types[name]
			}
			out, _ := s.Bind(in, len(n.Outputs)) // of a node in error, the runtime says so
			for i, d := range out {
				// The file's own statement of a type goes first.
				if _, known := types[n.Outputs[i]]; !known && d != onnx.Undefined {
					types[n.Outputs[i]] = d
				}
			}
		}
		if len(n.Subgraphs()) > 0 {
			n = onnx.CloneNode(n)
			for i := range n.Attrs {
				a := &n.Attrs[i]
				if a.Graph != nil {
					a.Graph = w.graph(a.Graph, types, constants)
				}
				for k, s := range a.Graphs {
					a.Graphs[k] = w.graph(s, types, constants)
				}
			}
		}
		c.Nodes = append(c.Nodes, w.node(n, types, constants)...)
	}
	return &c
}

// node restates one node, which it does not change.
func (w guard) node(n *onnx.Node, types map[string]onnx.DType,
	constants map[string]*onnx.Tensor) []*onnx.Node {
	var nodes []*onnx.Node
	emit := func(op, out string, in ...string) string {
		nodes = append(nodes, &onnx.Node{Name: out, Op: op, Inputs: in, Outputs: []string{out}})
		return out
	}
	name := func(base string) string { return pass.Unique(w.taken, base) }
	constant := func(t *onnx.Tensor) string {
		out := emit("Constant", name("number"))
		nodes[len(nodes)-1].Attrs = []onnx.Attr{onnx.TensorAttr("value", t)}
		return out
	}
	number := func(d onnx.DType, v int64) string {
		if d == onnx.Int32 {
			return constant(onnx.Scalar(int32(v)))
		}
		return constant(onnx.Scalar(v))
	}
	by, d := n.Input(1), types[n.Input(1)]
	if d == onnx.Undefined && (n.Op == "Div" || n.Op == "Mod") {
		d = w.inferred()[by].DType
	}
	switch {
	case n.Op == "Col2Im" && n.Domain == "" && len(n.Inputs) == 3:
		do := func(op string, in ...string) string { return emit(op, name("columns"), in...) }
		to, block := columns(n, do, func(v ...int64) string { return constant(onnx.Vector(v...)) })
		n = onnx.CloneNode(n)
		n.Inputs[0], n.Inputs[2] = do("Reshape", n.Inputs[0], to), block
		nodes[len(nodes)-1].Attrs = []onnx.Attr{onnx.IntAttr("allowzero", 1)}
	case n.Op == "Trilu" && by != "":
		n = onnx.CloneNode(n)
		n.Inputs[1] = emit("Clip", name("diagonal"), by, number(onnx.Int64, -farthest),
			number(onnx.Int64, farthest))
	case n.Domain == "" && (n.Op == "Div" || n.Op == "Mod") &&
		(d == onnx.Int32 || d == onnx.Int64) && len(n.Outputs) == 1 && mayNegate(constants[by]):
		// x / y = (x / (y + 2t)) (1 - 2t) where t is 1 for y = -1, else 0; the remainder by 1 is
		// that by -1.
		out := n.Outputs[0]
		n = onnx.CloneNode(n)
		one := emit("Cast", name("negates"), emit("Equal", name("negates"), by, number(d, -1)))
		nodes[len(nodes)-1].Attrs = []onnx.Attr{onnx.IntAttr("to", int(d))}
		twice := emit("Add", name("twice"), one, one)
		n.Inputs[1] = emit("Add", name("divisor"), by, twice)
		if n.Op == "Div" {
			n.Outputs[0] = name("quotient")
			sign := emit("Sub", name("sign"), number(d, 1), twice)
			nodes = append(nodes, n)
			emit("Mul", out, n.Outputs[0], sign)
			return nodes
		}
	}
	return append(nodes, n)
}

// columns returns the shape of a Col2Im's input with as many columns as its window has positions,
// to which no other can be reshaped, and its block with sides of at least 1:
//
//	prod_i floor((image_i + pads_i + pads_{i+d} - dilation_i (block_i - 1) - 1) / stride_i + 1)
//
// and 0 where a side of the image or of the block is below 1. No side counts more than farthest.
func columns(n *onnx.Node, do func(op string, in ...string) string,
	ints func(...int64) string) (to, block string) {
	list := func(attr string, otherwise int64) []int64 {
		if a, _ := n.Attr(attr); len(a.Ints) > 0 {
			return a.Ints
		}
		return []int64{otherwise}
	}
	pads := list("pads", 0)
	both := make([]int64, (len(pads)+1)/2)
	for i := range both {
		both[i] = pads[i] + pads[len(pads)-len(both)+i]
	}
	stride, image := ints(list("strides", 1)...), do("Min", n.Inputs[1], ints(farthest))
	// of as many sides as the image
	block = do("Max", n.Inputs[2], do("Min", image, ints(1)), ints(1))
	extent := do("Mul", do("Sub", do("Min", block, ints(farthest)), ints(1)),
		ints(list("dilations", 1)...))
	room := do("Sub", do("Add", do("Add", image, ints(both...)), do("Sub", stride, ints(1))),
		extent)
	there := do("Max", do("Min", image, n.Inputs[2], ints(1)), ints(0))
	count := do("Mul", do("Div", do("Max", room, ints(0)), stride), there)
	return do("ScatterElements", do("Shape", n.Inputs[0]), ints(2), do("ReduceProd", count)), block
}

// mayNegate reports whether a divisor, nil where it is not a constant, may hold -1. A tensor in
// another file is not read for it.
func mayNegate(t *onnx.Tensor) bool {
	if t == nil || t.External != nil {
		return true
	}
	for i := range t.Len() {
		if t.At(i) == -1 {
			return true
		}
	}
	return false
}
