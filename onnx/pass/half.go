package pass

import (
	"fmt"
	"maps"
	"slices"

	"fmp/onnx"
	"fmp/onnx/op"
	"fmp/onnx/shape"
)

// ToFloat32 turns a model of half precision into one of float32: initializers and constants are
// converted exactly, and inputs, outputs and casts of Float16 and BFloat16 become Float32, in
// subgraphs and functions too. It computes the same function with less rounding. Other models stay
// as they are, and so does the model where an error is returned. Float16 has 11 significant bits
// and BFloat16 8, which float32's 24 hold exactly.
func ToFloat32(m *onnx.Model) error {
	if err := graphOf(m, "converting to float32"); err != nil {
		return err
	}
	c, w := onnx.Clone(m), &widening{}
	w.graph(c.Graph)
	for _, f := range c.Functions {
		w.nodes(f.Nodes)
		for i := range f.Defaults {
			w.attr(&f.Defaults[i], "")
		}
	}
	if !w.found {
		return nil // inference would change types that the file states
	}
	if err := shape.Infer(c); err != nil {
		return fmt.Errorf("converting %q to float32: %w", m.Graph.Name, err)
	}
	*m = *c
	return nil
}

func isHalf(d onnx.DType) bool { return d == onnx.Float16 || d == onnx.BFloat16 }

// widened is a tensor of halves in float32; one of another type is returned as it is, and shared.
func widened(t *onnx.Tensor) *onnx.Tensor {
	if t == nil || !isHalf(t.DType) {
		return t
	}
	bits, _ := t.Data.([]uint16)
	out := make([]float32, len(bits))
	for i, b := range bits {
		out[i] = onnx.HalfToFloat32(t.DType, b)
	}
	return &onnx.Tensor{DType: onnx.Float32, Shape: t.Shape, Data: out}
}

// widening turns parts of a model into float32, and notes whether one was of half precision.
type widening struct{ found bool }

// half reports whether a type is of half precision, and notes that one was found.
func (w *widening) half(d onnx.DType) bool {
	w.found = w.found || isHalf(d)
	return isHalf(d)
}

// graph changes g in place; tensors are replaced and not written to, since another model may share
// them.
func (w *widening) graph(g *onnx.Graph) {
	for name, t := range g.Initializers {
		if t != nil && w.half(t.DType) {
			g.Initializers[name] = widened(t)
		}
	}
	for _, vs := range [][]onnx.ValueInfo{g.Inputs, g.Outputs, g.Values, g.Optional} {
		for i := range vs {
			if w.half(vs[i].DType) {
				vs[i].DType = onnx.Float32
			}
		}
	}
	w.nodes(g.Nodes)
}

func (w *widening) nodes(nodes []*onnx.Node) {
	for _, n := range nodes {
		for i := range n.Attrs {
			w.attr(&n.Attrs[i], n.Op)
		}
	}
}

// attr widens an attribute's tensors and graphs, and a type that it names.
func (w *widening) attr(a *onnx.Attr, op string) {
	if a.Tensor != nil && w.half(a.Tensor.DType) {
		a.Tensor = widened(a.Tensor)
	}
	for i, t := range a.Tensors {
		if w.half(t.DType) {
			// The list is shared with the model that this one is a copy of.
			ts := append([]*onnx.Tensor{}, a.Tensors...)
			ts[i] = widened(t)
			a.Tensors = ts
		}
	}
	if a.Graph != nil {
		w.graph(a.Graph)
	}
	for _, g := range a.Graphs {
		w.graph(g)
	}
	// Attributes that name an element type.
	typed := a.Name == "to" && op == "Cast" || a.Name == "dtype" || a.Name == "output_datatype" ||
		a.Name == "stash_type"
	if typed && a.Kind == onnx.AttrInt && w.half(onnx.DTypeOf(a.Int)) {
		a.Int = int64(onnx.Float32)
	}
}

// halfSuffix marks the names of initializers that [StoreHalf] made.
const halfSuffix = "/half"

