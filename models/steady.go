package models

import (
	"fmt"
	"slices"

	"fmp/onnx"
	"fmp/onnx/shape"
)

// unsteady are operators whose work or result may differ from run to run, though shapes are known: branches and loops (with every
// operator that holds a graph), and random numbers.
var unsteady = []string{"If", "Loop", "Scan", "SequenceMap", "RandomNormal", "RandomNormalLike", "RandomUniform", "RandomUniformLike",
	"Bernoulli", "Multinomial"}

// lengths lists the inputs of recurrent operators that say how many steps are made.
var lengths = map[string]int{"RNN": 4, "GRU": 4, "LSTM": 4}

// Steady returns an error unless the work of a model follows from the shapes of its inputs alone, so that neither time nor memory
// nor the number of rows that come out can tell of the content of an image: no branches, loops and random numbers, and every value of
// a shape that is known once the inputs' are. Symbolic sizes of the inputs are taken for 1.
func Steady(m *onnx.Model) error {
	one := onnx.Clone(m)
	for _, in := range one.Graph.Inputs {
		for i, d := range in.Shape {
			if !d.IsKnown() {
				in.Shape[i] = onnx.Known(1)
			}
		}
	}
	types, err := shape.Types(one)
	if err != nil {
		return fmt.Errorf("the extractor: %w", err)
	}
	for _, n := range one.Graph.Nodes {
		if n.Domain == "" && slices.Contains(unsteady, n.Op) || len(n.Subgraphs()) > 0 {
			return fmt.Errorf("the extractor's %s branches, loops or draws random numbers; what it does must not depend on what is in an image",
				n.Label())
		}
		if i, ok := lengths[n.Op]; ok && n.Input(i) != "" && one.Graph.Initializers[n.Input(i)] == nil {
			return fmt.Errorf("the extractor's %s computes how many steps it makes; what it does must not depend on what is in an image", n.Label())
		}
		for _, o := range n.Outputs {
			v := types[o]
			if o == "" || v.Shape != nil && v.DType != onnx.Undefined &&
				!slices.ContainsFunc(v.Shape, func(d onnx.Dim) bool { return !d.IsKnown() }) {
				continue
			}
			return fmt.Errorf("the extractor's %s gives %v: its shape cannot be told before an image is read; what it does must not depend on "+
				"what is in an image", n.Label(), v)
		}
	}
	return nil
}
