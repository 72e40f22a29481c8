//go:build cgo

package pass_test

import (
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"fmp/onnx"
	"fmp/onnx/check"
	"fmp/onnx/engine"
	"fmp/onnx/engine/ort/orttest"
	"fmp/onnx/must"
	"fmp/onnx/pass"
	"fmp/onnx/serde"
	"fmp/onnx/shape"
)

// These tests compare models before and after a rewriting, and inferred with actual types, on the
// ONNX Runtime; they are skipped where its library is not found.

// feedsFor draws inputs; a symbol has the same size wherever it stands.
func feedsFor(t *testing.T, m *onnx.Model, r *rand.Rand) map[string]*onnx.Tensor {
	t.Helper()
	sizes := map[string]int{}
	feeds := map[string]*onnx.Tensor{}
	for _, in := range m.Graph.Inputs {
		shape := make([]int, len(in.Shape))
		for i, d := range in.Shape {
			if shape[i] = d.Size; !d.IsKnown() {
				if _, ok := sizes[d.Symbol]; !ok {
					sizes[d.Symbol] = 2 + r.IntN(4)
				}
				shape[i] = sizes[d.Symbol]
			}
		}
		x := must.Get(onnx.Zeros(in.DType, shape...))(t)
		switch d := x.Data.(type) {
		case []float32:
			for i := range d {
				d[i] = r.Float32()*4 - 2
			}
		case []int64:
			for i := range d {
				d[i] = r.Int64N(2)
			}
		case []bool:
			for i := range d {
				d[i] = r.IntN(2) == 0
			}
		default:
			t.Fatalf("input %q is of type %v", in.Name, in.DType)
		}
		feeds[in.Name] = x
	}
	return feeds
}

func evaluateAll(t *testing.T, e engine.Engine, m *onnx.Model,
	feeds map[string]*onnx.Tensor) map[string]*onnx.Tensor {
	t.Helper()
	s := must.Get(e.Load(m))(t)
	defer s.Close()
	return must.Get(engine.Eval(s, feeds))(t)
}

func compareTensors(t *testing.T, name string, got, want *onnx.Tensor) {
	t.Helper()
	if fmt.Sprint(got.DType, got.Shape) != fmt.Sprint(want.DType, want.Shape) {
		t.Errorf("%s is %v, was %v", name, got, want)
		return
	}
	if w := want.F32(); w != nil {
		for i, g := range got.F32() {
			if d := math.Abs(float64(g - w[i])); !(d <= 1e-5*(1+math.Abs(float64(w[i])))) {
				t.Errorf("%s[%d] is %v, was %v", name, i, g, w[i])
				return
			}
		}
		return
	}
	if fmt.Sprint(got.Data) != fmt.Sprint(want.Data) {
		t.Errorf("%s is %v, was %v", name, got.Data, want.Data)
	}
}

// fits reports whether a tensor has an inferred type; symbols are checked against each other by
// meaning.
func fits(v onnx.ValueInfo, x *onnx.Tensor) error {
	shape := make([]any, len(x.Shape))
	for i, d := range x.Shape {
		shape[i] = d
	}
	return onnx.Conflicts(v, onnx.ValueInfo{DType: x.DType, Shape: onnx.Shape(shape...)})
}

