package kernel

import (
	"maps"
	"testing"
)

// Layer names the operators of each import, and no others.
func TestLayer(t *testing.T) {
	all, rest := registry, maps.Clone(registry)
	defer func() { registry = all }()
	for layer, enable := range map[string]func(){"fmp/onnx/rare": EnableRare, "fmp/onnx/text": EnableText} {
		registry = map[string][]*Def{}
		enable()
		for name := range registry {
			if got := Layer(name); got != layer {
				t.Errorf("%s is in %q, Layer says %q", name, layer, got)
			}
			delete(rest, name) // where a test enabled it
		}
	}
	for name := range rest {
		if got := Layer(name); got != "" {
			t.Errorf("%s is in every program, Layer says %q", name, got)
		}
	}
}
