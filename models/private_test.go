package models

import (
	"math"
	"testing"

	"fmp/models/rng"
	"fmp/onnx"
	"fmp/onnx/must"
)

// privateCase is a private predictor of random parameters.
func privateCase(t *testing.T) (ConjugateConfig, map[string]*onnx.Tensor, *onnx.Model) {
	t.Helper()
	c := ConjugateConfig{Dx: 5, K: 3}
	values := drawn(c.private())
	return c, values, must.Get(NewPrivate(c, values))(t)
}

// TestPrivateHeads: the graph's heads are the formula's, on both engines and for any number of
// classes.
func TestPrivateHeads(t *testing.T) {
	c, values, m := privateCase(t)
	part := must.Get(PrivatePart(m, PrivateHeads))(t)
	at := func(name string) float64 { return float64(values[PrivateSet+name].F32()[0]) }
	metric := values[ConjMetric].F32()
	beta := Prior(values, PrivateSet)
	k := c.K
	for _, size := range [][2]int{{1, 2}, {4, 7}} {
		samples, classes := size[0], size[1]
		n := samples * classes * k
		feeds := map[string]*onnx.Tensor{}
		r := rng.New(2, "inputs", classes)
		for _, name := range []string{"mean", "variance", "latent"} {
			x := onnx.ZerosF32(samples, classes, k)
			rng.Normal(r, x.F32())
			feeds[name] = x
		}
		v := feeds["variance"].F32()
		var u float64
		for i := range v {
			v[i] = v[i] * v[i]
			u += float64(v[i]) / beta[i%k] / float64(n)
		}
		rho := math.Exp(at(ConjLogRho) + at("c1")*u + at("c2")*u*u)
		tau := math.Exp(at(ConjLogTau))
		for _, out := range []*onnx.Tensor{eval(t, part, feeds)[PrivateHeads],
			evalPure(t, part, feeds)[PrivateHeads]} {
			for s := range samples {
				for y := range classes {
					row := (s*classes + y) * k
					a, square, trace, logs := make([]float64, k), 0.0, 0.0, 0.0
					for j := range k {
						x := float64(v[row+j])
						mu := float64(feeds["mean"].F32()[row+j]) +
							math.Sqrt(tau*x)*float64(feeds["latent"].F32()[row+j])
						size := 0.0
						for i := range k {
							a[i] += mu * float64(metric[j*k+i])
							size += float64(metric[j*k+i]) * float64(metric[j*k+i])
						}
						trace, logs = trace+x*size, logs+math.Log(1+x)
					}
					near := func(at int, want float64) {
						if got := float64(out.F32()[(s*(k+1)+at)*classes+y]); math.Abs(
							got-want) > 1e-4*(1+math.Abs(want)) {
							t.Fatalf("%d classes: row %d of head %d is %v, want %v", classes, at, s, got, want)
						}
					}
					for j := range k {
						near(j, rho*a[j])
						square += a[j] * a[j]
					}
					near(k, rho/2*(at(ConjO1)*tau*trace-square)+at(ConjO2)*logs)
				}
			}
		}
	}
}

// TestPrivateEmbedding: of a set of one point the embedding gives its coordinates, those of the
// predictor's rows; the manifest has the norm to clip to, and so has the client graph's.
func TestPrivateEmbedding(t *testing.T) {
	c, values, m := privateCase(t)
	e := must.Get(PrivateEmbedding(m, 4, []string{"a", "b", "c", "d"}))(t)
	f, err := ReadManifest(e)
	if err != nil || f.Kind != KindEmbedding || f.Clip != float64(values[PrivateClip].F32()[0]) ||
		f.K != c.K || f.C != 4 || !f.ClassMeans {
		t.Fatalf("manifest %+v, %v", f, err)
	}
	rows := must.Get(PrivatePart(m, PrivateRows))(t)
	x := onnx.ZerosF32(1, c.Dx)
	rng.Normal(rng.New(3, "x"), x.F32())
	want := evalPure(t, rows, map[string]*onnx.Tensor{"features": x})[PrivateRows].F32()
	point := onnx.ZerosF32(1, 1, c.Dx+4)
	copy(point.F32(), x.F32())
	point.F32()[c.Dx+2] = 1
	out := evalPure(t, e, map[string]*onnx.Tensor{"points": point, "weights": ones(1, 1)})
	near(t, "coordinates", onnx.Vector(out[ConjCompressed].F32()[2*(c.K+4):][:c.K]...), onnx.Vector(want...), 1e-5)
	if masses := out[ConjMasses].F32(); masses[2] != 1 || masses[0] != 0 {
		t.Errorf("masses %v", masses)
	}
	must.Fail(PrivateEmbedding(m, 1, nil))(t, "", "an embedding of one class")
	values[PrivateClip] = onnx.Scalar[float32](0)
	must.Fail(NewPrivate(c, values))(t, "", "a predictor that clips to 0")
}
