package shape

import (
	"math"
	"slices"

	"fmp/onnx"
	"fmp/onnx/internal/kernel"
	"fmp/onnx/op"
)

// fold computes a node whose inputs are all constants with the pure engine's kernel, so that a
// value computed from constants is known. Results of more than limit elements, and work beyond the
// budget, are left. An error of the kernel, or a result of another shape than the rule's, leaves
// the facts as they are. The budget is paid before the kernel runs, by bytes of the results and by
// the work.
func (c *call) fold(limit int) {
	shapes := make([][]int, len(c.out))
	bytes, need := 0.0, false
	for i, f := range c.out {
		if c.node.Outputs[i] == "" {
			continue
		}
		shape, n, ok := f.sizes()
		if !ok || n > limit || f.dtype == onnx.Undefined {
			return
		}
		shapes[i] = shape
		bytes += float64(n) * float64(max(f.dtype.Size(), 1))
		// A value that its rule already knows as a tensor, as Constant's, is not computed again.
		need = need || f.tensor == nil
	}
	if !need || random[c.node.Op] {
		return
	}
	in := make([]*onnx.Tensor, len(c.in))
	for i, f := range c.in {
		if f != nil {
			in[i] = f.constant()
		}
	}
	if !defined(c, in) || !c.inf.budget.Spend(bytes, c.work()) {
		return
	}
	out, err := kernel.Evaluate(c.node, c.opset, in)
	if err != nil {
		return // the engine that runs the model says what is wrong
	}
	for i, t := range out {
		if t == nil {
			continue
		}
		if t.DType != c.out[i].dtype || len(t.Shape) != len(shapes[i]) {
			return
		}
		for k, d := range t.Shape {
			if d != shapes[i][k] {
				return
			}
		}
	}
	for i, t := range out {
		if t != nil {
			c.out[i] = tensorFact(t)
		}
	}
}

// weigh notes the cost of a node whose operands are the same in every run. Only ten are listed, so
// that an error stays readable, and a node within a loop once. A node over the budget is noted and
// not paid for, so that later ones are judged by themselves.
func (c *call) weigh() {
	bytes := 0.0
	for i, f := range c.out {
		if c.node.Outputs[i] == "" {
			continue
		}
		_, n, ok := f.sizes()
		if !ok {
			return
		}
		bytes += float64(n) * float64(max(f.dtype.Size(), 1))
	}
	work := c.work()
	if !c.inf.load.budget.Spend(bytes, work) && len(c.inf.load.left) < 10 &&
		!slices.ContainsFunc(c.inf.load.left,
			func(h Heavy) bool { return h.Node == c.node.Label() }) {
		c.inf.load.left = append(c.inf.load.left, Heavy{c.node.Label(), bytes, work})
	}
	for _, f := range c.out {
		f.fixed = true
	}
}

// sizes is a fact's shape and number of elements where they are known. Not ok also covers a number
// of elements beyond onnx.MaxElements.
func (f *fact) sizes() (shape []int, n int, ok bool) {
	if f == nil || f.shape == nil {
		return nil, 0, false
	}
	shape = make([]int, len(f.shape))
	for i, e := range f.shape {
		v, known := e.value()
		if !known || v < 0 {
			return nil, 0, false
		}
		shape[i] = v
	}
	n, err := onnx.Elements(shape)
	return shape, n, err == nil
}

// random lists the operators that give another result each time.
var random = map[string]bool{
	"RandomNormal": true, "RandomUniform": true, "RandomNormalLike": true,
	"RandomUniformLike": true, "Multinomial": true, "Bernoulli": true,
}

// defined reports whether the operator's definition settles the result: engines differ where it
// does not. Weights that are stored in half precision stay so, too: their Cast is how the file is
// kept small.
func defined(c *call, in []*onnx.Tensor) bool {
	// A training_mode as an input makes the mask random.
	if c.node.Op == "Dropout" {
		return len(in) < 3 || in[2] == nil
	}
	if c.node.Op != "Cast" || len(in) != 1 {
		return true
	}
	if d := in[0].DType; d == onnx.Float16 || d == onnx.BFloat16 {
		return false
	}
	to := c.out[0].dtype
	if to.IsFloat() || to == onnx.Bool || to == onnx.String {
		return true
	}
	// A float beyond the integers of the type has no defined result. The bounds are those of int32,
	// which hold for wider types too, and narrower ones are left to the kernel.
	low, high := -math.Exp2(31), math.Exp2(31)
	if to == onnx.Uint8 || to == onnx.Uint16 || to == onnx.Uint32 || to == onnx.Uint64 {
		low = -1
	}
	for i := 0; in[0].DType.IsFloat() && i < in[0].Len(); i++ {
		if x := in[0].At(i); !(x > low && x < high) {
			return false
		}
	}
	return true
}

// work is about how many elementary operations a node takes, or more: infinite where its shapes are
// not known. Each element of input and output counts eight operations, for functions such as exp.
func (c *call) work() float64 {
	sized := op.Sized{Node: c.node, Attrs: c.attrs}
	var in, out float64
	for _, f := range c.in {
		s := size(f)
		sized.In, in = append(sized.In, s), in+s.Count
	}
	for i, f := range c.out {
		if c.node.Outputs[i] != "" {
			s := size(f)
			sized.Out, out = append(sized.Out, s), out+s.Count
		}
	}
	if Moves(c.node.Op) || c.node.Op == "Identity" || c.node.Op == "Cast" {
		return in + out
	}
	w := 8 * (in + out)
	switch c.node.Op {
	case "NonMaxSuppression", "Resize", "LRN", "Scan", "Loop", "If":
		w = (in + out) * max(1, in) // data, graphs or attributes tell how much
	}
	return max(w, 2*sized.Work()) // a multiply-add is two operations
}

// size is a fact's size: infinite where it is not known, and none where there is no fact.
func size(f *fact) op.Size {
	if f == nil {
		return op.Size{}
	}
	shape, n, ok := f.sizes()
	if !ok {
		return op.Size{Count: math.Inf(1)}
	}
	s := op.Size{Count: float64(n)}
	for _, d := range shape {
		s.Dims = append(s.Dims, float64(d))
	}
	return s
}