func TestUpgradeKeepsResults(t *testing.T) {
	e := orttest.New(t)
	type node struct {
		opset int
		op    string
		in    []onnx.ValueInfo
		inits map[string]*onnx.Tensor
		attrs []onnx.Attr
		reads []string
		outs  int
	}
	x := func(dims ...any) []onnx.ValueInfo {
		return []onnx.ValueInfo{{Name: "x", DType: onnx.Float32, Shape: onnx.Shape(dims...)}}
	}
	v := func(f ...float32) *onnx.Tensor { return onnx.Vector(f...) }
	for _, tc := range []node{
		{opset: 7, op: "Slice", in: x(5, "n"),
			attrs: []onnx.Attr{onnx.IntsAttr("starts", 1), onnx.IntsAttr("ends", 4),
				onnx.IntsAttr("axes", 0)}},
		{opset: 7, op: "Slice", in: x(5, 4),
			attrs: []onnx.Attr{onnx.IntsAttr("starts", 1, -2), onnx.IntsAttr("ends", 100, -1)}},
		{opset: 7, op: "TopK", in: x(2, 6), attrs: []onnx.Attr{onnx.IntAttr("k", 3)}, outs: 2},
		{opset: 7, op: "Upsample", in: x("n", 2, 3, 3),
			attrs: []onnx.Attr{onnx.FloatsAttr("scales", 1, 1, 2, 2), onnx.StrAttr("mode", "nearest")}},
		{opset: 7, op: "Upsample", in: x("n", 2, 3, 3),
			attrs: []onnx.Attr{onnx.FloatsAttr("scales", 1, 1, 2, 2), onnx.StrAttr("mode", "linear")}},
		{opset: 9, op: "Upsample", in: x(1, 2, 3, 3),
			inits: map[string]*onnx.Tensor{"s": v(1, 1, 3, 2)},
			reads: []string{"x", "s"}},
		{opset: 10, op: "Resize", in: x(1, 2, 3, 3), inits: map[string]*onnx.Tensor{"s": v(1, 1, 2, 2)},
			reads: []string{"x", "s"}},
		{opset: 10, op: "Resize", in: x(1, 2, 6, 6),
			inits: map[string]*onnx.Tensor{"s": v(1, 1, 0.5, 0.5)}, reads: []string{"x", "s"},
			attrs: []onnx.Attr{onnx.StrAttr("mode", "linear")}},
		{opset: 7, op: "Dropout", in: x("n", 4), attrs: []onnx.Attr{onnx.FloatAttr("ratio", 0.3)}},
		{opset: 7, op: "Clip", in: x("n", 4),
			attrs: []onnx.Attr{onnx.FloatAttr("min", -0.5), onnx.FloatAttr("max", 1)}},
		{opset: 7, op: "Clip", in: x("n", 4),
			attrs: []onnx.Attr{onnx.FloatAttr("min", 0), onnx.FloatAttr("max", math.MaxFloat32)}},
		{opset: 7, op: "Pad", in: x(2, "n"),
			attrs: []onnx.Attr{onnx.IntsAttr("pads", 0, 1, 2, 0), onnx.FloatAttr("value", 3)}},
		{opset: 7, op: "Pad", in: x(1, 4),
			attrs: []onnx.Attr{onnx.IntsAttr("pads", 0, 1, 0, 2), onnx.StrAttr("mode", "reflect")}},
		{opset: 9, op: "Scatter",
			in:    append(x(3), onnx.ValueInfo{Name: "u", DType: onnx.Float32, Shape: onnx.Shape(2)}),
			inits: map[string]*onnx.Tensor{"i": onnx.Vector[int64](2, 0)},
			reads: []string{"x", "i", "u"}},
		{opset: 11, op: "Softmax", in: x("n", 3, 2, 2)},
		{opset: 9, op: "Softmax", in: x(2, 3, 4), attrs: []onnx.Attr{onnx.IntAttr("axis", 2)}},
		{opset: 11, op: "LogSoftmax", in: x("n", 3, 4), attrs: []onnx.Attr{onnx.IntAttr("axis", -1)}},
		{opset: 11, op: "LogSoftmax", in: x("n", 3, 4), attrs: []onnx.Attr{onnx.IntAttr("axis", 0)}},
		{opset: 11, op: "Hardmax", in: x("n", 3, 4)},
		{opset: 11, op: "Squeeze", in: x("n", 1, 4), attrs: []onnx.Attr{onnx.IntsAttr("axes", 1)}},
		{opset: 11, op: "Squeeze", in: x(3, 1, 4)},
		{opset: 11, op: "Unsqueeze", in: x("n", 4), attrs: []onnx.Attr{onnx.IntsAttr("axes", 0, -1)}},
		{opset: 11, op: "ReduceSum", in: x("n", 4, 3),
			attrs: []onnx.Attr{onnx.IntsAttr("axes", 1), onnx.IntAttr("keepdims", 0)}},
		{opset: 11, op: "ReduceSum", in: x("n", 4, 3)},
		{opset: 17, op: "ReduceMean", in: x("n", 4, 3), attrs: []onnx.Attr{onnx.IntsAttr("axes", 1, 2)}},
		{opset: 11, op: "Split", in: x(6, "n"), attrs: []onnx.Attr{onnx.IntsAttr("split", 1, 5)},
			outs: 2},
		{opset: 11, op: "Split", in: x(6, "n"), outs: 3},
		{opset: 7, op: "BatchNormalization", in: x("n", 2, 3),
			inits: map[string]*onnx.Tensor{"a": v(1, 2), "b": v(3, 4), "c": v(.1, .2), "d": v(1, .5)},
			reads: []string{"x", "a", "b", "c", "d"}},
		{opset: 16, op: "GridSample",
			in: append(x(1, 2, 3, 3),
				onnx.ValueInfo{Name: "g", DType: onnx.Float32, Shape: onnx.Shape(1, 2, 2, 2)}),
			reads: []string{"x", "g"}, attrs: []onnx.Attr{onnx.StrAttr("mode", "bilinear")}},
		{opset: 7, op: "PRelu", in: x("n", 3, 2),
			inits: map[string]*onnx.Tensor{"s": onnx.NewTensor([]float32{.1, .2, .3}, 3, 1)},
			reads: []string{"x", "s"}},
		{opset: 7, op: "AveragePool", in: x("n", 1, 5, 5),
			attrs: []onnx.Attr{onnx.IntsAttr("kernel_shape", 3, 3), onnx.IntsAttr("pads", 1, 1, 1, 1)}},
		{opset: 10, op: "RoiAlign", in: x(1, 1, 6, 6),
			inits: map[string]*onnx.Tensor{"r": onnx.NewTensor([]float32{0, 0, 4, 3}, 1, 4),
				"i": onnx.Vector[int64](0)}, reads: []string{"x", "r", "i"}},
	} {
		for _, to := range []int{17, 21} {
			if to == tc.opset {
				continue
			}
			t.Run(fmt.Sprintf("%s%v from %d to %d", tc.op, tc.attrs, tc.opset, to), func(t *testing.T) {
				n := &onnx.Node{Name: "node", Op: tc.op, Inputs: tc.reads, Attrs: tc.attrs}
				if n.Inputs == nil {
					n.Inputs = []string{"x"}
				}
				g := &onnx.Graph{Name: tc.op, Inputs: tc.in, Initializers: tc.inits, Nodes: []*onnx.Node{n}}
				if g.Initializers == nil {
					g.Initializers = map[string]*onnx.Tensor{}
				}
				for i := range max(tc.outs, 1) {
					n.Outputs = append(n.Outputs, fmt.Sprint("y", i))
					g.Outputs = append(g.Outputs, onnx.ValueInfo{Name: fmt.Sprint("y", i)})
				}
				m := onnx.NewModel(g)
				m.Opsets[""] = int64(tc.opset)
				must.Do(t, shape.Infer(m))
				feeds := feedsFor(t, m, rand.New(rand.NewPCG(1, 2)))
				want := evaluateAll(t, e, m, feeds)
				up := onnx.Clone(m)
				must.Do(t, pass.Upgrade(up, to))
				if up.Opset() != int64(to) || m.Opset() != int64(tc.opset) {
					t.Fatalf("operator sets are %d and %d", up.Opset(), m.Opset())
				}
				must.Do(t, shape.Infer(up))
				must.Do(t, check.Model(up))
				got := evaluateAll(t, e, up, feeds)
				for name := range want {
					compareTensors(t, name, got[name], want[name])
					o, _ := up.Graph.Output(name)
					if err := fits(o, got[name]); err != nil {
						t.Errorf("%s was inferred as %v: %v", name, o, err)
					}
				}
			})
		}
	}
}

