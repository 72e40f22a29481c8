package train

import (
	"fmt"
	"math"
	"slices"

	"fmp/onnx"
	"fmp/onnx/check"
	"fmp/onnx/internal/try"
	"fmp/onnx/op"
	"fmp/onnx/pass"
	"fmp/onnx/shape"
)

// after lists the operators that may stand between a classifier's last layer and its output.
var after = []string{"Identity", "Softmax", "LogSoftmax", "Sigmoid", "Flatten", "Squeeze",
	"Reshape", "Relu", "GlobalAveragePool", "ReduceMean", "Cast"}

// movers lists the operators that give the numbers of their first input, in another order, form or
// precision.
var movers = []string{"Identity", "Cast", "Flatten", "Squeeze", "Unsqueeze", "Reshape", "Transpose"}

// links lists the last operators whose input a loss takes for scores.
var links = map[string][]string{CrossEntropy: {"Softmax", "LogSoftmax"}, Binary: {"Sigmoid"}}

// scores has the last operator of an output pass its input on where the loss has that operator in
// it: a Softmax or LogSoftmax over all classes for cross-entropy, a Sigmoid for binary. One loss
// with the operator of the other is an error: the model that is written would not be the one that
// was trained. The loss holds that operator itself in a form that does not overflow.
func scores(m *onnx.Model, out onnx.ValueInfo, loss string) error {
	maker := m.Graph.Makers()
	n := maker[out.Name]
	for n != nil && slices.Contains(movers, n.Op) {
		n = maker[n.Input(0)]
	}
	if n == nil || links[loss] == nil {
		return nil
	}
	if !slices.Contains(links[loss], n.Op) {
		for _, fitting := range LossNames {
			if slices.Contains(links[fitting], n.Op) {
				return fmt.Errorf("output %q: loss %s has a %s of its own in it, and a %s makes the "+
					"output; train with loss %s, or a model without the %s", out.Name, loss,
					links[loss][0], n.Op, fitting, n.Op)
			}
		}
		return nil
	}
	if loss == CrossEntropy && len(out.Shape) == 2 && together(m, n) != out.Shape[1].Size { // groups, or the batch
		return nil
	}
	n.Op, n.Attrs = "Identity", nil
	return nil
}

// together is how many numbers a softmax makes sum to 1; 0 where that is not known.
func together(m *onnx.Model, n *onnx.Node) int {
	types, err := shape.Types(m)
	dims, opset := types[n.Outputs[0]].Shape, onnx.ClampInt(m.Opset())
	axis := op.Attrs(n, opset).Int("axis")
	if axis < 0 {
		axis += len(dims)
	}
	if err != nil || axis < 0 || axis >= len(dims) {
		return 0
	}
	if dims = dims[axis:]; opset >= 13 { // older ones normalise the axes behind it too
		dims = dims[:1]
	}
	count := 1
	for _, d := range dims {
		if !d.IsKnown() {
			return 0
		}
		count *= d.Size
	}
	return count
}

// lastLayer returns the linear layer behind an output, its weight, and the Add of its bias where
// that is a node of its own; nil where there is none. A convolution counts where its window is one
// pixel, which makes it a linear layer of each place. First inputs alone are followed back, and
// through the operators in after alone, but for the Add of a bias.
func lastLayer(g *onnx.Graph, output string) (layer, bias *onnx.Node, weight *onnx.Tensor) {
	maker := g.Makers()
	n := maker[output]
	for n != nil && slices.Contains(after, n.Op) {
		n = maker[n.Input(0)]
	}
	if n != nil && n.Op == "Add" {
		for i := range 2 {
			if m := maker[n.Input(i)]; m != nil && m.Op == "MatMul" &&
				g.Initializers[n.Input(1-i)] != nil {
				n, bias = m, n
				break
			}
		}
	}
	if n == nil {
		return nil, nil, nil
	}
	w := g.Initializers[n.Input(1)]
	if w == nil || w.DType != onnx.Float32 {
		return nil, nil, nil
	}
	switch {
	case n.Op == "MatMul" && len(w.Shape) == 2, n.Op == "Gemm" && !attr(n, "transA"):
	case n.Op == "Conv" && len(w.Shape) == 4 && w.Shape[2] == 1 && w.Shape[3] == 1:
	default:
		return nil, nil, nil
	}
	return n, bias, w
}

// attr reports whether an attribute is given and is not 0.
func attr(n *onnx.Node, name string) bool {
	a, ok := n.Attr(name)
	return ok && a.Int != 0
}

// NewHead returns the model with the last linear layer of an output (Gemm, MatMul or a 1x1 Conv,
// perhaps with a softmax behind it) replaced by a new one of the given number of classes, and the
// names of its weight and bias. With add the new layer comes behind the output, which must be
// [batch, features]. The weight is drawn from U(-1/√in, 1/√in) with the seed, the bias is zero. m
// is not changed. The bound is that of PyTorch's Linear for its weight.
func NewHead(m *onnx.Model, output string, classes int, add bool,
	seed uint64) (*onnx.Model, []string, error) {
	m = onnx.Clone(m)
	names, err := newHead(m, output, classes, add, seed)
	if err != nil {
		return nil, nil, fmt.Errorf("new head: output %q: %w", output, err)
	}
	return m, names, nil
}

