package models

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"fmp/models/rng"
	"fmp/onnx"
	"fmp/onnx/build"
	"fmp/onnx/check"
	"fmp/onnx/must"
	"fmp/onnx/op"
	"fmp/onnx/pass"
	"fmp/onnx/serde"
)

// clientCase is a client graph and what it was made of.
type clientCase struct {
	name string
	m    *onnx.Model
	f    Manifest
}

// fuse fuses a client graph and reads its manifest.
func fuse(t *testing.T, name string, extractor, embedding *onnx.Model, p Preprocessing) clientCase {
	t.Helper()
	e := must.Get(ReadManifest(embedding))(t)
	m := must.Get(ClientGraph(extractor, Manifest{Digest: "x"}, embedding, e, p))(t)
	return clientCase{name, m, must.Get(ReadManifest(m))(t)}
}

// clientEmbeddings returns one of every kind that uploads are made by.
func clientEmbeddings(t *testing.T) map[string]*onnx.Model {
	t.Helper()
	out := map[string]*onnx.Model{}
	for name, c := range map[string]EmbeddingConfig{
		"points": {Size: 4, Blocks: 1, Hidden: 8}, "points, plain": {},
		"points, published": {Published: true, Heads: 2, Dim: 16, Blocks: 1},
		"points, constant":  {ConstantWeights: true},
	} {
		c.Dx, c.C = testDx, testC
		e := must.Get(NewEmbedding(c, 1))(t)
		shake(e)
		out[name] = e
	}
	half := onnx.Clone(out["points"])
	if n, _ := pass.StoreHalf(half, 8); n == 0 {
		t.Fatal("nothing is stored as float16")
	}
	out["points, half"] = half
	c := ConjugateConfig{Dx: testDx, C: testC, K: 2}
	m := must.Get(NewConjugate(c, drawn(c.shapes())))(t)
	for _, phi := range []bool{true, false} {
		out[fmt.Sprintf("class means, phi %v", phi)] = must.Get(ConjugateEmbedding(m, phi))(t)
	}
	basis := onnx.ZerosF32(testDx, 3)
	rng.Normal(rng.New(1, "basis"), basis.F32())
	half = must.Get(MomentsEmbedding(MomentsConfig{Dx: testDx, C: testC, Bytes: 1 << 16, Basis: basis}))(t)
	if n, _ := pass.StoreHalf(half, 10); n == 0 {
		t.Fatal("nothing of class means is stored as float16")
	}
	must.Get(OfTwoClasses(half))(t)
	out["moments, half"] = half
	p := ConjugateConfig{Dx: testDx, K: 2}
	m = must.Get(NewPrivate(p, drawn(p.private())))(t)
	out["private"] = must.Get(PrivateEmbedding(m, testC, nil))(t)
	return out
}

// drawn returns tensors of random numbers above 0.
func drawn(shapes map[string][]int) map[string]*onnx.Tensor {
	out := map[string]*onnx.Tensor{}
	for name, shape := range shapes {
		out[name] = onnx.ZerosF32(shape...)
		rng.Normal(rng.New(1, name), out[name].F32())
		for i, v := range out[name].F32() {
			out[name].F32()[i] = max(v, -v) + 0.1
		}
	}
	return out
}

