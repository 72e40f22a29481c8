package ort

import (
	"fmt"
	"maps"
	"math"
	"slices"

	"fmp/onnx"
	"fmp/onnx/pass"
)

// output says how an output of the model is fetched from the session.
//
// onnxruntime_go 1.27 cannot take a scalar, nor a tensor of half precision or of less than 8 bits,
// that the ONNX Runtime allocated. Such outputs, and those of unknown rank, which may turn out to
// be scalars, come as two of the session's own: their elements in a row, cast to [carrier], which
// is exact, and their shape.
type output struct {
	info  onnx.ValueInfo
	at    int // index among the session's outputs
	flat  bool
	cast  onnx.DType // the output's own type where the elements were cast
	shape int        // index of the shape where flat
}

// dummyInput is given to models without inputs, because onnxruntime_go cannot run those.
const dummyInput = "ort/none"

// adapted is a model that onnxruntime_go can run.
type adapted struct {
	model           *onnx.Model
	inputs, outputs []string // of the session
	plan            []output
	taken           map[string]bool
	row             string // the shape of a vector of any length, once it is wanted
}

// adapt rewrites a model so that onnxruntime_go can run it: m itself is not changed. Tensors and
// unchanged nodes are shared with m.
func adapt(m *onnx.Model) (*adapted, error) {
	if len(m.Graph.Outputs) == 0 {
		return nil, fmt.Errorf("it has no outputs")
	}
	g := *m.Graph
	g.Nodes, g.Inputs, g.Outputs = slices.Clone(m.Graph.Nodes), slices.Clone(m.Graph.Inputs), nil
	g.Optional = nil // constants to it, which it folds
	g.Initializers = map[string]*onnx.Tensor{}
	maps.Copy(g.Initializers, m.Graph.Initializers)
	model := *m
	model.Graph = &g
	a := &adapted{model: &model, taken: map[string]bool{}}
	g.AddNames(a.taken)
	a.adaptInputs()
	for _, v := range m.Graph.Outputs {
		_, input := m.Graph.Input(v.Name)
		a.adaptOutput(v, input)
	}
	return a, nil
}

// adaptInputs feeds scalars that cannot be handed over as rows of one.
func (a *adapted) adaptInputs() {
	g := a.model.Graph
	for i, v := range g.Inputs {
		// Before operator set 5 Reshape has no shape as an input, by which a row becomes a scalar.
		if noScalar(v) && a.model.Opset() >= 5 {
			row, scalar := pass.Unique(a.taken, v.Name+"/row"),
				pass.Unique(a.taken, v.Name+"/scalar")
			// An empty shape makes a row of one a scalar again.
			g.Initializers[scalar] = onnx.NewTensor([]int64{}, 0)
			g.Nodes = append([]*onnx.Node{{Op: "Reshape", Inputs: []string{row, scalar},
				Outputs: []string{v.Name}}}, g.Nodes...)
			v = onnx.ValueInfo{Name: row, DType: v.DType, Shape: onnx.Shape(1)}
			g.Inputs[i] = v
		}
		a.inputs = append(a.inputs, v.Name)
	}
	if len(a.inputs) == 0 {
		name := pass.Unique(a.taken, dummyInput)
		g.Inputs = append(g.Inputs, onnx.ValueInfo{Name: name, DType: onnx.Float32,
			Shape: onnx.Shape(1)})
		a.inputs = append(a.inputs, name)
	}
}

// fetch makes a value an output of the session and returns its index.
func (a *adapted) fetch(v onnx.ValueInfo) int {
	a.model.Graph.Outputs = append(a.model.Graph.Outputs, v)
	a.outputs = append(a.outputs, v.Name)
	return len(a.outputs) - 1
}

