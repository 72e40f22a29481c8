package models

import (
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"
	"testing"
	"time"

	"fmp/models/rng"
	"fmp/onnx"
	"fmp/onnx/build"
	"fmp/onnx/engine"
	"fmp/onnx/engine/pure"
)

// timed are operators with the nodes that measure them, on x [1, 8, 32, 32]; others of one input
// are measured by themselves.
func timed() map[string]func(b *build.Builder, x build.Ref) build.Ref {
	type ref = build.Ref
	param := func(b *build.Builder, dims ...int) ref {
		t := onnx.ZerosF32(dims...)
		rng.Normal(rng.New(1, fmt.Sprint(dims)), t.F32())
		return b.Const(t)
	}
	pair := func(op string) func(*build.Builder, ref) ref {
		return func(b *build.Builder, x ref) ref { return b.Op(op, []ref{x, param(b, 1, 8, 32, 32)}) }
	}
	with := func(op string, attrs ...onnx.Attr) func(*build.Builder, ref) ref {
		return func(b *build.Builder, x ref) ref { return b.Op(op, []ref{x}, attrs...) }
	}
	channels := func(b *build.Builder) ref { return param(b, 8) }
	out := map[string]func(*build.Builder, ref) ref{
		"Conv": func(b *build.Builder, x ref) ref { return b.Op("Conv", []ref{x, param(b, 8, 8, 3, 3)}) },
		"Conv, depthwise": func(b *build.Builder, x ref) ref {
			return b.Op("Conv", []ref{x, param(b, 8, 1, 3, 3)}, onnx.IntAttr("group", 8))
		},
		"ConvTranspose": func(b *build.Builder, x ref) ref {
			return b.Op("ConvTranspose", []ref{x, param(b, 8, 8, 3, 3)})
		},
		"MatMul":        func(b *build.Builder, x ref) ref { return b.Op("MatMul", []ref{x, param(b, 32, 32)}) },
		"MatMul of two": func(b *build.Builder, x ref) ref { return b.Op("MatMul", []ref{x, x}) },
		"Gemm": func(b *build.Builder, x ref) ref {
			return b.Op("Gemm", []ref{b.Reshape(x, 64, 128), param(b, 128, 32)})
		},
		"Einsum": func(b *build.Builder, x ref) ref {
			return b.Op("Einsum", []ref{x, param(b, 32, 32)}, onnx.StrAttr("equation", "abcd,de->abce"))
		},
		"AveragePool": with("AveragePool", onnx.IntsAttr("kernel_shape", 3, 3)),
		"MaxPool":     with("MaxPool", onnx.IntsAttr("kernel_shape", 3, 3)),
		"BatchNormalization": func(b *build.Builder, x ref) ref {
			return b.Op("BatchNormalization",
				[]ref{x, channels(b), channels(b), channels(b),
					b.Const(onnx.Vector[float32](1, 2, 3, 4, 5, 6, 7, 8))})
		},
		"InstanceNormalization": func(b *build.Builder, x ref) ref {
			return b.Op("InstanceNormalization", []ref{x, channels(b), channels(b)})
		},
		"LayerNormalization": func(b *build.Builder, x ref) ref {
			return b.Op("LayerNormalization", []ref{x, param(b, 32)})
		},
		"Cast, to int64":   with("Cast", onnx.IntAttr("to", int(onnx.Int64))),
		"Cast, to float16": with("Cast", onnx.IntAttr("to", int(onnx.Float16))),
		"Clip":             func(b *build.Builder, x ref) ref { return b.Op("Clip", []ref{x, b.F32(0), b.F32(6)}) },
		"CumSum": func(b *build.Builder, x ref) ref {
			return b.Op("CumSum", []ref{x, b.Const(onnx.Scalar[int64](3))})
		},
		"Concat":    func(b *build.Builder, x ref) ref { return b.Concat(1, x, x) },
		"Transpose": func(b *build.Builder, x ref) ref { return b.Transpose(x, 0, 2, 3, 1) },
		"PRelu":     func(b *build.Builder, x ref) ref { return b.Op("PRelu", []ref{x, param(b, 8, 1, 1)}) },
		"Where": func(b *build.Builder, x ref) ref {
			return b.Op("Where", []ref{b.Op("Greater", []ref{x, b.F32(0.5)}), x, b.F32(1)})
		},
		"Resize": func(b *build.Builder, x ref) ref {
			return b.Op("Resize", []ref{x, "", b.Const(onnx.Vector[float32](1, 1, 2, 2))},
				onnx.StrAttr("mode", "linear"))
		},
		"QuantizeLinear": func(b *build.Builder, x ref) ref {
			return b.Op("QuantizeLinear", []ref{x, b.F32(0.01), b.Const(onnx.Scalar[uint8](128))})
		},
		"DynamicQuantizeLinear": func(b *build.Builder, x ref) ref {
			return b.OpN("DynamicQuantizeLinear", []ref{x}, 3)[0]
		},
	}
	for _, e := range []float32{-2, -1, 0.5, 2, 3, 7, 0.3, 2.5, -0.75} {
		out[fmt.Sprintf("Pow, exponent %v", e)] = func(b *build.Builder, x ref) ref {
			return b.Op("Pow", []ref{x, b.F32(e)})
		}
	}
	for _, op := range []string{"Add", "Sub", "Mul", "Div", "Min", "Max", "Sum", "Mean", "Equal",
		"Greater", "Less"} {
		out[op] = pair(op)
	}
	out["Div, by x"] = func(b *build.Builder, x ref) ref {
		return b.Op("Div", []ref{param(b, 1, 8, 32, 32), x})
	}
	return out
}

