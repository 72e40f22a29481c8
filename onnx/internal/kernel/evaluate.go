package kernel

import (
	"fmt"

	"fmp/onnx"
)

// Evaluate computes a node from the values of its inputs, nil where one is left out; outputs that
// the node leaves out are nil. An error says why there is no result. The caller bounds time and
// memory: see [onnx.Budget]. Kernel, pool and call are made anew each time, so that it is for
// constants and not for runs.
func Evaluate(n *onnx.Node, opset int, in []*onnx.Tensor) ([]*onnx.Tensor, error) {
	if n.Domain != "" {
		return nil, fmt.Errorf("operators of the domain %q are not supported", n.Domain)
	}
	for len(in) > 0 && in[len(in)-1] == nil {
		in = in[:len(in)-1] // trailing inputs left out are as good as none
	}
	s := &Spec{Node: n, Opset: opset, Const: in, In: make([]onnx.DType, len(in))}
	for i, t := range in {
		if t != nil {
			s.In[i] = t.DType
		}
	}
	// All inputs are constants of the spec, so that kernels which need some find them.
	run, err := Prepare(s)
	if err != nil {
		return nil, err
	}
	c := NewCall(&Env{Pool: &Pool{}, Threads: 1}, len(in), len(n.Outputs))
	copy(c.In, in)
	for i, o := range n.Outputs {
		c.Want[i] = o != ""
	}
	if err := c.Do(run); err != nil {
		return nil, err
	}
	for i, t := range c.Out {
		switch {
		case !c.Want[i]:
			c.Out[i] = nil
		case t == nil:
			return nil, fmt.Errorf("output %d was not made", i)
		case c.Alias[i] >= 0:
			c.Out[i] = t.Clone() // the inputs stay the caller's
		}
	}
	return c.Out, nil
}