// clientCases returns client graphs of every kind of upload, extractor and preprocessing.
func clientCases(t *testing.T) []clientCase {
	t.Helper()
	base := Preprocessing{Height: 2, Width: 3, Channels: 2, Output: "h"}
	scaled, standard := base, base
	scaled.Mean, scaled.Std = []float32{0.5, 0.25}, []float32{0.5, 2}
	standard.FeatureMean, standard.FeatureStd = []float32{1, 2, 3, 4}, []float32{1, 2, 1, 2}
	all := clientEmbeddings(t)
	var out []clientCase
	for name, e := range all {
		out = append(out, fuse(t, name, linearExtractor(t, false, 2), e, scaled))
	}
	slices.SortFunc(out, func(a, b clientCase) int { return strings.Compare(a.name, b.name) })
	e := all["class means, phi true"]
	for _, c := range []struct {
		nhwc bool
		rank int
	}{{true, 2}, {false, 3}, {false, 4}, {true, 4}} {
		for name, p := range map[string]Preprocessing{"bare": base, "scaled": scaled, "standardised": standard} {
			p.NHWC = c.nhwc
			out = append(out, fuse(t, fmt.Sprintf("rank %d, NHWC %v, %s", c.rank, c.nhwc, name),
				linearExtractor(t, c.nhwc, c.rank), e, p))
		}
	}
	newer := linearExtractor(t, false, 4)
	must.Do(t, pass.Upgrade(newer, 20))
	out = append(out, fuse(t, "operator set 20", newer, e, standard))
	own := onnx.Clone(newer)
	own.Graph.Nodes = withNode(own.Graph.Nodes, "h", "ReduceMean")
	own.Graph.Initializers["axes"] = onnx.Vector[int64](2, 3)
	mean := own.Graph.Nodes[len(own.Graph.Nodes)-1]
	mean.Inputs = append(mean.Inputs, "axes")
	mean.Attrs = []onnx.Attr{onnx.IntAttr("keepdims", 0), onnx.IntAttr("noop_with_empty_axes", 0)}
	out = append(out, fuse(t, "an average as PyTorch writes it", own, e, standard))
	for _, raw := range []bool{true, false} {
		b := build.New("colour")
		d := onnx.Float32
		if raw {
			d = onnx.Uint8
		}
		x := b.Reshape(b.Cast(b.Input("pixels", d, "batch", 2, 2, 3), onnx.Float32), 0, 12)
		b.Output("h", b.MatMul(x, b.Param("w", onnx.ZerosF32(12, testDx))))
		m := must.Get(b.Model())(t)
		out = append(out, fuse(t, fmt.Sprintf("blue first, raw %v", raw), m, e,
			Preprocessing{Height: 2, Width: 2, Channels: 3, NHWC: true, BGR: true,
				Raw: raw, Output: "h"}))
	}
	return out
}

// TestParseClient: every client graph that this package makes comes apart, and its parts give what
// it gives.
func TestParseClient(t *testing.T) {
	const n = 5
	for _, c := range clientCases(t) {
		t.Run(c.name, func(t *testing.T) {
			a := must.Get(ParseClient(c.m, c.f))(t)
			in, _ := c.m.Graph.Input("images")
			dims := []int{n, in.Shape[1].Size, in.Shape[2].Size, in.Shape[3].Size}
			pixels, labels := someImages(n, a.Pixels)
			images := onnx.NewTensor(pixels, dims...)
			want := eval(t, c.m, map[string]*onnx.Tensor{"images": images, "labels": onnx.NewTensor(labels, n)})
			h := eval(t, a.Features, map[string]*onnx.Tensor{"images": images})[ValueFeatures].F32()
			embedded := func(labels []int64, class, c int) map[string]*onnx.Tensor {
				set, present := onnx.ZerosF32(1, n, testDx+c), onnx.ZerosF32(1, n)
				for i, y := range labels {
					if row := set.F32()[i*(testDx+c):]; c == testC || y == int64(class) {
						copy(row, h[i*testDx:(i+1)*testDx])
						row[testDx+int(y)-class], present.F32()[i] = 1, 1
					}
				}
				return eval(t, a.Embedding, map[string]*onnx.Tensor{ValueSet: set, ValuePresent: present})
			}
			if !c.f.ClassMeans {
				got := embedded(labels, 0, testC)
				near(t, "points", got["points"], want["points"], 1e-5)
				near(t, "masses", got["masses"], want["masses"], 1e-5)
				return
			}
			k := c.f.PointWidth()
			for y := range testC {
				got := embedded(labels, y, 2)
				near(t, "points", onnx.Vector(got["points"].F32()[:k]...),
					onnx.Vector(want["points"].F32()[y*(k+testC):][:k]...), 1e-5)
				near(t, "masses", onnx.Vector(got["masses"].F32()[0]), onnx.Vector(want["masses"].F32()[y]), 1e-5)
			}
		})
	}
}

