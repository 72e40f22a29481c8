package train

import (
	"maps"
	"math"
	"slices"

	"fmp/onnx"
	"fmp/onnx/pass"
)

// Weight is an initializer that training can change.
type Weight struct {
	Name  string
	Shape []int
	// Nodes are the names of the nodes that read it: exporters fold normalisations into weights
	// without a name of their own.
	Nodes []string
}

// settings lists the operators whose inputs but the first say how they work. A trained bound or
// scale would change the meaning of the operator and not its weights.
var settings = []string{"Clip", "Dropout", "Pad", "Resize", "Upsample", "TopK", "Slice", "Tile",
	"QuantizeLinear", "DequantizeLinear"}

// Weights returns the initializers that a value of the graph depends on and that training can
// change, in the order of the nodes: those of float32 with more than one element, also where only a
// graph within a node reads them. Left out are the running statistics of batch normalisations,
// bounds and scales of operators, numbers that shift and scale images before the first weight,
// those with a number that is not finite, and masks: two axes or more of only 0 and numbers of -100
// or less, or of only 0 and 1 where a node multiplies by the initializer itself. Nodes must be in
// topological order, as ONNX asks for.
func Weights(g *onnx.Graph, output string) []Weight {
	g = ownStatistics(g)
	c := collector{of: g.Initializers, at: map[string]int{}, weighted: map[string]bool{}}
	c.walk(g.Nodes, reached(g.Nodes, output))
	return c.out
}

// ownStatistics returns a graph whose batch normalisations share their running statistics with no
// other reader, else g. Exporters write equal tensors once: in a network that was never trained the
// variances are the weights, and training would move both. The graph given is not changed; nodes
// and tensors that differ are copies.
func ownStatistics(g *onnx.Graph) *onnx.Graph {
	readers, taken, maker := map[string]int{}, map[string]bool{}, g.Makers()
	g.AddNames(taken)
	for _, n := range g.Nodes {
		for _, in := range n.Reads() {
			readers[in]++
		}
	}
	for _, o := range g.Outputs {
		readers[o.Name]++
	}
	own := *g
	own.Nodes, own.Initializers = slices.Clone(g.Nodes), maps.Clone(g.Initializers)
	changed := false
	for at, n := range g.Nodes {
		if n.Op != "BatchNormalization" {
			continue
		}
		c := *n
		c.Inputs = slices.Clone(n.Inputs)
		for i := 3; i < len(c.Inputs); i++ {
			from := c.Inputs[i]
			for m := maker[from]; m != nil && m.Op == "Identity"; m = maker[from] {
				from = m.Input(0)
			}
			if t := g.Initializers[from]; t != nil && (from != c.Inputs[i] || readers[from] > 1) {
				c.Inputs[i], changed = pass.Unique(taken, from+"/own"), true
				own.Initializers[c.Inputs[i]] = t.Clone()
			}
		}
		own.Nodes[at] = &c
	}
	if !changed {
		return g
	}
	return &own
}

// reached returns the values that some values depend on, and these.
func reached(nodes []*onnx.Node, values ...string) map[string]bool {
	used := map[string]bool{}
	for _, v := range values {
		used[v] = true
	}
	for _, n := range slices.Backward(nodes) {
		if slices.ContainsFunc(n.Outputs, func(o string) bool { return used[o] }) {
			for _, in := range n.Reads() {
				used[in] = true
			}
		}
	}
	return used
}

// collector finds weights.
type collector struct {
	of       map[string]*onnx.Tensor
	out      []Weight
	at       map[string]int
	weighted map[string]bool // values that depend on a weight
}

// walk takes the weights that nodes read, in their order, also in graphs within them. Nodes none of
// whose outputs are used are passed over. It takes one pass for each graph, as nodes stand in
// topological order.
func (c *collector) walk(nodes []*onnx.Node, used map[string]bool) {
	for _, n := range nodes {
		if !slices.ContainsFunc(n.Outputs, func(o string) bool { return used[o] }) {
			continue
		}
		depends := false
		for i, in := range n.Inputs {
			if learnt(n, i, c.weighted) {
				c.read(n, in)
			}
			depends = depends || c.weighted[in]
		}
		for _, b := range n.Subgraphs() {
			for _, v := range b.Inputs { // a turn may follow one that has weights
				c.weighted[v.Name] = true
			}
			outputs := make([]string, len(b.Outputs))
			for i, o := range b.Outputs {
				outputs[i] = o.Name
			}
			c.walk(b.Nodes, reached(b.Nodes, outputs...))
			for _, o := range outputs {
				c.read(n, o)
				depends = depends || c.weighted[o]
			}
		}
		for _, o := range n.Outputs {
			c.weighted[o] = depends
		}
	}
}

// read takes a value that a node reads as a weight where it can be one.
func (c *collector) read(n *onnx.Node, name string) {
	t := c.of[name]
	if t == nil || t.DType != onnx.Float32 || t.Len() < 2 || masks(n.Op, t) {
		return
	}
	if _, have := c.at[name]; !have {
		c.at[name] = len(c.out)
		c.out = append(c.out, Weight{Name: name, Shape: t.Shape})
	}
	w := &c.out[c.at[name]]
	w.Nodes, c.weighted[name] = append(w.Nodes, n.Name), true
}

// learnt reports whether input i of a node, an initializer, is a weight. Inputs 1 and 2 of a batch
// normalisation are scale and bias, 3 and 4 the running statistics.
func learnt(n *onnx.Node, i int, weighted map[string]bool) bool {
	switch n.Op {
	case "BatchNormalization":
		return i == 1 || i == 2
	case "Add", "Sub", "Mul", "Div": // before the first weight it is preprocessing
		return weighted[n.Input(1-i)]
	}
	return i == 0 || !slices.Contains(settings, n.Op)
}

// masks reports whether a tensor closes places, as a causal mask does, or has a number that is not
// finite: weight decay alone would turn -Inf into NaN. Nodes may move a mask's elements before one
// adds it, and no weight looks like one.
func masks(op string, t *onnx.Tensor) bool {
	zeros, ones, closed := 0, 0, 0
	for _, v := range t.F32() {
		if f := float64(v); math.IsNaN(f) || math.IsInf(f, 0) {
			return true
		}
		switch {
		case v == 0:
			zeros++
		case v == 1:
			ones++
		case v <= -100: // the weakest in use, of windows that are shifted
			closed++
		}
	}
	if zeros == 0 || zeros == t.Len() {
		return false
	}
	return op == "Mul" && zeros+ones == t.Len() || len(t.Shape) > 1 && zeros+closed == t.Len()
}
