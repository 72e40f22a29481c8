package pass

import (
	"maps"
	"testing"

	"fmp/onnx"
	"fmp/onnx/build"
	"fmp/onnx/internal/modeltest"
	"fmp/onnx/must"
	"fmp/onnx/serde"
)

func TestCompose(t *testing.T) {
	a := modeltest.Linear(t, "first", "image", "features", 8, 4)
	a.Metadata = map[string]string{"kind": "extractor", "dx": "4"}
	b := modeltest.Linear(t, "second", "points", "drawn", 4, 3)
	b.Metadata = map[string]string{"kind": "embedding", "C": "3"}
	before := must.Get(serde.Marshal(a))(t)
	m := must.Get(Compose(a, b, map[string]string{"points": "features"}))(t)
	if len(m.Graph.Inputs) != 1 || m.Graph.Inputs[0].Name != "image" || len(m.Graph.Outputs) != 1 ||
		m.Graph.Outputs[0].Name != "drawn" {
		t.Errorf("inputs %s, outputs %s", listNames(m.Graph.Inputs), listNames(m.Graph.Outputs))
	}
	if got, want := m.Graph.Outputs[0].Type(), "float32[batch,3]"; got != want {
		t.Errorf("output is %s, want %s", got, want)
	}
	if m.Graph.Initializers["w"] == nil || m.Graph.Initializers["second/w"] == nil {
		t.Errorf("initializers are %v", m.Graph.InitializerNames())
	}
	want := map[string]string{"first.kind": "extractor", "second.kind": "embedding",
		"dx": "4", "C": "3"}
	for k, v := range want {
		if m.Metadata[k] != v {
			t.Errorf("metadata %s is %q, want %q", k, m.Metadata[k], v)
		}
	}
	if after, _ := serde.Marshal(a); string(after) != string(before) {
		t.Error("the first model was changed")
	}
}

// TestMetadata: no value is lost, also where a model has a key that another one would get.
func TestMetadata(t *testing.T) {
	for _, c := range []struct{ a, b, want map[string]string }{
		{nil, nil, map[string]string{}},
		{nil, map[string]string{"k": "1"}, map[string]string{"k": "1"}},
		{map[string]string{"k": "1", "a": "2"}, map[string]string{"k": "1", "b": "3"},
			map[string]string{"k": "1", "a": "2", "b": "3"}},
		{map[string]string{"k": "1", "first.k": "2"}, map[string]string{"k": "3"},
			map[string]string{"first.k": "2", "first.k_1": "1", "second.k": "3"}},
		{map[string]string{"k": "1"}, map[string]string{"k": "2", "first.k": "3", "second.k": "4"},
			map[string]string{"first.k": "3", "second.k": "4", "first.k_1": "1", "second.k_1": "2"}},
		{map[string]string{"k": "1", "first.k": "2"}, map[string]string{"k": "3", "first.k": "4"},
			map[string]string{"first.k_1": "1", "second.k": "3", "first.first.k": "2", "second.first.k": "4"}},
	} {
		if got := mergeMetadata(c.a, c.b); !maps.Equal(got, c.want) {
			t.Errorf("%v and %v give %v, want %v", c.a, c.b, got, c.want)
		}
	}
}

func TestComposeKeepsOtherInputsAndSymbols(t *testing.T) {
	b := build.New("head")
	z := b.Input("points", onnx.Float32, "rows", 4)
	w := b.Input("weights", onnx.Float32, "rows", 1)
	n := b.Input("noise", onnx.Float32, "batch", 4)
	b.Output("weighted", b.Mul(z, w))
	b.Output("fresh", b.Relu(n))
	head := must.Get(b.Model())(t)
	m := must.Get(Compose(modeltest.Linear(t, "first", "image", "points", 8, 4), head, nil))(t)
	want := `"image" float32[batch,8], "weights" float32[batch,1], "noise" float32[batch_1,4]`
	if got := listNames(m.Graph.Inputs); got != want {
		t.Errorf("inputs are %s, want %s", got, want)
	}
	if got, want := listNames(m.Graph.Outputs),
		`"weighted" float32[batch,4], "fresh" float32[batch_1,4]`; got != want {
		t.Errorf("outputs are %s, want %s", got, want)
	}
}

func TestComposeNamesBothSides(t *testing.T) {
	a := modeltest.Linear(t, "first", "image", "features", 8, 4)
	for _, tc := range []struct {
		name string
		b    *onnx.Model
		link map[string]string
		want []string
	}{
		{"sizes", modeltest.Linear(t, "second", "points", "drawn", 5, 3),
			map[string]string{"points": "features"},
			[]string{`"features" float32[batch,4]`, `"points" float32[batch,5]`, "4 and 5"}},
		{"no such input", modeltest.Linear(t, "second", "points", "drawn", 4, 3),
			map[string]string{"x": "features"}, []string{`no input "x"`, `"points"`}},
		{"no such output", modeltest.Linear(t, "second", "points", "drawn", 4, 3),
			map[string]string{"points": "y"}, []string{`no output "y"`, `"features"`}},
		{"nothing in common", modeltest.Linear(t, "second", "points", "drawn", 4, 3), nil,
			[]string{"nothing links"}},
		{"one name twice", modeltest.Linear(t, "second", "points", "image", 4, 3),
			map[string]string{"points": "features"},
			[]string{`"image" is an input of the first model and an output of the second`}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			for _, w := range tc.want {
				must.Fail(Compose(a, tc.b, tc.link))(t, w)
			}
		})
	}
}
