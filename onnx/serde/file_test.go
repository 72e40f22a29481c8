package serde

import (
	"errors"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"google.golang.org/protobuf/proto"

	"fmp/onnx"
	"fmp/onnx/alloctest"
	"fmp/onnx/build"
	"fmp/onnx/check"
	"fmp/onnx/inspect"
	"fmp/onnx/internal/modeltest"
	"fmp/onnx/must"
	"fmp/onnx/onnxpb"
	"fmp/onnx/pass"
	"fmp/onnx/shape"
)

// everything is a model with every kind of attribute, tensor and structure that is written.
func everything(t testing.TB) *onnx.Model {
	t.Helper()
	b := build.New("everything")
	x := b.Input("x", onnx.Float32, "batch", "n", 4)
	flag := b.Input("flag", onnx.Bool)
	var tensors []*onnx.Tensor
	for d := onnx.Float32; d <= onnx.BFloat16; d++ {
		if !d.Known() {
			continue
		}
		z := must.Get(onnx.Zeros(d, 2, 0))(t)
		y := must.Get(onnx.Zeros(d, 3))(t)
		tensors = append(tensors, z, y)
		b.Param("empty_"+d.String(), z)
		b.Param("param_"+d.String(), y)
	}
	b.Param("strings", onnx.Vector("a", "", "ü"))
	b.Param("extremes", onnx.Vector(math.Inf(1), math.Inf(-1), math.MaxFloat64,
		math.SmallestNonzeroFloat64))
	branch := func(op string) *onnx.Graph {
		return &onnx.Graph{Name: op, Initializers: map[string]*onnx.Tensor{},
			Nodes:   []*onnx.Node{{Op: op, Inputs: []string{"x"}, Outputs: []string{op + "_out"}}},
			Outputs: []onnx.ValueInfo{{Name: op + "_out", DType: onnx.Float32}}}
	}
	y := b.Op("If", []build.Ref{flag},
		onnx.Attr{Name: "then_branch", Kind: onnx.AttrGraph, Graph: branch("Relu")},
		onnx.Attr{Name: "else_branch", Kind: onnx.AttrGraph, Graph: branch("Neg")})
	b.Output("y", b.Slice(b.Transpose(y, 1, 0, 2), 0, 0, 2))
	b.Output("z", b.Op("LeakyRelu", []build.Ref{x}, onnx.FloatAttr("alpha", 0.25)))
	m := must.Get(b.Model())(t)
	m.Metadata = map[string]string{"kind": "test", "empty": ""}
	m.Opsets["own"] = 1
	m.Functions = []*onnx.Function{{Domain: "own", Name: "f", Inputs: []string{"a"},
		Outputs: []string{"b"}, Attributes: []string{"alpha"},
		Opsets: map[string]int64{"": 17}, Defaults: []onnx.Attr{
			onnx.FloatsAttr("floats", 1, 2), onnx.StrAttr("text", "a"),
			{Name: "strings", Kind: onnx.AttrStrings, Strs: []string{"a", "b"}},
			{Name: "tensors", Kind: onnx.AttrTensors, Tensors: tensors},
			{Name: "graphs", Kind: onnx.AttrGraphs, Graphs: []*onnx.Graph{branch("Relu")}},
		},
		Nodes: []*onnx.Node{{Op: "LeakyRelu", Inputs: []string{"a"}, Outputs: []string{"b"},
			Attrs: []onnx.Attr{{Name: "alpha", Kind: onnx.AttrFloat, Ref: "alpha"}}}}}}
	return m
}