// values are kinds of numbers that images may turn to within a network.
var values = []struct {
	name string
	fill func(i int, u float64) float64 // of a number in [0, 1)
}{
	{"pixels", func(_ int, u float64) float64 { return u }},
	{"zeros", func(int, float64) float64 { return 0 }},
	{"ones", func(int, float64) float64 { return 1 }},
	{"of both signs", func(_ int, u float64) float64 { return 20 * (u - 0.5) }},
	{"below zero", func(_ int, u float64) float64 { return -1 - 100*u }},
	{"hundreds", func(_ int, u float64) float64 { return 100 + 800*u }},
	{"subnormal", func(_ int, u float64) float64 { return 1e-39 * (1 + u) }},
	{"tiny", func(_ int, u float64) float64 { return 1e-25 * (1 + u) }},
	{"just above subnormal", func(_ int, u float64) float64 { return 1.2e-38 * (1 + u) }},
	{"huge", func(_ int, u float64) float64 { return 3e38 * (u - 0.5) }},
	{"infinite", func(int, float64) float64 { return math.Inf(1) }},
	{"NaN", func(int, float64) float64 { return math.NaN() }},
}

// BenchmarkSteady measures each operator of the allow-list on kinds of numbers in turn, and reports
// the longest time over the shortest:
//
//	go test ./models -run NONE -bench Steady -benchtime 1x
//
// Times are the least of many, so that other work on the machine hardly counts.
func BenchmarkSteady(b *testing.B) {
	table := timed()
	for o := range steady {
		named := func(n string) bool { n, _, _ = strings.Cut(n, ","); return n == o }
		if !slices.ContainsFunc(slices.Collect(maps.Keys(table)), named) {
			table[o] = func(b *build.Builder, x build.Ref) build.Ref { return b.Op(o, []build.Ref{x}) }
		}
	}
	for _, name := range slices.Sorted(maps.Keys(table)) {
		b.Run(name, func(b *testing.B) {
			for range b.N {
				most, at, base, err := spread(table[name])
				if err != nil {
					b.Skip(err)
				}
				b.ReportMetric(most, "longest/shortest")
				b.ReportMetric(float64(base.Nanoseconds())/8192, "ns/number")
				b.Logf("%-28s %6.2f  %s", name, most, at)
			}
		})
	}
}

// spread returns the longest time that a node takes on a kind of numbers over the shortest, which
// these are, and the time of pixels.
func spread(node func(*build.Builder,
	build.Ref) build.Ref) (most float64, at string, base time.Duration, err error) {
	b := build.New("net")
	b.Output("y", node(b, b.Input("x", onnx.Float32, 1, 8, 32, 32)))
	m, err := b.Model()
	if err != nil {
		return 0, "", 0, err
	}
	e, err := pure.New(engine.Options{Threads: 1, Reproducible: true, Flush: true})
	if err != nil {
		return 0, "", 0, err
	}
	defer e.Close()
	s, err := e.Load(m)
	if err != nil {
		return 0, "", 0, err
	}
	defer s.Close()
	var in []*onnx.Tensor
	least := make([]time.Duration, len(values))
	r := rng.New(1, "values")
	for k, v := range values {
		t := onnx.ZerosF32(1, 8, 32, 32)
		for i := range t.F32() {
			t.F32()[i] = float32(v.fill(i, r.Float64()))
		}
		in, least[k] = append(in, t), math.MaxInt64
	}
	for range 60 {
		for k, t := range in {
			start := time.Now()
			if _, err := engine.Eval(s, map[string]*onnx.Tensor{"x": t}); err != nil {
				return 0, "", 0, fmt.Errorf("%s: %w", values[k].name, err)
			}
			least[k] = min(least[k], time.Since(start))
		}
	}
	long, short := 0, 0
	for k, d := range least {
		if d > least[long] {
			long = k
		}
		if d < least[short] {
			short = k
		}
	}
	return float64(least[long]) / float64(least[short]),
		values[long].name + " over " + values[short].name, least[0], nil
}
