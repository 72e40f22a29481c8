// Package grad differentiates ONNX graphs: a model goes in, and out comes another ordinary ONNX
// model that computes vector-Jacobian products, which any ONNX Runtime runs. No training runtime is
// needed.
//
// Terms. The primal graph computes the outputs y from inputs and initializers. The cotangent of a
// value v, written v̄ here and grad_v in the result, is ∂⟨ȳ, y⟩/∂v for cotangents ȳ of the outputs
// that the caller supplies; it has v's type and shape. A rule returns, for one operator, the
// cotangents of a node's inputs from those of its outputs: its vector-Jacobian product. A value is
// active where it depends on something that is differentiated for, through floating-point values
// alone.
//
// Reverse mode (Linnainmaa 1970; Griewank and Walther, Evaluating Derivatives, 2nd ed., chapter 3)
// is then one loop over the nodes from last to first: where a cotangent has arrived at an output of
// an active node, its rule adds to the cotangents of its active inputs.
//
// The result declares the primal's operator set, raised to 17 where it is lower, and uses only
// forms of operators that stayed valid from 17 on.
package grad

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"fmp/onnx"
	"fmp/onnx/check"
	"fmp/onnx/internal/try"
	"fmp/onnx/op"
	"fmp/onnx/pass"
	"fmp/onnx/shape"
)

// Options select the derivatives and the layout of the result.
type Options struct {
	// Outputs are the outputs y that cotangents are given for; none means all floating-point
	// outputs.
	Outputs []string
	// WRT are the values differentiated for: inputs, initializers or intermediate values of a
	// floating-point type. At least one.
	WRT []string
	// KeepOutputs leaves the model's own outputs in the result, so that one run computes both.
	KeepOutputs bool
	// ParamsAsInputs turns the initializers among WRT into inputs, as training needs them. By
	// default they stay initializers.
	ParamsAsInputs bool
	// UnitCotangent sets every output's cotangent to one instead of making it an input: for a
	// scalar loss, whose gradient is wanted.
	UnitCotangent bool
	// Prefix is put before a value's name to name its cotangent; default "grad_".
	Prefix string
}

// MinOpset and MaxOpset bound the operator sets of results.
const (
	MinOpset = onnx.DefaultOpset
	MaxOpset = onnx.MaxOpset
)

// Build makes the gradient model of m, which is not changed. Its inputs are m's own and grad_<y>
// for each y of Options.Outputs; its outputs are grad_<a> for each a of Options.WRT, of a's type
// and shape. A value that the outputs do not depend on gets zeros.
//
// It fails, naming node and operator, where a node on the way has no rule, and where a name of
// Options is not one of the model's. Tensors of initializers are shared with m and not copied, so
// that neither may be changed in place. The result's nodes are those of m and, for each active one,
// those that its rule emits.
func Build(m *onnx.Model, opt Options) (*onnx.Model, error) {
	if opt.Prefix == "" {
		opt.Prefix = "grad_"
	}
	return attempt(m, "", func() *onnx.Model {
		g := prepare(m)
		reverse(g, opt, naming{seed: before(opt.Prefix), result: before(opt.Prefix)})
		return finish(g)
	})
}

// attempt names the model in the error that a way to differentiate it ends with.
func attempt(m *onnx.Model, way string,
	differentiate func() *onnx.Model) (out *onnx.Model, err error) {
	defer func() {
		if err != nil {
			err = fmt.Errorf("differentiating %q%s: %w", graphName(m), way, err)
		}
	}()
	defer try.Catch(&err)
	return differentiate(), nil
}

// graphName is "" where there is no graph.
func graphName(m *onnx.Model) string {
	if m == nil || m.Graph == nil {
		return ""
	}
	return m.Graph.Name
}

// prepare copies m as far as it will be changed, inlines functions, raises the operator set and
// infers shapes. An error of inlining, raising or inference is that of the model, and no rule has
// run.
func prepare(m *onnx.Model) *onnx.Model {
	if m == nil || m.Graph == nil {
		try.Fail("no graph given")
	}
	c := onnx.Clone(m)
	try.Do(pass.Inline(c))
	if v := c.Opset(); v > MaxOpset {
		try.Fail("the model imports operator set %d; allowed are up to %d: export it with one of these", v,
			MaxOpset)
	} else if v < MinOpset {
		try.Do(shape.Infer(c)) // an upgrade needs ranks
		try.Do(pass.Upgrade(c, MinOpset))
		c.IR = max(c.IR, onnx.DefaultIR)
	}
	taken := map[string]bool{}
	c.Graph.AddNames(taken)
	try.Do(infer(c, taken))
	return c
}

