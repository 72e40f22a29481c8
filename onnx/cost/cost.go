// Package cost bounds the work and memory of a run of a model, from the shapes of its inputs and
// before it runs: multiply-adds, and bytes of the values that are alive at the same time. A small
// file can ask for any amount of either.
package cost

import (
	"fmt"

	"fmp/onnx"
	"fmp/onnx/engine"
	"fmp/onnx/op"
	"fmp/onnx/pass"
	"fmp/onnx/shape"
)

// Cost is the work and memory of a run. Views are counted as copies, and nodes on constants as
// others.
type Cost struct {
	Items float64 // the largest size of an input's first axis
	Work  float64 // multiply-adds; other work on an element counts as one
	Bytes float64 // of the values that are alive at once, inputs included and weights not
	// Hardest and Largest are the node of the most work, and the one at which the most bytes are
	// alive.
	Hardest, Largest *onnx.Node
}

// Estimate returns the cost of a run whose inputs have the given shapes. It is an error where a
// shape cannot be told beforehand, and where nodes hold graphs, whose runs cannot be counted. m
// stays as it is.
func Estimate(m *onnx.Model, inputs map[string][]int) (Cost, error) {
	c := onnx.Clone(m)
	if err := pass.Inline(c); err != nil {
		return Cost{}, err
	}
	g := c.Graph
	// Shapes that a file claims for the values within are not believed.
	g.Values = nil
	for i, in := range g.Inputs {
		if dims, ok := inputs[in.Name]; ok {
			g.Inputs[i].Shape = []onnx.Dim{}
			for _, d := range dims {
				g.Inputs[i].Shape = append(g.Inputs[i].Shape, onnx.Known(d))
			}
		}
	}
	types, err := shape.Types(c)
	if err != nil {
		return Cost{}, err
	}
	t := &tally{graph: g, opset: onnx.ClampInt(c.Opset()), types: types, reads: map[string]int{}}
	return t.sum()
}

// tally follows the values that are alive from node to node.
type tally struct {
	graph *onnx.Graph
	opset int
	types map[string]onnx.ValueInfo
	reads map[string]int // still to come
	alive float64
	cost  Cost
}

// sum walks the nodes in their order. The bytes alive rise by a node's outputs, and fall by the
// inputs that no later node reads.
func (t *tally) sum() (Cost, error) {
	for _, n := range t.graph.Nodes {
		for _, in := range n.Inputs {
			t.reads[in]++
		}
	}
	// An output of the graph has one reader more, and so stays alive to the end.
	for _, o := range t.graph.Outputs {
		t.reads[o.Name]++
	}
	for _, in := range t.graph.Inputs {
		v, err := t.value(in.Name)
		if err != nil {
			return t.cost, err
		}
		t.alive += v.bytes
		if len(v.Dims) > 0 {
			t.cost.Items = max(t.cost.Items, v.Dims[0])
		}
	}
	most := 0.0
	for _, n := range t.graph.Nodes {
		if len(n.Subgraphs()) > 0 {
			return t.cost, fmt.Errorf("%s holds a graph; what it takes cannot be told before it runs",
				n.Label())
		}
		work, scratch, err := t.node(n)
		if err != nil {
			return t.cost, err
		}
		if t.cost.Work += work; work > most {
			most, t.cost.Hardest = work, n
		}
		// A node writes its outputs while its inputs are alive: the inputs go afterwards.
		if all := t.alive + scratch; all > t.cost.Bytes {
			t.cost.Bytes, t.cost.Largest = all, n
		}
		if err := t.release(n); err != nil {
			return t.cost, err
		}
	}
	return t.cost, nil
}

// value is a value's sizes.
type value struct {
	op.Size
	bytes float64
}

// value is an error where a size is open. Sizes are float64, in which a product of hostile ones
// does not wrap round to a small number.
func (t *tally) value(name string) (value, error) {
	info := t.types[name]
	v := value{Size: op.Size{Count: 1}}
	if info.Shape == nil || info.DType == onnx.Undefined {
		return v, fmt.Errorf("the shape of %q cannot be told before it runs", name)
	}
	for _, d := range info.Shape {
		if !d.IsKnown() {
			return v, fmt.Errorf("the shape %s of %q cannot be told before it runs",
				info.Type(), name)
		}
		v.Dims, v.Count = append(v.Dims, float64(d.Size)), v.Count*float64(d.Size)
	}
	size := info.DType.Size()
	// A string's header is a pointer and a length of eight bytes each. Its text is not counted.
	if info.DType == onnx.String {
		size = 16
	}
	v.bytes = v.Count * float64(size)
	return v, nil
}

// node adds a node's outputs to the values alive, and returns its work and the bytes that it takes
// beside them.
func (t *tally) node(n *onnx.Node) (work, scratch float64, err error) {
	c := op.Sized{Node: n, Attrs: op.Attrs(n, t.opset)}
	for _, in := range n.Inputs {
		v := value{}
		if in != "" {
			if v, err = t.value(in); err != nil {
				return 0, 0, fmt.Errorf("%s: %w", n.Label(), err)
			}
		}
		c.In = append(c.In, v.Size)
	}
	for _, o := range n.Outputs {
		if o == "" || t.reads[o] == 0 {
			continue
		}
		v, err := t.value(o)
		if err != nil {
			return 0, 0, fmt.Errorf("%s: %w", n.Label(), err)
		}
		c.Out = append(c.Out, v.Size)
		t.alive += v.bytes
	}
	return c.Work(), c.Scratch(), nil
}

// release drops the values that no later node reads. Weights were never counted.
func (t *tally) release(n *onnx.Node) error {
	for _, in := range n.Inputs {
		if in == "" || t.graph.Initializers[in] != nil {
			continue
		}
		if t.reads[in]--; t.reads[in] == 0 {
			v, err := t.value(in)
			if err != nil {
				return err
			}
			t.alive -= v.bytes
		}
	}
	return nil
}

// Foreign are the limits of a model that somebody else made: 2^38 multiply-adds an item, more than
// four times those of the largest vision transformer in wide use (ViT-L/16 at 224 pixels: 6e10),
// and 1 GiB.
var Foreign = engine.Limits{Work: 1 << 38, Bytes: 1 << 30}

// Check returns an error where a run takes more than the limits, of which 0 is none. Work may grow
// with the items of a batch, and memory may not.
func (c Cost) Check(l engine.Limits) error {
	if most := l.Work * max(1, c.Items); l.Work > 0 && c.Work > most {
		return fmt.Errorf("a run takes %.3g multiply-adds, most of them in %s; allowed are %.3g",
			c.Work, c.Hardest.Label(), most)
	}
	if l.Bytes > 0 && c.Bytes > float64(l.Bytes) {
		return fmt.Errorf("a run takes %.0f MiB of memory at %s; allowed are %d", c.Bytes/(1<<20),
			c.Largest.Label(), l.Bytes>>20)
	}
	return nil
}
