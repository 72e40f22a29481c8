package differential

import (
	"math"
	"slices"
	"strings"

	"fmp/onnx"
	"fmp/onnx/engine"
	"fmp/onnx/engine/pure"
	"fmp/onnx/op"
)

// disagreement is a class of them: the check, the operator ("" for any) of the node that the detail
// names, or else of the last, words of the detail, and other marks of the case. The check is engine,
// fold, upgrade or gradient. Where when is nil every case counts; its node is the one to blame.
type disagreement struct {
	check, op, says, why string
	when                 func(c *Case, n *onnx.Node) bool
}

// disagreements are those of the engines that are known, with their reason. Faults of our own do
// not stand here.
var disagreements = []disagreement{
	{"engine", "", "cannot be handed to the ONNX Runtime",
		"the Go bindings of the ONNX Runtime have no scalars of half precision", nil},
	{"engine", "", "Dilation not supported for AutoPadType",
		"the ONNX Runtime has no auto_pad SAME with dilations", nil},
	{"engine", "", "does not support double", "the ONNX Runtime's recurrent layers are float32 alone",
		nil},
	{"engine", "", "Ellipsis represents incompatible dimensions",
		"the ONNX Runtime does not sum over the axes of an ellipsis, which the equation leaves out", nil},
	{"engine", "", "_inlfunc_",
		"the ONNX Runtime spells the operator out in others that do not take its element type", nil},
	{"engine", "", "in node ()",
		"the ONNX Runtime spells the operator out in others that do not take its element type", nil},
	{"engine", "", "has shape", unreduced, func(c *Case, n *onnx.Node) bool {
		return c.empty() && c.from(n,
			func(n *onnx.Node) bool {
				return strings.HasPrefix(n.Op, "Reduce") || strings.HasPrefix(n.Op, "Arg")
			})
	}},
	{"engine", "Cast", "elements differ",
		"a negative number has no defined value as an unsigned integer", unsigned},
	{"engine", "CastLike", "elements differ",
		"a negative number has no defined value as an unsigned integer", unsigned},
	{"engine", "", "elements differ", "the ONNX Runtime takes 0 for the mean of no elements",
		func(c *Case, n *onnx.Node) bool { return n.Op == "ReduceMean" && c.empty() }},
	{"engine", "ReduceLogSum", "elements differ",
		"the logarithm of 0 has no defined value as an integer", integers},
	{"engine", "ReduceLogSumExp", "elements differ",
		"the logarithm of 0 has no defined value as an integer", integers},
	{"engine", "Pow", "elements differ",
		"a power that is no number has no defined value as an integer",
		func(c *Case, n *onnx.Node) bool {
			return integers(c, n) && c.value(n.Input(1)).DType.IsFloat()
		}},
	{"engine", "MatMul", "cannot broadcast on dim",
		"the ONNX Runtime refuses the product of an empty batch and a vector",
		func(c *Case, _ *onnx.Node) bool { return c.empty() }},
	{"engine", "GlobalLpPool", "Failed to find kernel",
		"the ONNX Runtime has no GlobalLpPool of operator set 22", nil},
	{"engine", "", "is under development", "from operator set 28 on a length of ReverseSequence may " +
		"be 0, which the ONNX Runtime does not " +
		"know", func(c *Case, _ *onnx.Node) bool {
		return slices.ContainsFunc(c.Model.Graph.Nodes,
			func(n *onnx.Node) bool { return n.Op == "ReverseSequence" })
	}},
	{"engine", "Pad", "Unexpected mode of 3", "the ONNX Runtime refuses to wrap an empty tensor",
		func(c *Case, _ *onnx.Node) bool { return c.empty() }},
	{"engine", "MaxPool", "elements differ", "the ONNX Runtime forgets dilations in auto_pad SAME",
		same},
	{"engine", "", "cannot reshape", "the ONNX Runtime forgets dilations in auto_pad SAME", same},
	{"engine", "AveragePool", "elements differ", "the ONNX Runtime forgets dilations in auto_pad SAME",
		func(c *Case, n *onnx.Node) bool {
			d, _ := n.Attr("dilations")
			return same(c, n) && slices.ContainsFunc(d.Ints, func(d int64) bool { return d > 1 })
		}},
	{"engine", "MaxPool", "has shape", "the ONNX Runtime forgets dilations in auto_pad SAME", same},
	{"engine", "LpPool", "has shape", "the ONNX Runtime forgets dilations in auto_pad SAME", same},
	{"engine", "AveragePool", "has shape", "the ONNX Runtime forgets dilations in auto_pad SAME",
		same},
	{"engine", "Resize", "Number of elements of input 'sizes' (0)",
		"the ONNX Runtime needs to know how many sizes there are", nil},
	{"engine", "Resize", "elements differ",
		"the ONNX Runtime copies where the result is as large as the input, whatever the scales",
		func(c *Case, n *onnx.Node) bool {
			t, x := c.value(n.Input(2)), c.value(n.Input(0))
			for i := range x.Shape {
				if t == nil || int(t.F32()[i]*float32(x.Shape[i])) != x.Shape[i] {
					return false
				}
			}
			return true
		}},
	{"engine", "ConvTranspose", "has shape",
		"the ONNX Runtime makes less than auto_pad SAME asks for where the kernel is smaller than " +
			"the stride", same},
	{"engine", "MeanVarianceNormalization", "NaN is expected",
		"the ONNX Runtime divides by a variance of zero, to which the standard adds 1e-9", nil},
	{"engine", "", "where NaN is expected", softplus, overflows},
	{"engine", "", "Inf is expected", softplus, overflows},
	{"engine", "", "cannot reshape [", unreduced,
		func(c *Case, n *onnx.Node) bool { return strings.HasPrefix(n.Op, "Reduce") && c.empty() }},
	{"engine", "", "The shape has no dimensions",
		"the ONNX Runtime reduces an empty tensor in spite of noop_with_empty_axes",
		func(c *Case, _ *onnx.Node) bool { return c.empty() }},
	{"engine", "", "cannot reshape",
		"the ONNX Runtime infers one window more in ceil_mode than it computes",
		func(c *Case, n *onnx.Node) bool { return beyond(c, n) }},
	{"engine", "ArgMax", "is empty", noPosition, nil},
	{"engine", "ArgMin", "is empty", noPosition, nil},
	{"engine", "Slice", "has shape",
		"the ONNX Runtime takes the largest integer for the beginning where a slice goes backward",
		backward},
	{"engine", "GroupNormalization", "elements differ",
		"the ONNX Runtime computes the variance of float64 in float32, from the mean of the squares",
		func(c *Case, n *onnx.Node) bool { return c.value(n.Input(0)).DType == onnx.Float64 }},
	{"engine", "Resize", "elements differ",
		"the ONNX Runtime aligns corners to the rounded size where scales are given",
		func(c *Case, n *onnx.Node) bool {
			a, _ := n.Attr("coordinate_transformation_mode")
			return a.Str == "align_corners" && n.Input(2) != ""
		}},
	{"engine", "DFT", "elements differ", "the ONNX Runtime mirrors the bins that are given, and not " +
		"those of the length that is asked for",
		func(c *Case, n *onnx.Node) bool {
			attrs := op.Attrs(n, onnx.ClampInt(c.Model.Opset()))
			if !attrs.Bool("inverse") || !attrs.Bool("onesided") || n.Input(1) == "" {
				return false
			}
			axis := attrs.Int("axis")
			if t := c.value(n.Input(2)); t != nil {
				axis = int(t.At(0))
			}
			return c.value(n.Input(0)).Shape[axis] != int(c.value(n.Input(1)).At(0))/2+1
		}},
	{"upgrade", "", "to 13: ", "operator set 13 cannot give a Softmax over several axes its empty " +
		"shape back: a Reshape copies a size " +
		"where 0 stands, until allowzero in 14", func(c *Case, n *onnx.Node) bool {
		return c.empty() && c.from(n,
			func(n *onnx.Node) bool {
				return n.Op == "Softmax" || n.Op == "LogSoftmax" || n.Op == "Hardmax"
			})
	}},
	{"gradient", "Sqrt", "the slope is NaN",
		"the slope of Sqrt at 0 is infinite, and has no product with Relu's, which is 0",
		func(c *Case, n *onnx.Node) bool {
			return c.from(n, func(n *onnx.Node) bool { return n.Op == "Relu" })
		}},
}

