// Package inspect counts a model's parameters and operators, and the operations of one run.
package inspect

import (
	"fmt"
	"maps"
	"math"
	"slices"

	"fmp/onnx"
	"fmp/onnx/op"
	"fmp/onnx/pass"
	"fmp/onnx/shape"
)

// Summary holds the sizes of a model.
type Summary struct {
	Parameters     int64          // elements of floating-point initializers
	ParameterBytes int64          // bytes of all initializers
	Nodes          int            // functions inlined, subgraphs included
	Operators      map[string]int // how often each operator is used
	// FLOPs is the number of floating-point operations of one call with the sizes below: a
	// multiplication and an addition are two, any other scalar function is one, moving and
	// comparing elements is none.
	FLOPs float64
	Sizes map[string]int // the sizes that the symbols of the inputs were given
	// Uncounted lists operators whose work is not in FLOPs, as their shapes depend on data or they
	// have subgraphs or no rule.
	Uncounted []string
}

// Stats summarises a model. sizes gives the symbols of the inputs; those that it lacks are 1. An
// input size that is too small for the model, such as an image of one pixel, is an error.
func Stats(m *onnx.Model, sizes map[string]int) (Summary, error) {
	s := Summary{Operators: map[string]int{}, Sizes: map[string]int{}}
	c := onnx.Clone(m)
	if err := pass.Inline(c); err != nil {
		return s, err
	}
	for _, t := range c.Graph.Initializers {
		if t.DType.IsFloat() {
			s.Parameters += int64(t.Len())
		}
		s.ParameterBytes += int64(t.Len()) * int64(t.DType.Size())
	}
	countNodes(c.Graph, &s)
	for i, in := range c.Graph.Inputs {
		for j, d := range in.Shape {
			if d.IsKnown() {
				continue
			}
			n, ok := sizes[d.Symbol]
			if !ok {
				n = 1
			}
			if n < 0 || n > onnx.MaxElements {
				return s, fmt.Errorf("size %d of %q; allowed are 0 to %d", n, d.Symbol,
					onnx.MaxElements)
			}
			if d.Symbol != "" {
				s.Sizes[d.Symbol] = n
			}
			c.Graph.Inputs[i].Shape[j] = onnx.Known(n)
		}
	}
	for name := range sizes {
		if _, ok := s.Sizes[name]; !ok {
			return s, fmt.Errorf("no input has a size called %q; there are %q", name,
				slices.Sorted(maps.Keys(s.Sizes)))
		}
	}
	// Shapes that the file declares within would contradict the sizes that inputs have here.
	c.Graph.Values = nil
	types, err := shape.Types(c)
	if err != nil {
		return s, fmt.Errorf("counting operations with sizes %v: %w", s.Sizes, err)
	}
	for _, n := range c.Graph.Nodes {
		f, ok := flops(n, int(c.Opset()), types)
		if !ok {
			if !slices.Contains(s.Uncounted, n.Op) {
				s.Uncounted = append(s.Uncounted, n.Op)
			}
			continue
		}
		s.FLOPs += f
	}
	slices.Sort(s.Uncounted)
	return s, nil
}

// countNodes counts a node that holds graphs as one, and the nodes of its graphs besides.
func countNodes(g *onnx.Graph, s *Summary) {
	for _, n := range g.Nodes {
		s.Nodes++
		s.Operators[onnx.OpName{Domain: n.Domain, Name: n.Op}.String()]++
		for _, sub := range n.Subgraphs() {
			countNodes(sub, s)
		}
	}
}

// count is the number of elements of a value; ok says whether its shape is known.
func count(v onnx.ValueInfo) (n float64, ok bool) {
	if v.Shape == nil {
		return 0, false
	}
	n = 1
	for _, d := range v.Shape {
		if !d.IsKnown() {
			return 0, false
		}
		n *= float64(d.Size)
	}
	return n, true
}

// Operators that compare or choose elements and compute none, beside those that only move them.
var noWork = map[string]bool{
	"Identity": true, "Cast": true, "CastLike": true, "Where": true, "Equal": true, "Greater": true,
	"GreaterOrEqual": true,
	"Less":           true, "LessOrEqual": true, "And": true, "Or": true, "Xor": true, "Not": true,
	"Max": true, "Min": true,
	"Neg": true, "Abs": true, "Sign": true, "Floor": true, "Ceil": true, "Round": true,
	"IsNaN": true, "IsInf": true,
	"ArgMax": true, "ArgMin": true, "TopK": true, "MaxPool": true, "MaxUnpool": true, "BitShift": true,
	"BitwiseAnd": true,
	"BitwiseOr":  true, "BitwiseXor": true, "BitwiseNot": true, "Shrink": true,
	"ThresholdedRelu": true,
	"Hardmax":         true,
}

// Operations for each element of the first output.
var perOutput = map[string]float64{
	"BatchNormalization": 2, "Sigmoid": 4, "Tanh": 1, "Gelu": 8, "Softplus": 3, "Mish": 5,
	"HardSwish": 4, "HardSigmoid": 2,
	"Elu": 3, "Selu": 4, "Celu": 4, "LeakyRelu": 1, "PRelu": 1, "Resize": 1, "Upsample": 1,
	"Dropout": 0, "Relu": 0, "Clip": 0,
}

