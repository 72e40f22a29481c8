package ort

import (
	"fmt"
	"maps"
	"runtime"
	"slices"
	"strings"

	"fmp/onnx"
	"fmp/onnx/internal/spell"
	"fmp/onnx/op"
	"fmp/onnx/pass"
	"fmp/onnx/shape"
)

// Versions that the ONNX Runtime [PinnedVersion] reads: newer models are lowered to these where
// they say nothing that they do not have.
const (
	runtimeOpset = 26
	runtimeIR    = 13
)

// countsRightly is the operator set from which on the runtime counts no positions beyond the
// padding.
const countsRightly = 19

// lower rewrites a model so that the runtime knows its operators: m itself is not changed.
// Operators that the runtime does not have, or that it computes otherwise than the standard says,
// are spelt out; a newer operator set becomes [runtimeOpset] where each operator of the model is
// one of that set with the same inputs and attributes. Other models it leaves to the runtime to
// refuse.
func lower(m *onnx.Model) (*onnx.Model, error) {
	c := *m
	c.IR = min(m.IR, runtimeIR)
	g := *m.Graph
	c.Graph = &g
	// Operators are spelt out first, so that the later steps see the nodes that come of it.
	if err := spellOut(&c); err != nil {
		return nil, err
	}
	restate(&c)
	c.Graph = guarded(&c)
	if m.Opset() < countsRightly && overcounts(c.Graph) {
		if err := pass.Upgrade(&c, countsRightly); err != nil {
			return nil, fmt.Errorf("the ONNX Runtime computes AveragePool with ceil_mode and "+
				"count_include_pad wrongly before operator set %d; export the model in that set or a newer one: %w",
				countsRightly, err)
		}
	}
	if m.Opset() > runtimeOpset && known(c.Graph, true) {
		c.Opsets = maps.Clone(m.Opsets)
		delete(c.Opsets, "ai.onnx")
		c.Opsets[""] = runtimeOpset
	}
	return &c, nil
}

// overcounts reports whether a graph, or one within it, has an AveragePool whose last window may
// reach beyond a padding that counts.
func overcounts(g *onnx.Graph) bool {
	return slices.ContainsFunc(g.Nodes, func(n *onnx.Node) bool {
		ceil, _ := n.Attr("ceil_mode")
		include, _ := n.Attr("count_include_pad")
		return n.Op == "AveragePool" && ceil.Int != 0 && include.Int != 0 ||
			slices.ContainsFunc(n.Subgraphs(), overcounts)
	})
}

// known reports whether every standard operator of a graph is one of runtimeOpset as it is used;
// outer says that restate has seen it.
func known(g *onnx.Graph, outer bool) bool {
	for _, n := range g.Nodes {
		for _, s := range n.Subgraphs() {
			if !known(s, false) {
				return false
			}
		}
		if n.Domain != "" {
			continue
		}
		s := op.Lookup("", n.Op, runtimeOpset)
		// a length of 0, which is allowed from set 28 on, makes the runtime leave memory as it was
		if n.Op == "ReverseSequence" && !outer {
			return false
		}
		if s == nil || s.Deprecated || s.Fits(n) != nil {
			return false
		}
		for _, a := range n.Attrs {
			if s.Attr(a.Name) == nil {
				return false
			}
		}
	}
	return true
}

// foreign reports whether the runtime lacks an operator that can be spelt out, or computes it
// otherwise than operator set 25 says: attention with lengths of its keys is not aligned at their
// end, a row without keys gets a mean of values where zeros are due, and that of bfloat16 is not
// computed.
func foreign(n *onnx.Node, types map[string]onnx.ValueInfo) bool {
	if n.Domain != "" || n.Op != "Attention" {
		return n.Domain == "" &&
			(n.Op == "Swish" || spell.IsSpelt(n) && op.Lookup("", n.Op, runtimeOpset) == nil)
	}
	_, left := n.Attr("left_window_size")
	_, right := n.Attr("right_window_size")
	return left || right || n.Input(3) != "" || n.Input(6) != "" ||
		types[n.Input(0)].DType == onnx.BFloat16
}

// spellOut replaces foreign nodes by other operators. Types are inferred only where a node may be
// foreign.
func spellOut(m *onnx.Model) error {
	g := m.Graph
	maybe := false
	for _, n := range g.Nodes {
		maybe = maybe || foreign(n, nil) || n.Op == "Attention"
	}
	// Inference costs time on large models, and few have such nodes.
	if !maybe {
		return nil
	}
	types, err := shape.Types(m)
	if err != nil {
		return nil // contradictions are the runtime's to name
	}
	taken := map[string]bool{}
	g.AddNames(taken)
	var nodes []*onnx.Node
	for _, n := range g.Nodes {
		if !foreign(n, types) {
			nodes = append(nodes, n)
			continue
		}
		spelt, err := spell.Spell(n, spell.Around{
			Opset: onnx.ClampInt(m.Opset()),
			Type:  func(v string) onnx.DType { return types[v].DType },
			Shape: func(v string) []onnx.Dim { return types[v].Shape },
			Fresh: func(base string) string { return pass.Unique(taken, base) },
		})
		if err != nil {
			return fmt.Errorf("%s: %w", n.Label(), err)
		}
		nodes = append(nodes, spelt...)
	}
	g.Nodes = nodes
	return nil
}

// systemLocale is a locale that every Linux has; that of a StringNormalizer without one is en_US,
// which small systems lack.
const systemLocale = "C.UTF-8"

