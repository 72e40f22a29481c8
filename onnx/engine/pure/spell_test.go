//go:build cgo

package pure_test

import (
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"fmp/onnx"
	"fmp/onnx/alloctest"
	"fmp/onnx/conformance"
	"fmp/onnx/engine"
	"fmp/onnx/engine/pure"
	"fmp/onnx/internal/modeltest"
	"fmp/onnx/must"
)

// Operators that are spelt out in others, and quantised ones, give what the ONNX Runtime's own
// kernels of them give. Those of com.microsoft have the same bits in every operator set.
func TestSpelling(t *testing.T) {
	own, reference := engines(t, 1)
	r := random{rand.New(rand.NewPCG(4, 4))}
	scale, zero := onnx.Scalar[float32], onnx.Scalar[uint8]
	masks := func(v ...int32) func(...int) *onnx.Tensor {
		return func(shape ...int) *onnx.Tensor { return onnx.NewTensor(v, shape...) }
	}
	for _, c := range []struct {
		op      string
		in      []*onnx.Tensor
		attrs   []onnx.Attr
		outputs []string
	}{
		{"com.microsoft.Gelu", []*onnx.Tensor{r.f(2, 5)}, nil, nil},
		{"com.microsoft.BiasGelu", []*onnx.Tensor{r.f(2, 5), r.f(5)}, nil, nil},
		{"com.microsoft.FastGelu", []*onnx.Tensor{r.f(2, 5), r.f(5)}, nil, nil},
		{"com.microsoft.QuickGelu", []*onnx.Tensor{r.f(2, 5)},
			[]onnx.Attr{onnx.FloatAttr("alpha", 1.702)}, nil},
		{"com.microsoft.FusedMatMul", []*onnx.Tensor{r.f(4, 2), r.f(3, 4)},
			[]onnx.Attr{onnx.IntAttr("transA", 1), onnx.IntAttr("transB", 1),
				onnx.FloatAttr("alpha", .5)}, nil},
		{"com.microsoft.FusedMatMul", []*onnx.Tensor{r.f(2, 3, 4), r.f(2, 4, 5)}, nil, nil},
		{"com.microsoft.FusedMatMul", []*onnx.Tensor{r.f(4), r.f(5, 4)},
			[]onnx.Attr{onnx.IntAttr("transA", 1), onnx.IntAttr("transB", 1)}, nil},
		{"com.microsoft.SkipLayerNormalization",
			[]*onnx.Tensor{r.f(2, 3, 4), r.f(2, 3, 4), r.f(4), r.f(4), r.f(4)}, nil,
			[]string{"y", "", "", "sum"}},
		{"com.microsoft.SkipSimplifiedLayerNormalization",
			[]*onnx.Tensor{r.f(2, 3, 4), r.f(2, 3, 4), r.f(4), r.f(4)}, nil, nil},
		{"com.microsoft.QLinearAdd",
			[]*onnx.Tensor{r.u8(2, 6), scale(.02), zero(100), r.u8(6), scale(.03),
				zero(128), scale(.05), zero(120)}, nil, nil},
		{"com.microsoft.QLinearMul",
			[]*onnx.Tensor{r.u8(2, 6), scale(.02), zero(100), r.u8(6), scale(.03),
				zero(128), scale(.05), zero(120)}, nil, nil},
		{"com.microsoft.QLinearSigmoid",
			[]*onnx.Tensor{r.u8(2, 6), scale(.02), zero(100), scale(.004), zero(3)}, nil, nil},
		{"com.microsoft.QLinearLeakyRelu",
			[]*onnx.Tensor{r.u8(2, 6), scale(.02), zero(100), scale(.03), zero(30)},
			[]onnx.Attr{onnx.FloatAttr("alpha", .1)}, nil},
		{"com.microsoft.QLinearGlobalAveragePool",
			[]*onnx.Tensor{r.u8(1, 2, 3, 5), scale(.02), zero(100), scale(.03), zero(30)}, nil, nil},
		{"com.microsoft.QLinearAveragePool",
			[]*onnx.Tensor{r.u8(1, 2, 5, 4), scale(.02), zero(100), scale(.03), zero(30)},
			[]onnx.Attr{onnx.IntsAttr("kernel_shape", 3, 2), onnx.IntsAttr("pads", 1, 0, 1, 1),
				onnx.IntsAttr("strides", 2, 1), onnx.IntAttr("count_include_pad", 1)}, nil},
		{"com.microsoft.QLinearAveragePool",
			[]*onnx.Tensor{r.u8(1, 2, 5, 4), scale(.02), zero(100), scale(.03), zero(30)},
			[]onnx.Attr{onnx.IntsAttr("kernel_shape", 3, 2), onnx.IntsAttr("pads", 1, 0, 1, 1)}, nil},
		{"com.microsoft.QLinearSoftmax",
			[]*onnx.Tensor{r.u8(2, 3, 4), scale(.02), zero(100), scale(1. / 256), zero(0)},
			[]onnx.Attr{onnx.IntAttr("axis", 1), onnx.IntAttr("opset", 13)}, nil},
		{"com.microsoft.QLinearSoftmax",
			[]*onnx.Tensor{r.u8(2, 3, 4), scale(.02), zero(100), scale(1. / 256), zero(0)},
			[]onnx.Attr{onnx.IntAttr("axis", 1), onnx.IntAttr("opset", 12)}, nil},
		{"com.microsoft.QLinearConcat",
			[]*onnx.Tensor{scale(.03), zero(90), r.u8(2, 3), scale(.02), zero(100), r.u8(2, 4),
				scale(.04), zero(128)}, []onnx.Attr{onnx.IntAttr("axis", 1)}, nil},
		{"com.microsoft.QLinearWhere",
			[]*onnx.Tensor{onnx.Vector(true, false, true), r.u8(2, 3), scale(.02), zero(100), r.u8(3),
				scale(.04), zero(128), scale(.03), zero(90)}, nil, nil},
		{"com.microsoft.QGemm",
			[]*onnx.Tensor{r.u8(3, 4), scale(.02), zero(100), r.u8(4, 5), scale(.03), zero(128),
				onnx.Vector[int32](100, -2000, 0, 500, 3000), scale(.05), zero(120)},
			[]onnx.Attr{onnx.FloatAttr("alpha", .5)}, nil},
		{"com.microsoft.QGemm",
			[]*onnx.Tensor{r.u8(4, 3), scale(.02), zero(100), r.u8(5, 4),
				onnx.Vector[float32](.01, .02, .03, .04, .05), onnx.Vector[uint8](120, 130, 128, 125, 7),
				onnx.Vector[int32](100, -2000, 0, 500, 3000)},
			[]onnx.Attr{onnx.IntAttr("transA", 1), onnx.IntAttr("transB", 1)}, nil},
		{"com.microsoft.DynamicQuantizeMatMul",
			[]*onnx.Tensor{r.f(3, 4), r.u8(4, 5), onnx.Vector[float32](.01, .02, .03, .04, .05),
				onnx.Vector[uint8](120, 130, 128, 125, 7), r.f(5)}, nil, nil},
		{"com.microsoft.DynamicQuantizeMatMul",
			[]*onnx.Tensor{r.f(2, 3, 4), r.u8(4, 5), scale(.02)}, nil, nil},
		{"com.microsoft.MatMulIntegerToFloat",
			[]*onnx.Tensor{r.u8(3, 4), r.u8(4, 5), scale(.02), scale(.03), zero(100), zero(128),
				r.f(5)}, nil, nil},
		{"com.microsoft.MatMulIntegerToFloat",
			[]*onnx.Tensor{r.u8(3, 4), r.u8(4, 5), scale(.02), scale(.03)}, nil, nil},
		{"com.microsoft.FusedGemm", []*onnx.Tensor{r.f(3, 4), r.f(5, 4), r.f(5)},
			[]onnx.Attr{onnx.IntAttr("transB", 1), onnx.FloatAttr("alpha", .5),
				onnx.StrAttr("activation", "LeakyRelu"), onnx.FloatAttr("activation_alpha", .2)}, nil},
		{"com.microsoft.FusedConv", []*onnx.Tensor{r.f(1, 2, 5, 4), r.f(3, 2, 3, 3), r.f(3), r.f(1, 3, 5, 4)},
			[]onnx.Attr{onnx.IntsAttr("pads", 1, 1, 1, 1), onnx.StrAttr("activation", "Relu")}, nil},
		{"com.microsoft.FusedConv", []*onnx.Tensor{r.f(1, 2, 5, 4), r.f(3, 2, 3, 3)},
			[]onnx.Attr{onnx.StrAttr("activation", "HardSigmoid"),
				onnx.FloatsAttr("activation_params", .1, .6)}, nil},
		{"com.microsoft.FusedConv", []*onnx.Tensor{r.f(1, 2, 5, 4), r.f(3, 2, 3, 3)},
			[]onnx.Attr{onnx.StrAttr("activation", "Clip"),
				onnx.FloatsAttr("activation_params", -.5, .6)}, nil},
		{"com.microsoft.MultiHeadAttention",
			[]*onnx.Tensor{r.f(2, 3, 8), r.f(2, 5, 8), r.f(2, 5, 12), r.f(28)},
			[]onnx.Attr{onnx.IntAttr("num_heads", 4)}, nil},
		{"com.microsoft.MultiHeadAttention",
			[]*onnx.Tensor{r.f(2, 3, 8), r.f(2, 5, 8), r.f(2, 5, 8), nil, nil, r.f(1, 4, 3, 5)},
			[]onnx.Attr{onnx.IntAttr("num_heads", 4), onnx.FloatAttr("scale", .3)}, nil},
		{"com.microsoft.Attention", []*onnx.Tensor{r.f(2, 3, 6), r.f(6, 24), r.f(24)},
			[]onnx.Attr{onnx.IntAttr("num_heads", 2)}, nil},
		{"com.microsoft.Attention", []*onnx.Tensor{r.f(2, 3, 6), r.f(6, 28), r.f(28)},
			[]onnx.Attr{onnx.IntAttr("num_heads", 2), onnx.IntAttr("unidirectional", 1),
				onnx.IntsAttr("qkv_hidden_sizes", 8, 8, 12)}, nil},
		{"com.microsoft.Attention", []*onnx.Tensor{r.f(2, 3, 6), r.f(6, 24), r.f(24), masks(1, 1, 0, 1, 0, 0)(2, 3)},
			[]onnx.Attr{onnx.IntAttr("num_heads", 2)}, nil},
		{"com.microsoft.Attention", []*onnx.Tensor{r.f(1, 3, 6), r.f(6, 24), r.f(24),
			masks(1, 0, 0, 1, -1, 1, 0, 0, 1)(1, 3, 3), nil, r.f(1, 2, 3, 3)},
			[]onnx.Attr{onnx.IntAttr("num_heads", 2), onnx.FloatAttr("mask_filter_value", -2)}, nil},
		{"com.microsoft.Attention", []*onnx.Tensor{r.f(2, 3, 6), r.f(6, 24), r.f(24), masks(0, 1, 1, 1, 1, 0)(2, 3)},
			[]onnx.Attr{onnx.IntAttr("num_heads", 2), onnx.IntAttr("unidirectional", 1)}, nil},
		{"com.microsoft.MultiHeadAttention",
			[]*onnx.Tensor{r.f(2, 3, 8), r.f(2, 4, 8), r.f(2, 4, 8), nil, masks(1, 1, 0, 1, 0, 0, 1, 0)(2, 4)},
			[]onnx.Attr{onnx.IntAttr("num_heads", 4)}, nil},
		{"QLinearConv", []*onnx.Tensor{r.u8(1, 2, 5, 4), scale(.02), zero(100), r.u8(4, 1, 3, 3),
			onnx.Vector[float32](.01, .02, .03, .04), onnx.Vector[uint8](120, 130, 128, 125),
			scale(.5), zero(120), onnx.Vector[int32](10000, -20000, 0, 5000)},
			[]onnx.Attr{onnx.IntAttr("group", 2), onnx.IntsAttr("pads", 1, 1, 0, 0)}, nil},
		{"RotaryEmbedding", []*onnx.Tensor{r.f(1, 2, 3, 4), r.f(1, 3, 2), r.f(1, 3, 2)}, nil, nil},
		{"RMSNormalization", []*onnx.Tensor{r.f(2, 3, 4), r.f(3, 4)},
			[]onnx.Attr{onnx.IntAttr("axis", -2)}, nil},
		{"Attention", []*onnx.Tensor{r.f(1, 4, 3, 2), r.f(1, 2, 5, 2), r.f(1, 2, 5, 3)}, nil, nil},
		{"Attention", []*onnx.Tensor{r.f(1, 3, 8), r.f(1, 3, 8), r.f(1, 3, 8)},
			[]onnx.Attr{onnx.IntAttr("q_num_heads", 2), onnx.IntAttr("kv_num_heads", 2),
				onnx.IntAttr("is_causal", 1)}, nil},
	} {
		t.Run(c.op, func(t *testing.T) {
			n := &onnx.Node{Op: c.op, Outputs: c.outputs, Attrs: c.attrs}
			if i := strings.LastIndexByte(c.op, '.'); i > 0 {
				n.Domain, n.Op = c.op[:i], c.op[i+1:]
			}
			if n.Outputs == nil {
				n.Outputs = []string{"y"}
			}
			m, feeds := modeltest.OneNode(n, 23, c.in, 0, onnx.Known, func(i int) bool {
				return len(c.in[i].Shape) == 0 || c.op == "QLinearConv" && i > 2
			})
			m.Opsets["com.microsoft"], m.IR = 1, 11
			got, want := modeltest.Eval(t, own, m, feeds), modeltest.Eval(t, reference, m, feeds)
			for m.Opsets[""] = 11; n.Domain != "" && m.Opsets[""] < 23; m.Opsets[""]++ {
				for name, w := range modeltest.Eval(t, own, m, feeds) {
					if err := conformance.Compare(w, got[name], conformance.Tolerance{}); err != nil {
						t.Errorf("operator set %d, %s %v", m.Opsets[""], name, err)
					}
				}
			}
			for name, w := range want {
				tolerance := conformance.Tolerance{Absolute: 2e-5}
				if w.DType == onnx.Uint8 { // a quantised result may be rounded the other way
					tolerance.Absolute = 1
				}
				if err := conformance.Compare(got[name], w, tolerance); err != nil {
					t.Errorf("%s %v", name, err)
				}
			}
		})
	}
}

