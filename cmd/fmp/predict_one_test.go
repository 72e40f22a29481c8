package main

import (
	"encoding/json"
	"math"
	"path/filepath"
	"testing"

	"fmp/onnx"
	"fmp/onnx/engine"
	"fmp/onnx/engine/ort/orttest"
	"fmp/onnx/must"
	"fmp/onnx/serde"
)

// predictedJSON is the part of fmp predict --json that tests read.
type predictedJSON struct {
	Predictions []struct {
		File          string
		Probabilities []float64
	}
}

// TestOneImage: one image runs on the pure engine, unless an engine is named or the classifier is
// too much work for it, and has the runtime's probabilities.
func TestOneImage(t *testing.T) {
	orttest.New(t)
	at := func(name string) string { return filepath.Join("testdata", "releases", "0.1.0", name) }
	predict := func(args ...string) string {
		t.Helper()
		out, _ := ran(t, append([]string{"predict", "--json", at("classifier.onnx")},
			args...)...)
		return out
	}
	numbers := func(out string) []float64 {
		t.Helper()
		var got predictedJSON
		if err := json.Unmarshal([]byte(out), &got); err != nil || len(got.Predictions) != 1 {
			t.Fatalf("%s: %v", out, err)
		}
		return got.Predictions[0].Probabilities
	}
	image := at("image.jpg")
	alone, inGo, byRuntime := predict(image), predict(image, "--engine", "pure"),
		predict(image, "--engine", "ort")
	if alone != inGo {
		t.Errorf("one image gives %s, and on the pure engine %s", alone, inGo)
	}
	for c, p := range numbers(byRuntime) {
		if q := numbers(alone)[c]; math.Abs(p-q) > 1e-5 {
			t.Errorf("class %d: %v on the runtime, %v in Go", c, p, q)
		}
	}
	if alone == byRuntime {
		t.Skip("both engines have the same bits: nothing tells which one ran")
	}
	if got := predict(image, "--engine", "auto"); got != byRuntime {
		t.Errorf("--engine auto gives %s, want the runtime's %s", got, byRuntime)
	}
	was := oneImage
	t.Cleanup(func() { oneImage = was })
	if oneImage = (engine.Limits{Work: 1000}); predict(image) != byRuntime {
		t.Error("a classifier of much work does not run on the runtime")
	}
}

// TestOneImageInBytes: a classifier that rounds to bytes gives an image the bits that it has in a
// folder; one whose weights alone are in bytes runs in Go.
func TestOneImageInBytes(t *testing.T) {
	orttest.New(t)
	from := filepath.Join("testdata", "releases", "0.1.0")
	image := filepath.Join(from, "image.jpg")
	for _, c := range []struct{ name, op, like string }{
		{"activations", "QuantizeLinear", "ort"},
		{"activations, with a scale of their own", "DynamicQuantizeLinear", "ort"},
		{"weights", "", "pure"},
	} {
		t.Run(c.name, func(t *testing.T) {
			m := must.Get(serde.Load(filepath.Join(from, "classifier.onnx")))(t)
			inBytes(m.Graph, c.op)
			path := saved(t)(m, nil)
			predict := func(engine ...string) string {
				out, _ := ran(t, append([]string{"predict", "--json", path, image}, engine...)...)
				return out
			}
			byRuntime, inGo := predict("--engine", "ort"), predict("--engine", "pure")
			if byRuntime == inGo {
				t.Skip("both engines have the same bits: nothing tells which one ran")
			}
			want := map[string]string{"ort": byRuntime, "pure": inGo}[c.like]
			if got := predict(); got != want {
				t.Errorf("alone the image gives %s, want %s's %s", got, c.like, want)
			}
		})
	}
}

// inBytes adds to a classifier's entropy a number that is stored as a byte, or with op is rounded
// to one.
func inBytes(g *onnx.Graph, op string) {
	for _, n := range g.Nodes {
		for i, out := range n.Outputs {
			if out == "entropy" {
				n.Outputs[i] = "before"
			}
		}
	}
	g.Initializers["step"] = onnx.NewTensor([]float32{0.5})
	g.Initializers["zero"] = onnx.NewTensor([]uint8{0})
	back := []string{"byte", "step", "zero"}
	switch op {
	case "":
		g.Initializers["byte"] = onnx.NewTensor([]uint8{0}, 1)
	case "QuantizeLinear":
		g.Nodes = append(g.Nodes, &onnx.Node{Op: op, Inputs: []string{"before", "step", "zero"},
			Outputs: []string{"byte"}})
	default:
		back = []string{"byte", "scale", "offset"}
		g.Nodes = append(g.Nodes, &onnx.Node{Op: op, Inputs: []string{"before"}, Outputs: back})
	}
	g.Nodes = append(g.Nodes, &onnx.Node{Op: "DequantizeLinear", Inputs: back, Outputs: []string{"back"}},
		&onnx.Node{Op: "Add", Inputs: []string{"before", "back"}, Outputs: []string{"entropy"}})
}