// TestParseManyClasses: client graphs come apart on either side of the number of classes whose names
// they store, and behind an extractor without weights.
func TestParseManyClasses(t *testing.T) {
	for _, c := range []int{maxNamed, maxNamed + 1} {
		config := ConjugateConfig{Dx: testDx, C: c, K: 2}
		m := must.Get(NewConjugate(config, drawn(config.shapes())))(t)
		for name, e := range map[string]*onnx.Model{
			"moments":     must.Get(MomentsEmbedding(MomentsConfig{Dx: testDx, C: c, Bytes: 1}))(t),
			"class means": must.Get(ConjugateEmbedding(m, true))(t),
			"coordinates": must.Get(ConjugateEmbedding(m, false))(t),
		} {
			g := fuse(t, name, linearExtractor(t, false, 2), e,
				Preprocessing{Height: 2, Width: 3, Channels: 2, Output: "h"})
			if _, err := ParseClient(g.m, g.f); err != nil {
				t.Errorf("%s of %d classes: %v", name, c, err)
			}
		}
	}
	const side = 20
	b := build.New("pixels")
	b.Output("h", b.Reshape(b.Input("image", onnx.Float32, "n", 1, side, side), 0, side*side))
	g := fuse(t, "pixels", must.Get(b.Model())(t),
		must.Get(MomentsEmbedding(MomentsConfig{Dx: side * side, C: 2, Bytes: 1}))(t),
		Preprocessing{Height: side, Width: side, Channels: 1, Output: "h"})
	must.Get(ParseClient(g.m, g.f))(t)
}

// TestExtractorDigest: one network has one digest, whatever is fused around it and however it is
// named; another has another.
func TestExtractorDigest(t *testing.T) {
	all := clientEmbeddings(t)
	p := Preprocessing{Height: 2, Width: 3, Channels: 2, Output: "h"}
	digest := func(x *onnx.Model, e string, p Preprocessing) string {
		c := fuse(t, e, x, all[e], p)
		a := must.Get(ParseClient(c.m, c.f))(t)
		return a.Extractor
	}
	x := linearExtractor(t, false, 2)
	first := digest(x, "points", p)
	other := p
	other.Mean, other.Std, other.FeatureMean, other.FeatureStd = []float32{0.5, 0.25},
		[]float32{0.5, 2}, []float32{1, 2, 3, 4}, []float32{1, 2, 1, 2}
	renamed := onnx.Clone(x)
	pass.Rename(renamed.Graph, map[string]string{"w": "set", "matmul": "unsqueeze_1"})
	for name, got := range map[string]string{"in another round": digest(x, "private", other),
		"renamed": digest(renamed, "points", p)} {
		if got != first {
			t.Errorf("%s the extractor has digest %s, and had %s", name, got, first)
		}
	}
	for name, change := range map[string]func(*onnx.Model){
		"a weight": func(m *onnx.Model) {
			w := m.Graph.Initializers["w"].Clone()
			w.F32()[7] += 1e-6
			m.Graph.Initializers["w"] = w
		},
		"an operator": func(m *onnx.Model) { m.Graph.Nodes = withNode(m.Graph.Nodes, "h", "Abs") },
		"an attribute": func(m *onnx.Model) {
			m.Graph.Nodes = withNode(m.Graph.Nodes, "h", "LeakyRelu")
			m.Graph.Nodes[len(m.Graph.Nodes)-1].Attrs = []onnx.Attr{onnx.FloatAttr("alpha", 0.5)}
		},
	} {
		y := onnx.Clone(x)
		change(y)
		if got := digest(y, "points", p); got == first {
			t.Errorf("with %s changed the extractor has the same digest", name)
		}
	}
}

// withNode puts an operator behind the one that computes a value.
func withNode(nodes []*onnx.Node, value, op string) []*onnx.Node {
	for _, n := range nodes {
		if n.Outputs[0] == value {
			n.Outputs[0] = value + "_before"
		}
	}
	return append(nodes, &onnx.Node{Name: "new", Op: op, Inputs: []string{value + "_before"},
		Outputs: []string{value}})
}

