package pure

import (
	"crypto/sha256"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"fmp/onnx"
	"fmp/onnx/build"
	"fmp/onnx/engine"
	"fmp/onnx/internal/modeltest"
	"fmp/onnx/must"
)

func init() { EnableIntegers() }

// quantizer builds graphs whose values are quantised and dequantised between all operators.
type quantizer struct {
	*build.Builder
	r *rand.Rand
	n int
	d onnx.DType

	scale, zeroPoint build.Ref // the last ones
}

func (q *quantizer) zero() build.Ref {
	q.n++
	name, v := fmt.Sprint("zero", q.n), q.r.IntN(40)
	if q.d == onnx.Int8 {
		return q.Param(name, onnx.Scalar(int8(v-20)))
	}
	return q.Param(name, onnx.Scalar(uint8(v+100)))
}

// bytes quantises and dequantises x.
func (q *quantizer) bytes(x build.Ref, scale float32) build.Ref {
	q.scale, q.zeroPoint = q.Param(fmt.Sprint("scale", q.n), onnx.Scalar(scale)), q.zero()
	return q.again(x)
}

// again is bytes with the scale and zero point of the last ones.
func (q *quantizer) again(x build.Ref) build.Ref {
	return q.Op("DequantizeLinear",
		[]build.Ref{q.Op("QuantizeLinear", []build.Ref{x, q.scale, q.zeroPoint}), q.scale, q.zeroPoint})
}

// weights are of signed bytes, with a scale for each of their outputs, the axis.
func (q *quantizer) weights(axis int, shape ...int) build.Ref {
	q.n++
	w, scale := make([]int8, product(shape)), onnx.ZerosF32(shape[axis])
	for i := range w {
		w[i] = int8(q.r.Uint32())
	}
	for i := range scale.F32() {
		scale.F32()[i] = .002 + .002*q.r.Float32()
	}
	return q.Op("DequantizeLinear",
		[]build.Ref{q.Param(fmt.Sprint("w", q.n), onnx.NewTensor(w, shape...)),
			q.Param(fmt.Sprint("ws", q.n), scale),
			q.Param(fmt.Sprint("wz", q.n), onnx.NewTensor(make([]int8, shape[axis]), shape[axis]))},
		onnx.IntAttr("axis", axis))
}

func product(shape []int) int {
	n := 1
	for _, d := range shape {
		n *= d
	}
	return n
}

func (q *quantizer) conv(x build.Ref, in, out, size, stride, group int) build.Ref {
	q.n++
	bias, p := onnx.ZerosF32(out), size/2
	for i := range bias.F32() {
		bias.F32()[i] = float32(q.r.NormFloat64())
	}
	return q.Op("Conv", []build.Ref{x, q.weights(0, out, in/group, size, size),
		q.Param(fmt.Sprint("b", q.n), bias)}, onnx.IntsAttr("strides", stride, stride),
		onnx.IntsAttr("pads", p, p, p, p), onnx.IntAttr("group", group))
}

// QuantizedNetwork has each of the operators that are run on bytes.
func QuantizedNetwork(t *testing.T, d onnx.DType) *onnx.Model {
	q := &quantizer{Builder: build.New("quantized"), r: rand.New(rand.NewPCG(3, 1)), d: d}
	x := q.bytes(q.Input("image", onnx.Float32, "n", 3, 21, 21), .03)
	x = q.bytes(q.Op("Relu", []build.Ref{q.conv(x, 3, 12, 3, 2, 1)}), .02)
	x = q.bytes(q.Op("Clip", []build.Ref{q.conv(x, 12, 12, 5, 1, 12), q.Param("low", onnx.Scalar(float32(-1))),
		q.Param("high", onnx.Scalar(float32(2)))}), .02)
	x = q.bytes(q.Op("Mul", []build.Ref{x, q.bytes(q.Op("Sigmoid", []build.Ref{x}), .004)}), .015)
	y := q.bytes(q.conv(x, 12, 12, 1, 1, 1), .02)
	x = q.bytes(q.Op("Add", []build.Ref{x, y}), .03)
	scale := q.bytes(q.Op("GlobalAveragePool", []build.Ref{x}), .01)
	x = q.bytes(q.Op("Mul", []build.Ref{q.bytes(q.Op("HardSigmoid", []build.Ref{scale}), .004), x}),
		.02)
	x = q.again(q.Op("MaxPool", []build.Ref{x}, onnx.IntsAttr("kernel_shape", 2, 2),
		onnx.IntsAttr("strides", 2, 2)))
	x = q.again(q.Op("Flatten", []build.Ref{x}))
	x = q.bytes(q.Op("Gemm",
		[]build.Ref{x, q.weights(0, 9, 12*5*5),
			q.Param("gb", onnx.Vector[float32](1, 2, 3, 4, 5, 6, 7, 8, 9))},
		onnx.IntAttr("transB", 1)), .05)
	x = q.bytes(q.Op("MatMul", []build.Ref{x, q.weights(1, 9, 7)}), .05)
	q.Output("y", x)
	return must.Get(q.Model())(t)
}

