package spell

import (
	"maps"
	"testing"

	"fmp/onnx"
)

// Layer names the operators that the import adds, and no others.
func TestLayer(t *testing.T) {
	plain := maps.Clone(spellings)
	defer func() { spellings = plain }()
	EnableClassical()
	for name := range spellings {
		want := ""
		if _, is := plain[name]; !is {
			want = "fmp/onnx/classical"
		}
		if got := Layer(&onnx.Node{Domain: name.Domain, Op: name.Name}); got != want {
			t.Errorf("%v is in %q, Layer says %q", name, want, got)
		}
	}
	if len(plain) == len(spellings) {
		t.Error("the import adds none")
	}
}
