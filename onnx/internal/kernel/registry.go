package kernel

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"

	"fmp/onnx"
	"fmp/onnx/internal/try"
	"fmp/onnx/op"
)

// Def is an operator's kernel over a range of opsets. Its inputs and outputs stand in package op.
type Def struct {
	Op           string
	Since, Until int // first and last opset of this meaning; Until 0 means [onnx.MaxOpset]
	// Half says that the kernel computes in float32 for float16 and bfloat16; else they are
	// elements like others.
	Half bool
	// OutType gives the types of outputs that do not follow from those of the inputs.
	OutType func(s *Spec) (onnx.DType, error)
	// New parses attributes, with defaults, and returns the kernel. An error, or an end by package
	// try, names the meaning that it does not compute.
	New func(s *Spec) (Kernel, error)
}

var registry = map[string][]*Def{}

// register is for init functions and the Enable functions, before anything runs: the registry has
// no lock.
//
//go:noinline
func register(defs ...Def) {
	for i := range defs {
		d := &defs[i]
		d.Until = cmp.Or(d.Until, onnx.MaxOpset)
		registry[d.Op] = append(registry[d.Op], d)
	}
}

// Ops lists the names of all operators, in alphabetical order.
func Ops() []string { return slices.Sorted(maps.Keys(registry)) }

// Opsets returns the operator sets that an operator is implemented for, as "7-12, 13-21".
func Opsets(op string) string {
	var parts []string
	for _, d := range registry[op] {
		parts = append(parts, fmt.Sprintf("%d-%d", d.Since, d.Until))
	}
	return strings.Join(parts, ", ")
}

// Prepare finds the definition of a node's operator, checks its arity, element types and
// attributes, and makes its kernel. s.Out is filled in. An error says why the node cannot run.
// Nothing is computed, but constants may be laid out or converted. s must not be shared while it
// runs.
func Prepare(s *Spec) (run Kernel, err error) {
	defer try.Catch(&err)
	defs := registry[s.Node.Op]
	if len(defs) == 0 {
		return nil, fmt.Errorf("the operator is not supported")
	}
	var def *Def
	for _, d := range defs {
		if s.Opset >= d.Since && s.Opset <= d.Until {
			def = d
		}
	}
	if def == nil {
		return nil, fmt.Errorf("the operator is implemented for opsets %s, the model uses %d",
			Opsets(s.Node.Op), s.Opset)
	}
	s.attrs, s.used = op.Attrs(s.Node, s.Opset), map[string]bool{}
	half := try.Get(def.bind(s))
	outs := append([]onnx.DType{}, s.Out...)
	if half {
		for i, d := range s.In {
			if halves.Has(d) {
				if i == 0 {
					s.rounded = d
				}
				s.In[i] = onnx.Float32
			}
		}
		for i, d := range s.Out {
			if halves.Has(d) {
				s.Out[i] = onnx.Float32
			}
		}
	}
	consts := s.Const
	if half {
		// Kernels read constants when they are prepared as well.
		s.Const = make([]*onnx.Tensor, len(consts))
		for i, t := range consts {
			s.Const[i] = t
			if t != nil && halves.Has(t.DType) {
				s.Const[i] = converted(t, onnx.Float32)
			}
		}
	}
	k := try.Get(def.New(s))
	try.Do(s.finish())
	if i := slices.Index(s.Out, onnx.Undefined); i >= 0 {
		return nil, fmt.Errorf("the type of output %d is not settled", i)
	}
	if half {
		copy(s.Out, outs)
		s.Const = consts
		return via(k, halves, onnx.Float32, outs, consts), nil
	}
	return k, nil
}

// bind checks the node against its operator's definition and works out the outputs' types; half
// says that one of the values is of a half-precision type. It sets s.Out; types that only the
// kernel's New can tell are Undefined afterwards.
func (d *Def) bind(s *Spec) (half bool, err error) {
	schema := op.Lookup("", s.Node.Op, s.Opset)
	if schema == nil || schema.Deprecated {
		return false, fmt.Errorf("operator set %d does not have the operator", s.Opset)
	}
	if err := schema.Fits(s.Node); err != nil {
		return false, err
	}
	if s.Out, err = schema.Bind(s.In, len(s.Node.Outputs)); err != nil {
		return false, err
	}
	for i, t := range s.Out {
		if t == onnx.Undefined {
			p, _ := schema.Output(i)
			if p.Mixed {
				continue // New settles it
			}
			if d.OutType == nil {
				return false, fmt.Errorf("the type of output %d is not settled", i)
			}
			if s.Out[i], err = d.OutType(s); err != nil {
				return false, err
			}
			// Constants of whole numbers were written before operator set 9 allowed them.
			if !p.Types.Has(s.Out[i]) && s.Node.Op != "Constant" {
				return false, fmt.Errorf("output %d (%s) would be of %v; allowed are %v", i, p.Name,
					s.Out[i], p.Types)
			}
		}
	}
	return d.Half && (slices.ContainsFunc(s.In, halves.Has) ||
		slices.ContainsFunc(s.Out, halves.Has)), nil
}
