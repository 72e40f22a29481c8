package pass

import (
	"encoding/binary"
	"fmt"
	"math"
	"slices"
	"strings"

	"fmp/onnx"
	"fmp/onnx/shape"
	"fmp/onnx/sorting"
)

// Simplify makes a graph smaller without changing its results: nodes of constants become
// initializers, nodes that do nothing, copies of other nodes and nodes that no output needs go.
// Values that the shapes of the inputs already decide (Shape, Gather, Concat and the like) become
// constants as well.
//
// Constants are computed by the pure engine's kernels, within the model's [onnx.Budget].
// Initializers count as constants: take out those that are still to be trained, as inputs, before;
// optional inputs become their defaults, and weights that are stored in few bits come back as
// numbers. Functions are inlined. On an error the model is as it was.
func Simplify(m *onnx.Model) error {
	if err := graphOf(m, "simplifying"); err != nil {
		return err
	}
	c := onnx.Clone(m)
	if err := Inline(c); err != nil {
		return err
	}
	c.Graph.Optional = nil
	budget := onnx.NewBudget(c)
	// Each pass can open the way for another; they end, since each only ever removes.
	for range onnx.MaxDepth {
		before := len(c.Graph.Nodes)
		if err := foldConstants(c, budget); err != nil {
			return fmt.Errorf("simplifying %q: %w", m.Graph.Name, err)
		}
		removeIdle(c)
		// Idle nodes went before: nodes that read one value through different ones are copies of
		// each other.
		removeDuplicates(c.Graph)
		RemoveUnused(c.Graph)
		if len(c.Graph.Nodes) == before {
			break
		}
	}
	if err := shape.Infer(c); err != nil {
		return fmt.Errorf("simplifying %q: %w", m.Graph.Name, err)
	}
	*m = *c
	return nil
}

// Constants that folding makes have at most this many elements.
const maxFolded = 1 << 16

// foldConstants leaves random nodes, and nodes with a body, to the run. budget is that of all
// passes together.
func foldConstants(m *onnx.Model, budget *onnx.Budget) error {
	known, err := shape.Follow(m, maxFolded, budget)
	if err != nil {
		return err
	}
	g := m.Graph
	var kept []*onnx.Node
	for _, n := range g.Nodes {
		if len(n.Subgraphs()) == 0 && !isRandom(n) {
			if ts := constantOutputs(known, n); ts != nil {
				for i, o := range n.Outputs {
					if o != "" {
						g.Initializers[o] = ts[i]
					}
				}
				continue
			}
		}
		kept = append(kept, n)
	}
	g.Nodes = kept
	// An output must be given by a node: a constant one by an Identity of an initializer.
	for _, o := range g.Outputs {
		if t, ok := g.Initializers[o.Name]; ok {
			taken := newNames()
			g.AddNames(taken.taken)
			name := taken.unique(o.Name + "/value")
			delete(g.Initializers, o.Name)
			g.Initializers[name] = t
			for _, n := range g.Nodes {
				renameReads(n, map[string]string{o.Name: name})
			}
			g.Nodes = slices.Insert(g.Nodes, 0,
				&onnx.Node{Name: o.Name, Op: "Identity", Inputs: []string{name},
					Outputs: []string{o.Name}})
		}
	}
	return nil
}

// constantOutputs is the values of a node's outputs where all are known.
func constantOutputs(known *shape.Facts, n *onnx.Node) []*onnx.Tensor {
	if n.Domain != "" {
		return nil
	}
	if n.Op == "Identity" {
		return nil // removeIdle joins its values, or it gives a graph output
	}
	out := make([]*onnx.Tensor, len(n.Outputs))
	for i, o := range n.Outputs {
		if o == "" {
			continue
		}
		if out[i] = known.Constant(o); out[i] == nil {
			return nil
		}
	}
	return out
}

// renameReads renames the inputs of a node and its subgraphs.
func renameReads(n *onnx.Node, to map[string]string) {
	for i, in := range n.Inputs {
		if name, ok := to[in]; ok {
			n.Inputs[i] = name
		}
	}
	for _, g := range n.Subgraphs() {
		for _, m := range g.Nodes {
			renameReads(m, to)
		}
		for i, o := range g.Outputs {
			if name, ok := to[o.Name]; ok {
				g.Outputs[i].Name = name
			}
		}
	}
}

// isRandom reports whether a node gives another result each time.
func isRandom(n *onnx.Node) bool {
	switch n.Op {
	case "RandomNormal", "RandomUniform", "RandomNormalLike", "RandomUniformLike", "Multinomial",
		"Bernoulli", "Dropout":
		return n.Op != "Dropout" || n.Input(2) != ""
	}
	return false
}

// idle reports whether a node's first output is its first input unchanged.
func idle(n *onnx.Node) bool {
	if n.Domain != "" || len(n.Outputs) > 1 && n.Outputs[1] != "" {
		return false
	}
	return n.Op == "Identity" || n.Op == "Dropout" && n.Input(2) == ""
}

