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
	"fmp/onnx/must"
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
	m := must.Get(b.Model())(t)
	data := must.Get(serde.Marshal(m))(t)
	var p onnxpb.ModelProto
	must.Do(t, proto.Unmarshal(data, &p))
	dir := t.TempDir()
	init := p.Graph.Initializer[0]
	must.Do(t, os.WriteFile(filepath.Join(dir, "w.bin"), append(make([]byte, 64), init.RawData...),
		0o644))
	init.RawData, init.DataLocation = nil, 1
	init.ExternalData = []*onnxpb.StringStringEntryProto{{Key: "location", Value: "w.bin"},
		{Key: "offset", Value: "64"}}
	data = must.Get(proto.Marshal(&p))(t)
	path := filepath.Join(dir, "model.onnx")
	must.Do(t, os.WriteFile(path, data, 0o644))
	apart := must.Get(serde.Load(path))(t)
	x := onnx.ZerosF32(2, 256)
	for i := range x.F32() {
		x.F32()[i] = float32(i % 5)
	}
	var got [2][]float32
	for i, m := range []*onnx.Model{m, apart} {
		s := must.Get(e.Load(m))(t)
		out := must.Get(engine.Eval(s, map[string]*onnx.Tensor{"x": x}))(t)
		got[i] = out["y"].F32()
		must.Do(t, s.Close())
	}
	for i, v := range got[0] {
		if got[1][i] != v {
			t.Fatalf("element %d is %v from the file and %v from the model", i, got[1][i], v)
		}
	}
	// Without its file the model is refused: nothing was copied.
	must.Do(t, os.Remove(filepath.Join(dir, "w.bin")))
	if s, err := e.Load(apart); err == nil {
		s.Close()
		t.Error("the runtime did not read the file")
	}
}