// Operations for each element of the first input. Softmax is a difference, an exponential, a sum
// and a quotient. Its largest element is found by comparing, which counts as none. An operation for
// each sum alone, as ReduceMean's quotient, is left out.
var perInput = map[string]float64{
	"Softmax": 4, "LogSoftmax": 5, "LayerNormalization": 8, "InstanceNormalization": 8,
	"GroupNormalization":        8,
	"MeanVarianceNormalization": 6, "LpNormalization": 3, "GlobalAveragePool": 1,
	"GlobalMaxPool": 0, "ReduceSum": 1,
	"ReduceMean": 1, "ReduceMax": 0, "ReduceMin": 0, "ReduceProd": 1, "ReduceL1": 2, "ReduceL2": 2,
	"ReduceLogSum":    1,
	"ReduceLogSumExp": 2, "ReduceSumSquare": 2, "CumSum": 1, "GlobalLpPool": 2, "LRN": 10,
}

// flops counts the operations of one node; ok is false where its shapes are not known or it has no
// rule.
func flops(n *onnx.Node, opset int, types map[string]onnx.ValueInfo) (ops float64, ok bool) {
	if n.Domain != "" || len(n.Outputs) == 0 || len(n.Subgraphs()) > 0 {
		return 0, false
	}
	if noWork[n.Op] || shape.Moves(n.Op) {
		return 0, true
	}
	x, xok := count(types[n.Input(0)])
	y, yok := count(types[n.Outputs[0]])
	if p, found := perInput[n.Op]; found {
		return p * x, xok
	}
	if p, found := perOutput[n.Op]; found {
		return p * y, yok
	}
	if rule, found := counted[n.Op]; found {
		w, wok := count(types[n.Input(1)])
		c := &call{Node: n, attrs: op.Attrs(n, opset), types: types, x: known(x, xok),
			w: known(w, wok), y: known(y, yok)}
		f := rule(c)
		return f, !math.IsNaN(f)
	}
	if shape.Elementwise(n.Op) {
		return y, yok
	}
	return 0, false
}

// known is n, or NaN where it is not known: sums and products with it are not known either.
func known(n float64, ok bool) float64 {
	if !ok {
		return math.NaN()
	}
	return n
}

// call is a node whose operations are counted, with the elements of its first two inputs and its
// first output.
type call struct {
	*onnx.Node
	attrs   op.Values
	types   map[string]onnx.ValueInfo
	x, w, y float64
}

// size returns the size of an axis of input i.
func (c *call) size(i, axis int) float64 {
	v := c.types[c.Input(i)]
	if axis < 0 {
		axis += len(v.Shape)
	}
	if axis < 0 || axis >= len(v.Shape) || !v.Shape[axis].IsKnown() {
		return math.NaN()
	}
	return float64(v.Shape[axis].Size)
}

// bias counts the addition of input 2 to each element of the output.
func (c *call) bias() float64 {
	if c.Input(2) == "" {
		return 0
	}
	return c.y
}

// counted holds the rules of operators that sum products. An element of MatMul's result sums k
// products, each of two operations. Conv's weight is [M, C/group, k...]: an output sums the weights
// of its channel. ConvTranspose's weight is [C, M/group, k...]: an input element meets the weights
// of its channel.
var counted = map[string]func(c *call) float64{
	"MatMul":        func(c *call) float64 { return 2 * c.y * c.size(0, -1) },
	"Gemm":          func(c *call) float64 { return 2*c.y*c.size(0, 1-c.attrs.Int("transA")) + c.bias() },
	"Conv":          func(c *call) float64 { return 2*c.y*c.w/c.size(1, 0) + c.bias() },
	"ConvTranspose": func(c *call) float64 { return 2*c.x*c.w/c.size(1, 0) + c.bias() },
	"AveragePool":   countWindow,
	"LpPool":        countWindow,
	"Einsum":        countEinsum,
	"RNN":           func(c *call) float64 { return countRecurrent(c, 1) },
	"GRU":           func(c *call) float64 { return countRecurrent(c, 3) },
	"LSTM":          func(c *call) float64 { return countRecurrent(c, 4) },
}

// countWindow counts one operation for each element of a window. Windows at the edges count whole,
// and the quotient of a mean is left out.
func countWindow(c *call) float64 {
	k := 1.0
	for _, v := range c.attrs.Ints("kernel_shape") {
		k *= float64(v)
	}
	return k * c.y
}

// countEinsum counts one product of the operands and one sum for every combination of labels.
func countEinsum(c *call) float64 {
	terms, result, err := op.EinsumTerms(c.attrs.Str("equation"))
	if err != nil || len(terms) != len(c.Inputs) {
		return math.NaN()
	}
	total, seen := c.y, map[rune]bool{'.': true}
	for _, r := range result {
		seen[r] = true
	}
	for i, term := range terms {
		at := 0
		for _, r := range term {
			if r == '.' {
				at = len(c.types[c.Input(i)].Shape) - len([]rune(term))
			} else if !seen[r] {
				seen[r] = true
				total *= c.size(i, at)
			}
			at++
		}
	}
	return float64(len(terms)) * total
}

// countRecurrent counts the products of a layer: X is [seq, batch, in], W [dirs, gates*hidden, in],
// R [dirs, gates*hidden, hidden]. Biases and activations are left out. Either layout has the same
// product of steps and batch.
func countRecurrent(c *call, gates float64) float64 {
	steps, hidden := c.size(0, 0)*c.size(0, 1), c.size(2, 2)
	return 2 * steps * c.size(1, 0) * gates * hidden * (c.size(0, 2) + hidden)
}
