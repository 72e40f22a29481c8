package spell

import (
	"cmp"
	"fmt"
	"math"
	"slices"

	"fmp/onnx"
	"fmp/onnx/op"
)

// Scan spells out the Scan of operator set 8, which has a batch, as two of set 9: one over the
// batch, whose body is one over the sequence.
//
//	Scan_8(lengths, v_1..v_n [B, ...], x_1..x_m [B, T, ...]) = Scan over B of Scan(v_1.., x_1..)
//
// A sequence that is shorter is cut before its Scan (so that one that goes backward begins at its
// own end), and the outputs that the Scan returns are filled with zeros up to T, as the ONNX
// Runtime does; the standard leaves these positions undefined. n is not changed; the result has n's
// outputs under their names, and its body is shared with n.
func Scan(n *onnx.Node, fresh func(base string) (name string)) (*onnx.Node, error) {
	attrs := op.Attrs(n, 8)
	body, ok := n.Attr("body")
	m := attrs.Int("num_scan_inputs")
	inputs := n.Inputs[min(1, len(n.Inputs)):]
	carried := len(inputs) - m
	if !ok || body.Graph == nil || m < 1 || carried < 0 || carried > len(n.Outputs) ||
		len(body.Graph.Inputs) != len(inputs) ||
		len(body.Graph.Outputs) != len(n.Outputs) {
		return nil, fmt.Errorf("num_scan_inputs is %d of %d inputs behind the lengths, with %d "+
			"outputs, which does not fit its body", m, len(inputs), len(n.Outputs))
	}
	base := cmp.Or(n.Outputs[0], "scan")
	e := &emit{fresh: fresh, base: base}
	each := &onnx.Graph{Name: base + "/each", Initializers: map[string]*onnx.Tensor{}}
	outer := &onnx.Node{Name: n.Name, Op: "Scan", Outputs: n.Outputs}
	// Each input of the node is scanned along the batch, its first axis, and loses it in the body.
	given := func(from string, info onnx.ValueInfo) string {
		outer.Inputs = append(outer.Inputs, from)
		info.Name = e.fresh(base + "/one")
		each.Inputs = append(each.Inputs, info)
		return info.Name
	}
	length := ""
	if lens := n.Inputs[0]; lens != "" {
		// In the body of the outer Scan the batch's axis is gone, and a length is a scalar.
		length = given(lens, onnx.ValueInfo{DType: onnx.Int64, Shape: onnx.Shape()})
	}
	inner := &onnx.Node{Name: e.fresh(base + "/sequence"), Op: "Scan"}
	longest, steps := "", ""
	for i, in := range inputs {
		info := body.Graph.Inputs[i]
		if i < carried {
			inner.Inputs = append(inner.Inputs, given(in, info))
			continue
		}
		if info.Shape != nil {
			info.Shape = append([]onnx.Dim{onnx.Symbolic("")}, info.Shape...)
		}
		x := given(in, info)
		if length != "" {
			if steps == "" { // 0..length-1
				longest = e.slice(e.un("Shape", x), 0, 1)
				length = e.bi("Reshape", length, e.constant(onnx.Vector[int64](1)))
				ones := e.op("ConstantOfShape", []string{length},
					onnx.TensorAttr("value", onnx.Vector[int64](1)))
				steps = e.bi("Reshape", e.un("NonZero", ones), e.constant(onnx.Vector[int64](-1)))
			}
			x = e.bi("Gather", x, steps)
		}
		inner.Inputs = append(inner.Inputs, x)
	}
	// Directions that the node leaves out are 0, forward.
	inner.Attrs = []onnx.Attr{body, onnx.IntAttr("num_scan_inputs", m),
		onnx.IntsAttr("scan_input_directions",
			append(attrs.Ints("directions"), make([]int, m)...)[:m]...)}
	for range n.Outputs {
		inner.Outputs = append(inner.Outputs, e.fresh(base+"/result"))
	}
	e.nodes = append(e.nodes, inner)
	for i, out := range slices.Clone(inner.Outputs) {
		info := body.Graph.Outputs[i]
		if i >= carried {
			info.Shape = nil
			if length != "" {
				zero, err := onnx.Zeros(info.DType, 1)
				if err != nil {
					return nil, fmt.Errorf("output %q of its body: %w", info.Name, err)
				}
				out = e.lengthened(out, e.bi("Sub", longest, length), zero)
			}
		}
		info.Name = out
		each.Outputs = append(each.Outputs, info)
	}
	each.Nodes = e.nodes
	outer.Attrs = []onnx.Attr{{Name: "body", Kind: onnx.AttrGraph, Graph: each},
		onnx.IntAttr("num_scan_inputs", len(outer.Inputs))}
	return outer, nil
}

// lengthened returns x with missing rows of zeros behind it. missing is a vector of one.
func (e *emit) lengthened(x, missing string, zero *onnx.Tensor) string {
	shape := e.opInt("Concat", []string{missing, e.slice(e.un("Shape", x), 1, math.MaxInt32)}, "axis", 0)
	zeros := e.op("ConstantOfShape", []string{shape}, onnx.TensorAttr("value", zero))
	return e.opInt("Concat", []string{x, zeros}, "axis", 0)
}

// slice takes positions from to to-1 of a vector, in the form of operator set 9.
func (e *emit) slice(v string, from, to int) string {
	return e.op("Slice", []string{v}, onnx.IntsAttr("starts", from), onnx.IntsAttr("ends", to))
}
