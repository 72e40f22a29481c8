package onnx

import "slices"

// halfSuffix marks the names of initializers that [StoreHalf] made.
const halfSuffix = "/half"

// StoreHalf stores every Float32 initializer of the main graph that has at least least elements as Float16, followed by a Cast
// back to Float32: half the bytes on disk for weights rounded to 11 significant bits, computed with in float32 as before. Runtimes
// work the casts out once, when they load the model. Tensors with elements beyond 65504 or that are not finite stay as they
// are, and so do graph outputs. It returns how many were stored so.
func StoreHalf(m *Model, least int) int {
	g := m.Graph
	var names []string
	for name, t := range g.Initializers {
		if t.DType == Float32 && t.Len() >= max(1, least) && g.Initializers[name+halfSuffix] == nil && !isGraphOutput(g, name) {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	var casts []*Node
	for _, name := range names {
		t := g.Initializers[name]
		bits := make([]uint16, t.Len())
		finite := true
		for i, v := range t.F32() {
			bits[i] = Float32ToFloat16(v)
			finite = finite && bits[i]&0x7c00 != 0x7c00
		}
		if !finite {
			continue
		}
		delete(g.Initializers, name)
		g.Initializers[name+halfSuffix] = &Tensor{DType: Float16, Shape: slices.Clone(t.Shape), Data: bits}
		casts = append(casts, &Node{
			Name: name + "/widen", Op: "Cast", Inputs: []string{name + halfSuffix}, Outputs: []string{name},
			Attrs: []Attr{IntAttr("to", int(Float32))},
		})
	}
	g.Nodes = append(casts, g.Nodes...)
	return len(casts)
}

// RestoreHalf undoes [StoreHalf], the rounding apart: its initializers are Float32 again, under their old names, and the
// casts are gone.
func RestoreHalf(m *Model) {
	g := m.Graph
	g.Nodes = slices.DeleteFunc(slices.Clone(g.Nodes), func(n *Node) bool {
		if n.Op != "Cast" || len(n.Inputs) != 1 || len(n.Outputs) != 1 || n.Inputs[0] != n.Outputs[0]+halfSuffix {
			return false
		}
		t := g.Initializers[n.Inputs[0]]
		if t == nil || t.DType != Float16 {
			return false
		}
		delete(g.Initializers, n.Inputs[0])
		g.Initializers[n.Outputs[0]] = widened(t)
		return true
	})
}

func isGraphOutput(g *Graph, name string) bool {
	return slices.ContainsFunc(g.Outputs, func(v ValueInfo) bool { return v.Name == name })
}
