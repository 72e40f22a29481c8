package differential

import (
	"fmt"

	"fmp/onnx"
)

// control draws an If, Loop or Scan over a vector, whose bodies are a few random nodes that read the values around them, and
// may hold an If of their own.
func (g *generator) control() (*onnx.Model, map[string]*onnx.Tensor) {
	g.opset = 13 + g.IntN(onnx.MaxOpset-12)
	d := onnx.Float32
	if g.double {
		d = onnx.Float64
	}
	n := 1 + g.IntN(3)
	vec := func(name string) onnx.ValueInfo {
		return onnx.ValueInfo{Name: name, DType: d, Shape: onnx.Shape(n)}
	}
	flag := onnx.ValueInfo{Name: "on", DType: onnx.Bool, Shape: onnx.Shape()}
	graph := &onnx.Graph{Name: "control", Initializers: map[string]*onnx.Tensor{}, Inputs: []onnx.ValueInfo{vec("a"), vec("b"), flag}}
	g.feeds = map[string]*onnx.Tensor{"a": g.tensor(d, n), "b": g.tensor(d, n), "on": onnx.Scalar(g.IntN(2) == 0)}
	g.model, g.next = onnx.NewModel(graph), 0
	g.model.Opsets[""], g.model.IR = int64(g.opset), 10
	name := func() string { g.next++; return fmt.Sprintf("v%d", g.next) }
	attr := func(what string, b *onnx.Graph) onnx.Attr {
		return onnx.Attr{Name: what, Kind: onnx.AttrGraph, Graph: b}
	}
	var body func(reads []string, depth int) ([]*onnx.Node, string)
	branch := func(reads []string, depth int) *onnx.Graph {
		nodes, out := body(reads, depth+1)
		return &onnx.Graph{Name: name(), Initializers: map[string]*onnx.Tensor{}, Nodes: nodes, Outputs: []onnx.ValueInfo{vec(out)}}
	}
	// choice is an If over values that can be read.
	choice := func(reads []string, depth int) (*onnx.Node, string) {
		out := name()
		return &onnx.Node{Name: out, Op: "If", Inputs: []string{"on"}, Outputs: []string{out},
			Attrs: []onnx.Attr{attr("then_branch", branch(reads, depth)), attr("else_branch", branch(reads, depth))}}, out
	}
	body = func(reads []string, depth int) (nodes []*onnx.Node, out string) {
		reads = append([]string{}, reads...)
		for range 1 + g.IntN(4) {
			if depth < 2 && g.IntN(5) == 0 {
				node, v := choice(reads, depth)
				nodes, out = append(nodes, node), v
			} else {
				out = name()
				node := &onnx.Node{Name: out, Op: pick(g, "Tanh", "Sin", "Sigmoid", "Add", "Mul", "Sub", "Max"), Inputs: []string{pick(g, reads...)}, Outputs: []string{out}}
				if len(node.Op) == 3 && node.Op != "Sin" {
					node.Inputs = append(node.Inputs, pick(g, reads...))
				}
				nodes = append(nodes, node)
			}
			reads = append(reads, out)
		}
		return nodes, out
	}
	before, first := body([]string{"a", "b"}, 2)
	graph.Nodes = before
	around := []string{"a", "b", first}
	var node *onnx.Node
	switch g.IntN(3) {
	case 0:
		node, _ = choice(around, 0)
	case 1:
		turn, on, v, on2 := name(), name(), name(), name()
		nodes, out := body(append(around, v), 0)
		scanned, next := body(append(around, v, out), 1)
		nodes = append(append(nodes, scanned...), &onnx.Node{Name: on2, Op: "Identity", Inputs: []string{on}, Outputs: []string{on2}})
		b := &onnx.Graph{Name: "body", Initializers: map[string]*onnx.Tensor{}, Nodes: nodes,
			Inputs:  []onnx.ValueInfo{{Name: turn, DType: onnx.Int64, Shape: onnx.Shape()}, {Name: on, DType: onnx.Bool, Shape: onnx.Shape()}, vec(v)},
			Outputs: []onnx.ValueInfo{{Name: on2, DType: onnx.Bool, Shape: onnx.Shape()}, vec(out), vec(next)}}
		graph.Initializers["turns"] = onnx.Scalar(int64(g.IntN(5)))
		node = &onnx.Node{Op: "Loop", Inputs: []string{"turns", "", first}, Outputs: []string{name(), name()}, Attrs: []onnx.Attr{attr("body", b)}}
	default:
		steps := 1 + g.IntN(4)
		axis, h, x := g.IntN(2), name(), name()
		nodes, out := body(append(around, h, x), 0)
		scanned, y := body(append(around, h, x, out), 1)
		b := &onnx.Graph{Name: "body", Initializers: map[string]*onnx.Tensor{}, Nodes: append(nodes, scanned...), Inputs: []onnx.ValueInfo{vec(h), vec(x)}, Outputs: []onnx.ValueInfo{vec(out), vec(y)}}
		shape := []int{steps, n}
		if axis == 1 {
			shape = []int{n, steps}
		}
		g.feeds["x"] = g.tensor(d, shape...)
		graph.Inputs = append(graph.Inputs, onnx.ValueInfo{Name: "x", DType: d, Shape: onnx.Shape(shape[0], shape[1])})
		node = &onnx.Node{Op: "Scan", Inputs: []string{first, "x"}, Outputs: []string{name(), name()}, Attrs: append([]onnx.Attr{
			onnx.IntAttr("num_scan_inputs", 1), onnx.IntsAttr("scan_input_axes", axis), attr("body", b)},
			g.some(onnx.IntsAttr("scan_input_directions", g.IntN(2)), onnx.IntsAttr("scan_output_directions", g.IntN(2)), onnx.IntsAttr("scan_output_axes", g.IntN(2)))...)}
	}
	node.Name = "last"
	graph.Nodes = append(graph.Nodes, node)
	for _, o := range append(node.Outputs, first) {
		graph.Outputs = append(graph.Outputs, onnx.ValueInfo{Name: o})
	}
	return g.model, g.feeds
}