func TestUpgradeRefusesByName(t *testing.T) {
	for _, tc := range []struct {
		name  string
		opset int
		spoil func(n *onnx.Node)
		want  string
	}{
		{"an unknown operator", 11, func(n *onnx.Node) { n.Op = "StringNormalizer" }, "StringNormalizer"},
		{"statistics of training", 13,
			func(n *onnx.Node) { n.Op = "BatchNormalization"; n.Outputs = append(n.Outputs, "mean") },
			"statistics of training"},
		{"nearest shrinking", 10,
			func(n *onnx.Node) { n.Op = "Resize"; n.Inputs = []string{"x", "scales"} }, "Resize"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			n := &onnx.Node{Name: "node", Op: "Relu", Inputs: []string{"x", "w", "w", "w", "w"},
				Outputs: []string{"y"}}
			tc.spoil(n)
			m := onnx.NewModel(&onnx.Graph{Name: "g", Nodes: []*onnx.Node{n},
				Inputs:  []onnx.ValueInfo{{Name: "x", DType: onnx.Float32, Shape: onnx.Shape(1, 2, 4, 4)}},
				Outputs: []onnx.ValueInfo{{Name: "y", DType: onnx.Float32}},
				Initializers: map[string]*onnx.Tensor{"w": onnx.Vector[float32](1, 2),
					"scales": onnx.Vector[float32](1, 1, .5, .5)},
			})
			m.Opsets[""] = int64(tc.opset)
			err := pass.Upgrade(m, 17)
			if err == nil || !strings.Contains(err.Error(), tc.want) ||
				!strings.Contains(err.Error(), `"node"`) {
				t.Errorf("error is %v", err)
			}
			if m.Opset() != int64(tc.opset) {
				t.Error("the model was changed")
			}
		})
	}
	m := onnx.NewModel(&onnx.Graph{Name: "g", Initializers: map[string]*onnx.Tensor{}})
	for v := int64(18); v <= 21; v++ {
		m.Opsets[""] = v
		if err := pass.Upgrade(m, 17); err != nil || m.Opset() != v {
			t.Errorf("operator set %d became %d: %v", v, m.Opset(), err)
		}
	}
}

