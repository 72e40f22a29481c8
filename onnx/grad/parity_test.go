package grad

import (
	"math"
	"path/filepath"
	"strings"
	"testing"

	"fmp/onnx"
	"fmp/onnx/engine"
	"fmp/onnx/engine/ort/orttest"
	"fmp/onnx/must"
	"fmp/onnx/serde"
)

// TestGradientsOfPyTorchModels compares with autograd on models of operator sets 11 and 14,
// exported by PyTorch (testdata/torch_parity.py).
func TestGradientsOfPyTorchModels(t *testing.T) {
	eng := orttest.New(t)
	for _, name := range []string{"cnn", "attention"} {
		t.Run(name, func(t *testing.T) {
			m := must.Get(serde.Load(filepath.Join("testdata", name+".onnx")))(t)
			values := must.Get(serde.Load(filepath.Join("testdata", name+"_values.onnx")))(t)
			var wrt []string
			for n := range values.Graph.Initializers {
				if w, ok := strings.CutPrefix(n, "grad_"); ok && w != "y" {
					wrt = append(wrt, w)
				}
			}
			if len(wrt) < 6 {
				t.Fatalf("only %v to differentiate for", wrt)
			}
			g := must.Get(Build(m, Options{Outputs: []string{"y"}, WRT: wrt, KeepOutputs: true}))(t)
			feeds := map[string]*onnx.Tensor{}
			for _, in := range g.Graph.Inputs {
				feeds[in.Name] = values.Graph.Initializers[in.Name]
			}
			got := must.Get(engine.Eval(load(t, eng, g), feeds))(t)
			for _, w := range append(wrt, "y") {
				key := "grad_" + w
				if w == "y" {
					key = "y"
				}
				want := values.Graph.Initializers[key].F32()
				if len(want) != got[key].Len() {
					t.Errorf("%s has shape %v, autograd gives %d numbers", key, got[key].Shape, len(want))
					continue
				}
				for i, v := range got[key].F32() {
					if math.Abs(float64(v-want[i])) > 2e-4*(1+math.Abs(float64(want[i]))) {
						t.Errorf("%s[%d] is %g, autograd gives %g", key, i, v, want[i])
						break
					}
				}
			}
		})
	}
}
