package models

import (
	"fmt"

	"fmp/onnx"
	"fmp/onnx/check"
	"fmp/onnx/pass"
	"fmp/onnx/shape"
)

// The values between extractor and embedding in a fused client graph: the labelled points [1, n, dx+C], and which of
// them count [1, n].
const (
	ValueSet     = "set"
	ValuePresent = "present"
)

// SplitClient cuts a fused client graph in two: images and labels to set and present, and these to points and masses.
// Run in two parts the extractor may take a few images at a time. Both are nil where the graph, somebody else's
// perhaps, lacks the values to cut at.
func SplitClient(m *onnx.Model, f Manifest) (front, embedding *onnx.Model) {
	n := onnx.Symbolic("n")
	cut := []onnx.ValueInfo{
		{Name: ValueSet, DType: onnx.Float32, Shape: []onnx.Dim{onnx.Known(1), n, onnx.Known(f.Dx + f.C)}},
		{Name: ValuePresent, DType: onnx.Float32, Shape: []onnx.Dim{onnx.Known(1), n}},
	}
	made := 0
	embedding = onnx.Clone(m)
	var rest []*onnx.Node
	for _, node := range embedding.Graph.Nodes {
		if len(node.Outputs) == 1 && (node.Outputs[0] == ValueSet || node.Outputs[0] == ValuePresent) {
			made++
			continue
		}
		rest = append(rest, node)
	}
	if made != len(cut) {
		return nil, nil
	}
	embedding.Graph.Nodes, embedding.Graph.Inputs = rest, cut
	pass.RemoveUnused(embedding.Graph)
	front = onnx.Clone(m)
	front.Graph.Outputs = cut
	pass.RemoveUnused(front.Graph)
	return front, embedding
}

// FeatureGraph is the part of a fused client graph that needs no labels:
//
//	images   [n, H, W, Ch] uint8   raw pixels
//	features [n, dx] float32       what the extractor makes of them, standardised where the graph does that
func FeatureGraph(m *onnx.Model, f Manifest) (*onnx.Model, error) {
	maker := map[string]*onnx.Node{}
	for _, n := range m.Graph.Nodes {
		for _, o := range n.Outputs {
			maker[o] = n
		}
	}
	// set is the features and the labels side by side, with one axis more.
	node := maker[ValueSet]
	for node != nil && (node.Op == "Identity" || node.Op == "Unsqueeze") {
		node = maker[node.Input(0)]
	}
	images, ok := m.Graph.Input("images")
	if node == nil || node.Op != "Concat" || len(node.Inputs) != 2 || !ok {
		return nil, fmt.Errorf("%s: there is no %q to cut it at; want a graph that fmp fuse made", f.name(), ValueSet)
	}
	out := onnx.Clone(m)
	const name = "features"
	if from := node.Inputs[0]; from != name {
		pass.Rename(out.Graph, map[string]string{name: "client/" + name, from: name})
	}
	out.Graph.Name = "features"
	out.Graph.Inputs = []onnx.ValueInfo{images}
	out.Graph.Outputs = []onnx.ValueInfo{{Name: name, DType: onnx.Float32, Shape: []onnx.Dim{images.Shape[0], onnx.Known(f.Dx)}}}
	pass.RemoveUnused(out.Graph)
	if err := shape.Infer(out); err != nil {
		return nil, fmt.Errorf("%s: cut at its features: %w", f.name(), err)
	}
	return out, check.Model(out)
}
