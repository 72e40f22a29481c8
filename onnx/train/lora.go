package train

import (
	"fmt"
	"math"
	"slices"

	"fmp/onnx"
	"fmp/onnx/check"
	"fmp/onnx/pass"
	"fmp/onnx/shape"
)

// Names of the factors A [d, r] and B [r, k] of a weight W are W and one of these.
const (
	loraA = "/lora_a"
	loraB = "/lora_b"
)

// AddLoRA returns the model with W + A B in place of every named weight W, read as the matrix [d,
// k] of its first axis and of all others together, for A [d, rank] drawn from U(-√(3/rank),
// √(3/rank)) and B zero (Hu et al. 2021, arXiv:2106.09685, equation 3, with α = r): at first the
// model's outputs are unchanged. The second result names the factors, which are to be trained in
// W's place. Vectors, and weights of which a side is no more than rank, are passed over. m is not
// changed. Factors are drawn by seed and name, so that the order of weights does not matter.
func AddLoRA(m *onnx.Model, weights []string, rank int,
	seed uint64) (*onnx.Model, []string, error) {
	if rank < 1 {
		return nil, nil, fmt.Errorf("low-rank adaptation: rank %d; allowed are 1 and up", rank)
	}
	m = onnx.Clone(m)
	g := m.Graph
	taken := map[string]bool{}
	g.AddNames(taken)
	var front []*onnx.Node
	var factors []string
	for _, name := range weights {
		w := g.Initializers[name]
		if w == nil {
			return nil, nil, fmt.Errorf("low-rank adaptation: the model has no initializer %q",
				name)
		}
		if len(w.Shape) < 2 || w.Len() == 0 || min(w.Shape[0], w.Len()/w.Shape[0]) <= rank {
			continue
		}
		d, k := w.Shape[0], w.Len()/w.Shape[0]
		a, b := name+loraA, name+loraB
		if taken[a] || taken[b] {
			return nil, nil, fmt.Errorf("low-rank adaptation: the model has a value %q or %q already", a, b)
		}
		g.Initializers[a], g.Initializers[b] = onnx.ZerosF32(d, rank), onnx.ZerosF32(rank, k)
		// The variance of U(-a, a) is a²/3, here 1/rank.
		uniform(g.Initializers[a], math.Sqrt(3/float64(rank)), seed, a)
		product, adapted := pass.Unique(taken, name+"/lora"), pass.Unique(taken, name+"/adapted")
		sized, shapeOf := pass.Unique(taken, name+"/lora_sized"), pass.Unique(taken, name+"/shape")
		dims := make([]int64, len(w.Shape))
		for i, n := range w.Shape {
			dims[i] = int64(n)
		}
		g.Initializers[shapeOf] = onnx.Vector(dims...)
		// The nodes in front are added last, so that they read W itself.
		readInstead(g.Nodes, name, adapted)
		front = append(front, &onnx.Node{Name: product, Op: "MatMul", Inputs: []string{a, b},
			Outputs: []string{product}},
			&onnx.Node{Name: sized, Op: "Reshape", Inputs: []string{product, shapeOf},
				Outputs: []string{sized}},
			&onnx.Node{Name: adapted, Op: "Add", Inputs: []string{name, sized},
				Outputs: []string{adapted}})
		factors = append(factors, a, b)
	}
	if len(factors) == 0 {
		return nil, nil, fmt.Errorf(
			"low-rank adaptation: no weight is a matrix larger than rank %d on both sides; lower the rank",
			rank)
	}
	g.Nodes = slices.Concat(front, g.Nodes)
	if err := shape.Infer(m); err != nil {
		return nil, nil, fmt.Errorf("low-rank adaptation: %w", err)
	}
	return m, factors, check.Model(m)
}

// readInstead makes nodes, and the graphs within them, read another value. A body has no value of
// the same name, as package check refuses that.
func readInstead(nodes []*onnx.Node, name, other string) {
	for _, n := range nodes {
		for i, in := range n.Inputs {
			if in == name {
				n.Inputs[i] = other
			}
		}
		for _, b := range n.Subgraphs() {
			readInstead(b.Nodes, name, other)
			for i, o := range b.Outputs {
				if o.Name == name {
					b.Outputs[i].Name = other
				}
			}
		}
	}
}

// MergeLoRA adds A B of the factors in values to each weight of the model from before [AddLoRA]. It
// takes O(d k rank) operations a weight, in float32. Weights without factors stay; tensors are
// replaced and not written to.
func MergeLoRA(m *onnx.Model, values map[string]*onnx.Tensor) error {
	for name, w := range m.Graph.Initializers {
		a, b := values[name+loraA], values[name+loraB]
		if a == nil || b == nil {
			continue
		}
		d, k := w.Shape[0], w.Len()/w.Shape[0]
		if len(a.Shape) != 2 || a.Shape[0] != d || len(b.Shape) != 2 || b.Shape[1] != k ||
			a.Shape[1] != b.Shape[0] {
			return fmt.Errorf("merging low-rank factors: %q is %v beside %v and %v", name, w, a, b)
		}
		merged := w.Clone()
		r := a.Shape[1]
		for i := range d {
			row := merged.F32()[i*k : (i+1)*k]
			for j := range row {
				sum := float32(0)
				for l := range r {
					sum += a.F32()[i*r+l] * b.F32()[l*k+j]
				}
				row[j] += sum
			}
		}
		m.Graph.Initializers[name] = merged
	}
	return nil
}
