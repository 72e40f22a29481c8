package models

import (
	"fmt"
	"slices"
	"testing"

	"fmp/models/rng"
	"fmp/onnx"
	"fmp/onnx/build"
	"fmp/onnx/must"
	"fmp/onnx/pass"
)

// linearExtractor maps images of 2x3 pixels and 2 channels to testDx features, all it takes to see
// that every part of the fused graph is in its place. Rank is that of its features.
func linearExtractor(t *testing.T, nhwc bool, rank int) *onnx.Model {
	t.Helper()
	b := build.New("extractor")
	shape := []any{"batch", 2, 2, 3}
	if nhwc {
		shape = []any{"batch", 2, 3, 2}
	}
	x := b.Reshape(b.Input("pixels", onnx.Float32, shape...), 0, 12)
	w := onnx.ZerosF32(12, testDx)
	rng.Normal(rng.New(1, "extractor"), w.F32())
	x = b.MatMul(x, b.Param("w", w))
	b.Output("logits", b.Relu(x))
	switch {
	case rank == 3:
		x = b.Unsqueeze(x, 1)
		x = b.Concat(1, x, b.Mul(x, b.F32(3)))
	case rank == 4 && nhwc:
		x = b.Unsqueeze(x, 1, 2)
	case rank == 4:
		x = b.Unsqueeze(x, 2, 3)
	}
	b.Output("h", x)
	return must.Get(b.Model())(t)
}

// ofFloat64 is an extractor with features of float64, its only output.
func ofFloat64(t *testing.T, extractor *onnx.Model) *onnx.Model {
	t.Helper()
	b := build.New("wide")
	b.Output("h", b.Cast(b.Input("x", onnx.Float32, "batch", testDx), onnx.Float64))
	x := onnx.Clone(extractor)
	x.Graph.Outputs = x.Graph.Outputs[1:]
	return must.Get(pass.Compose(x, must.Get(b.Model())(t), map[string]string{"x": "h"}))(t)
}

// someImages are images of as many numbers each, with labels.
func someImages(n, size int) (pixels []uint8, labels []int64) {
	r := rng.New(1, "images")
	for range n * size {
		pixels = append(pixels, uint8(r.IntN(256)))
	}
	for range n {
		labels = append(labels, int64(r.IntN(testC)))
	}
	return pixels, labels
}

// scaledImages are images of 2x3 pixels and 2 channels as an extractor takes them.
func scaledImages(pixels []uint8, n int, p Preprocessing) *onnx.Tensor {
	in := onnx.ZerosF32(n, 12)
	for i := range n {
		for px := range 6 {
			for ch := range 2 {
				at := px*2 + ch
				if !p.NHWC {
					at = ch*6 + px
				}
				in.F32()[i*12+at] = (float32(pixels[i*12+px*2+ch])/255 - p.Mean[ch]) / p.Std[ch]
			}
		}
	}
	in.Shape = []int{n, 2, 2, 3}
	if p.NHWC {
		in.Shape = []int{n, 2, 3, 2}
	}
	return in
}

