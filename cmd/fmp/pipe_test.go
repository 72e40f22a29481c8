//go:build unix

package main

import (
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"

	"fmp/onnx"
	"fmp/onnx/build"
	"fmp/onnx/must"
	"fmp/onnx/onnxpb"
	"fmp/onnx/serde"
)

// TestNamedPipesAreRefused: a named pipe in the place of any file that a command reads is an error
// that says so, at once.
func TestNamedPipesAreRefused(t *testing.T) {
	dir := t.TempDir()
	pipe := func(parts ...string) string {
		path := filepath.Join(append([]string{dir}, parts...)...)
		must.Do(t, os.MkdirAll(filepath.Dir(path), 0o755))
		if err := syscall.Mkfifo(path, 0o600); err != nil {
			t.Skipf("needs named pipes: %v", err)
		}
		return path
	}
	b := build.New("linear")
	b.Output("y", b.MatMul(b.Input("x", onnx.Float32, "n", 300), b.Param("w", onnx.ZerosF32(300, 4))))
	m := must.Get(b.Model())(t)
	model := saved(t)(m, nil)
	data := must.Get(serde.Marshal(m))(t)
	var p onnxpb.ModelProto
	must.Do(t, proto.Unmarshal(data, &p))
	w := p.Graph.Initializer[0]
	w.RawData, w.FloatData, w.DataLocation = nil, nil, onnxpb.TensorProto_EXTERNAL
	w.ExternalData = []*onnxpb.StringStringEntryProto{{Key: "location",
		Value: filepath.Base(pipe("external", "weights"))}}
	data = must.Get(proto.Marshal(&p))(t)
	external := filepath.Join(dir, "external", "model.onnx")
	must.Do(t, os.WriteFile(external, data, 0o644))
	for name, args := range map[string][]string{
		"a model":       {"onnx", "inspect", pipe("m.onnx")},
		"external data": {"onnx", "check", external},
		"a tensor": {"onnx", "run", model, "--input", "x=" + pipe("x.npy"), "--out",
			filepath.Join(dir, "out"), "--engine", "pure"},
		"a proto": {"onnx", "run", model, "--input", "x=" + pipe("x.pb"), "--out",
			filepath.Join(dir, "out"), "--engine", "pure"},
		"an upload": {"pool", pipe("upload.fmp"), "--predictor", model, "-o",
			filepath.Join(dir, "posterior.npy")},
		"settings":         {"run", "--config", pipe("settings.yaml")},
		"a grid":           {"grid", pipe("grid.yaml")},
		"a run's manifest": {"results", "show", filepath.Dir(pipe("run", "run.json"))},
		"an archive":       {"data", "import", pipe("cifar-10-binary.tar.gz")},
		"a round":          {"serve", "--round", pipe("round.yaml")},
		"a token":          {"serve", "--round", model, "--token-file", pipe("token")},
		"a roster": {"keys", "a", "--dir", filepath.Join(dir, "keys"), "--roster",
			pipe("roster.txt")},
	} {
		t.Run(name, func(t *testing.T) {
			t.Setenv("XDG_CACHE_HOME", filepath.Join(dir, "cache"))
			var code int
			var errs string
			done := make(chan struct{})
			go func() {
				defer close(done)
				code, _, errs = runFMP(t, args...)
			}()
			select {
			case <-done:
			case <-time.After(20 * time.Second):
				t.Fatalf("fmp %v waits for a named pipe", args)
			}
			if code == exitOK || !strings.Contains(errs, "want a regular file") {
				t.Errorf("fmp %v: exit code %d, said %q; want that a regular file is wanted", args, code, errs)
			}
		})
	}
}