// TestParseClientRefuses: whatever is changed of what surrounds the extractor, one node, attribute,
// wire or constant at a time, is refused, and the node is named; within the extractor the digest
// changes.
func TestParseClientRefuses(t *testing.T) {
	all := clientEmbeddings(t)
	p := Preprocessing{Height: 2, Width: 3, Channels: 2, Output: "h", Mean: []float32{0.5, 0.25},
		Std:         []float32{0.5, 2},
		FeatureMean: []float32{1, 2, 3, 4}, FeatureStd: []float32{1, 2, 1, 2}}
	for _, name := range []string{"points", "class means, phi true", "private"} {
		c := fuse(t, name, linearExtractor(t, false, 2), all[name], p)
		a := must.Get(ParseClient(c.m, c.f))(t)
		try := func(what string, change func(g *onnx.Graph)) {
			t.Helper()
			m := onnx.Clone(c.m)
			change(m.Graph)
			if b, err := ParseClient(m, c.f); err == nil && b.Extractor == a.Extractor {
				t.Errorf("%s: with %s it comes apart as before", name, what)
			} else if err != nil && !strings.Contains(err.Error(), "fmp fuse") &&
				!strings.Contains(err.Error(), "features") {
				t.Errorf("%s: with %s: %v", name, what, err)
			}
		}
		for i, n := range c.m.Graph.Nodes {
			try("an attribute more of "+n.Name,
				func(g *onnx.Graph) { g.Nodes[i].Attrs = append(g.Nodes[i].Attrs, onnx.IntAttr("to", 7)) })
			for j, in := range n.Inputs {
				try(fmt.Sprintf("input %d of %s negated", j, n.Name), func(g *onnx.Graph) {
					g.Nodes[i].Inputs[j] = "negated"
					g.Nodes = slices.Insert(g.Nodes, i,
						&onnx.Node{Name: "negate", Op: "Neg", Inputs: []string{in},
							Outputs: []string{"negated"}})
				})
			}
			try("a node beside "+n.Name, func(g *onnx.Graph) {
				g.Nodes = append(g.Nodes,
					&onnx.Node{Name: "beside", Op: "Abs", Inputs: []string{n.Outputs[0]},
						Outputs: []string{"beside"}})
			})
		}
		for name, v := range c.m.Graph.Initializers {
			try("another shape of "+name, func(g *onnx.Graph) {
				w := v.Clone()
				w.Shape = append([]int{1}, w.Shape...)
				g.Initializers[name] = w
			})
			if w, ok := v.Clone().Data.([]int64); ok {
				try("another number in "+name, func(g *onnx.Graph) {
					w[0]++
					g.Initializers[name] = onnx.NewTensor(w, v.Shape...)
				})
			}
		}
	}
}

// TestParseClientBranch: an extractor is refused by the node that branches, not by the nodes that its
// branches read.
func TestParseClientBranch(t *testing.T) {
	x := linearExtractor(t, false, 2)
	x.Graph.Nodes = withNode(x.Graph.Nodes, "h", "If")
	x.Graph.Initializers["yes"] = onnx.NewTensor([]bool{true})
	n := x.Graph.Nodes[len(x.Graph.Nodes)-1]
	n.Inputs = []string{"yes"}
	for _, name := range []string{"then_branch", "else_branch"} {
		n.Attrs = append(n.Attrs, onnx.Attr{Name: name, Kind: onnx.AttrGraph, Graph: &onnx.Graph{Name: name,
			Nodes:   []*onnx.Node{{Name: name, Op: "Relu", Inputs: []string{"h_before"}, Outputs: []string{name}}},
			Outputs: []onnx.ValueInfo{{Name: name, DType: onnx.Float32}}}})
	}
	c := fuse(t, "branches", x, clientEmbeddings(t)["points"],
		Preprocessing{Height: 2, Width: 3, Channels: 2, Output: "h"})
	must.Fail(ParseClient(c.m, c.f))(t, `"new" (If) has an attribute`, "a branch")
}

// TestParseClientBounds: sizes that a manifest states are held against the graph before anything of
// these sizes is built.
func TestParseClientBounds(t *testing.T) {
	c := fuse(t, "points", linearExtractor(t, false, 2), clientEmbeddings(t)["points"],
		Preprocessing{Height: 2, Width: 3, Channels: 2, Output: "h"})
	for what, change := range map[string]func(*Manifest){
		"dx":    func(f *Manifest) { f.Dx = 1 << 14 },
		"width": func(f *Manifest) { f.Config = strings.Replace(f.Config, `"dim":`, `"dim":1`, 1) },
		"blocks": func(f *Manifest) {
			f.Config = strings.Replace(f.Config, `"blocks":1`,
				`"blocks":16`, 1)
		},
		"means": func(f *Manifest) { f.ClassMeans, f.C, f.S = true, maxNamed, maxNamed },
	} {
		f := c.f
		change(&f)
		must.Fail(ParseClient(c.m, f))(t, "manifest", what)
	}
}

