package classify

import (
	"bytes"
	"fmt"
	"image"
	"image/color"
	"image/png"
	"slices"
	"strings"
	"testing"

	"fmp/featurize/imagefile"
	"fmp/models"
	"fmp/onnx"
	"fmp/onnx/build"
	"fmp/onnx/engine"
	"fmp/onnx/engine/pure"
	"fmp/onnx/must"
)

// TestNotFinite: images of which the extractor's features are not finite are bad ones, all of them
// named, and others are classified.
func TestNotFinite(t *testing.T) {
	b := build.New("front")
	x := b.Cast(b.Input("images", onnx.Uint8, "n", 1, 1, 1), onnx.Float32)
	b.Output("features", b.Reshape(b.Log(b.Sub(b.F32(200), x)), 0, 1)) // NaN above 200
	m := must.Get(models.NewClassifier(models.ClassifierParts{Features: must.Get(b.Model())(t),
		Heads: onnx.NewTensor([]float64{1, -1, 0, 0}, 1, 2, 2)}, models.Manifest{Classes: []string{"a", "b"}}))(t)
	e := must.Get(pure.New(engine.Options{Threads: 1}))(t)
	c := must.Get(New(e, m, must.Get(models.ReadManifest(m))(t)))(t)
	c.Batch = 2
	for _, v := range []struct {
		levels    []uint8
		skip      bool
		done, bad []string
		fails     bool
	}{
		{levels: []uint8{10, 20, 30}, done: []string{"0", "1", "2"}},
		{levels: []uint8{10, 250, 30, 40, 251}, skip: true, done: []string{"0", "2", "3"}, bad: []string{"1", "4"}},
		{levels: []uint8{10, 250, 30, 40, 251}, bad: []string{"1", "4"}},
		{levels: []uint8{10, 20, 200, 252}, done: []string{"0", "1"}, bad: []string{"2", "3"}},
		{levels: []uint8{251, 252}, skip: true, bad: []string{"0", "1"}, fails: true},
	} {
		var paths, done, bad []string
		for i := range v.levels {
			paths = append(paths, fmt.Sprint(i, ".png"))
		}
		src, _ := must.Get2(imagefile.OpenFiles(paths, func(path string) ([]byte, error) {
			im := image.NewGray(image.Rect(0, 0, 1, 1))
			im.SetGray(0, 0, color.Gray{Y: v.levels[path[0]-'0']})
			var data bytes.Buffer
			err := png.Encode(&data, im)
			return data.Bytes(), err
		}, imagefile.Options{Fit: c.Fit, Optional: true, MaxItems: 9}))(t)
		left, err := c.Images(t.Context(), src, v.skip, func(ps []Prediction) error {
			for i := range ps {
				done = append(done, strings.TrimSuffix(ps[i].Name, ".png"))
				if level := v.levels[ps[i].Name[0]-'0']; ps[i].Pixels[0] != level {
					t.Errorf("%s: pixels %v, want %d", ps[i].Name, ps[i].Pixels, level)
				}
			}
			return nil
		})
		for _, err := range left {
			bad = append(bad, strings.TrimSuffix(err.Error(),
				".png: no finite probabilities: the extractor's features are NaN or too large"))
		}
		if (err != nil) != v.fails || !slices.Equal(done, v.done) || !slices.Equal(bad, v.bad) {
			t.Errorf("%v, skip %v: done %q, bad %q, %v; want %q and %q", v.levels, v.skip, done, bad, err,
				v.done, v.bad)
		}
	}
}
