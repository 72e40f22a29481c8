package models

import (
	"math"
	"testing"

	"fmp/models/rng"
	"fmp/onnx"
)

// TestWithShift: estimated_shift is that of expectation and maximization in float64, of images half of which are of one class; coordinates
// are those of features less what is fed, by default of features as they are; another graph is refused.
func TestWithShift(t *testing.T) {
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
	whole, err := NewConjugate(ConjugateConfig{Dx: dx, C: classes, K: k}, values)
	if err != nil {
		t.Fatal(err)
	}
	coordinates, err := ConjugatePart(whole, ConjCoordinates)
	if err != nil {
		t.Fatal(err)
	}
	p := ShiftParts{To: normal(1, dx, r), Back: normal(1, r, dx), Means: normal(1, classes, r), Variance: onnx.Vector[float32](2, 0.1),
		Head: normal(1, k, classes), Bias: normal(1, classes)}
	m, err := WithShift(coordinates, p)
	if err != nil {
		t.Fatal(err)
	}
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
	for range shiftTurns {
		diff := make([]float64, r) // mean of phi To - p Means
		for i := range n {
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
			var norm float64
			for j := range dx {
				norm += math.Pow(float64(features.F32()[i*dx+j]-values[ConjCentre].F32()[j]), 2)
			}
			for l := range r {
				for j := range dx {
					phi := float64(features.F32()[i*dx+j]-values[ConjCentre].F32()[j]) / math.Sqrt(1+norm/4)
					diff[l] += phi * float64(p.To.F32()[j*r+l]) / n
				}
				for c := range z {
					diff[l] -= z[c] / sum * float64(p.Means.F32()[c*r+l]) / n
				}
			}
		}
		b = make([]float64, dx)
		for l, v := range diff {
			t := float64(p.Variance.F32()[l])
			for j := range b {
				b[j] += v * t / (t + 1./n) * float64(p.Back.F32()[l*dx+j])
			}
		}
	}
	close("shift", float64s(got[ShiftOutput]), b)

	adapted, err := Adapted(m, got[ShiftOutput])
	if err != nil {
		t.Fatal(err)
	}
	want, vr := float64s(onnx.NewTensor(rows, n, k)), float64s(product(values[ConjMap], values[ConjMetric]))
	for i := range want {
		for j, v := range b {
			want[i] -= v * vr[j*k+i%k]
		}
	}
	after := evalPure(t, adapted, feeds)
	close("shifted coordinates", float64s(after[ConjCoordinates]), want)
	close("shift where one is fed", float64s(after[ShiftOutput]), b)
	if _, err := WithShift(onnx.NewModel(&onnx.Graph{Name: "other"}), p); err == nil {
		t.Error("a graph without coordinates takes a shift")
	}
	if _, err := Adapted(coordinates, got[ShiftOutput]); err == nil {
		t.Error("a graph without a shift is adapted")
	}
}

func float64s(x *onnx.Tensor) []float64 {
	out := make([]float64, x.Len())
	for i, v := range x.F32() {
		out[i] = float64(v)
	}
	return out
}
