//go:build cgo

package pass_test

import (
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"testing"

	"fmp/onnx"
	"fmp/onnx/check"
	"fmp/onnx/conformance"
	"fmp/onnx/engine/ort/orttest"
	"fmp/onnx/internal/modeltest"
	"fmp/onnx/must"
	"fmp/onnx/pass"
	"fmp/onnx/serde"
	"fmp/onnx/shape"
)

// These tests compare models before and after a rewriting, and inferred with actual types, on the
// ONNX Runtime; they are skipped where its library is not found.

func compareTensors(t *testing.T, name string, got, want *onnx.Tensor) {
	t.Helper()
	tolerance := conformance.Tolerance{}
	if want.DType.IsFloat() {
		tolerance = conformance.Tolerance{Absolute: 1e-5, Relative: 1e-5}
	}
	if err := conformance.Compare(got, want, tolerance); err != nil {
		t.Errorf("%s %v", name, err)
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
	v := func(f ...float32) *onnx.Tensor { return onnx.Vector(f...) }
	type inits = map[string]*onnx.Tensor
	for _, tc := range []struct {
		opset                     int
		op, in, reads, out, attrs string
		inits                     inits
	}{
		{7, "Slice", "x:float32[5,n]", "x", "y0", "starts=1 ends=4 axes=0", nil},
		{7, "Slice", "x:float32[5,4]", "x", "y0", "starts=1,-2 ends=100,-1", nil},
		{7, "TopK", "x:float32[2,6]", "x", "y0 y1", "k=3", nil},
		{7, "Upsample", "x:float32[n,2,3,3]", "x", "y0", "scales=1,1,2,2 mode=nearest", nil},
		{7, "Upsample", "x:float32[n,2,3,3]", "x", "y0", "scales=1,1,2,2 mode=linear", nil},
		{9, "Upsample", "x:float32[1,2,3,3]", "x s", "y0", "", inits{"s": v(1, 1, 3, 2)}},
		{10, "Resize", "x:float32[1,2,3,3]", "x s", "y0", "", inits{"s": v(1, 1, 2, 2)}},
		{10, "Resize", "x:float32[1,2,6,6]", "x s", "y0", "mode=linear", inits{"s": v(1, 1, 0.5, 0.5)}},
		{7, "Dropout", "x:float32[n,4]", "x", "y0", "ratio=0.3", nil},
		{7, "Clip", "x:float32[n,4]", "x", "y0", "min=-0.5 max=1", nil},
		{7, "Clip", "x:float32[n,4]", "x", "y0", "min=0 max=3.4028235e38", nil},
		{7, "Pad", "x:float32[2,n]", "x", "y0", "pads=0,1,2,0 value=3", nil},
		{7, "Pad", "x:float32[1,4]", "x", "y0", "pads=0,1,0,2 mode=reflect", nil},
		{9, "Scatter", "x:float32[3] u:float32[2]", "x i u", "y0", "", inits{"i": onnx.Vector[int64](2, 0)}},
		{11, "Softmax", "x:float32[n,3,2,2]", "x", "y0", "", nil},
		{9, "Softmax", "x:float32[2,3,4]", "x", "y0", "axis=2", nil},
		{11, "LogSoftmax", "x:float32[n,3,4]", "x", "y0", "axis=-1", nil},
		{11, "LogSoftmax", "x:float32[n,3,4]", "x", "y0", "axis=0", nil},
		{11, "Hardmax", "x:float32[n,3,4]", "x", "y0", "", nil},
		{11, "Squeeze", "x:float32[n,1,4]", "x", "y0", "axes=1", nil},
		{11, "Squeeze", "x:float32[3,1,4]", "x", "y0", "", nil},
		{11, "Unsqueeze", "x:float32[n,4]", "x", "y0", "axes=0,-1", nil},
		{11, "ReduceSum", "x:float32[n,4,3]", "x", "y0", "axes=1 keepdims=0", nil},
		{11, "ReduceSum", "x:float32[n,4,3]", "x", "y0", "", nil},
		{17, "ReduceMean", "x:float32[n,4,3]", "x", "y0", "axes=1,2", nil},
		{11, "Split", "x:float32[6,n]", "x", "y0 y1", "split=1,5", nil},
		{11, "Split", "x:float32[6,n]", "x", "y0 y1 y2", "", nil},
		{7, "BatchNormalization", "x:float32[n,2,3]", "x a b c d", "y0", "",
			inits{"a": v(1, 2), "b": v(3, 4), "c": v(.1, .2), "d": v(1, .5)}},
		{16, "GridSample", "x:float32[1,2,3,3] g:float32[1,2,2,2]", "x g", "y0", "mode=bilinear", nil},
		{17, "DFT", "x:float32[1,3,4,1]", "x", "y0", "", nil},
		{7, "PRelu", "x:float32[n,3,2]", "x s", "y0", "",
			inits{"s": onnx.NewTensor([]float32{.1, .2, .3}, 3, 1)}},
		{7, "AveragePool", "x:float32[n,1,5,5]", "x", "y0", "kernel_shape=3,3 pads=1,1,1,1", nil},
		{10, "RoiAlign", "x:float32[1,1,6,6]", "x r i", "y0", "",
			inits{"r": onnx.NewTensor([]float32{0, 0, 4, 3}, 1, 4), "i": onnx.Vector[int64](0)}},
	} {
		for _, to := range []int{17, 21} {
			if to == tc.opset {
				continue
			}
			t.Run(fmt.Sprintf("%s[%s] from %d to %d", tc.op, tc.attrs, tc.opset, to), func(t *testing.T) {
				n := modeltest.Node(tc.op, tc.reads, tc.out, modeltest.Attrs(tc.op, tc.opset, tc.attrs)...)
				m := onnx.NewModel(modeltest.Graph(tc.in, tc.out, tc.inits, n))
				m.Opsets[""] = int64(tc.opset)
				must.Do(t, shape.Infer(m))
				feeds := modeltest.Feeds(t, m, rand.New(rand.NewPCG(1, 2)), 0)
				want := modeltest.Eval(t, e, m, feeds)
				up := onnx.Clone(m)
				must.Do(t, pass.Upgrade(up, to))
				if up.Opset() != int64(to) || m.Opset() != int64(tc.opset) {
					t.Fatalf("operator sets are %d and %d", up.Opset(), m.Opset())
				}
				must.Do(t, shape.Infer(up))
				must.Do(t, check.Model(up))
				got := modeltest.Eval(t, e, up, feeds)
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
		{"a type that was taken away", 27, func(n *onnx.Node) {
			n.Op, n.Inputs = "ReduceLogSum", []string{"ints"}
		}, "ReduceLogSum"},
		{"nearest shrinking", 10,
			func(n *onnx.Node) { n.Op = "Resize"; n.Inputs = []string{"x", "scales"} }, "Resize"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			n := modeltest.Node("Relu", "x w w w w", "y")
			n.Name = "node"
			tc.spoil(n)
			m := onnx.NewModel(modeltest.Graph("x:float32[1,2,4,4]", "y:float32", map[string]*onnx.Tensor{
				"w": onnx.Vector[float32](1, 2), "ints": onnx.Vector[int64](1, 2),
				"scales": onnx.Vector[float32](1, 1, .5, .5)}, n))
			m.Opsets[""] = int64(tc.opset)
			err := pass.Upgrade(m, max(17, tc.opset+1))
			must.Fail(err)(t, tc.want)
			must.Fail(err)(t, `"node"`)
			if m.Opset() != int64(tc.opset) {
				t.Error("the model was changed")
			}
		})
	}
	m := onnx.NewModel(modeltest.Graph("", "", nil))
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
			feeds := modeltest.Feeds(t, m, rand.New(rand.NewPCG(1, 2)), 0)
			want := modeltest.Eval(t, e, m, feeds)

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
			actual := modeltest.Eval(t, e, all, feeds)
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
			for name, got := range modeltest.Eval(t, e, small, feeds) {
				compareTensors(t, name, got, want[name])
			}
			if m.Opset() < 17 {
				must.Do(t, pass.Upgrade(small, 17))
				for name, got := range modeltest.Eval(t, e, small, feeds) {
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
	own := func(op, in, out string, attrs ...onnx.Attr) *onnx.Node {
		n := modeltest.Node(op, in, out, attrs...)
		n.Domain = "own"
		return n
	}
	opsets := map[string]int64{"": 17, "own": 1}
	leak := &onnx.Function{Domain: "own", Name: "leak", Inputs: []string{"a"}, Outputs: []string{"b"},
		Attributes: []string{"alpha"},
		Opsets:     opsets,
		Nodes:      []*onnx.Node{modeltest.Node("LeakyRelu", "a", "b", ref("alpha"))}}
	twice := &onnx.Function{Domain: "own", Name: "twice", Inputs: []string{"b"},
		Outputs:  []string{"d", "c"},
		Defaults: []onnx.Attr{onnx.FloatAttr("alpha", 0.5)}, Opsets: opsets,
		Nodes: []*onnx.Node{own("leak", "b", "c", ref("alpha")), own("leak", "c", "e"),
			modeltest.Node("Add", "c e", "d")}}
	m := onnx.NewModel(modeltest.Graph("b:float32[3]", "y:float32[3] c:float32[3]", nil,
		own("twice", "b", "x", onnx.FloatAttr("alpha", 0.25)), own("twice", "x", "y c")))
	m.Opsets["own"] = 1
	m.Functions = []*onnx.Function{leak, twice}
	must.Do(t, check.Model(m))
	got := modeltest.Eval(t, e, m, map[string]*onnx.Tensor{"b": onnx.Vector[float32](-4, 0, 2)})
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
