package shape_test

import (
	"strings"
	"testing"

	"fmp/onnx"
	"fmp/onnx/build"
	"fmp/onnx/must"
	"fmp/onnx/op"
	"fmp/onnx/serde"
	"fmp/onnx/shape"
)

func TestInferKeepsSymbols(t *testing.T) {
	t.Parallel()
	f32 := func(shape ...int) *onnx.Tensor { return onnx.ZerosF32(shape...) }
	for _, tc := range []struct {
		name  string
		build func(b *build.Builder) build.Ref
		want  string
	}{
		{"matmul", func(b *build.Builder) build.Ref {
			return b.MatMul(b.Input("x", onnx.Float32, "batch", "n", 64), b.Param("w", f32(64, 10)))
		}, "float32[batch,n,10]"},
		{"broadcast of a known size and 1", func(b *build.Builder) build.Ref {
			return b.Add(b.Input("x", onnx.Float32, "batch", 1, 4), b.Param("w", f32(3, 1)))
		}, "float32[batch,3,4]"},
		{"flatten to rows and back", func(b *build.Builder) build.Ref {
			x := b.Input("x", onnx.Float32, "batch", "n", 8)
			rows := b.Reshape(x, -1, 8)
			shape := b.Op("Shape", []build.Ref{x}, onnx.IntAttr("end", 2))
			return b.Op("Reshape", []build.Ref{rows, b.Concat(0, shape, b.Axes(2, 4))})
		}, "float32[batch,n,2,4]"},
		{"rows", func(b *build.Builder) build.Ref {
			return b.Reshape(b.Input("x", onnx.Float32, "batch", "n", 8), -1, 8)
		}, "float32[batch*n,8]"},
		{"heads split and merged", func(b *build.Builder) build.Ref {
			x := b.Input("x", onnx.Float32, "batch", "n", 32)
			h := b.Transpose(b.Reshape(x, 0, 0, 4, 8), 0, 2, 1, 3)
			return b.Reshape(b.Transpose(h, 0, 2, 1, 3), 0, 0, -1)
		}, "float32[batch,n,32]"},
		{"expand by a computed shape", func(b *build.Builder) build.Ref {
			x := b.Input("x", onnx.Float32, "batch", "n", 8)
			size := b.Op("Gather", []build.Ref{b.Op("Shape", []build.Ref{x}), b.Axes(0)})
			return b.Op("Expand", []build.Ref{b.Param("s", f32(1, 5, 8)), b.Concat(0, size, b.Axes(1, 1))})
		}, "float32[batch,5,8]"},
		{"strided convolution", func(b *build.Builder) build.Ref {
			x := b.Input("x", onnx.Float32, "batch", 3, "H", 32)
			return b.Op("Conv", []build.Ref{x, b.Param("w", f32(8, 3, 3, 3))},
				onnx.IntsAttr("pads", 1, 1, 1, 1), onnx.IntsAttr("strides", 2, 2))
		}, "float32[batch,8,floor((H + 1)/2),16]"},
		{"padded and sliced", func(b *build.Builder) build.Ref {
			x := b.Op("Pad", []build.Ref{b.Input("x", onnx.Float32, "batch", "H"),
				b.Axes(0, 1, 0, 1), b.F32(0)})
			return b.Slice(x, 1, 1, -1)
		}, "float32[batch,H]"},
		{"a slice that may be cut short",
			func(b *build.Builder) build.Ref { return b.Slice(b.Input("x", onnx.Float32, "n"), 0, 0, 5) },
			"float32[?]"},
		{"concat of symbols", func(b *build.Builder) build.Ref {
			return b.Concat(1, b.Input("x", onnx.Float32, "batch", "n"),
				b.Input("y", onnx.Float32, "batch", "m"), b.Input("z", onnx.Float32, 2, 3))
		}, "float32[2,m + n + 3]"},
		{"two symbols may differ by broadcasting", func(b *build.Builder) build.Ref {
			return b.Add(b.Input("x", onnx.Float32, "a"), b.Input("y", onnx.Float32, "b"))
		}, "float32[?]"},
		{"range of a size", func(b *build.Builder) build.Ref {
			n := b.Squeeze(b.Op("Shape", []build.Ref{b.Input("x", onnx.Float32, "n")}), 0)
			return b.Op("Range", []build.Ref{b.Const(onnx.Scalar[int64](0)), n,
				b.Const(onnx.Scalar[int64](1))})
		}, "int64[n]"},
		{"a range that may be empty", func(b *build.Builder) build.Ref {
			n := b.Squeeze(b.Op("Shape", []build.Ref{b.Input("x", onnx.Float32, "n")}), 0)
			return b.Op("Range", []build.Ref{n, b.Const(onnx.Scalar[int64](1)),
				b.Const(onnx.Scalar[int64](2))})
		}, "int64[?]"},
		{"the exporter's expand idiom", func(b *build.Builder) build.Ref {
			x := b.Input("x", onnx.Float32, "batch", "n")
			dims := b.Concat(0, b.Op("Gather", []build.Ref{b.Op("Shape", []build.Ref{x}), b.Axes(0)}),
				b.Axes(-1))
			ones := b.Op("ConstantOfShape", []build.Ref{b.Axes(2)},
				onnx.TensorAttr("value", onnx.Vector[int64](1)))
			minus := b.Mul(ones, b.Const(onnx.Scalar[int64](-1)))
			target := b.Op("Where", []build.Ref{b.Op("Equal", []build.Ref{dims, minus}), ones, dims})
			return b.Op("Expand", []build.Ref{b.Param("s", f32(1, 7)), target})
		}, "float32[batch,7]"},
		{"mean over axes", func(b *build.Builder) build.Ref {
			return b.ReduceMean(b.Input("x", onnx.Float32, "batch", 8, "H", "W"), false, 2, 3)
		}, "float32[batch,8]"},
		{"unknown sizes keep their identity", func(b *build.Builder) build.Ref {
			x := b.Input("x", onnx.Float32, "", 8)
			return b.Concat(0, b.Add(x, x), b.Param("w", f32(0, 8)))
		}, "float32[?,8]"},
		{"einsum", func(b *build.Builder) build.Ref {
			return b.Op("Einsum", []build.Ref{b.Input("q", onnx.Float32, "b", "n", 4, 8),
				b.Input("k", onnx.Float32, "b", "m", 4, 8)}, onnx.StrAttr("equation", "bnhd,bmhd->bhnm"))
		}, "float32[b,4,n,m]"},
		{"scales round in float32", func(b *build.Builder) build.Ref {
			x := b.Input("x", onnx.Float32, "n", 10, 3, 1<<24+1)
			return b.Op("Resize", []build.Ref{x, "", b.Const(onnx.Vector[float32](2, .7, .6, 1))})
		}, "float32[2*n,7,1,16777217]"},
		{"a symbol that is no expression",
			func(b *build.Builder) build.Ref { return b.Relu(b.Input("x", onnx.Float32, "batch size!", 2)) },
			"float32[batch size!,2]"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			b := build.New(tc.name)
			b.Output("out", tc.build(b))
			m := must.Get(b.Model())(t)
			if got := m.Graph.Outputs[0].Type(); got != tc.want {
				t.Errorf("got %s, want %s", got, tc.want)
			}
		})
	}
}