// adaptOutput fetches an output of the model, which may be an input as well, as it is, or as
// elements and shape.
func (a *adapted) adaptOutput(v onnx.ValueInfo, input bool) {
	g := a.model.Graph
	add := func(op string, in []string, out string, attrs ...onnx.Attr) {
		g.Nodes = append(g.Nodes, &onnx.Node{Op: op, Inputs: in, Outputs: []string{out},
			Attrs: attrs})
	}
	o := output{info: v}
	if input {
		// The ONNX Runtime hands such an output on as it is and does not write where it is told to.
		copied := pass.Unique(a.taken, v.Name+"/copy")
		add("Identity", []string{v.Name}, copied)
		v.Name = copied
	}
	carried := carrier(v.DType)
	// Before operator set 5 there is no Reshape by an input, and the output is fetched as it is.
	if len(v.Shape) > 0 && carried == v.DType || a.model.Opset() < 5 {
		o.at = a.fetch(v)
		a.plan = append(a.plan, o)
		return
	}
	o.flat = true
	from, dtype := v.Name, v.DType
	if carried != v.DType {
		o.cast, dtype = v.DType, carried
		cast := pass.Unique(a.taken, v.Name+"/"+carried.String())
		add("Cast", []string{from}, cast, onnx.IntAttr("to", int(carried)))
		from = cast
	}
	if a.row == "" {
		a.row = pass.Unique(a.taken, "ort/row")
		g.Initializers[a.row] = onnx.Vector[int64](-1)
	}
	elements, shape := pass.Unique(a.taken, v.Name+"/elements"),
		pass.Unique(a.taken, v.Name+"/shape")
	add("Reshape", []string{from, a.row}, elements)
	add("Shape", []string{from}, shape) // the runtime has none of the types that are cast
	o.at = a.fetch(onnx.ValueInfo{Name: elements, DType: dtype,
		Shape: []onnx.Dim{onnx.Symbolic("")}})
	o.shape = a.fetch(onnx.ValueInfo{Name: shape, DType: onnx.Int64,
		Shape: []onnx.Dim{onnx.Symbolic("")}})
	a.plan = append(a.plan, o)
}

// noScalar reports whether an input is a scalar of a type of which onnxruntime_go can hand over
// none: it is fed as a row of one.
func noScalar(v onnx.ValueInfo) bool {
	return v.Shape != nil && len(v.Shape) == 0 &&
		(v.DType == onnx.String || carrier(v.DType) != v.DType)
}

// carrier is the type that an output of type d is fetched in.
func carrier(d onnx.DType) onnx.DType {
	switch {
	case d == onnx.Float16 || d == onnx.BFloat16 || d.IsNarrowFloat():
		return onnx.Float32
	case d.IsNarrow():
		return onnx.Int32
	}
	return d
}

// carried turns elements that came in their carrier back into those of type d. No number is
// rounded, since each came from one of type d.
func carried(t *onnx.Tensor, d onnx.DType) *onnx.Tensor {
	out, err := onnx.Zeros(d, t.Shape...)
	if err != nil {
		panic(err) // t exists, and so does its shape
	}
	switch to := out.Data.(type) {
	case []uint8:
		code := func(v float32) uint8 { return uint8(v) }
		if d.IsNarrowFloat() {
			code = onnx.Float32ToNarrow(d, false)
		}
		for i := range to {
			to[i] = code(float32(t.At(i)))
		}
	case []int8:
		for i := range to {
			to[i] = int8(t.At(i))
		}
	case []uint16: // the bits of halves
		for i, f := range t.F32() {
			if to[i] = float16bits(f); d == onnx.BFloat16 {
				to[i] = uint16(math.Float32bits(f) >> 16)
			}
		}
	}
	return out
}

// float16bits is the IEEE 754 binary16 form of a value that binary16 can hold, with the bits of a
// NaN. A NaN's payload of 23 bits is cut to its highest ten.
func float16bits(f float32) uint16 {
	b := math.Float32bits(f)
	if f == f {
		return onnx.Float32ToFloat16(f)
	}
	h := uint16(b>>16&0x8000) | 0x7c00 | uint16(b&0x7fffff>>13)
	if h&0x3ff == 0 {
		h |= 1 // a NaN stays one
	}
	return h
}
