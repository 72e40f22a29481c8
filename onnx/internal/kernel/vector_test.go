package kernel

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"fmp/onnx"
	"fmp/onnx/must"
)

// odd is n random numbers, some of which are infinite, NaN, or zeros of either sign.
func odd(r *rand.Rand, n int) []float32 {
	v := make([]float32, n)
	for i := range v {
		v[i] = float32(r.NormFloat64())
		if r.IntN(9) == 0 {
			v[i] = []float32{float32(math.Inf(1)), float32(math.Inf(-1)), float32(math.NaN()), 0,
				float32(math.Copysign(0, -1))}[r.IntN(5)]
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

		lines, apart, from := 1+r.IntN(4), n+r.IntN(3), 2*n+r.IntN(3)
		even, ones, src2 := odd(r, lines*apart), odd(r, lines*apart), odd(r, lines*from)
		e, o := slices.Clone(even), slices.Clone(ones)
		done := deinterleave(lines, n, even, ones, apart, src2, from)
		for y := range lines {
			deinterleaveGo(e[y*apart:][:done], o[y*apart:][:done], src2[y*from:])
		}
		if !same(even, e) || !same(ones, o) || vectorMath() && n >= 4 && done != n {
			t.Fatalf("%d of %d, in %d lines: %v and %v, want %v and %v", done, n, lines, even, ones, e, o)
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
		tapSums(got, src, offsets, weights[:len(offsets)], lo, false)
		tapSumsGo(want, src, offsets, weights[:len(offsets)], lo)
		for i := range got {
			if !same(got[i:i+1], want[i:i+1]) && !(math.Abs(float64(got[i]-want[i])) <= 1e-5) {
				t.Fatalf("sums of %v at %v times %v: %v, want %v", src, offsets, weights, got, want)
			}
		}
	}
}

// Pooling by runs is pooling window by window, which float64 goes by; where a window holds NaN,
// both say so.
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
		attrs := []onnx.Attr{onnx.IntsAttr("kernel_shape", values(1, 4)...),
			onnx.IntsAttr("strides", values(1, 3)...)}
		if op == "MaxPool" {
			attrs = append(attrs, onnx.IntsAttr("dilations", values(1, 2)...),
				onnx.IntsAttr("pads", append(values(0, 2), values(0, 2)...)...))
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
			kernel := must.Get(Prepare(s))(t)
			c := NewCall(&Env{Pool: &Pool{}, Threads: 2}, 1, 1)
			c.Want[0], c.In[0] = true, x
			err := c.Do(kernel)
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

// Sums, differences, products and quotients are those of the loops in Go, to the bit, of numbers
// and of one repeated number.
func TestPairs(t *testing.T) {
	r := rand.New(rand.NewPCG(13, 14))
	for op, row := range map[operation]func(dst, a, b []float32){sums: addRow[float32], differences: subRow[float32],
		products: mulRow[float32], quotients: divRow[float32]} {
		for i := range 60 {
			n := 1 + r.IntN(50)
			a, b := odd(r, n), odd(r, n)
			switch i % 3 {
			case 1:
				a = a[:1]
			case 2:
				b = b[:1]
			}
			got, want := make([]float32, n), make([]float32, n)
			vectors(op, row)(got, a, b)
			if row(want, a, b); !same(got, want) {
				t.Fatalf("operation %d of %v and %v: %v, want %v", op, a, b, got, want)
			}
		}
	}
}

// Functions in float32 are those of package math within 4e-7 of themselves, wherever a number lies;
// so is the sum of a softmax 1.
func TestVectorMath(t *testing.T) {
	if !vectorMath() {
		t.Skip("this processor has no vectors for them")
	}
	inf, nan := math.Inf(1), math.NaN()
	x := []float32{float32(inf), float32(-inf), float32(nan), 0, 1e-30, -1e-30, 88.7, 89.5, 1e9, -87,
		-95, -103, -104.5, -1e9, 3.9, 3.95, -4}
	r := rand.New(rand.NewPCG(15, 16))
	for range 20_000 {
		x = append(x, float32(r.NormFloat64()*math.Exp(3*r.NormFloat64())))
	}
	for name, f := range map[string]struct {
		row  func(dst, x []float32)
		want func(float64) float64
	}{"exp": {expRow, math.Exp}, "erf": {erfRow, math.Erf}, "tanh": {tanhRow, math.Tanh},
		"sigmoid": {sigmoidRow, sigmoid}} {
		got := make([]float32, len(x))
		f.row(got, x)
		for i, v := range x {
			want := f.want(float64(v))
			if single := float32(want); got[i] != single && (got[i] == got[i] || want == want) &&
				!(math.Abs(float64(got[i])-want) <= 4e-7*math.Abs(want)+1.2e-38) {
				t.Errorf("%s of %v is %v, want %v", name, v, got[i], want)
			}
			one := make([]float32, 1+i%9)
			if f.row(one[i%9:], x[i:i+1]); !same(one[i%9:], got[i:i+1]) {
				t.Errorf("%s of %v alone is %v, beside others %v", name, v, one[i%9:], got[i])
			}
		}
	}
	for range 200 {
		v := make([]float32, 1+r.IntN(60))
		wide := make([]float64, len(v))
		for i := range v {
			v[i] = float32(20 * r.NormFloat64())
			if len(v) > 1 && r.IntN(5) == 0 && i > 0 {
				v[i] = float32(-inf)
			}
			wide[i] = float64(v[i])
		}
		got := make([]float32, len(v))
		softmaxRows(got, v, len(v))
		softmax(wide, exponents)
		for i, want := range wide {
			// differences from the largest are rounded
			if !(math.Abs(float64(got[i])-want) <= 1e-5*want+1.5e-45) {
				t.Fatalf("softmax of %v: %v, want %v", v, got, wide)
			}
		}
	}
}

// Tiles are for planes that have enough of them, or few weights, and whose lines are not too long
// to be in work at once.
func TestWinogradSuits(t *testing.T) {
	small, large := &winograd{rows: 64, cols: 64}, &winograd{rows: 512, cols: 512}
	for _, c := range []struct {
		g          *winograd
		high, wide int
		want       bool
	}{{nil, 56, 56, false}, {small, 4, 4, true}, {large, 7, 7, false}, {large, 14, 14, true},
		{small, 2, 2000, true}, {small, 2, 1 << 20,
			false}, {large, 512, 512, false}} {
		if got := c.g.suits([]int{c.high, c.wide}); got != c.want {
			t.Errorf("%+v on %d x %d: %v", c.g, c.high, c.wide, got)
		}
	}
}

// Products by a number for each row have the bits of those by broadcasting, whichever operand has
// the rows, and others are left to those.
func TestScaledRows(t *testing.T) {
	r := rand.New(rand.NewPCG(33, 34))
	random := func(shape []int) *onnx.Tensor { return onnx.NewTensor(odd(r, product(shape)), shape...) }
	plain := binaryOf(mulRow[float32])
	for _, shapes := range [][2][]int{{{2, 3, 7, 7}, {2, 3, 1, 1}}, {{1, 5, 1, 1}, {1, 5, 4, 9}},
		{{3, 4, 40}, {3, 1, 1}},
		{{3, 4, 5}, {1, 4, 1}}, {{3, 4, 5}, {4, 1}}, {{3, 4, 5}, {3, 4, 5}}, {{2, 0, 3}, {2, 0, 1}},
		{{3, 1, 1}, {3, 4, 2}}} {
		one, two := random(shapes[0]), random(shapes[1])
		product := func(k Kernel) *onnx.Tensor {
			c := NewCall(&Env{Pool: &Pool{}, Threads: 1}, 2, 1)
			c.Want[0] = true
			copy(c.In, []*onnx.Tensor{one, two})
			must.Do(t, c.Do(k))
			return c.Out[0]
		}
		got, want := product(scaled32(plain)), product(plain)
		if !slices.Equal(got.Shape, want.Shape) || !same(got.F32(), want.F32()) {
			t.Errorf("%v by %v: %v, want %v", shapes[0], shapes[1], got, want)
		}
	}
}
