package pass

import (
	"errors"
	"fmt"
	"math"
	"slices"

	"fmp/onnx"
	"fmp/onnx/check"
	"fmp/onnx/internal/spell"
	"fmp/onnx/internal/try"
	"fmp/onnx/op"
	"fmp/onnx/shape"
)

// irVersion is the first IR version that goes with each version of the standard operator set. A
// version beyond the last gets the next IR version.
func irVersion(opset int) int64 {
	last := []int{8, 9, 10, 11, 14, 18, 20, 22, 23, 24, 27} // operator set of each, from 3 on
	i, _ := slices.BinarySearch(last, opset)
	return int64(3 + i)
}

// Upgrade rewrites a model of an older standard operator set, from [onnx.MinOpset] on, in version
// to: attributes that became inputs are moved, changed meanings (Softmax before 13, Resize before
// 11) are spelt out. A model of that version or a newer one stays as it is. An operator of which
// the changes are not known, or a use that the newer version cannot express, is an error that names
// it, and the model stays as it was. Functions are inlined.
//
// Source: the version history of each operator in the ONNX operator specification.
func Upgrade(m *onnx.Model, to int) error {
	if err := graphOf(m, "upgrading"); err != nil {
		return err
	}
	from := onnx.ClampInt(m.Opset())
	if from >= to {
		return nil
	}
	if from < onnx.MinOpset || to > onnx.MaxOpset {
		return fmt.Errorf("upgrading %q from operator set %d to %d: allowed are %d to %d; export the "+
			"model with one of them", m.Graph.Name, from, to, onnx.MinOpset, onnx.MaxOpset)
	}
	c := onnx.Clone(m)
	for _, ready := range []func(*onnx.Model) error{Inline, shape.Infer, check.Model} {
		if err := ready(c); err != nil {
			return err
		}
	}
	// One version at a time: each step knows the changes between two neighbours alone.
	u := &upgrader{names: newNames(), to: to}
	c.Graph.AddNames(u.names.taken)
	for v := from + 1; v <= to; v++ {
		var err error
		if u.types, err = shape.Types(c); err == nil {
			err = u.graph(c.Graph, v)
		}
		if err != nil {
			return fmt.Errorf("upgrading %q from operator set %d to %d: %w", m.Graph.Name,
				v-1, v, err)
		}
		delete(c.Opsets, "ai.onnx")
		c.Opsets[""] = int64(v)
	}
	c.IR = max(c.IR, irVersion(to))
	if err := errors.Join(shape.Infer(c), check.Model(c)); err != nil {
		return fmt.Errorf("upgrading %q from operator set %d to %d: not valid there: %w",
			m.Graph.Name, from, to, err)
	}
	*m = *c
	return nil
}

// upgrader takes a model through one version after the other.
type upgrader struct {
	to    int
	names *names
	types map[string]onnx.ValueInfo // of the values that the graph in hand sees, by the old version

	graphNow *onnx.Graph
	nodes    []*onnx.Node // of the graph in hand, rewritten so far
}

// graph rewrites subgraphs before their node, with the types of values around them.
func (u *upgrader) graph(g *onnx.Graph, version int) error {
	outer, sofar := u.graphNow, u.nodes
	defer func() { u.graphNow, u.nodes = outer, sofar }()
	u.graphNow, u.nodes = g, nil
	for _, n := range g.Nodes {
		for _, s := range n.Subgraphs() {
			own := within(n, s, version-1, u.types)
			u.exchange(own)
			if err := u.graph(s, version); err != nil {
				return err
			}
			u.exchange(own)
		}
		if n.Domain != "" {
			return fmt.Errorf("%s: operators of other domains are not understood", n.Label())
		}
		if !shape.HasRule(n.Op) {
			return fmt.Errorf("%s: what changed in this operator is not known; export the model with "+
				"operator set %d instead", n.Label(), u.to)
		}
		if step := upgrades[version][n.Op]; step != nil {
			if err := taken(step, u, n); err != nil {
				return fmt.Errorf("%s: %w", n.Label(), err)
			}
		}
		u.nodes = append(u.nodes, n)
	}
	g.Nodes = u.nodes
	return nil
}

