package models

import (
	"fmt"
	"slices"

	"fmp/onnx"
	"fmp/onnx/build"
	"fmp/onnx/check"
	"fmp/onnx/shape"
)

// Names of a classifier that can be adapted to a new owner's camera: the input shift [dx], which softened features are taken less of and
// which is 0 where it is not fed, and the output estimated_shift [dx], the shift that the images of a call have in common, of which no
// class need be known.
const (
	ShiftInput  = "shift"
	ShiftOutput = "estimated_shift"
)

// shiftTurns is the number of steps of expectation and maximization.
const shiftTurns = 10

// ShiftParts are the parts of the estimate of a shift b, in r directions in which the covariance within classes is I and the covariance
// of b over clients is diag(Variance). With the probabilities p_i of n images i given b, and features softened to phi_i,
//
//	p_i = softmax(rows_i Head + Bias - b Back Slope)
//	b   = Variance/(Variance + 1/n) * mean_i (phi_i To - p_i Means)
//
// are steps of expectation and maximization to the most probable b (Dempster, Laird and Rubin 1977): classes of the images come out of
// their probabilities, so that the images need not have them in equal shares.
type ShiftParts struct {
	To       *onnx.Tensor // [dx, r], softened features to the directions
	Back     *onnx.Tensor // [r, dx]
	Means    *onnx.Tensor // [C, r], class means
	Variance *onnx.Tensor // [r]
	Head     *onnx.Tensor // [k, C] of the coordinates, and
	Bias     *onnx.Tensor // [C]
}

// WithShift returns a graph of coordinates of a conjugate predictor, features [n, dx] to coordinates [n, k], with the input shift and the
// output estimated_shift. Further outputs read shifted features too.
func WithShift(coordinates *onnx.Model, p ShiftParts) (*onnx.Model, error) {
	m, err := withShift(onnx.Clone(coordinates), p)
	if err != nil {
		return nil, fmt.Errorf("adding a shift: %w", err)
	}
	return m, nil
}

func withShift(m *onnx.Model, p ShiftParts) (*onnx.Model, error) {
	g := m.Graph
	at := slices.IndexFunc(g.Nodes, func(n *onnx.Node) bool { return n.Op == "MatMul" && n.Input(1) == ConjMap })
	v, r := g.Initializers[ConjMap], g.Initializers[ConjMetric]
	if at < 0 || v == nil || r == nil || len(g.Inputs) != 1 {
		return nil, fmt.Errorf("graph %q is none of a conjugate predictor's coordinates", g.Name)
	}
	dx, k := v.Shape[0], v.Shape[1]
	phi := g.Nodes[at].Inputs[0]

	b := build.New("shift")
	features, rows := b.Input("phi", onnx.Float32, "n", dx), b.Input("rows", onnx.Float32, "n", k)
	shift := b.Input(ShiftInput, onnx.Float32, dx)
	to, back := b.Param("shift/to", p.To.Clone()), b.Param("shift/back", p.Back.Clone())
	means, variance := b.Param("shift/means", p.Means.Clone()), b.Param("shift/variance", p.Variance.Clone())
	slope := b.Param("shift/slope", product(product(v, r), p.Head)) // [dx, C]
	logits := b.Op("Gemm", []build.Ref{rows, b.Param("shift/head", p.Head.Clone()), b.Param("shift/bias", p.Bias.Clone())})
	logits = b.Add(logits, b.MatMul(b.Unsqueeze(shift, 0), slope)) // of features as they are
	step := b.MatMul(back, slope)
	images := b.Cast(b.Slice(b.Op("Shape", []build.Ref{features}), 0, 0, 1), onnx.Float32)
	gain := b.Div(variance, b.Add(variance, b.Div(b.F32(1), images)))
	here := b.MatMul(b.ReduceMean(features, true, 0), to) // [1, r]
	var moved build.Ref
	for turn := range shiftTurns {
		z := logits
		if turn > 0 {
			z = b.Sub(z, b.MatMul(moved, step))
		}
		p := b.ReduceMean(b.Softmax(z, 1), true, 0) // [1, C]
		moved = b.Mul(b.Sub(here, b.MatMul(p, means)), gain)
	}
	b.Output(ShiftOutput, b.Squeeze(b.MatMul(moved, back), 0))
	estimate, err := b.Model()
	if err != nil {
		return nil, err
	}
	return joined(m, estimate, at, phi)
}

// joined returns a graph of coordinates whose map, node at, reads phi less the shift, and the estimate, which reads both.
func joined(m, estimate *onnx.Model, at int, phi string) (*onnx.Model, error) {
	g, rows := m.Graph, m.Graph.Outputs[0].Name
	dx := g.Initializers[ConjMap].Shape[0]
	for _, n := range estimate.Graph.Nodes {
		for i, in := range n.Inputs {
			switch in {
			case "phi":
				n.Inputs[i] = phi
			case "rows":
				n.Inputs[i] = rows
			default:
				n.Inputs[i] = shiftName(in)
			}
		}
		for i, out := range n.Outputs {
			n.Outputs[i] = shiftName(out)
		}
		n.Name = shiftName(n.Name)
	}
	for name, t := range estimate.Graph.Initializers {
		g.Initializers[shiftName(name)] = t
	}
	g.AddOptional(ShiftInput, onnx.ZerosF32(dx))
	g.Nodes[at].Inputs[0] = "shift/from"
	g.Nodes = slices.Insert(g.Nodes, at, &onnx.Node{Name: "shift/from", Op: "Sub", Inputs: []string{phi, ShiftInput},
		Outputs: []string{"shift/from"}})
	g.Nodes = append(g.Nodes, estimate.Graph.Nodes...)
	g.Outputs = append(g.Outputs, onnx.ValueInfo{Name: ShiftOutput, DType: onnx.Float32, Shape: []onnx.Dim{onnx.Known(dx)}})
	g.Values = nil
	if err := shape.Infer(m); err != nil {
		return nil, err
	}
	return m, check.Model(m)
}

// shiftName returns the name within the classifier of a value of the estimate's graph.
func shiftName(name string) string {
	if name == "" || name == ShiftInput || name == ShiftOutput || len(name) > 6 && name[:6] == "shift/" {
		return name
	}
	return "shift/" + name
}

// product returns the product of matrices, [n, m] and [m, k].
func product(a, b *onnx.Tensor) *onnx.Tensor {
	n, m, k := a.Shape[0], a.Shape[1], b.Shape[1]
	out := onnx.ZerosF32(n, k)
	for i := range n {
		for j := range k {
			var sum float64
			for l, v := range a.F32()[i*m : (i+1)*m] {
				sum += float64(v) * float64(b.F32()[l*k+j])
			}
			out.F32()[i*k+j] = float32(sum)
		}
	}
	return out
}

// Adapted returns a classifier whose shift is that of an owner's images, as estimated_shift gives it.
func Adapted(classifier *onnx.Model, shift *onnx.Tensor) (*onnx.Model, error) {
	m := onnx.Clone(classifier)
	if err := m.Graph.SetDefault(ShiftInput, shift); err != nil {
		return nil, fmt.Errorf("adapting a classifier: %w", err)
	}
	return m, nil
}
