package inspect

import (
	"fmt"
	"strings"
	"testing"

	"fmp/onnx"
	"fmp/onnx/build"
	"fmp/onnx/internal/modeltest"
	"fmp/onnx/must"
)

func TestStatsCountsOperations(t *testing.T) {
	t.Parallel()
	const n, h = 3, 10
	for _, tc := range []struct {
		name  string
		build func(b *build.Builder) build.Ref
		want  float64
	}{
		{"matmul", func(b *build.Builder) build.Ref {
			return b.MatMul(b.Input("x", onnx.Float32, "n", 5, 4), b.Param("w", onnx.ZerosF32(4, 7)))
		}, 2 * n * 5 * 4 * 7},
		{"gemm with bias", func(b *build.Builder) build.Ref {
			return b.Op("Gemm", []build.Ref{b.Input("x", onnx.Float32, "n", 4),
				b.Param("w", onnx.ZerosF32(7, 4)), b.Param("b", onnx.ZerosF32(7))}, onnx.IntAttr("transB", 1))
		}, 2*n*4*7 + n*7},
		{"grouped convolution", func(b *build.Builder) build.Ref {
			return b.Op("Conv", []build.Ref{b.Input("x", onnx.Float32, "n", 4, "h", "h"),
				b.Param("w", onnx.ZerosF32(8, 2, 3, 3))}, onnx.IntAttr("group", 2))
		}, 2 * n * 8 * (h - 2) * (h - 2) * 2 * 9},
		{"transposed convolution", func(b *build.Builder) build.Ref {
			return b.Op("ConvTranspose",
				[]build.Ref{b.Input("x", onnx.Float32, "n", 4, "h", "h"),
					b.Param("w", onnx.ZerosF32(4, 6, 2, 2))}, onnx.IntsAttr("strides", 2, 2))
		}, 2 * n * 4 * h * h * 6 * 4},
		{"einsum", func(b *build.Builder) build.Ref {
			return b.Op("Einsum", []build.Ref{b.Input("q", onnx.Float32, "n", "h", 4),
				b.Input("k", onnx.Float32, "n", "h", 4)}, onnx.StrAttr("equation", "bqd,bkd->bqk"))
		}, 2 * n * h * h * 4},
		{"moving is free", func(b *build.Builder) build.Ref {
			return b.Transpose(b.Reshape(b.Relu(b.Input("x", onnx.Float32, "n", "h")), -1, 1), 1, 0)
		}, 0},
		{"elementwise", func(b *build.Builder) build.Ref {
			return b.Exp(b.Add(b.Input("x", onnx.Float32, "n", "h"), b.F32(1)))
		}, 2 * n * h},
	} {
		t.Run(tc.name, func(t *testing.T) {
			b := build.New(tc.name)
			b.Output("out", tc.build(b))
			m := must.Get(b.Model())(t)
			sizes := map[string]int{"n": n}
			if strings.Contains(fmt.Sprint(m.Graph.Inputs), "h") {
				sizes["h"] = h
			}
			s := must.Get(Stats(m, sizes))(t)
			if s.FLOPs != tc.want || len(s.Uncounted) > 0 {
				t.Errorf("%v operations without %v, want %v", s.FLOPs, s.Uncounted, tc.want)
			}
		})
	}
}

func TestStatsCountsParameters(t *testing.T) {
	t.Parallel()
	linear := modeltest.Linear(t, "m", "image", "features", 8, 4)
	s := must.Get(Stats(linear, nil))(t)
	if s.Parameters != 32 || s.ParameterBytes != 128 || s.Nodes != 3 || s.Operators["MatMul"] != 1 ||
		s.Sizes["batch"] != 1 {
		t.Errorf("got %+v", s)
	}
	for _, name := range []string{`"rows"`, `"batch"`} {
		must.Fail(Stats(linear, map[string]int{"rows": 3}))(t, name)
	}
	if s = must.Get(Stats(modeltest.Doubler(t), nil))(t); s.Operators["Mul"] != 2 {
		t.Errorf("functions are not counted: %+v", s)
	}
}
