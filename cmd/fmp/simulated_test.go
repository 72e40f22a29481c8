package main

import (
	"testing"

	"fmp/assets/assetstest"
	"fmp/models"
	"fmp/models/rng"
	"fmp/onnx"
	"fmp/onnx/must"
	"fmp/pipeline/federate"
	"fmp/pipeline/option"
	"fmp/pipeline/point"
)

// simulated makes uploads of class means of the digits' client graph, of the corpus's kind: beside
// images of another kind clients tell how much the corpus counts, and sums of clients do not.
type simulated struct {
	graph   *onnx.Model
	f       models.Manifest
	centres []float32
}

func newSimulated(t *testing.T) *simulated {
	t.Helper()
	s := &simulated{}
	s.graph, s.f = assetstest.Load(t, "digits", models.KindClient)
	cfg := option.Default[anchorSettings]()
	cfg.FillDefaults()
	u := must.Get(drawAnchor(t.Context(), cfg, "", mostAnchor))(t)
	s.centres = make([]float32, s.f.S*s.f.Dx)
	for i, y := range u.Points.Indices() {
		copy(s.centres[int(y)*s.f.Dx:], u.Points.Features(i))
	}
	return s
}

// upload returns the upload of one client, of two images a class, whose names are further classes
// by shift than the true ones.
func (s *simulated) upload(name string, shift int) ([]byte, error) {
	f := s.f
	set := &point.Set{N: f.S, Dx: f.Dx, C: f.C, Z: make([]float32, f.S*f.Dx), W: make([]float32, f.S),
		Y: make([]int32, f.S)}
	r := rng.New(1, name)
	for i := range set.Z {
		set.Z[i] = s.centres[i] + 0.1*float32(r.NormFloat64())
	}
	for c := range f.S {
		set.W[c], set.Y[c] = 2, int32((c+shift)%f.C)
	}
	return (&federate.Upload{Round: benchRound, Client: name, Model: f.Digest, N: 2 * f.S,
		Points: set}).Encode()
}