// TestHeadsOfOtherRanks: the error names the input whose rank is not taken.
func TestHeadsOfOtherRanks(t *testing.T) {
	own := must.Get(pure.New(engine.Options{Threads: 1}))(t)
	for _, c := range []struct{ reads, want string }{
		{"q k k", "input 1 of rank 4 is not supported"}, {"q", "in one tensor are not supported"},
	} {
		n := modeltest.Node("MultiHeadAttention", c.reads, "y", onnx.IntAttr("num_heads", 2))
		n.Domain = "com.microsoft"
		m := onnx.NewModel(modeltest.Graph("q:float32[1,3,8] k:float32[1,2,3,4]", "y:float32", nil, n))
		m.Opsets["com.microsoft"] = 1
		must.Fail(own.Load(m))(t, c.want, c.reads)
	}
}

// TestSpeltSizes: a layer of sizes that its file only states is planned in little memory, and an
// axis beyond the rank ends the run.
func TestSpeltSizes(t *testing.T) {
	own := must.Get(pure.New(engine.Options{Threads: 1}))(t)
	model := func(op, in, attrs string) *onnx.Model {
		n := modeltest.Node(op, "", "y", modeltest.Attrs(op, 23, attrs)...)
		for _, v := range modeltest.Values(in) {
			n.Inputs = append(n.Inputs, v.Name)
		}
		m := onnx.NewModel(modeltest.Graph(in, "y:float32", nil, n))
		m.Opsets[""], m.IR = 23, 11
		return m
	}
	for _, c := range []struct{ name, op, in, attrs string }{
		{"cells", "RoiAlign", "x:float32[1,1,4,4] r:float32[1,4] b:int64[1]", "output_height=33554432"},
		{"kernel", "DeformConv", "x:float32[1,1,h,k] w:float32[1,1,4096,8192] o:float32[1,2,4,4]", ""},
		{"state", "LSTM", "x:float32[2,1,4] w:float32[1,33554432,4] r:float32[1,33554432,8388608]", ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			alloctest.AtMost(t, 1<<24, func() { must.Get(own.Load(model(c.op, c.in, c.attrs)))(t).Close() })
		})
	}
	s := must.Get(own.Load(model("RMSNormalization", "x:float32[2,3] w:float32[3]", "axis=2")))(t)
	defer s.Close()
	must.Fail(s.Run(t.Context(), map[string]*onnx.Tensor{"x": onnx.ZerosF32(2, 3), "w": onnx.ZerosF32(3)},
		map[string]*onnx.Tensor{"y": nil}))(t, "axis 2", "a norm over axis 2 of a matrix")
	deform := must.Get(own.Load(model("DeformConv", "x:float32[n,1,h,k] w:float32[1,1,3,3] o:float32[n,18,p,q]", "")))(t)
	defer deform.Close()
	for _, side := range []int{3, 6, 9, 12} {
		err := deform.Run(t.Context(), map[string]*onnx.Tensor{"x": onnx.ZerosF32(1, 1, 8, 8),
			"w": onnx.ZerosF32(1, 1, 3, 3), "o": onnx.ZerosF32(1, 18, side, side)}, map[string]*onnx.Tensor{"y": nil})
		if (err == nil) != (side == 6) {
			t.Errorf("offsets of %d rows where the window has 6 positions: %v", side, err)
		}
	}
}

