package ort

import (
	"fmt"
	"math"

	"fmp/onnx"
)

// output says how an output of the model is fetched from the session.
//
// onnxruntime_go 1.27 cannot take a scalar, nor a tensor of half precision or of less than 8 bits, that the ONNX Runtime
// allocated. Such outputs, and those of unknown rank, which may turn out to be scalars, come as two of
// the session's own: their elements in a row, cast to [carrier], which is exact, and their shape.
type output struct {
	info  onnx.ValueInfo
	at    int // index among the session's outputs
	flat  bool
	cast  onnx.DType // the output's own type where the elements were cast
	shape int        // index of the shape where flat
}

// dummyInput is given to models without inputs, because onnxruntime_go cannot run those.
const dummyInput = "ort/none"

// adapt rewrites a model so that onnxruntime_go can run it: m itself is not changed.
func adapt(m *onnx.Model) (model *onnx.Model, inputs, outputs []string, plan []output, err error) {
	g := *m.Graph
	g.Nodes = append([]*onnx.Node{}, m.Graph.Nodes...)
	g.Outputs = nil
	g.Inputs = append([]onnx.ValueInfo{}, m.Graph.Inputs...)
	g.Initializers = map[string]*onnx.Tensor{}
	for k, v := range m.Graph.Initializers {
		g.Initializers[k] = v
	}
	adapted := *m
	adapted.Graph = &g

	taken := map[string]bool{}
	for _, n := range g.Nodes {
		for _, o := range n.Outputs {
			taken[o] = true
		}
	}
	for _, v := range g.Inputs {
		taken[v.Name] = true
	}
	for k := range g.Initializers {
		taken[k] = true
	}
	fresh := func(base string) string {
		name := base
		for i := 1; taken[name]; i++ {
			name = fmt.Sprintf("%s.%d", base, i)
		}
		taken[name] = true
		return name
	}
	if len(m.Graph.Outputs) == 0 {
		return nil, nil, nil, nil, fmt.Errorf("it has no outputs")
	}
	for i, v := range g.Inputs {
		if noScalar(v) && m.Opset() >= 5 {
			row, scalar := fresh(v.Name+"/row"), fresh(v.Name+"/scalar")
			g.Initializers[scalar] = onnx.NewTensor([]int64{}, 0)
			g.Nodes = append([]*onnx.Node{{Op: "Reshape", Inputs: []string{row, scalar}, Outputs: []string{v.Name}}}, g.Nodes...)
			v = onnx.ValueInfo{Name: row, DType: v.DType, Shape: onnx.Shape(1)}
			g.Inputs[i] = v
		}
		inputs = append(inputs, v.Name)
	}
	if len(inputs) == 0 {
		name := fresh(dummyInput)
		g.Inputs = append(g.Inputs, onnx.ValueInfo{Name: name, DType: onnx.Float32, Shape: onnx.Shape(1)})
		inputs = append(inputs, name)
	}
	addOutput := func(v onnx.ValueInfo) int {
		g.Outputs = append(g.Outputs, v)
		outputs = append(outputs, v.Name)
		return len(outputs) - 1
	}
	row := ""
	for _, v := range m.Graph.Outputs {
		o := output{info: v}
		if _, ok := m.Graph.Input(v.Name); ok {
			// The ONNX Runtime hands such an output on as it is and does not write where it is told to.
			copied := fresh(v.Name + "/copy")
			g.Nodes = append(g.Nodes, &onnx.Node{Op: "Identity", Inputs: []string{v.Name}, Outputs: []string{copied}})
			v.Name = copied
		}
		carried := carrier(v.DType)
		if len(v.Shape) > 0 && carried == v.DType || m.Opset() < 5 {
			o.at = addOutput(v)
			plan = append(plan, o)
			continue
		}
		o.flat = true
		from, dtype := v.Name, v.DType
		if carried != v.DType {
			o.cast, dtype = v.DType, carried
			cast := fresh(v.Name + "/" + carried.String())
			g.Nodes = append(g.Nodes, &onnx.Node{Op: "Cast", Inputs: []string{from}, Outputs: []string{cast}, Attrs: []onnx.Attr{onnx.IntAttr("to", int(carried))}})
			from = cast
		}
		if row == "" {
			row = fresh("ort/row")
			g.Initializers[row] = onnx.Vector[int64](-1)
		}
		elements, shape := fresh(v.Name+"/elements"), fresh(v.Name+"/shape")
		g.Nodes = append(g.Nodes,
			&onnx.Node{Op: "Reshape", Inputs: []string{from, row}, Outputs: []string{elements}},
			&onnx.Node{Op: "Shape", Inputs: []string{v.Name}, Outputs: []string{shape}})
		o.at = addOutput(onnx.ValueInfo{Name: elements, DType: dtype, Shape: []onnx.Dim{onnx.Symbolic("")}})
		o.shape = addOutput(onnx.ValueInfo{Name: shape, DType: onnx.Int64, Shape: []onnx.Dim{onnx.Symbolic("")}})
		plan = append(plan, o)
	}
	return &adapted, inputs, outputs, plan, nil
}

// noScalar reports whether an input is a scalar of a type of which onnxruntime_go can hand over none: it is fed as a row of one.
func noScalar(v onnx.ValueInfo) bool {
	return v.Shape != nil && len(v.Shape) == 0 && (v.DType == onnx.String || carrier(v.DType) != v.DType)
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

// carried turns elements that came in their carrier back into those of type d.
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
	default:
		out.Data = halve(t.F32(), d)
	}
	return out
}

// halve turns float32 elements that came from halves back into their bits.
func halve(src []float32, to onnx.DType) []uint16 {
	out := make([]uint16, len(src))
	for i, f := range src {
		if to == onnx.BFloat16 {
			out[i] = uint16(math.Float32bits(f) >> 16)
		} else {
			out[i] = float16bits(f)
		}
	}
	return out
}

// float16bits is the IEEE 754 binary16 form of a value that binary16 can hold.
func float16bits(f float32) uint16 {
	b := math.Float32bits(f)
	sign := uint16(b >> 16 & 0x8000)
	exp := int(b>>23&0xff) - 127 + 15
	man := b & 0x7fffff
	switch {
	case b&0x7fffffff == 0:
		return sign
	case b>>23&0xff == 0xff:
		h := sign | 0x7c00 | uint16(man>>13)
		if man != 0 && h&0x3ff == 0 {
			h |= 1 // a NaN stays one
		}
		return h
	case exp >= 31:
		return sign | 0x7c00
	case exp <= 0: // subnormal
		if exp < -10 {
			return sign
		}
		return sign | uint16((man|0x800000)>>(14-exp))
	}
	return sign | uint16(exp)<<10 | uint16(man>>13)
}