const (
	softplus   = "the ONNX Runtime's Softplus in recurrent layers, log(1 + exp(x)), overflows above 88"
	unreduced  = "the ONNX Runtime leaves an axis of size 0 that is reduced as it is"
	noPosition = "an axis of size 0 has no position to name, and the ONNX Runtime names one"
)

// overflows says that a recurrent layer has Softplus among its activations, and that its weights,
// inputs and states let it be of something beyond 88. A gate's sum is at most features max|x|
// max|W| + hidden max(|h|, |h0|) max|R| + 2 max|B|. e^88 is near the largest float32.
func overflows(c *Case, n *onnx.Node) bool {
	acts, _ := n.Attr("activations")
	if !slices.Contains(acts.Strs, "Softplus") {
		return false
	}
	largest := func(name string) (m float64) {
		if t := c.value(name); t != nil {
			for i := range t.Len() {
				m = max(m, math.Abs(t.At(i)))
			}
		}
		return m
	}
	// W is [dirs, gates · hidden, features], and R [dirs, gates · hidden, hidden].
	features, hidden := float64(c.value(n.Input(1)).Shape[2]), float64(c.value(n.Input(2)).Shape[2])
	// The comparison is turned round, so that a NaN counts as an overflow.
	return n.Input(7) != "" || // peepholes: states of which the last alone is known
		!(features*largest(n.Input(0))*largest(n.Input(1))+hidden*max(largest(n.Outputs[0]),
			largest(n.Input(5)))*largest(n.Input(2))+2*largest(n.Input(3)) <= 88)
}

