package extractor

import (
	"math"
	"testing"

	"fmp/featurize/imagefile"
	"fmp/models"
	"fmp/onnx"
	"fmp/onnx/engine"
	"fmp/onnx/engine/ort/orttest"
	"fmp/onnx/engine/pure"
	"fmp/onnx/must"
)

// TestScalesAndOrders: presets, scales and orders of channels feed the model what they should, in
// the extractor and in the fused client graph alike.
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
	imagenet := func(i, c int) float64 { return (mean(i, c)/255 - net[c]) / dev[c] }
	around := func(i, c int) float64 { return mean(i, c)/127.5 - 1 }
	lite := func(i, c int) float64 { return (mean(i, c) - 127) / 128 }
	caffe := func(i, c int) float64 { return mean(i, 2-c) - []float64{103.939, 116.779, 123.68}[c] }
	for name, c := range map[string]struct {
		opt  Options
		want func(i, c int) float64
	}{
		"imagenet":      {Options{Preset: "imagenet"}, imagenet},
		"0-255":         {Options{Scale: Scale255}, mean},
		"0-255, preset": {Options{Preset: "0-255"}, mean},
		"-1 to 1":       {Options{Preset: "-1-1"}, around},
		"caffe":         {Options{Preset: "caffe"}, caffe},
		"mean of 0-255": {Options{Mean: []float64{100}, Std: []float64{50}, Scale: Scale255},
			func(i, c int) float64 { return (mean(i, c) - 100) / 50 }},
		"bgr": {Options{Channels: BGR}, func(i, c int) float64 { return mean(i, 2-c) / 255 }},
		// Figures as the libraries print them: torchvision.models weights' transforms(),
		// timm.data.constants, keras' imagenet_utils, clip.py, dinov2's transforms.py and
		// efficientnet_lite_builder.py.
		"torchvision":    {Options{Preset: "torchvision"}, imagenet},
		"timm":           {Options{Preset: "timm"}, imagenet},
		"timm-inception": {Options{Preset: "timm-inception"}, around},
		"dinov2": {Options{Preset: "dinov2"}, func(i, c int) float64 {
			return (mean(i, c) - []float64{123.675, 116.28, 103.53}[c]) / []float64{58.395, 57.12, 57.375}[c]
		}},
		"efficientnet-lite": {Options{Preset: "efficientnet-lite"}, lite},
		"keras-tf":          {Options{Preset: "keras-tf"}, around},
		"keras-torch":       {Options{Preset: "keras-torch"}, imagenet},
		"keras-caffe":       {Options{Preset: "keras-caffe"}, caffe},
		"clip": {Options{Preset: "clip"}, func(i, c int) float64 {
			return (mean(i, c)/255 - []float64{0.48145466, 0.4578275, 0.40821073}[c]) /
				[]float64{0.26862954, 0.26130258, 0.27577711}[c]
		}},
		"own over preset": {Options{Preset: "imagenet", Mean: []float64{0.5}, Std: []float64{0.5}},
			around},
		"own scale, the preset's":         {Options{Preset: "efficientnet-lite", Scale: Scale255}, lite},
		"own scale, the preset's default": {Options{Preset: "imagenet", Scale: Scale1}, imagenet},
		"own mean, the preset's std": {Options{Preset: "imagenet", Mean: []float64{0.5}},
			func(i, c int) float64 { return (mean(i, c)/255 - 0.5) / dev[c] }},
		"own std, mean of 0-255": {Options{Preset: "efficientnet-lite", Std: []float64{1. / 255}, Scale: Scale1},
			func(i, c int) float64 { return mean(i, c) - 127 }},
		"own channels": {Options{Preset: "caffe", Channels: RGB}, func(i, c int) float64 {
			return mean(i, c) - []float64{123.68, 116.779, 103.939}[c]
		}},
		"own bgr": {Options{Preset: "imagenet", Channels: BGR},
			func(i, c int) float64 { return (mean(i, 2-c)/255 - net[2-c]) / dev[2-c] }},
	} {
		x, err := New(eng, identity(t, onnx.Float32, "n", 3, 6, 4), models.Manifest{}, c.opt, *im)
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		got := must.Get(x.Features(t.Context(), im, nil))(t)
		m, pre := x.Client(nil, nil)
		e := must.Get(models.NewEmbedding(models.EmbeddingConfig{Dx: 3, C: 2, Size: 2}, 1))(t)
		ef := must.Get(models.ReadManifest(e))(t)
		g, err := models.ClientGraph(m, models.Manifest{}, e, ef, pre)
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		gf := must.Get(models.ReadManifest(g))(t)
		front := must.Get(models.FeatureGraph(g, gf))(t)
		p := must.Get(pure.New(engine.Options{Threads: 1}))(t)
		s := must.Get(p.Load(front))(t)
		fused := must.Get(engine.Eval(s,
			map[string]*onnx.Tensor{"images": onnx.NewTensor(im.Pix, 4, 6, 4, 3)}))(t)
		for k, v := range got {
			w := c.want(k/3, k%3)
			if math.Abs(float64(v)-w) > 1e-3 || math.Abs(float64(fused["features"].F32()[k])-w) > 1e-3 {
				t.Errorf("%s: feature %d is %v, in the client graph %v, want %v", name, k, v,
					fused["features"].F32()[k], w)
				break
			}
		}
		x.Close()
	}
	for want, o := range map[string]Options{
		"extractor.scale 0-255":                     {Mean: []float64{123.7, 116.8, 103.9}, Std: []float64{58}},
		"extractor.std holds 58":                    {Preset: "imagenet", Std: []float64{58}},
		"add extractor.scale, 0-1 or 0-255":         {Preset: "efficientnet-lite", Std: []float64{128}},
		"allowed are 0-1":                           {Scale: "256"},
		"allowed are -1-1":                          {Preset: "resnet"},
		"allowed are rgb":                           {Channels: "grb"},
		"allowed are stretch, crop":                 {Resize: "squash"},
		"a share of it":                             {Resize: "crop:1.5"},
		"preset imagenet: extractor.scale is 0-255": {Preset: "imagenet", Scale: Scale255},
		"of scale 0-255: leave it out":              {Preset: "caffe", Scale: Scale1},
	} {
		must.Fail(New(eng, identity(t, onnx.Float32, "n", 3, 6, 4), models.Manifest{}, o, *im))(t, want)
	}
}

