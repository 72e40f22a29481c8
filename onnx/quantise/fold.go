package quantise

import (
	"fmt"
	"math"
	"slices"

	"fmp/onnx"
	"fmp/onnx/op"
	"fmp/onnx/pass"
)

// readers counts the uses of each value, in graphs within nodes too; an output of a graph is one.
func readers(g *onnx.Graph) map[string]int {
	uses := map[string]int{}
	for _, n := range g.Nodes {
		for _, in := range n.Inputs {
			uses[in]++
		}
		for _, sub := range n.Subgraphs() {
			for name, k := range readers(sub) {
				uses[name] += k
			}
		}
	}
	for _, o := range g.Outputs {
		uses[o.Name]++
	}
	return uses
}

// foldNormalisation takes batch normalisations into the weights and bias of the convolutions before
// them:
//
//	γ (W x + b - μ) / √(v + ε) + β = (r W) x + r (b - μ) + β,  r = γ / √(v + ε) for each output channel
//
// A convolution that others read too keeps its normalisation, whose effect they do not want.
func foldNormalisation(m *onnx.Model) {
	g := m.Graph
	uses, by := readers(g), g.Makers()
	var kept []*onnx.Node
	for _, n := range g.Nodes {
		conv := by[n.Input(0)]
		if n.Domain != "" || n.Op != "BatchNormalization" || conv == nil || conv.Domain != "" ||
			conv.Op != "Conv" ||
			uses[n.Input(0)] != 1 || op.Attrs(n, onnx.ClampInt(m.Opset())).Bool("training_mode") ||
			len(n.Outputs) != 1 || !foldInto(m, conv, n) {
			kept = append(kept, n)
			continue
		}
		conv.Outputs = n.Outputs
	}
	g.Nodes = kept
}

// foldInto folds norm into conv and reports whether it could. r is computed in float64; tensors of
// m are replaced and not written to.
func foldInto(m *onnx.Model, conv, norm *onnx.Node) bool {
	g := m.Graph
	w := g.Initializers[conv.Input(1)]
	var p [4][]float32 // γ, β, μ, v
	for i := range p {
		t := g.Initializers[norm.Input(i+1)]
		if t == nil || w == nil || w.DType != onnx.Float32 || len(t.F32()) != w.Shape[0] {
			return false
		}
		p[i] = t.F32()
	}
	bias := make([]float32, w.Shape[0])
	if name := conv.Input(2); name != "" {
		t := g.Initializers[name]
		if t == nil || len(t.F32()) != len(bias) {
			return false
		}
		copy(bias, t.F32())
	}
	epsilon := float64(op.Attrs(norm, onnx.ClampInt(m.Opset())).Float("epsilon"))
	folded := w.Clone()
	size := w.Len() / max(1, w.Shape[0])
	// w is [M, C/group, k...], of which channel c has `size` neighbouring elements.
	for c := range bias {
		r := float64(p[0][c]) / math.Sqrt(float64(p[3][c])+epsilon)
		for i := range folded.F32()[c*size : (c+1)*size] {
			folded.F32()[c*size+i] *= float32(r)
		}
		bias[c] = float32(r*(float64(bias[c])-float64(p[2][c])) + float64(p[1][c]))
	}
	names := newNames(g)
	conv.Inputs = []string{conv.Inputs[0], names.add(conv.Outputs[0] + "/weight"),
		names.add(conv.Outputs[0] + "/bias")}
	g.Initializers[conv.Inputs[1]], g.Initializers[conv.Inputs[2]] = folded, onnx.Vector(bias...)
	return true
}

// foldFactors takes alpha and beta of Gemm, α A B + β C, into constant B and C: the ONNX Runtime's
// product in bytes would multiply a bias in int32 by alpha.
func foldFactors(g *onnx.Graph) {
	names := newNames(g)
	for _, n := range g.Nodes {
		if n.Domain != "" || n.Op != "Gemm" {
			continue
		}
		// alpha scales input 1 and beta input 2. Place 0 has an empty name, which no attribute has.
		for i, factor := range []string{1: "alpha", 2: "beta"} {
			a, ok := n.Attr(factor)
			t := constant(g, n.Input(i))
			if !ok || t == nil || t.DType != onnx.Float32 {
				continue
			}
			scaled := t.Clone()
			for k := range scaled.F32() {
				scaled.F32()[k] *= a.Float
			}
			n.Inputs[i] = names.add(n.Inputs[i] + "/" + factor)
			g.Initializers[n.Inputs[i]] = scaled
			n.Attrs = slices.DeleteFunc(n.Attrs, func(a onnx.Attr) bool { return a.Name == factor })
		}
	}
	pass.RemoveUnused(g)
}

// names gives values names that no other has.
type names map[string]bool

// newNames holds the names of a graph's values, those of graphs within its nodes included.
func newNames(g *onnx.Graph) names {
	n := names{}
	g.AddNames(n)
	return n
}

// add returns the first free name of base, base/2, base/3 and so on, and takes it.
func (n names) add(base string) string {
	name := base
	for i := 2; n[name]; i++ {
		name = fmt.Sprintf("%s/%d", base, i)
	}
	n[name] = true
	return name
}
