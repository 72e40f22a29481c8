package kernel

import (
	"fmp/onnx"
	"fmp/onnx/internal/try"
	"fmp/onnx/op"
)

// via runs a kernel on tensors of other types than it is written for: inputs whose type is in from
// are converted to `to`, and outputs that are to have a type in from (outs) come back from it.
// Half-precision floats are computed in float32 and rounded once at the end; narrow integers in
// int64, then cut. Constants are converted once. The kernel runs in a call of its own, whose
// scratch memory and converted inputs go back to the pool at its end.
func via(k Kernel, from op.TypeSet, to onnx.DType, outs []onnx.DType,
	constants []*onnx.Tensor) Kernel {
	fixed := make([]*onnx.Tensor, len(constants))
	for i, t := range constants {
		if t != nil && from.Has(t.DType) {
			fixed[i] = converted(t, to)
		}
	}
	return func(c *Call) error {
		sub := NewCall(c.env, len(c.In), len(c.Out))
		// The list is shared: the inner kernel makes the outputs that the outer call wants.
		sub.Want = c.Want
		defer sub.free()
		for i, t := range c.In {
			switch {
			case t == nil || !from.Has(t.DType):
				sub.In[i] = t
			case i < len(fixed) && fixed[i] != nil:
				sub.In[i] = fixed[i]
			default:
				buf := try.Get(sub.buffer(to, t.Len()))
				sub.In[i] = &onnx.Tensor{DType: to, Shape: t.Shape, Data: buf}
				castInto(sub.In[i], t)
			}
		}
		err := sub.run(k)
		for i, t := range sub.Out {
			if t == nil {
				continue
			}
			// An output that shares an input's buffer is copied only where its type changes.
			// Buffers that the inner call made are given back once they are converted or copied.
			own := sub.Alias[i] < 0
			if err == nil && (!own || from.Has(outs[i]) && t.DType == to) {
				d := t.DType
				if from.Has(outs[i]) && t.DType == to {
					d = outs[i]
				}
				var o *onnx.Tensor
				if o, err = c.New(i, d, t.Shape); err == nil {
					if d == t.DType {
						Copy(o, t)
					} else {
						castInto(o, t)
					}
				}
			} else if err == nil {
				c.Out[i] = t
				continue
			}
			if own {
				c.env.Pool.Put(t.Data)
			}
		}
		return err
	}
}

// converted is a new tensor of another type.
func converted(t *onnx.Tensor, to onnx.DType) *onnx.Tensor {
	out, err := onnx.Zeros(to, t.Shape...)
	if err != nil {
		panic(err) // t exists, and so does its shape
	}
	castInto(out, t)
	return out
}
