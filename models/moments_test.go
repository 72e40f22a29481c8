package models

import (
	"fmt"
	"math"
	"testing"

	"fmp/onnx"
	"fmp/onnx/build"
	"fmp/onnx/engine"
	"fmp/onnx/engine/pure"
	"fmp/onnx/must"
)

// TestMomentsEmbedding: class means of the signed Hellinger map, which is of length 1, with and
// without a basis, and zeros of features that are zero.
func TestMomentsEmbedding(t *testing.T) {
	const dx, c = 3, 2
	basis := onnx.NewTensor([]float32{1, 0, 0, 0.6, 0, 0.8}, dx, 2)
	rows := [][]float32{{4, 0, 5}, {-1, 3, 0}, {0, 0, 0}, {9, 9, 9}}
	labels := []int{0, 1, 1, 0}
	weights := []float32{1, 1, 1, 0} // the last is absent
	for _, b := range []*onnx.Tensor{nil, basis} {
		m := must.Get(MomentsEmbedding(MomentsConfig{Dx: dx, C: c, Basis: b, Bytes: 1000, Kappa: 3,
			KappaDeviation: 0.2}))(t)
		f := must.Get(ReadManifest(m))(t)
		k := f.PointWidth()
		if (b == nil) != (k == dx) || f.Bytes != 1000 || f.Kappa != 3 ||
			f.KappaDeviation != 0.2 || !f.ClassMeans {
			t.Fatalf("manifest %+v", f)
		}
		if got, err := BasisOf(m, f); err != nil || (got == nil) != (b == nil) {
			t.Fatalf("basis %v, %v", got, err)
		}
		g := must.Get(MomentsCoordinates(dx, b, []float32{1, 2, 3}, []float32{2, 4, 5}))(t)
		set, mean := make([]float32, 0, 20), make([]float64, c*k)
		for i, h := range rows {
			set = append(set, h...)
			y := []float32{0, 0}
			y[labels[i]] = 1
			set = append(set, y...)
			sum := math.Abs(float64(h[0])) + math.Abs(float64(h[1])) + math.Abs(float64(h[2]))
			phi := make([]float64, dx)
			for j, v := range h {
				if v != 0 {
					phi[j] = math.Copysign(math.Sqrt(math.Abs(float64(v))/sum), float64(v))
				}
			}
			if b != nil {
				v := b.F32()
				p := []float64{0, 0}
				for j := range phi {
					p[0] += phi[j] * float64(v[2*j])
					p[1] += phi[j] * float64(v[2*j+1])
				}
				phi = p
			}
			standardised := []float32{(h[0] - 1) / 2, (h[1] - 2) / 4, (h[2] - 3) / 5}
			got := eval(t, g, map[string]*onnx.Tensor{"features": onnx.NewTensor(standardised, 1,
				dx)})["coordinates"].F32()
			for j, v := range phi {
				if math.Abs(v-float64(got[j])) > 1e-6 {
					t.Errorf("coordinate %d of %v is %v, want %v", j, h, got[j], v)
				}
				// one row of class 0 that is there, two of class 1
				mean[labels[i]*k+j] += v * float64(weights[i]) / float64(labels[i]+1)
			}
		}
		out := eval(t, m, map[string]*onnx.Tensor{"points": onnx.NewTensor(set, 1, len(rows), dx+c),
			"weights": onnx.NewTensor(weights, 1, len(rows))})
		z, mass := out[ConjCompressed].F32(), out[ConjMasses].F32()
		if mass[0] != 1 || mass[1] != 2 {
			t.Errorf("masses %v, want 1 and 2", mass)
		}
		for y := range c {
			for j := range k {
				if math.Abs(float64(z[y*(k+c)+j])-mean[y*k+j]) > 1e-6 {
					t.Errorf("class %d: mean %v, want %v", y, z[y*(k+c):][:k], mean[y*k:][:k])
				}
			}
		}
	}
}

// TestLastLayer: weights come as [classes, dx], whichever way the layer holds them, and as the
// numbers that it reads where the file stores others.
func TestLastLayer(t *testing.T) {
	eng := must.Get(pure.New(engine.Options{Threads: 1}))(t)
	w := onnx.NewTensor([]float32{1, 2, 3, 4, 5, 6}, 2, 3)
	flipped := onnx.NewTensor([]float32{1, 4, 2, 5, 3, 6}, 3, 2)
	for name, layer := range map[string]func(b *build.Builder, h build.Ref) build.Ref{
		"MatMul": func(b *build.Builder, h build.Ref) build.Ref { return b.MatMul(h, b.Const(w)) },
		"Gemm": func(b *build.Builder, h build.Ref) build.Ref {
			return b.Op("Gemm", []build.Ref{h, b.Const(flipped)}, onnx.IntAttr("transB", 1))
		},
		"float16": func(b *build.Builder, h build.Ref) build.Ref {
			return b.MatMul(h, b.Cast(b.Const(w), onnx.Float16))
		},
		"bytes": func(b *build.Builder, h build.Ref) build.Ref {
			return b.MatMul(h, b.Transpose(b.Op("DequantizeLinear", []build.Ref{
				b.Const(onnx.NewTensor([]int8{1, 7, 3, 9, 5, 11}, 3, 2)), b.Const(onnx.Scalar[float32](.5)),
				b.Const(onnx.Scalar[int8](-1))}), 1, 0))
		},
	} {
		b := build.New("net")
		h := b.Relu(b.Input("x", onnx.Float32, "n", 2))
		if name == "float16" {
			h = b.Cast(h, onnx.Float16)
		}
		b.Output("y", layer(b, h))
		m := must.Get(b.Model())(t)
		features := string(h)
		got := LastLayer(eng, m, features, 2)
		if got == nil || fmt.Sprint(got.Shape, got.F32()) != "[3 2] [1 4 2 5 3 6]" {
			t.Errorf("%s: %v", name, got)
		}
		if LastLayer(eng, m, "x", 2) != nil || LastLayer(eng, m, features, 3) != nil {
			t.Errorf("%s: a layer of another value is taken", name)
		}
	}
}

func TestMomentsRefused(t *testing.T) {
	wide := onnx.NewTensor(make([]float32, 9), 3, 3)
	for name, c := range map[string]MomentsConfig{
		"3 features and 1": {Dx: 3, C: 1, Bytes: 1}, "basis": {Dx: 3, C: 2, Bytes: 1, Basis: wide},
		"0 bytes": {Dx: 3, C: 2},
	} {
		must.Fail(MomentsEmbedding(c))(t, name)
	}
	must.Fail((Manifest{Kappa: 3}).Write(&onnx.Model{}))(t, "",
		"kappa without its deviation is written")
}
