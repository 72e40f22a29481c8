package onnx

import (
	"strings"
	"testing"
)

// linear is y = x w over "batch" rows, with metadata.
func linear(t *testing.T, name, in, out string, from, to int, meta map[string]string) *Model {
	t.Helper()
	b := NewBuilder(name)
	x := b.Input(in, Float32, "batch", from)
	b.Output(out, b.Relu(b.MatMul(x, b.Param("w", ZerosF32(from, to)))))
	m, err := b.Model()
	if err != nil {
		t.Fatal(err)
	}
	m.Metadata = meta
	return m
}

func TestCompose(t *testing.T) {
	a := linear(t, "first", "image", "features", 8, 4, map[string]string{"kind": "extractor", "dx": "4"})
	b := linear(t, "second", "points", "drawn", 4, 3, map[string]string{"kind": "embedding", "C": "3"})
	before, err := Marshal(a)
	if err != nil {
		t.Fatal(err)
	}
	m, err := Compose(a, b, map[string]string{"points": "features"})
	if err != nil {
		t.Fatal(err)
	}
	if len(m.Graph.Inputs) != 1 || m.Graph.Inputs[0].Name != "image" || len(m.Graph.Outputs) != 1 || m.Graph.Outputs[0].Name != "drawn" {
		t.Errorf("inputs %s, outputs %s", listNames(m.Graph.Inputs), listNames(m.Graph.Outputs))
	}
	if got, want := m.Graph.Outputs[0].String(), "float32[batch,3]"; got != want {
		t.Errorf("output is %s, want %s", got, want)
	}
	if m.Graph.Initializers["w"] == nil || m.Graph.Initializers["second/w"] == nil {
		t.Errorf("initializers are %v", m.Graph.InitializerNames())
	}
	want := map[string]string{"first.kind": "extractor", "second.kind": "embedding", "dx": "4", "C": "3"}
	for k, v := range want {
		if m.Metadata[k] != v {
			t.Errorf("metadata %s is %q, want %q", k, m.Metadata[k], v)
		}
	}
	if after, _ := Marshal(a); string(after) != string(before) {
		t.Error("the first model was changed")
	}
}

func TestComposeKeepsOtherInputsAndSymbols(t *testing.T) {
	b := NewBuilder("head")
	z := b.Input("points", Float32, "rows", 4)
	w := b.Input("weights", Float32, "rows", 1)
	n := b.Input("noise", Float32, "batch", 4)
	b.Output("weighted", b.Mul(z, w))
	b.Output("fresh", b.Relu(n))
	head, err := b.Model()
	if err != nil {
		t.Fatal(err)
	}
	m, err := Compose(linear(t, "first", "image", "points", 8, 4, nil), head, nil)
	if err != nil {
		t.Fatal(err)
	}
	if got, want := listNames(m.Graph.Inputs), `"image" float32[batch,8], "weights" float32[batch,1], "noise" float32[batch_1,4]`; got != want {
		t.Errorf("inputs are %s, want %s", got, want)
	}
	if got, want := listNames(m.Graph.Outputs), `"weighted" float32[batch,4], "fresh" float32[batch_1,4]`; got != want {
		t.Errorf("outputs are %s, want %s", got, want)
	}
}

func TestComposeNamesBothSides(t *testing.T) {
	a := linear(t, "first", "image", "features", 8, 4, nil)
	for _, tc := range []struct {
		name string
		b    *Model
		link map[string]string
		want []string
	}{
		{"sizes", linear(t, "second", "points", "drawn", 5, 3, nil), map[string]string{"points": "features"}, []string{`"features" float32[batch,4]`, `"points" float32[batch,5]`, "4 and 5"}},
		{"no such input", linear(t, "second", "points", "drawn", 4, 3, nil), map[string]string{"x": "features"}, []string{`no input "x"`, `"points"`}},
		{"no such output", linear(t, "second", "points", "drawn", 4, 3, nil), map[string]string{"points": "y"}, []string{`no output "y"`, `"features"`}},
		{"nothing in common", linear(t, "second", "points", "drawn", 4, 3, nil), nil, []string{"nothing links"}},
		{"one name twice", linear(t, "second", "points", "image", 4, 3, nil), map[string]string{"points": "features"}, []string{`"image" is an input of the first model and an output of the second`}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			_, err := Compose(a, tc.b, tc.link)
			if err == nil {
				t.Fatal("no error")
			}
			for _, w := range tc.want {
				if !strings.Contains(err.Error(), w) {
					t.Errorf("error %q does not say %q", err, w)
				}
			}
		})
	}
}
