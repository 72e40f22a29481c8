package models

import (
	"math"
	"strings"
	"testing"

	"fmp/onnx"
	"fmp/onnx/check"
	"fmp/onnx/must"
	"fmp/onnx/serde"
)

// pictured returns a conjugate predictor of 3 features, 2 classes and 2 coordinates, with images.
func pictured(t *testing.T) (m *onnx.Model, features []float32, labels []int) {
	t.Helper()
	values := map[string]*onnx.Tensor{}
	c := ConjugateConfig{Dx: 3, C: 2, K: 2}
	for name, shape := range c.shapes() {
		values[name] = onnx.ZerosF32(shape...)
		for i := range values[name].F32() {
			values[name].F32()[i] = 0.25 * float32(i+1)
		}
	}
	m = must.Get(NewConjugate(c, values))(t)
	features, labels = []float32{1, 2, 3, -4, 0.5, 3, 0, 0, 3}, []int{0, 1, 1}
	m = must.Get(WithImages(m, features, labels))(t)
	return m, features, labels
}

// TestImages: images come back from the file as they were, to half a step of their feature, and
// the parts that leave the server hold none of them.
func TestImages(t *testing.T) {
	m, features, labels := pictured(t)
	m = must.Get(serde.Unmarshal(must.Get(serde.Marshal(m))(t)))(t)
	must.Do(t, check.Model(m))
	rows, of := must.Get2(Images(m))(t)
	_, values := must.Get2(ConjugateValues(m))(t)
	want := soft(features, values[ConjCentre].F32(), float64(values[ConjRadius].F32()[0]))
	for i, v := range rows {
		var most float64
		for at := i % 3; at < len(want); at += 3 {
			most = max(most, math.Abs(float64(want[at])))
		}
		if math.Abs(float64(v-want[i])) > most/imageSteps/2*1.0001 {
			t.Errorf("number %d is %v; want %v within %v", i, v, want[i], most/imageSteps/2)
		}
	}
	for i, y := range of {
		if y != labels[i] {
			t.Errorf("label %d is %d; want %d", i, y, labels[i])
		}
	}
	for _, phi := range []bool{false, true} {
		e := must.Get(ConjugateEmbedding(m, phi))(t)
		for name := range e.Graph.Initializers {
			if strings.HasPrefix(name, conjImages) {
				t.Errorf("the client's part holds %s", name)
			}
		}
	}
	part := must.Get(ConjugatePart(m, ConjCoordinates))(t)
	if part.Graph.Initializers[conjImages] != nil {
		t.Error("the coordinates of a classifier hold the corpus's images")
	}
}

// TestImagesAreChecked: hostile images are refused.
func TestImagesAreChecked(t *testing.T) {
	for name, c := range map[string]struct {
		of string
		is *onnx.Tensor
	}{
		"label 2":      {conjImagesLabels, onnx.NewTensor([]int32{0, 1, 2}, 3)},
		"labels":       {conjImagesLabels, onnx.NewTensor([]int32{0, 1}, 2)},
		"no labels":    {conjImagesLabels, nil},
		"scale":        {conjImagesScale, onnx.NewTensor([]float32{1, 1, -1}, 3)},
		"not a number": {conjImagesScale, onnx.NewTensor([]float32{1, 1, float32(math.NaN())}, 3)},
		"floats":       {conjImages, onnx.ZerosF32(3, 3)},
		"width":        {conjImages, onnx.NewTensor(make([]int8, 6), 3, 2)},
		"rank":         {conjImages, onnx.NewTensor(make([]int8, 9), 9)},
	} {
		t.Run(name, func(t *testing.T) {
			m, _, _ := pictured(t)
			m.Graph.Initializers[c.of] = c.is
			must.Fail(Images(m))(t, "")
		})
	}
	m, features, labels := pictured(t)
	must.Fail(WithImages(m, nil, nil))(t, "", "no images")
	must.Fail(WithImages(m, features[:8], labels))(t, "", "numbers")
	must.Fail(WithImages(m, features, []int{0, 1, 2}))(t, "", "label")
	features[0] = float32(math.Inf(1))
	must.Fail(WithImages(m, features, labels))(t, "", "infinite")
}

// FuzzImages: no images of a file panic, and those that are taken have labels of its classes and
// finite numbers.
func FuzzImages(f *testing.F) {
	f.Add([]byte{1, 2, 3}, 1, 3, float32(0.1), int32(1))
	f.Add([]byte{}, 0, 3, float32(1), int32(0))
	f.Add([]byte{255, 128, 0}, 1, 3, float32(math.MaxFloat32), int32(1))
	f.Fuzz(func(t *testing.T, data []byte, n, dx int, scale float32, label int32) {
		m, _, _ := pictured(t)
		packed := make([]int8, len(data))
		for i, v := range data {
			packed[i] = int8(v)
		}
		labels := make([]int32, max(0, min(n, len(data))))
		for i := range labels {
			labels[i] = label
		}
		m.Graph.Initializers[conjImages] = &onnx.Tensor{DType: onnx.Int8, Shape: []int{n, dx}, Data: packed}
		m.Graph.Initializers[conjImagesScale] = onnx.NewTensor([]float32{scale, 1, 0}, 3)
		m.Graph.Initializers[conjImagesLabels] = onnx.NewTensor(labels, len(labels))
		if n < 0 || dx < 0 || n > len(data) || n*dx != len(data) {
			return // no tensor has a shape that its data lacks
		}
		rows, of, err := Images(m)
		if err != nil {
			return
		}
		for _, y := range of {
			if y < 0 || y > 1 {
				t.Fatalf("label %d", y)
			}
		}
		for _, v := range rows {
			if math.IsNaN(float64(v)) || math.IsInf(float64(v), 0) {
				t.Fatalf("number %v", v)
			}
		}
	})
}
