package models

import (
	"math"
	"slices"
	"testing"

	"fmp/models/rng"
	"fmp/onnx"
	"fmp/onnx/build"
	"fmp/onnx/must"
)

// someHeads are samples of a posterior for a test, [S, k+1, C].
func someHeads(samples, k, c int, scale float64) *onnx.Tensor {
	h := make([]float64, samples*(k+1)*c)
	r := rng.New(5, "heads")
	for i := range h {
		h[i] = scale * r.NormFloat64()
	}
	return onnx.NewTensor(h, samples, k+1, c)
}

// predictive is what a classifier is to give for one row, in float64.
func predictive(h *onnx.Tensor,
	row []float32) (p []float64, entropy, information float64, single [][]float64) {
	samples, k, c := h.Shape[0], h.Shape[1]-1, h.Shape[2]
	entropyOf := func(p []float64) (e float64) {
		for _, v := range p {
			if v > 0 {
				e -= v * math.Log(v)
			}
		}
		return e
	}
	p = make([]float64, c)
	for s := range samples {
		w := h.F64()[s*(k+1)*c:]
		l := slices.Clone(w[k*c : (k+1)*c])
		for j := range k {
			for i := range l {
				l[i] += float64(row[j]) * w[j*c+i]
			}
		}
		top, sum := slices.Max(l), 0.0
		for i := range l {
			l[i] = math.Exp(l[i] - top)
			sum += l[i]
		}
		for i := range l {
			l[i] /= sum
			p[i] += l[i] / float64(samples)
		}
		information -= entropyOf(l) / float64(samples)
		single = append(single, l)
	}
	entropy = entropyOf(p)
	return p, entropy, information + entropy, single
}

// TestClassifier: images through a fused client graph's extractor, coordinates and heads give what
// the formulas say, on both engines, and so do feature rows in the smaller form.
func TestClassifier(t *testing.T) {
	embedding := must.Get(NewEmbedding(EmbeddingConfig{Dx: testDx, C: testC, Size: 4}, 1))(t)
	e := must.Get(ReadManifest(embedding))(t)
	const n, samples = 9, 6
	pixels, _ := someImages(n, 12)
	images := onnx.NewTensor(pixels, n, 2, 3, 2)
	// Coordinates of a width of their own: the features and the squares of two of them.
	b := build.New("coordinates")
	h := b.Input("features", onnx.Float32, "n", testDx)
	two := b.Slice(h, 1, 0, 2)
	b.Output("coordinates", b.Concat(1, h, b.Mul(two, two)))
	coordinates := must.Get(b.Model())(t)
	for _, c := range []struct {
		name   string
		rank   int
		coords *onnx.Model
		scale  float64
	}{{"rows", 2, nil, 0.3}, {"tokens", 3, coordinates, 0.3}, {"map", 4, coordinates, 20}} {
		t.Run(c.name, func(t *testing.T) {
			pre := Preprocessing{Height: 2, Width: 3, Channels: 2, Mean: []float32{0.5, 0.25},
				Std: []float32{0.5, 2}, Output: "h",
				FeatureMean: []float32{1, 2, 3, 4}, FeatureStd: []float32{1, 2, 1, 2}}
			client := must.Get(ClientGraph(linearExtractor(t, false, c.rank), Manifest{Digest: "x"},
				embedding, e, pre))(t)
			f := must.Get(ReadManifest(client))(t)
			front := must.Get(FeatureGraph(client, f))(t)
			k := testDx
			if c.coords != nil {
				k += 2
			}
			heads := someHeads(samples, k, testC, c.scale)
			whole := must.Get(NewClassifier(ClassifierParts{Features: front, Coordinates: c.coords,
				Heads: heads, Samples: true}, Manifest{Classes: make([]string, testC)}))(t)
			small := must.Get(NewClassifier(ClassifierParts{Coordinates: c.coords,
				Heads: heads, Samples: true}, Manifest{}))(t)
			for _, m := range []*onnx.Model{whole, small} {
				if f, err := ReadManifest(m); err != nil || f.Kind != KindClassifier ||
					f.Dx != testDx ||
					f.C != testC || f.S != samples {
					t.Errorf("manifest %+v, %v", f, err)
				}
				for _, v := range slices.Concat(m.Graph.Inputs, m.Graph.Outputs) {
					if v.Doc == "" {
						t.Errorf("%s has no doc string", v.Name)
					}
				}
			}
			features := eval(t, front, map[string]*onnx.Tensor{"images": images})["features"]
			rows := features
			if c.coords != nil {
				rows = eval(t, c.coords, map[string]*onnx.Tensor{"features": features})["coordinates"]
			}
			var want [4][]float64 // probabilities, entropy, mutual information, samples
			for i := range n {
				p, e, mi, single := predictive(heads, rows.F32()[i*k:(i+1)*k])
				want[0], want[1], want[2] = append(want[0], p...), append(want[1], e),
					append(want[2], mi)
				want[3] = append(want[3], slices.Concat(single...)...)
			}
			for name, got := range map[string]map[string]*onnx.Tensor{
				"images on ort":  eval(t, whole, map[string]*onnx.Tensor{"images": images}),
				"images on pure": evalPure(t, whole, map[string]*onnx.Tensor{"images": images}),
				"rows on ort":    eval(t, small, map[string]*onnx.Tensor{"features": features}),
				"rows on pure":   evalPure(t, small, map[string]*onnx.Tensor{"features": features}),
			} {
				for i, out := range []string{"probabilities", "entropy", "mutual_information", "samples"} {
					if got[out].Len() != len(want[i]) {
						t.Fatalf("%s: %s is %v, want %d numbers", name, out, got[out], len(want[i]))
					}
					for j, v := range got[out].F32() {
						if math.Abs(float64(v)-want[i][j]) > 1e-5 {
							t.Errorf("%s: %s[%d] is %v, want %v", name, out, j, v, want[i][j])
							break
						}
					}
				}
			}
		})
	}
}

func TestClassifierErrors(t *testing.T) {
	bad := someHeads(1, 3, 2, 1)
	bad.F64()[5] = math.NaN()
	linear := linearExtractor(t, false, 2)
	b := build.New("wide")
	b.Output("features", b.Relu(b.Input("images", onnx.Float32, "n", 5)))
	wide, heads := must.Get(b.Model())(t), someHeads(1, 3, 2, 1)
	for want, parts := range map[string]ClassifierParts{
		"want float64":                       {Heads: onnx.ZerosF32(2, 3, 4)},
		"head 0 holds NaN at row 2, class 1": {Heads: bad},
		"has 2 outputs":                      {Features: linear, Heads: heads},
		"does not fit":                       {Features: wide, Heads: heads},
	} {
		must.Fail(NewClassifier(parts, Manifest{}))(t, want)
	}
	must.Fail(FeatureGraph(linear, Manifest{}))(t, `no "set" to cut`)
}
