package main

import (
	"slices"
	"testing"
)

// TestInPart: the module and its parsers lead the fuzzer, and what they link besides does not.
func TestInPart(t *testing.T) {
	for pkg, want := range map[string]bool{"fmp/onnx/npy": true, "fmpx": false, "encoding/json": true,
		"go.yaml.in/yaml/v3": true, "net/http": false,
		"golang.org/x/image/tiff": true, "golang.org/x/image/font": false,
		"github.com/nats-io/nats-server/v2/server": false} {
		args := []string{"-o", "x.a", "-p", pkg, "-d=libfuzzer", "x.go"}
		if got := inPart(args); slices.Contains(got, "-d=libfuzzer") != want ||
			got[len(got)-1] != "x.go" {
			t.Errorf("%s is compiled with %q; instrumented: %v", pkg, got, want)
		}
	}
}
