//go:build cgo

package pure_test

import (
	"errors"
	"math"
	"math/rand/v2"
	"path/filepath"
	"testing"

	"fmp/onnx"
	"fmp/onnx/engine"
	"fmp/onnx/engine/ort"
	"fmp/onnx/engine/pure"
	"fmp/onnx/internal/modeltest"
	"fmp/onnx/must"
	"fmp/onnx/serde"
)

// engines opens ours and the ONNX Runtime, or skips.
func engines(t testing.TB, threads int) (own, reference engine.Engine) {
	t.Helper()
	reference, err := ort.New(ort.Options{Threads: threads})
	if errors.Is(err, ort.ErrNoLibrary) {
		t.Skip("no ONNX Runtime library to compare with")
	}
	if err != nil {
		t.Fatal(err)
	}
	own = must.Get(pure.New(engine.Options{Threads: threads}))(t)
	return own, reference
}

// worst is the largest difference, relative to the reference's largest magnitude.
func worst(got, want *onnx.Tensor) float64 {
	scale, diff := 1e-30, 0.0
	for i, w := range want.F32() {
		scale = math.Max(scale, math.Abs(float64(w)))
		diff = math.Max(diff, math.Abs(float64(got.F32()[i])-float64(w)))
	}
	return diff / scale
}

// TestExtractors compares the engines on models that PyTorch exported.
func TestExtractors(t *testing.T) {
	own, reference := engines(t, 1)
	files, _ := filepath.Glob("../../../../shared/models/*.onnx")
	assets, _ := filepath.Glob("../../../assets/*/*.onnx")
	files = append(files, assets...)
	if len(files) == 0 {
		t.Skip("no models in shared/models or assets")
	}
	for _, f := range files {
		t.Run(filepath.Base(f), func(t *testing.T) {
			m := must.Get(serde.Load(f))(t)
			feeds := modeltest.Feeds(t, m, rand.New(rand.NewPCG(1, 2)), 3)
			got, want := modeltest.Eval(t, own, m, feeds), modeltest.Eval(t, reference, m, feeds)
			for name, w := range want {
				if w.DType != onnx.Float32 {
					continue
				}
				if d := worst(got[name], w); d > 1e-5 {
					t.Errorf("%s: differs by %.2g of its scale", name, d)
				}
			}
		})
	}
}

// TestQuantizedParity: networks of quantised operators have the ONNX Runtime's outputs to a quantum.
func TestQuantizedParity(t *testing.T) {
	own, reference := engines(t, 1)
	for _, d := range []onnx.DType{onnx.Uint8, onnx.Int8} {
		m, feeds := pure.QuantizedNetwork(t, d), pure.QuantizedFeeds()
		pure.QuantaApart(t, modeltest.Eval(t, own, m, feeds)["y"], modeltest.Eval(t, reference, m, feeds)["y"])
	}
}

func benchmark(b *testing.B, e engine.Engine, file string, batch int) {
	m, err := serde.Load(file)
	if err != nil {
		b.Skip(err)
	}
	s := must.Get(e.Load(m))(b)
	defer s.Close()
	feeds := modeltest.Feeds(b, m, rand.New(rand.NewPCG(1, 2)), batch)
	out := must.Get(engine.Eval(s, feeds))(b)
	b.ReportAllocs()
	for b.Loop() {
		must.Do(b, s.Run(b.Context(), feeds, out))
	}
}

func BenchmarkExtractor(b *testing.B) {
	own, reference := engines(b, 1)
	for _, name := range []string{"mnist", "cifar10"} {
		file := "../../../../shared/models/extractor_" + name + ".onnx"
		b.Run(name+"/pure", func(b *testing.B) { benchmark(b, own, file, 50) })
		b.Run(name+"/ort", func(b *testing.B) { benchmark(b, reference, file, 50) })
	}
}