// TestPresetsResize: presets of libraries resize as these evaluate, 224 pixels of a shorter side of
// so many; what is set wins.
func TestPresetsResize(t *testing.T) {
	for preset, side := range map[string]float64{
		"torchvision": 256, "timm": 256, "timm-inception": 256, "dinov2": 256,
		"efficientnet-lite": 224 + 32, "clip": 224,
	} {
		o, err := Options{Preset: preset}.settle()
		if share, crop := models.CropShare(o.Resize); err != nil || !crop || share*side != 224 {
			t.Errorf("%s: resize %q, %v; want 224 of %v", preset, o.Resize, err, side)
		}
		if o, err := (Options{Preset: preset, Resize: "pad"}).settle(); err != nil || o.Resize != "pad" {
			t.Errorf("%s: resize %q, %v; want pad, as is set", preset, o.Resize, err)
		}
	}
	for _, preset := range []string{"imagenet", "caffe", "0-1"} {
		if o, err := (Options{Preset: preset}).settle(); err != nil || o.Resize != "" {
			t.Errorf("%s: resize %q, %v; want none", preset, o.Resize, err)
		}
	}
}

// TestResizeIsInTheClientGraph: how images are resized stands in the manifest, so that client and
// server do not differ.
func TestResizeIsInTheClientGraph(t *testing.T) {
	x := must.Get(New(orttest.New(t), identity(t, onnx.Float32, "n", 3, 6, 4), models.Manifest{},
		Options{Resize: "crop"}, *images(1, 9, 9, 3)))(t)
	defer x.Close()
	if _, pre := x.Client(nil, nil); pre.Resize != string(imagefile.Crop) {
		t.Errorf("preprocessing %+v", pre)
	}
}

// TestOptionsOverSidecar: mean and std of the file beside a model keep their scale under options, and
// a scale of another range is refused.
func TestOptionsOverSidecar(t *testing.T) {
	bytes := Options{Mean: []float64{51}, Std: []float64{102}, Scale: Scale255}
	for name, x := range map[string]struct {
		o, side   Options
		mean, std float64 // of pixels of 0 to 1; without std an error
	}{
		"none":                {Options{}, bytes, 0.2, 0.4},
		"mean":                {Options{Mean: []float64{0.5}, Scale: Scale1}, bytes, 0.5, 0.4},
		"mean without scale":  {Options{Mean: []float64{0.5}}, bytes, 0, 0},
		"std without scale":   {Options{Std: []float64{0.5}}, bytes, 0, 0},
		"std of bytes":        {Options{Std: []float64{51}, Scale: Scale255}, bytes, 0.2, 0.2},
		"mean of 0-255":       {Options{Mean: []float64{102}, Scale: Scale255}, Options{Std: []float64{0.1}}, 0.4, 0.1},
		"same scale":          {Options{Scale: Scale255}, bytes, 0.2, 0.4},
		"another scale":       {Options{Scale: Scale1}, bytes, 0, 0},
		"preset":              {Options{Preset: "-1-1"}, bytes, 0.5, 0.5},
		"scale of its preset": {Options{Scale: Scale1}, Options{Preset: "-1-1"}, 0.5, 0.5},
		"another of a preset": {Options{Scale: Scale255}, Options{Preset: "-1-1"}, 0, 0},
		"mean over a preset":  {Options{Mean: []float64{0.1}}, Options{Preset: "-1-1"}, 0.1, 0.5},
	} {
		got, err := x.o.settle(x.side)
		if x.std == 0 {
			if err == nil {
				t.Errorf("%s: %+v; want an error", name, got)
			}
			continue
		}
		if err != nil || math.Abs(got.Mean[0]-x.mean) > 1e-12 || math.Abs(got.Std[0]-x.std) > 1e-12 {
			t.Errorf("%s: mean %v, std %v, %v; want %v and %v", name, got.Mean, got.Std, err, x.mean, x.std)
		}
	}
}
