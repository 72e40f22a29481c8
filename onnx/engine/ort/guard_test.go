package ort

import (
	"math"
	"slices"
	"testing"

	"fmp/onnx"
	"fmp/onnx/engine"
	"fmp/onnx/internal/modeltest"
	"fmp/onnx/must"
)

// TestGuard: a computation that would end the process has a result, in a branch too, and leaves other results alone.
func TestGuard(t *testing.T) {
	e := newEngine(t, Options{Threads: 1})
	const least = math.MinInt64
	node := modeltest.Node
	either := func(nodes ...*onnx.Node) []*onnx.Node {
		g := func() *onnx.Graph { return modeltest.Graph("", "z:int64[4]", nil, nodes...) }
		return []*onnx.Node{node("If", "yes", "y", modeltest.Body("then_branch", g()),
			modeltest.Body("else_branch", g()))}
	}
	for name, c := range map[string]struct {
		by    []int64
		nodes []*onnx.Node
		want  []int64
	}{
		"quotients":   {[]int64{-1, -1, 2, -3}, []*onnx.Node{node("Div", "x by", "y")}, []int64{least, -7, 3, 2}},
		"remainders":  {[]int64{-1, -1, 2, -3}, []*onnx.Node{node("Mod", "x by", "y")}, []int64{0, 0, 1, -1}},
		"a constant":  {[]int64{5, 5, 5, 5}, []*onnx.Node{node("Div", "x minus", "y")}, []int64{least, -7, -7, 7}},
		"in a branch": {[]int64{-1, -1, 2, -3}, either(node("Div", "x by", "z")), []int64{least, -7, 3, 2}},
		"a branch's": {[]int64{-1, -1, 2, -3}, append(either(node("Identity", "by", "z"))[:1],
			node("Div", "x y", "q")), nil},
	} {
		t.Run(name, func(t *testing.T) {
			out := "y:int64[4]"
			if c.want == nil {
				out, c.want = "q:int64[4]", []int64{least, -7, 3, 2}
			}
			m := onnx.NewModel(modeltest.Graph("x:int64[4] by:int64[4] yes:bool[]", out,
				map[string]*onnx.Tensor{"minus": onnx.Scalar[int64](-1)}, c.nodes...))
			m.IR, m.Opsets[""] = 8, 17
			got := must.Get(engine.Eval(open(t, e, m), map[string]*onnx.Tensor{"x": onnx.Vector[int64](least, 7, 7, -7),
				"by": onnx.Vector(c.by...), "yes": onnx.Scalar(true)}))(t)
			if y := got[out[:1]].I64(); !slices.Equal(y, c.want) {
				t.Errorf("%v, want %v", y, c.want)
			}
		})
	}
	for k, want := range map[int64][]float32{math.MinInt64: {1, 2, 3, 4}, math.MaxInt64: {0, 0, 0, 0}, 1: {0, 2, 0, 0}} {
		m := onnx.NewModel(modeltest.Graph("x:float32[2,2] k:int64[]", "y:float32[2,2]", nil, node("Trilu", "x k", "y")))
		m.IR, m.Opsets[""] = 8, 17
		got := must.Get(engine.Eval(open(t, e, m), map[string]*onnx.Tensor{
			"x": onnx.NewTensor([]float32{1, 2, 3, 4}, 2, 2), "k": onnx.Scalar(k)}))(t)["y"].F32()
		if !slices.Equal(got, want) {
			t.Errorf("diagonal %d: %v, want %v", k, got, want)
		}
	}
}

// TestColumns: a Col2Im of other columns than its window has positions is an error of the run.
func TestColumns(t *testing.T) {
	e := newEngine(t, Options{Threads: 1})
	m := onnx.NewModel(modeltest.Graph("x:float32[1,4,l] image:int64[2] block:int64[2]", "y:float32[1,c,h,w]", nil,
		modeltest.Node("Col2Im", "x image block", "y", onnx.IntsAttr("strides", 2, 1), onnx.IntsAttr("pads", 0, 1, 1, 0),
			onnx.IntsAttr("dilations", 1, 2))))
	m.IR, m.Opsets[""] = 8, 18
	s := open(t, e, m)
	for _, c := range []struct {
		image, block []int64
		columns      int
		ok           bool
	}{
		{[]int64{5, 5}, []int64{2, 2}, 12, true}, // 3 x 4
		{[]int64{5, 5}, []int64{2, 2}, 11, false},
		{[]int64{500000, 5}, []int64{2, 2}, 16, false},
		{[]int64{5, 5}, []int64{0, 2}, 12, false},
		{[]int64{5, 5}, []int64{0, 2}, 15, false},
		{[]int64{-5, -5}, []int64{2, 2}, 12, false},
		{[]int64{math.MinInt64, 5}, []int64{2, 2}, 4, false},
		{[]int64{5, 5}, []int64{math.MaxInt64, 2}, 12, false},
	} {
		_, err := engine.Eval(s, map[string]*onnx.Tensor{"x": onnx.ZerosF32(1, 4, c.columns),
			"image": onnx.Vector(c.image...), "block": onnx.Vector(c.block...)})
		if (err == nil) != c.ok {
			t.Errorf("%d columns of blocks %v, image %v: %v", c.columns, c.block, c.image, err)
		}
	}
}

// TestRefused: a model with an attribute or a shape that cannot be never meets the runtime, some of which
// would end the process; neither does one behind an operator or a set that is not known.
func TestRefused(t *testing.T) {
	e := newEngine(t, Options{Threads: 1})
	node := modeltest.Node
	step := func(n *onnx.Node) *onnx.Node {
		n.Attrs = append(n.Attrs, onnx.IntsAttr("kernel_shape", 2, 2), onnx.IntsAttr("strides", 0, 0))
		return n
	}
	foreign := node("Gelu", "x", "h")
	foreign.Domain = "com.microsoft"
	branch := func(name string) onnx.Attr {
		return modeltest.Body(name, modeltest.Graph("", "z:float32", nil, step(node("MaxPool", "x", "z"))))
	}
	for name, c := range map[string]struct {
		opset int64
		want  string
		nodes []*onnx.Node
	}{
		"a step of 0":      {17, "strides holds 0", []*onnx.Node{step(node("MaxPool", "x", "y"))}},
		"behind another's": {17, "strides holds 0", []*onnx.Node{foreign, step(node("MaxPool", "h", "y"))}},
		"of a newer set":   {99, "strides holds 0", []*onnx.Node{step(node("MaxPool", "x", "y"))}},
		"in a branch of a newer set": {99, "strides holds 0", []*onnx.Node{
			node("If", "yes", "y", branch("then_branch"), branch("else_branch"))}},
		"a word": {20, `approximate is "fast"; allowed are none, tanh`,
			[]*onnx.Node{node("Gelu", "x", "y", onnx.StrAttr("approximate", "fast"))}},
		"a part without an output": {18, "num_outputs is 3 with 2 outputs",
			[]*onnx.Node{node("Split", "x", "y z", onnx.IntAttr("num_outputs", 3))}},
		"a shape": {17, "sizes 2 and 3 on axis 3", []*onnx.Node{node("Add", "x three", "y")}},
	} {
		m := onnx.NewModel(modeltest.Graph("x:float32[1,1,2,2] yes:bool[]", "y:float32",
			map[string]*onnx.Tensor{"three": onnx.ZerosF32(3)}, c.nodes...))
		m.IR, m.Opsets = 8, map[string]int64{"": c.opset, "com.microsoft": 1}
		must.Fail(e.Load(m))(t, c.want, name)
	}
}
