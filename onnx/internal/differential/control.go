package differential

import (
	"fmt"

	"fmp/onnx"
)

// control draws an If, Loop or Scan over a vector, whose bodies are a few random nodes that read
// the values around them, and may hold an If of their own. All values of bodies but flags and turns
// are vectors of n elements, so that any node can read any.
func (g *generator) control() (*onnx.Model, map[string]*onnx.Tensor) {
	g.opset = 13 + g.IntN(onnx.MaxOpset-12)
	d := onnx.Float32
	if g.double {
		d = onnx.Float64
	}
	n := 1 + g.IntN(3)
	c := &bodies{generator: g, vector: onnx.ValueInfo{DType: d, Shape: onnx.Shape(n)}}
	c.graph = &onnx.Graph{Name: "control", Initializers: map[string]*onnx.Tensor{},
		Inputs: []onnx.ValueInfo{c.vec("a"), c.vec("b"), flag("on")}}
	g.feeds = map[string]*onnx.Tensor{"a": g.tensor(d, n), "b": g.tensor(d, n),
		"on": onnx.Scalar(g.IntN(2) == 0)}
	g.model, g.next = onnx.NewModel(c.graph), 0
	g.model.Opsets[""], g.model.IR = int64(g.opset), 10
	before, first := c.body([]string{"a", "b"}, 2)
	c.graph.Nodes = before
	around := []string{"a", "b", first}
	var node *onnx.Node
	switch g.IntN(3) {
	case 0:
		node, _ = c.choice(around, 0)
	case 1:
		node = c.loop(around)
	default:
		node = c.scan(around, n)
	}
	node.Name = "last"
	c.graph.Nodes = append(c.graph.Nodes, node)
	// A value from before the node is an output too, as a rewriting might lose it.
	for _, o := range append(node.Outputs, first) {
		c.graph.Outputs = append(c.graph.Outputs, onnx.ValueInfo{Name: o})
	}
	return g.model, g.feeds
}

// bodies draws graphs within nodes. Names are of one count for the whole model, as a body may hide
// no name around it.
type bodies struct {
	*generator
	graph  *onnx.Graph    // around them
	vector onnx.ValueInfo // the type of all values but flags and turns
}

// vec is the description of a value of the type of all.
func (c *bodies) vec(name string) onnx.ValueInfo {
	v := c.vector
	v.Name = name
	return v
}

// flag is a boolean scalar, as conditions are.
func flag(name string) onnx.ValueInfo {
	return onnx.ValueInfo{Name: name, DType: onnx.Bool, Shape: onnx.Shape()}
}

func (c *bodies) name() string { c.next++; return fmt.Sprintf("v%d", c.next) }

// graphAttr is the attribute in which a node holds a body.
func graphAttr(name string, b *onnx.Graph) onnx.Attr {
	return onnx.Attr{Name: name, Kind: onnx.AttrGraph, Graph: b}
}

// body draws nodes over values that can be read, and returns the last value. A depth of 2 and more
// holds no If, which ends the nesting.
func (c *bodies) body(reads []string, depth int) (nodes []*onnx.Node, out string) {
	reads = append([]string{}, reads...)
	for range 1 + c.IntN(4) {
		if depth < 2 && c.IntN(5) == 0 {
			node, v := c.choice(reads, depth)
			nodes, out = append(nodes, node), v
		} else {
			out = c.name()
			node := &onnx.Node{Name: out,
				Op:     pick(c.generator, "Tanh", "Sin", "Sigmoid", "Add", "Mul", "Sub", "Max"),
				Inputs: []string{pick(c.generator, reads...)}, Outputs: []string{out}}
			if len(node.Op) == 3 && node.Op != "Sin" {
				node.Inputs = append(node.Inputs, pick(c.generator, reads...))
			}
			nodes = append(nodes, node)
		}
		reads = append(reads, out)
	}
	return nodes, out
}

