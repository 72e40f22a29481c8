package kernel

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"

	"fmp/onnx"
	"fmp/onnx/must"
	"fmp/onnx/op"
)

// summed is Einsum by its definition: a loop over all letters.
func summed(t *testing.T, equation string, in []*onnx.Tensor) (out []float64) {
	t.Helper()
	c := NewCall(&Env{Pool: &Pool{}, Threads: 1}, len(in), 1)
	copy(c.In, in)
	terms, result, err := op.EinsumTerms(equation)
	must.Do(t, err)
	terms, result = einsumSpec{terms, result}.expand(c)
	size, letters, n, made := letterSizes(c, terms), result, 1, 1
	for _, r := range strings.Join(terms, "") {
		if !strings.ContainsRune(letters, r) {
			letters += string(r)
		}
	}
	for i, r := range letters {
		if n *= size[r]; i < len(result) {
			made *= size[r]
		}
	}
	out = make([]float64, made)
	for p := range n {
		at, rest := map[rune]int{}, p
		for i := len(letters) - 1; i >= 0; i-- {
			r := rune(letters[i])
			at[r], rest = rest%size[r], rest/size[r]
		}
		v := 1.0
		for i, term := range terms {
			off := 0
			for k, r := range term {
				off = off*in[i].Shape[k] + at[r]%in[i].Shape[k]
			}
			v *= in[i].At(off)
		}
		out[p/(n/made)] += v
	}
	return out
}

// TestEinsum: all kinds of equations give the sums of their definition, and the memory of a run but
// for its result goes back to the pool.
func TestEinsum(t *testing.T) {
	r := rand.New(rand.NewPCG(9, 1))
	for _, c := range []struct {
		equation string
		shapes   [][]int
	}{
		{"hid,hjd->hij", [][]int{{3, 7, 9}, {3, 8, 9}}},
		{"bqhd,bkhd->bhqk", [][]int{{2, 5, 3, 7}, {2, 6, 3, 7}}},
		{"bhqk,bkhd->bqhd", [][]int{{2, 3, 5, 6}, {2, 6, 3, 7}}},
		{"ij,jk,kl->il", [][]int{{5, 6}, {6, 7}, {7, 8}}},
		{"ij,jk,kl->li", [][]int{{9, 6}, {6, 9}, {9, 8}}},
		{"ij,ij->ij", [][]int{{5, 6}, {5, 6}}}, {"ij,ij->", [][]int{{9, 9}, {9, 9}}},
		{"ij,ij->ij", [][]int{{5, 1}, {1, 6}}}, {"ij,jk", [][]int{{5, 1}, {8, 9}}},
		{"i,j,k->ijk", [][]int{{5}, {6}, {7}}}, {"ai,bi,ci->abc", [][]int{{2, 9}, {9, 9}, {9, 9}}},
		{"ai,bi,ci->", [][]int{{2, 9}, {9, 9}, {9, 9}}}, {"a,a,a,a,a,a,a,a,a,a,a->a", [][]int{{3}}},
		{"ii->i", [][]int{{5, 5}}}, {"ii,ij->j", [][]int{{9, 9}, {9, 8}}}, {"ii->", [][]int{{1, 5}}},
		{"iij,jk->k", [][]int{{3, 3, 8}, {8, 8}}}, {"ij->ji", [][]int{{5, 6}}}, {"ij->", [][]int{{5, 6}}},
		{"...ij,...jk->...ik", [][]int{{2, 1, 5, 6}, {3, 6, 7}}}, {"...,...", [][]int{{2, 3}, {3}}},
		{"ij,jk,kl->ilj", [][]int{{12, 9}, {9, 3}, {3, 4}}}, {",i->i", [][]int{{}, {3}}},
		{"ik,jk,lk,mk->ijlm", [][]int{{2, 9}, {3, 9}, {2, 9}, {3, 9}}},
	} {
		for _, d := range []onnx.DType{onnx.Float32, onnx.Float64, onnx.Int64, onnx.Uint64, onnx.Int32} {
			var in []*onnx.Tensor
			for i := range strings.Count(c.equation, ",") + 1 {
				x := must.Get(onnx.Zeros(d, c.shapes[i%len(c.shapes)]...))(t)
				drawn := make([]float64, x.Len())
				for k := range drawn {
					drawn[k] = float64(r.IntN(4))
				}
				castInto(x, onnx.NewTensor(drawn, x.Shape...))
				in = append(in, x)
			}
			env := &Env{Pool: &Pool{}, Threads: 2}
			got := evaluatedIn(t, env, &onnx.Node{Op: "Einsum",
				Attrs: []onnx.Attr{onnx.StrAttr("equation", c.equation)}}, nil, in...)
			want := summed(t, c.equation, in)
			if got.Len() != len(want) {
				t.Fatalf("%s of %v: %v", c.equation, c.shapes, got)
			}
			for k, v := range want {
				if got.At(k) != v {
					t.Fatalf("%s of %v, %v: element %d is %v; want %v", c.equation, c.shapes, d, k, got.At(k), v)
				}
			}
			if live := env.Pool.live; live != bufferBytes(got.Data) {
				t.Errorf("%s, %v: %d bytes are handed out; the result has %d", c.equation, d, live,
					bufferBytes(got.Data))
			}
		}
	}
}

