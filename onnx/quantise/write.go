package quantise

import (
	"crypto/sha256"
	"encoding/binary"
	"fmt"
	"maps"
	"math"
	"slices"

	"fmp/onnx"
	"fmp/onnx/pass"
)

var (
	// movers give elements of their first input, and share its quanta.
	movers = []string{"MaxPool", "Reshape", "Flatten", "Transpose", "Squeeze", "Unsqueeze", "Slice",
		"DepthToSpace", "SpaceToDepth", "Identity"}
	// others than products that compute in bytes, or that runtimes fuse with bytes around them.
	others = []string{"Add", "Mul", "Concat", "AveragePool", "GlobalAveragePool", "Sigmoid",
		"HardSigmoid", "HardSwish", "Tanh", "LeakyRelu", "Elu", "Gelu", "Erf", "Softplus"}
)

// writer writes a quantised copy of a model. A value is quantised once behind its maker, and all
// readers in the main graph get the same float32. made gives the maker of a value, and uses the
// number of its readers. Nodes of before stand in front of all others, and those of after behind
// their value's maker.
type writer struct {
	*static
	*constants
	float  map[*onnx.Node]bool // layers that stay as they are
	made   map[string]*onnx.Node
	uses   map[string]int
	within map[string]bool   // values that graphs within nodes read
	ranges map[string]string // the value whose range a quantised value has
	before []*onnx.Node      // that read constants and inputs
	after  map[string][]*onnx.Node
}

// build returns the model with all layers in bytes but some, given by their places. s.model is not
// changed; places are those of its nodes.
func (s *static) build(float map[int]bool) *onnx.Model {
	m := onnx.Clone(s.model)
	g := m.Graph
	g.Values = nil
	w := &writer{static: s, constants: newConstants(g), float: map[*onnx.Node]bool{},
		made: g.Makers(), uses: readers(g), within: map[string]bool{},
		ranges: map[string]string{}, after: map[string][]*onnx.Node{}}
	for i := range float {
		w.float[g.Nodes[i]] = true
	}
	for _, n := range g.Nodes {
		for _, sub := range n.Subgraphs() {
			for _, v := range sub.Captures() {
				w.within[v] = true
			}
		}
	}
	for _, n := range g.Nodes {
		w.mark(n)
	}
	// A rectifier that bytes make needless leaves the name of its output to the node before it.
	gone := map[*onnx.Node]bool{}
	for _, n := range g.Nodes {
		gone[n] = w.absorb(n)
	}
	g.Nodes = slices.DeleteFunc(g.Nodes, func(n *onnx.Node) bool { return gone[n] })
	reads := map[string]string{}
	// Values are gone through in order, so that the same model gives the same file.
	for _, v := range slices.Sorted(maps.Keys(w.ranges)) {
		reads[v] = w.pair(v)
	}
	for _, n := range g.Nodes {
		if t := w.weights(n); t != nil && !w.float[n] && reads[n.Inputs[0]] != "" {
			w.layer(n, t)
		}
		for k, in := range n.Inputs {
			if to := reads[in]; to != "" {
				n.Inputs[k] = to
			}
		}
	}
	nodes := w.before
	for _, n := range g.Nodes {
		nodes = append(nodes, n)
		for _, o := range n.Outputs {
			nodes = append(nodes, w.after[o]...)
		}
	}
	g.Nodes = nodes
	pass.RemoveUnused(g)
	return m
}

// mark notes the values around a node that computes in bytes. A mover's output has the quanta of
// its input, so that no error is added there.
func (w *writer) mark(n *onnx.Node) {
	if n.Domain != "" || w.float[n] || len(n.Outputs) != 1 {
		return
	}
	out := n.Outputs[0]
	switch in := n.Input(0); {
	case slices.Contains(movers, n.Op):
		if from, ok := w.ranges[in]; ok && w.can(out) {
			w.ranges[out] = from
		}
	case w.weights(n) != nil:
		w.markAll(in, w.last(n))
	case n.Op == "MatMul" || slices.Contains(others, n.Op):
		values := append(slices.Clone(n.Inputs), w.last(n))
		for i, v := range values {
			if i < len(n.Inputs) && !w.can(v) || // a constant, or text
				n.Op != "MatMul" && w.spans[v] != nil && w.spans[v].coarse(w.options) {
				return
			}
		}
		w.markAll(values...)
	}
}

