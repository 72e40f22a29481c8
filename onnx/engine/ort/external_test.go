//go:build cgo

package ort_test

import (
	"os"
	"path/filepath"
	"testing"

	"google.golang.org/protobuf/proto"

	"fmp/onnx"
	"fmp/onnx/build"
	"fmp/onnx/engine"
	"fmp/onnx/engine/ort/orttest"
	"fmp/onnx/onnxpb"
	"fmp/onnx/serde"
)

// The runtime reads weights from the file that they lie in, and the results are those of the same
// weights in the model.
func TestExternalData(t *testing.T) {
	e := orttest.New(t)
	w := onnx.ZerosF32(256, 128)
	for i := range w.F32() {
		w.F32()[i] = float32(i%7) - 3
	}
	b := build.New("external")
	b.Output("y", b.MatMul(b.Input("x", onnx.Float32, "n", 256), b.Param("w", w)))
	m, err := b.Model()
	if err != nil {
		t.Fatal(err)
	}
	data, err := serde.Marshal(m)
	if err != nil {
		t.Fatal(err)
	}
	var p onnxpb.ModelProto
	if err := proto.Unmarshal(data, &p); err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	init := p.Graph.Initializer[0]
	if err := os.WriteFile(filepath.Join(dir, "w.bin"), append(make([]byte, 64), init.RawData...),
		0o644); err != nil {
		t.Fatal(err)
	}
	init.RawData, init.DataLocation = nil, onnxpb.TensorProto_EXTERNAL
	init.ExternalData = []*onnxpb.StringStringEntryProto{{Key: "location", Value: "w.bin"},
		{Key: "offset", Value: "64"}}
	if data, err = proto.Marshal(&p); err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(dir, "model.onnx")
	if err := os.WriteFile(path, data, 0o644); err != nil {
		t.Fatal(err)
	}
	apart, err := serde.Load(path)
	if err != nil {
		t.Fatal(err)
	}
	x := onnx.ZerosF32(2, 256)
	for i := range x.F32() {
		x.F32()[i] = float32(i % 5)
	}
	var got [2][]float32
	for i, m := range []*onnx.Model{m, apart} {
		s, err := e.Load(m)
		if err != nil {
			t.Fatal(err)
		}
		out, err := engine.Eval(s, map[string]*onnx.Tensor{"x": x})
		if err != nil {
			t.Fatal(err)
		}
		got[i] = out["y"].F32()
		if err := s.Close(); err != nil {
			t.Fatal(err)
		}
	}
	for i, v := range got[0] {
		if got[1][i] != v {
			t.Fatalf("element %d is %v from the file and %v from the model", i, got[1][i], v)
		}
	}
	// Without its file the model is refused: nothing was copied.
	if err := os.Remove(filepath.Join(dir, "w.bin")); err != nil {
		t.Fatal(err)
	}
	if s, err := e.Load(apart); err == nil {
		s.Close()
		t.Error("the runtime did not read the file")
	}
}
