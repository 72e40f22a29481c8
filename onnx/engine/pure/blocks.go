package pure

import (
	"reflect"
	"slices"

	"fmp/onnx"
	"fmp/onnx/internal/kernel"
	"fmp/onnx/op"
)

// Images of a batch are run some at a time through the first steps, whose values are large and
// whose weights are few, so that values stay in the caches; the steps after them take the whole
// batch. An operator takes part where each element of its output's first axis is a function of that
// element of its inputs alone, in the same order of arithmetic for any number of them. The first
// run of a batch shows the shapes by which this is decided; its result has the same bits.

// blocks is the division of the runs of one size of batch.
type blocks struct {
	shapes [][]int // of the inputs
	size   int     // images at a time
	cut    int     // steps that run so; 0: none
	later  []int   // by slot, the reads of steps from the cut on and of the caller
	kept   []int   // slots that steps before the cut make and that are read later
}

// The values of a step are counted once where they do not fit nearBytes, which a core's own caches
// hold, and farTimes where they do not fit a core's share of a shared cache.
const (
	nearBytes = 1 << 20
	farBytes  = 8 << 20
	farTimes  = 3
)

// inBlocks evaluates the steps as run does. The first run of a size goes undivided, is watched, and
// decides for those after it. One division is kept at a time.
func (s *session) inBlocks(in []*onnx.Tensor) error {
	n := images(in)
	if n < 2 {
		return s.run(in)
	}
	b := s.blocks
	if b == nil || !b.fit(in) {
		w := newWatch(s.plan, n)
		s.seen = w.step
		err := s.run(in)
		if s.seen = nil; err == nil {
			s.blocks = w.blocks(in, s.env.Threads)
		}
		return err
	}
	if b.cut == 0 {
		return s.run(in)
	}
	return s.divide(b, in, n)
}

// images returns the size that the first axes of all inputs share; 0 where they share none.
func images(in []*onnx.Tensor) int {
	n := 0
	for i, t := range in {
		if len(t.Shape) == 0 || i > 0 && t.Shape[0] != n {
			return 0
		}
		n = t.Shape[0]
	}
	return n
}

// fit reports whether the inputs have the shapes that the division is of.
func (b *blocks) fit(in []*onnx.Tensor) bool {
	return slices.EqualFunc(b.shapes, in,
		func(s []int, t *onnx.Tensor) bool { return slices.Equal(s, t.Shape) })
}

// divide runs the steps before the cut block by block, and those after it on the values of all
// blocks. Values that later steps read are collected in whole, in buffers of the pool.
func (s *session) divide(b *blocks, in []*onnx.Tensor, n int) (err error) {
	whole := make([]held, len(b.kept))
	defer func() {
		for i := range whole {
			s.release(&whole[i]) // in case of an error
		}
	}()
	part := make([]*onnx.Tensor, len(in))
	for from := 0; from < n; from += b.size {
		to := min(from+b.size, n)
		for i, t := range in {
			part[i] = rows(t, from, to)
		}
		s.begin(part)
		if err = s.steps(0, b.cut); err == nil {
			err = s.keep(whole, b, from, to, n)
		}
		for k := range s.values {
			s.release(&s.values[k])
		}
		if err != nil {
			return err
		}
	}
	s.begin(in)
	for k := range s.values {
		// Reads before the cut are over, and do not count for the rest of the run.
		s.values[k].uses = b.later[k]
	}
	for i, k := range b.kept {
		s.values[k], whole[i] = whole[i], held{}
	}
	return s.steps(b.cut, len(s.plan.steps))
}

// keep copies the values of a block that steps behind the cut read to their places among those of
// all n images. The first block, of `to` images, tells how large an image's value is.
func (s *session) keep(whole []held, b *blocks, from, to, n int) error {
	for i, k := range b.kept {
		t := s.values[k].tensor
		if from == 0 {
			data, err := s.env.Pool.Get(t.DType, t.Len()/to*n)
			if err != nil {
				return err
			}
			whole[i] = held{tensor: &onnx.Tensor{DType: t.DType, Data: data,
				Shape: append([]int{n}, t.Shape[1:]...)},
				buffer: &buffer{data: data, refs: 1}, uses: b.later[k]}
		}
		kernel.Copy(rows(whole[i].tensor, from, to), t)
	}
	return nil
}