// restate puts nodes in the place of others that say the same in a way which the runtime computes:
// lengths of at least 1 for sequences that are reversed, blocks of channels in the order that older
// operator sets have, remainders of floats, a locale that is there, and no padding to count for
// pools that have none.
func restate(m *onnx.Model) {
	taken := map[string]bool{}
	m.Graph.AddNames(taken)
	newer := m.Opset() > runtimeOpset
	var nodes []*onnx.Node
	for _, n := range m.Graph.Nodes {
		_, located := n.Attr("locale")
		switch {
		case n.Domain != "":
		case n.Op == "StringNormalizer" && !located && runtime.GOOS == "linux":
			n = onnx.CloneNode(n)
			n.Attrs = append(n.Attrs, onnx.StrAttr("locale", systemLocale))
		case n.Op == "AveragePool" && unpadded(n):
			n = onnx.CloneNode(n)
			n.Attrs = slices.DeleteFunc(n.Attrs,
				func(a onnx.Attr) bool { return a.Name == "count_include_pad" })
		case n.Op == "ReverseSequence" && newer && len(n.Inputs) == 2:
			n = onnx.CloneNode(n)
			one, lengths := pass.Unique(taken, "one"), pass.Unique(taken, "lengths")
			nodes = append(nodes, &onnx.Node{Name: one, Op: "Constant", Outputs: []string{one},
				Attrs: []onnx.Attr{onnx.TensorAttr("value", onnx.Vector[int64](1))}},
				&onnx.Node{Name: lengths, Op: "Max", Inputs: []string{n.Inputs[1], one},
					Outputs: []string{lengths}})
			n.Inputs[1] = lengths
		case n.Op == "SpaceToDepth" && newer && len(n.Outputs) == 1:
			nodes = append(nodes, blocks(m, n, taken)...)
			continue
		case n.Op == "Mod" && newer:
			nodes = append(nodes, remainder(m, n, taken)...)
			continue
		}
		nodes = append(nodes, n)
	}
	m.Graph.Nodes = nodes
}

// unpadded reports whether a pool has no padding of its own.
func unpadded(n *onnx.Node) bool {
	pads, _ := n.Attr("pads")
	auto, _ := n.Attr("auto_pad")
	return !strings.HasPrefix(auto.Str, "SAME") &&
		!slices.ContainsFunc(pads.Ints, func(p int64) bool { return p != 0 })
}

// remainder is Mod with fmod=0, which the runtime has for integers alone: that of floats has the
// sign of the dividend there, and here that of the divisor, as a zero has.
func remainder(m *onnx.Model, n *onnx.Node, taken map[string]bool) []*onnx.Node {
	types, err := shape.Types(m)
	if t := types[n.Input(0)].DType; err != nil || !t.IsFloat() ||
		op.Attrs(n, onnx.ClampInt(m.Opset())).Int("fmod") != 0 {
		return []*onnx.Node{n}
	}
	var nodes []*onnx.Node
	emit := func(op, out string, attrs []onnx.Attr, in ...string) string {
		nodes = append(nodes, &onnx.Node{Name: out, Op: op, Inputs: in, Outputs: []string{out},
			Attrs: attrs})
		return out
	}
	name := func(base string) string { return pass.Unique(taken, base) }
	y, out := n.Input(1), n.Outputs[0]
	// r = fmod(x, y), plus y where r is not 0 and differs from y in sign.
	rest := emit("Mod", name("rest"), []onnx.Attr{onnx.IntAttr("fmod", 1)}, n.Input(0), y)
	nothing := emit("Constant", name("nothing"),
		[]onnx.Attr{onnx.TensorAttr("value", onnx.Vector[float32](0))})
	zero := emit("CastLike", name("zero"), nil, nothing, y)
	below := emit("Xor", name("below"), nil, emit("Less", name("less"), nil, rest, zero),
		emit("Less", name("less"), nil, y, zero))
	some := emit("Not", name("some"), nil, emit("Equal", name("none"), nil, rest, zero))
	wrong := emit("And", name("wrong"), nil, some, below)
	whole := emit("Where", name("whole"), nil, wrong, emit("Add", name("sum"), nil, rest, y), rest)
	// a zero's sign too
	emit("Mul", out, nil, emit("Abs", name("size"), nil, whole), emit("Sign", name("sign"), nil, y))
	return nodes
}

// blocks is SpaceToDepth without its mode: the channels of each block come first in the older
// operator, and CRD, which has them last, takes them by their numbers. A node whose channels are
// not known stays.
func blocks(m *onnx.Model, n *onnx.Node, taken map[string]bool) []*onnx.Node {
	attrs := op.Attrs(n, onnx.ClampInt(m.Opset()))
	bare := onnx.CloneNode(n)
	bare.Attrs = slices.DeleteFunc(bare.Attrs, func(a onnx.Attr) bool { return a.Name == "mode" })
	if attrs.Str("mode") == "DCR" {
		return []*onnx.Node{bare}
	}
	types, err := shape.Types(m)
	x := types[n.Input(0)].Shape
	size := attrs.Int("blocksize")
	if err != nil || len(x) != 4 || !x[1].IsKnown() || size < 1 || size > 1<<10 ||
		x[1].Size > 1<<20/(size*size) {
		return []*onnx.Node{n}
	}
	var from []int64
	// Channel c b² + k of CRD is channel k C + c of DCR.
	for c := range x[1].Size {
		for k := range size * size {
			from = append(from, int64(k*x[1].Size+c))
		}
	}
	order, y := pass.Unique(taken, "order"), pass.Unique(taken, "blocks")
	out := bare.Outputs[0]
	bare.Outputs = []string{y}
	return []*onnx.Node{bare,
		{Name: order, Op: "Constant", Outputs: []string{order},
			Attrs: []onnx.Attr{onnx.TensorAttr("value", onnx.Vector(from...))}},
		{Name: out, Op: "Gather", Inputs: []string{y, order}, Outputs: []string{out},
			Attrs: []onnx.Attr{onnx.IntAttr("axis", 1)}}}
}