func TestInferRefusesContradictions(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		name  string
		build func(b *build.Builder) build.Ref
		want  []string
	}{
		{"matmul", func(b *build.Builder) build.Ref {
			return b.MatMul(b.Input("x", onnx.Float32, "n", 3), b.Input("y", onnx.Float32, 4, 5))
		}, []string{"MatMul", "matmul", "3", "4", "[n,3]", "[4,5]"}},
		{"broadcast", func(b *build.Builder) build.Ref {
			return b.Add(b.Input("x", onnx.Float32, "n", 3), b.Input("y", onnx.Float32, 4))
		}, []string{"Add", "3", "4"}},
		{"concat", func(b *build.Builder) build.Ref {
			return b.Concat(0, b.Input("x", onnx.Float32, "n", 3), b.Input("y", onnx.Float32, "n", 4))
		}, []string{"Concat", "3", "4"}},
		{"types", func(b *build.Builder) build.Ref {
			return b.Add(b.Input("x", onnx.Float32, 3), b.Input("y", onnx.Int64, 3))
		}, []string{"Add", "float32", "int64"}},
		{"reshape", func(b *build.Builder) build.Ref { return b.Reshape(b.Input("x", onnx.Float32, 3, 4), 5, -1) },
			[]string{"Reshape", "12", "5"}},
		{"channels", func(b *build.Builder) build.Ref {
			return b.Op("Conv", []build.Ref{b.Input("x", onnx.Float32, 1, 3, 8, 8),
				b.Param("w", onnx.ZerosF32(4, 1, 3, 3))})
		}, []string{"Conv", "3", "1"}},
		{"kernel", func(b *build.Builder) build.Ref {
			return b.Op("Conv", []build.Ref{b.Input("x", onnx.Float32, 1, 3, 2, 8),
				b.Param("w", onnx.ZerosF32(4, 3, 3, 3))})
		}, []string{"Conv", "3 positions", "size 2"}},
		{"gather", func(b *build.Builder) build.Ref {
			return b.Op("Gather", []build.Ref{b.Input("x", onnx.Float32, 3), b.Axes(3)})
		}, []string{"index 3", "size 3"}},
		{"axis", func(b *build.Builder) build.Ref { return b.Softmax(b.Input("x", onnx.Float32, 3), 1) },
			[]string{"Softmax", "axis 1", "rank 1"}},
		{"axes", func(b *build.Builder) build.Ref {
			return b.Op("MeanVarianceNormalization", []build.Ref{b.Input("x", onnx.Float32, 3, 4)},
				onnx.IntsAttr("axes", 0, 7))
		}, []string{"MeanVarianceNormalization", "axis 7", "rank 2"}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			b := build.New(tc.name)
			b.Output("out", tc.build(b))
			_, err := b.Model()
			for _, w := range tc.want {
				must.Fail(err)(t, w)
			}
		})
	}
}