// TestEinsumOfNothing: an axis of size 0 makes sums of nothing, which are 0.
func TestEinsumOfNothing(t *testing.T) {
	got := evaluated(t, 1, &onnx.Node{Op: "Einsum", Attrs: []onnx.Attr{onnx.StrAttr("equation", "ij,jk")}}, nil,
		onnx.ZerosF32(2, 0), onnx.ZerosF32(1, 3))
	if fmt.Sprint(got.Shape, got.Data) != "[2 3] [0 0 0 0 0 0]" {
		t.Error(got)
	}
}

// TestEinsumInPairs: a product of many operands takes the work of its pairs, so that no part of it
// is long enough for a look whether the run is to end.
func TestEinsumInPairs(t *testing.T) {
	x := onnx.ZerosF32(128, 128)
	for _, equation := range []string{"ij,jk,kl->il", "ij,jk,kl,lm->mi", "ij,kl,mn->", "ij,jk,ki->"} {
		env := &Env{Pool: &Pool{}, Threads: 1, Stopped: func() error { return errors.New("much work") }}
		in := []*onnx.Tensor{x, x, x, x}[:strings.Count(equation, ",")+1]
		evaluatedIn(t, env, &onnx.Node{Op: "Einsum", Attrs: []onnx.Attr{onnx.StrAttr("equation", equation)}}, nil, in...)
	}
}

// BenchmarkEinsum measures scores of attention beside the same product by MatMul.
func BenchmarkEinsum(b *testing.B) {
	q, k, kt := onnx.ZerosF32(8, 512, 64), onnx.ZerosF32(8, 512, 64), onnx.ZerosF32(8, 64, 512)
	for name, c := range map[string]struct {
		in     []*onnx.Tensor
		kernel Kernel
	}{
		"MatMul": {[]*onnx.Tensor{q, kt}, matMulFloat[float32](nil, &lines{})},
		"Einsum": {[]*onnx.Tensor{q, k}, einsum(einsumSpec{[]string{"hid", "hjd"}, "hij"},
			matMulFloat[float32](nil, &lines{}), sumOver[float32])},
	} {
		b.Run(name, func(b *testing.B) {
			call := NewCall(&Env{Pool: &Pool{}, Threads: 1}, 2, 1)
			for b.Loop() {
				call.Reset()
				copy(call.In, c.in)
				must.Do(b, call.Do(c.kernel))
				call.env.Pool.Put(call.Out[0].Data)
			}
		})
	}
}