// beyond says that ceil_mode gives a window that begins beyond the input and the padding before it.
// The last window begins at ceil(room / stride) stride, in elements of the padded axis.
func beyond(c *Case, n *onnx.Node) bool {
	attrs := op.Attrs(n, onnx.ClampInt(c.Model.Opset()))
	x := c.value(n.Input(0))
	if !attrs.Bool("ceil_mode") || x == nil {
		return false
	}
	size := x.Shape[2:]
	w, err := op.WindowOf(attrs, len(size), nil)
	if err != nil || w.AutoPad != "NOTSET" {
		return false
	}
	for i, in := range size {
		// A window that lies within the padded axis begins at most `room` elements in.
		room := in + w.Pads[i] + w.Pads[len(size)+i] - w.Extent(i)
		last := (room + w.Strides[i] - 1) / w.Strides[i] * w.Strides[i]
		if last > room && last >= in+w.Pads[i] {
			return true
		}
	}
	return false
}

// backward says that a slice goes backward along an axis with the largest integer as its end.
func backward(c *Case, n *onnx.Node) bool {
	ends, steps := c.given(n.Input(2)), c.given(n.Input(4))
	if ends == nil || steps == nil {
		return false
	}
	for i := range steps.Len() {
		// The recipe of Slice draws no larger integer than MaxInt32.
		if steps.At(i) < 0 && ends.At(i) >= math.MaxInt32 {
			return true
		}
	}
	return false
}

// unsigned says that a cast goes to an unsigned type.
func unsigned(c *Case, n *onnx.Node) bool {
	// Cast has its type in an attribute, and CastLike in input 1.
	a, ok := n.Attr("to")
	d := onnx.DTypeOf(a.Int)
	if !ok {
		if t := c.given(n.Input(1)); t != nil {
			d = t.DType
		}
	}
	return d == onnx.Uint8 || d == onnx.Uint16 || d == onnx.Uint32 || d == onnx.Uint64
}

// given is an input or initializer of the case, nil where a node makes the value.
func (c *Case) given(name string) *onnx.Tensor {
	if t := c.Feeds[name]; t != nil {
		return t
	}
	return c.Model.Graph.Initializers[name]
}

// value is any value of the case, as the pure engine computes it; nil where it has none. It runs
// the whole graph, which only a case that disagrees costs.
func (c *Case) value(name string) *onnx.Tensor {
	if t := c.given(name); t != nil || name == "" {
		return t
	}
	own, err := pure.New(engine.Options{Threads: 1})
	if err != nil {
		return nil
	}
	out, _, _ := run(own, c.Model, c.Feeds)
	return out[name]
}

// from says that a node, or one that its inputs come from, is such a one. Graphs have a few nodes,
// of which the first output alone is followed.
func (c *Case) from(n *onnx.Node, such func(*onnx.Node) bool) bool {
	return such(n) || slices.ContainsFunc(c.Model.Graph.Nodes, func(m *onnx.Node) bool {
		return m != n && slices.Contains(n.Inputs, m.Outputs[0]) && c.from(m, such)
	})
}

// integers says that a node reads them.
func integers(c *Case, n *onnx.Node) bool {
	t := c.value(n.Input(0))
	return t != nil && !t.DType.IsFloat()
}

// same says that a window is padded by auto_pad SAME.
func same(_ *Case, n *onnx.Node) bool {
	a, _ := n.Attr("auto_pad")
	return strings.HasPrefix(a.Str, "SAME")
}

// empty reports whether one of a case's tensors has no elements.
func (c *Case) empty() bool {
	for _, ts := range []map[string]*onnx.Tensor{c.Feeds, c.Model.Graph.Initializers} {
		for _, t := range ts {
			if t.Len() == 0 {
				return true
			}
		}
	}
	return false
}

// blamed is the node whose output or name a detail mentions, else the last.
func (c *Case) blamed(detail string) *onnx.Node {
	for _, n := range c.Model.Graph.Nodes {
		if strings.Contains(detail, "'"+n.Name+"'") || strings.Contains(detail, "("+n.Name+")") ||
			slices.ContainsFunc(n.Outputs,
				func(o string) bool { return strings.Contains(detail, `"`+o+`"`) }) {
			return n
		}
	}
	return c.node()
}

// known is why a disagreement may be; "" where there is no reason. The first that fits counts.
func known(c *Case, check, detail string) string {
	n := c.blamed(detail)
	for _, d := range disagreements {
		if d.check == check && (d.op == "" || d.op == n.Op) && strings.Contains(detail, d.says) &&
			(d.when == nil || d.when(c, n)) {
			return d.why
		}
	}
	return ""
}