// Every value of the drop-in extractors has the type that was inferred, and simplifying keeps the
// results.
func TestDropInModels(t *testing.T) {
	dirs := []string{filepath.Join("..", "shared", "models"),
		filepath.Join("..", "..", "shared", "models")}
	if dir := os.Getenv("FMP_MODELS"); dir != "" {
		dirs = []string{dir}
	}
	var paths []string
	for _, dir := range dirs {
		found := must.Get(filepath.Glob(filepath.Join(dir, "*.onnx")))(t)
		paths = append(paths, found...)
	}
	if len(paths) == 0 {
		t.Skip("no models in $FMP_MODELS, nor in shared/models of the repository or beside it")
	}
	e := orttest.New(t)
	for _, path := range paths {
		t.Run(filepath.Base(path), func(t *testing.T) {
			m := must.Get(serde.Load(path))(t)
			must.Do(t, pass.Inline(m))
			must.Do(t, shape.Infer(m))
			must.Do(t, check.Model(m))
			feeds := feedsFor(t, m, rand.New(rand.NewPCG(1, 2)))
			want := evaluateAll(t, e, m, feeds)

			all := onnx.Clone(m)
			have := map[string]bool{}
			for _, o := range all.Graph.Outputs {
				have[o.Name] = true
			}
			for _, v := range all.Graph.Values {
				if !have[v.Name] {
					all.Graph.Outputs = append(all.Graph.Outputs, v)
				}
			}
			actual := evaluateAll(t, e, all, feeds)
			symbols := map[string]int{}
			for _, v := range append(m.Graph.Inputs, all.Graph.Outputs...) {
				x := actual[v.Name]
				if x == nil {
					x = feeds[v.Name]
				}
				if err := fits(v, x); err != nil {
					t.Errorf("%s was inferred as %v and is %v: %v", v.Name, v, x, err)
					continue
				}
				for i, d := range v.Shape {
					if d.Symbol == "" {
						continue
					}
					if n, ok := symbols[d.Symbol]; ok && n != x.Shape[i] {
						t.Errorf("%s: %s is %d and elsewhere %d", v.Name, d.Symbol, x.Shape[i], n)
					}
					symbols[d.Symbol] = x.Shape[i]
				}
			}

			small := onnx.Clone(m)
			must.Do(t, pass.Simplify(small))
			must.Do(t, check.Model(small))
			t.Logf("%d nodes, simplified %d", len(m.Graph.Nodes), len(small.Graph.Nodes))
			for name, got := range evaluateAll(t, e, small, feeds) {
				compareTensors(t, name, got, want[name])
			}
			if m.Opset() < 17 {
				must.Do(t, pass.Upgrade(small, 17))
				for name, got := range evaluateAll(t, e, small, feeds) {
					compareTensors(t, name, got, want[name])
				}
			}
		})
	}
}

