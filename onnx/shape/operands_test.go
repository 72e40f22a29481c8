package shape_test

import (
	"testing"

	"fmp/onnx"
	"fmp/onnx/internal/modeltest"
	"fmp/onnx/must"
	"fmp/onnx/shape"
)

// TestOperands: operands are of the shapes that their operator takes, as the ONNX Runtime refuses others.
func TestOperands(t *testing.T) {
	t.Parallel()
	attr, list := onnx.IntAttr, onnx.IntsAttr
	const x = "x:float32[1,4,6,6] "
	for _, c := range []struct {
		op     string
		inputs string // in the order of the operator's
		attrs  []onnx.Attr
		want   string // "" where nothing is wrong
	}{
		{"Clip", x + "low:float32[] high:float32[1]", nil, ""},
		{"Clip", x + "low:float32[n]", nil, ""},
		{"Clip", x + "low:float32[] high:float32[2]", nil, "input 2 is of shape [2]; one element is needed"},
		{"Clip", x + "low:float32[1,1]", nil, "input 1 is of shape [1,1]"},
		{"Pad", x + "pads:int64[8] value:float32[2]", nil, "input 2 is of shape [2]"},
		{"Pad", x + "pads:int64[8] value:float32[1,1]", nil, ""},
		{"Pad", x + "pads:int64[8] value:float32[1,2]", nil, "input 2 is of shape [1,2]"},
		{"CumSum", x + "axis:int64[2]", nil, "one element"},
		{"Trilu", x + "k:int64[2]", nil, "one element"},
		{"OneHot", "i:int64[3] depth:int64[2] values:float32[2]", nil, "one element"},
		{"OneHot", "i:int64[3] depth:int64[1] values:float32[2]", nil, ""},
		{"OneHot", "i:int64[3] depth:int64[1] values:float32[3]", nil, "the values are of shape [3]"},
		{"GroupNormalization", x + "s:float32[4] b:float32[4]", []onnx.Attr{attr("num_groups", 2)}, ""},
		{"GroupNormalization", x + "s:float32[2] b:float32[2]", []onnx.Attr{attr("num_groups", 2)},
			"input 1 and the channels: sizes 2 and 4"},
		{"GroupNormalization", x + "s:float32[4] b:float32[4]", []onnx.Attr{attr("num_groups", 3)},
			"4 channels cannot be shared among 3 groups"},
		{"RMSNormalization", x + "s:float32[3]", nil, "sizes 6 and 3"},
		{"RMSNormalization", x + "s:float32[1,1,1,1,6]", nil, "rank 5"},
		{"RMSNormalization", "x:float32[1,1,6] s:float32[1,4,6]", nil, "input 1 on axis 1: sizes 1 and 4"},
		{"LayerNormalization", x + "s:float32[1,6]", nil, ""},
		{"LayerNormalization", "x:float32[2,1] s:float32[3]", nil, "input 1 on axis 1: sizes 1 and 3"},
		{"LayerNormalization", "x:float32[2,1] s:float32[1] b:float32[3]", nil, "input 2 on axis 1: sizes 1 and 3"},
		{"PRelu", "x:float32[1,3] s:float32[4,3]", nil, "input 1 on axis 0: sizes 1 and 4"},
		{"PRelu", "x:float32[3] s:float32[1,3]", nil, "input 1 is of rank 2"},
		{"PRelu", "x:float32[n,3] s:float32[4,1]", nil, ""},
		{"Gemm", "a:float32[1,2] b:float32[2,3] c:float32[4,3]", nil, "input 2 on axis 0: sizes 1 and 4"},
		{"Gemm", "a:float32[4,2] b:float32[2,1] c:float32[3]", nil, "input 2 on axis 1: sizes 1 and 3"},
		{"Gemm", "a:float32[4,2] b:float32[2,3] c:float32[1,4,3]", nil, "input 2 is of rank 3"},
		{"Gemm", "a:float32[n,2] b:float32[2,3] c:float32[4,1]", nil, ""},
		{"Gemm", "a:float32 b:float32[2,3] c:float32[4,3]", nil, ""},
		{"MaxPool", x, []onnx.Attr{list("kernel_shape", 2, 3), list("pads", 1, 2, 1, 2)}, ""},
		{"MaxPool", x, []onnx.Attr{list("kernel_shape", 3, 2), list("pads", 0, 2, 0, 0)},
			"a window of 2 on axis 3 padded by 2"},
		{"LpPool", x, []onnx.Attr{list("kernel_shape", 2, 3), list("pads", 0, 0, 2, 0)}, "on axis 2"},
		{"QuantizeLinear", x + "s:float32[] z:uint8[1]", []onnx.Attr{attr("axis", 9)}, ""},
		{"QuantizeLinear", x + "s:float32[4] z:int8[n]", nil, ""},
		{"QuantizeLinear", x + "s:float32[3]", nil, "the scale and axis 1: sizes 3 and 4"},
		{"QuantizeLinear", x + "s:float32[6]", []onnx.Attr{attr("axis", -1)}, ""},
		{"QuantizeLinear", x + "s:float32[6]", []onnx.Attr{attr("axis", 4)}, "axis 4"},
		{"QuantizeLinear", x + "s:float32[1,4]", nil, "the scale is of shape [1,4]"},
		{"QuantizeLinear", x + "s:float32[4] z:int8[1]", nil, "4 elements and the zero point 1"},
		{"QuantizeLinear", x + "s:float32[1,2,6,6]", []onnx.Attr{attr("block_size", 3)}, ""},
		{"QuantizeLinear", x + "s:float32[1,3,6,6]", []onnx.Attr{attr("block_size", 3)}, "blocks of 3 on axis 1"},
		{"QuantizeLinear", x + "s:float32[1,2,6,5]", []onnx.Attr{attr("block_size", 3)}, "positions of axis 3"},
		{"QuantizeLinear", x + "s:float32[2]", []onnx.Attr{attr("block_size", 3)}, "rank 1"},
		{"DequantizeLinear", "x:int8[2,3] s:float32[2]", nil, "the scale and axis 1"},
		{"Resize", x + "roi:float32[0] s:float32[4] sizes:int64[4]", nil, "both scales and sizes"},
		{"Resize", x + "roi:float32[0] s:float32[0] sizes:int64[4]", nil, ""},
		{"Resize", x + "roi:float32[0] s:float32[0]", nil, "neither scales nor sizes"},
		{"Resize", x + "roi:float32[0] s:float32[n]", nil, ""},
		{"Resize", x, nil, "neither scales nor sizes"},
	} {
		n := &onnx.Node{Name: "node", Op: c.op, Outputs: []string{"y"}, Attrs: c.attrs}
		m := onnx.NewModel(modeltest.Graph(c.inputs, "y:float32", nil, n))
		m.Graph.Outputs[0].DType = onnx.Undefined
		for _, in := range m.Graph.Inputs {
			n.Inputs = append(n.Inputs, in.Name)
		}
		m.Opsets[""] = 23
		if err := shape.Infer(m); c.want == "" {
			must.Do(t, err)
		} else {
			must.Fail(err)(t, c.want, c.op, c.inputs)
		}
	}
}

