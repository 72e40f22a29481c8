//go:build unix

package main

import (
	"errors"
	"os"
	"syscall"
	"testing"

	"google.golang.org/protobuf/proto"

	"fmp/cmd/internal/outputs/outputstest"
	"fmp/onnx"
	"fmp/onnx/build"
	"fmp/onnx/must"
	"fmp/onnx/onnxpb"
	"fmp/onnx/serde"
)

// TestNamedPipesAreRefused: a named pipe in the place of any file that a command reads is an error
// that says so, at once.
func TestNamedPipesAreRefused(t *testing.T) {
	t.Chdir(t.TempDir())
	must.Do(t, errors.Join(os.Mkdir("external", 0o755), os.Mkdir("run", 0o755)))
	for _, path := range []string{"m.onnx", "x.npy", "x.pb", "upload.fmp", "settings.yaml", "grid.yaml", "run/run.json",
		"cifar-10-binary.tar.gz", "round.yaml", "token", "roster.txt", "external/weights"} {
		if err := syscall.Mkfifo(path, 0o600); err != nil {
			t.Skipf("needs named pipes: %v", err)
		}
	}
	b := build.New("linear")
	b.Output("y", b.MatMul(b.Input("x", onnx.Float32, "n", 300), b.Param("w", onnx.ZerosF32(300, 4))))
	m := must.Get(b.Model())(t)
	data := must.Get(serde.Marshal(m))(t)
	must.Do(t, os.WriteFile("linear.onnx", data, 0o644))
	var p onnxpb.ModelProto
	must.Do(t, proto.Unmarshal(data, &p))
	w := p.Graph.Initializer[0]
	w.RawData, w.FloatData, w.DataLocation = nil, nil, 1
	w.ExternalData = []*onnxpb.StringStringEntryProto{{Key: "location", Value: "weights"}}
	must.Do(t, os.WriteFile("external/model.onnx", must.Get(proto.Marshal(&p))(t), 0o644))
	t.Setenv("XDG_CACHE_HOME", "cache")
	t.Setenv("FMP_DATA", "data")
	var list []outputstest.Wrong
	for _, line := range []string{"onnx inspect m.onnx", "onnx check external/model.onnx",
		"onnx run linear.onnx --input x=x.npy --out out --engine pure",
		"onnx run linear.onnx --input x=x.pb --out out --engine pure",
		"pool upload.fmp --predictor linear.onnx -o posterior.npy", "run --config settings.yaml",
		"grid grid.yaml", "results show run", "data import cifar-10-binary.tar.gz", "serve --round round.yaml",
		"serve --round linear.onnx --token-file token", "keys a --dir keys --roster roster.txt"} {
		list = append(list, outputstest.Wrong{line, "want a regular file"})
	}
	outputstest.CheckWrong(t, list, everything(t))
}