// QuantizedFeeds are three images for [QuantizedNetwork].
func QuantizedFeeds() map[string]*onnx.Tensor {
	image, r := onnx.ZerosF32(3, 3, 21, 21), rand.New(rand.NewPCG(4, 1))
	for i := range image.F32() {
		image.F32()[i] = float32(r.IntN(400)-200) / 64
	}
	return map[string]*onnx.Tensor{"image": image}
}

func computed(t *testing.T, e engine.Engine, m *onnx.Model) *onnx.Tensor {
	t.Helper()
	out := modeltest.Eval(t, e, m, QuantizedFeeds())
	return out["y"]
}

// TestQuantized: a network of quantised operators runs on bytes to the same values on every
// machine, which are those of the float32 operators but for a quantum here and there.
func TestQuantized(t *testing.T) {
	for _, c := range []struct {
		d   onnx.DType
		sum string
	}{{onnx.Uint8, "7b94952d94b382d2"}, {onnx.Int8, "6c9fe0b4fa228e55"}} {
		m := QuantizedNetwork(t, c.d)
		e := must.Get(New(engine.Options{Threads: 2}))(t)
		got := computed(t, e, m)
		separate := onnx.Clone(m)
		for _, n := range m.Graph.Nodes { // a value that is an output is made as float32
			if n.Op != "QuantizeLinear" && n.Op != "DequantizeLinear" {
				separate.Graph.Outputs = append(separate.Graph.Outputs, onnx.ValueInfo{Name: n.Outputs[0]})
			}
		}
		want := computed(t, e, separate)
		apart := 0
		for i, v := range got.F32() {
			switch d := math.Abs(float64(v-want.F32()[i])) / .05; {
			case d > 1.01:
				t.Errorf("%v: output %d is %v where %v is expected", c.d, i, v, want.F32()[i])
			case d > .5:
				apart++
			}
		}
		if apart > 3 {
			t.Errorf("%v: %d of %d outputs are a quantum apart", c.d, apart, len(got.F32()))
		}
		if sum := fmt.Sprintf("%x", sha256.Sum256(fmt.Append(nil, got.F32())))[:16]; sum != c.sum {
			t.Errorf("%v: outputs have the sum %s where %s is expected", c.d, sum, c.sum)
		}
		s := must.Get(e.Load(m))(t)
		var ops []string
		for _, st := range s.(*session).plan.steps {
			ops = append(ops, st.node.Op)
		}
		expected := []string{"QuantizeLinear", "Conv", "Conv", "Mul", "Conv", "Add", "DequantizeLinear",
			"GlobalAveragePool", "QuantizeLinear", "HardSigmoid", "Mul", "MaxPool", "Flatten", "Gemm",
			"MatMul", "DequantizeLinear", "Identity"}
		slices.Sort(ops)
		slices.Sort(expected)
		if !slices.Equal(ops, expected) {
			t.Errorf("%v: the steps are %v where %v are expected", c.d, ops, expected)
		}
		must.Do(t, s.Close())
	}
}