// TestSteady: networks whose work depends on what is in an image are refused by node.
func TestSteady(t *testing.T) {
	for name, make := range map[string]func(b *build.Builder, x build.Ref) build.Ref{
		"NonZero": func(b *build.Builder, x build.Ref) build.Ref {
			return b.Op("NonZero", []build.Ref{x})
		},
		"Compress": func(b *build.Builder, x build.Ref) build.Ref {
			return b.Op("Compress", []build.Ref{x, b.Cast(b.Slice(b.Reshape(x, -1), 0, 0, 1), onnx.Bool)},
				onnx.IntAttr("axis", 0))
		},
		"Expand": func(b *build.Builder, x build.Ref) build.Ref {
			return b.Op("Expand", []build.Ref{b.F32(1), b.Cast(b.Slice(b.Reshape(x, -1), 0, 0, 2), onnx.Int64)})
		},
		"Slice": func(b *build.Builder, x build.Ref) build.Ref {
			end := b.Cast(b.Slice(b.Reshape(x, -1), 0, 0, 1), onnx.Int64)
			return b.Op("Slice", []build.Ref{x, b.Axes(0), end, b.Axes(1)})
		},
		"RandomNormalLike": func(b *build.Builder, x build.Ref) build.Ref {
			return b.Op("RandomNormalLike", []build.Ref{x})
		},
		"Mod": func(b *build.Builder, x build.Ref) build.Ref { // loops for each bit of a quotient
			return b.Op("Mod", []build.Ref{x, b.F32(1e-30)}, onnx.IntAttr("fmod", 1))
		},
		"Div": func(b *build.Builder, x build.Ref) build.Ref { // of whole numbers
			k := b.Cast(x, onnx.Int64)
			return b.Op("Div", []build.Ref{k, b.Op("Add", []build.Ref{k, b.Axes(3)})})
		},
		"Sin": func(b *build.Builder, x build.Ref) build.Ref { return b.Op("Sin", []build.Ref{x}) },
		"String": func(b *build.Builder, x build.Ref) build.Ref {
			return b.Cast(b.Cast(x, onnx.String), onnx.Float32)
		},
		"Pow": func(b *build.Builder, x build.Ref) build.Ref { return b.Op("Pow", []build.Ref{x, x}) },
		"Gather": func(b *build.Builder, x build.Ref) build.Ref {
			return b.Op("Gather", []build.Ref{x, b.Cast(x, onnx.Int64)}, onnx.IntAttr("axis", 1))
		},
		// an index out of range would be an error for one image
		"GatherElements": func(b *build.Builder, x build.Ref) build.Ref {
			return b.Op("GatherElements", []build.Ref{x, b.Cast(x, onnx.Int64)}, onnx.IntAttr("axis", 1))
		},
		// the axis says over how far apart numbers are added
		"CumSum": func(b *build.Builder, x build.Ref) build.Ref {
			return b.Op("CumSum", []build.Ref{x,
				b.Cast(b.Op("ReduceMax", []build.Ref{x}, onnx.BoolAttr("keepdims", false)),
					onnx.Int64)})
		},
		"Trilu": func(b *build.Builder, x build.Ref) build.Ref { // the diagonal says how much is copied
			return b.Op("Trilu", []build.Ref{x,
				b.Cast(b.Op("ReduceMax", []build.Ref{x}, onnx.BoolAttr("keepdims", false)),
					onnx.Int64)})
		},
		"of another domain": func(b *build.Builder, x build.Ref) build.Ref {
			return b.Op("Relu", []build.Ref{x})
		},
	} {
		b := build.New("net")
		b.Output("features", make(b, b.Input("x", onnx.Float32, "n", 4)))
		m := must.Get(b.Model())(t)
		if strings.HasSuffix(name, "domain") {
			m.Graph.Nodes[0].Domain, m.Opsets["strange"] = "strange", 1
		}
		must.Fail(Steady(m))(t, "must not depend on what is in an image", name)
	}
	b := build.New("net")
	x := b.Input("x", onnx.Float32, "n", 4)
	b.Output("features", b.Reshape(x, 0, 2, 2))
	m := must.Get(b.Model())(t)
	must.Do(t, Steady(m))
	body := &onnx.Graph{Name: "then", Outputs: []onnx.ValueInfo{{Name: "x", DType: onnx.Float32}}}
	m.Graph.Nodes = append(m.Graph.Nodes,
		&onnx.Node{Name: "if", Op: "If", Inputs: []string{"x"}, Outputs: []string{"y"},
			Attrs: []onnx.Attr{{Name: "then_branch", Kind: onnx.AttrGraph, Graph: body},
				{Name: "else_branch", Kind: onnx.AttrGraph, Graph: body}}})
	must.Fail(Steady(m))(t, "", "a branch is taken for steady")
}