// removeIdle takes out nodes that pass on their input. Where such a node gives a graph output, the
// node before it takes the output's name, unless that gives another output or is an input or
// initializer.
func removeIdle(m *onnx.Model) {
	g := m.Graph
	outs, producer := map[string]bool{}, g.Makers()
	for _, o := range g.Outputs {
		outs[o.Name] = true
	}
	to := map[string]string{}
	resolve := func(s string) string {
		for {
			next, ok := to[s]
			if !ok {
				return s
			}
			s = next
		}
	}
	var kept []*onnx.Node
	for _, n := range g.Nodes {
		if !idle(n) {
			kept = append(kept, n)
			continue
		}
		from, out := resolve(n.Inputs[0]), n.Outputs[0]
		p := producer[from]
		switch {
		case !outs[out]:
			to[out] = from
		case p != nil && !outs[from]:
			// Later readers follow the new name; the producer's own output is renamed below.
			to[from] = out
			for i, o := range p.Outputs {
				if o == from {
					p.Outputs[i] = out
				}
			}
			producer[out] = p
		default:
			kept = append(kept, n)
		}
	}
	// Names are resolved here alone, when all exchanges are known.
	for _, n := range kept {
		final := map[string]string{}
		for _, r := range n.Reads() {
			if s := resolve(r); s != r {
				final[r] = s
			}
		}
		if len(final) > 0 {
			renameReads(n, final)
		}
	}
	g.Nodes = kept
}

// removeDuplicates joins nodes that compute the same from the same, and small constants of one
// value. One pass joins chains, as nodes stand in order and read the joined names. A node that
// gives a graph output stays, since its name must be given.
func removeDuplicates(g *onnx.Graph) {
	to := map[string]string{}
	outs := map[string]bool{}
	for _, o := range g.Outputs {
		outs[o.Name] = true
	}
	first := map[string]string{}
	// Of equal constants the first by name stays, so that the result is the same each time.
	for _, name := range g.InitializerNames() {
		// Vectors of integers are axes and shapes, scalars are factors; larger ones are weights,
		// whose names matter.
		t := g.Initializers[name]
		if outs[name] || t.DType.IsFloat() && len(t.Shape) > 0 || len(t.Shape) > 1 || t.Len() > 64 {
			continue
		}
		key := tensorKey(t)
		if have, ok := first[key]; ok {
			to[name] = have
			continue
		}
		first[key] = name
	}
	same := map[string]*onnx.Node{}
	var kept []*onnx.Node
	for _, n := range g.Nodes {
		renameReads(n, to)
		if len(n.Subgraphs()) > 0 || isRandom(n) {
			kept = append(kept, n)
			continue
		}
		key := nodeKey(n)
		have, ok := same[key]
		if !ok || slices.ContainsFunc(n.Outputs, func(o string) bool { return outs[o] }) {
			if !ok {
				same[key] = n
			}
			kept = append(kept, n)
			continue
		}
		for i, o := range n.Outputs {
			if o != "" {
				to[o] = have.Outputs[i]
			}
		}
	}
	g.Nodes = kept
}

// nodeKey tells nodes that compute the same from those that do not. Floats are compared by their
// bits, so that 0 and -0 differ and equal NaNs are one. Attributes are sorted by name, as their
// order says nothing. The outputs that a node names are part of the key, as its copy must give each
// of them.
func nodeKey(n *onnx.Node) string {
	var b strings.Builder
	fmt.Fprintf(&b, "%q %q", n.Domain, n.Op)
	for _, in := range n.Inputs {
		fmt.Fprintf(&b, " %q", in)
	}
	b.WriteString(" ->")
	for _, o := range n.Outputs {
		fmt.Fprintf(&b, " %t", o != "")
	}
	attrs := slices.Clone(n.Attrs)
	sorting.By(attrs, func(x, y onnx.Attr) int { return strings.Compare(x.Name, y.Name) })
	for _, a := range attrs {
		fmt.Fprintf(&b, " %q %d %x %d %q %x %d %q", a.Name, a.Kind, math.Float32bits(a.Float), a.Int,
			a.Str, floatBits(a.Floats), a.Ints, a.Strs)
		for _, t := range append([]*onnx.Tensor{a.Tensor}, a.Tensors...) {
			b.WriteString(tensorKey(t))
		}
	}
	return b.String()
}

// floatBits lets a key hold NaN and -0 apart.
func floatBits(v []float32) []uint32 {
	out := make([]uint32, len(v))
	for i, x := range v {
		out[i] = math.Float32bits(x)
	}
	return out
}

// tensorKey tells tensors of the same type, shape and bits from others.
func tensorKey(t *onnx.Tensor) string {
	if t == nil {
		return ""
	}
	if s, ok := t.Data.([]string); ok {
		return fmt.Sprintf("%v %q", t, s)
	}
	data, err := binary.Append(nil, binary.LittleEndian, t.Data)
	if err != nil {
		return fmt.Sprintf("%p", t) // what has no bytes equals nothing
	}
	return t.String() + string(data)
}