func TestRoundTrip(t *testing.T) {
	described := modeltest.Linear(t, "m", "image", "features", 8, 4)
	described.Metadata = map[string]string{"dx": "4"}
	for _, m := range []*onnx.Model{everything(t), modeltest.Doubler(t), described} {
		path := filepath.Join(t.TempDir(), "m.onnx")
		must.Do(t, Save(path, m))
		got := must.Get(Load(path))(t)
		must.Do(t, check.Model(got))
		a := must.Get(Marshal(m))(t)
		b := must.Get(Marshal(got))(t)
		if string(a) != string(b) {
			t.Errorf("%s is not the same after a round trip", m.Graph.Name)
		}
		c := must.Get(Marshal(onnx.Clone(got)))(t)
		if string(a) != string(c) {
			t.Errorf("%s is not the same after a clone", m.Graph.Name)
		}
	}
}

// TestOptionalInputsAlone: a file of which all initializers are among the inputs keeps them as
// optional inputs where this library wrote it, of any producer; exporters of old list all.
func TestOptionalInputsAlone(t *testing.T) {
	for _, c := range []struct {
		producer string
		ir       int64
		said     bool // by the file
		optional int
	}{{"fmp", 8, true, 1}, {"pytorch", 8, true, 1}, {"fmp", 3, true, 0}, {"pytorch", 8, false, 0},
		{"fmp", 8, false, 0}} {
		b := build.New("scaled")
		b.Output("y", b.Mul(b.Input("x", onnx.Float32, 2), b.Optional("scale", onnx.Vector[float32](2))))
		m := must.Get(b.Model())(t)
		m.Producer, m.IR = c.producer, c.ir
		data := must.Get(Marshal(m))(t)
		if !c.said {
			data = edited(t, data, func(p *onnxpb.ModelProto) { p.MetadataProps[0].Value = "another's" })
		}
		back := must.Get(Unmarshal(data))(t)
		if g := back.Graph; len(g.Inputs) != 1 || len(g.Optional) != c.optional ||
			g.Initializers["scale"] == nil || (len(back.Metadata) > 0) == c.said {
			t.Errorf("%+v: inputs %v, optional %v, metadata %v", c, g.Inputs, g.Optional, back.Metadata)
		}
	}
}

// TestNoGraph: a model without a graph is an error, and no file.
func TestNoGraph(t *testing.T) {
	path := filepath.Join(t.TempDir(), "m.onnx")
	for _, m := range []*onnx.Model{nil, {}} {
		must.Fail(Save(path, m))(t, "no graph")
		must.Fail(Refer(m))(t, "no graph")
	}
	if _, err := os.Stat(path); !os.IsNotExist(err) {
		t.Errorf("a file was written: %v", err)
	}
}

func TestLoadRefuses(t *testing.T) {
	dir := t.TempDir()
	garbage := filepath.Join(dir, "garbage.onnx")
	must.Do(t, os.WriteFile(garbage, []byte("this is no model"), 0o644))
	empty := filepath.Join(dir, "empty.onnx")
	must.Do(t, os.WriteFile(empty, nil, 0o644))
	for path, want := range map[string]string{
		filepath.Join(dir, "none.onnx"): "none.onnx", garbage: "not an ONNX model",
		empty: "the file is empty", dir: "is a folder",
	} {
		must.Fail(Load(path))(t, want, path)
	}
}

func TestUnmarshalRefusesDeepNesting(t *testing.T) {
	g := &onnxpb.GraphProto{Name: "innermost"}
	for range 200 {
		g = &onnxpb.GraphProto{Node: []*onnxpb.NodeProto{{OpType: "If", Output: []string{"y"},
			Attribute: []*onnxpb.AttributeProto{{Name: "then_branch", Type: int32(onnx.AttrGraph), G: g}}}}}
	}
	data := must.Get(proto.Marshal(&onnxpb.ModelProto{Graph: g}))(t)
	must.Fail(Unmarshal(data))(t, "")
}

