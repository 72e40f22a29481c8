package models

import (
	"bytes"
	"fmt"
	"slices"
	"testing"

	"fmp/onnx"
	"fmp/onnx/build"
	"fmp/onnx/engine"
	"fmp/onnx/engine/pure"
	"fmp/onnx/must"
	"fmp/onnx/pass"
	"fmp/onnx/serde"
)

// collidable is a client graph whose extractor holds operators with optional inputs and outputs,
// and with as many outputs as one likes.
func collidable(t testing.TB) (*onnx.Model, Manifest) {
	t.Helper()
	b := build.New("extractor")
	x := b.Reshape(b.Input("x", onnx.Float32, "n", 2, 2, 3), 0, 12)
	split := b.OpN("Split", []build.Ref{x}, 2, onnx.IntAttr("axis", 1))
	h := b.Slice(b.Concat(1, split[1], split[0]), 1, 0, 4)
	h = b.Op("Clip", []build.Ref{h, b.F32(0), b.F32(0.7)})
	b.Output("h", b.Op("Gemm",
		[]build.Ref{h, b.Const(onnx.NewTensor([]float32{1, 2, 0, 0, 0, 1, 0, 0, 0, 0, 3, 0, 1, 0, 0, 1},
			4, 4))}, onnx.FloatAttr("alpha", 0.5)))
	m := must.Get(b.Model())(t)
	e := must.Get(NewEmbedding(EmbeddingConfig{Dx: 4, C: 2}, 1))(t)
	f := must.Get(ReadManifest(e))(t)
	c := must.Get(ClientGraph(m, Manifest{Digest: "x"}, e, f,
		Preprocessing{Height: 2, Width: 3, Channels: 2, Output: "h"}))(t)
	f = must.Get(ReadManifest(c))(t)
	return c, f
}

// networkNodes returns the places of the extractor's nodes.
func networkNodes(g *onnx.Graph) (at []int) {
	for i, n := range g.Nodes {
		if slices.Contains([]string{"Split", "Clip", "Slice", "Gemm"}, n.Op) || n.Op == "Concat" &&
			i < len(g.Nodes)/2 {
			at = append(at, i)
		}
	}
	return at
}

// mutated returns a graph with changes to its extractor, four bytes each: node, kind, and two of
// what and where.
func mutated(m *onnx.Model, changes []byte) *onnx.Model {
	m = onnx.Clone(m)
	g := m.Graph
	for ; len(changes) >= 4; changes = changes[4:] {
		at := networkNodes(g)
		n := g.Nodes[at[int(changes[0])%len(at)]]
		what, where := int(changes[2]), int(changes[3])
		values := []string{""}
		for name := range g.Initializers {
			values = append(values, name)
		}
		slices.Sort(values)
		for _, i := range at {
			values = append(values, g.Nodes[i].Outputs...)
		}
		switch value := values[what%len(values)]; changes[1] % 12 {
		case 0:
			n.Outputs = append(n.Outputs, "")
		case 1:
			n.Outputs = append(n.Outputs, fmt.Sprintf("more%d", what))
		case 2:
			n.Outputs = n.Outputs[:max(1, len(n.Outputs)-1)]
		case 3:
			n.Outputs[where%len(n.Outputs)] = ""
		case 4:
			n.Inputs[where%len(n.Inputs)] = value
		case 5:
			n.Inputs = append(n.Inputs, value)
		case 6:
			n.Inputs = n.Inputs[:max(1, len(n.Inputs)-1)]
		case 7:
			n.Attrs = append(n.Attrs,
				[]onnx.Attr{onnx.IntAttr("axis", what%3), onnx.FloatAttr("beta", float32(what)),
					onnx.BoolAttr("transB", true), onnx.IntAttr("num_outputs", what%5)}[where%4])
		case 8:
			if len(n.Attrs) > 0 {
				n.Attrs = slices.Delete(n.Attrs, 0, 1)
			}
		case 9:
			for i := range n.Attrs {
				n.Attrs[i].Int, n.Attrs[i].Float = n.Attrs[i].Int+int64(what),
					n.Attrs[i].Float+float32(where)
			}
		case 10:
			m.Opsets[""] = int64(13 + what%10)
		case 11:
			if t := g.Initializers[value]; t != nil && t.Len() > 0 {
				switch v := t.Clone(); d := v.Data.(type) {
				case []float32:
					d[where%len(d)] += float32(what)
					g.Initializers[value] = v
				case []int64:
					d[where%len(d)] += int64(what%3) - 1
					g.Initializers[value] = v
				}
			}
		}
	}
	g.Values = nil
	read := map[string]bool{}
	for _, n := range g.Nodes {
		for _, in := range n.Inputs {
			read[in] = true
		}
	}
	for name := range g.Initializers {
		if !read[name] {
			delete(g.Initializers, name)
		}
	}
	return m
}