// Inlined functions compute what their bodies say. One calls the other, with attributes that are
// given, defaulted and left out, and a call leaves out an output.
func TestInliningComputesTheFunctions(t *testing.T) {
	e := orttest.New(t)
	ref := func(name string) onnx.Attr { return onnx.Attr{Name: name, Kind: onnx.AttrFloat, Ref: "alpha"} }
	node := func(op, domain string, in, out string, attrs ...onnx.Attr) *onnx.Node {
		return &onnx.Node{Op: op, Domain: domain, Inputs: strings.Fields(in),
			Outputs: strings.Fields(out), Attrs: attrs}
	}
	opsets := map[string]int64{"": 17, "own": 1}
	leak := &onnx.Function{Domain: "own", Name: "leak", Inputs: []string{"a"}, Outputs: []string{"b"},
		Attributes: []string{"alpha"},
		Opsets:     opsets,
		Nodes:      []*onnx.Node{node("LeakyRelu", "", "a", "b", ref("alpha"))}}
	twice := &onnx.Function{Domain: "own", Name: "twice", Inputs: []string{"b"},
		Outputs:  []string{"d", "c"},
		Defaults: []onnx.Attr{onnx.FloatAttr("alpha", 0.5)}, Opsets: opsets,
		Nodes: []*onnx.Node{node("leak", "own", "b", "c", ref("alpha")), node("leak", "own", "c", "e"),
			node("Add", "", "c e", "d")}}
	m := onnx.NewModel(&onnx.Graph{Name: "calls", Initializers: map[string]*onnx.Tensor{},
		Inputs: []onnx.ValueInfo{{Name: "b", DType: onnx.Float32, Shape: onnx.Shape(3)}},
		Outputs: []onnx.ValueInfo{{Name: "y", DType: onnx.Float32, Shape: onnx.Shape(3)},
			{Name: "c", DType: onnx.Float32, Shape: onnx.Shape(3)}},
		Nodes: []*onnx.Node{
			node("twice", "own", "b", "x", onnx.FloatAttr("alpha", 0.25)),
			node("twice", "own", "x", "y c"),
		}})
	m.Opsets["own"] = 1
	m.Functions = []*onnx.Function{leak, twice}
	must.Do(t, check.Model(m))
	got := evaluateAll(t, e, m, map[string]*onnx.Tensor{"b": onnx.Vector[float32](-4, 0, 2)})
	leaky := func(x, alpha float32) float32 {
		if x < 0 {
			return alpha * x
		}
		return x
	}
	double := func(b, alpha float32) (d, c float32) {
		c = leaky(b, alpha)
		return c + leaky(c, 0.01), c // the operator's own default
	}
	y, c := make([]float32, 3), make([]float32, 3)
	for i, b := range []float32{-4, 0, 2} {
		x, _ := double(b, 0.25)
		y[i], c[i] = double(x, 0.5)
	}
	compareTensors(t, "y", got["y"], onnx.Vector(y...))
	compareTensors(t, "c", got["c"], onnx.Vector(c...))
	if len(m.Functions) != 2 {
		t.Error("the caller's model was changed")
	}
}
