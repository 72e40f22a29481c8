package main

import (
	"fmt"
	"slices"

	"fmp/onnx"
	"fmp/onnx/op"
	"fmp/onnx/pass"
)

// trainable makes every weight an initializer of the graph, in float32: also those of half
// precision, and those that nodes, functions and graphs within nodes state. m is changed, also
// where an error is returned. The order matters: half precision is undone first, so that weights of
// functions are float32 when they are inlined.
func trainable(m *onnx.Model) error {
	pass.RestoreHalf(m)
	if err := pass.ToFloat32(m); err != nil {
		return err
	}
	if err := pass.Inline(m); err != nil {
		return err
	}
	taken := map[string]bool{}
	m.Graph.AddNames(taken)
	s := &scope{g: m.Graph, values: map[string]origin{}, weights: map[place]bool{}}
	s.walk()
	hoist(m.Graph, m.Graph, taken, s.weights)
	return nil
}

// retyped says which inputs and outputs of a model are of another type than those of the model that
// it was made from: programs that feed it must be told. Values that either model lacks are passed
// over.
func retyped(was, is *onnx.Graph) (said []string) {
	for _, c := range []struct {
		of      string
		was, is []onnx.ValueInfo
	}{{"input", was.Inputs, is.Inputs}, {"output", was.Outputs, is.Outputs}} {
		for _, v := range c.was {
			at := slices.IndexFunc(c.is, func(o onnx.ValueInfo) bool { return o.Name == v.Name })
			if at >= 0 && c.is[at].DType != v.DType {
				said = append(said, fmt.Sprintf("%s %q is of %v, and was of %v", c.of, v.Name,
					c.is[at].DType, v.DType))
			}
		}
	}
	return said
}

// hoist moves the float32 initializers of a graph within another, and of those within it, outward,
// and those constants that are weights. A branch's output keeps its name. taken are the names in
// use anywhere in the model, which a weight that moves avoids. A single number is no weight: it is
// a constant of the arithmetic. from and to are the same graph at the outermost call. The walk has
// marked in weights which constants are read as weights.
func hoist(from, to *onnx.Graph, taken map[string]bool, weights map[place]bool) {
	names := map[string]string{}
	var outputs []*onnx.Node
	move := func(name string, t *onnx.Tensor, constant bool) bool {
		_, output := from.Output(name)
		if t == nil || t.DType != onnx.Float32 || t.Len() < 2 || output && from == to ||
			(constant || output) && !weights[place{from, name}] {
			return false
		}
		moved := name
		// pass.Unique keeps the new name apart from every other name of the model.
		if from != to {
			moved = pass.Unique(taken, name)
			if output {
				// The branch must still give a value of its own, which Identity makes of the outer
				// one.
				outputs = append(outputs, &onnx.Node{Name: moved, Op: "Identity",
					Inputs: []string{moved}, Outputs: []string{name}})
			} else {
				names[name] = moved
			}
		}
		to.Initializers[moved] = t
		return true
	}
	from.Nodes = slices.DeleteFunc(from.Nodes, func(n *onnx.Node) bool {
		for _, b := range n.Subgraphs() {
			hoist(b, to, taken, weights)
		}
		return n.Op == "Constant" && n.Domain == "" && move(n.Outputs[0], op.Constant(n), true)
	})
	if from == to {
		return
	}
	for _, name := range from.InitializerNames() {
		if move(name, from.Initializers[name], false) {
			delete(from.Initializers, name)
		}
	}
	// These nodes read outer values only, and so come first in the order.
	from.Nodes = append(outputs, from.Nodes...)
	pass.Rename(from, names)
}

// place is a value of a graph. It is a key of maps: two graphs may have values of one name.
type place struct {
	g    *onnx.Graph
	name string
}

// constant is a number that a graph states.
type constant struct {
	place
	t *onnx.Tensor
}

// origin says where a value comes from. The zero origin is of a value that nothing is known of,
// such as an input.
type origin struct {
	constants []constant // that it is, or is chosen from
	op        string     // of the node that gives it
	behind    bool       // it is of an operator with weights, so that a vector on it is a weight
}

// maxChosen bounds the constants that branches choose a value from. Branches within branches would
// double them at each depth.
const maxChosen = 64

// scope finds the constants that are read as weights are. Exporters write weights, bounds, masks
// and tables alike as Constant nodes, so that only their readers tell them apart. The cost is
// linear in nodes and inputs, times maxChosen for values that branches choose. A scope lives for
// one walk, and its weights map is shared with those within.
type scope struct {
	outer   *scope
	g       *onnx.Graph
	values  map[string]origin
	weights map[place]bool // of all graphs
}

