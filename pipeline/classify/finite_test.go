package classify

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"image"
	"image/color"
	"image/png"
	"math"
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

// levels returns images of one pixel each.
func levels(t *testing.T, c *Classifier, of []uint8) imagefile.Source {
	var paths []string
	for i := range of {
		paths = append(paths, fmt.Sprint(i, ".png"))
	}
	src, _ := must.Get2(imagefile.OpenFiles(paths, func(path string) ([]byte, error) {
		im := image.NewGray(image.Rect(0, 0, 1, 1))
		im.SetGray(0, 0, color.Gray{Y: of[path[0]-'0']})
		var data bytes.Buffer
		err := png.Encode(&data, im)
		return data.Bytes(), err
	}, imagefile.Options{Fit: c.Fit, Optional: true, MaxItems: 9}))(t)
	return src
}

// logs is an extractor of one feature, which is NaN above 200.
func logs() *build.Builder {
	b := build.New("front")
	x := b.Cast(b.Input("images", onnx.Uint8, "n", 1, 1, 1), onnx.Float32)
	b.Output("features", b.Reshape(b.Log(b.Sub(b.F32(200), x)), 0, 1))
	return b
}

// TestNotFinite: images of which the extractor's features are not finite are bad ones, all of them
// named, and others are classified. An error of anything else comes alone.
func TestNotFinite(t *testing.T) {
	m := must.Get(models.NewClassifier(models.ClassifierParts{Features: must.Get(logs().Model())(t),
		Heads: onnx.NewTensor([]float64{1, -1, 0, 0}, 1, 2, 2)}, models.Manifest{Classes: []string{"a", "b"}}))(t)
	e := must.Get(pure.New(engine.Options{Threads: 1}))(t)
	c := must.Get(New(e, m, must.Get(models.ReadManifest(m))(t)))(t)
	c.Batch = 2
	for _, v := range []struct {
		levels    []uint8
		skip      bool
		done, bad []string
		fails     bool
		gone      int // where above 0, the image at which the reader leaves
	}{
		{levels: []uint8{10, 20, 30}, done: []string{"0", "1", "2"}},
		{levels: []uint8{10, 250, 30, 40, 251}, skip: true, done: []string{"0", "2", "3"}, bad: []string{"1", "4"}},
		{levels: []uint8{10, 250, 30, 40, 251}, bad: []string{"1", "4"}},
		{levels: []uint8{10, 20, 200, 252}, done: []string{"0", "1"}, bad: []string{"2", "3"}},
		{levels: []uint8{251, 252}, skip: true, bad: []string{"0", "1"}, fails: true},
		{levels: []uint8{250, 10, 20, 30}, gone: 2, fails: true},
		{levels: []uint8{250, 10, 20, 30}, gone: 2, skip: true, done: []string{"1"}, fails: true},
	} {
		var paths, done, bad []string
		ctx, leave := context.WithCancel(t.Context())
		for i := range v.levels {
			paths = append(paths, fmt.Sprint(i, ".png"))
		}
		src, _ := must.Get2(imagefile.OpenFiles(paths, func(path string) ([]byte, error) {
			if v.gone > 0 && path == paths[v.gone] {
				leave()
			}
			im := image.NewGray(image.Rect(0, 0, 1, 1))
			im.SetGray(0, 0, color.Gray{Y: v.levels[path[0]-'0']})
			var data bytes.Buffer
			err := png.Encode(&data, im)
			return data.Bytes(), err
		}, imagefile.Options{Fit: c.Fit, Optional: true, MaxItems: 9}))(t)
		left, err := c.Images(ctx, src, v.skip, func(ps []Prediction) error {
			for i := range ps {
				done = append(done, strings.TrimSuffix(ps[i].Name, ".png"))
				if level := v.levels[ps[i].Name[0]-'0']; ps[i].Pixels[0] != level {
					t.Errorf("%s: pixels %v, want %d", ps[i].Name, ps[i].Pixels, level)
				}
			}
			return nil
		})
		leave()
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

// TestNotFiniteAlone: two files of one picture without finite probabilities are copies, as those of
// any other picture are: counts with noise change by one image at most.
func TestNotFiniteAlone(t *testing.T) {
	m := must.Get(models.NewClassifier(models.ClassifierParts{Features: must.Get(logs().Model())(t),
		Heads: onnx.NewTensor([]float64{1, -1, 0, 0}, 1, 2, 2)}, models.Manifest{Classes: []string{"a", "b"}}))(t)
	e := must.Get(pure.New(engine.Options{Threads: 1}))(t)
	c := must.Get(New(e, m, must.Get(models.ReadManifest(m))(t)))(t).Alone()
	src, _ := must.Get2(imagefile.OpenFiles([]string{"0.png", "1.png"}, func(path string) ([]byte, error) {
		im := image.NewGray(image.Rect(0, 0, 1, 1))
		im.SetGray(0, 0, color.Gray{Y: 250})
		enc := png.Encoder{CompressionLevel: png.NoCompression}
		if path == "0.png" {
			enc.CompressionLevel = png.BestCompression
		}
		var data bytes.Buffer
		err := enc.Encode(&data, im)
		return data.Bytes(), err
	}, imagefile.Options{Fit: c.Fit, Optional: true, MaxItems: 9}))(t)
	n := 0
	do, copies := Distinct(func(ps []Prediction) error { n += len(ps); return nil })
	left, err := c.Images(t.Context(), src, false, do)
	if len(left) != 0 || err != nil || n != 1 || *copies != 1 {
		t.Errorf("%d images, %d copies, left %v, %v; want 1 and 1", n, *copies, left, err)
	}
}

// shifting is a classifier of images of one pixel, or of rows of one feature, that can be adapted. Where twice
// is set it states two shifts and takes one.
func shifting(t *testing.T, rows, twice bool) *Classifier {
	b := build.New("classifier")
	var x build.Ref
	if rows {
		x = b.Input("features", onnx.Float32, "n", 1)
	} else {
		x = b.Reshape(b.Cast(b.Input("images", onnx.Uint8, "n", 1, 1, 1), onnx.Float32), 0, 1)
	}
	x = b.Log(b.Sub(b.F32(200), x)) // NaN above 200
	moved := b.Sub(x, b.Optional(models.ShiftInput, onnx.ZerosF32(1)))
	b.Output("probabilities", b.Softmax(b.Concat(1, moved, x), 1))
	if twice {
		x = b.Concat(1, x, x)
	}
	b.Output(models.ShiftOutput, b.ReduceMean(x, false, 0))
	m := must.Get(b.Model())(t)
	return must.Get(New(must.Get(pure.New(engine.Options{Threads: 1}))(t), m, models.Manifest{
		Kind: models.KindClassifier, C: 2, Dx: 1}))(t)
}

// TestAdaptNotFinite: images of which the shift is not finite are bad ones, all of them named, and
// the shift is that of the others.
func TestAdaptNotFinite(t *testing.T) {
	const words = "no finite probabilities"
	usual := (math.Log(100) + math.Log(50)) / 2
	for name, v := range map[string]struct {
		levels []uint8
		skip   bool
		n      int
		shift  float64
		bad    string
		fails  string
	}{
		"finite":       {levels: []uint8{100, 150}, n: 2, shift: usual},
		"skipped":      {levels: []uint8{100, 250, 150, 251}, skip: true, n: 2, bad: "13", shift: usual},
		"named":        {levels: []uint8{100, 250, 150, 251}, n: 2, bad: "13"},
		"none is left": {levels: []uint8{250, 251}, skip: true, bad: "01", fails: "none of the images can be used"},
	} {
		c := shifting(t, false, false)
		n, bad, err := c.Adapt(t.Context(), levels(t, c, v.levels), v.skip)
		var names string
		for _, err := range bad {
			must.Fail(err)(t, words, name)
			names += err.Error()[:1]
		}
		if n != v.n || names != v.bad || (v.fails == "") != (err == nil) ||
			err != nil && !strings.Contains(err.Error(), v.fails) {
			t.Errorf("%s: %d images, bad %q, %v; want %d and %q", name, n, names, err, v.n, v.bad)
		}
		if (c.Shift() != nil) != (v.shift != 0) || v.shift != 0 && math.Abs(c.Shift().At(0)-v.shift) > 1e-5 {
			t.Errorf("%s: shift %v, want %v", name, c.Shift(), v.shift)
		}
	}
	c := shifting(t, true, false)
	must.Fail(c.AdaptRows(t.Context(), onnx.NewTensor([]float32{100, 250, 150}, 3, 1)))(t,
		"feature row 1: "+words, "a row without a finite shift")
	must.Do(t, c.AdaptRows(t.Context(), onnx.NewTensor([]float32{100, 150}, 2, 1)))
}

// refusing is an engine that loads some models and then none.
type refusing struct {
	engine.Engine
	left int
}

func (r *refusing) Load(m *onnx.Model) (engine.Session, error) {
	if r.left--; r.left < 0 {
		return nil, errors.New("no memory")
	}
	return r.Engine.Load(m)
}

// TestAdaptFails: after an error the classifier is as it was, and the same images tell the same again.
func TestAdaptFails(t *testing.T) {
	rows := onnx.NewTensor([]float32{100, 150}, 2, 1)
	for name, c := range map[string]struct {
		twice bool
		want  string
	}{
		"a shift that it does not take": {true, "optional input"},
		"an engine without memory":      {false, "no memory"},
	} {
		k := shifting(t, true, c.twice)
		e := &refusing{Engine: k.engine}
		k.engine = e
		for range 2 {
			e.left = 1 // the session that estimates
			must.Fail(k.AdaptRows(t.Context(), rows))(t, c.want, name)
			if k.Shift() != nil {
				t.Errorf("%s: it states the shift %v", name, k.Shift())
			}
		}
		must.Do(t, k.Rows(t.Context(), rows, nil, func([]Prediction) error { return nil }))
	}
}