// rows returns t[from:to] of the first axis, in t's memory. The first axis must not be empty.
func rows(t *onnx.Tensor, from, to int) *onnx.Tensor {
	each := t.Len() / t.Shape[0]
	return &onnx.Tensor{DType: t.DType, Shape: append([]int{to - from}, t.Shape[1:]...),
		Data: reflect.ValueOf(t.Data).Slice(from*each, to*each).Interface()}
}

// watch looks at the steps of a run with n images. ended says that a step was met that cannot be
// divided: none after it is.
type watch struct {
	*plan
	n       int
	divided []bool // by slot: the first axis is that of the images
	ended   bool
	moved   []int // of each step, bytes of values for one image
	weights []int // of each step, bytes that all images share
}

// newWatch begins with the inputs, whose first axes are the images'.
func newWatch(p *plan, n int) *watch {
	w := &watch{plan: p, n: n, divided: make([]bool, p.slots)}
	for _, v := range p.inputs {
		w.divided[p.slot[v.Name]] = true
	}
	return w
}

// step takes the next step, after its run. An input that is neither divided nor a constant ends the
// division.
func (w *watch) step(st *step, c *kernel.Call) {
	if w.ended = w.ended || len(st.out) != 1 || st.out[0] < 0; w.ended {
		return
	}
	out := c.Out[0]
	if out == nil || len(out.Shape) == 0 || out.Shape[0] != w.n || out.Len() == 0 {
		w.ended = true
		return
	}
	moved, weights, varying := out.Len()*out.DType.Size()/w.n, 0, make([]bool, len(st.in))
	for i, k := range st.in {
		if k < 0 {
			continue
		}
		bytes := c.In[i].Len() * c.In[i].DType.Size()
		if varying[i] = w.divided[k]; varying[i] {
			moved += bytes / w.n
		} else {
			weights += bytes
			w.ended = w.ended || w.constants[k] == nil
		}
	}
	if w.ended = w.ended || !apart(st.node, st.opset, c, varying); w.ended {
		return
	}
	w.divided[st.out[0]] = true
	w.moved, w.weights = append(w.moved, moved), append(w.weights, weights)
}

// blocks returns the division that moves least. It tries blocks of threads, 2 threads, 4 threads,
// ... images, each cut behind every step: O(steps · log images). Fewer images than threads would
// leave threads idle. Without a gain the cut is 0.
func (w *watch) blocks(in []*onnx.Tensor, threads int) *blocks {
	best, size, cut := 0, 0, 0
	// Doubling reaches any size within a factor of two.
	for m := threads; m < w.n; m *= 2 {
		gain := 0
		for i := range w.moved {
			if gain += w.bytes(i, w.n) - w.bytes(i, m); gain > best {
				best, size, cut = gain, m, i+1
			}
		}
	}
	return w.cut(in, size, cut)
}

// bytes counts the values that step i moves between caches, in blocks of size images, and all
// weights once a block.
func (w *watch) bytes(i, size int) int {
	weights := (w.n + size - 1) / size * w.weights[i]
	switch all := w.n * w.moved[i]; {
	case size*w.moved[i] > farBytes:
		return weights + farTimes*all
	case size*w.moved[i] > nearBytes:
		return weights + all
	}
	return weights
}

// cut returns the division of blocks of size images through the first steps.
func (w *watch) cut(in []*onnx.Tensor, size, steps int) *blocks {
	b := &blocks{size: size, cut: steps, later: slices.Clone(w.uses)}
	for _, t := range in {
		b.shapes = append(b.shapes, slices.Clone(t.Shape))
	}
	for _, st := range w.steps[:steps] {
		for _, k := range st.in {
			if k >= 0 {
				b.later[k]--
			}
		}
	}
	for _, st := range w.steps[:steps] {
		if k := st.out[0]; b.later[k] > 0 {
			b.kept = append(b.kept, k)
		}
	}
	return b
}

