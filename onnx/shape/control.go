package shape

import (
	"fmt"

	"fmp/onnx"
)

// Operators with subgraphs.
var controlRules = map[string]rule{"If": inferIf, "Loop": inferLoop, "Scan": inferScan}

// body infers a subgraph whose inputs have the given facts; it sees the values around it.
func (c *call) body(name string, inputs []*fact) (*inference, *onnx.Graph, error) {
	a, ok := c.node.Attr(name)
	if !ok || a.Graph == nil {
		return nil, nil, fmt.Errorf("the attribute %s holds no graph", name)
	}
	inner := &inference{foldLimit: c.inf.foldLimit, budget: c.inf.budget, load: c.inf.load, opset: c.inf.opset, outer: c.inf, facts: map[string]*fact{}, counter: c.inf.counter, foreign: c.inf.foreign, local: c.inf.local}
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

func inferIf(c *call) error {
	if err := c.need(1); err != nil {
		return err
	}
	branches := []string{"then_branch", "else_branch"}
	if d := c.in[0].data; len(d) == 1 {
		// A condition that is known leaves one branch.
		if v, ok := d[0].value(); ok {
			branches = branches[1-boolInt(v != 0):][:1]
		}
	}
	var results [][]*fact
	for _, name := range branches {
		inner, g, err := c.body(name, nil)
		if err != nil {
			return err
		}
		if len(g.Outputs) != len(c.out) {
			return fmt.Errorf("%s gives %d outputs and the node %d", name, len(g.Outputs), len(c.out))
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
			return fmt.Errorf("output %d is %v in one branch and %v in the other", i, a.dtype, b.dtype)
		}
		if len(a.shape) != len(b.shape) || b.shape == nil {
			c.out[i].shape = nil
			continue
		}
		for j := range c.out[i].shape {
			if !a.shape[j].equal(b.shape[j]) {
				c.out[i].shape[j] = c.inf.unknownSize()
			}
		}
	}
	return nil
}

// inferLoop: carried values keep their type and rank; scanned outputs gain an axis in front.
func inferLoop(c *call) error {
	carried := max(0, len(c.in)-2)
	inputs := []*fact{{dtype: onnx.Int64, shape: []expr{}}, {dtype: onnx.Bool, shape: []expr{}}}
	for i := range carried {
		// A carried value may change its sizes from one turn to the next.
		inputs = append(inputs, &fact{dtype: c.arg(i + 2).dtype})
	}
	inner, g, err := c.body("body", inputs)
	if err != nil {
		return err
	}
	if len(g.Outputs) != len(c.out)+1 {
		return fmt.Errorf("the body gives %d outputs and the node %d; the body must give one more", len(g.Outputs), len(c.out))
	}
	for i := range c.out {
		f := inner.lookup(g.Outputs[i+1].Name)
		if f == nil {
			continue
		}
		switch {
		case i < carried || f.shape == nil:
			c.set(i, f.dtype, nil)
		default:
			out := []expr{c.inf.unknownSize()}
			for _, e := range f.shape {
				if _, ok := e.value(); !ok {
					e = c.inf.unknownSize()
				}
				out = append(out, e)
			}
			c.set(i, f.dtype, out)
		}
	}
	return nil
}

// inferScan takes the element types from the body; the shapes are left open.
func inferScan(c *call) error {
	a, ok := c.node.Attr("body")
	if !ok || a.Graph == nil {
		return fmt.Errorf("the attribute body holds no graph")
	}
	for i := range c.out {
		if i < len(a.Graph.Outputs) {
			c.set(i, a.Graph.Outputs[i].DType, nil)
		}
	}
	return nil
}