// exchange puts types in the place of those that u has, which it leaves in their place: a copy of
// all for each subgraph would be quadratic.
func (u *upgrader) exchange(types map[string]onnx.ValueInfo) {
	for name, v := range types {
		types[name], u.types[name] = u.types[name], v
	}
}

// within returns the types of the values that a node's subgraph takes and makes, none where they
// contradict each other.
func within(n *onnx.Node, s *onnx.Graph, version int,
	around map[string]onnx.ValueInfo) map[string]onnx.ValueInfo {
	body := *s
	body.Inputs = nil
	for _, name := range s.Captures() {
		v := around[name]
		v.Name = name
		body.Inputs = append(body.Inputs, v)
	}
	for i, v := range s.Inputs {
		// The last inputs of a Loop or Scan are those of its body, which need not say their types.
		if at := len(n.Inputs) - len(s.Inputs) + i; v.DType == onnx.Undefined && at >= 0 {
			v.DType = around[n.Inputs[at]].DType
		}
		v.Shape = nil // a turn may have another
		body.Inputs = append(body.Inputs, v)
	}
	own, err := shape.Types(&onnx.Model{Opsets: map[string]int64{"": int64(version)}, Graph: &body})
	if err != nil {
		return nil
	}
	return own
}

// change rewrites a node in place, or ends by try.Fail; nodes that go before it are added to
// u.nodes.
type change func(u *upgrader, n *onnx.Node)

// taken turns the end of a change by try.Fail into an error.
func taken(step change, u *upgrader, n *onnx.Node) (err error) {
	defer try.Catch(&err)
	step(u, n)
	return nil
}

// constant adds an initializer for node n. The initializer goes into the graph in hand, so that a
// node within a body has it there.
func (u *upgrader) constant(n *onnx.Node, what string, t *onnx.Tensor) string {
	name := u.names.unique(n.Outputs[0] + "/" + what)
	u.graphNow.Initializers[name] = t
	return name
}

// drop removes an attribute and returns it.
func drop(n *onnx.Node, name string) (onnx.Attr, bool) {
	a, ok := n.Attr(name)
	// The list may be shared with another node, and DeleteFunc writes to it.
	n.Attrs = slices.DeleteFunc(slices.Clone(n.Attrs),
		func(a onnx.Attr) bool { return a.Name == name })
	return a, ok
}

// feed makes input i of n the value name, leaving out those before it that it lacks.
func feed(n *onnx.Node, i int, name string) {
	for len(n.Inputs) <= i {
		n.Inputs = append(n.Inputs, "")
	}
	n.Inputs[i] = name
}

// toInput moves an attribute, if the node has it, to input i.
func toInput(attr string, i int) change {
	return func(u *upgrader, n *onnx.Node) {
		a, ok := drop(n, attr)
		if !ok {
			return
		}
		v := onnx.Vector(a.Ints...)
		switch a.Kind {
		case onnx.AttrInt:
			v = onnx.Vector(a.Int)
		case onnx.AttrFloat:
			v = onnx.Scalar(a.Float)
		case onnx.AttrFloats:
			v = onnx.Vector(a.Floats...)
		}
		feed(n, i, u.constant(n, attr, v))
	}
}

// needed is toInput of an attribute that the node must have.
func needed(attr string, i int) change {
	return func(u *upgrader, n *onnx.Node) {
		if _, ok := n.Attr(attr); !ok {
			try.Fail("it has no %s", attr)
		}
		toInput(attr, i)(u, n)
	}
}

// renamed is for an operator that a version calls otherwise.
func renamed(op string) change { return func(_ *upgrader, n *onnx.Node) { n.Op = op } }

