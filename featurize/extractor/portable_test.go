package extractor

import (
	"slices"
	"testing"

	"fmp/models"
	"fmp/onnx"
	"fmp/onnx/build"
	"fmp/onnx/engine"
	"fmp/onnx/engine/pure"
	"fmp/onnx/must"
)

// TestPortable: a pool behind a Pad is held apart from it, one without padding counts none, and the
// features of such by the ORT have another digest than the file alone gives; no other pool is
// touched. Layers that are cut off are those of the file.
func TestPortable(t *testing.T) {
	eng := must.Get(pure.New(engine.Options{Threads: 1}))(t)
	padded := func(b *build.Builder, v build.Ref, attrs ...onnx.Attr) build.Ref {
		ends := b.Const(onnx.Vector[int64](0, 0, 1, 1, 0, 0, 1, 1))
		return b.Op("Pad", []build.Ref{b.Sub(v, b.F32(1)), ends}, attrs...)
	}
	pool := func(b *build.Builder, op string, v build.Ref, attrs ...onnx.Attr) build.Ref {
		return b.Op(op, []build.Ref{v}, append(attrs, onnx.IntsAttr("kernel_shape", 2, 2))...)
	}
	counting := func(attrs ...onnx.Attr) func(b *build.Builder, v build.Ref) build.Ref {
		return func(b *build.Builder, v build.Ref) build.Ref {
			return pool(b, "AveragePool", v, append(attrs, onnx.IntAttr("count_include_pad", 1))...)
		}
	}
	ceil, pads := onnx.IntAttr("ceil_mode", 1), onnx.IntsAttr("pads", 0, 0, 1, 1)
	var digests [2]string // of the engine pure and of the ORT
	for _, c := range []struct {
		name                   string
		body                   func(b *build.Builder, v build.Ref) build.Ref
		apart, counts, another bool
	}{
		{"no Pad", func(b *build.Builder, v build.Ref) build.Ref { return pool(b, "MaxPool", v) }, false, false, false},
		{"maximum", func(b *build.Builder, v build.Ref) build.Ref {
			return pool(b, "MaxPool", padded(b, v))
		}, true, false, true},
		{"mean", func(b *build.Builder, v build.Ref) build.Ref {
			return pool(b, "AveragePool", padded(b, v))
		}, false, false, false},
		{"mean beyond the end", func(b *build.Builder, v build.Ref) build.Ref {
			return pool(b, "AveragePool", padded(b, v), ceil)
		}, true, false, true},
		{"mean of a padding", func(b *build.Builder, v build.Ref) build.Ref {
			return pool(b, "AveragePool", padded(b, v), pads)
		}, true, false, true},
		{"behind Dropout and Cast", func(b *build.Builder, v build.Ref) build.Ref {
			return pool(b, "MaxPool", b.Cast(b.Op("Dropout", []build.Ref{padded(b, v)}), onnx.Float32))
		}, true, false, true},
		{"in a function", func(b *build.Builder, v build.Ref) build.Ref {
			return pool(b, "MaxPool", padded(b, v))
		}, true, false, true},
		{"reflected", func(b *build.Builder, v build.Ref) build.Ref {
			return pool(b, "MaxPool", padded(b, v, onnx.StrAttr("mode", "reflect")))
		}, false, false, false},
		{"by another number", func(b *build.Builder, v build.Ref) build.Ref {
			ends := b.Const(onnx.Vector[int64](0, 0, 1, 1, 0, 0, 1, 1))
			return pool(b, "MaxPool", b.Op("Pad", []build.Ref{v, ends, b.F32(-9)}))
		}, false, false, false},
		{"transposed", func(b *build.Builder, v build.Ref) build.Ref {
			return pool(b, "MaxPool", b.Transpose(padded(b, v), 0, 1, 3, 2))
		}, true, false, true},
		{"a product between", func(b *build.Builder, v build.Ref) build.Ref {
			return pool(b, "MaxPool", b.Mul(padded(b, v), b.F32(2)))
		}, false, false, false},
		{"whole windows", counting(pads), false, true, false},
		{"nothing to count", counting(ceil), false, false, true},
		{"a padding", counting(ceil, pads), false, true, true},
		{"one by name", counting(ceil, onnx.StrAttr("auto_pad", "SAME_UPPER")), false, true, true},
	} {
		t.Run(c.name, func(t *testing.T) {
			b := build.New("pools")
			v := b.Input("image", onnx.Float32, "n", 3, 6, 4)
			b.Output("features", c.body(b, v))
			b.Output("other", b.Relu(v))
			m := must.Get(b.Model())(t)
			if c.name == "in a function" {
				call(m, "MaxPool")
			}
			x := must.Get(New(eng, m, models.Manifest{Digest: "file"}, Options{},
				*images(1, 6, 4, 3)))(t)
			defer x.Close()
			if cut := x.Layer().Without; !slices.Equal(cut, []string{"Relu relu", "Identity other"}) {
				t.Errorf("cut off are %q", cut)
			}
			nodes := x.model.Graph.Nodes
			k := slices.IndexFunc(nodes, func(n *onnx.Node) bool { return n.Op == "Concat" })
			if (k >= 0) != c.apart || k >= 0 && nodes[k+1].Inputs[0] != nodes[k].Outputs[0] {
				t.Errorf("nodes are %v", nodes)
			}
			if counts := slices.ContainsFunc(nodes, func(n *onnx.Node) bool {
				_, ok := n.Attr("count_include_pad")
				return ok
			}); counts != c.counts {
				t.Errorf("a padding counts: %v, want %v", counts, c.counts)
			}
			got := [2]string{x.Digest(), must.Get(x.makeDigest(m, "ort"))(t)}
			if digests[0] == "" {
				digests = got
			}
			if got[0] != digests[0] || (got[1] != digests[1]) != c.another {
				t.Errorf("digests %s beside %s of no Pad", got, digests)
			}
		})
	}
}

// call has the nodes of an operator be a function of the model.
func call(m *onnx.Model, op string) {
	for _, n := range m.Graph.Nodes {
		if n.Op == op {
			m.Functions = []*onnx.Function{{Domain: "own", Name: "f", Inputs: []string{"x"}, Outputs: []string{"y"},
				Opsets: m.Opsets, Nodes: []*onnx.Node{{Op: op, Inputs: []string{"x"}, Outputs: []string{"y"},
					Attrs: n.Attrs}}}}
			m.Opsets = map[string]int64{"": m.Opset(), "own": 1}
			n.Domain, n.Op, n.Attrs = "own", "f", nil
		}
	}
}