// markAll gives each value a range of its own, where it has none yet.
func (w *writer) markAll(values ...string) {
	for _, v := range values {
		if w.can(v) && w.ranges[v] == "" {
			w.ranges[v] = v
		}
	}
}

// last returns the value behind a node and the rectifier that alone reads it: bytes that end at 0
// rectify by themselves.
func (w *writer) last(n *onnx.Node) string {
	if r := w.rectifier(n); r != nil {
		return r.Outputs[0]
	}
	return n.Outputs[0]
}

// rectifier returns a Relu, or a Clip from 0 to a constant, that alone reads a product or sum.
// Graphs within nodes read no bytes, and so a node rectifies the values that they take.
func (w *writer) rectifier(n *onnx.Node) *onnx.Node {
	if w.weights(n) == nil && n.Op != "Add" || w.uses[n.Outputs[0]] != 1 {
		return nil
	}
	for _, r := range w.g.Nodes {
		if r.Domain != "" || r.Input(0) != n.Outputs[0] || !w.can(r.Outputs[0]) || w.within[r.Outputs[0]] {
			continue
		}
		low := constant(w.g, r.Input(1))
		fixed := r.Input(2) == "" || constant(w.g, r.Input(2)) != nil // for the range to stand in for it
		if r.Op == "Relu" || r.Op == "Clip" && fixed && low != nil && low.Len() == 1 && low.At(0) == 0 {
			return r
		}
	}
	return nil
}

// absorb reports whether n rectifies a product or sum in bytes, whose output takes its place.
func (w *writer) absorb(n *onnx.Node) bool {
	if n.Domain != "" || n.Op != "Relu" && n.Op != "Clip" ||
		w.ranges[n.Outputs[0]] != n.Outputs[0] {
		return false
	}
	from := w.made[n.Inputs[0]]
	if from == nil || from.Domain != "" || w.float[from] || w.rectifier(from) != n {
		return false
	}
	from.Outputs = n.Outputs
	return true
}

// pair quantises a value, and returns the float32 that its readers get. Scale and zero point are
// scalars, one for the whole value. That is (q - zero) scale with q = saturate(round(v / scale) +
// zero), as QuantizeLinear has it.
func (w *writer) pair(v string) string {
	scale, zero := quanta(w.spans[w.ranges[v]].bounds(w.options))
	s, z := w.names.add(v+"/scale"), w.names.add(v+"/zero")
	w.g.Initializers[s], w.g.Initializers[z] = onnx.Scalar(scale), onnx.Scalar(zero)
	q, d := w.names.add(v+"/bytes"), w.names.add(v+"/read")
	nodes := []*onnx.Node{{Name: w.names.add(v + "/quantise"), Op: "QuantizeLinear",
		Inputs: []string{v, s, z}, Outputs: []string{q}},
		{Name: w.names.add(v + "/dequantise"), Op: "DequantizeLinear", Inputs: []string{q, s, z},
			Outputs: []string{d}}}
	if w.made[v] == nil {
		w.before = append(w.before, nodes...)
	} else {
		w.after[v] = nodes
	}
	return d
}