// digestAndFeatures reads a client graph as a client does: its extractor's digest and the features
// of an image, or that it is refused.
func digestAndFeatures(t testing.TB, m *onnx.Model,
	f Manifest) (digest string, features []float32, err error) {
	t.Helper()
	data, err := serde.Marshal(m)
	if err != nil {
		return "", nil, err
	}
	if m, err = serde.Closed(data); err != nil {
		return "", nil, err
	}
	a, err := ParseClient(m, f)
	if err != nil {
		return "", nil, err
	}
	e := must.Get(pure.New(engine.Options{Threads: 1}))(t)
	image := onnx.NewTensor([]uint8{1, 250, 3, 100, 5, 60, 7, 80, 9, 200, 11, 120}, 1, 2, 3, 2)
	if s, err := e.Load(a.Features); err == nil {
		if out, err := engine.Eval(s, map[string]*onnx.Tensor{"images": image}); err == nil {
			return a.Extractor, out[ValueFeatures].F32(), nil
		}
	}
	return a.Extractor, nil, nil
}

// FuzzCollide: two extractors of one digest give the same features, bit for bit.
func FuzzCollide(f *testing.F) {
	f.Add([]byte{}, []byte{0, 0, 0, 0})           // one output more of Split, left out
	f.Add([]byte{0, 1, 1, 0}, []byte{0, 3, 0, 2}) // named, and not
	// no lower bound, and an output left out
	f.Add([]byte{3, 4, 0, 1}, []byte{0, 0, 0, 0, 3, 4, 0, 1})
	f.Add([]byte{0, 10, 5, 0}, []byte{0, 7, 2, 3, 0, 0, 0, 0}) // another operator set
	m, man := collidable(f)
	f.Fuzz(func(t *testing.T, first, then []byte) {
		if len(first) > 32 || len(then) > 32 {
			return
		}
		a := mutated(m, first)
		one, features, err := digestAndFeatures(t, a, man)
		if err != nil {
			return
		}
		two, others, err := digestAndFeatures(t, mutated(a, then), man)
		if err != nil || one != two {
			return
		}
		if !slices.EqualFunc(features, others, func(x, y float32) bool { return x == y || x != x && y != y }) {
			t.Fatalf("digest %s has features %v and %v", one, features, others)
		}
	})
}

// TestCollide: an extractor that differs in nothing but how many outputs a node has, and which are
// named, has another digest.
func TestCollide(t *testing.T) {
	m, f := collidable(t)
	one, features, err := digestAndFeatures(t, m, f)
	if err != nil || len(features) != f.Dx {
		t.Fatal(features, err)
	}
	for name, changes := range map[string][]byte{
		"an output more, left out": {0, 0, 0, 0}, "an output more": {0, 1, 0, 0},
		"no lower bound": {3, 4, 0, 1}, "no bounds": {3, 6, 0, 0, 3, 6, 0, 0},
		"an attribute": {4, 9, 0, 1}, "an operator set": {0, 10, 3, 0},
		"the default spelt out": {4, 7, 1, 1},
	} {
		two, others, err := digestAndFeatures(t, mutated(m, changes), f)
		if err != nil {
			t.Errorf("%s: %v", name, err)
		} else if two == one {
			t.Errorf("%s: the digest is the same, the features are %v and %v", name, features, others)
		}
	}
}

// TestCanonical: a canonical form is its own canonical form, so that what is decoded from it says
// no more than what was hashed.
func TestCanonical(t *testing.T) {
	for _, c := range clientCases(t) {
		a := must.Get(ParseClient(c.m, c.f))(t)
		for _, part := range []*onnx.Model{a.Features, a.Embedding} {
			first := must.Get(canonical(part, "part", part.Graph.Inputs, part.Graph.Outputs))(t)
			m := must.Get(serde.Closed(first))(t)
			second, err := canonical(m, "part", m.Graph.Inputs, m.Graph.Outputs)
			if err != nil || !bytes.Equal(first, second) {
				t.Errorf("%s: the canonical form of a canonical form is another (%v)", c.name, err)
			}
		}
	}
}

