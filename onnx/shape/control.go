package shape

import (
	"fmt"
	"slices"

	"fmp/onnx"
	"fmp/onnx/internal/try"
)

// Operators with subgraphs.
var controlRules = map[string]rule{"If": inferIf, "Loop": inferLoop, "Scan": inferScan}

// body infers a subgraph whose inputs have the given facts; it sees the values around it. Facts of
// the caller's inputs are shared, not copied, and rules do not write to inputs. Inputs beyond those
// given keep the types that the body declares. Names of the body hide those around it; its facts
// end with it.
func (c *call) body(name string, inputs []*fact) (*inference, *onnx.Graph, error) {
	a, ok := c.node.Attr(name)
	if !ok || a.Graph == nil {
		return nil, nil, fmt.Errorf("the attribute %s holds no graph", name)
	}
	// Budget, load and counters are shared with the graph around: bodies cost the same model.
	inner := &inference{foldLimit: c.inf.foldLimit, budget: c.inf.budget, load: c.inf.load,
		opset: c.inf.opset, outer: c.inf,
		facts: map[string]*fact{}, counter: c.inf.counter, bodies: c.inf.bodies,
		foreign: c.inf.foreign, local: c.inf.local}
	for i, in := range a.Graph.Inputs {
		f := inner.declared(in)
		if i < len(inputs) && inputs[i] != nil {
			f = inputs[i]
		}
		inner.facts[in.Name] = f
	}
	if err := inner.graph(a.Graph); err != nil {
		return nil, nil, fmt.Errorf("in %s: %w", name, err)
	}
	return inner, a.Graph, nil
}

// inferIf keeps the sizes in which both branches agree; a rank in which they differ is open.
func inferIf(c *call) {
	branches := []string{"then_branch", "else_branch"}
	if d := c.in[0].data; len(d) == 1 {
		// A condition that is known leaves one branch.
		if v, ok := d[0].value(); ok {
			if c.inf.load.contradict != nil {
				// never run, and stated all the same
				_, _, _ = c.body(branches[boolInt(v != 0)], nil)
			}
			branches = branches[1-boolInt(v != 0):][:1]
		}
	}
	var results [][]*fact
	for _, name := range branches {
		inner, g, err := c.body(name, nil)
		try.Do(err)
		if len(g.Outputs) != len(c.out) {
			try.Fail("%s gives %d outputs and the node %d", name,
				len(g.Outputs), len(c.out))
		}
		var fs []*fact
		for _, o := range g.Outputs {
			f := inner.lookup(o.Name)
			if f == nil {
				f = &fact{}
			}
			fs = append(fs, f)
		}
		results = append(results, fs)
	}
	for i := range c.out {
		a := results[0][i]
		c.same(i, a)
		if len(results) == 1 {
			c.out[i].data, c.out[i].tensor = a.data, a.tensor
			continue
		}
		b := results[1][i]
		if a.dtype != b.dtype && a.dtype != onnx.Undefined && b.dtype != onnx.Undefined {
			try.Fail("output %d is %v in one branch and %v in the other", i,
				a.dtype, b.dtype)
		}
		if len(a.shape) != len(b.shape) || b.shape == nil {
			c.out[i].shape = nil
			continue
		}
		// Elements are not followed through two branches, even where both agree.
		for j := range c.out[i].shape {
			if !a.shape[j].equal(b.shape[j]) {
				c.out[i].shape[j] = c.inf.unknownSize()
			}
		}
	}
}

