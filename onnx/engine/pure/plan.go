package pure

import (
	"fmt"
	"slices"

	"fmp/onnx"
	"fmp/onnx/internal/kernel"
	"fmp/onnx/internal/spell"
	"fmp/onnx/internal/try"
	"fmp/onnx/pass"
)

// plan is a graph made ready: which kernels run in which order, on which values. It is only read
// once it is made.
type plan struct {
	inputs, outputs []onnx.ValueInfo
	// values that a graph within a node takes from around it; fed behind the inputs
	captures  []string
	slots     int            // number of values
	slot      map[string]int // by name
	constants map[int]*onnx.Tensor
	steps     []step
	// uses counts the steps that read a value, and one more for a graph output.
	uses []int
}

// step is one node.
type step struct {
	node    *onnx.Node
	opset   int
	run     kernel.Kernel
	in, out []int // slots, -1 where left out
	types   []onnx.DType
}

// compile checks a model and plans its run. Its error is an [UnsupportedError] where the model is
// sound but holds an operator that the engine does not run. reproducible is
// [engine.Options].Reproducible. m is not changed. Functions are inlined first, and models of old
// operator sets brought to newer ones where a pass can.
func compile(m *onnx.Model, reproducible bool) (p *plan, err error) {
	defer try.Catch(&err)
	if m == nil || m.Graph == nil {
		return nil, fmt.Errorf("no model to load")
	}
	if len(m.Functions) > 0 {
		inlined := *m
		try.Do(pass.Inline(&inlined))
		m = &inlined
	}
	if newer, err := pass.FromSix(m); err == nil { // of others the node is named below
		m = newer
	}
	if v := m.Opset(); v >= onnx.MinOpset && v < 9 && spelt(m.Graph) {
		m = onnx.Clone(m)
		try.Do(pass.Upgrade(m, 9))
	}
	opset := onnx.ClampInt(m.Opset())
	if opset == 0 && !slices.ContainsFunc(m.Graph.Nodes,
		func(n *onnx.Node) bool { return n.Domain == "" }) {
		// a model of other domains alone need not import the standard operators
		opset = onnx.MaxOpset
	}
	if opset < 1 || opset > onnx.MaxOpset {
		return nil, &UnsupportedError{
			Nodes: []Unsupported{{Reason: fmt.Sprintf(
				"the model imports opset %d of the standard operators; 1 to %d are known", opset,
				onnx.MaxOpset)}}}
	}
	c := &compiler{opset: opset, reproducible: reproducible, budget: onnx.NewBudget(m),
		declared: map[string][]onnx.Dim{}}
	for _, v := range m.Graph.Inputs {
		c.declared[v.Name] = v.Shape
	}
	return c.graph(m.Graph, nil, nil)
}

// spelt reports whether a graph holds, at any depth, a node that is spelt out in operators of set
// 9.
func spelt(g *onnx.Graph) bool {
	return slices.ContainsFunc(g.Nodes, func(n *onnx.Node) bool {
		return spell.IsRecurrent(n) || n.Domain == "" && n.Op == "Scan" ||
			slices.ContainsFunc(n.Subgraphs(), spelt)
	})
}

// compiler plans the graphs of one model.
type compiler struct {
	opset        int
	reproducible bool
	budget       *onnx.Budget
	declared     map[string][]onnx.Dim // shapes of the model's inputs
}

// scope finds a value around a graph within a node: its element type, and itself where it is
// constant.
type scope func(name string) (d onnx.DType, t *onnx.Tensor, ok bool)

// graph plans a graph whose inputs have the given types (nil: those that it declares) within the
// scope around it. Checks of names come first, then those of operators, and then the plan node by
// node.
func (c *compiler) graph(g *onnx.Graph, in []onnx.DType, around scope) (made *plan, err error) {
	defer try.Catch(&err)
	p := &planner{
		compiler: c,
		graph:    g,
		plan: &plan{slot: map[string]int{}, constants: map[int]*onnx.Tensor{}, inputs: g.Inputs,
			outputs: g.Outputs},
		produced: map[string]bool{}, opsets: map[*onnx.Node]int{},
		fused: map[*onnx.Node]bool{}, pads: map[int]*kernel.Spec{},
	}
	p.defineInputs(in)
	p.defineCaptures(around)
	p.checkProduced()
	// Names and numbers of operands first: an operator that is not supported at all is the clearest
	// thing to say.
	if p.checkOperators(); p.refused != nil {
		return nil, &UnsupportedError{Nodes: p.refused}
	}
	p.schedule()
	if p.refused != nil {
		return nil, &UnsupportedError{Nodes: p.refused}
	}
	try.Do(p.finish())
	return p.plan, nil
}