// TestMaskShapes: masks of all shapes give what the ONNX Runtime gives, or both end the run.
func TestMaskShapes(t *testing.T) {
	own, reference := engines(t, 1)
	r := random{rand.New(rand.NewPCG(4, 5))}
	eval := func(s engine.Session, feeds map[string]*onnx.Tensor) (*onnx.Tensor, error) {
		out, err := engine.Eval(s, feeds, "y")
		return out["y"], err
	}
	sessions := func(op, in, shapes string) (mine, theirs engine.Session) {
		n := modeltest.Node(op, in, "y", onnx.IntAttr("num_heads", 2))
		n.Domain = "com.microsoft"
		m := onnx.NewModel(modeltest.Graph(shapes, "y:float32", nil, n))
		m.Opsets[""], m.Opsets[n.Domain], m.IR = 17, 1, 8
		return must.Get(own.Load(m))(t), must.Get(reference.Load(m))(t)
	}
	const keys, packed = 4, "Attention"
	taken := 0
	for _, c := range []struct{ op, in, shapes string }{
		{packed, "x w b m", "x:float32[b,4,6] w:float32[6,24] b:float32[24] m:int32[n,k]"},
		{packed, "x w b m", "x:float32[b,4,6] w:float32[6,24] b:float32[24] m:int32[n,s,k]"},
		{"MultiHeadAttention", "x x x _ m", "x:float32[b,4,6] m:int32[n,k]"},
		{"MultiHeadAttention", "x x x _ m", "x:float32[b,4,6] m:int32[n,s,k]"},
		{"MultiHeadAttention", "x x x _ _ m", "x:float32[b,4,6] m:float32[1,2,4,k]"},
	} {
		mine, theirs := sessions(c.op, c.in, c.shapes)
		defer mine.Close()
		defer theirs.Close()
		for k := range 2 * 125 {
			feeds := map[string]*onnx.Tensor{"x": r.f(1+k/125, keys, 6)}
			if c.op == packed {
				feeds["w"], feeds["b"] = r.f(6, 24), r.f(24)
			}
			shape := []int{1 + k%5, 1 + k/5%5, 1 + k/25%5}
			switch {
			case strings.HasSuffix(c.shapes, "int32[n,k]"):
				shape = shape[:2]
			case strings.HasSuffix(c.shapes, "4,k]"):
				shape = []int{1, 2, keys, 1 + k%5}
			}
			feeds["m"] = r.f(shape...)
			if len(shape) < 4 {
				var seen []int32
				for _, v := range feeds["m"].F32() {
					seen = append(seen, int32(min(max(v+1, 0), 1)))
				}
				feeds["m"] = onnx.NewTensor(seen, shape...)
			}
			want, refused := eval(theirs, feeds)
			got, err := eval(mine, feeds)
			if (err == nil) != (refused == nil) {
				t.Errorf("%s of %v, mask %v: %v; the runtime: %v", c.op, feeds["x"].Shape, shape, err, refused)
			} else if err == nil {
				taken++
				if err := conformance.Compare(got, want, conformance.Tolerance{Absolute: 2e-5}); err != nil {
					t.Errorf("%s of %v, mask %v: %v", c.op, feeds["x"].Shape, shape, err)
				}
			}
		}
	}
	if taken < 30 {
		t.Errorf("%d masks were taken", taken)
	}
	open, other := sessions(packed, "x w b m", "x:float32[b,4,6] w:float32[6,24] b:float32[24] m:int32")
	defer open.Close()
	defer other.Close()
	_, err := eval(open, map[string]*onnx.Tensor{"x": r.f(2, keys, 6), "w": r.f(6, 24), "b": r.f(24),
		"m": onnx.Vector[int32](1, 2)})
	must.Fail(err)(t, "mask of [batch, keys]", "a mask of lengths")
}

