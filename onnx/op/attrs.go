package op

import "fmp/onnx"

// Values reads a node's attributes, with the defaults of its operator's definition where the node
// has none. A read of an attribute that has no default either, or that is of another kind, returns
// the zero value. It reads the node at every call, and several goroutines may use it at a time.
type Values struct {
	node   *onnx.Node
	schema *Schema
}

// Attrs reads the attributes of a node of a model of the given operator set version. An operator
// that is deprecated there keeps its last definition.
func Attrs(n *onnx.Node, opset int) Values { return Values{n, Last(n.Domain, n.Op, opset)} }

// Has reports whether the node itself gives the attribute.
func (v Values) Has(name string) bool {
	_, ok := v.node.Attr(name)
	return ok
}

// get is the node's attribute, else the default; the zero Attr where there is neither.
func (v Values) get(name string, kind onnx.AttrKind) onnx.Attr {
	if a, ok := v.node.Attr(name); ok && a.Kind == kind {
		return a
	}
	if v.schema != nil {
		if d := v.schema.Attr(name); d != nil && d.Default != nil && d.Kind == kind {
			return *d.Default
		}
	}
	return onnx.Attr{}
}

// Int returns an integer attribute; 0 where there is none. On a machine of 32 bits a number beyond
// an int becomes the nearest int.
func (v Values) Int(name string) int { return onnx.ClampInt(v.get(name, onnx.AttrInt).Int) }

// Bool reports whether an integer attribute is not 0.
func (v Values) Bool(name string) bool { return v.get(name, onnx.AttrInt).Int != 0 }

// DType returns the element type that an integer attribute names, Undefined where it names none.
func (v Values) DType(name string) onnx.DType { return onnx.DTypeOf(v.get(name, onnx.AttrInt).Int) }

// Float returns a float attribute.
func (v Values) Float(name string) float32 { return v.get(name, onnx.AttrFloat).Float }

// Str returns a string attribute.
func (v Values) Str(name string) string { return v.get(name, onnx.AttrString).Str }

// Ints returns an attribute that is a list of integers, each as [Values.Int] returns it; nil where
// there is none.
func (v Values) Ints(name string) []int {
	a := v.get(name, onnx.AttrInts)
	if a.Kind != onnx.AttrInts {
		return nil
	}
	out := make([]int, len(a.Ints))
	for i, x := range a.Ints {
		out[i] = onnx.ClampInt(x)
	}
	return out
}

// Floats returns an attribute that is a list of floats, nil where there is none. It must not be
// changed.
func (v Values) Floats(name string) []float32 { return v.get(name, onnx.AttrFloats).Floats }

// Strs returns an attribute that is a list of strings, nil where there is none. It must not be
// changed.
func (v Values) Strs(name string) []string { return v.get(name, onnx.AttrStrings).Strs }

// Tensor returns a tensor attribute, nil where there is none. It must not be changed.
func (v Values) Tensor(name string) *onnx.Tensor { return v.get(name, onnx.AttrTensor).Tensor }
