package engine_test

import (
	"testing"

	"fmp/onnx"
	"fmp/onnx/engine"
	"fmp/onnx/engine/pure"
	"fmp/onnx/must"
)

// The pure engine names the import of an operator that this program does not have; where there is
// none it names none.
func TestRefusalsNameTheImport(t *testing.T) {
	eng := must.Get(pure.New(engine.Options{}))(t)
	defer eng.Close()
	for name, want := range map[onnx.OpName]string{
		{Name: "DFT"}:          `import _ "fmp/onnx/rare"`,
		{Name: "StringConcat"}: `import _ "fmp/onnx/text"`,
		{Domain: "ai.onnx.ml", Name: "TreeEnsembleRegressor"}: `import _ "fmp/onnx/classical"`,
		{Domain: "ai.onnx.ml", Name: "ZipMap"}:                "operators of this domain are not supported",
		{Name: "Bernoulli"}:                                   "the operator is not supported",
	} {
		x := onnx.ValueInfo{Name: "x", DType: onnx.Float32, Shape: onnx.Shape(2)}
		m := onnx.NewModel(&onnx.Graph{Name: "g", Inputs: []onnx.ValueInfo{x},
			Outputs: []onnx.ValueInfo{{Name: "y"}},
			Nodes: []*onnx.Node{{Name: "n", Op: name.Name, Domain: name.Domain, Inputs: []string{"x"},
				Outputs: []string{"y"}}}})
		must.Fail(eng.Load(m))(t, want, name)
	}
}
