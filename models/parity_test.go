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
	var cases map[string]struct{ Inputs, Outputs arrays }
	must.Do(t, json.Unmarshal(data, &cases))
	if len(cases) != len(ms) {
		t.Fatalf("parity.json holds %d models, want %d", len(cases), len(ms))
	}
	for name, c := range cases {
		feeds := c.Inputs.tensors()
		for out, want := range c.Outputs.tensors() {
			near(t, name+" on pure: "+out, evalPure(t, ms[name], feeds)[out], want, 1e-5)
			near(t, name+" on ort: "+out, eval(t, ms[name], feeds)[out], want, 1e-5)
		}
	}
}