// upgrades holds the changes of a version to the meaning or form of operators; those that it only
// extends are not listed.
var upgrades map[int]map[string]change

func init() {
	axesToInput := toInput("axes", 1)
	upgrades = map[int]map[string]change{
		9: {
			"BatchNormalization": func(_ *upgrader, n *onnx.Node) {
				if a, ok := drop(n, "spatial"); ok && a.Int == 0 {
					try.Fail("spatial is 0, which later versions do not have")
				}
			},
			"Upsample": needed("scales", 1),
			"Scan":     func(u *upgrader, n *onnx.Node) { *n = *try.Get(spell.Scan(n, u.names.unique)) },
		},
		10: {
			"Slice": func(u *upgrader, n *onnx.Node) {
				needed("starts", 1)(u, n)
				needed("ends", 2)(u, n)
				toInput("axes", 3)(u, n)
			},
			// The mask was of the input's type and is bool from then on.
			"Dropout": func(_ *upgrader, n *onnx.Node) {
				if len(n.Outputs) > 1 && n.Outputs[1] != "" {
					try.Fail("its mask is used, whose type changed")
				}
				n.Outputs = n.Outputs[:1]
			},
			"TopK": needed("k", 1), "Upsample": renamed("Resize"),
		},
		11: {
			"Clip": upgradeClip11, "Pad": upgradePad11, "Resize": upgradeResize11,
			"Scatter": renamed("ScatterElements"),
		},
		12: {"Dropout": toInput("ratio", 1)},
		13: {
			"Softmax": upgradeSoftmax13, "LogSoftmax": upgradeSoftmax13, "Hardmax": upgradeSoftmax13,
			"Squeeze":   axesToInput,
			"Unsqueeze": axesToInput, "ReduceSum": axesToInput, "Split": toInput("split", 1),
		},
		14: {
			// Outputs beside the first were of training, which became an attribute.
			"BatchNormalization": func(_ *upgrader, n *onnx.Node) {
				if slices.ContainsFunc(n.Outputs[1:], func(o string) bool { return o != "" }) {
					try.Fail("it gives statistics of training; export the model for inference")
				}
				n.Outputs = n.Outputs[:1]
			},
		},
		// The default became half_pixel, which shifts regions by half a pixel.
		16: {"RoiAlign": func(_ *upgrader, n *onnx.Node) {
			n.Attrs = append(n.Attrs, onnx.StrAttr("coordinate_transformation_mode", "output_half_pixel"))
		}},
		18: {
			"ReduceMean": axesToInput, "ReduceMax": axesToInput, "ReduceMin": axesToInput,
			"ReduceProd": axesToInput, "ReduceL1": axesToInput, "ReduceL2": axesToInput,
			"ReduceLogSum": axesToInput, "ReduceLogSumExp": axesToInput, "ReduceSumSquare": axesToInput,
			// Without sizes the number of parts must be said.
			"Split": func(_ *upgrader, n *onnx.Node) {
				if n.Input(1) == "" {
					n.Attrs = append(n.Attrs, onnx.IntAttr("num_outputs", len(n.Outputs)))
				}
			},
		},
		20: {
			// The axis became an input, of which the default is another one.
			"DFT": func(u *upgrader, n *onnx.Node) {
				axis := op.Attrs(n, 19).Int("axis")
				drop(n, "axis")
				feed(n, 2, u.constant(n, "axis", onnx.Scalar(int64(axis))))
			},
			"GridSample": upgradeGridSample20,
		},
		21: {"GroupNormalization": func(*upgrader, *onnx.Node) {
			try.Fail("scale and bias were given for each group and now are for each channel")
		}},
	}
}

// upgradeClip11: bounds of the input's type; before they were floats, with the type's extremes as
// defaults.
func upgradeClip11(u *upgrader, n *onnx.Node) {
	d := u.types[n.Inputs[0]].DType
	for i, name := range []string{"min", "max"} {
		a, ok := drop(n, name)
		if !ok || math.Abs(float64(a.Float)) >= math.MaxFloat32 {
			continue // the default: no bound
		}
		feed(n, i+1, u.constant(n, name, scalar(d, a.Float)))
	}
}

