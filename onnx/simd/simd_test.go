//go:build !js

package simd_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"fmp/onnx/must"
)

// TestUnderNode runs this package's tests of WebAssembly under Node, as a page runs a program.
func TestUnderNode(t *testing.T) {
	if testing.Short() {
		t.Skip("builds a program for WebAssembly")
	}
	node, err := exec.LookPath("node")
	if err != nil {
		t.Skip("node is missing: vector kernels of WebAssembly are not run")
	}
	root := must.Get(exec.Command("go", "env", "GOROOT").Output())(t)
	// Results are kept by what a test reads, and what it builds is read by another program.
	for _, folder := range []string{".", "../internal/kernel"} {
		sources := must.Get(filepath.Glob(filepath.Join(folder, "*.go")))(t)
		for _, s := range sources {
			must.Get(os.Stat(s))(t)
		}
	}
	program := filepath.Join(t.TempDir(), "simd.wasm")
	build := exec.Command("go", "test", "-c", "-o", program, ".")
	build.Env = append(os.Environ(), "CGO_ENABLED=0", "GOOS=js", "GOARCH=wasm")
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("building: %v\n%s", err, out)
	}
	start := filepath.Join(strings.TrimSpace(string(root)), "lib", "wasm", "wasm_exec_node.js")
	run := exec.Command(node, "-r", "./testdata/preload.js", start, program, "-test.v")
	out, err := run.CombinedOutput()
	if err != nil || !strings.Contains(string(out), "--- PASS: TestSameBits") {
		t.Errorf("%v\n%s", err, out)
	}
}
