package pure

import (
	"slices"

	"fmp/onnx"
	"fmp/onnx/internal/kernel"
	"fmp/onnx/shape"
)

// fold computes a node whose operands are constants, so that its result is known to the kernels
// that come as well. It runs the kernel of the node as the run would, so that the bits are the
// run's. It reports whether no step is left to run.
func (p *planner) fold(st step) bool {
	n := st.node
	if len(st.out) != 1 || st.out[0] < 0 {
		return false
	}
	if n.Op == "Constant" {
		t, err := p.evaluate(&kernel.Pool{}, st)
		if err != nil {
			p.refuse(n, err)
			return true
		}
		p.plan.constants[st.out[0]] = t
		return true
	}
	// These operators take time in proportion to their operands and result.
	if n.Op != "DequantizeLinear" && !shape.Moves(n.Op) && !shape.Elementwise(n.Op) ||
		st.types[0] == onnx.String {
		return false
	}
	from, bytes, elements := make([]*onnx.Tensor, len(st.in)), 0.0, 0.0
	for i, k := range st.in {
		if k < 0 {
			continue
		}
		if from[i] = p.plan.constants[k]; from[i] == nil {
			return false
		}
		bytes += float64(from[i].Len() * max(1, from[i].DType.Size()))
		elements += float64(from[i].Len())
	}
	// A node that fails is left to the run, and so is one whose result would take much more memory
	// than the weights.
	most := max(minFolded, elements*float64(st.types[0].Size()), bytes)
	if !p.budget.Spend(most, most) {
		return false
	}
	t, err := p.evaluate(&kernel.Pool{Most: int64(most)}, st, from...)
	if err != nil {
		return false
	}
	p.plan.constants[st.out[0]] = t
	return true
}

// minFolded is the least bound on the bytes of a constant, where its operands are smaller.
const minFolded = 1 << 10

// evaluate runs a node of one output on constants, in memory from a pool. It takes one thread,
// which does not change the bits.
func (c *compiler) evaluate(pool *kernel.Pool, st step, in ...*onnx.Tensor) (*onnx.Tensor, error) {
	call := kernel.NewCall(&kernel.Env{Pool: pool, Threads: 1, Reproducible: c.reproducible},
		len(in), 1)
	call.Want[0] = true
	copy(call.In, in)
	if err := call.Do(st.run); err != nil {
		return nil, err
	}
	return call.Out[0], nil
}

// takePadding lets a convolution or pooling do the work of the paddings before it, where nothing
// else reads those. The padding's step is taken out of the plan; several in a row are taken one
// after the other.
func (p *planner) takePadding(st *step, s *kernel.Spec) {
	for {
		pad := p.pads[st.in[0]]
		if pad == nil || p.soleReader(s.Node.Input(0)) == nil {
			return
		}
		wider := kernel.WithPadding(s, pad)
		if wider == nil {
			return
		}
		s.Node = wider
		at := slices.IndexFunc(p.plan.steps, func(o step) bool { return o.node == pad.Node })
		st.in[0] = p.plan.steps[at].in[0]
		p.plan.steps = slices.Delete(p.plan.steps, at, at+1)
	}
}
