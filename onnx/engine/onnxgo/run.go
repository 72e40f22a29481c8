//go:build !386 && !arm

package onnxgo

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math"
	"reflect"
	"slices"

	decoder "github.com/owulveryck/onnx-go"
	"gorgonia.org/tensor"

	"fmp/onnx"
	"fmp/onnx/check"
	"fmp/onnx/engine"
	"fmp/onnx/engine/pure"
	_ "fmp/onnx/rare" // operators of its models
	"fmp/onnx/shape"
)

// Run evaluates the model on the tensors that its inputs have, zeros where the program set none,
// and sets those of its outputs. An operator that the engine does not run is an error of type
// *onnx.ErrNotImplemented, which onnx-go's own test suite skips. Values of types and shapes that
// differ from the run before make a new session. Run is for one goroutine at a time.
func (g *Graph) Run() error {
	if len(g.operations) == 0 {
		return errors.New("onnxgo: the graph holds no model; onnx.Model.UnmarshalBinary reads one")
	}
	feeds := map[string]*onnx.Tensor{}
	for _, v := range g.values {
		if !v.fed || v.made {
			continue
		}
		t, err := toONNX(v.tensor)
		if err == nil && v.declared != onnx.Undefined && t.DType != v.declared {
			t, err = converted(t, v.declared)
		}
		if err != nil {
			return fmt.Errorf("onnxgo: input %q: %w", v.name, err)
		}
		feeds[v.name] = t
	}
	// tensors print their type and shape
	if key := fmt.Sprint(feeds); g.session == nil || key != g.compiled {
		if err := g.compile(feeds); err != nil {
			return err
		}
		g.compiled = key
	}
	fetch := map[string]*onnx.Tensor{}
	for _, o := range g.session.Outputs() {
		fetch[o.Name] = nil
	}
	if err := g.session.Run(context.Background(), feeds, fetch); err != nil {
		return fmt.Errorf("onnxgo: %w", err)
	}
	for _, v := range g.values {
		t := fetch[v.name]
		if t == nil || !v.made {
			continue
		}
		var err error
		if v.tensor, err = fromONNX(t); err != nil {
			return fmt.Errorf("onnxgo: output %q: %w", v.name, err)
		}
	}
	return nil
}

// versions are the operator sets that a model may mean, by their likelihood: onnx-go is of the time
// of 9 to 11.
var versions = []int64{11, 10, 9, 8, 7, 12, 13, 14, 15, 16, 17}

// compile makes a session for inputs of these types and shapes.
func (g *Graph) compile(feeds map[string]*onnx.Tensor) error {
	if g.session != nil {
		if err := g.session.Close(); err != nil {
			return err
		}
		g.session = nil
	}
	// onnx-go keeps no operator set, so that the first version by which the graph is valid is
	// taken.
	try := versions
	if g.Opset != 0 {
		try = []int64{g.Opset}
	}
	e, err := pure.New(engine.Options{})
	if err != nil {
		return err
	}
	var first error
	for _, v := range try {
		m, err := g.model(feeds, v)
		if err == nil {
			err = errors.Join(shape.Infer(m), check.Model(m))
		}
		if err == nil {
			g.session, err = e.Load(m)
		}
		if err == nil {
			return nil
		}
		// The error of the likeliest version is reported, and not that of the last.
		first = cmp.Or(first, err)
	}
	var refused *pure.UnsupportedError
	if errors.As(first, &refused) {
		return &decoder.ErrNotImplemented{Operator: refused.Nodes[0].Op, Message: first.Error()}
	}
	return fmt.Errorf("onnxgo: %w", first)
}

// model is the graph as the engine takes it. Outputs are the values that are declared, or that
// nothing reads. Weights are tensors that were set and not fed.
func (g *Graph) model(feeds map[string]*onnx.Tensor, opset int64) (*onnx.Model, error) {
	m := onnx.NewModel(&onnx.Graph{Name: "onnx-go", Initializers: map[string]*onnx.Tensor{}})
	m.Opsets[""] = opset
	for _, v := range g.values {
		switch t := feeds[v.name]; {
		case v.made && (v.declared != onnx.Undefined || !v.read):
			m.Graph.Outputs = append(m.Graph.Outputs, onnx.ValueInfo{Name: v.name,
				DType: v.declared})
		// A value that is made and read within the graph is neither an input nor an output.
		case v.made:
		case t != nil:
			in := onnx.ValueInfo{Name: v.name, DType: t.DType, Shape: []onnx.Dim{}}
			for _, d := range t.Shape {
				in.Shape = append(in.Shape, onnx.Known(d))
			}
			m.Graph.Inputs = append(m.Graph.Inputs, in)
		case v.tensor != nil:
			t, err := toONNX(v.tensor)
			if err != nil {
				return nil, fmt.Errorf("weight %q: %w", v.name, err)
			}
			m.Graph.Initializers[v.name] = t
		}
	}
	for i, o := range g.operations {
		n := &onnx.Node{Name: fmt.Sprintf("%s %d", o.name, i), Op: o.name}
		for _, v := range o.in {
			if v != nil && !v.made && !v.fed && v.tensor == nil {
				v = nil // stands for the inputs of an operator that has none
			}
			n.Inputs = append(n.Inputs, v.named())
		}
		for len(n.Inputs) > 0 && n.Inputs[len(n.Inputs)-1] == "" {
			n.Inputs = n.Inputs[:len(n.Inputs)-1]
		}
		for _, v := range o.out {
			n.Outputs = append(n.Outputs, v.named())
		}
		for name, a := range o.attributes {
			attr, err := attribute(name, a)
			if err != nil {
				return nil, fmt.Errorf("%s: %w", n.Label(), err)
			}
			n.Attrs = append(n.Attrs, attr)
		}
		// A map has no order, and equal graphs are to give equal models.
		slices.SortFunc(n.Attrs, func(a, b onnx.Attr) int { return cmp.Compare(a.Name, b.Name) })
		m.Graph.Nodes = append(m.Graph.Nodes, n)
	}
	return m, nil
}