// choice draws an If over values that can be read. Every If reads the input "on", so that a run
// takes the same branch of all.
func (c *bodies) choice(reads []string, depth int) (*onnx.Node, string) {
	branch := func() *onnx.Graph {
		nodes, out := c.body(reads, depth+1)
		return &onnx.Graph{Name: c.name(), Initializers: map[string]*onnx.Tensor{}, Nodes: nodes,
			Outputs: []onnx.ValueInfo{c.vec(out)}}
	}
	out := c.name()
	return &onnx.Node{Name: out, Op: "If", Inputs: []string{"on"}, Outputs: []string{out},
			Attrs: []onnx.Attr{graphAttr("then_branch", branch()), graphAttr("else_branch", branch())}},
		out
}

// loop draws a Loop that carries the last of the values around it. The turns are 0 to 4: with none
// the carried value is the initial one, and the scanned output empty. The condition is handed on as
// it is, and the number of turns alone ends the loop.
func (c *bodies) loop(around []string) *onnx.Node {
	turn, on, v, on2 := c.name(), c.name(), c.name(), c.name()
	nodes, out := c.body(append(around, v), 0)
	scanned, next := c.body(append(around, v, out), 1)
	nodes = append(append(nodes, scanned...),
		&onnx.Node{Name: on2, Op: "Identity", Inputs: []string{on}, Outputs: []string{on2}})
	b := &onnx.Graph{Name: "body", Initializers: map[string]*onnx.Tensor{}, Nodes: nodes,
		Inputs: []onnx.ValueInfo{{Name: turn, DType: onnx.Int64, Shape: onnx.Shape()},
			flag(on), c.vec(v)},
		Outputs: []onnx.ValueInfo{flag(on2), c.vec(out), c.vec(next)}}
	c.graph.Initializers["turns"] = onnx.Scalar(int64(c.IntN(5)))
	return &onnx.Node{Op: "Loop", Inputs: []string{"turns", "", around[2]},
		Outputs: []string{c.name(), c.name()},
		Attrs:   []onnx.Attr{graphAttr("body", b)}}
}

// scan draws a Scan over the rows or columns of a matrix that carries the last of the values around
// it. The input is [steps, n] or [n, steps], as the scanned axis is 0 or 1. Directions and the
// output's axis are left to their defaults half of the time.
func (c *bodies) scan(around []string, n int) *onnx.Node {
	steps := 1 + c.IntN(4)
	axis, h, x := c.IntN(2), c.name(), c.name()
	nodes, out := c.body(append(around, h, x), 0)
	scanned, y := c.body(append(around, h, x, out), 1)
	b := &onnx.Graph{Name: "body", Initializers: map[string]*onnx.Tensor{},
		Nodes:   append(nodes, scanned...),
		Inputs:  []onnx.ValueInfo{c.vec(h), c.vec(x)},
		Outputs: []onnx.ValueInfo{c.vec(out), c.vec(y)}}
	shape := []int{steps, n}
	if axis == 1 {
		shape = []int{n, steps}
	}
	c.feeds["x"] = c.tensor(c.vector.DType, shape...)
	c.graph.Inputs = append(c.graph.Inputs,
		onnx.ValueInfo{Name: "x", DType: c.vector.DType, Shape: onnx.Shape(shape[0], shape[1])})
	return &onnx.Node{Op: "Scan", Inputs: []string{around[2], "x"},
		Outputs: []string{c.name(), c.name()}, Attrs: append([]onnx.Attr{
			onnx.IntAttr("num_scan_inputs", 1), onnx.IntsAttr("scan_input_axes", axis),
			graphAttr("body", b)}, c.some(onnx.IntsAttr("scan_input_directions", c.IntN(2)),
			onnx.IntsAttr("scan_output_directions", c.IntN(2)),
			onnx.IntsAttr("scan_output_axes", c.IntN(2)))...)}
}
