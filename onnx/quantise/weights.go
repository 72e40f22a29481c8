package quantise

import (
	"fmt"
	"slices"

	"fmp/onnx"
	"fmp/onnx/check"
	"fmp/onnx/pass"
)

// Block is the number of weights of 4 bits that share a scale.
const Block = 32

// Weights returns a copy of m whose products read constant weights of 8 or 4 bits, and the number
// of tensors that are stored so, of at least as many elements as least says. Eight bits have a
// scale for each output; four one for each [Block] weights of an output, and need operator set 21,
// to which the model is upgraded. Products are computed in float32 as before, so that no images are
// needed.
func Weights(m *onnx.Model, bits, least int) (*onnx.Model, int, error) {
	if bits != 8 && bits != 4 {
		return nil, 0, fmt.Errorf("quantising weights: %d bits; allowed are 8 and 4", bits)
	}
	opset := 13
	if bits == 4 {
		opset = 21
	}
	c, _, err := ready(m, opset)
	if err != nil {
		return nil, 0, fmt.Errorf("quantising weights: %w", err)
	}
	s, g := &static{}, c.Graph
	s.see(c)
	// Weights that others read stay in float32 for them: to store them in few bits too would take
	// more.
	uses := readers(g)
	for _, node := range g.Nodes {
		if s.weights(node) != nil {
			uses[node.Inputs[1]]--
		}
	}
	var before []*onnx.Node
	to, tensors := newConstants(g), map[string]bool{}
	for _, node := range g.Nodes {
		w := s.weights(node)
		if w == nil || w.Len() < least || uses[node.Inputs[1]] > 0 {
			continue
		}
		tensors[node.Inputs[1]] = true
		var nodes []*onnx.Node
		nodes, node.Inputs[1] = to.stored(node, w, bits)
		before = append(before, nodes...)
	}
	n := len(tensors)
	if n == 0 {
		return nil, 0, fmt.Errorf("quantising weights: no convolution or product of the main graph has "+
			"constant float32 weights of %d elements or more that products alone read", least)
	}
	g.Nodes = slices.Concat(before, g.Nodes)
	pass.RemoveUnused(g)
	return c, n, check.Model(c)
}

// stored stores the weights of a product, and returns the nodes that read them, and their output.
// Eight bits are taken too where an output has fewer weights than a block.
func (c *constants) stored(n *onnx.Node, w *onnx.Tensor, bits int) ([]*onnx.Node, string) {
	base := n.Inputs[1]
	axis := outputs(n, w)
	rows := w.Len() / w.Shape[axis] // weights of an output
	if bits == 8 || rows < Block {
		q, scales := signed(w, axis, 8)
		d, out := c.dequantise(base, onnx.NewTensor(q, w.Shape...), onnx.Vector(scales...),
			onnx.Vector(make([]int8, len(scales))...), onnx.IntAttr("axis", axis))
		return []*onnx.Node{d}, out
	}
	flat := []int{w.Shape[0], rows} // of a convolution: blocks run over input channels and window
	along := 1 - min(axis, 1)
	if len(w.Shape) == 2 || axis > 0 {
		flat, along = w.Shape, len(w.Shape)-2
		if axis == 0 {
			along = 1
		}
	}
	q, scales := blocks(onnx.NewTensor(w.F32(), flat...), along)
	d, out := c.dequantise(base, q, scales, nil, onnx.IntAttr("axis", along),
		onnx.IntAttr("block_size", Block))
	if slices.Equal(flat, w.Shape) {
		return []*onnx.Node{d}, out
	}
	whole, to := c.names.add(base+"/shape"), c.names.add(base+"/whole")
	dims := make([]int64, len(w.Shape))
	for i, k := range w.Shape {
		dims[i] = int64(k)
	}
	c.g.Initializers[whole] = onnx.Vector(dims...)
	return []*onnx.Node{d, {Name: c.names.add(base + "/reshape"), Op: "Reshape",
		Inputs: []string{out, whole}, Outputs: []string{to}}}, to
}

// blocks stores weights in 4 bits, with a scale for each block along an axis. The last block of an
// axis may be shorter; scales are [.., count, ..] and the zero point is 0.
func blocks(w *onnx.Tensor, axis int) (q, scales *onnx.Tensor) {
	const most = 7
	inner := 1
	for _, d := range w.Shape[axis+1:] {
		inner *= d
	}
	n := w.Shape[axis]
	count := (n + Block - 1) / Block
	shape := slices.Clone(w.Shape)
	shape[axis] = count
	scales = onnx.ZerosF32(shape...)
	data := make([]int8, w.Len())
	part := make([]float32, 0, Block)
	// Scale number `at` is [o, b, i] of [outer, count, inner]: block b of the line (o, i).
	for at := range scales.F32() {
		i, b, o := at%inner, at/inner%count, at/inner/count
		first := (o*n+b*Block)*inner + i
		last := (o*n+min(n, (b+1)*Block))*inner + i
		part = part[:0]
		for k := first; k < last; k += inner {
			part = append(part, w.F32()[k])
		}
		s := scaleOf(part, most, true)
		scales.F32()[at] = s
		for k := first; k < last; k += inner {
			data[k] = nearest(w.F32()[k], s, most)
		}
	}
	return &onnx.Tensor{DType: onnx.Int4, Shape: w.Shape, Data: data}, scales
}