// scalar is v in the type of a node's input.
func scalar(d onnx.DType, v float32) *onnx.Tensor {
	if d == onnx.Float64 {
		return onnx.Scalar(float64(v))
	}
	if d != onnx.Float32 {
		try.Fail("its input is of type %v; only float32 and float64 are understood", d)
	}
	return onnx.Scalar(v)
}

// upgradePad11: pads and value become inputs 1 and 2. A value of 0 is the default of both versions
// and is left out.
func upgradePad11(u *upgrader, n *onnx.Node) {
	needed("pads", 1)(u, n)
	if v, ok := drop(n, "value"); ok && v.Float != 0 {
		feed(n, 2, u.constant(n, "value", scalar(u.types[n.Inputs[0]].DType, v.Float)))
	}
}

// upgradeResize11: version 10 takes the input position of output i as i/scale. The nearest element
// was the one below when enlarging; the one for shrinking is not stated, and refused.
func upgradeResize11(u *upgrader, n *onnx.Node) {
	scales := u.graphNow.Initializers[n.Input(1)]
	mode := op.Attrs(n, 10).Str("mode")
	if mode == "nearest" {
		if scales == nil || slices.ContainsFunc(scales.F32(), func(s float32) bool { return s < 1 }) {
			try.Fail("nearest-neighbour resizing by scales that shrink, or that are not " +
				"constant, is not defined in version 10")
		}
		n.Attrs = append(n.Attrs, onnx.StrAttr("nearest_mode", "floor"))
	}
	n.Attrs = append(n.Attrs, onnx.StrAttr("coordinate_transformation_mode", "asymmetric"))
	n.Inputs = []string{n.Inputs[0], u.constant(n, "roi", onnx.NewTensor([]float32{}, 0)), n.Input(1)}
}

// upgradeSoftmax13: before, all axes from axis on were one axis. Where that is only the last, the
// meaning did not change; else the value is flattened to a matrix and back.
func upgradeSoftmax13(u *upgrader, n *onnx.Node) {
	axis := op.Attrs(n, 12).Int("axis")
	drop(n, "axis")
	n.Attrs = append(n.Attrs, onnx.IntAttr("axis", -1))
	rank := len(u.types[n.Inputs[0]].Shape)
	if u.types[n.Inputs[0]].Shape != nil && (axis == rank-1 || axis == -1) {
		return
	}
	x, out := n.Inputs[0], n.Outputs[0]
	shape, flat, rows := u.names.unique(out+"/shape"), u.names.unique(out+"/flat"),
		u.names.unique(out+"/rows")
	n.Inputs[0], n.Outputs[0] = flat, rows
	softmax := *n
	u.nodes = append(u.nodes,
		&onnx.Node{Name: shape, Op: "Shape", Inputs: []string{x}, Outputs: []string{shape}},
		&onnx.Node{Name: flat, Op: "Flatten", Inputs: []string{x}, Outputs: []string{flat},
			Attrs: []onnx.Attr{onnx.IntAttr("axis", axis)}}, &softmax,
	)
	*n = onnx.Node{Name: out, Op: "Reshape", Inputs: []string{rows, shape}, Outputs: []string{out}}
	if u.to >= 14 { // a size of 0 is one, and copies none
		n.Attrs = append(n.Attrs, onnx.IntAttr("allowzero", 1))
	}
}

// upgradeGridSample20: bilinear and bicubic are called linear and cubic from operator set 20 on.
func upgradeGridSample20(u *upgrader, n *onnx.Node) {
	if a, ok := drop(n, "mode"); ok {
		switch a.Str {
		case "bilinear":
			a.Str = "linear"
		case "bicubic":
			a.Str = "cubic"
		}
		n.Attrs = append(n.Attrs, a)
	}
}