// FuzzUnmarshal: no panic whatever the bytes, at most 400 bytes of memory for each of them, and
// what is accepted can be written again.
func FuzzUnmarshal(f *testing.F) {
	for _, m := range []*onnx.Model{everything(f), fuzzConv(f)} {
		data := must.Get(Marshal(m))(f)
		f.Add(data)
		f.Add(data[:len(data)/2])
	}
	huge := must.Get(proto.Marshal(
		&onnxpb.ModelProto{Graph: &onnxpb.GraphProto{Initializer: []*onnxpb.TensorProto{{Name: "w", DataType: 1,
			Dims: []int64{1 << 30}}}}}))(f)
	f.Add(huge)
	f.Add([]byte{})
	f.Fuzz(func(t *testing.T, data []byte) {
		if len(data) > 1<<20 {
			t.Skip()
		}
		var m *onnx.Model
		var err error
		// Empty messages of two bytes become nodes of about two hundred.
		alloctest.AtMost(t, 400*len(data), func() { m, err = Unmarshal(data) })
		if err != nil {
			return
		}
		if check.Model(m) != nil {
			// Inference must stand what Check refuses.
			_ = shape.Infer(m)
			return
		}
		if err := pass.Inline(m); err != nil {
			return
		}
		if err := shape.Infer(m); err != nil {
			return
		}
		_, _ = inspect.Stats(m, nil) // sizes of 1 may be too small for it
		if c := onnx.Clone(m); pass.Upgrade(c, onnx.MaxOpset) == nil {
			if err := pass.Simplify(c); err != nil {
				t.Errorf("simplifying a sound model: %v", err)
			}
		}
		if _, err := Marshal(m); err != nil {
			t.Errorf("a model that was read cannot be written: %v", err)
		}
	})
}

func fuzzConv(f *testing.F) *onnx.Model {
	b := build.New("conv")
	x := b.Input("x", onnx.Float32, "batch", 3, "H", 8)
	c := b.Op("Conv", []build.Ref{x, b.Param("w", onnx.ZerosF32(2, 3, 3, 3))},
		onnx.IntsAttr("pads", 1, 1, 1, 1), onnx.IntsAttr("strides", 2, 2))
	p := b.Op("MaxPool", []build.Ref{c}, onnx.IntsAttr("kernel_shape", 2, 2),
		onnx.IntAttr("ceil_mode", 1))
	s := b.Op("Gather", []build.Ref{b.Op("Shape", []build.Ref{p}), b.Axes(0)})
	b.Output("y", b.Softmax(b.Op("Reshape", []build.Ref{p, b.Concat(0, s, b.Axes(-1))}), 1))
	m := must.Get(b.Model())(f)
	m.Opsets[""] = 13
	return m
}

// Classifiers of skl2onnx end in ZipMap: the error says what to do instead.
func TestZipMap(t *testing.T) {
	const sequence, denotation = 4, 6 // fields of TypeProto
	scores := &onnxpb.TypeProto{}
	kind := func(field byte) { scores.ProtoReflect().SetUnknown([]byte{field<<3 | 2, 0}) }
	p := &onnxpb.ModelProto{IrVersion: 8, OpsetImport: []*onnxpb.OperatorSetIdProto{{Version: 17}},
		Graph: &onnxpb.GraphProto{
			Node: []*onnxpb.NodeProto{{OpType: "ZipMap", Domain: "ai.onnx.ml", Input: []string{"p"},
				Output: []string{"scores"}}},
			Output: []*onnxpb.ValueInfoProto{{Name: "scores", Type: scores}}}}
	kind(sequence)
	for op, want := range map[string]string{"ZipMap": `options={"zipmap": False}), or make`,
		"SplitToSequence": "is not supported"} {
		p.Graph.Node[0].OpType = op
		data := must.Get(proto.Marshal(p))(t)
		if _, err := Unmarshal(data); !errors.Is(err, onnx.ErrUnknown) ||
			!strings.Contains(err.Error(), want) ||
			strings.Contains(err.Error(), "zipmap") != (op == "ZipMap") {
			t.Errorf("%s: %v; want %q", op, err, want)
		}
	}
	kind(denotation) // which names no kind of value
	must.Get(Unmarshal(must.Get(proto.Marshal(p))(t)))(t)
}
