package grad

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"fmp/onnx"
	"fmp/onnx/internal/spell"
	"fmp/onnx/internal/try"
	"fmp/onnx/pass"
	"fmp/onnx/shape"
)

func init() {
	register(vjpIf, "If")
}

// subgraph is a node's graph as a model of its own: a value from around it is an input, or an
// initializer where it is constant.
type subgraph struct {
	*emitter
	graph    *onnx.Graph
	nodes    []*onnx.Node // as they were
	captures []string
	inputs   []string // its own
	outputs  []string
	cot      cotangents
}

// subgraph prepares a node's graph for inputs of which so much is known. Of carried values (behind
// lead inputs that are not), sizes that a turn may change are taken as unknown. in has one element
// for each input of g, and is written to. skip is the number of outputs before the carried ones.
// The graph is a clone, so that the node's own stays as it is.
func (c *call) subgraph(g *onnx.Graph, in []onnx.ValueInfo, lead, carried,
	skip int) *subgraph {
	s := &subgraph{graph: onnx.CloneGraph(g)}
	constants := map[string]*onnx.Tensor{}
	var around []onnx.ValueInfo
	for _, name := range g.Captures() {
		if slices.Contains(s.captures, name) {
			continue
		}
		s.captures = append(s.captures, name)
		// Such a constant needs no input, and shapes can be worked out from its value.
		if t, ok := c.constOf(name); ok && !c.active[name] {
			constants[name] = t
			continue
		}
		around = append(around, c.valueInfo(name))
	}
	for i, v := range g.Inputs {
		s.inputs = append(s.inputs, v.Name)
		in[i].Name = v.Name
	}
	for _, o := range g.Outputs {
		s.outputs = append(s.outputs, o.Name)
	}
	m := onnx.NewModel(s.graph)
	m.Opsets = map[string]int64{"": c.opset}
	maps.Copy(s.graph.Initializers, constants)
	for round := 0; ; round++ {
		s.graph.Inputs = append(slices.Clone(in), around...)
		s.graph.Outputs = slices.Clone(g.Outputs)
		s.graph.Values = nil
		// Shapes of outputs are inferred anew, from the inputs of this round.
		for i := range s.graph.Outputs {
			s.graph.Outputs[i].Shape = nil
		}
		try.Do(infer(m, c.taken))
		steady := true
		for i := range carried {
			a, b := in[lead+i].Shape, s.graph.Outputs[skip+i].Shape
			// A rank that is not known before a turn stays so.
			if a == nil {
				continue
			}
			if b == nil || len(a) != len(b) {
				try.Fail("the carried value %q may change its rank from turn to turn",
					s.inputs[lead+i])
			}
			a = slices.Clone(a)
			for k := range a {
				if changes(a[k], b[k]) {
					try.Fail("the carried value %q changes from size %v to %v on "+
						"axis %d, so that its turns cannot be kept; carry it padded",
						s.inputs[lead+i], a[k], b[k], k)
				}
				if a[k] != b[k] && (a[k].IsKnown() || a[k].Symbol != "") {
					a[k], steady = onnx.Symbolic(""), false
				}
			}
			in[lead+i].Shape = a
		}
		// An open size may open others, which the next round finds.
		if steady || round == 2 {
			break
		}
	}
	inner := newEmitter(m)
	maps.Copy(c.taken, inner.taken)
	// Names and the budget are shared: no graph within reuses a name of one around it.
	inner.taken, inner.next, inner.twice, inner.budget = c.taken, c.next, c.twice, c.budget
	s.emitter, s.nodes = inner, s.graph.Nodes
	s.cot = cotangents{e: inner, of: map[string]string{}}
	// The graph within does not state the types of its inputs.
	s.graph.Inputs = nil
	for name := range constants {
		delete(s.graph.Initializers, name)
		inner.constants[name] = constants[name]
	}
	return s
}

// changes reports whether a turn changes a size: to another known one or, of an open size, by terms
// that all add or all take away, so that it differs unless these are 0. Sizes with a quotient, "(",
// are not compared, as their terms cannot be added up.
// a is the size before the turn and b the one after it.
func changes(a, b onnx.Dim) bool {
	if a.Symbol == "" || b.Symbol == "" || strings.Contains(a.Symbol+b.Symbol, "(") {
		return a.IsKnown() && b.IsKnown() && a != b
	}
	by := map[string]int{}
	addTerms(by, b.Symbol, 1)
	addTerms(by, a.Symbol, -1)
	var more, less bool
	for _, n := range by {
		more, less = more || n > 0, less || n < 0
	}
	return more != less
}

// addTerms adds the terms of a size such as 2*a*b - c + 4, times sign, to those that by holds. A
// number alone counts under the empty name.
func addTerms(by map[string]int, size string, sign int) {
	for _, term := range strings.Split(strings.ReplaceAll(size, " - ", " + -"), " + ") {
		factor, of, _ := strings.Cut(term, "*")
		n, err := strconv.Atoi(factor)
		if err != nil {
			// A term without a number counts once, or minus once behind a sign.
			n, of = 1, term
			if rest, minus := strings.CutPrefix(term, "-"); minus {
				n, of = -1, rest
			}
		}
		by[of] += sign * n
	}
}

