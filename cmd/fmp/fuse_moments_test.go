package main

import (
	"path/filepath"
	"strings"
	"testing"

	"fmp/models"
	"fmp/onnx"
	"fmp/onnx/build"
	"fmp/onnx/serde"
)

func TestByteSize(t *testing.T) {
	for s, want := range map[string]int{"64k": 65536, "2m": 2 << 20, "2M": 2 << 20, "1000": 1000, "16m": 16 << 20, "17m": 0, "0": 0, "-1k": 0, "k": 0, "9999999999999m": 0, "1.5m": 0} {
		var b byteSize
		if err := b.Set(s); (err == nil) != (want != 0) || int(b) != want {
			t.Errorf("%s is %d, %v; want %d", s, b, err, want)
		}
	}
}

// TestWidth: the coordinates are all features where they fit, and fewer with fewer bytes.
func TestWidth(t *testing.T) {
	for bytes, want := range map[byteSize][2]int{2 << 20: {1280, 1280}, 256 << 10: {600, 720}, 64 << 10: {250, 360}} {
		if k, err := (momentsFlags{bytes: bytes}).width(1280, 10); err != nil || k < want[0] || k > want[1] {
			t.Errorf("%d bytes: %d coordinates, %v; want %v", bytes, k, err, want)
		}
	}
	if _, err := (momentsFlags{bytes: 1000}).width(1280, 10); err == nil {
		t.Error("a kilobyte is enough")
	}
}

// TestFuseMoments: a client graph without a data set, with all features or with fewer.
func TestFuseMoments(t *testing.T) {
	const dx = 40
	b := build.New("net")
	x := b.Reshape(b.Input("image", onnx.Float32, "n", 3, 8, 8), -1, 192)
	b.Output("h", b.Relu(b.MatMul(x, b.Const(onnx.ZerosF32(192, dx)))))
	m, err := b.Model()
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	net, out := filepath.Join(dir, "net.onnx"), filepath.Join(dir, "client.onnx")
	if err := serde.Save(net, m); err != nil {
		t.Fatal(err)
	}
	for bytes, k := range map[string]int{"2m": 0, "2k": 15} {
		if code, _, stderr := runFMP(t, "fuse", "--extractor", net, "--class-names", "a,b", "--bytes", bytes, "--engine", "pure", "--kappa", "3,.2", "-o", out); code != 0 {
			t.Fatalf("--bytes %s: exit code %d: %s", bytes, code, stderr)
		}
		_, f, err := models.Load(out)
		if err != nil {
			t.Fatal(err)
		}
		if f.Dx != dx || f.C != 2 || (k == 0) != (f.K == 0) || f.K > 25 || f.Kappa != 3 || f.Bytes == 0 {
			t.Errorf("--bytes %s: manifest %+v", bytes, f)
		}
	}
	for _, args := range [][]string{
		{"--class-names", "a,a"}, {"--class-names", "a,b", "--kappa", "3"}, {"--upload", "moments"}, {"--class-names", "a,b", "--bytes", "10"}, {"--upload", "moment"},
	} {
		if code, _, stderr := runFMP(t, append([]string{"fuse", "--engine", "pure", "--extractor", net, "-o", out}, args...)...); code != 2 || strings.Count(stderr, "\n") > 3 {
			t.Errorf("%v: exit code %d: %s", args, code, stderr)
		}
	}
}
