package onnx

import (
	"fmt"
	"sort"
	"strings"
)

// Model is an ONNX file in memory.
type Model struct {
	IR              int64
	Opsets          map[string]int64 // operator set version by domain; "" is the standard one
	Producer        string
	ProducerVersion string
	Domain          string
	Version         int64
	Doc             string
	Metadata        map[string]string
	Graph           *Graph
	Functions       []*Function
}

// NewModel wraps a graph in a model of [DefaultOpset] and [DefaultIR].
func NewModel(g *Graph) *Model {
	return &Model{
		IR: DefaultIR, Opsets: map[string]int64{"": DefaultOpset}, Producer: "fmp",
		Metadata: map[string]string{}, Graph: g,
	}
}

// Opset returns the version of the standard operator set that the model imports, 0 where it imports
// none.
func (m *Model) Opset() int64 {
	if v, ok := m.Opsets[""]; ok {
		return v
	}
	return m.Opsets["ai.onnx"]
}

// Graph is a list of nodes in topological order over named values. Every name is assigned once: as
// an input, an initializer or a node's output.
type Graph struct {
	Name   string
	Doc    string
	Inputs []ValueInfo // without those that an initializer gives a value
	// inputs that may be left out: the initializer of the same name is the value then
	Optional     []ValueInfo
	Outputs      []ValueInfo
	Nodes        []*Node
	Initializers map[string]*Tensor // constants: weights, shapes, axes
	Values       []ValueInfo        // what is known of intermediate values; may be empty
}

// InitializerNames lists the initializers in alphabetical order.
func (g *Graph) InitializerNames() []string {
	names := make([]string, 0, len(g.Initializers))
	for n := range g.Initializers {
		names = append(names, n)
	}
	sort.Strings(names)
	return names
}

// Input finds a graph input by name.
func (g *Graph) Input(name string) (ValueInfo, bool) { return find(g.Inputs, name) }

// SetDefault sets the value that an optional input has where it is left out. Our engines take it
// for a constant: it is set before a model is loaded.
func (g *Graph) SetDefault(name string, t *Tensor) error {
	v, ok := find(g.Optional, name)
	if !ok {
		return fmt.Errorf("graph %q has no optional input %q", g.Name, name)
	}
	if err := Conflicts(typeOf(t), v); err != nil {
		return fmt.Errorf("optional input %q: %w", name, err)
	}
	g.Initializers[name] = t
	return nil
}

// typeOf returns a tensor's type.
func typeOf(t *Tensor) ValueInfo {
	v := ValueInfo{DType: t.DType, Shape: []Dim{}}
	for _, d := range t.Shape {
		v.Shape = append(v.Shape, Known(d))
	}
	return v
}

// AddOptional adds an optional input whose value is t where it is left out.
func (g *Graph) AddOptional(name string, t *Tensor) {
	v := typeOf(t)
	v.Name = name
	g.Optional, g.Initializers[name] = append(g.Optional, v), t
}

// Output finds a graph output by name.
func (g *Graph) Output(name string) (ValueInfo, bool) { return find(g.Outputs, name) }

func find(vs []ValueInfo, name string) (ValueInfo, bool) {
	for _, v := range vs {
		if v.Name == name {
			return v, true
		}
	}
	return ValueInfo{}, false
}

// Function is a model-local function: an operator defined by nodes.
type Function struct {
	Domain, Name    string
	Inputs, Outputs []string
	Attributes      []string // names of attributes without a default
	Defaults        []Attr   // attributes with a default
	Nodes           []*Node
	Opsets          map[string]int64
}

// Node applies one operator. An empty string among Inputs or Outputs is an optional one left out.
type Node struct {
	Name    string
	Op      string
	Domain  string // "" is the standard operator set
	Inputs  []string
	Outputs []string
	Attrs   []Attr
}

// AttrKind tells which field of an Attr holds its value, with the numbers of AttributeProto.
type AttrKind int32

// Kinds of attribute.
const (
	AttrUndefined AttrKind = 0
	AttrFloat     AttrKind = 1
	AttrInt       AttrKind = 2
	AttrString    AttrKind = 3
	AttrTensor    AttrKind = 4
	AttrGraph     AttrKind = 5
	AttrFloats    AttrKind = 6
	AttrInts      AttrKind = 7
	AttrStrings   AttrKind = 8
	AttrTensors   AttrKind = 9
	AttrGraphs    AttrKind = 10
)

// Attr is a constant argument of an operator.
type Attr struct {
	Name    string
	Kind    AttrKind
	Ref     string // inside a Function: the name of the function's attribute that gives the value
	Float   float32
	Int     int64
	Str     string
	Tensor  *Tensor
	Graph   *Graph
	Floats  []float32
	Ints    []int64
	Strs    []string
	Tensors []*Tensor
	Graphs  []*Graph
}

