package models

import (
	"fmt"
	"slices"

	"fmp/onnx"
	"fmp/onnx/check"
	"fmp/onnx/pass"
	"fmp/onnx/shape"
)

// Names of the values at which a client graph is cut ([ParseClient]): features [n, dx], the
// labelled points [1, n, dx+C], and a mask [1, n] of those that count.
const (
	ValueFeatures = "features"
	ValueSet      = "set"
	ValuePresent  = "present"
)

// SplitPredictor cuts a predictor Z' = MAB(E, MAB(E, g(Z))) in two, so that many points can be
// drawn in chunks. Both parts take a chunk of the rows of noise, [batch, fresh, d]:
//
//	induce  points, weights, noise to keys and values  [batch, fresh, d]
//	attend  noise, keys, values to drawn               [batch, fresh, dx+C]
//
// The first gives keys and values of the outer block for those rows. The second takes keys and
// values of all rows.
//
// Both are nil where the graph, perhaps a third party's, lacks the outer block's maps to keys and
// values.
func SplitPredictor(m *onnx.Model, f Manifest) (induce, attend *onnx.Model) {
	noise, ok := m.Graph.Input("noise")
	if !ok {
		return nil, nil
	}
	var cut []onnx.ValueInfo
	for _, name := range []string{"keys", "values"} {
		at := slices.IndexFunc(m.Graph.Nodes, func(n *onnx.Node) bool {
			return n.Op == "Add" && len(n.Inputs) == 2 && n.Inputs[1] == "outer/"+name[:1]+"/bias"
		})
		if at < 0 {
			return nil, nil
		}
		cut = append(cut, onnx.ValueInfo{Name: m.Graph.Nodes[at].Outputs[0], DType: onnx.Float32,
			Shape: []onnx.Dim{noise.Shape[0], onnx.Symbolic("all"), onnx.Known(f.D)}})
	}
	part := func(g func(*onnx.Graph)) *onnx.Model {
		p := onnx.Clone(m)
		g(p.Graph)
		p.Graph.Values = nil // their shapes state as many queries as keys
		pass.RemoveUnused(p.Graph)
		pass.Rename(p.Graph, map[string]string{cut[0].Name: "keys", cut[1].Name: "values"})
		return p
	}
	induce = part(func(g *onnx.Graph) { g.Outputs = slices.Clone(cut) })
	attend = part(func(g *onnx.Graph) {
		g.Nodes = slices.DeleteFunc(g.Nodes, func(n *onnx.Node) bool {
			return n.Outputs[0] == cut[0].Name || n.Outputs[0] == cut[1].Name
		})
		g.Inputs = append([]onnx.ValueInfo{noise}, cut...)
	})
	return induce, attend
}

// FeatureGraph returns the part of a fused client graph that needs no labels:
//
//	images   [n, H, W, Ch] uint8   raw pixels
//	features [n, dx] float32       the extractor's features, standardised where the graph does so
func FeatureGraph(m *onnx.Model, f Manifest) (*onnx.Model, error) {
	maker := m.Graph.Makers()
	// set is the features and the labels side by side, with one axis more.
	node := maker[ValueSet]
	for node != nil && (node.Op == "Identity" || node.Op == "Unsqueeze") {
		node = maker[node.Input(0)]
	}
	images, ok := m.Graph.Input("images")
	if node == nil || node.Op != "Concat" || len(node.Inputs) != 2 || !ok {
		return nil, fmt.Errorf("%s: there is no %q to cut it at; want a graph that fmp fuse made",
			f.name(), ValueSet)
	}
	out := onnx.Clone(m)
	const name = "features"
	if from := node.Inputs[0]; from != name {
		pass.Rename(out.Graph, map[string]string{name: pass.Free(out.Graph, "client/"+name),
			from: name})
	}
	out.Graph.Name = "features"
	out.Graph.Inputs = []onnx.ValueInfo{images}
	out.Graph.Outputs = []onnx.ValueInfo{{Name: name, DType: onnx.Float32,
		Shape: []onnx.Dim{images.Shape[0], onnx.Known(f.Dx)}}}
	pass.RemoveUnused(out.Graph)
	if err := shape.Infer(out); err != nil {
		return nil, fmt.Errorf("%s: cut at its features: %w", f.name(), err)
	}
	return out, check.Model(out)
}

// cut returns the part of a model that computes its named outputs. It is an error if m lacks one of
// the outputs.
func cut(m *onnx.Model, outputs ...string) (*onnx.Model, error) {
	part := onnx.Clone(m)
	g := part.Graph
	g.Outputs = nil
	for _, name := range outputs {
		v, ok := m.Graph.Output(name)
		if !ok {
			return nil, fmt.Errorf("the model has no output %q", name)
		}
		g.Outputs = append(g.Outputs, v)
	}
	pass.RemoveUnused(g)
	read := map[string]bool{}
	for _, n := range g.Nodes {
		for _, in := range n.Inputs {
			read[in] = true
		}
	}
	g.Inputs = slices.DeleteFunc(g.Inputs, func(v onnx.ValueInfo) bool { return !read[v.Name] })
	return part, check.Model(part)
}