// TestPackedWidths: the widths of queries, keys and values make up that of their product, as the
// ONNX Runtime has it.
func TestPackedWidths(t *testing.T) {
	own := must.Get(pure.New(engine.Options{Threads: 1}))(t)
	for _, c := range []struct {
		width int
		sizes []int
		takes bool
	}{
		{24, nil, true}, {20, nil, false}, {28, []int{8, 8, 12}, true}, {20, []int{8, 8, 8}, false},
		{28, []int{8, 8, 8}, false},
	} {
		n := modeltest.Node("Attention", "x w b", "y", onnx.IntAttr("num_heads", 2))
		if n.Domain = "com.microsoft"; c.sizes != nil {
			n.Attrs = append(n.Attrs, onnx.IntsAttr("qkv_hidden_sizes", c.sizes...))
		}
		m := onnx.NewModel(modeltest.Graph("x:float32[1,3,8] w:float32[8,n] b:float32[n]", "y:float32", nil, n))
		m.Opsets[""], m.Opsets[n.Domain] = 17, 1
		s := must.Get(own.Load(m))(t)
		err := s.Run(t.Context(), map[string]*onnx.Tensor{"x": onnx.ZerosF32(1, 3, 8), "w": onnx.ZerosF32(8, c.width),
			"b": onnx.ZerosF32(c.width)}, map[string]*onnx.Tensor{"y": nil})
		if (err == nil) != c.takes {
			t.Errorf("parts of %v of %d columns: %v", c.sizes, c.width, err)
		}
		s.Close()
	}
}

