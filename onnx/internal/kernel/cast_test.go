package kernel

import (
	"runtime/metrics"
	"slices"
	"strings"
	"testing"

	"fmp/onnx"
	"fmp/onnx/must"
)

// TestCastsInBlocks: conversions give every element the same, wherever in a block it lies, and take
// no memory in proportion to the tensor: no allocation is over 32 KiB.
func TestCastsInBlocks(t *testing.T) {
	large := func() uint64 {
		s := []metrics.Sample{{Name: "/gc/heap/allocs-by-size:bytes"}}
		metrics.Read(s)
		counts := s[0].Value.Float64Histogram().Counts
		return counts[len(counts)-1]
	}
	for _, c := range [][2]onnx.DType{
		{onnx.Uint8, onnx.Int64}, {onnx.Uint8, onnx.Float32}, {onnx.Int8, onnx.Float64}, {onnx.Int16, onnx.Int32},
		{onnx.Int32, onnx.Float16}, {onnx.Uint16, onnx.BFloat16}, {onnx.Uint32, onnx.Float32}, {onnx.Bool, onnx.Float32},
		{onnx.Float16, onnx.Float64}, {onnx.Float32, onnx.Float16}, {onnx.Float32, onnx.Int8}, {onnx.Float32, onnx.Int4},
		{onnx.Float8E4M3FN, onnx.Float32}, {onnx.Float64, onnx.Float8E5M2},
	} {
		const n = 3*castBlock + 5
		in, out := must.Get(onnx.Zeros(c[0], n))(t), must.Get(onnx.Zeros(c[1], n))(t)
		counted := func(i int) float64 { return float64(i % 7) }
		castEach(in, counted)
		before := large()
		castInto(out, in)
		castEach(in, counted)
		if got := large() - before; got > 0 {
			t.Errorf("%v to %v: %d allocations are over 32 KiB", c[0], c[1], got)
		}
		for i := range n {
			want := float64(i % 7)
			if c[0] == onnx.Bool {
				want = min(want, 1)
			}
			if got := out.At(i); got != want {
				t.Fatalf("%v to %v: element %d is %v, want %v", c[0], c[1], i, got, want)
			}
		}
	}
}

// TestWideCopiesCount: copies in wider types are memory of the run, within its limit.
func TestWideCopiesCount(t *testing.T) {
	bytes, square := must.Get(onnx.Zeros(onnx.Int8, 1<<16))(t), must.Get(onnx.Zeros(onnx.Int8, 1<<8, 1<<8))(t)
	scale, zero := onnx.Scalar[float32](1), onnx.Scalar[int8](0)
	flags := must.Get(onnx.Zeros(onnx.Bool, 1<<16))(t)
	for _, c := range []struct {
		name  string
		n     *onnx.Node
		in    []*onnx.Tensor
		holds int64 // bytes that the run is to need, at least
	}{
		{"a product", &onnx.Node{Op: "MatMulInteger"}, []*onnx.Tensor{square, square}, 3 << 19},
		{"a quantised product", &onnx.Node{Op: "QLinearMatMul"},
			[]*onnx.Tensor{square, scale, zero, square, scale, zero, scale, zero}, 3 << 19},
		{"flags as floats of a byte", &onnx.Node{Op: "Cast",
			Attrs: []onnx.Attr{onnx.IntAttr("to", int(onnx.Float8E4M3FN))}}, []*onnx.Tensor{flags}, 5 << 16},
		{"bytes as floats of a byte", &onnx.Node{Op: "Cast",
			Attrs: []onnx.Attr{onnx.IntAttr("to", int(onnx.Float8E5M2))}}, []*onnx.Tensor{bytes}, 5 << 16},
	} {
		evaluatedIn(t, &Env{Pool: &Pool{Most: 2 * c.holds}, Threads: 1}, c.n, nil, c.in...)
		s := &Spec{Node: c.n, Opset: 21, Const: make([]*onnx.Tensor, len(c.in))}
		for _, x := range c.in {
			s.In = append(s.In, x.DType)
		}
		call := NewCall(&Env{Pool: &Pool{Most: c.holds - 1}, Threads: 1}, len(c.in), 1)
		copy(call.In, c.in)
		call.Want[0] = true
		if err := call.Do(must.Get(Prepare(s))(t)); err == nil || !strings.Contains(err.Error(), "take more than") {
			t.Errorf("%s in %d bytes: %v", c.name, c.holds-1, err)
		}
	}
}

// The operators of package rare.
func init() { EnableRare() }

// TestMelWeights: triangles between corners, of which the one without a rising side is its peak
// alone, and none where the edges descend.
func TestMelWeights(t *testing.T) {
	for _, c := range []struct {
		low, high float32
		want      []float32 // [9, 2]
	}{
		{0, 8, []float32{0, 0, 1, 0, .5, .5, 0, 1, 0, .5, 0, 0, 0, 0, 0, 0, 0, 0}},
		{8, 0, make([]float32, 18)},
		{4.5, 4.5, []float32{0, 0, 0, 0, 0, 0, 0, 0, 1, 1, 0, 0, 0, 0, 0, 0, 0, 0}},
	} {
		n := &onnx.Node{Op: "MelWeightMatrix"}
		got := evaluated(t, 1, n, nil, onnx.Scalar[int64](2), onnx.Scalar[int64](16), onnx.Scalar[int64](17),
			onnx.Scalar(c.low), onnx.Scalar(c.high))
		if !slices.Equal(got.F32(), c.want) {
			t.Errorf("%v to %v Hz: %v, want %v", c.low, c.high, got.F32(), c.want)
		}
	}
}