// TestClientGraph: the fused graph gives what its parts give one after another, and leaves images
// of a label out of range out, whatever names the extractor's values have. A classifier comes of it.
func TestClientGraph(t *testing.T) {
	embedding := must.Get(NewEmbedding(EmbeddingConfig{Dx: testDx, C: testC, Size: 4,
		Blocks: 1, Hidden: 8}, 1))(t)
	shake(embedding)
	e := must.Get(ReadManifest(embedding))(t)
	const n = 7
	pixels, labels := someImages(n, 12)
	for _, c := range []struct {
		name  string
		nhwc  bool
		rank  int
		inner []string // names that the extractor has for inner values
	}{{name: "nchw", rank: 2}, {name: "nhwc", nhwc: true, rank: 2}, {name: "tokens", rank: 3},
		{name: "map", rank: 4}, {name: "nhwc map", nhwc: true, rank: 4}, {name: "float64", rank: 2},
		{name: "float64", rank: 2, inner: []string{"h/float32", "fitted"}},
		{name: "masses", rank: 2, inner: []string{"embedded_masses", "embedded_points"}},
		{name: "features", rank: 2, inner: []string{"features", "client/features"}}} {
		t.Run(fmt.Sprint(c.name, c.inner), func(t *testing.T) {
			extractor := linearExtractor(t, c.nhwc, c.rank)
			p := Preprocessing{
				Height: 2, Width: 3, Channels: 2, Mean: []float32{0.5, 0.25}, Std: []float32{0.5, 2},
				NHWC: c.nhwc, Output: "h",
				FeatureMean: []float32{1, 2, 3, 4}, FeatureStd: []float32{1, 2, 1, 2},
			}
			fused := extractor
			if c.name == "float64" {
				fused = ofFloat64(t, extractor)
				p.Output = fused.Graph.Outputs[0].Name
			}
			for i, name := range c.inner {
				pass.Rename(fused.Graph, map[string]string{fused.Graph.Nodes[i].Outputs[0]: name})
			}
			m := must.Get(ClientGraph(fused, Manifest{Digest: "x"}, embedding, e, p))(t)
			got := eval(t, m, map[string]*onnx.Tensor{"images": onnx.NewTensor(pixels, n, 2, 3, 2),
				"labels": onnx.NewTensor(labels, n)})

			in := scaledImages(pixels, n, p)
			h := eval(t, extractor, map[string]*onnx.Tensor{"pixels": in}, "h")["h"].F32()
			z := onnx.ZerosF32(1, n, testDz)
			for i := range n {
				row := z.F32()[i*testDz : (i+1)*testDz]
				for j := range testDx {
					v := h[i*testDx+j]
					if c.rank == 3 { // two tokens, the second three times the first
						v = h[i*2*testDx+j] * 2
					}
					row[j] = (v - p.FeatureMean[j]) / p.FeatureStd[j]
				}
				row[testDx+int(labels[i])] = 1
			}
			want := eval(t, embedding, map[string]*onnx.Tensor{"points": z, "weights": ones(1, n)})
			compressed, _ := want["compressed"].Reshape(4, testDz)
			masses, _ := want["masses"].Reshape(4)
			near(t, "points", got["points"], compressed, 1e-4)
			near(t, "masses", got["masses"], masses, 1e-4)

			more := slices.Concat(labels, []int64{-1, testC})
			image := slices.Concat(pixels, make([]uint8, 24))
			got = eval(t, m, map[string]*onnx.Tensor{"images": onnx.NewTensor(image, n+2, 2, 3, 2),
				"labels": onnx.NewTensor(more, n+2)})
			near(t, "points beside unlabelled images", got["points"], compressed, 1e-4)
			near(t, "masses beside unlabelled images", got["masses"], masses, 1e-4)

			f := must.Get(ReadManifest(m))(t)
			if f.Kind != KindClient || f.S != 4 || f.Dx != testDx || f.C != testC || f.Extractor != "x" {
				t.Errorf("manifest %+v", f)
			}
			whole := must.Get(NewClassifier(ClassifierParts{Features: must.Get(FeatureGraph(m, f))(t),
				Heads: someHeads(1, testDx, testC, 0.3)}, Manifest{}))(t)
			must.Get(AnySize(whole))(t)
		})
	}
}

func TestClientGraphErrors(t *testing.T) {
	embedding := must.Get(NewEmbedding(EmbeddingConfig{Dx: testDx, C: testC}, 1))(t)
	e := must.Get(ReadManifest(embedding))(t)
	good, one := Preprocessing{Height: 2, Width: 3, Channels: 2, Output: "h"}, []float32{1}
	for _, c := range []struct {
		want   string
		change func(p *Preprocessing, x, e *Manifest)
	}{
		{"dx 9", func(_ *Preprocessing, x, _ *Manifest) { x.Dx = 9 }},
		{"same extractor", func(_ *Preprocessing, x, e *Manifest) { x.Digest, e.Extractor = "a", "b" }},
		{"want an embedding", func(_ *Preprocessing, _, e *Manifest) { e.Kind = KindPredictor }},
		{"2 outputs", func(p *Preprocessing, _, _ *Manifest) { p.Output = "" }},
		{`no output "z"`, func(p *Preprocessing, _, _ *Manifest) { p.Output = "z" }},
		{"0x3 pixels", func(p *Preprocessing, _, _ *Manifest) { p.Height = 0 }},
		{"1 means", func(p *Preprocessing, _, _ *Manifest) { p.Mean, p.Std = one, one }},
		{"for 4 features", func(p *Preprocessing, _, _ *Manifest) { p.FeatureMean, p.FeatureStd = one, one }},
		{"pixels", func(p *Preprocessing, _, _ *Manifest) { p.Channels = 3 }},
	} {
		p, x, f := good, Manifest{Kind: KindExtractor}, e
		c.change(&p, &x, &f)
		must.Fail(ClientGraph(linearExtractor(t, false, 2), x, embedding, f, p))(t, c.want)
	}
}