// TestRoiAlignOfOneImage: regions of one image, which no copy of it for each is made for, have the
// same bits as where the number of images is not known; an index of a second one is an error.
func TestRoiAlignOfOneImage(t *testing.T) {
	own := must.Get(pure.New(engine.Options{Threads: 2}))(t)
	session := func(x string) *onnx.Model {
		m := onnx.NewModel(modeltest.Graph(x+" r:float32[k,4] i:int64[k]", "y:float32", nil,
			modeltest.Node("RoiAlign", "x r i", "y",
				modeltest.Attrs("RoiAlign", 16, "output_height=3 output_width=2")...)))
		m.Opsets[""] = 16
		return m
	}
	r := random{rand.New(rand.NewPCG(5, 6))}
	feeds := map[string]*onnx.Tensor{"x": r.f(1, 9, 17, 19), "i": onnx.Vector[int64](0, 0, 0),
		"r": onnx.NewTensor([]float32{0, 0, 16, 15, -2, 1, 3, 9, 2, 2, 2.5, 2.5}, 3, 4)}
	got := modeltest.Eval(t, own, session("x:float32[1,9,17,19]"), feeds)["y"]
	want := modeltest.Eval(t, own, session("x:float32[n,9,17,19]"), feeds)["y"]
	if !slices.Equal(got.Shape, want.Shape) || !slices.Equal(got.F32(), want.F32()) {
		t.Errorf("%v, want %v", got, want)
	}
	s := must.Get(own.Load(session("x:float32[1,9,17,19]")))(t)
	defer s.Close()
	feeds["i"] = onnx.Vector[int64](0, 1, 0)
	must.Fail(s.Run(t.Context(), feeds, map[string]*onnx.Tensor{"y": nil}))(t, "index", "a second image")

	// Copies of the image would be of more bytes than a value may have.
	feeds = map[string]*onnx.Tensor{"x": onnx.ZerosF32(1, 1024, 128, 128), "r": onnx.ZerosF32(40, 4),
		"i": must.Get(onnx.Zeros(onnx.Int64, 40))(t)}
	got = modeltest.Eval(t, own, session("x:float32[1,1024,128,128]"), feeds)["y"]
	if !slices.Equal(got.Shape, []int{40, 1024, 3, 2}) {
		t.Errorf("40 regions have the shape %v", got.Shape)
	}
}
