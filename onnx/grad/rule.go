package grad

import (
	"errors"
	"fmt"
	"slices"

	"fmp/onnx"
	"fmp/onnx/internal/try"
	"fmp/onnx/op"
)

// A rule appends to the graph the nodes that compute the cotangents of a node's inputs, in their
// order; "" where there is none (an input that is not wanted, or that the outputs do not depend
// on).
type rule func(c *call) []string

// apply runs a rule. A panic of another kind than package try's is an error too: a model that states
// false shapes must not end the user's program.
func (c *call) apply(r rule) (cotangents []string, err error) {
	defer try.Catch(&err, failed)
	return r(c), nil
}

func failed(panicked any) error {
	return fmt.Errorf("the rule failed: %v; differentiate for values after the node", panicked)
}

// call holds the arguments of a rule: the node, the cotangents of its outputs ("" where none
// arrived) and which inputs are wanted. The node may be changed where a rule needs another output
// of it, since the graph is a copy. attrs hold defaults; want is by input, cot by output.
type call struct {
	*emitter
	node  *onnx.Node
	attrs op.Values
	cot   []string
	want  []bool
	extra []captured
}

// captured is the cotangent of a value that a graph of the node takes from around it.
type captured struct{ name, cot string }

// also gives a captured value a cotangent.
func (c *call) also(name, cot string) { c.extra = append(c.extra, captured{name, cot}) }

// in and out name the i-th input and output, "" where the node has none.
func (c *call) in(i int) string { return c.node.Input(i) }

// out may be more than the node had, where a rule asked for it: see [call.ensureOutput].
func (c *call) out(i int) string {
	if i < len(c.node.Outputs) {
		return c.node.Outputs[i]
	}
	return ""
}

// wants reports whether the cotangent of input i is asked for.
func (c *call) wants(i int) bool { return i < len(c.want) && c.want[i] }

// g is the cotangent of output 0, zeros where none arrived.
func (c *call) g() string { return c.cotangent(0) }

// cotangent is that of output i. Zeros are made at the first use, since most rules read output 0
// alone.
func (c *call) cotangent(i int) string {
	if c.cot[i] == "" {
		c.cot[i] = c.filled(c.out(i), 0)
	}
	return c.cot[i]
}

// ensureOutput gives output i of the node a name where it has none, so that a rule can read it.
func (c *call) ensureOutput(i int, info onnx.ValueInfo) string {
	for len(c.node.Outputs) <= i {
		c.node.Outputs = append(c.node.Outputs, "")
	}
	if c.node.Outputs[i] == "" {
		info.Name = c.fresh(c.node.Op)
		c.node.Outputs[i] = info.Name
		c.info[info.Name] = info
	}
	return c.node.Outputs[i]
}

// errTwice refuses a rule whose graph tells zeros apart, and so has no derivative of its own at
// them.
var errTwice = errors.New("its gradient is not differentiated again, since it goes by which elements are 0")

// rules is the registry: operator of the standard set to its vector-Jacobian product.
var rules = map[string]rule{}

// register is called by init functions alone; a later rule of an operator replaces an earlier one.
func register(r rule, ops ...string) {
	for _, op := range ops {
		rules[op] = r
	}
}

// inFloat32 applies a rule to a node of halves in float32: squares, their sums and numbers of
// elements are soon beyond 65504, the largest Float16. The rule sees copies of call and node, so
// that a rule that calls also or ensureOutput must not be wrapped.
func inFloat32(r rule) rule {
	half := func(c *call, v string) bool {
		d := c.dtype(v)
		return d == onnx.Float16 || d == onnx.BFloat16
	}
	return func(c *call) []string {
		if !half(c, c.in(0)) {
			return r(c)
		}
		widened := func(vs []string) []string {
			out := slices.Clone(vs)
			for i, v := range vs {
				if v != "" && half(c, v) {
					out[i] = c.shaped(c.cast(v, onnx.Float32), onnx.Float32, c.shape(v))
				}
			}
			return out
		}
		wide, node := *c, *c.node
		node.Inputs, node.Outputs = widened(node.Inputs), widened(node.Outputs)
		wide.node, wide.cot = &node, widened(c.cot)
		out := r(&wide)
		for i, v := range out {
			if v != "" && half(c, c.in(i)) {
				out[i] = c.cast(v, c.dtype(c.in(i)))
			}
		}
		return out
	}
}

// IsConstant reports whether the gradient of an operator of the standard set is zero: its outputs
// do not vary with its floating-point inputs, or only in jumps.
func IsConstant(op string) bool { return constantRule[op] }

// constantRule lists the operators whose outputs do not vary with their floating-point inputs, or
// only in jumps.
var constantRule = map[string]bool{
	"Constant": true, "ConstantOfShape": true, "Shape": true, "Size": true, "EyeLike": true,
	"Equal": true, "Greater": true, "GreaterOrEqual": true, "Less": true, "LessOrEqual": true,
	"And": true, "Or": true, "Xor": true, "Not": true, "IsNaN": true, "IsInf": true,
	"ArgMax": true, "ArgMin": true, "NonZero": true, "Hardmax": true,
	"Sign": true, "Floor": true, "Ceil": true, "Round": true,
	"RandomNormal": true, "RandomNormalLike": true, "RandomUniform": true,
	"RandomUniformLike": true, "Bernoulli": true, "Multinomial": true,
	"BlackmanWindow": true, "HammingWindow": true, "HannWindow": true, "MelWeightMatrix": true,
}