// layer stores the weights and the bias of a product in integers. It is called before the node's
// inputs are renamed.
func (w *writer) layer(n *onnx.Node, t *onnx.Tensor) {
	if n.Op == "MatMul" && len(t.Shape) > 2 { // the ONNX Runtime takes no scales of the columns of a stack
		q, scales := signed(onnx.NewTensor(t.F32(), 1, t.Len()), 0, w.options.Bits)
		n.Inputs[1] = w.dequantised(n.Inputs[1], onnx.NewTensor(q, t.Shape...),
			onnx.Scalar(scales[0]), onnx.Scalar(int8(0)))
		return
	}
	axis := outputs(n, t)
	q, scales := signed(t, axis, w.options.Bits)
	x, _ := quanta(w.spans[w.ranges[n.Inputs[0]]].bounds(w.options))
	// int32 biases have the scale of the sums, x_scale times w_scale of their channel, and zero
	// point 0.
	bias := constant(w.g, n.Input(2))
	if bias != nil && (bias.DType != onnx.Float32 || len(bias.Shape) != 1 ||
		bias.Len() != len(scales)) {
		bias = nil // it stays in float32
	}
	if bias != nil {
		// Quanta of a channel of tiny weights would leave its bias beyond int32: they are made
		// larger.
		for c, b := range bias.F32() {
			// 2^29 leaves the sum of products and bias two bits below the ends of int32.
			if least := math.Abs(float64(b)) / (float64(x) * (1 << 29)); float64(scales[c]) < least {
				each(t, axis, c, func(i int) {
					q[i] = int8(math.RoundToEven(float64(q[i]) * float64(scales[c]) / least))
				})
				scales[c] = float32(least)
			}
		}
		b, sums := make([]int32, len(scales)), make([]float32, len(scales))
		for c, v := range bias.F32() {
			sums[c] = x * scales[c]
			b[c] = int32(math.RoundToEven(float64(v) / float64(sums[c])))
		}
		n.Inputs[2] = w.dequantised(n.Inputs[2], onnx.Vector(b...), onnx.Vector(sums...),
			onnx.Vector(make([]int32, len(b))...), onnx.IntAttr("axis", 0))
	}
	n.Inputs[1] = w.dequantised(n.Inputs[1], onnx.NewTensor(q, t.Shape...), onnx.Vector(scales...),
		onnx.Vector(make([]int8, len(scales))...), onnx.IntAttr("axis", axis))
}

// dequantised stores a constant in integers, and returns the float32 that it is read as.
func (w *writer) dequantised(base string, q, scale, zero *onnx.Tensor, attrs ...onnx.Attr) string {
	n, d := w.dequantise(base, q, scale, zero, attrs...)
	w.before = append(w.before, n)
	return d
}

// constants are added to a graph in integers.
type constants struct {
	g     *onnx.Graph
	names names
	kept  map[string][]string // inputs of the nodes that read a constant of some scales
}

func newConstants(g *onnx.Graph) *constants {
	return &constants{g, newNames(g), map[string][]string{}}
}

// dequantise adds a constant in integers to a graph, once for all readers of the same scales, and
// returns a node that reads it, and its output.
func (c *constants) dequantise(base string, q, scale, zero *onnx.Tensor,
	attrs ...onnx.Attr) (*onnx.Node, string) {
	raw, _ := binary.Append(nil, binary.LittleEndian, scale.F32()) // numbers are always written
	// A weight or bias that two layers share may have other scales in each.
	key := fmt.Sprint(base, attrs, sha256.Sum256(raw))
	in := c.kept[key]
	if in == nil {
		in = []string{c.names.add(base + "/integers"), c.names.add(base + "/scales")}
		c.g.Initializers[in[0]], c.g.Initializers[in[1]] = q, scale
		if zero != nil {
			in = append(in, c.names.add(base+"/zeros"))
			c.g.Initializers[in[2]] = zero
		}
		c.kept[key] = in
	}
	d := c.names.add(base + "/read")
	return &onnx.Node{Name: c.names.add(base + "/dequantise"), Op: "DequantizeLinear",
		Inputs: slices.Clone(in), Outputs: []string{d}, Attrs: attrs}, d
}

// outputs returns the axis of a product's weights that counts its outputs. It is the first axis of
// a convolution, [M, C/group, k...], and the last of a matrix [K, N], unless a Gemm transposes it.
func outputs(n *onnx.Node, w *onnx.Tensor) int {
	if trans, ok := n.Attr("transB"); n.Op == "MatMul" || n.Op == "Gemm" &&
		(!ok || trans.Int == 0) {
		return len(w.Shape) - 1
	}
	return 0
}