// named is "" of nil, by which a node leaves an input out.
func (v *value) named() string {
	if v == nil {
		return ""
	}
	return v.name
}

// attribute translates an attribute as onnx-go gives it.
func attribute(name string, a any) (onnx.Attr, error) {
	out := onnx.Attr{Name: name}
	switch a := a.(type) {
	case float32:
		out.Kind, out.Float = onnx.AttrFloat, a
	case int64:
		out.Kind, out.Int = onnx.AttrInt, a
	case string:
		out.Kind, out.Str = onnx.AttrString, a
	case []float32:
		out.Kind, out.Floats = onnx.AttrFloats, a
	case []int64:
		out.Kind, out.Ints = onnx.AttrInts, a
	case []string:
		out.Kind, out.Strs = onnx.AttrStrings, a
	case tensor.Tensor:
		t, err := toONNX(a)
		if err != nil {
			return out, fmt.Errorf("attribute %q: %w", name, err)
		}
		out.Kind, out.Tensor = onnx.AttrTensor, t
	default:
		return out, fmt.Errorf("attribute %q is a %T, which no operator has", name, a)
	}
	return out, nil
}

// toONNX shares the elements of a tensor of onnx-go's library.
func toONNX(t tensor.Tensor) (*onnx.Tensor, error) {
	// A view or a transposed tensor is copied into rows first.
	if d, ok := t.(*tensor.Dense); ok && (d.RequiresIterator() || !d.DataOrder().IsRowMajor()) {
		c, ok := tensor.Materialize(d).(*tensor.Dense)
		if !ok || !c.DataOrder().IsRowMajor() {
			return nil, fmt.Errorf("the elements of %v are in no plain order; want those of a slice, "+
				"row by row", t.Shape())
		}
		t = c
	}
	data := t.Data()
	// one element comes without its slice
	if v := reflect.ValueOf(data); v.Kind() != reflect.Slice {
		s := reflect.MakeSlice(reflect.SliceOf(v.Type()), 1, 1)
		s.Index(0).Set(v)
		data = s.Interface()
	}
	out := &onnx.Tensor{DType: onnx.TypeOfSlice(data),
		Shape: append([]int{}, t.Shape()...), Data: data}
	return out, onnx.CheckTensor(out)
}

// converted returns numbers in the element type that the model declares. onnx-go's programs, its
// tests among them, often give float32 where a model wants integers; a number that the type does
// not hold is an error. A number is held where it comes back the same from the type.
// A NaN is one in every type of floats.
func converted(t *onnx.Tensor, to onnx.DType) (*onnx.Tensor, error) {
	out, err := onnx.Zeros(to, t.Shape...)
	if err != nil {
		return nil, err
	}
	from, data := reflect.ValueOf(t.Data), reflect.ValueOf(out.Data)
	for i := range t.Len() {
		x, y := from.Index(i), data.Index(i)
		same := x.CanConvert(y.Type())
		switch {
		case same:
			y.Set(x.Convert(y.Type()))
			same = y.Convert(x.Type()).Equal(x) || y.CanFloat() && math.IsNaN(t.At(i))
		case y.Kind() == reflect.Bool:
			y.SetBool(t.At(i) == 1)
			same = out.At(i) == t.At(i)
		}
		if !same {
			return nil, fmt.Errorf("the model wants %v and was given %v, where %v is no such number", to,
				t.DType, x)
		}
	}
	return out, nil
}

// fromONNX shares the elements of a tensor.
func fromONNX(t *onnx.Tensor) (tensor.Tensor, error) {
	if t.Len() == 0 || t.DType != onnx.TypeOfSlice(t.Data) {
		return nil, fmt.Errorf("%v: onnx-go's tensors hold neither this type nor none at all", t)
	}
	if len(t.Shape) == 0 {
		return tensor.New(tensor.FromScalar(reflect.ValueOf(t.Data).Index(0).Interface())), nil
	}
	return tensor.New(tensor.WithShape(t.Shape...), tensor.WithBacking(t.Data)), nil
}
