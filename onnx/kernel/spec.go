package kernel

import (
	"fmt"

	"fmp/onnx"
)

// Spec is what a kernel is prepared from. Its attribute readers record what they were asked for: an attribute
// that no reader asked for, or of another kind than asked for, refuses the node, since ignoring one
// would compute something else than the model says.
type Spec struct {
	Node  *onnx.Node
	Opset int
	// In is the inputs' element types, Undefined where an optional one is left out.
	In []onnx.DType
	// Out is the outputs' element types, set before New is called.
	Out []onnx.DType
	// Const is the inputs' values where they are known before the model runs, else nil.
	Const []*onnx.Tensor

	used map[string]bool
	err  error
}

// has says whether input i is given.
func (s *Spec) has(i int) bool { return i < len(s.In) && s.In[i] != onnx.Undefined }

// constant is input i's value where it is known.
func (s *Spec) constant(i int) *onnx.Tensor {
	if i < len(s.Const) {
		return s.Const[i]
	}
	return nil
}

func (s *Spec) attr(name string, kind onnx.AttrKind) (onnx.Attr, bool) {
	s.used[name] = true
	a, ok := s.Node.Attr(name)
	if !ok {
		return a, false
	}
	if a.Kind != kind {
		if s.err == nil {
			s.err = fmt.Errorf("attribute %q is of kind %d where kind %d is expected", name, a.Kind, kind)
		}
		return a, false
	}
	return a, true
}

// hasAttr says whether the node has an attribute.
func (s *Spec) hasAttr(name string) bool {
	_, ok := s.Node.Attr(name)
	return ok
}

func (s *Spec) int(name string, def int) int {
	if a, ok := s.attr(name, onnx.AttrInt); ok {
		return onnx.ClampInt(a.Int)
	}
	return def
}

func (s *Spec) bool(name string, def bool) bool {
	d := 0
	if def {
		d = 1
	}
	return s.int(name, d) != 0
}

func (s *Spec) float(name string, def float32) float32 {
	if a, ok := s.attr(name, onnx.AttrFloat); ok {
		return a.Float
	}
	return def
}

func (s *Spec) str(name, def string) string {
	if a, ok := s.attr(name, onnx.AttrString); ok {
		return a.Str
	}
	return def
}

// ints is nil where the node lacks the attribute.
func (s *Spec) ints(name string) []int {
	a, ok := s.attr(name, onnx.AttrInts)
	if !ok {
		return nil
	}
	out := make([]int, len(a.Ints))
	for i, v := range a.Ints {
		out[i] = onnx.ClampInt(v)
	}
	return out
}

// dtype is an attribute that names an element type; a number that names none is Undefined.
func (s *Spec) dtype(name string) onnx.DType {
	a, _ := s.attr(name, onnx.AttrInt)
	return onnx.DTypeOf(a.Int)
}

func (s *Spec) floats(name string) []float32 {
	a, _ := s.attr(name, onnx.AttrFloats)
	return a.Floats
}

func (s *Spec) strs(name string) []string {
	a, _ := s.attr(name, onnx.AttrStrings)
	return a.Strs
}

// tensor is nil where the node lacks the attribute.
func (s *Spec) tensor(name string) *onnx.Tensor {
	a, ok := s.attr(name, onnx.AttrTensor)
	if !ok {
		return nil
	}
	return a.Tensor
}

// ignore names attributes that have no effect on inference.
func (s *Spec) ignore(names ...string) {
	for _, n := range names {
		s.used[n] = true
	}
}

// finish reports the first attribute that was misread or that nobody read.
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
