package models

import (
	"encoding/json"
	"flag"
	"os"
	"path/filepath"
	"testing"

	"fmp/onnx"
	"fmp/onnx/must"
	"fmp/onnx/serde"
)

var writeModels = flag.String("write-models", "",
	"folder to write the parity test's models to, for testdata/parity.py")

// parityModels are small enough for their expected values to be kept in testdata.
func parityModels(t *testing.T) map[string]*onnx.Model {
	t.Helper()
	p := must.Get(NewPredictor(PredictorConfig{Dx: 5, C: 3, Dim: 15, Beta: 6}, 11))(t)
	e := must.Get(NewEmbedding(EmbeddingConfig{Dx: 5, C: 3, Size: 4, Dim: 15}, 12))(t)
	c := must.Get(NewEmbedding(EmbeddingConfig{Dx: 5, C: 3, Size: 4, Dim: 15, ConstantWeights: true}, 12))(t)
	return map[string]*onnx.Model{"predictor": p, "embedding": e, "embedding_constant": c}
}

// TestParity compares the graphs with the executable form of the equations in PyTorch: parity.json
// holds inputs and the outputs that it gave for them with the weights of these very models.
func TestParity(t *testing.T) {
	ms := parityModels(t)
	if *writeModels != "" {
		for name, m := range ms {
			must.Do(t, serde.Save(filepath.Join(*writeModels, name+".onnx"), m))
		}
	}
	data := must.Get(os.ReadFile("testdata/parity.json"))(t)
	type array struct {
		Shape []int
		Data  []float32
	}
	var cases map[string]struct{ Inputs, Outputs map[string]array }
	must.Do(t, json.Unmarshal(data, &cases))
	if len(cases) != len(ms) {
		t.Fatalf("parity.json holds %d models, want %d", len(cases), len(ms))
	}
	for name, c := range cases {
		feeds := map[string]*onnx.Tensor{}
		for in, a := range c.Inputs {
			feeds[in] = onnx.NewTensor(a.Data, a.Shape...)
		}
		for out, want := range c.Outputs {
			compare := func(engine string, got *onnx.Tensor) {
				t.Helper()
				near(t, name+" on "+engine+": "+out, got, onnx.NewTensor(want.Data, want.Shape...), 1e-5)
			}
			compare("pure", evalPure(t, ms[name], feeds)[out])
			compare("ort", eval(t, ms[name], feeds)[out])
		}
	}
}
