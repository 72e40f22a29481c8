package main

import (
	"os"
	"path/filepath"
	"testing"

	"fmp/models"
	"fmp/onnx"
	"fmp/onnx/build"
	"fmp/onnx/must"
	"fmp/onnx/serde"
)

// TestONNXQuantise quantises a shipped extractor in all forms, and says what it lost.
func TestONNXQuantise(t *testing.T) {
	model := filepath.Join("..", "..", "assets", "models", "digits", "extractor.onnx")
	dir := t.TempDir()
	args := func(out string, more ...string) []string {
		return append([]string{"onnx", "quantise", model, "--images", "digits", "-o",
			filepath.Join(dir, out), "--seconds", "0.01", "--calibrate", "16", "--test",
			"20", "--json"}, more...)
	}
	for _, c := range []struct {
		name string
		more []string
		loss float64
	}{
		{"static", nil, .02},
		{"seven", []string{"--weight-bits", "7"}, .03},
		{"percentile", []string{"--method", "percentile", "--percentile", "99.9"}, .02},
		{"eight", []string{"--weights-only", "8"}, .005},
		{"four", []string{"--weights-only", "4"}, .3},
	} {
		r := answer[quantisedReport](t, args(c.name+".onnx", c.more...)...)
		if r.Test.Images != 20 || !(r.Test.Loss < c.loss) || r.Test.Loss == 0 ||
			r.Bytes >= r.BytesBefore || len(r.Speed) != 2 ||
			r.Speed[0].After == 0 {
			t.Errorf("%s: %+v %+v", c.name, r, r.Test)
		}
		if st, err := os.Stat(r.File); err != nil || st.Size() != r.Bytes {
			t.Errorf("%s: %v", c.name, err)
		}
		if _, err := serde.Load(r.File); err != nil {
			t.Errorf("%s: %v", c.name, err)
		}
	}
	refused(t, exitUsage, "quantised already", "onnx", "quantise", filepath.Join(dir, "static.onnx"), "--images",
		"digits", "-o", filepath.Join(dir, "no.onnx"))
	absent(t, filepath.Join(dir, "no.onnx"))
}

// TestONNXQuantiseBatch: a model of a fixed batch is told its accuracy, and so is one of none.
func TestONNXQuantiseBatch(t *testing.T) {
	t.Parallel()
	for _, batch := range []any{"n", 4} {
		none := 0
		for class := range 10 {
			b := build.New("says one class")
			bias := onnx.ZerosF32(10)
			bias.F32()[class] = 1
			x := b.Op("Flatten", []build.Ref{b.Input("x", onnx.Float32, batch, 1, 8, 8)})
			b.Output("y", b.Op("Gemm", []build.Ref{x, b.Param("w", onnx.ZerosF32(64, 10)), b.Param("b", bias)}))
			model := saved(t)(b.Model())
			r := answer[quantisedReport](t, "onnx", "quantise", model, "--images", "digits", "-o", model+".out",
				"--preset", "0-1", "--seconds", "0.01", "--calibrate", "2", "--test", "1", "--weights-only",
				"8", "--least", "1", "--json")
			if r.Test.Accuracy == nil || r.Test.AccBefore == nil || *r.Test.Accuracy != *r.Test.AccBefore {
				t.Fatalf("batch %v: %+v", batch, r.Test)
			}
			none += int(indicator(*r.Test.AccBefore == 0))
		}
		if none != 9 {
			t.Errorf("batch %v: %d of 10 classes are wrong, want 9", batch, none)
		}
	}
}

// TestONNXQuantiseKinds: a model of fmp that is no extractor is refused before an image is read.
func TestONNXQuantiseKinds(t *testing.T) {
	out := filepath.Join(t.TempDir(), "out.onnx")
	classifier := filepath.Join(t.TempDir(), "classifier.onnx")
	pooledFrom(t, "digits-color", classifier, "--samples", "3")
	for kind, model := range map[string]string{
		models.KindClassifier: classifier,
		models.KindClient:     shippedFile(t, models.KindClient),
		models.KindPredictor:  shippedFile(t, models.KindPredictor),
	} {
		for _, more := range [][]string{nil, {"--weights-only", "8"}} {
			refused(t, exitUsage, `of kind "`+kind+`", which is not quantised: quantise its extractor`,
				append([]string{"onnx", "quantise", model, "--images", "/nowhere", "-o", out}, more...)...)
		}
	}
}

// TestONNXQuantiseOutputs: none of several outputs has to be the features, and half precision is
// quantised as float32.
func TestONNXQuantiseOutputs(t *testing.T) {
	t.Parallel()
	for name, d := range map[string]onnx.DType{"float32": onnx.Float32, "half": onnx.Float16} {
		b := build.New("two")
		v := b.Input("x", d, "n", 1, 8, 8)
		w := must.Get(onnx.Zeros(d, 2, 1, 3, 3))(t)
		for i := range w.Len() {
			switch bits := w.Data.(type) {
			case []float32:
				bits[i] = float32(i) / 8
			case []uint16:
				bits[i] = onnx.Float32ToFloat16(float32(i) / 8)
			}
		}
		v = b.Op("Conv", []build.Ref{v, b.Param("w", w)})
		b.Output("a", v)
		b.Output("b", b.Relu(v))
		model := saved(t)(b.Model())
		r := answer[quantisedReport](t, "onnx", "quantise", model, "--images", "digits", "-o", model+".out",
			"--preset", "0-1", "--seconds", "0.01", "--calibrate", "4", "--test", "1", "--json")
		if r.Static == nil || r.Static.Layers != 1 {
			t.Errorf("%s: %+v", name, r.Static)
		}
	}
}

// TestSizes: the files of external data count.
func TestSizes(t *testing.T) {
	dir := t.TempDir()
	w := onnx.ZerosF32(1 << 14)
	w.External = &onnx.External{Location: "m.data", Folder: dir}
	b := build.New("m")
	b.Output("y", b.Add(b.Input("x", onnx.Float32, 1<<14), b.Param("w", w)))
	data, _ := must.Get2(serde.Refer(must.Get(b.Model())(t)))(t)
	model, made := filepath.Join(dir, "m.onnx"), filepath.Join(dir, "made.onnx")
	for name, bytes := range map[string][]byte{model: data, made: nil,
		filepath.Join(dir, "m.data"): make([]byte, 64)} {
		must.Do(t, os.WriteFile(name, bytes, 0o600))
	}
	before, after := must.Get2(sizes(model, made))(t)
	if before != int64(len(data))+64 || after != 0 {
		t.Errorf("%d and %d bytes; want %d and 0", before, after, len(data)+64)
	}
}
