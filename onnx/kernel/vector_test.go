package kernel

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"fmp/onnx"
)

// odd is n random numbers, some of which are infinite, NaN, or zeros of either sign.
func odd(r *rand.Rand, n int) []float32 {
	v := make([]float32, n)
	for i := range v {
		v[i] = float32(r.NormFloat64())
		if r.IntN(9) == 0 {
			v[i] = []float32{float32(math.Inf(1)), float32(math.Inf(-1)), float32(math.NaN()), 0, float32(math.Copysign(0, -1))}[r.IntN(5)]
		}
	}
	return v
}

func same(a, b []float32) bool {
	return slices.EqualFunc(a, b, func(a, b float32) bool { return a == b || a != a && b != b })
}

// The loops are those in Go, on odd numbers as well, and write nothing else.
func TestVectors(t *testing.T) {
	r := rand.New(rand.NewPCG(9, 10))
	for range 200 {
		n := 1 + r.IntN(70)
		src := odd(r, n)
		got, want := odd(r, n+9), make([]float32, n)
		rest := slices.Clone(got[n:])
		lo := float32(r.NormFloat64())
		hi := lo + float32(r.ExpFloat64())
		scale, shift := float32(r.NormFloat64()), float32(r.NormFloat64())
		limit(got[:n], src, scale, shift, lo, hi)
		if limitGo(want, src, scale, shift, lo, hi); !same(got[:n], want) || !same(got[n:], rest) {
			t.Fatalf("limit of %v: %v, want %v", src, got, want)
		}

		even, ones, e, o := odd(r, (n+1)/2), odd(r, n/2), make([]float32, (n+1)/2), make([]float32, n/2)
		deinterleave(even, ones, src)
		if deinterleaveGo(e, o, src); !same(even, e) || !same(ones, o) {
			t.Fatalf("deinterleave of %v: %v and %v", src, even, ones)
		}

		n = tapRun * (1 + r.IntN(3))
		offsets, weights := make([]int, 1+r.IntN(9)), make([]float32, 9)
		for i := range offsets {
			offsets[i], weights[i] = r.IntN(40), float32(r.NormFloat64())
		}
		src, got, want = odd(r, n+40), make([]float32, n), make([]float32, n)
		tapMaxima(got, src, offsets)
		if tapMaximaGo(want, src, offsets); !same(got, want) {
			t.Fatalf("largest of %v at %v: %v, want %v", src, offsets, got, want)
		}
		tapSums(got, src, offsets, weights[:len(offsets)], lo)
		tapSumsGo(want, src, offsets, weights[:len(offsets)], lo)
		for i := range got {
			if !same(got[i:i+1], want[i:i+1]) && !(math.Abs(float64(got[i]-want[i])) <= 1e-5) {
				t.Fatalf("sums of %v at %v times %v: %v, want %v", src, offsets, weights, got, want)
			}
		}
	}
}

// Pooling by runs is pooling window by window, which float64 goes by; where a window holds NaN, both say so.
func TestPoolsOfRuns(t *testing.T) {
	r := rand.New(rand.NewPCG(11, 12))
	done := map[string]int{}
	for i := range 300 {
		op := []string{"MaxPool", "AveragePool"}[i%2]
		in := []int{1 + r.IntN(3), 1 + r.IntN(4), 1 + r.IntN(20), 1 + r.IntN(40)}[:3+r.IntN(2)]
		k := len(in) - 2
		values := func(low, n int) []int {
			v := make([]int, k)
			for i := range v {
				v[i] = low + r.IntN(n)
			}
			return v
		}
		attrs := []onnx.Attr{onnx.IntsAttr("kernel_shape", values(1, 4)...), onnx.IntsAttr("strides", values(1, 3)...)}
		if op == "MaxPool" {
			attrs = append(attrs, onnx.IntsAttr("dilations", values(1, 2)...), onnx.IntsAttr("pads", append(values(0, 2), values(0, 2)...)...))
		}
		x := onnx.ZerosF32(in...)
		for i := range x.F32() {
			x.F32()[i] = float32(r.NormFloat64())
			if r.IntN(50) == 0 && op == "MaxPool" {
				x.F32()[i] = float32(math.NaN())
			}
		}
		run := func(x *onnx.Tensor) (*onnx.Tensor, error) {
			n := &onnx.Node{Op: op, Inputs: []string{"x"}, Outputs: []string{"y"}, Attrs: attrs}
			s := &Spec{Node: n, Opset: 19, In: []onnx.DType{x.DType}, Const: make([]*onnx.Tensor, 1)}
			kernel, err := Prepare(s)
			if err != nil {
				t.Fatal(err)
			}
			c := NewCall(&Env{Pool: &Pool{}, Threads: 2}, 1, 1)
			c.Want[0], c.In[0] = true, x
			err = c.Do(kernel)
			return c.Out[0], err
		}
		got, err := run(x)
		slow, failed := run(converted(x, onnx.Float64))
		if fmt.Sprint(err) != fmt.Sprint(failed) {
			t.Fatalf("%s of %v, %v: %v, want %v", op, in, attrs, err, failed)
		}
		if err != nil {
			continue
		}
		done[op]++
		for i, v := range got.F32() {
			want := slow.F64()[i]
			if !(math.Abs(float64(v)-want) <= 1e-6) && (v == v || want == want) {
				t.Fatalf("%s of %v, %v: element %d is %v, want %v", op, in, attrs, i, v, want)
			}
		}
	}
	if done["MaxPool"] < 50 || done["AveragePool"] < 50 {
		t.Errorf("done were %v", done)
	}
}
