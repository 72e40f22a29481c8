package models

import (
	"math"
	"testing"

	"fmp/models/rng"
	"fmp/onnx"
	"fmp/onnx/must"
)

// TestWithShift: estimated_shift is that of expectation and maximization in float64, of images half
// of which are of one class; coordinates are those of features less what is fed, by default of
// features as they are; another graph is refused.
func TestWithShift(t *testing.T) {
	for _, rest := range []float32{0.2, 0} {
		testShift(t, rest, 0.3)
	}
}

func testShift(t *testing.T, rest, trace float32) {
	t.Helper()
	const dx, k, classes, r, n = 6, 3, 4, 2, 40
	g := rng.New(1, "shift")
	values := map[string]*onnx.Tensor{}
	normal := func(by float64, shape ...int) *onnx.Tensor {
		x := onnx.ZerosF32(shape...)
		for i := range x.F32() {
			x.F32()[i] = float32(by * g.NormFloat64())
		}
		return x
	}
	for name, shape := range (ConjugateConfig{Dx: dx, C: classes, K: k}).shapes() {
		values[name] = normal(0.5, shape...)
	}
	values[ConjRadius].F32()[0] = 2
	whole := must.Get(NewConjugate(ConjugateConfig{Dx: dx, C: classes, K: k}, values))(t)
	coordinates := must.Get(ConjugatePart(whole, ConjCoordinates))(t)
	p := ShiftParts{To: normal(1, dx, r), Back: normal(1, r, dx), Means: normal(1, classes, dx),
		Variance: onnx.Vector[float32](2, 0.1),
		Rest:     rest, Trace: trace, Shares: onnx.Vector[float32](30, 10, 200, 60),
		Head: normal(1, k, classes), Bias: normal(1, classes)}
	m := must.Get(WithShift(coordinates, p))(t)
	features := normal(1, n, dx)
	for i := range n / 2 {
		copy(features.F32()[i*dx:(i+1)*dx], features.F32()[:dx])
	}
	feeds := map[string]*onnx.Tensor{"features": features}
	rows := evalPure(t, coordinates, feeds)[ConjCoordinates].F32()
	got := evalPure(t, m, feeds)
	close := func(name string, a, b []float64) {
		t.Helper()
		for i, v := range a {
			if math.Abs(v-b[i]) > 1e-4 {
				t.Errorf("%s: number %d is %.5f, want %.5f", name, i, v, b[i])
			}
		}
	}
	close("coordinates", float64s(got[ConjCoordinates]), float64s(onnx.NewTensor(rows, n, k)))

	slope := float64s(product(product(values[ConjMap], values[ConjMetric]), p.Head))
	b := make([]float64, dx)
	phi := make([]float64, n*dx)
	for i := range n {
		var norm float64
		for j := range dx {
			norm += math.Pow(float64(features.F32()[i*dx+j]-values[ConjCentre].F32()[j]), 2)
		}
		for j := range dx {
			phi[i*dx+j] = float64(features.F32()[i*dx+j]-values[ConjCentre].F32()[j]) / math.Sqrt(1+norm/4)
		}
	}
	for range shiftTurns {
		b = p.step(phi, b, func(i int) []float64 {
			z, sum := make([]float64, classes), 0.0
			for c := range z {
				z[c] = float64(p.Bias.F32()[c])
				for j := range k {
					z[c] += float64(rows[i*k+j]) * float64(p.Head.F32()[j*classes+c])
				}
				for j, v := range b {
					z[c] -= v * slope[j*classes+c]
				}
				z[c] = math.Exp(z[c])
				sum += z[c]
			}
			for c := range z {
				z[c] /= sum
			}
			return z
		})
	}
	close("shift", float64s(got[ShiftOutput]), b)

	adapted := must.Get(Adapted(m, got[ShiftOutput]))(t)
	want, vr := float64s(onnx.NewTensor(rows, n, k)),
		float64s(product(values[ConjMap], values[ConjMetric]))
	for i := range want {
		for j, v := range b {
			want[i] -= v * vr[j*k+i%k]
		}
	}
	after := evalPure(t, adapted, feeds)
	close("shifted coordinates", float64s(after[ConjCoordinates]), want)
	close("shift where one is fed", float64s(after[ShiftOutput]), b)
	must.Fail(WithShift(onnx.NewModel(&onnx.Graph{Name: "other"}), p))(t, "",
		"a graph without coordinates takes a shift")
	must.Fail(Adapted(coordinates, got[ShiftOutput]))(t, "", "a graph without a shift is adapted")
}

// step is a step of expectation and maximization in float64, given the probabilities of image i.
func (p ShiftParts) step(phi, b []float64, of func(i int) []float64) []float64 {
	dx, r, n := len(b), p.Variance.Len(), len(phi)/len(b)
	s, sum := float64s(p.Shares), make([]float64, p.Shares.Len())
	var all, f float64
	for _, v := range s {
		all += v
	}
	d := make([]float64, dx)
	for i := range n {
		for c, v := range of(i) {
			sum[c] += v
		}
		for j := range d {
			d[j] += phi[i*dx+j] / float64(n)
		}
	}
	for c, v := range sum {
		want := float64(n) * s[c] / all
		f += (v - want) * (v - want) / want / float64(len(s)-1)
	}
	a := all
	if f > 1 {
		a = min(all, max(float64(n)-f, 0)/(f-1))
	}
	for c, v := range sum {
		for j := range d {
			d[j] -= (v + a*s[c]/all) / (float64(n) + a) * float64(p.Means.F32()[c*dx+j])
		}
	}
	once, out, rest := 1/float64(n), make([]float64, dx), append([]float64(nil), d...)
	for l := range r {
		var in float64
		for j, v := range d {
			in += v * float64(p.To.F32()[j*r+l])
		}
		v := float64(p.Variance.F32()[l])
		for j := range d {
			out[j] += v / (v + once) * in * float64(p.Back.F32()[l*dx+j])
			rest[j] -= in * float64(p.Back.F32()[l*dx+j])
		}
	}
	var square float64
	for _, v := range rest {
		square += v * v
	}
	if p.Trace > 0 {
		noise := once
		if p.Rest == 0 {
			noise *= max(1, f)
		}
		u := max(float64(p.Rest), square/float64(p.Trace)-noise)
		for j, v := range rest {
			out[j] += u / (u + noise) * v
		}
	}
	return out
}

func float64s(x *onnx.Tensor) []float64 {
	out := make([]float64, x.Len())
	for i, v := range x.F32() {
		out[i] = float64(v)
	}
	return out
}
