package ort

import (
	"fmt"
	"math"

	"fmp/onnx"
)

// output says how an output of the model is fetched from the session.
//
// onnxruntime_go 1.27 cannot take a scalar, nor a half-precision tensor, that the ONNX Runtime
// allocated. Such outputs, and those of unknown rank, which may turn out to be scalars, come as two of
// the session's own: their elements in a row (cast to float32 where they are halves, which is exact)
// and their shape.
type output struct {
	info  onnx.ValueInfo
	at    int // index among the session's outputs
	flat  bool
	half  onnx.DType // Float16 or BFloat16 where the elements were cast
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
		inputs = append(inputs, v.Name)
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
		isHalf := v.DType == onnx.Float16 || v.DType == onnx.BFloat16
		if len(v.Shape) > 0 && !isHalf || m.Opset() < 5 {
			o.at = addOutput(v)
			plan = append(plan, o)
			continue
		}
		o.flat = true
		from, dtype := v.Name, v.DType
		if isHalf {
			o.half, dtype = v.DType, onnx.Float32
			cast := fresh(v.Name + "/float32")
			g.Nodes = append(g.Nodes, &onnx.Node{Op: "Cast", Inputs: []string{from}, Outputs: []string{cast}, Attrs: []onnx.Attr{onnx.IntAttr("to", int(onnx.Float32))}})
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