// TestSteadyRegistry: of all operators that there are, in every version and domain, only those of
// the list see pixels, and each of the list is one, listed once and with a reason; behind others,
// and behind those that draw random numbers, nothing runs. The list has no integer parameter that
// follows from pixels.
func TestSteadyRegistry(t *testing.T) {
	listed, seen := 0, func() map[string]bool { return map[string]bool{"pixels": true} }
	for _, r := range reasons {
		listed += len(r.operators)
		if len(strings.Fields(r.why)) < 3 {
			t.Errorf("%v are listed because they are %q", r.operators, r.why)
		}
		for _, o := range r.operators {
			if op.Last("", o, onnx.MaxOpset) == nil {
				t.Errorf("%s is no operator", o)
			}
		}
	}
	if listed != len(steady) {
		t.Errorf("%d operators are listed, %d of them once", listed, len(steady))
	}
	refused, parameters := 0, 0
	for _, domain := range []string{"", "com.microsoft", "ai.onnx.ml", "ai.onnx.preview.training"} {
		for _, name := range op.Names(domain) {
			for _, s := range op.Versions(domain, name) {
				n := &onnx.Node{Op: name, Domain: domain, Inputs: []string{"pixels"}, Outputs: []string{"y"}}
				err := steadyNode(n, s, seen(), map[string]onnx.ValueInfo{"pixels": {DType: onnx.Float32}})
				if may := domain == "" && steady[name] != ""; may != (err == nil) {
					t.Errorf("%s of %q from version %d: listed %v, error %v", name, domain, s.Since, may, err)
				} else if !may {
					refused++
					continue
				}
				for i, p := range s.In {
					if !wholeNumbers(s, i) {
						continue
					}
					parameters++
					n.Inputs = make([]string, i+1)
					n.Inputs[i] = "pixels"
					must.Fail(steadyNode(n, s, seen(),
						map[string]onnx.ValueInfo{"pixels": {DType: onnx.Int64}}))(t, "", name, p.Name)
				}
			}
		}
	}
	if refused < 100 || parameters < 20 {
		t.Errorf("%d versions of operators are refused, and %d parameters", refused, parameters)
	}
}

// FuzzParseClient: a model of any kind is refused, or comes apart into parts that are models.
func FuzzParseClient(f *testing.F) {
	e := must.Get(NewEmbedding(EmbeddingConfig{Dx: 2, C: 2}, 1))(f)
	c := ConjugateConfig{Dx: 2, K: 1}
	private := must.Get(PrivateEmbedding(must.Get(NewPrivate(c, drawn(c.private())))(f), 2, nil))(f)
	for _, e := range []*onnx.Model{e, private} {
		b := build.New("extractor")
		b.Output("h", b.Op("GlobalAveragePool", []build.Ref{b.Input("x", onnx.Float32, "n", 2, 2, 2)}))
		x := must.Get(b.Model())(f)
		man := must.Get(ReadManifest(e))(f)
		m := must.Get(ClientGraph(x, Manifest{}, e, man,
			Preprocessing{Height: 2, Width: 2, Channels: 2, Mean: []float32{0, 0},
				Std: []float32{1, 1}}))(f)
		data := must.Get(serde.Marshal(m))(f)
		f.Add(data)
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		m, err := serde.Unmarshal(data)
		if err != nil || m.Graph == nil {
			return
		}
		man, err := ReadManifest(m)
		if err != nil {
			return
		}
		a, err := ParseClient(m, man)
		if err != nil {
			return
		}
		for _, part := range []*onnx.Model{a.Features, a.Embedding} {
			must.Do(t, check.Model(part))
		}
		if len(a.Extractor) != 64 || a.Nodes < 1 {
			t.Fatalf("%+v", a)
		}
	})
}