// infer works out shapes and spells operators out as [spell.Spell] does, under names that taken has
// none of and then has.
// Types are inferred again behind the spelling, as the new nodes have values of their own.
func infer(m *onnx.Model, taken map[string]bool) error {
	if err := shape.Infer(m); err != nil {
		return err
	}
	if !slices.ContainsFunc(m.Graph.Nodes, spell.HasSpelling) {
		return nil
	}
	types, err := shape.Types(m)
	if err != nil {
		return err
	}
	around := spell.Around{
		Opset: onnx.ClampInt(m.Opset()),
		Type:  func(v string) onnx.DType { return types[v].DType },
		Shape: func(v string) []onnx.Dim { return types[v].Shape },
		Fresh: func(base string) string { return pass.Unique(taken, base) },
	}
	var nodes []*onnx.Node
	for _, n := range m.Graph.Nodes {
		if !spell.HasSpelling(n) {
			nodes = append(nodes, n)
			continue
		}
		spelt, err := spell.Spell(n, around)
		if err != nil {
			return fmt.Errorf("%s: %w", n.Label(), err)
		}
		nodes = append(nodes, spelt...)
	}
	m.Graph.Nodes = nodes
	return shape.Infer(m)
}

// pull runs the nodes of the graph in an attribute backward, for the cotangents of its outputs that
// seeds has by position, as far as they depend on the values wrt.
// Seeds are added in the order of their positions, so that equal models give equal gradients.
func (s *subgraph) pull(name string, wrt []string, seeds map[int]string) {
	s.active = activeValues(s.emitter, s.nodes, wrt)
	for _, i := range slices.Sorted(maps.Keys(seeds)) {
		if o := s.outputs[i]; s.active[o] {
			s.as(seeds[i], o)
			s.cot.add(o, seeds[i])
		}
	}
	for _, n := range slices.Backward(s.nodes) {
		if err := pullBack(s.emitter, n, s.active, &s.cot); err != nil {
			try.Fail("%s: %w", name, err)
		}
	}
}

// result makes v an output of the graph; by another name where v is none of its nodes' or is an
// output already. (An Identity more than needed, and the ONNX Runtime 1.27 loses values when it
// fuses a MatMul, an Add and a Transpose in a loop.)
func (s *subgraph) result(v string, like onnx.ValueInfo) {
	like.Name = v
	own := slices.ContainsFunc(s.graph.Nodes,
		func(n *onnx.Node) bool { return slices.Contains(n.Outputs, v) })
	if _, again := s.graph.Output(v); !own || again {
		like.Name = s.fresh("result")
		s.graph.Nodes = append(s.graph.Nodes, identity(v, like.Name))
	}
	s.graph.Outputs = append(s.graph.Outputs, like)
}

// cotangentOf returns the cotangent of a value, zeros where none has arrived.
// The graph must give a tensor for each output, so that no cotangent may be left out here.
func (s *subgraph) cotangentOf(v string) string {
	if g := s.cot.of[v]; g != "" {
		return g
	}
	return s.filled(v, 0)
}

// finish removes nodes that no output needs and sorts the rest, each after those that it reads.
// Sorting is needed since the nodes that make a turn's inputs are appended behind their readers.
func (s *subgraph) finish(name string) onnx.Attr {
	s.graph.Values, s.graph.Name = nil, name
	try.Do(pass.SortNodes(s.graph))
	pass.RemoveUnused(s.graph)
	return onnx.Attr{Name: name, Kind: onnx.AttrGraph, Graph: s.graph}
}

// body is the graph in an attribute of the node.
// The graph is the node's own and no copy: a change to it is one to the node.
func (c *call) body(attr string, inputs, outputs int) *onnx.Graph {
	a, ok := c.node.Attr(attr)
	if !ok || a.Graph == nil {
		try.Fail("the attribute %s holds no graph", attr)
	}
	if len(a.Graph.Inputs) != inputs || len(a.Graph.Outputs) != outputs {
		try.Fail("%s takes %d inputs and gives %d outputs; %d and %d are expected", attr,
			len(a.Graph.Inputs), len(a.Graph.Outputs), inputs, outputs)
	}
	return a.Graph
}

// emit appends a node with n outputs, none where it would have none.
// The types of the outputs are not noted; a caller that needs them notes them.
func (c *call) emit(op string, in []string, n int, attrs ...onnx.Attr) []string {
	if n == 0 {
		return nil
	}
	node := &onnx.Node{Op: op, Inputs: in, Attrs: attrs}
	for range n {
		node.Outputs = append(node.Outputs, c.fresh(op))
	}
	node.Name = node.Outputs[0]
	c.emitter.graph.Nodes = append(c.emitter.graph.Nodes, node)
	return node.Outputs
}

// activeCaptures are the values that graphs take from around them and that are differentiated for.
func (c *call) activeCaptures(gs ...*onnx.Graph) []string {
	var out []string
	for _, g := range gs {
		for _, name := range g.Captures() {
			if c.active[name] && !slices.Contains(out, name) {
				out = append(out, name)
			}
		}
	}
	return out
}

// vjpIf chooses between the gradients of the branches. The gradient is an If whose branches give
// the cotangent of each active value that either takes from around it. A value that one branch does
// not read gets zeros there.
// The condition is a bool and has no cotangent.
func vjpIf(c *call) []string {
	var branches []onnx.Attr
	var graphs []*onnx.Graph
	names := []string{"then_branch", "else_branch"}
	for _, name := range names {
		graphs = append(graphs, c.body(name, 0, len(c.node.Outputs)))
	}
	wrt := c.activeCaptures(graphs...)
	for i, g := range graphs {
		s := c.subgraph(g, nil, 0, 0, 0)
		s.graph.Outputs = nil
		seeds := map[int]string{}
		for k, v := range c.cot {
			if v != "" {
				seeds[k] = v
			}
		}
		for _, w := range wrt {
			s.info[w] = c.info[w]
		}
		s.pull(names[i], wrt, seeds)
		for _, w := range wrt {
			s.result(s.cotangentOf(w), c.info[w])
		}
		branches = append(branches, s.finish(names[i]))
	}
	for i, v := range c.emit("If", []string{c.in(0)}, len(wrt), branches...) {
		c.also(wrt[i], v)
	}
	return []string{""}
}
