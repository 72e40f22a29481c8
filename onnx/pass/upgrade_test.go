package pass_test

import (
	"reflect"
	"testing"

	"fmp/onnx"
	"fmp/onnx/engine"
	"fmp/onnx/engine/pure"
	"fmp/onnx/internal/modeltest"
	"fmp/onnx/must"
	"fmp/onnx/pass"
)

// TestUpgradeOfDFT: in operator set 17 the axis is an attribute, 1 by default, and from 20 on an
// input, -2 by default.
func TestUpgradeOfDFT(t *testing.T) {
	e := must.Get(pure.New(engine.Options{Threads: 1}))(t)
	x := onnx.ZerosF32(1, 3, 4, 1)
	for i := range x.F32() {
		x.F32()[i] = float32(i * i)
	}
	for _, tc := range []struct{ reads, attrs string }{
		{"x", ""}, {"x", "axis=1"}, {"x", "axis=2"}, {"x", "axis=-3 onesided=1"}, {"x length", ""},
		{"x length", "axis=2 inverse=1"},
	} {
		for _, to := range []int{19, 20, onnx.MaxOpset} {
			t.Run(tc.reads+" "+tc.attrs, func(t *testing.T) {
				m := onnx.NewModel(modeltest.Graph("x:float32[1,3,4,1]", "y:float32",
					map[string]*onnx.Tensor{"length": onnx.Scalar[int64](5)},
					modeltest.Node("DFT", tc.reads, "y", modeltest.Attrs("DFT", 17, tc.attrs)...)))
				m.Opsets[""] = 17
				feeds := map[string]*onnx.Tensor{"x": x}
				want := modeltest.Eval(t, e, m, feeds)
				must.Do(t, pass.Upgrade(m, to))
				if got := modeltest.Eval(t, e, m, feeds); !reflect.DeepEqual(got, want) {
					t.Errorf("operator set %d: %v, was %v", to, got["y"], want["y"])
				}
			})
		}
	}
}
