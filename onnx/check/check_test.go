package check_test

import (
	"testing"

	"fmp/onnx"
	"fmp/onnx/check"
	"fmp/onnx/internal/modeltest"
	"fmp/onnx/must"
)

func TestCheckNamesTheFault(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		name  string
		spoil func(m *onnx.Model)
		want  string
	}{
		{"a name twice", func(m *onnx.Model) { m.Graph.Nodes[1].Outputs[0] = "image" },
			`"image" is given twice: by the input and by the node`},
		{"an initializer and a node", func(m *onnx.Model) { m.Graph.Nodes[0].Outputs[0] = "w" },
			`"w" is given twice`},
		{"order", func(m *onnx.Model) {
			m.Graph.Nodes[0], m.Graph.Nodes[1] = m.Graph.Nodes[1],
				m.Graph.Nodes[0]
		}, `(Relu): it reads "matmul", which nothing before it gives`},
		{"no such value", func(m *onnx.Model) { m.Graph.Nodes[0].Inputs[1] = "nowhere" },
			`(MatMul): it reads "nowhere"`},
		{"opset too new", func(m *onnx.Model) { m.Opsets[""] = 99 },
			"version 99 of the standard domain; allowed are 7 to 28"},
		{"opset too old", func(m *onnx.Model) { m.Opsets[""] = 6 }, "version 6"},
		{"no opset", func(m *onnx.Model) { m.Opsets = nil },
			"no operator set of the standard domain is imported"},
		{"another domain", func(m *onnx.Model) { m.Graph.Nodes[0].Domain = "com.microsoft" },
			`com.microsoft.MatMul`},
		{"no node", func(m *onnx.Model) { m.Graph.Nodes[0] = nil }, "a node is nil"},
		{"an untyped output", func(m *onnx.Model) { m.Graph.Outputs[0].DType = onnx.Undefined },
			"no element type"},
		{"an output of another type", func(m *onnx.Model) { m.Graph.Outputs[0].DType = onnx.Int64 },
			"is float32, and the file states that it is int64"},
		{"a value of another type", func(m *onnx.Model) { m.Graph.Values = modeltest.Values("matmul:float16") },
			`its output "matmul" is float32, and the file states that it is float16`},
		{"no output", func(m *onnx.Model) { m.Graph.Outputs = nil }, "no output"},
		{"an output from nowhere", func(m *onnx.Model) { m.Graph.Outputs[0].Name = "nowhere" },
			`output "nowhere" is given by no node`},
		{"a tensor that lies", func(m *onnx.Model) {
			m.Graph.Initializers["w"] = &onnx.Tensor{DType: onnx.Float32, Shape: []int{9},
				Data: []float32{1}}
		}, `initializer "w"`},
		{"an attribute twice", func(m *onnx.Model) {
			m.Graph.Nodes[0].Attrs = []onnx.Attr{onnx.IntAttr("a", 1), onnx.IntAttr("a", 2)}
		}, `attribute "a" is nameless or given twice`},
		{"metadata without a key", func(m *onnx.Model) { m.Metadata = map[string]string{"": "x"} },
			"metadata key"},
		{"an IR version from the future", func(m *onnx.Model) { m.IR = 99 }, "IR version 99"},
		{"a function that misses a value", func(m *onnx.Model) {
			m.Functions = []*onnx.Function{{Domain: "own", Name: "f", Outputs: []string{"y"},
				Nodes: []*onnx.Node{{Op: "Relu", Inputs: []string{"x"}, Outputs: []string{"y"}}}}}
		}, `function own.f: node "y" (Relu): it reads "x"`},
	} {
		t.Run(tc.name, func(t *testing.T) {
			m := modeltest.Linear(t, "m", "image", "features", 8, 4)
			must.Do(t, check.Model(m))
			tc.spoil(m)
			must.Fail(check.Model(m))(t, tc.want)
		})
	}
}
