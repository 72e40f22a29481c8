package kernel

import (
	"math"
	"math/rand/v2"
	"testing"

	"fmp/onnx"
	"fmp/onnx/must"
)

// TestToBytes: bytes are those of the equation, in float32 for the ratio and exact from there, for
// halves, numbers without a fraction and infinite ones, one scale or one a channel; NaN is left to
// the general way. What bytes stand for is the exact product, rounded once.
func TestToBytes(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	shape := []int{2, 3, 300}
	x := onnx.ZerosF32(shape...)
	for i := range x.F32() {
		x.F32()[i] = float32(r.NormFloat64() * math.Exp(8*r.NormFloat64()))
		if i%3 == 0 {
			x.F32()[i] = float32(r.IntN(1000)-500) / 2
		}
	}
	copy(x.F32(), []float32{float32(math.Inf(1)), float32(math.Inf(-1)), 0, float32(math.Copysign(0, -1)),
		math.MaxFloat32, -math.MaxFloat32, 1 << 23, 1<<23 + 1})
	for _, d := range []onnx.DType{onnx.Uint8, onnx.Int8} {
		for _, scales := range [][]float32{{1}, {0.5}, {1e-3}, {0.0625, 3, 1e-38}} {
			scale := onnx.Vector(scales...)
			if len(scales) == 1 {
				scale = onnx.Scalar(scales[0])
			}
			zero := func(k int) float64 { return float64(7*k + 5) }
			lo, hi := limits(d)
			out := zerosOf(t, d, shape...)
			q := quantization{axis: 1}
			if !q.toBytes(out, x, scale, zero) {
				t.Fatal("float32 is not taken")
			}
			back := make([]float32, out.Len())
			if !q.fromBytes(back, out, scale, zero) {
				t.Fatal("bytes are not taken")
			}
			for i, v := range x.F32() {
				k := i / 300 % 3 % len(scales)
				want := min(max(math.RoundToEven(float64(v/scales[k]))+zero(k), lo), hi)
				if got := out.At(i); got != want {
					t.Fatalf("%v of %v by %v is %v, want %v", d, v, scales[k], got, want)
				}
				if want := float32((want - zero(k)) * float64(scales[k])); back[i] != want {
					t.Fatalf("%v of %v is %v, want %v", d, out.At(i), back[i], want)
				}
			}
			x := onnx.NewTensor([]float32{float32(math.NaN())}, 1, 1)
			if q.toBytes(zerosOf(t, d, 1, 1), x, onnx.Scalar(scales[0]), zero) {
				t.Error("NaN is taken")
			}
		}
	}
}

func zerosOf(t *testing.T, d onnx.DType, shape ...int) *onnx.Tensor {
	t.Helper()
	return must.Get(onnx.Zeros(d, shape...))(t)
}
