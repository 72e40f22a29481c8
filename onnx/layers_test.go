package onnx_test

import (
	"os/exec"
	"strings"
	"testing"
)

// layers lists the packages from the lowest to the highest; those of one line do not use each
// other.
var layers = []string{
	"alloctest atomicfile dense internal/try must onnxpb printable regularfile sorting suggest .",
	"op npy engine message internal/mapped",
	"internal/kernel internal/spell check serde",
	"shape simd",
	"build pass",
	"internal/modeltest classical cost inspect grad optim quantise rare text engine/pure engine/ort",
	"coverage integers run train engine/onnxgo engine/ort/orttest internal/collection",
	"conformance",
	"internal/differential",
	"internal/differential/run",
}

func goList(t *testing.T, args ...string) []string {
	t.Helper()
	out, err := exec.Command("go", append([]string{"list"}, args...)...).Output()
	if err != nil {
		t.Fatalf("go list %v: %v", args, err)
	}
	return strings.Split(strings.TrimSpace(string(out)), "\n")
}

// The packages stand alone: neither they nor their tests need the rest of the project.
func TestStandsAlone(t *testing.T) {
	for _, p := range goList(t, "-deps", "-test", "fmp/onnx/...") {
		p, _, _ = strings.Cut(p, " ")
		if strings.HasPrefix(p, "fmp/") && !strings.HasPrefix(p, "fmp/onnx/") &&
			!strings.HasPrefix(p+".", "fmp/onnx.") &&
			p != "fmp/onnx"+"_test" {
			t.Errorf("a package of fmp/onnx needs %s", p)
		}
	}
}

// Uses point down: a package imports only those of lower layers.
func TestUsesPointDown(t *testing.T) {
	layer := map[string]int{}
	for i, line := range layers {
		for _, p := range strings.Fields(line) {
			layer[strings.TrimSuffix("fmp/onnx/"+p, "/.")] = i
		}
	}
	uses := 0
	for _, line := range goList(t, "-f", "{{.ImportPath}} {{join .Imports \" \"}}", "fmp/onnx/...") {
		words := strings.Fields(line)
		own, ok := layer[words[0]]
		if !ok {
			t.Errorf("%s is in no layer", words[0])
			continue
		}
		for _, p := range words[1:] {
			if l, ok := layer[p]; ok {
				uses++
				if l >= own {
					t.Errorf("%s uses %s, which is not below it", words[0], p)
				}
			}
		}
	}
	t.Logf("%d uses between %d packages", uses, len(layer))
}
