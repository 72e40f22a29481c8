package kernel

import (
	"fmt"

	"fmp/onnx"
	"fmp/onnx/internal/try"
	"fmp/onnx/op"
)

// Spec is the node that a kernel is prepared from. Its attribute readers record the attributes they
// were asked for: an attribute that no reader asked for, or of another kind than asked for, refuses
// the node, since ignoring one would compute something else than the model says.
type Spec struct {
	Node  *onnx.Node
	Opset int
	// In is the inputs' element types, Undefined where an optional one is left out.
	In []onnx.DType
	// Out is the outputs' element types, set before New is called.
	Out []onnx.DType
	// Const is the inputs' values where they are known before the model runs, else nil.
	Const []*onnx.Tensor
	// Body readies a graph of the node's for inputs of the given types; nil where there is no
	// engine to run it.
	Body func(g *onnx.Graph, in []onnx.DType) (*Body, error)

	// Keep reports whether a number of bytes may be kept for the node beside the model: constants
	// laid out as its kernel reads them. nil is any number.
	Keep func(bytes float64) bool
	// Reproducible rounds every product before it is added, to sums that run over the inner axis in
	// its order, and leaves out ways that not every processor has: products, convolutions and all
	// that is made of single operations then have the same bits everywhere.
	Reproducible bool
	// After are the nodes, prepared, whose work a Conv does as well ([CanFollow]); its output is
	// the last one's.
	After []*Spec

	rounded onnx.DType // the half-precision type that In[0] was before Def.Half, if any
	attrs   op.Values
	used    map[string]bool
	err     error
}

// keeps is Keep of the product of factors float32 numbers. It is in float64, since a product of
// hostile sizes may exceed an int.
func (s *Spec) keeps(factors ...int) bool {
	bytes := 4.0
	for _, f := range factors {
		bytes *= float64(f)
	}
	return s.Keep == nil || s.Keep(bytes)
}

// has reports whether input i is given.
func (s *Spec) has(i int) bool { return i < len(s.In) && s.In[i] != onnx.Undefined }

// constant is input i's value where it is known.
func (s *Spec) constant(i int) *onnx.Tensor {
	if i < len(s.Const) {
		return s.Const[i]
	}
	return nil
}

// attr notes that an attribute was read; one of another kind than it is read as refuses the node.
func (s *Spec) attr(name string, kind onnx.AttrKind) op.Values {
	s.used[name] = true
	if a, ok := s.Node.Attr(name); ok && a.Kind != kind && s.err == nil {
		s.err = fmt.Errorf("attribute %q is of kind %d where kind %d is expected", name,
			a.Kind, kind)
	}
	return s.attrs
}

// hasAttr reports whether the node itself gives an attribute.
func (s *Spec) hasAttr(name string) bool { return s.attrs.Has(name) }

// Attributes, with the operator's default where the node has none, and else the zero value.
func (s *Spec) int(name string) int          { return s.attr(name, onnx.AttrInt).Int(name) }
func (s *Spec) bool(name string) bool        { return s.attr(name, onnx.AttrInt).Bool(name) }
func (s *Spec) dtype(name string) onnx.DType { return s.attr(name, onnx.AttrInt).DType(name) }
func (s *Spec) float(name string) float64 {
	return float64(s.attr(name, onnx.AttrFloat).Float(name))
}
func (s *Spec) str(name string) string    { return s.attr(name, onnx.AttrString).Str(name) }
func (s *Spec) strs(name string) []string { return s.attr(name, onnx.AttrStrings).Strs(name) }
func (s *Spec) ints(name string) []int    { return s.attr(name, onnx.AttrInts).Ints(name) }
func (s *Spec) floats(name string) []float32 {
	return s.attr(name, onnx.AttrFloats).Floats(name)
}
func (s *Spec) tensor(name string) *onnx.Tensor {
	return s.attr(name, onnx.AttrTensor).Tensor(name)
}

// list returns how a call has a list of numbers that is an attribute before operator set since, and
// input 1 from then on; nil where it is left out. An input is read at every call and is the call's
// own; an attribute is shared and must not be changed.
func (s *Spec) list(name string, since int) func(*Call) []int {
	if s.Opset < since {
		v := s.ints(name)
		return func(*Call) []int { return v }
	}
	return func(c *Call) []int {
		if c.in(1) == nil {
			return nil
		}
		return try.Get(ints(c.In[1]))
	}
}

// ignore names attributes that have no effect on inference. Others that no reader asked for refuse
// the node.
func (s *Spec) ignore(names ...string) {
	for _, n := range names {
		s.used[n] = true
	}
}

// finish reports the first attribute that was misread or that nobody read. [Prepare] calls it after
// New, so that New has read all that it knows.
func (s *Spec) finish() error {
	if s.err != nil {
		return s.err
	}
	for _, a := range s.Node.Attrs {
		if !s.used[a.Name] {
			return fmt.Errorf("attribute %q is not supported", a.Name)
		}
	}
	return nil
}
