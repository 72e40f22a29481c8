package main

import (
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"fmp/onnx"
	"fmp/onnx/engine"
	"fmp/onnx/engine/pure"
	"fmp/onnx/must"
	"fmp/onnx/train"
)

// reader is a node of the inputs and the output that a line names, as in "Add h c > y".
func reader(line string, attrs ...onnx.Attr) *onnx.Node {
	of, out, _ := strings.Cut(line, " > ")
	f := strings.Fields(of)
	return &onnx.Node{Name: line, Op: f[0], Inputs: f[1:], Outputs: []string{out}, Attrs: attrs}
}

// stating is a node that states a tensor.
func stating(name string, t *onnx.Tensor) *onnx.Node {
	return reader("Constant > "+name, onnx.Attr{Name: "value", Kind: onnx.AttrTensor, Tensor: t})
}

// branch is a graph within a node, with one output.
func branch(name, output string, g *onnx.Graph) onnx.Attr {
	g.Name, g.Outputs = name, []onnx.ValueInfo{{Name: output, DType: onnx.Float32}}
	return onnx.Attr{Name: name, Kind: onnx.AttrGraph, Graph: g}
}

// behindLayer is a model of a linear layer x w > h and of nodes behind it.
func behindLayer(nodes ...*onnx.Node) *onnx.Model {
	rows := onnx.ZerosF32(3, 6)
	for i := range rows.F32() {
		rows.F32()[i] = float32(i)
	}
	return &onnx.Model{Opsets: map[string]int64{"": 17}, Graph: &onnx.Graph{
		Inputs:       []onnx.ValueInfo{{Name: "x", DType: onnx.Float32}},
		Outputs:      []onnx.ValueInfo{{Name: "y", DType: onnx.Float32}},
		Initializers: map[string]*onnx.Tensor{"w": rows, "yes": onnx.Scalar(true)},
		Nodes:        append([]*onnx.Node{reader("MatMul x w > h")}, nodes...),
	}}
}

// TestONNXTrainConstants: a constant is a weight where it is read as one is. Bounds, masks, tables
// of one number a row and values of other operators stay as they are.
func TestONNXTrainConstants(t *testing.T) {
	t.Parallel()
	vector := func(v ...float32) *onnx.Tensor { return onnx.NewTensor(v, 1, len(v)) }
	bias, square := vector(.5, 1, 0, 2, 1, -3), onnx.ZerosF32(6, 6)
	for _, c := range []struct {
		nodes  string
		t      *onnx.Tensor
		weight bool
	}{
		{"Add h c > y", bias, true},
		{"Mul c h > y", bias, true},
		{"Reshape h s > a, Add a c > y", bias, true},
		{"Sub h h > a, Sqrt h > b, Div a b > d, Mul d c > y", bias, true},
		{"Sqrt h > b, Div h b > d, Mul d c > y", bias, false},
		{"Mul h c > a, Add a c > y", bias, true},
		{"Mul h w > b, Add b c > y", bias, false},
		{"Relu h > a, Add a c > y", bias, false},
		{"Gather w i > a, Add a c > y", bias, false},
		{"Add h c > y", square, false},
		{"Add h c > y", vector(0, 0, 0, -1e4, 0, 0), false},
		{"Add h c > y", vector(0, 1, 0, -1e4, 0, 0), true},
		{"Mul h c > y", vector(1, 0, 1, 1, 0, 0), false},
		{"Mul h c > y", vector(0, 0, 0, 0, 0, 0), true},
		{"MatMul h c > y", square, true},
		{"MatMul c h > y", square, false},
		{"MatMul h c > y", onnx.NewTensor(make([]float32, 6), 6), false},
		{"Transpose c > a, MatMul h a > y", square, true},
		{"Gemm h w c > y", bias, true},
		{"Conv h c > y", square, true},
		{"PRelu h c > y", bias, true},
		{"LayerNormalization h c > y", bias, true},
		{"Gather c i > y", square, true},
		{"Gather c i > y", onnx.NewTensor(make([]float32, 6), 6), false},
		{"OneHot h d c > y", vector(0, 1), false},
		{"Greater h c > a, Where a h h > y", bias, false},
		{"Cast c > a, Where a h h > y", bias, false},
	} {
		m := behindLayer(stating("c", c.t))
		for _, n := range strings.Split(c.nodes, ", ") {
			m.Graph.Nodes = append(m.Graph.Nodes, reader(n))
		}
		must.Do(t, trainable(m))
		got := slices.ContainsFunc(train.Weights(m.Graph, "y"), func(w train.Weight) bool { return w.Name == "c" })
		if got != c.weight {
			t.Errorf("%s of %v: trained is %v", c.nodes, c.t.F32(), got)
		}
	}
}

// TestONNXTrainChosen: weights that branches have as their outputs are trained, and the model
// computes the same.
func TestONNXTrainChosen(t *testing.T) {
	t.Parallel()
	matrix := func(v float32) *onnx.Tensor {
		return onnx.NewTensor(slices.Repeat([]float32{v}, 12), 6, 2)
	}
	choice := func(out string) *onnx.Node {
		return reader("If yes > "+out,
			branch("then_branch", "c", &onnx.Graph{Nodes: []*onnx.Node{stating("c", matrix(1))}}),
			branch("else_branch", "c", &onnx.Graph{Initializers: map[string]*onnx.Tensor{"c": matrix(2)}}))
	}
	e := must.Get(pure.New(engine.Options{Threads: 1}))(t)
	scores := func(m *onnx.Model) []float32 {
		s := must.Get(e.Load(m))(t)
		defer s.Close()
		return must.Get(engine.Eval(s, map[string]*onnx.Tensor{"x": onnx.NewTensor([]float32{1, 2, 3}, 1, 3)}))(t)["y"].F32()
	}
	m := behindLayer(choice("k"), reader("MatMul h k > y"))
	want := scores(m)
	must.Do(t, trainable(m))
	var names []string
	for _, w := range train.Weights(m.Graph, "y") {
		names = append(names, w.Name)
	}
	if diff := cmp.Diff([]string{"w", "c_1", "c_2"}, names); diff != "" || !slices.Equal(scores(m), want) {
		t.Errorf("weights -want +got:\n%s%v, want %v", diff, scores(m), want)
	}
	m = behindLayer(choice("k"), reader("Greater k k > y"))
	must.Do(t, trainable(m))
	if w := train.Weights(m.Graph, "y"); len(w) != 0 || !slices.Equal(m.Graph.InitializerNames(), []string{"w", "yes"}) {
		t.Errorf("of a bound %+v are trained", w)
	}
}