// TestDequantizedType: the type of dequantised values is the scale's, or the one asked for.
func TestDequantizedType(t *testing.T) {
	t.Parallel()
	for to, want := range map[onnx.DType]onnx.DType{onnx.Undefined: onnx.Float32, onnx.Float16: onnx.Float16} {
		m := onnx.NewModel(modeltest.Graph("x:int8[2] s:float32[]", "y:float32", nil,
			modeltest.Node("DequantizeLinear", "x s", "y", onnx.IntAttr("output_dtype", int(to)))))
		m.Opsets[""] = 23
		must.Do(t, shape.Infer(m))
		if got := m.Graph.Outputs[0].DType; got != want {
			t.Errorf("output_dtype %v makes %v", to, got)
		}
	}
}

// TestSlopesOfChannels: before operator set 7 the slopes of PRelu are of axis 1, however long the last axis is.
func TestSlopesOfChannels(t *testing.T) {
	t.Parallel()
	m := onnx.NewModel(modeltest.Graph("x:float32[1,2,1] s:float32[2]", "y:float32", nil,
		modeltest.Node("PRelu", "x s", "y")))
	m.Opsets[""] = 6
	must.Do(t, shape.Infer(m))
	if got := m.Graph.Outputs[0].Type(); got != "float32[1,2,1]" {
		t.Errorf("the result is %s", got)
	}
}

// TestRankOfOperands: a value of unknown rank has no lower rank than an operand that is broadcast to
// it. A file that states one is not believed.
func TestRankOfOperands(t *testing.T) {
	for _, c := range []struct {
		op, inputs, stated string
		believed           bool
	}{
		{"PRelu", "x:float32 s:float32[2,3]", "y:float32[3]", false},
		{"PRelu", "x:float32 s:float32[2,3]", "y:float32[2,3]", true},
		{"RMSNormalization", "x:float32 s:float32[2,3]", "y:float32[]", false},
		{"LayerNormalization", "x:float32 s:float32[2,3] b:float32[3]", "y:float32[3]", false},
		{"LayerNormalization", "x:float32 s:float32[3] b:float32[2,3]", "y:float32[3]", false},
		{"LayerNormalization", "x:float32 s:float32[3] b:float32[3]", "y:float32[3]", true},
	} {
		n := &onnx.Node{Name: "node", Op: c.op, Outputs: []string{"y"}}
		m := onnx.NewModel(modeltest.Graph(c.inputs, c.stated, nil, n))
		for _, in := range m.Graph.Inputs {
			n.Inputs = append(n.Inputs, in.Name)
		}
		m.Opsets[""] = 23
		must.Do(t, shape.Infer(m))
		if y := m.Graph.Outputs[0]; (y.Shape != nil) != c.believed {
			t.Errorf("%s of %s: %v; stated is %s", c.op, c.inputs, y, c.stated)
		}
	}
}
