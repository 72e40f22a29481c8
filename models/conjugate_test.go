package models

import (
	"encoding/json"
	"maps"
	"os"
	"slices"
	"testing"

	"fmp/onnx"
	"fmp/onnx/must"
)

// conjugateCase is the reference's parameters, inputs and outputs (testdata/conjugate.py).
type conjugateCase struct {
	config                 ConjugateConfig
	values, inputs, wanted map[string]*onnx.Tensor
}

// arrays are tensors as a reference writes them.
type arrays map[string]struct {
	Shape []int
	Data  []float32
}

func (a arrays) tensors() map[string]*onnx.Tensor {
	out := map[string]*onnx.Tensor{}
	for name, x := range a {
		out[name] = onnx.NewTensor(x.Data, x.Shape...)
	}
	return out
}

func readConjugateCase(t *testing.T) conjugateCase {
	t.Helper()
	data := must.Get(os.ReadFile("testdata/conjugate.json"))(t)
	var k struct{ Params, Inputs, Outputs arrays }
	must.Do(t, json.Unmarshal(data, &k))
	c := conjugateCase{values: k.Params.tensors(), inputs: k.Inputs.tensors(),
		wanted: k.Outputs.tensors()}
	v := c.values[ConjMap].Shape
	c.config = ConjugateConfig{Dx: v[0], K: v[1], C: c.wanted[ConjMasses].Shape[1]}
	return c
}

// TestConjugateParity compares every part of the graph with the reference, on both engines.
func TestConjugateParity(t *testing.T) {
	k := readConjugateCase(t)
	m := must.Get(NewConjugate(k.config, k.values))(t)
	for out, want := range k.wanted {
		part := must.Get(ConjugatePart(m, out))(t)
		feeds := map[string]*onnx.Tensor{}
		for _, in := range part.Graph.Inputs {
			if feeds[in.Name] = k.inputs[in.Name]; feeds[in.Name] == nil {
				t.Fatalf("%s wants %s, which the reference has not", out, in.Name)
			}
		}
		near(t, "ort: "+out, eval(t, part, feeds)[out], want, 2e-5)
		near(t, "pure: "+out, evalPure(t, part, feeds)[out], want, 2e-5)
	}
}

// TestConjugateParts: a model gives its parameters back, an embedding has the slots of a class
// each, and what is missing or wrong is named.
func TestConjugateParts(t *testing.T) {
	k := readConjugateCase(t)
	m := must.Get(NewConjugate(k.config, k.values))(t)
	c, values, err := ConjugateValues(m)
	if err != nil || c != k.config ||
		!slices.Equal(values[ConjMetric].F32(), k.values[ConjMetric].F32()) {
		t.Errorf("sizes %v, error %v; want %v and the parameters back", c, err, k.config)
	}
	for _, phi := range []bool{false, true} {
		e := must.Get(ConjugateEmbedding(m, phi))(t)
		f := must.Get(ReadManifest(e))(t)
		want := ConjCompressed
		if phi {
			want = ConjCompressedPhi
		}
		out := evalPure(t, e, map[string]*onnx.Tensor{"points": k.inputs["client_points"],
			"weights": k.inputs["client_weights"]})
		near(t, want, out["compressed"], k.wanted[want], 1e-5)
		if f.Kind != KindEmbedding || f.S != c.C || f.PointWidth() != k.wanted[want].Shape[2]-c.C {
			t.Errorf("manifest %+v does not say what the embedding makes, %v", f, k.wanted[want])
		}
	}
	must.Fail(ConjugatePart(m, "nothing"))(t, "nothing")
	for name, bad := range map[string]*onnx.Tensor{ConjMap: onnx.ZerosF32(2, 2), ConjOrigin: nil} {
		values := maps.Clone(k.values)
		values[name] = bad
		must.Fail(NewConjugate(k.config, values))(t, name)
	}
	must.Fail(NewConjugate(ConjugateConfig{Dx: 3, C: 4, K: 4}, k.values))(t, "k 4")
}

// TestConjugateLoss: a move of nothing leaves the loss what it was, on either engine.
func TestConjugateLoss(t *testing.T) {
	k := readConjugateCase(t)
	l := ConjugateLoss{ConjugateConfig: k.config, Values: k.values, Set: ConjSample,
		Learn: []string{ConjLogRho, ConjO1}, Samples: 7, Joint: 3}
	plain, params, err := l.Model()
	if err != nil || !slices.Equal(params, []string{"sample/log_rho", "sample/o1"}) {
		t.Fatalf("parameters %v, %v", params, err)
	}
	l.Moves = map[string]float64{ConjMap: 0.1, ConjMetric: 0.1}
	moved, params, err := l.Model()
	if err != nil || len(params) != 4 {
		t.Fatalf("parameters %v, %v", params, err)
	}
	points := k.inputs["client_points"]
	tasks, n := points.Shape[0], points.Shape[1]
	cut := func(from, to int) *onnx.Tensor {
		out := onnx.ZerosF32(tasks, n, to-from)
		for i := range tasks * n {
			copy(out.F32()[i*(to-from):], points.F32()[i*points.Shape[2]+from:i*points.Shape[2]+to])
		}
		return out
	}
	batches, latent := onnx.ZerosF32(tasks, n, 2), onnx.ZerosF32(tasks, 7, k.config.C, k.config.K)
	for i := range tasks {
		for j := range 6 {
			batches.F32()[(i*n+j)*2+j/3] = 1
		}
		copy(latent.F32()[i*k.inputs["latent"].Len():], k.inputs["latent"].F32())
	}
	feeds := map[string]*onnx.Tensor{"rows": cut(0, k.config.Dx),
		"labels": cut(k.config.Dx, k.config.Dx+k.config.C), "batches": batches, "latent": latent}
	feeds["targets"], feeds["target_labels"] = feeds["rows"], feeds["labels"]
	a, b := evalPure(t, plain, feeds), eval(t, moved, feeds)
	for _, name := range []string{"loss", "nll", "joint"} {
		near(t, name, b[name], a[name], 1e-5)
		if v := a[name].F32()[0]; !(v > 0) {
			t.Errorf("%s is %v; want a number above 0", name, v)
		}
	}
}

// TestManyNames: a predictor of many classes stores nothing of classes by classes, and its clients'
// points are named as ever.
func TestManyNames(t *testing.T) {
	k := readConjugateCase(t)
	c := k.config
	c.C = maxNamed + 1
	m := must.Get(NewConjugate(c, k.values))(t)
	for name, v := range m.Graph.Initializers {
		if v.Len() >= c.C*c.C/2 {
			t.Errorf("it stores %s, %v", name, v)
		}
	}
	e := must.Get(ConjugateEmbedding(m, false))(t)
	point := onnx.ZerosF32(1, 1, c.Dx+c.C)
	point.F32()[c.Dx+5] = 1
	feeds := map[string]*onnx.Tensor{"points": point, "weights": onnx.NewTensor([]float32{2}, 1, 1)}
	for engine, out := range map[string]map[string]*onnx.Tensor{"ort": eval(t, e, feeds),
		"pure": evalPure(t, e, feeds)} {
		sent := out[ConjCompressed].F32()
		for i := range c.C {
			for j := range c.C {
				if got := sent[i*(c.K+c.C)+c.K+j]; got != 0 && i != j || got != 1 && i == j {
					t.Fatalf("%s: point %d has label %v of class %d", engine, i, got, j)
				}
			}
		}
	}
}
