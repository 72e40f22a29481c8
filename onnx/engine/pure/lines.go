package pure

import (
	"math"
	"slices"

	"fmp/onnx"
	"fmp/onnx/internal/kernel"
)

// fuseLines lets a MatMul of constant weights run the nodes after it that it can, and returns the
// last of them. It takes one node, or one spelt-out Gelu, after the other until one does not fit.
func (p *planner) fuseLines(s *kernel.Spec) *onnx.Node {
	last := s.Node
	for {
		value := last.Outputs[0]
		next := &kernel.Spec{Opset: p.opset}
		parts, end := p.gelu(value)
		switch all := p.readers[value]; {
		case end != nil:
			next.Node = &onnx.Node{Op: "Gelu"}
		case len(all) == 1 && all[0] != nil && all[0].Domain == "" && len(all[0].Attrs) == 0 &&
			len(all[0].Inputs) == 2:
			end = all[0]
			parts, next.Node = []*onnx.Node{end}, end
			for _, name := range end.Inputs {
				_, t, _ := p.find(name)
				next.Const = append(next.Const, t)
			}
		default:
			return last
		}
		if !kernel.CanEndLines(s, next) {
			return last
		}
		for _, n := range parts {
			p.fused[n] = true
		}
		s.After, last = append(s.After, next), end
	}
}

// geluFrom returns a Gelu of a value that a node reads, which takes the place of that node and
// those after it that spell it out; nil where there is none. The Gelu is that of operator set 20,
// whatever the model's own set is.
func (p *planner) geluFrom(n *onnx.Node) *onnx.Node {
	if n.Op != "Div" && n.Op != "Mul" || !kernel.CanGelu(p.reproducible) {
		return nil
	}
	for _, value := range n.Inputs {
		parts, last := p.gelu(value)
		if last == nil || !slices.Contains(parts, n) {
			continue
		}
		for _, part := range parts {
			p.fused[part] = true
		}
		curve := &onnx.Node{Name: n.Name, Op: "Gelu", Inputs: []string{value},
			Outputs: last.Outputs}
		p.opsets[curve] = 20
		return curve
	}
	return nil
}

// gelu returns the nodes by which alone a value of float32 is read, which are
//
//	x/2 (1 + erf(x / sqrt(2)))
//
// in the orders of PyTorch's exporters, and the last of them; nil where they are not. Two readers
// of the value, and one of each value in between, are asked for: no other node may need them.
func (p *planner) gelu(value string) (parts []*onnx.Node, last *onnx.Node) {
	both := p.readers[value]
	if len(both) != 2 || p.opset < 9 {
		return nil, nil
	}
	for i, first := range both {
		other := both[1-i]
		if !p.times(first, value, 1/math.Sqrt2) && !p.by(first, "Div", value, math.Sqrt2) {
			continue
		}
		erf := p.only(first)
		if erf == nil || erf.Op != "Erf" || erf.Domain != "" {
			return nil, nil
		}
		one := p.only(erf)
		if !p.by(one, "Add", erf.Outputs[0], 1) {
			return nil, nil
		}
		next := p.only(one)
		parts = []*onnx.Node{first, erf, one, next, other}
		switch {
		// (x/2) (1 + erf)
		case p.times(other, value, 0.5) && p.only(other) == next && isProduct(next):
			return parts, next
		case next == other && isProduct(next): // x (1 + erf), of which half
			if last = p.only(next); p.times(last, next.Outputs[0], 0.5) {
				return append(parts, last), last
			}
		case p.times(next, one.Outputs[0], 0.5) && p.only(next) == other && isProduct(other):
			return parts, other // x ((1 + erf) / 2)
		}
		return nil, nil
	}
	return nil, nil
}

// isProduct reports whether a node is the product of two values.
func isProduct(n *onnx.Node) bool {
	return n != nil && n.Op == "Mul" && n.Domain == "" && len(n.Inputs) == 2 && len(n.Attrs) == 0
}

// only returns the node that alone reads a node's only output, once or more; nil where there is
// none.
func (p *planner) only(n *onnx.Node) *onnx.Node {
	if n == nil || len(n.Outputs) != 1 {
		return nil
	}
	all := p.readers[n.Outputs[0]]
	if len(all) != 1 {
		return nil
	}
	return all[0]
}

// by reports whether a node is an operator on a value of float32 and a number without axes; the
// operands of sums and products may stand the other way about.
func (p *planner) by(n *onnx.Node, op, value string, number float64) bool {
	if n == nil || n.Op != op || n.Domain != "" || len(n.Inputs) != 2 || len(n.Attrs) > 0 {
		return false
	}
	a, b := n.Inputs[0], n.Inputs[1]
	// A quotient's operands have one order.
	if a != value && op != "Div" {
		a, b = b, a
	}
	_, t, _ := p.find(b)
	return a == value && kernel.IsScalar(t, number)
}

// times reports whether a node multiplies a value by a number.
func (p *planner) times(n *onnx.Node, value string, number float64) bool {
	return p.by(n, "Mul", value, number)
}