// naming says how the cotangents of outputs, and of values that are differentiated for, are called.
type naming struct {
	seed, result func(name string) string
	free         bool // seeds are zeros in the graph, in place of inputs
	again        bool // the graph is differentiated once more, for other values than seeds
}

// before puts a prefix before a name.
func before(prefix string) func(string) string {
	return func(name string) string { return prefix + name }
}

// reverse adds the nodes of the gradient to m, and makes it m's output.
func reverse(m *onnx.Model, opt Options, names naming) {
	e := newEmitter(m)
	e.twice = names.again
	g := m.Graph
	ys := outputsOf(e, g, opt.Outputs)
	checkWRT(e, g, opt.WRT)
	active := activeValues(e, g.Nodes, opt.WRT)
	e.active = active

	primalNodes := g.Nodes
	g.Nodes = append([]*onnx.Node{}, primalNodes...)
	cot := cotangents{e: e, of: map[string]string{}}
	seeds := e.seeds(ys, opt.UnitCotangent, names, &cot)
	// Names of results are claimed before any rule runs, so that none of its values takes one.
	for _, w := range opt.WRT {
		if slices.ContainsFunc(ys, func(y onnx.ValueInfo) bool { return y.Name == w }) &&
			!opt.UnitCotangent {
			try.Fail("output %q is given a cotangent, and no gradient is made for it too: name other "+
				"outputs that are differentiated, or inputs and parameters", w)
		}
		if !e.claim(names.result(w)) {
			try.Fail("the model has a value %q already; choose another prefix", names.result(w))
		}
	}

	// The loop: from the last node to the first.
	for _, n := range slices.Backward(primalNodes) {
		try.Do(pullBack(e, n, active, &cot))
	}

	var outputs []onnx.ValueInfo
	for _, w := range opt.WRT {
		name := names.result(w)
		v := cot.of[w]
		if v == "" {
			v = e.filled(w, 0)
		}
		g.Nodes = append(g.Nodes, identity(v, name))
		info := e.info[w]
		outputs = append(outputs, onnx.ValueInfo{Name: name, DType: info.DType, Shape: info.Shape})
	}
	if opt.KeepOutputs {
		outputs = append(append([]onnx.ValueInfo{}, g.Outputs...), outputs...)
	}
	g.Outputs = outputs
	g.Inputs = append(g.Inputs, seeds...)
	if opt.ParamsAsInputs {
		freeParameters(g, opt.WRT)
	}
}

// freeParameters turns initializers into inputs. Inputs come in the order of names, behind those
// that the graph has.
func freeParameters(g *onnx.Graph, names []string) {
	for _, w := range names {
		if t, ok := g.Initializers[w]; ok {
			delete(g.Initializers, w)
			g.Inputs = append(g.Inputs, onnx.ValueInfo{Name: w, DType: t.DType,
				Shape: knownShape(t.Shape)})
		}
	}
}

// seeds gives the outputs their cotangents, and returns those that are inputs.
func (e *emitter) seeds(ys []onnx.ValueInfo, unit bool, names naming,
	cot *cotangents) []onnx.ValueInfo {
	var inputs []onnx.ValueInfo
	for _, y := range ys {
		s := ""
		if unit {
			s = e.filled(y.Name, 1)
		} else {
			s = names.seed(y.Name)
			if !e.claim(s) {
				try.Fail("the model has a value %q already; choose another prefix", s)
			}
			e.info[s] = onnx.ValueInfo{Name: s, DType: y.DType, Shape: y.Shape}
			if names.free {
				zero := e.filled(y.Name, 0)
				e.graph.Nodes = append(e.graph.Nodes, identity(zero, s))
			} else {
				inputs = append(inputs, e.info[s])
			}
		}
		cot.add(y.Name, s)
	}
	return inputs
}

