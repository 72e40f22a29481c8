package kernel

import (
	"fmt"
	"sort"
	"strings"

	"fmp/onnx"
	"fmp/onnx/op"
)

// MaxOpset is the newest operator set whose operators are known; a model that imports a newer one is refused.
const MaxOpset = onnx.MaxOpset

// Def is an operator as it is defined over a range of opsets.
type Def struct {
	Op           string
	Since, Until int // first and last opset of this meaning; Until 0 means MaxOpset
	// In and Out are the signature, a word a tensor. T and U are type variables with the sets of the same
	// name, every T being the same type; I is int32 or int64; L int64, B bool, F float32, S string, V anything.
	// A word with "?" may be left out, the last with "*" repeats.
	In, Out string
	T, U    Types
	// Half lets T and U be float16 and bfloat16 wherever they may be float32; the kernel computes in float32.
	Half bool
	// OutType gives the types of outputs that the signature does not settle: those named U or V.
	OutType func(s *Spec) (onnx.DType, error)
	// New parses attributes, with defaults, and returns the kernel.
	New func(s *Spec) (Kernel, error)
}

var registry = map[string][]*Def{}

func register(defs ...Def) {
	for i := range defs {
		d := &defs[i]
		if d.Until == 0 {
			d.Until = MaxOpset
		}
		registry[d.Op] = append(registry[d.Op], d)
	}
}

// Ops lists the names of all operators, in alphabetical order.
func Ops() []string {
	var names []string
	for n := range registry {
		names = append(names, n)
	}
	sort.Strings(names)
	return names
}

// Opsets is the opsets an operator is implemented for, as "7-12, 13-21".
func Opsets(op string) string {
	var parts []string
	for _, d := range registry[op] {
		parts = append(parts, fmt.Sprintf("%d-%d", d.Since, d.Until))
	}
	return strings.Join(parts, ", ")
}

// Prepare finds the definition of a node's operator, checks its arity, element types and attributes,
// and makes its kernel. s.Out is filled in. An error says why the node cannot run.
func Prepare(s *Spec) (Kernel, error) {
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
		return nil, fmt.Errorf("the operator is implemented for opsets %s, the model uses %d", Opsets(s.Node.Op), s.Opset)
	}
	s.attrs, s.used = op.Attrs(s.Node, s.Opset), map[string]bool{}
	half, err := def.bind(s)
	if err != nil {
		return nil, err
	}
	outs := append([]onnx.DType{}, s.Out...)
	if half {
		for i, d := range s.In {
			if halves.Has(d) {
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
	k, err := def.New(s)
	if err != nil {
		return nil, err
	}
	if err := s.finish(); err != nil {
		return nil, err
	}
	if half {
		copy(s.Out, outs)
		s.Const = consts
		return via(k, halves, onnx.Float32, outs, consts), nil
	}
	return k, nil
}

// bind checks the inputs against the signature and works out the outputs' types; half says that T or U is a
// half-precision type.
func (d *Def) bind(s *Spec) (half bool, err error) {
	words := strings.Fields(d.In)
	bound := map[string]onnx.DType{}
	allowed := map[string]Types{"T": d.T, "U": d.U, "I": index, "L": whole, "B": boolean, "F": single, "S": text, "V": all}
	free := map[string]bool{"V": true}
	if d.Half {
		for _, k := range []string{"T", "U"} {
			if allowed[k].Has(onnx.Float32) {
				allowed[k] |= halves
			}
		}
	}
	word := func(i int) (string, bool) {
		if i < len(words) {
			return words[i], true
		}
		if len(words) > 0 && strings.HasSuffix(words[len(words)-1], "*") {
			return words[len(words)-1], true
		}
		return "", false
	}
	for i, t := range s.In {
		w, ok := word(i)
		if !ok {
			return false, fmt.Errorf("it has %d inputs, at most %d are defined", len(s.In), len(words))
		}
		if t == onnx.Undefined {
			if !strings.HasSuffix(w, "?") {
				return false, fmt.Errorf("its input %d is left out, which is not optional", i)
			}
			continue
		}
		v := w[:1]
		if !allowed[v].Has(t) {
			return false, fmt.Errorf("input %d of element type %v is not supported", i, t)
		}
		if halves.Has(t) && d.Half {
			half = true
		}
		if free[v] {
			continue
		}
		if b, ok := bound[v]; ok && b != t && v != "I" {
			return false, fmt.Errorf("input %d is %v where another of the same type variable is %v", i, t, b)
		}
		bound[v] = t
	}
	for i := len(s.In); i < len(words); i++ {
		if !strings.HasSuffix(words[i], "?") && !strings.HasSuffix(words[i], "*") {
			return false, fmt.Errorf("it has %d inputs, input %d is not optional", len(s.In), i)
		}
	}
	outs := strings.Fields(d.Out)
	s.Out = make([]onnx.DType, len(s.Node.Outputs))
	for i := range s.Node.Outputs {
		w := ""
		switch {
		case i < len(outs):
			w = outs[i]
		case len(outs) > 0 && strings.HasSuffix(outs[len(outs)-1], "*"):
			w = outs[len(outs)-1]
		default:
			return false, fmt.Errorf("it has %d outputs, at most %d are defined", len(s.Node.Outputs), len(outs))
		}
		v := w[:1]
		if b, ok := bound[v]; ok {
			s.Out[i] = b
			continue
		}
		switch v {
		case "L":
			s.Out[i] = onnx.Int64
		case "B":
			s.Out[i] = onnx.Bool
		case "F":
			s.Out[i] = onnx.Float32
		case "S":
			s.Out[i] = onnx.String
		default:
			if d.OutType == nil {
				return false, fmt.Errorf("the type of output %d is not settled", i)
			}
			t, err := d.OutType(s)
			if err != nil {
				return false, err
			}
			if !allowed[v].Has(t) {
				return false, fmt.Errorf("output %d of element type %v is not supported", i, t)
			}
			if halves.Has(t) && d.Half {
				half = true
			}
			s.Out[i] = t
		}
	}
	return half, nil
}
