//go:build !386 && !arm

package onnxgo

import (
	"bytes"
	"cmp"
	"fmt"
	"path/filepath"
	"slices"
	"testing"

	decoder "github.com/owulveryck/onnx-go"

	"fmp/onnx"
	"fmp/onnx/internal/collection"
	"fmp/onnx/must"
	"fmp/onnx/pass"
	"fmp/onnx/serde"
)

// decodable reports whether onnx-go reads a tensor faithfully.
func decodable(t *onnx.Tensor) bool {
	return slices.Contains([]onnx.DType{onnx.Float32, onnx.Float64, onnx.Int32, onnx.Int64}, t.DType) &&
		t.Len() > 0
}

// readable copies a model without all that onnx-go v0.5.0 does not read faithfully: declared shapes
// (it would allocate a tensor for each, without its dynamic axes), tensors of other types than four
// (it refuses most of them, and takes eight bytes for a boolean), tensors without elements, and
// domains. Nodes are as [Graph] has them.
func readable(m *onnx.Model) *onnx.Model {
	g := &onnx.Graph{Name: "onnx-go", Initializers: map[string]*onnx.Tensor{}}
	for _, v := range m.Graph.Inputs {
		g.Inputs = append(g.Inputs, onnx.ValueInfo{Name: v.Name})
	}
	for _, v := range m.Graph.Outputs {
		g.Outputs = append(g.Outputs, onnx.ValueInfo{Name: v.Name})
	}
	for name, t := range m.Graph.Initializers {
		if decodable(t) {
			g.Initializers[name] = t
		}
	}
	for i, n := range m.Graph.Nodes {
		c := &onnx.Node{Name: fmt.Sprintf("%s %d", n.Op, i), Op: n.Op, Inputs: n.Inputs,
			Outputs: n.Outputs}
		for len(c.Inputs) > 0 && c.Inputs[len(c.Inputs)-1] == "" {
			c.Inputs = c.Inputs[:len(c.Inputs)-1]
		}
		for _, a := range n.Attrs {
			if a.Kind != onnx.AttrTensor || decodable(a.Tensor) {
				c.Attrs = append(c.Attrs, a)
			}
		}
		slices.SortFunc(c.Attrs, func(a, b onnx.Attr) int { return cmp.Compare(a.Name, b.Name) })
		g.Nodes = append(g.Nodes, c)
	}
	return &onnx.Model{IR: m.IR, Opsets: map[string]int64{"": m.Opset()}, Graph: g}
}

// The second decoder reads the standard's own test models as ours does, wherever it reads them at
// all: nodes and weights have the same bytes when they are written again.
func TestReadAlike(t *testing.T) {
	paths := must.Get(filepath.Glob(filepath.Join(collection.Dir(t), "*", "*", "model.onnx")))(t)
	agreed := 0
	for _, path := range paths {
		m, err := serde.Load(path)
		if err != nil || pass.Inline(m) != nil {
			continue // sequences and the like, which package onnx does not hold
		}
		if slices.ContainsFunc(m.Graph.Nodes, func(n *onnx.Node) bool { return len(n.Subgraphs()) > 0 }) {
			continue // onnx-go does not know attributes that are graphs
		}
		own, g := readable(m), NewGraph()
		if decode(decoder.NewModel(g), must.Get(serde.Marshal(own))(t)) != "" {
			continue
		}
		for _, v := range g.values { // others stand for the inputs of operators without any
			v.fed = slices.ContainsFunc(own.Graph.Nodes,
				func(n *onnx.Node) bool { return slices.Contains(n.Inputs, v.name) })
		}
		other := must.Get(g.model(nil, m.Opset()))(t)
		other.IR, other.Producer = own.IR, ""
		for _, g := range []*onnx.Graph{own.Graph, other.Graph} {
			g.Inputs, g.Outputs = nil, nil
		}
		got, want := must.Get(serde.Marshal(other))(t), must.Get(serde.Marshal(own))(t)
		if !bytes.Equal(got, want) {
			t.Errorf("%s: onnx-go reads %q, and we %q", path, got, want)
		}
		agreed++
	}
	t.Logf("%d of %d models read alike", agreed, len(paths))
	if agreed < 1965 {
		t.Error("models that were read by both no longer are")
	}
}