// finish drops unused nodes and checks the result. The types of values are dropped, as those that
// rules emit are not stated.
func finish(m *onnx.Model) *onnx.Model {
	m.Graph.Values = nil
	pass.RemoveUnused(m.Graph)
	for _, step := range []func(*onnx.Model) error{pass.Simplify, check.Model} {
		if err := step(m); err != nil {
			try.Fail("the gradient graph: %w", err)
		}
	}
	return m
}

// pullBack applies the rule of one node. A node at which no cotangent arrives needs no rule,
// whatever its operator is.
func pullBack(e *emitter, n *onnx.Node, active map[string]bool, cot *cotangents) error {
	c := &call{emitter: e, node: n, attrs: op.Attrs(n, int(e.opset)),
		cot: make([]string, len(n.Outputs))}
	arrived := false
	for i, o := range n.Outputs {
		if o != "" && active[o] {
			c.cot[i] = cot.of[o]
			arrived = arrived || c.cot[i] != ""
		}
	}
	if !arrived {
		return nil
	}
	r, ok := rules[n.Op]
	if !ok || !standard(n.Domain) {
		return missingRule(n)
	}
	for _, in := range n.Inputs {
		c.want = append(c.want, in != "" && active[in])
	}
	gs, err := c.apply(r)
	if err != nil {
		return fmt.Errorf("%s %q: %w", n.Op, n.Called(), err)
	}
	for _, x := range c.extra {
		e.as(x.cot, x.name)
		cot.add(x.name, x.cot)
	}
	for i, v := range gs {
		if v != "" && i < len(c.want) && c.want[i] {
			if _, known := e.info[v]; !known {
				e.info[v] = onnx.ValueInfo{Name: v, DType: e.info[n.Inputs[i]].DType,
					Shape: e.info[n.Inputs[i]].Shape}
			}
			cot.add(n.Inputs[i], v)
		}
	}
	return nil
}

// errNoRule is wrapped by the error for an operator without a rule.
var errNoRule = errors.New("no differentiation rule")

// missingRule names the node, and the domain of an operator that is not of the standard set.
func missingRule(n *onnx.Node) error {
	op := n.Op
	if !standard(n.Domain) {
		op = n.Domain + "." + op
	}
	return fmt.Errorf(
		"node %q: %w for operator %s; differentiate for values after it, or replace it in the model",
		n.Called(), errNoRule, op)
}

func standard(domain string) bool { return domain == "" || domain == "ai.onnx" }

// cotangents holds the sum of the cotangents that have arrived at each value.
type cotangents struct {
	e  *emitter
	of map[string]string
}

// add notes a cotangent that has arrived. That of a value which several nodes read is the sum over
// them. Sums are in the order of arrival, from the last reader of a value to the first.
func (c *cotangents) add(value, v string) {
	if old := c.of[value]; old != "" {
		sum := c.e.op("Add", []string{old, v})
		c.e.info[sum] = c.e.info[value]
		v = sum
	}
	c.of[value] = v
}

// outputsOf are the outputs of the given names; without names, all of a floating-point type. It
// ends the work where there is none, or a name is wrong.
func outputsOf(e *emitter, g *onnx.Graph, names []string) []onnx.ValueInfo {
	var ys []onnx.ValueInfo
	if len(names) == 0 {
		for _, o := range g.Outputs {
			if e.isFloat(o.Name) {
				ys = append(ys, e.valueInfo(o.Name))
			}
		}
		if len(ys) == 0 {
			try.Fail("none of the outputs is of a floating-point type")
		}
		return ys
	}
	seen := map[string]bool{}
	for _, y := range names {
		if seen[y] {
			try.Fail("output %q is named twice", y)
		}
		seen[y] = true
		if _, ok := g.Output(y); !ok {
			try.Fail("no output %q; the model's outputs are %s", y, listInfos(g.Outputs))
		}
		if !e.isFloat(y) {
			try.Fail("output %q is of %v; only floating-point values have gradients", y,
				e.info[y].DType)
		}
		ys = append(ys, e.valueInfo(y))
	}
	return ys
}