// newHead changes m in place. The weights are uniform within ±1/√in for in features, and the bias
// begins at 0. On an error m may be changed in part, so that callers pass a copy.
func newHead(m *onnx.Model, output string, classes int, add bool, seed uint64) (names []string,
	err error) {
	defer try.Catch(&err)
	if classes < 1 || classes > 1<<20 {
		return nil, fmt.Errorf("%d classes; allowed are 1 to %d", classes, 1<<20)
	}
	try.Do(pass.Inline(m))
	g := m.Graph
	at := slices.IndexFunc(g.Outputs, func(v onnx.ValueInfo) bool { return v.Name == output })
	if at < 0 {
		return nil, fmt.Errorf("the model has no such output")
	}
	taken := map[string]bool{}
	g.AddNames(taken)
	names = []string{pass.Unique(taken, "head.weight"), pass.Unique(taken, "head.bias")}
	out := &g.Outputs[at]
	axis := max(0, len(out.Shape)-1) // of the classes
	var in int
	if add {
		if len(out.Shape) != 2 || !out.Shape[1].IsKnown() {
			return nil, fmt.Errorf("it is %v; a head can be put behind [batch, features] alone",
				*out)
		}
		in = out.Shape[1].Size
		features := pass.Unique(taken, output+"/features")
		// The output keeps its name, and the features get another.
		pass.Rename(g, map[string]string{output: features})
		g.Outputs[at].Name = output
		g.Nodes = append(g.Nodes,
			&onnx.Node{Name: "head", Op: "Gemm", Inputs: []string{features, names[0], names[1]},
				Outputs: []string{output}})
		g.Initializers[names[0]] = onnx.ZerosF32(in, classes)
	} else {
		layer, bias, w := lastLayer(g, output)
		if layer == nil {
			return nil, fmt.Errorf("no linear layer computes it; put a new one behind it (--head add)")
		}
		var shape []int
		old := w.Shape[len(w.Shape)-1]
		if layer.Op == "Conv" || attr(layer, "transB") {
			old = w.Shape[0]
		}
		switch {
		case layer.Op == "Conv":
			if in, shape = w.Shape[1], []int{classes, w.Shape[1], 1, 1}; len(out.Shape) == 4 {
				axis = 1
			}
			layer.Inputs = []string{layer.Input(0), names[0], names[1]}
		default:
			if in = w.Shape[0]; attr(layer, "transB") {
				in = w.Shape[1]
			}
			shape = []int{in, classes}
			linear(m, layer, bias, names, taken)
		}
		resizeTargets(g, layer, output, old, classes, taken)
		g.Initializers[names[0]] = onnx.ZerosF32(shape...)
	}
	g.Initializers[names[1]] = onnx.ZerosF32(classes)
	uniform(g.Initializers[names[0]], 1/math.Sqrt(float64(in)), seed, names[0])
	if axis < len(out.Shape) {
		out.Shape = slices.Clone(out.Shape)
		out.Shape[axis] = onnx.Known(classes)
	}
	pass.RemoveUnused(g)
	// Shapes of the old number of classes go, and are inferred anew.
	g.Values = nil
	try.Do(shape.Infer(m))
	if d := out.Shape; axis < len(d) && d[axis].IsKnown() && d[axis].Size != classes {
		return nil, fmt.Errorf("a node behind the last layer makes %v of %d classes; put a new layer "+
			"behind the output (--head add)", *out, classes)
	}
	return names, check.Model(m)
}

// linear makes a Gemm, or a MatMul and the Add of its bias, read the weight and the bias of the new
// layer. Tokens and the like stay a MatMul's: a Gemm takes matrices alone. A Gemm's weight is [in,
// classes], without transB.
func linear(m *onnx.Model, layer, bias *onnx.Node, names []string, taken map[string]bool) {
	types := try.Get(shape.Types(m))
	if layer.Op == "Gemm" || len(types[layer.Input(0)].Shape) == 2 {
		layer.Op, layer.Attrs = "Gemm", nil
		if layer.Inputs = []string{layer.Input(0), names[0], names[1]}; bias != nil {
			bias.Op, bias.Inputs = "Identity", []string{layer.Outputs[0]}
		}
		return
	}
	if bias == nil {
		bias = &onnx.Node{Name: names[1], Op: "Add", Outputs: layer.Outputs}
		layer.Outputs = []string{pass.Unique(taken, names[0]+"/product")}
		m.Graph.Nodes = slices.Insert(m.Graph.Nodes, slices.Index(m.Graph.Nodes, layer)+1, bias)
	}
	layer.Inputs[1], bias.Inputs = names[0], []string{layer.Outputs[0], names[1]}
}

// resizeTargets writes the new number of classes into the Reshapes between a layer and an output
// whose constant target ends in the old one; others may read the old target. A Reshape gets a copy
// of its own, and the tensor that others read stays.
func resizeTargets(g *onnx.Graph, layer *onnx.Node, output string, old, classes int,
	taken map[string]bool) {
	maker := g.Makers()
	for n := maker[output]; n != layer; n = maker[n.Input(0)] {
		to := g.Initializers[n.Input(1)]
		if n.Op != "Reshape" || to == nil || to.Len() == 0 || to.I64()[to.Len()-1] != int64(old) {
			continue
		}
		own := to.Clone()
		own.I64()[to.Len()-1] = int64(classes)
		n.Inputs[1] = pass.Unique(taken, n.Inputs[1])
		g.Initializers[n.Inputs[1]] = own
	}
}

// uniform draws a tensor's elements from U(-a, a). The stream is that of the tensor's name, so that
// other tensors do not shift it.
func uniform(t *onnx.Tensor, a float64, seed uint64, name string) {
	r := stream(seed, "init", name)
	for i := range t.F32() {
		t.F32()[i] = float32(a * (2*r.Float64() - 1))
	}
}