func TestInferIsStable(t *testing.T) {
	t.Parallel()
	b := build.New("stable")
	x := b.Input("x", onnx.Float32, "batch", 3, "H", "W")
	b.Output("out", b.Reshape(b.Op("Conv", []build.Ref{x, b.Param("w", onnx.ZerosF32(8, 3, 3, 3))},
		onnx.IntsAttr("strides", 2, 2)), 0, -1))
	m := must.Get(b.Model())(t)
	first := must.Get(serde.Marshal(m))(t)
	must.Do(t, shape.Infer(m))
	second := must.Get(serde.Marshal(m))(t)
	if string(first) != string(second) {
		t.Error("inferring twice changes the model")
	}
}

// A node with fewer inputs than its operator has, in any operator set, is refused by its name and
// never a crash.
func TestTooFewInputs(t *testing.T) {
	t.Parallel()
	for _, name := range op.Names("") {
		for opset := 1; opset <= onnx.MaxOpset; opset++ {
			s := op.Lookup("", name, opset)
			if s == nil || s.Deprecated || !shape.HasRule(name) {
				continue
			}
			least := 0
			for i, p := range s.In {
				if !p.Optional {
					least = i + 1
				}
				if p.Variadic {
					least = i + p.Least
				}
			}
			for n := range least + 1 {
				node := &onnx.Node{Name: "node", Op: name, Outputs: []string{"y"}}
				g := &onnx.Graph{Name: name, Initializers: map[string]*onnx.Tensor{},
					Nodes:   []*onnx.Node{node},
					Outputs: []onnx.ValueInfo{{Name: "y"}}}
				for i := range n {
					node.Inputs = append(node.Inputs, string(rune('a'+i)))
					g.Inputs = append(g.Inputs, onnx.ValueInfo{Name: node.Inputs[i], DType: onnx.Float32})
				}
				m := onnx.NewModel(g)
				m.Opsets[""] = int64(opset)
				if err := shape.Infer(m); n < least &&
					(err == nil || !strings.Contains(err.Error(), `"node"`)) {
					t.Errorf("%s of operator set %d with %d of %d inputs: the error is %v", name,
						opset, n, least, err)
				}
			}
		}
	}
}
