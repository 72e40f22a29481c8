package grad

import (
	"maps"
	"math"
	"math/rand/v2"
	"testing"

	"fmp/onnx"
	"fmp/onnx/engine"
	"fmp/onnx/engine/ort/orttest"
	"fmp/onnx/engine/pure"
	"fmp/onnx/internal/modeltest"
	"fmp/onnx/must"
)

// converted is a tensor of float32 in another type of float, and any other as it is.
func converted(t *testing.T, x *onnx.Tensor, d onnx.DType) *onnx.Tensor {
	if x.DType != onnx.Float32 || d == onnx.Float32 {
		return x
	}
	out := must.Get(onnx.Zeros(d, x.Shape...))(t)
	for i, v := range x.F32() {
		switch o := out.Data.(type) {
		case []float64:
			o[i] = float64(v)
		case []uint16:
			o[i] = onnx.Float32ToFloat16(v)
		}
	}
	return out
}

// TestGradientsHoldTheirNumbers compares gradients in float32 and Float16 with those in float64, where
// squares, counts and differences of large numbers are out of a type's range or precision.
func TestGradientsHoldTheirNumbers(t *testing.T) {
	wide := func(mean, deviation float64, shape ...int) arg {
		return arg{shape: shape, draw: func(r *rand.Rand, _, _ int) float32 {
			return float32(mean + deviation*r.NormFloat64())
		}}
	}
	one, zero := wide(1, 0, 2), constant(onnx.ZerosF32(2))
	labels := must.Get(onnx.Zeros(onnx.Int64, 1, 300, 300))(t)
	norm := wide(1, 0, 768)
	engines := map[string]engine.Engine{"ort": orttest.New(t), "pure": must.Get(pure.New(engine.Options{}))(t)}
	for _, c := range []struct {
		rule ruleCase
		of   onnx.DType
	}{
		{vjp("BatchNormalization mean 10000", "training_mode=1", wide(10000, 1, 64, 2), one, one, zero,
			vector(1, 1)).gives(-3), onnx.Float32},
		{vjp("BatchNormalization of images", "training_mode=1", wide(0, 12, 8, 2, 30, 30), one, one, zero,
			vector(1, 1)).gives(-3), onnx.Float16},
		{vjp("LayerNormalization", "", wide(0, 12, 1, 768), norm, norm), onnx.Float16},
		{vjp("LpNormalization", "", wide(0, 12, 1, 768)), onnx.Float16},
		{vjp("ReduceMean", "keepdims=0", wide(0, 1, 300, 300)), onnx.Float16},
		{vjp("GlobalAveragePool", "", wide(0, 1, 1, 1, 300, 300)), onnx.Float16},
		{vjp("AveragePool", "kernel_shape=300,300 pads=0,0,1,1", wide(0, 1, 1, 1, 300, 300)), onnx.Float16},
		{vjp("LpPool", "kernel_shape=2,2 p=3", wide(300, 10, 1, 1, 4, 4)), onnx.Float16},
		{vjp("SoftmaxCrossEntropyLoss", "", wide(0, 1, 1, 2, 300, 300), constant(labels)), onnx.Float16},
		{vjp("Gelu", "approximate=tanh", fixedValues([]int{3}, 300, -300, 1)).at(20), onnx.Float16},
		{vjp("Sinh", "", fixedValues([]int{2}, 50, -50)), onnx.Float32},
		{vjp("Asinh", "", fixedValues([]int{2}, 1e20, -2e20)), onnx.Float32},
		{vjp("Acosh", "", fixedValues([]int{2}, 1e20, 2e20)), onnx.Float32},
		{vjp("Asinh", "", fixedValues([]int{2}, 131, -125)), onnx.Float16},
		{vjp("Acosh", "", fixedValues([]int{2}, 140, 131)), onnx.Float16},
	} {
		gradient := func(eng engine.Engine, d onnx.DType) map[string]*onnx.Tensor {
			m, feeds, wrt := c.rule.model(false, 7)
			for name, v := range m.Graph.Initializers {
				m.Graph.Initializers[name] = converted(t, v, d)
			}
			for i := range m.Graph.Inputs {
				m.Graph.Inputs[i].DType = d
			}
			gm := must.Get(Build(m, Options{WRT: wrt}))(t)
			all := maps.Clone(feeds)
			r := rand.New(rand.NewPCG(5, 6))
			for _, v := range gm.Graph.Inputs {
				if all[v.Name] == nil {
					size := make([]int, len(v.Shape))
					for i, s := range v.Shape {
						size[i] = s.Size
					}
					all[v.Name] = onnx.ZerosF32(size...)
					for i := range all[v.Name].F32() {
						all[v.Name].F32()[i] = float32(r.IntN(2048)-1023) / 1024
					}
				}
			}
			for name, v := range all {
				all[name] = converted(t, v, d)
			}
			return modeltest.Eval(t, eng, gm, all)
		}
		want := gradient(engines["pure"], onnx.Float64)
		for name, eng := range engines {
			t.Run(c.rule.name+" "+name, func(t *testing.T) {
				last := 0.0 // rounding of the smallest numbers of the type
				if c.of == onnx.Float16 {
					last = 0x1p-25
				}
				for v, g := range gradient(eng, c.of) {
					largest, off := 0.0, 0.0
					for i := range want[v].Len() {
						largest = max(largest, math.Abs(want[v].At(i)))
						off = max(off, math.Abs(g.At(i)-want[v].At(i)))
					}
					if !(off <= 0.001*largest+last) || largest == 0 {
						t.Errorf("%s is off by %g where its largest element is %g", v, off, largest)
					}
				}
			})
		}
	}
}
