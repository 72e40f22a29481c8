// Package flower holds a client in Python; its test runs it where Python has what it needs.
package flower

import (
	"math"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"fmp/assets"
	"fmp/models"
	"fmp/models/rng"
	"fmp/onnx"
	"fmp/onnx/engine"
	"fmp/onnx/engine/pure"
	"fmp/onnx/must"
	"fmp/onnx/npy"
	"fmp/onnx/serde"
	"fmp/pipeline/federate"
)

// TestUpload: what the client in Python writes is an upload, of the points that the graph gives
// here.
func TestUpload(t *testing.T) {
	python := ""
	for _, name := range []string{os.Getenv("PYTHON"), "python3", "python"} {
		p, err := exec.LookPath(name)
		if name != "" && err == nil &&
			exec.Command(p, "-c", "import numpy, onnxruntime, google.protobuf").Run() == nil {
			python = p
			break
		}
	}
	protoc, err := exec.LookPath("protoc")
	if python == "" || err != nil {
		t.Skip("needs protoc, and Python (or PYTHON=...) with numpy, onnxruntime and protobuf")
	}
	dir := t.TempDir()
	path := func(name string) string { return filepath.Join(dir, name) }
	data := must.Get(assets.Model("digits", models.KindClient))(t)
	must.Do(t, os.WriteFile(path("client.onnx"), data, 0o644))
	const n = 23
	r := rng.New(1, "images")
	pixels, labels := make([]uint8, n*28*28), make([]int64, n)
	for i := range pixels {
		pixels[i] = uint8(r.IntN(256))
	}
	for i := range labels {
		labels[i] = int64(i % 7) // three classes are nobody's
	}
	images, ys := onnx.NewTensor(pixels, n, 28, 28, 1), onnx.NewTensor(labels, n)
	for name, x := range map[string]*onnx.Tensor{"images.npy": images, "labels.npy": ys} {
		must.Do(t, npy.Save(path(name), x))
	}
	run := func(name string, args ...string) {
		t.Helper()
		if out, err := exec.Command(name, args...).CombinedOutput(); err != nil {
			t.Fatalf("%s %v: %v\n%s", name, args, err, out)
		}
	}
	run(protoc, "-I", "../..", "--include_imports", "--descriptor_set_out="+path("upload.desc"),
		"pipeline/federate/uploadpb/upload.proto")
	run(python, "client.py", "--graph", path("client.onnx"), "--descriptor", path("upload.desc"),
		"--client", "Klinik 7", "--round", "4", "--images", path("images.npy"), "--labels",
		path("labels.npy"), "-o", path("upload"))
	got := must.Get(os.ReadFile(path("upload")))(t)
	round := uint64(4)
	u := must.Get(federate.Decode(got, federate.Expect{Model: models.DigestBytes(data), Round: &round}))(t)
	if u.Client != "Klinik 7" || u.N != n {
		t.Errorf("upload of %q, n %d", u.Client, u.N)
	}
	m := must.Get(serde.Unmarshal(data))(t)
	e := must.Get(pure.New(engine.Options{}))(t)
	s := must.Get(e.Load(m))(t)
	out := must.Get(engine.Eval(s, map[string]*onnx.Tensor{"images": images, "labels": ys},
		"points", "masses"))(t)
	z, w := out["points"].F32(), out["masses"].F32()
	d, at := len(z)/len(w), 0
	for i, mass := range w {
		if u.Points.N < len(w) && mass == 0 {
			continue
		}
		for j, v := range z[i*d : (i+1)*d] {
			if !(math.Abs(float64(v-u.Points.Row(at)[j])) <= 1e-4) {
				t.Fatalf("point %d, number %d: %v, want %v", at, j, u.Points.Row(at)[j], v)
			}
		}
		at++
	}
	if at != u.Points.N {
		t.Errorf("%d points, want %d", u.Points.N, at)
	}
}
