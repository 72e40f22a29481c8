package models

import (
	"fmt"
	"math"

	"fmp/onnx"
	"fmp/onnx/build"
)

// Names of the open predictor's parameters: initializers of its graph, of which the coordinates read the first three.
const (
	OpenCentre     = "c"          // [dx], mean of the corpus
	OpenRadius     = "r"          // [], mean distance from it
	OpenProjection = "projection" // [dx, k], where k < dx
	OpenOrigin     = "m0"         // [k], mean of the corpus's class means
	OpenWithin     = "within"     // [k, k], covariance within classes
	OpenBetween    = "between"    // [k, k], covariance of class means
	OpenKnown      = "known"      // [K, k], the corpus's class means
)

// OpenScalars are the learned scalars, in order, each an initializer [].
var OpenScalars = []string{"log_nu0", "logit_delta", "log_eta", "log_b", "log_k0", "logit_gamma", "logit_s", "r0", "r1", "r2", "r3", "log_tau", "o1", "o2"}

// OpenParameters are the values of an open predictor: the posterior of classes that the corpus lacks (pipeline/open). Matrices are
// row-major, of the shapes at the constants' names.
type OpenParameters struct {
	Centre     []float32
	Radius     float32
	Projection []float32 // nil where coordinates are the softened features themselves
	Origin     []float32
	Within     []float32
	Between    []float32
	Known      []float32
	Scalars    [14]float32
}

func (p *OpenParameters) tensors() (map[string]*onnx.Tensor, error) {
	dx, k := len(p.Centre), len(p.Origin)
	if dx < 1 || dx > maxWidth || k < 1 || k > dx {
		return nil, fmt.Errorf("open predictor of %d features and %d coordinates; allowed are 1 to %d features and as many coordinates at most", dx, k, maxWidth)
	}
	if len(p.Within) != k*k || len(p.Between) != k*k || len(p.Known) < 2*k || len(p.Known)%k != 0 ||
		(k < dx && len(p.Projection) != dx*k) || (k == dx && p.Projection != nil) {
		return nil, fmt.Errorf("open predictor of %d features and %d coordinates: moments of %d and %d numbers, class means of %d and a projection of %d do not fit", dx, k, len(p.Within), len(p.Between), len(p.Known), len(p.Projection))
	}
	out := map[string]*onnx.Tensor{
		OpenCentre: onnx.NewTensor(p.Centre, dx), OpenRadius: onnx.NewTensor([]float32{p.Radius}), OpenOrigin: onnx.NewTensor(p.Origin, k),
		OpenWithin: onnx.NewTensor(p.Within, k, k), OpenBetween: onnx.NewTensor(p.Between, k, k), OpenKnown: onnx.NewTensor(p.Known, len(p.Known)/k, k),
	}
	if k < dx {
		out[OpenProjection] = onnx.NewTensor(p.Projection, dx, k)
	}
	for i, name := range OpenScalars {
		out[name] = onnx.NewTensor([]float32{p.Scalars[i]})
	}
	for name, t := range out {
		for i, v := range t.F32() {
			if math.IsNaN(float64(v)) || math.IsInf(float64(v), 0) {
				return nil, fmt.Errorf("open predictor: element %d of %s is %v; want finite numbers", i, name, v)
			}
		}
	}
	if !(p.Radius > 0) {
		return nil, fmt.Errorf("open predictor: the radius %s is %v; want a number above 0", OpenRadius, p.Radius)
	}
	return out, nil
}

// NewOpen builds an open predictor. Its graph maps features [n, dx] to the coordinates [n, k] that clients' class means and heads
// are on, phi(h) = (h - c)/sqrt(1 + |h - c|^2/r^2), projected where k < dx; the other parameters are read by the
// server's linear algebra.
func NewOpen(p OpenParameters) (*onnx.Model, error) {
	values, err := p.tensors()
	if err != nil {
		return nil, err
	}
	b := build.New("open")
	refs := map[string]build.Ref{}
	for _, name := range append([]string{OpenCentre, OpenRadius, OpenOrigin, OpenWithin, OpenBetween, OpenKnown}, OpenScalars...) {
		refs[name] = b.Param(name, values[name])
	}
	e := b.Sub(b.Input("features", onnx.Float32, "n", len(p.Centre)), refs[OpenCentre])
	r := refs[OpenRadius]
	norm := b.Div(b.ReduceSum(b.Mul(e, e), true, 1), b.Mul(r, r))
	phi := b.Div(e, b.Sqrt(b.Add(norm, b.F32(1))))
	if p.Projection != nil {
		phi = b.MatMul(phi, b.Param(OpenProjection, values[OpenProjection]))
	}
	b.Output("coordinates", phi)
	m, err := b.Model()
	if err != nil {
		return nil, err
	}
	return m, Manifest{Kind: KindOpen, Dx: len(p.Centre), C: len(p.Known) / len(p.Origin)}.Write(m)
}

// OpenValues are the parameters of an open predictor's model.
func OpenValues(m *onnx.Model) (OpenParameters, error) {
	var p OpenParameters
	f, err := ReadManifest(m)
	if err != nil {
		return p, err
	}
	if f.Kind != KindOpen {
		return p, fmt.Errorf("the model's manifest says kind %q; want %q, as fmp train open writes it", f.Kind, KindOpen)
	}
	get := func(name string, rank int) []float32 {
		t := m.Graph.Initializers[name]
		if t == nil || t.DType != onnx.Float32 || len(t.Shape) != rank {
			if err == nil {
				err = fmt.Errorf("open predictor: parameter %q is %v; want float32 of rank %d", name, t, rank)
			}
			return nil
		}
		return t.F32()
	}
	p.Centre, p.Origin, p.Within, p.Between, p.Known = get(OpenCentre, 1), get(OpenOrigin, 1), get(OpenWithin, 2), get(OpenBetween, 2), get(OpenKnown, 2)
	if r := get(OpenRadius, 0); len(r) == 1 {
		p.Radius = r[0]
	}
	if m.Graph.Initializers[OpenProjection] != nil {
		p.Projection = get(OpenProjection, 2)
	}
	for i, name := range OpenScalars {
		if v := get(name, 0); len(v) == 1 {
			p.Scalars[i] = v[0]
		}
	}
	if err != nil {
		return p, err
	}
	_, err = p.tensors()
	return p, err
}