// FloatAttr makes a float attribute.
//
//go:noinline
func FloatAttr(name string, v float32) Attr { return Attr{Name: name, Kind: AttrFloat, Float: v} }

// IntAttr makes an integer attribute.
//
//go:noinline
func IntAttr(name string, v int) Attr { return Attr{Name: name, Kind: AttrInt, Int: int64(v)} }

// BoolAttr makes an integer attribute that is 1 for true and 0 for false.
func BoolAttr(name string, v bool) Attr {
	if v {
		return IntAttr(name, 1)
	}
	return IntAttr(name, 0)
}

// StrAttr makes a string attribute.
//
//go:noinline
func StrAttr(name, v string) Attr { return Attr{Name: name, Kind: AttrString, Str: v} }

// IntsAttr makes an attribute that is a list of integers.
//
//go:noinline
func IntsAttr(name string, v ...int) Attr {
	a := Attr{Name: name, Kind: AttrInts, Ints: make([]int64, len(v))}
	for i, x := range v {
		a.Ints[i] = int64(x)
	}
	return a
}

// FloatsAttr makes an attribute that is a list of floats.
func FloatsAttr(name string, v ...float32) Attr {
	return Attr{Name: name, Kind: AttrFloats, Floats: v}
}

// TensorAttr makes a tensor attribute.
//
//go:noinline
func TensorAttr(name string, t *Tensor) Attr {
	return Attr{Name: name, Kind: AttrTensor, Tensor: t}
}

// Attr finds an attribute by name.
func (n *Node) Attr(name string) (Attr, bool) {
	for _, a := range n.Attrs {
		if a.Name == name {
			return a, true
		}
	}
	return Attr{}, false
}

// Input returns the i-th input's name, "" where the node has fewer.
func (n *Node) Input(i int) string {
	if i < len(n.Inputs) {
		return n.Inputs[i]
	}
	return ""
}

// ValueInfo describes a value. Shape is nil where even the rank is unknown; a scalar has an
// empty, non-nil Shape.
type ValueInfo struct {
	Name  string
	DType DType
	Shape []Dim
	Doc   string // what the values mean, for people
}

// Dim is one axis of a shape: a known size, or Size -1 with a symbol ("batch") or nothing.
type Dim struct {
	Size   int
	Symbol string
}

// Known returns an axis of fixed size.
func Known(n int) Dim { return Dim{Size: n} }

// Symbolic returns an axis whose size is named but only known when the model runs.
func Symbolic(name string) Dim { return Dim{Size: -1, Symbol: name} }

// IsKnown reports whether the size is fixed.
func (d Dim) IsKnown() bool { return d.Size >= 0 }

// Shape makes a shape from ints (known sizes) and strings (symbols). It panics on other types.
func Shape(dims ...any) []Dim {
	out := make([]Dim, 0, len(dims))
	for _, d := range dims {
		switch v := d.(type) {
		case int:
			out = append(out, Known(v))
		case string:
			out = append(out, Symbolic(v))
		default:
			panic("onnx.Shape: a dimension is an int or a string")
		}
	}
	return out
}

// Conflicts returns why a value of type and shape a cannot be used as b; nil where it can, as far
// as is known.
func Conflicts(a, b ValueInfo) error {
	if a.DType != b.DType && a.DType != Undefined && b.DType != Undefined {
		return fmt.Errorf("element types %v and %v differ", a.DType, b.DType)
	}
	if a.Shape == nil || b.Shape == nil {
		return nil
	}
	if len(a.Shape) != len(b.Shape) {
		return fmt.Errorf("ranks %d and %d differ", len(a.Shape), len(b.Shape))
	}
	for i := range a.Shape {
		if x, y := a.Shape[i], b.Shape[i]; x.IsKnown() && y.IsKnown() && x.Size != y.Size {
			return fmt.Errorf("sizes %d and %d of axis %d differ", x.Size, y.Size, i)
		}
	}
	return nil
}

// String writes name, element type and shape: "image float32[batch,3,32,32]".
func (v ValueInfo) String() string {
	if v.Name == "" {
		return v.Type()
	}
	return v.Name + " " + v.Type()
}

// Type writes element type and shape: "float32[batch,3,32,32]".
func (v ValueInfo) Type() string {
	if v.Shape == nil {
		return v.DType.String() + "[...]"
	}
	parts := make([]string, len(v.Shape))
	for i, d := range v.Shape {
		parts[i] = d.String()
	}
	return v.DType.String() + "[" + strings.Join(parts, ",") + "]"
}

// String returns the size, the symbol, or "?".
func (d Dim) String() string {
	switch {
	case d.IsKnown():
		return fmt.Sprint(d.Size)
	case d.Symbol != "":
		return d.Symbol
	}
	return "?"
}
