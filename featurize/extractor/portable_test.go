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

// TestPortable: a pool behind a Pad is held apart from it, and its features have another digest than
// the file alone gives; no other pool is touched.
func TestPortable(t *testing.T) {
	eng := must.Get(pure.New(engine.Options{Threads: 1}))(t)
	padded := func(b *build.Builder, v build.Ref) build.Ref {
		ends := b.Const(onnx.Vector[int64](0, 0, 1, 1, 0, 0, 1, 1))
		return b.Op("Pad", []build.Ref{b.Sub(v, b.F32(1)), ends})
	}
	pool := func(b *build.Builder, op string, v build.Ref) build.Ref {
		return b.Op(op, []build.Ref{v}, onnx.IntsAttr("kernel_shape", 2, 2))
	}
	digest := ""
	for _, c := range []struct {
		name  string
		body  func(b *build.Builder, v build.Ref) build.Ref
		apart bool
	}{
		{"no Pad", func(b *build.Builder, v build.Ref) build.Ref { return pool(b, "MaxPool", v) }, false},
		{"maximum", func(b *build.Builder, v build.Ref) build.Ref {
			return pool(b, "MaxPool", padded(b, v))
		}, true},
		{"mean", func(b *build.Builder, v build.Ref) build.Ref {
			return pool(b, "AveragePool", padded(b, v))
		}, true},
		{"transposed", func(b *build.Builder, v build.Ref) build.Ref {
			return pool(b, "MaxPool", b.Transpose(padded(b, v), 0, 1, 3, 2))
		}, true},
		{"a product between", func(b *build.Builder, v build.Ref) build.Ref {
			return pool(b, "MaxPool", b.Mul(padded(b, v), b.F32(2)))
		}, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			b := build.New("pools")
			b.Output("features", c.body(b, b.Input("image", onnx.Float32, "n", 3, 6, 4)))
			x := must.Get(New(eng, must.Get(b.Model())(t), models.Manifest{Digest: "file"}, Options{},
				*images(1, 6, 4, 3)))(t)
			defer x.Close()
			nodes := x.model.Graph.Nodes
			k := slices.IndexFunc(nodes, func(n *onnx.Node) bool { return n.Op == "Concat" })
			if (k >= 0) != c.apart || k >= 0 && nodes[k+1].Inputs[0] != nodes[k].Outputs[0] {
				t.Errorf("nodes are %v", nodes)
			}
			if digest == "" {
				digest = x.Digest()
			}
			if (x.Digest() != digest) != c.apart {
				t.Errorf("digest %s beside %s without a Pad", x.Digest(), digest)
			}
		})
	}
}