// checkWRT ends the work where a name is no value of a floating-point type, or is given twice.
func checkWRT(e *emitter, g *onnx.Graph, names []string) {
	if len(names) == 0 {
		try.Fail("nothing to differentiate for; name inputs or initializers")
	}
	seen := map[string]bool{}
	for _, w := range names {
		if seen[w] {
			try.Fail("%q is named twice among the values to differentiate for", w)
		}
		seen[w] = true
		if !gives(g, w) {
			try.Fail("no value %q to differentiate for; inputs are %s, initializers are %s", w,
				listInfos(g.Inputs), shorten(g.InitializerNames()))
		}
		if !e.isFloat(w) {
			try.Fail("%q is of %v; only floating-point values have gradients", w, e.info[w].DType)
		}
	}
}

// gives reports whether a value is an input, an initializer or a node's output.
func gives(g *onnx.Graph, name string) bool {
	_, isInput := g.Input(name)
	return isInput || g.Initializers[name] != nil || slices.ContainsFunc(g.Nodes,
		func(n *onnx.Node) bool { return slices.Contains(n.Outputs, name) })
}

func listInfos(vs []onnx.ValueInfo) string {
	names := make([]string, len(vs))
	for i, v := range vs {
		names[i] = v.Name
	}
	return shorten(names)
}

// shorten lists names, at most twenty of them.
func shorten(names []string) string {
	const most = 20
	if len(names) == 0 {
		return "(none)"
	}
	if len(names) > most {
		return strings.Join(names[:most], ", ") + fmt.Sprintf(" and %d more", len(names)-most)
	}
	return strings.Join(names, ", ")
}

// activeValues are wrt and the values that depend on them through floats. One pass is enough, as
// nodes stand in topological order.
func activeValues(e *emitter, nodes []*onnx.Node, wrt []string) map[string]bool {
	active := map[string]bool{}
	for _, w := range wrt {
		active[w] = true
	}
	for _, n := range nodes {
		if standard(n.Domain) && constantRule[n.Op] {
			continue
		}
		// Values that the graphs of a node take from around it count as read.
		on := slices.ContainsFunc(n.Reads(), func(in string) bool { return active[in] })
		for _, o := range n.Outputs {
			if on && o != "" && e.isFloat(o) {
				active[o] = true
			}
		}
	}
	return active
}

// Supports reports whether every node of m can be differentiated, from its outputs to every
// floating-point input and initializer: it applies each node's rule, as [Build] does. The error
// names each operator that is refused once, with a node that uses it and the reason.
func Supports(m *onnx.Model) error {
	var errs []error
	if _, err := attempt(m, "", func() *onnx.Model {
		errs = refusals(prepare(m))
		return nil
	}); err != nil {
		return err
	}
	return errors.Join(errs...)
}

// refusals are the errors of rules of a prepared model's nodes, one for each operator.
func refusals(p *onnx.Model) []error {
	e := newEmitter(p)
	g := p.Graph
	ys := outputsOf(e, g, nil)
	var wrt []string
	for _, v := range g.Inputs {
		if e.isFloat(v.Name) {
			wrt = append(wrt, v.Name)
		}
	}
	inputs := len(wrt)
	for _, n := range g.InitializerNames() {
		if e.isFloat(n) {
			wrt = append(wrt, n)
		}
	}
	nodes := slices.Clone(g.Nodes)
	// A value made of initializers alone is a constant to the rules that need one, such as the
	// scales of a Resize.
	e.active = activeValues(e, nodes, wrt[:inputs])
	active := activeValues(e, nodes, wrt)
	cot := cotangents{e: e, of: map[string]string{}}
	for _, y := range ys {
		cot.add(y.Name, e.filled(y.Name, 1))
	}
	var errs []error
	named := map[string]bool{}
	for _, n := range slices.Backward(nodes) {
		err := pullBack(e, n, active, &cot)
		if err == nil {
			continue
		}
		if key := n.Domain + "." + n.Op; !named[key] {
			named[key] = true
			errs = append(errs, err)
		}
		for _, in := range n.Reads() { // to the nodes before it all the same
			if active[in] && cot.of[in] == "" {
				cot.add(in, e.filled(in, 1))
			}
		}
	}
	slices.Reverse(errs)
	return errs
}

// Operators lists the operators that have a rule, in alphabetical order.
func Operators() []string { return slices.Sorted(maps.Keys(rules)) }
