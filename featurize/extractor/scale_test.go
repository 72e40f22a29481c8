package extractor

import (
	"math"
	"strings"
	"testing"

	"fmp/featurize/imagefile"
	"fmp/models"
	"fmp/onnx"
	"fmp/onnx/engine"
	"fmp/onnx/engine/ort/orttest"
	"fmp/onnx/engine/pure"
)

// TestScalesAndOrders: presets, scales and orders of channels feed the model what they should, in the extractor and in the
// fused client graph alike.
func TestScalesAndOrders(t *testing.T) {
	eng := orttest.New(t)
	im := images(4, 6, 4, 3)
	mean := func(i, c int) float64 { // 0 to 255
		var s float64
		for k := range 24 {
			s += float64(im.At(i)[3*k+c])
		}
		return s / 24
	}
	net := []float64{0.485, 0.456, 0.406}
	dev := []float64{0.229, 0.224, 0.225}
	for name, c := range map[string]struct {
		opt  Options
		want func(i, c int) float64
	}{
		"imagenet":      {Options{Preset: "imagenet"}, func(i, c int) float64 { return (mean(i, c)/255 - net[c]) / dev[c] }},
		"0-255":         {Options{Scale: Scale255}, mean},
		"0-255, preset": {Options{Preset: "0-255"}, mean},
		"-1 to 1":       {Options{Preset: "-1-1"}, func(i, c int) float64 { return mean(i, c)/127.5 - 1 }},
		"caffe": {Options{Preset: "caffe"}, func(i, c int) float64 {
			return mean(i, 2-c) - []float64{103.939, 116.779, 123.68}[c]
		}},
		"mean of 0-255": {Options{Mean: []float64{100}, Std: []float64{50}, Scale: Scale255},
			func(i, c int) float64 { return (mean(i, c) - 100) / 50 }},
		"bgr": {Options{Channels: BGR}, func(i, c int) float64 { return mean(i, 2-c) / 255 }},
		"own over preset": {Options{Preset: "imagenet", Mean: []float64{0.5}, Std: []float64{0.5}}, func(i, c int) float64 {
			return mean(i, c)/127.5 - 1
		}},
	} {
		x, err := New(eng, identity(t, onnx.Float32, "n", 3, 6, 4), models.Manifest{}, c.opt, *im)
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		got, err := x.Features(t.Context(), im, nil)
		if err != nil {
			t.Fatal(err)
		}
		m, pre := x.Client(nil, nil)
		e, err := models.NewEmbedding(models.EmbeddingConfig{Dx: 3, C: 2, Size: 2}, 1)
		if err != nil {
			t.Fatal(err)
		}
		ef, err := models.ReadManifest(e)
		if err != nil {
			t.Fatal(err)
		}
		g, err := models.ClientGraph(m, models.Manifest{}, e, ef, pre)
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		gf, err := models.ReadManifest(g)
		if err != nil {
			t.Fatal(err)
		}
		front, err := models.FeatureGraph(g, gf)
		if err != nil {
			t.Fatal(err)
		}
		p, err := pure.New(engine.Options{Threads: 1})
		if err != nil {
			t.Fatal(err)
		}
		s, err := p.Load(front)
		if err != nil {
			t.Fatal(err)
		}
		fused, err := engine.Eval(s, map[string]*onnx.Tensor{"images": onnx.NewTensor(im.Pix, 4, 6, 4, 3)})
		if err != nil {
			t.Fatal(err)
		}
		for k, v := range got {
			w := c.want(k/3, k%3)
			if math.Abs(float64(v)-w) > 1e-3 || math.Abs(float64(fused["features"].F32()[k])-w) > 1e-3 {
				t.Errorf("%s: feature %d is %v, in the client graph %v, want %v", name, k, v, fused["features"].F32()[k], w)
				break
			}
		}
		x.Close()
	}
	for want, o := range map[string]Options{
		"extractor.scale 0-255": {Mean: []float64{123.7, 116.8, 103.9}, Std: []float64{58}},
		"allowed are 0-1":       {Scale: "256"},
		"allowed are -1-1":      {Preset: "resnet"},
		"allowed are rgb":       {Channels: "grb"},
		"stretch, crop and pad": {Resize: "squash"},
	} {
		if _, err := New(eng, identity(t, onnx.Float32, "n", 3, 6, 4), models.Manifest{}, o, *im); err == nil ||
			!strings.Contains(err.Error(), want) {
			t.Errorf("error %v; want one that says %q", err, want)
		}
	}
}

// TestResizeIsInTheClientGraph: how images are resized stands in the manifest, so that client and server do not differ.
func TestResizeIsInTheClientGraph(t *testing.T) {
	x, err := New(orttest.New(t), identity(t, onnx.Float32, "n", 3, 6, 4), models.Manifest{}, Options{Resize: "crop"}, *images(1, 9, 9, 3))
	if err != nil {
		t.Fatal(err)
	}
	defer x.Close()
	if _, pre := x.Client(nil, nil); pre.Resize != string(imagefile.Crop) {
		t.Errorf("preprocessing %+v", pre)
	}
}