// turns infers a body whose first inputs are carried from turn to turn: in holds the facts of all
// inputs, first of them lead ones that are not carried, then the initial values of the carried
// ones. It returns the facts of the body's outputs from skip on; sizes of carried values that a
// turn may change are unknown. A carried value is known by its sizes alone. The loop looks for a
// fixed point of the shapes: an axis once found to change is never fixed again. After maxBodies
// bodies, or in the third round, carried ranks are given up as well.
func (c *call) turns(in []*fact, lead, carried, skip int) []*fact {
	rest := slices.Clone(in)
	for i := lead; i < lead+carried; i++ {
		rest[i] = &fact{dtype: in[i].dtype, shape: slices.Clone(in[i].shape)}
	}
	changing := make([]map[int]bool, carried) // axes
	for round := 0; ; round++ {
		last := round == 2 || *c.inf.bodies > maxBodies
		*c.inf.bodies++
		if last {
			for _, f := range rest[lead : lead+carried] {
				f.shape = nil
			}
		}
		inner, g, err := c.body("body", rest)
		if err != nil && !last {
			round = 1 // what the sizes at first say need not hold: perhaps there is no turn
			continue
		}
		try.Do(err)
		if len(g.Outputs) != len(c.out)+skip {
			try.Fail("the body gives %d outputs and the node %d; %d are expected",
				len(g.Outputs), len(c.out), len(c.out)+skip)
		}
		out := make([]*fact, len(c.out))
		steady := true
		for i := range out {
			if out[i] = inner.lookup(g.Outputs[i+skip].Name); out[i] == nil {
				out[i] = &fact{}
			}
			if i >= carried {
				continue
			}
			f := rest[lead+i]
			if out[i].shape == nil || len(out[i].shape) != len(f.shape) {
				steady = steady && f.shape == nil
				f.shape = nil
				continue
			}
			if changing[i] == nil {
				changing[i] = map[int]bool{}
			}
			for k, e := range out[i].shape {
				if !changing[i][k] && !e.equal(f.shape[k]) {
					changing[i][k], steady = true, false
					f.shape[k] = c.inf.unknownSize()
				}
			}
		}
		if steady || last {
			// Elements of a carried value may change at each turn, so that its fact has the shape
			// alone.
			for i := range carried {
				out[i] = &fact{dtype: out[i].dtype, shape: rest[lead+i].shape}
			}
			return out
		}
	}
}

// Bodies of loops are inferred up to three times each, within this bound in all. Nested loops
// multiply, three to the power of the depth, which the bound keeps from a hostile file.
const maxBodies = 1000

// inferLoop: carried values keep their type; scanned outputs gain an axis in front. The body reads
// the turn's number, int64, and the condition, bool, before the carried values. It gives a
// condition first, which is skipped; the number of turns is left open.
func inferLoop(c *call) {
	carried := max(0, len(c.in)-2)
	in := []*fact{{dtype: onnx.Int64, shape: []expr{}}, {dtype: onnx.Bool, shape: []expr{}}}
	for i := range carried {
		in = append(in, c.arg(i+2))
	}
	if carried > len(c.out) {
		try.Fail("%d values are carried and the node gives %d", carried, len(c.out))
	}
	out := c.turns(in, 2, carried, 1)
	c.scanned(out, carried, c.inf.unknownSize(), nil)
}

// scanned sets the node's outputs from those of its body: the scanned ones, behind the carried
// ones, gain an axis of n turns. Open sizes of a turn get symbols of the node's own, as a symbol
// within the body means one turn's. An axis out of range becomes 0 here; the engine that runs the
// model refuses it.
func (c *call) scanned(out []*fact, carried int, n expr, axes []int) {
	for i, f := range out {
		shape := slices.Clone(f.shape)
		if k := i - carried; k >= 0 && f.shape != nil {
			for j, e := range shape {
				if _, ok := e.value(); !ok {
					shape[j] = c.inf.unknownSize()
				}
			}
			at := 0
			if k < len(axes) {
				var err error
				if at, err = axis(axes[k], len(shape)+1); err != nil {
					at = 0
				}
			}
			shape = slices.Insert(shape, at, n)
		}
		c.set(i, f.dtype, shape)
	}
}

// inferScan: the body sees its scanned inputs without the scanned axis. Before operator set 9 there
// was a batch as well, and only the element types are taken from the body. All scanned inputs have
// one length n, taken from the last of known rank. Inputs are carried values first, and then
// num_scan_inputs scanned ones.
func inferScan(c *call) {
	a, ok := c.node.Attr("body")
	if !ok || a.Graph == nil {
		try.Fail("the attribute body holds no graph")
	}
	m := c.attrs.Int("num_scan_inputs")
	carried := len(c.in) - m
	if c.opset < 9 {
		for i := range c.out {
			if i < len(a.Graph.Outputs) {
				c.set(i, a.Graph.Outputs[i].DType, nil)
			}
		}
		return
	}
	if m < 1 || carried < 0 || carried > len(c.out) {
		try.Fail("num_scan_inputs is %d of %d inputs", m, len(c.in))
	}
	in, n := slices.Clone(c.in), c.inf.unknownSize()
	axes := c.attrs.Ints("scan_input_axes")
	for i := range in {
		if in[i] == nil {
			in[i] = &fact{}
		}
		if i < carried {
			continue
		}
		f := &fact{dtype: in[i].dtype}
		if s := in[i].shape; s != nil {
			at := 0
			if k := i - carried; k < len(axes) {
				at = axes[k]
			}
			at = try.Get(axis(at, len(s)))
			n = s[at]
			f.shape = slices.Delete(slices.Clone(s), at, at+1)
		}
		in[i] = f
	}
	out := c.turns(in, 0, carried, 0)
	c.scanned(out, carried, n, c.attrs.Ints("scan_output_axes"))
}
