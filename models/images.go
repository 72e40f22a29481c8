package models

import (
	"fmt"
	"math"
	"slices"

	"fmp/onnx"
)

// Names of the images that a conjugate predictor may hold: those of its corpus, which a round of
// the same classes counts as one more client's. They are initializers that no node of the graph
// reads.
const (
	conjImages       = "images"        // int8 [N, dx]: softened features in units of their scale
	conjImagesScale  = "images_scale"  // float32 [dx]
	conjImagesLabels = "images_labels" // int32 [N]
)

// maxImages bounds the images of a conjugate predictor, and maxImageNumbers their numbers: 1 GiB in
// float32.
const maxImages, maxImageNumbers = 1 << 22, 1 << 28

// LeastImages is the number of images of a class that a round's regression must be able to read, on
// average: fewer tell neither their covariance nor a temperature.
const LeastImages = 20

// imageSteps is the largest number of an image's int8.
const imageSteps = 127

// WithImages returns a conjugate predictor with the images of its corpus: feature rows [N, dx] with
// labels [N]. Each number of the softened features is kept in one byte, in 127ths of the largest of
// its feature. Of image i and feature j it is
//
//	round(phi_ij/scale_j),   scale_j = max_i |phi_ij|/127
//
// so that it comes back to half a step. The model given is not changed.
func WithImages(m *onnx.Model, features []float32, labels []int) (*onnx.Model, error) {
	c, values, err := ConjugateValues(m)
	if err != nil {
		return nil, err
	}
	n := len(labels)
	if n == 0 || n > min(maxImages, maxImageNumbers/c.Dx) || len(features) != n*c.Dx {
		return nil, fmt.Errorf("images of a conjugate predictor: %d numbers for %d labels; want "+
			"%d each, and 1 to %d images", len(features), n, c.Dx,
			min(maxImages, maxImageNumbers/c.Dx))
	}
	rows := soft(features, values[ConjCentre].F32(), float64(values[ConjRadius].F32()[0]))
	scale, packed, of := make([]float32, c.Dx), make([]int8, len(rows)), make([]int32, n)
	for i, v := range rows {
		if f := float64(v); math.IsNaN(f) || math.IsInf(f, 0) {
			return nil, fmt.Errorf("images of a conjugate predictor: image %d holds %v; want "+
				"finite numbers", i/c.Dx, v)
		}
		scale[i%c.Dx] = max(scale[i%c.Dx], float32(math.Abs(float64(v))))
	}
	for j, v := range scale {
		scale[j] = v / imageSteps
	}
	for i, v := range rows {
		if s := scale[i%c.Dx]; s > 0 {
			packed[i] = int8(min(max(math.RoundToEven(float64(v/s)), -imageSteps), imageSteps))
		}
	}
	for i, y := range labels {
		if y < 0 || y >= c.C {
			return nil, fmt.Errorf("images of a conjugate predictor: label %d of image %d; "+
				"allowed are 0 to %d", y, i, c.C-1)
		}
		of[i] = int32(y)
	}
	out := onnx.Clone(m)
	out.Graph.Initializers[conjImages] = onnx.NewTensor(packed, n, c.Dx)
	out.Graph.Initializers[conjImagesScale] = onnx.NewTensor(scale, c.Dx)
	out.Graph.Initializers[conjImagesLabels] = onnx.NewTensor(of, n)
	return out, nil
}

// soft returns features with their norm softened: phi of [NewConjugate]. Sums are in float64. A
// centre equal to the features gives zeros.
func soft(features, centre []float32, radius float64) []float32 {
	out, dx := make([]float32, len(features)), len(centre)
	for at := 0; at < len(features); at += dx {
		square := 0.0
		for j, v := range features[at : at+dx] {
			d := float64(v) - float64(centre[j])
			square += d * d
		}
		by := 1 / math.Sqrt(1+square/(radius*radius))
		for j, v := range features[at : at+dx] {
			out[at+j] = float32((float64(v) - float64(centre[j])) * by)
		}
	}
	return out
}

// images are those of a conjugate predictor as it holds them. packed is [N, dx], scale [dx] and
// labels [N].
type images struct{ packed, scale, labels *onnx.Tensor }

// readImages returns the images of a conjugate predictor of dx features and some classes, checked;
// nil where it holds none. The scale is bounded so that no product with a byte overflows float32.
func readImages(m *onnx.Model, dx, classes int) (*images, error) {
	in := m.Graph.Initializers
	t := &images{in[conjImages], in[conjImagesScale], in[conjImagesLabels]}
	if t.packed == nil {
		return nil, nil
	}
	n := 0
	if len(t.packed.Shape) == 2 {
		n = t.packed.Shape[0]
	}
	if n < 1 || n > min(maxImages, maxImageNumbers/dx) ||
		!isTensor(t.packed, onnx.Int8, n, dx) || !isTensor(t.scale, onnx.Float32, dx) ||
		!isTensor(t.labels, onnx.Int32, n) {
		return nil, fmt.Errorf("conjugate predictor: images %v of scale %v with labels %v; want "+
			"int8 [N, %d], float32 [%d] and int32 [N]", t.packed, t.scale, t.labels, dx, dx)
	}
	for j, v := range t.scale.F32() {
		if !(v >= 0) || float64(v)*128 > math.MaxFloat32 { // the least int8 is -128
			return nil, fmt.Errorf("conjugate predictor: scale %v of feature %d of its images",
				v, j)
		}
	}
	for i, y := range t.labels.Data.([]int32) {
		if y < 0 || int(y) >= classes {
			return nil, fmt.Errorf("conjugate predictor: label %d of image %d; allowed are 0 to %d",
				y, i, classes-1)
		}
	}
	return t, nil
}

// Images returns the images of a conjugate predictor, softened features [N, dx] with labels [N];
// none where it holds none. The result is the caller's. The numbers are those that were packed, to
// half a step.
func Images(m *onnx.Model) (rows []float32, labels []int, err error) {
	c, _, err := ConjugateValues(m)
	if err != nil {
		return nil, nil, err
	}
	t, err := readImages(m, c.Dx, c.C)
	if t == nil || err != nil {
		return nil, nil, err
	}
	rows, labels = make([]float32, len(t.packed.Data.([]int8))), make([]int, t.labels.Shape[0])
	for i, v := range t.packed.Data.([]int8) {
		rows[i] = float32(v) * t.scale.F32()[i%c.Dx]
	}
	for i, y := range t.labels.Data.([]int32) {
		labels[i] = int(y)
	}
	return rows, labels, nil
}

// isTensor reports whether a tensor is there, of a type and a shape.
func isTensor(t *onnx.Tensor, of onnx.DType, shape ...int) bool {
	return t != nil && t.DType == of && slices.Equal(t.Shape, shape)
}
