package train

import (
	"slices"

	"fmp/onnx"
)

// Weight is an initializer that training can change.
type Weight struct {
	Name  string
	Shape []int
	// Nodes are the names of the nodes that read it: exporters fold normalisations into weights
	// without a name of their own.
	Nodes []string
}

// settings lists the operators whose inputs but the first say how they work.
var settings = []string{"Clip", "Dropout", "Pad", "Resize", "Upsample", "TopK", "Slice", "Tile",
	"QuantizeLinear", "DequantizeLinear"}

// Weights returns the initializers that a value of the graph depends on and that training can
// change, in the order of the nodes: those of float32 with more than one element. Left out are the
// running statistics of batch normalisations, bounds and scales of operators, and numbers that
// shift and scale images before the first weight. Nodes must be in topological order, as ONNX asks
// for.
func Weights(g *onnx.Graph, output string) []Weight {
	used := map[string]bool{output: true}
	for _, n := range slices.Backward(g.Nodes) {
		if slices.ContainsFunc(n.Outputs, func(o string) bool { return used[o] }) {
			for _, in := range n.Inputs {
				used[in] = true
			}
		}
	}
	var out []Weight
	at, weighted := map[string]int{}, map[string]bool{}
	for _, n := range g.Nodes {
		if !slices.ContainsFunc(n.Outputs, func(o string) bool { return used[o] }) {
			continue
		}
		depends := false
		for i, in := range n.Inputs {
			depends = depends || weighted[in]
			if t := g.Initializers[in]; t == nil || t.DType != onnx.Float32 || t.Len() < 2 ||
				!learnt(n, i, weighted) {
				continue
			}
			depends = true
			if _, have := at[in]; !have {
				at[in] = len(out)
				out = append(out, Weight{Name: in, Shape: g.Initializers[in].Shape})
			}
			out[at[in]].Nodes = append(out[at[in]].Nodes, n.Name)
		}
		for _, o := range n.Outputs {
			weighted[o] = depends
		}
	}
	return out
}

// learnt reports whether input i of a node, an initializer, is a weight.
func learnt(n *onnx.Node, i int, weighted map[string]bool) bool {
	switch n.Op {
	case "BatchNormalization":
		return i == 1 || i == 2
	case "Add", "Sub", "Mul", "Div": // before the first weight it is preprocessing
		return weighted[n.Input(1-i)]
	}
	return i == 0 || !slices.Contains(settings, n.Op)
}