// value returns the origin of a value by the innermost graph that has it, as ONNX scopes names.
// Names of an inner graph hide those of outer ones.
func (s *scope) value(name string) origin {
	for ; s != nil; s = s.outer {
		if v, ok := s.values[name]; ok {
			return v
		}
	}
	return origin{}
}

// walk visits the nodes in their order, those of graphs within a node before it, and notes which
// constants are read as weights. Nodes are in topological order, as ONNX asks for, so that inputs
// are known when they are read.
func (s *scope) walk() {
	state := func(name string, t *onnx.Tensor) {
		s.values[name] = origin{constants: []constant{{place{s.g, name}, t}}}
	}
	for name, t := range s.g.Initializers {
		state(name, t)
	}
	for _, n := range s.g.Nodes {
		if t := op.Constant(n); n.Op == "Constant" && t != nil {
			state(n.Outputs[0], t)
			continue
		}
		var within []*scope
		for _, b := range n.Subgraphs() {
			w := &scope{outer: s, g: b, values: map[string]origin{}, weights: s.weights}
			w.walk()
			within = append(within, w)
		}
		reads := false
		for i, in := range n.Inputs {
			for _, c := range s.value(in).constants {
				if s.reads(n, i, c.t) {
					s.weights[c.place], reads = true, true
				}
			}
		}
		for i, out := range n.Outputs {
			s.values[out] = s.gives(n, i, reads, within)
		}
	}
}

// reads reports whether input i of a node is a weight where it is the constant t. Kernels,
// matrices, tables, scales and biases are read at fixed places of their operators. A sum or product
// with a vector is one behind such an operator alone. Biases of Conv and Gemm are input 2, and
// kernels input 1 (ONNX operators). A Gather's table is input 0, and a vector there is a lookup of
// numbers.
func (s *scope) reads(n *onnx.Node, i int, t *onnx.Tensor) bool {
	switch n.Op {
	case "Conv", "ConvTranspose", "Gemm":
		return i == 1 || i == 2
	case "MatMul":
		return i == 1 && len(t.Shape) > 1
	case "BatchNormalization", "InstanceNormalization", "LayerNormalization", "GroupNormalization",
		"RMSNormalization":
		return i > 0
	case "PRelu":
		return i == 1
	case "Gather":
		return i == 0 && len(t.Shape) > 1
	case "Add", "Mul":
		return s.value(n.Input(1-i)).behind && perChannel(t)
	}
	return false
}

// gives returns the origin of output i of a node, which reads weights or not. Operators that move
// numbers alone pass the origin of their input on. (x - mean) / sqrt(variance + epsilon) in single
// nodes counts as an operator with weights, whose scale and bias follow. Output i of an If is
// output i of one of its branches. A Cast to another type ends the trail.
func (s *scope) gives(n *onnx.Node, i int, weighted bool, within []*scope) origin {
	switch n.Op {
	case "Identity", "Transpose", "Reshape", "Squeeze", "Unsqueeze", "Flatten":
		return s.value(n.Input(0))
	case "Cast": // weights that were stored in half precision
		if to, _ := n.Attr("to"); onnx.DTypeOf(to.Int) == onnx.Float32 {
			return s.value(n.Input(0))
		}
		return origin{op: n.Op, behind: weighted}
	case "If":
		var out origin
		for _, b := range within {
			if i >= len(b.g.Outputs) {
				continue
			}
			v := b.value(b.g.Outputs[i].Name)
			out.behind = out.behind || v.behind
			for _, c := range v.constants {
				if len(out.constants) < maxChosen && !slices.Contains(out.constants, c) {
					out.constants = append(out.constants, c)
				}
			}
		}
		return out
	case "Gather": // rows of a table, to which no bias belongs
		return origin{op: n.Op}
	case "Div": // a normalisation in single steps, whose scale and bias follow
		return origin{op: n.Op, behind: s.value(n.Input(0)).op == "Sub" &&
			s.value(n.Input(1)).op == "Sqrt"}
	}
	return origin{op: n.Op, behind: weighted}
}

// perChannel reports whether a constant is a vector, along whichever axis. Shapes such as [C], [1,
// C, 1, 1] and [C, 1] are vectors.
func perChannel(t *onnx.Tensor) bool {
	long := 0
	for _, size := range t.Shape {
		if size > 1 {
			long++
		}
	}
	return long == 1
}