// TestTwoReadings: graphs that one reader could read otherwise than another are refused, or one of
// their readings is what was hashed and what runs: the digest and the features are then those of
// the graph without the change.
func TestTwoReadings(t *testing.T) {
	m, f := collidable(t)
	digest, features := must.Get2(digestAndFeatures(t, m, f))(t)
	var changed *onnx.Model
	var g *onnx.Graph
	of := func(op string) *onnx.Node {
		return g.Nodes[slices.IndexFunc(g.Nodes, func(n *onnx.Node) bool { return n.Op == op })]
	}
	add := func(at int, op, in, out string) {
		g.Nodes = slices.Insert(g.Nodes, at,
			&onnx.Node{Name: "new", Op: op, Inputs: []string{in}, Outputs: []string{out}})
	}
	for name, c := range map[string]struct {
		change  func()
		refused bool
	}{
		"a value that two nodes give": {func() { add(0, "Neg", "images", of("Clip").Outputs[0]) }, true},
		"a value that a node gives twice": {func() {
			n := of("Split")
			n.Outputs[1] = n.Outputs[0]
		}, true},
		"a constant that a node gives": {func() { add(0, "Neg", "images", of("Clip").Inputs[1]) }, true},
		"a constant named as an input": {func() { g.Initializers["images"] = onnx.ZerosF32(1) }, true},
		"a constant that is an input as well": {func() {
			name := of("Clip").Inputs[1]
			g.AddOptional(name, g.Initializers[name])
		}, true},
		"an attribute twice": {func() {
			of("Gemm").Attrs = append(of("Gemm").Attrs, onnx.FloatAttr("alpha", 2))
		}, true},
		"an attribute of another kind": {func() { of("Gemm").Attrs[0] = onnx.IntAttr("alpha", 2) }, true},
		"an attribute of no operator":  {func() { of("Gemm").Attrs[0].Name = "Alpha" }, true},
		"an attribute of a function":   {func() { of("Gemm").Attrs[0].Ref = "alpha" }, true},
		"nodes out of order":           {func() { slices.Reverse(g.Nodes) }, true},
		"a node that reads itself":     {func() { of("Gemm").Inputs[0] = of("Gemm").Outputs[0] }, true},
		"an output more": {func() {
			g.Outputs = append(g.Outputs, onnx.ValueInfo{Name: "images", DType: onnx.Uint8})
		}, true},
		"an output twice":               {func() { g.Outputs[1] = g.Outputs[0] }, true},
		"an input more":                 {func() { g.Inputs = append(g.Inputs, onnx.ValueInfo{Name: "key"}) }, true},
		"labels that it sees":           {func() { of("Clip").Inputs[1] = "labels" }, true},
		"a domain that is not imported": {func() { of("Clip").Domain = "com.microsoft" }, true},
		"a node that gives nothing":     {func() { add(len(g.Nodes), "Neg", "images", "") }, true},
		"a value without a name": {func() {
			of("Split").Outputs[1] = ""
			g.Nodes[networkNodes(g)[1]].Inputs[0] = ""
		}, true},
		"weights of another type": {func() {
			n := of("Gemm")
			g.Initializers["double"] = onnx.NewTensor(make([]float64, 16), 4, 4)
			n.Inputs[1] = "double"
		}, true},
		"other names": {func() {
			pass.Rename(g, map[string]string{of("Clip").Outputs[0]: "0.0", of("Split").Outputs[0]: "x0"})
		}, false},
		"a constant that nothing reads": {func() { g.Initializers["key"] = onnx.ZerosF32(4) }, false},
		"a lie about a shape": {func() {
			g.Values = []onnx.ValueInfo{{Name: of("Clip").Outputs[0], DType: onnx.Float32,
				Shape: onnx.Shape(1, 9)}}
		}, false},
		"another producer and documentation": {func() {
			changed.Producer, changed.Doc, g.Doc, changed.Version = "p", "d", "e", 7
		}, false},
		"two names of one constant": {func() {
			n := of("Clip")
			g.Initializers["again"] = g.Initializers[n.Inputs[2]]
			n.Inputs[2] = "again"
		}, false},
		"an operator set that no node uses": {func() { changed.Opsets["unused"] = 3 }, false},
	} {
		changed = onnx.Clone(m)
		g = changed.Graph
		c.change()
		d, h, err := digestAndFeatures(t, changed, f)
		switch {
		case c.refused && err == nil:
			t.Errorf("%s: not refused; the digest is the same: %v", name, d == digest)
		case !c.refused && (err != nil || d != digest || !slices.Equal(h, features)):
			t.Errorf("%s: digest %s and features %v, %v; want %s and %v", name, d, h, err, digest, features)
		}
	}
}