// byElement are operators of one value, the others being parameters of one number.
var byElement = []string{"Abs", "Cast", "Ceil", "Clip", "DequantizeLinear", "Elu", "Erf", "Exp",
	"Floor", "Gelu", "HardSigmoid", "HardSwish", "Identity", "LeakyRelu", "Log", "Mish", "Neg",
	"QuantizeLinear", "Reciprocal", "Relu", "Sigmoid", "Softplus", "Sqrt", "Tanh"}

// apart reports whether a node treats every image by itself. varying are its inputs that hold
// images along their first axes; the others are constants. An operator that is not named here is
// taken for one that mixes images.
func apart(n *onnx.Node, opset int, c *kernel.Call, varying []bool) bool {
	if n.Domain != "" || len(varying) == 0 {
		return false
	}
	x, attrs := c.In[0], op.Attrs(n, opset)
	switch n.Op {
	case "Add", "Sub", "Mul", "Div", "Max", "Min":
		return opset >= 7 && aligned(c, varying)
	case "MatMul":
		if len(varying) == 1 { // of bytes by constant weights, which its kernel holds
			return varying[0] && len(x.Shape) > 1
		}
		return apartProducts(x, len(c.In[1].Shape), varying)
	}
	if !firstVaries(n, c, varying) {
		return false
	}
	switch n.Op {
	case "Conv", "MaxPool", "AveragePool", "GlobalAveragePool", "GlobalMaxPool":
		return len(x.Shape) > 2
	case "BatchNormalization":
		return len(x.Shape) > 1
	case "Softmax", "LayerNormalization":
		return notFirst(x, attrs.Int("axis")) && (n.Op != "Softmax" || opset >= 13)
	case "Transpose":
		perm := attrs.Ints("perm")
		return len(perm) > 0 && perm[0] == 0
	case "Reshape": // of any number of images
		s := c.In[1]
		return s.Len() > 0 && (s.At(0) == 0 && !attrs.Bool("allowzero") || s.At(0) == -1)
	case "Flatten":
		return attrs.Int("axis") == 1
	case "ReduceMean", "ReduceSum", "ReduceMax", "ReduceMin":
		return notFirst(x, axesOf(attrs, c)...)
	}
	return slices.Contains(byElement, n.Op) &&
		!slices.ContainsFunc(c.In[1:], func(t *onnx.Tensor) bool {
			return t != nil && t.Len() != 1
		})
}

// firstVaries reports whether a node's first input alone holds images, and a value of as many axes
// that a convolution adds.
func firstVaries(n *onnx.Node, c *kernel.Call, varying []bool) bool {
	if n.Op == "Conv" && len(varying) == 4 && varying[3] &&
		len(c.In[3].Shape) == len(c.In[0].Shape) {
		varying = varying[:3]
	}
	return varying[0] && !slices.Contains(varying[1:], true)
}

// apartProducts is apart of a MatMul of x by an operand with r axes.
func apartProducts(x *onnx.Tensor, r int, varying []bool) bool {
	if varying[1] {
		return varying[0] && r > 2 && r == len(x.Shape)
	}
	return varying[0] && r == 2 && manyRows(x)
}

// axesOf returns the axes of a reduction, none where it does not name them.
func axesOf(attrs op.Values, c *kernel.Call) []int {
	if len(c.In) < 2 || c.In[1] == nil {
		return attrs.Ints("axes")
	}
	axes, _ := c.In[1].Ints()
	return axes
}

// notFirst reports whether there are axes and the first of t is none of them.
func notFirst(t *onnx.Tensor, axes ...int) bool {
	return len(axes) > 0 && !slices.Contains(axes, 0) && !slices.Contains(axes, -len(t.Shape))
}

// aligned reports whether the first axis of every operand is the images', or is not there.
func aligned(c *kernel.Call, varying []bool) bool {
	r := len(c.Out[0].Shape)
	for i, t := range c.In {
		switch own := len(t.Shape); {
		case own > r, own < r && varying[i], own == r && !varying[i] && t.Shape[0] != 1:
			return false
		}
	}
	return true
}

// manyRows reports whether every image has rows enough for the order of sums that more rows have.
func manyRows(t *onnx.Tensor) bool {
	return t.Len() >= 8*t.Shape[0]*t.Shape[len(t.Shape)-1]
}