// StoreHalf stores the Float32 initializers and Constants of the main graph as Float16, followed
// by a Cast back to Float32. Those of fewer than least elements stay. That takes half the bytes on
// disk, and rounds weights to 11 significant bits; they are computed with in float32 as before.
// Runtimes work the casts out once, when they load the model. Graph outputs stay as they are. So
// do tensors that half precision does not hold: with elements beyond 65504 or that are not finite,
// or so small that most of their bits are lost, in all or in more than a sixteenth of the rows
// along the first axis. It returns how many were stored so, and how many it does not hold.
// Initializers are gone through by name, so that the same model gives the same file. It changes m
// in place: callers give a copy where the weights are needed further.
func StoreHalf(m *onnx.Model, least int) (stored, beyond int) {
	g := m.Graph
	taken := map[string]bool{}
	g.AddNames(taken)
	var names []string
	weights, made := maps.Clone(g.Initializers), g.Makers()
	for _, n := range g.Nodes {
		if t := op.Constant(n); n.Domain == "" && n.Op == "Constant" && t != nil {
			weights[n.Outputs[0]] = t
		}
	}
	for name, t := range weights {
		if t.DType == onnx.Float32 && t.Len() >= max(1, least) &&
			!taken[name+halfSuffix] && !isGraphOutput(g, name) &&
			!slices.ContainsFunc(g.Optional, func(v onnx.ValueInfo) bool { return v.Name == name }) {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	var casts []*onnx.Node
	gone := map[*onnx.Node]bool{}
	for _, name := range names {
		t := weights[name]
		bits := halved(t)
		if bits == nil {
			beyond++
			continue
		}
		delete(g.Initializers, name)
		gone[made[name]] = true
		g.Initializers[name+halfSuffix] = &onnx.Tensor{DType: onnx.Float16,
			Shape: slices.Clone(t.Shape), Data: bits}
		casts = append(casts, &onnx.Node{
			Name: name + "/widen", Op: "Cast", Inputs: []string{name + halfSuffix},
			Outputs: []string{name},
			Attrs:   []onnx.Attr{onnx.IntAttr("to", int(onnx.Float32))},
		})
	}
	nodes := casts
	for _, n := range g.Nodes {
		if !gone[n] {
			nodes = append(nodes, n)
		}
	}
	g.Nodes = nodes
	return len(casts), beyond
}

// faintShare is the share of a tensor's rows that may lose bits: training switches off a filter of
// a hundred or so in many networks, and leaves weights of 1e-8 in it.
const faintShare = 1. / 16

// halved rounds to half precision; nil where a value is too large for it, or where the norm of the
// errors is over twice that of rounding each value to 11 bits, in the tensor or in more than
// faintShare of its rows, along the first axis. Below 2^-14 halves have fewer bits, and beside
// large rows the loss of small ones would not be seen in the whole. A vector is one row.
func halved(t *onnx.Tensor) []uint16 {
	v, rows := t.F32(), 1
	if len(t.Shape) > 1 {
		rows = t.Shape[0]
	}
	bits := make([]uint16, 0, len(v))
	faint, norm, lost := 0, 0.0, 0.0
	for row := range slices.Chunk(v, len(v)/rows) {
		rowNorm, rowLost := 0.0, 0.0
		for _, x := range row {
			h := onnx.Float32ToFloat16(x)
			// All exponent bits set is an infinity or NaN.
			if h&0x7c00 == 0x7c00 {
				return nil
			}
			d := float64(x) - float64(onnx.HalfToFloat32(onnx.Float16, h))
			rowNorm, rowLost = rowNorm+float64(x)*float64(x), rowLost+d*d
			bits = append(bits, h)
		}
		norm, lost = norm+rowNorm, lost+rowLost
		if loses(rowNorm, rowLost) {
			faint++
		}
	}
	if loses(norm, lost) || float64(faint) > faintShare*float64(rows) {
		return nil
	}
	return bits
}

// loses compares the squared norms of values and of the errors of rounding them. Rounding to 11
// bits errs by at most 2^-11 of a number; twice that is 2^-10, or 2^-20 in squares.
func loses(norm, lost float64) bool { return lost > norm*0x1p-20 }

// RestoreHalf undoes [StoreHalf], the rounding apart: its initializers are Float32 again, under
// their old names, and the casts are gone.
func RestoreHalf(m *onnx.Model) {
	g := m.Graph
	g.Nodes = slices.DeleteFunc(slices.Clone(g.Nodes), func(n *onnx.Node) bool {
		if n.Op != "Cast" || len(n.Inputs) != 1 || len(n.Outputs) != 1 ||
			n.Inputs[0] != n.Outputs[0]+halfSuffix {
			return false
		}
		t := g.Initializers[n.Inputs[0]]
		if t == nil || t.DType != onnx.Float16 {
			return false
		}
		delete(g.Initializers, n.Inputs[0])
		g.Initializers[n.Outputs[0]] = widened(t)
		return true
	})
}

func isGraphOutput(g *onnx.Graph, name string) bool {
	return slices.ContainsFunc(g.Outputs, func(v onnx.ValueInfo) bool { return v.Name == name })
}
