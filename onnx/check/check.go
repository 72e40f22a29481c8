// Package check finds the errors of a model.
package check

import (
	"errors"
	"fmt"
	"math"
	"slices"
	"unicode/utf8"

	"fmp/onnx"
	"fmp/onnx/internal/try"
)

// Bounds of the metadata that [Model] accepts.
const (
	maxMetadata      = 4096    // entries
	maxMetadataBytes = 1 << 22 // of one value
)

// Model returns the errors of a model: names that are given twice or never, nodes out of order,
// operator sets and operators that are not understood, nodes that give an operator inputs, outputs,
// element types or attributes that it does not have, tensors whose data do not fit their shape,
// outputs without a type. Errors name node and operator, and the name that was probably meant. It
// does not look at shapes; package shape does.
func Model(m *onnx.Model) error {
	if m == nil || m.Graph == nil {
		return fmt.Errorf("checking model: there is no graph")
	}
	if err := checkModel(m); err != nil {
		return fmt.Errorf("checking model %q: %w", m.Graph.Name, err)
	}
	return nil
}

// checkModel looks at versions and metadata first, then at functions, and at the graph last.
// The names of all functions are known before the first is checked, so that they may stand in any
// order. That none calls itself is left to pass.Inline, which has to follow the calls.
func checkModel(m *onnx.Model) (err error) {
	defer try.Catch(&err)
	if m.IR < 3 || m.IR > onnx.MaxIR {
		return onnx.Unknownf("IR version %d; allowed are 3 to %d", m.IR, onnx.MaxIR)
	}
	for d, v := range m.Opsets {
		if d == "" || d == "ai.onnx" {
			checkOpset(v)
		}
	}
	if len(m.Metadata) > maxMetadata {
		return fmt.Errorf("%d metadata entries; at most %d are allowed", len(m.Metadata),
			maxMetadata)
	}
	for k, v := range m.Metadata {
		if k == "" || len(k) > onnx.MaxNameBytes || len(v) > maxMetadataBytes ||
			!utf8.ValidString(k) || !utf8.ValidString(v) {
			return fmt.Errorf("metadata key %.40q with a value of %d bytes; keys of 1 to %d bytes and "+
				"values of up to %d bytes of UTF-8 are allowed", k, len(v), onnx.MaxNameBytes,
				maxMetadataBytes)
		}
	}
	local := map[onnx.OpName]bool{}
	for _, f := range m.Functions {
		id := onnx.OpName{Domain: f.Domain, Name: f.Name}
		if local[id] {
			return fmt.Errorf("function %s is given twice", id)
		}
		local[id] = true
	}
	for _, f := range m.Functions {
		if err := checkFunction(m, f, local); err != nil {
			return fmt.Errorf("function %s: %w", onnx.OpName{Domain: f.Domain, Name: f.Name}, err)
		}
	}
	if len(m.Graph.Outputs) == 0 {
		return fmt.Errorf("the graph has no output")
	}
	c := newChecker(m.Opsets, local)
	c.graph(m.Graph, 0)
	for _, o := range m.Graph.Outputs {
		if o.DType == onnx.Undefined {
			return fmt.Errorf("output %q has no element type; run shape.Infer, or give it one where its "+
				"operator is not known", o.Name)
		}
	}
	return nil
}

// checkOpset marks a version out of bounds as beyond this program ([onnx.ErrUnknown]) and not as
// wrong.
func checkOpset(v int64) {
	if v < onnx.MinOpset || v > onnx.MaxOpset {
		try.Do(onnx.Unknownf("operator set version %d of the standard domain; allowed are %d to %d, "+
			"export the model with one of them", v, onnx.MinOpset, onnx.MaxOpset))
	}
}

// checkFunction reads a function without operator sets of its own by the model's.
// Element types are unknown within, since they follow from each call. A function sees no value of
// the graph around its calls.
func checkFunction(m *onnx.Model, f *onnx.Function, local map[onnx.OpName]bool) (err error) {
	defer try.Catch(&err)
	opsets := f.Opsets
	if len(opsets) == 0 {
		opsets = m.Opsets
	}
	if v, ok := opsets[""]; ok {
		checkOpset(v)
	}
	c := newChecker(opsets, local)
	c.inFunction = true
	for _, in := range f.Inputs {
		c.define(in, "input")
	}
	for _, n := range f.Nodes {
		try.Do(c.node(n, 0))
	}
	for _, o := range f.Outputs {
		if _, ok := c.defined[o]; !ok {
			return fmt.Errorf("output %q is given by no node", o)
		}
	}
	return nil
}

// checker walks a graph with the names defined so far; subgraphs see the names around them. A
// checker belongs to one graph, and outer leads to the graphs around it. opsets are versions by
// domain, and local the model's own functions, which have no schema. outer is nil for the model's
// own graph and for functions.
type checker struct {
	outer      *checker
	opsets     map[string]int64
	local      map[onnx.OpName]bool
	defined    map[string]string // name: what defines it
	types      map[string]onnx.DType
	inFunction bool
}

func newChecker(opsets map[string]int64, local map[onnx.OpName]bool) *checker {
	return &checker{opsets: opsets, local: local, defined: map[string]string{},
		types: map[string]onnx.DType{}}
}

// typeOf is a value's element type as far as it is known.
func (c *checker) typeOf(name string) onnx.DType {
	for k := c; k != nil; k = k.outer {
		if d, ok := k.types[name]; ok {
			return d
		}
	}
	return onnx.Undefined
}

// definedBy looks from the inside out and tells the kind of value, for errors.
func (c *checker) definedBy(name string) (string, bool) {
	for k := c; k != nil; k = k.outer {
		if by, ok := k.defined[name]; ok {
			return by, true
		}
	}
	return "", false
}

// define notes a value of a graph; a subgraph may not give a name that a graph around it gives
// before.
func (c *checker) define(name, by string) {
	switch {
	case name == "":
		try.Fail("an %s has no name", by)
	case len(name) > onnx.MaxNameBytes || !utf8.ValidString(name):
		try.Fail("the name %.40q is no UTF-8 of at most %d bytes", name, onnx.MaxNameBytes)
	}
	if first, ok := c.definedBy(name); ok {
		try.Fail("%q is given twice: by the %s and by the %s", name, first, by)
	}
	c.defined[name] = by
}

// graph defines values in the order of the nodes, so that a node out of order reads an unknown
// name.
func (c *checker) graph(g *onnx.Graph, depth int) {
	for _, in := range g.Inputs {
		c.define(in.Name, "input")
		checkValue("input", in)
		c.types[in.Name] = in.DType
	}
	// Types that the file states stand first, and an operator's own are held against them.
	for _, v := range slices.Concat(g.Values, g.Outputs) {
		if c.typeOf(v.Name) == onnx.Undefined {
			c.types[v.Name] = v.DType // until the operator that makes it says more
		}
	}
	for _, name := range g.InitializerNames() {
		c.define(name, "initializer")
		if err := onnx.CheckTensor(g.Initializers[name]); err != nil {
			try.Fail("initializer %q: %w", name, err)
		}
		c.types[name] = g.Initializers[name].DType
	}
	for _, n := range g.Nodes {
		try.Do(c.node(n, depth))
	}
	// An output may be a value of the graph around, as that of an If's branch.
	outs := map[string]bool{}
	for _, o := range g.Outputs {
		if _, ok := c.definedBy(o.Name); !ok {
			try.Fail("output %q is given by no node", o.Name)
		}
		if outs[o.Name] {
			try.Fail("output %q is listed twice", o.Name)
		}
		outs[o.Name] = true
		checkValue("output", o)
	}
}

// checkValue bounds the type and shape of an input or output.
func checkValue(kind string, v onnx.ValueInfo) {
	if !v.DType.Known() && v.DType != onnx.Undefined {
		try.Fail("%s %q: element type %d is not known", kind, v.Name, v.DType)
	}
	if len(v.Shape) > onnx.MaxRank {
		try.Fail("%s %q: rank %d; at most %d is allowed", kind, v.Name, len(v.Shape), onnx.MaxRank)
	}
	for i, d := range v.Shape {
		if d.Size < -1 || d.Size > onnx.MaxElements {
			try.Fail("%s %q: size %d of axis %d", kind, v.Name, d.Size, i)
		}
	}
}

// node takes the types of outputs from the schema where it tells them, and refuses other types of
// the file.
func (c *checker) node(n *onnx.Node, depth int) error {
	if n == nil {
		return errors.New("a node is nil")
	}
	if n.Op == "" {
		return fmt.Errorf("%s has no operator", n.Label())
	}
	fail := func(format string, args ...any) error {
		return fmt.Errorf("%s: %w", n.Label(), fmt.Errorf(format, args...))
	}
	for _, in := range n.Inputs {
		if in == "" {
			continue
		}
		if _, ok := c.definedBy(in); !ok {
			return fail("it reads %q, which nothing before it gives", in)
		}
	}
	seen := map[string]bool{}
	for _, a := range n.Attrs {
		if a.Name == "" || seen[a.Name] {
			return fail("the attribute %q is nameless or given twice", a.Name)
		}
		seen[a.Name] = true
		if a.Ref != "" && !c.inFunction {
			return fail("the attribute %q refers to %q of a function and is in none", a.Name, a.Ref)
		}
		if a.Ref != "" {
			continue
		}
		if err := c.attr(a, depth); err != nil {
			return fail("attribute %q: %w", a.Name, err)
		}
	}
	// Of a call of the model's own function all types stay unknown, but for those that the file
	// states.
	types := make([]onnx.DType, len(n.Outputs))
	if !c.local[onnx.OpName{Domain: n.Domain, Name: n.Op}] {
		var err error
		if types, err = c.operator(n); err != nil {
			return fail("%w", err)
		}
	}
	outputs := 0
	for i, out := range n.Outputs {
		if out == "" {
			continue
		}
		outputs++
		c.define(out, n.Label())
		if types[i] != onnx.Undefined {
			if d := c.types[out]; d != onnx.Undefined && d != types[i] {
				return fail("its output %q is %v, and the file states that it is %v", out, types[i], d)
			}
			c.types[out] = types[i]
		}
	}
	// A node that gives nothing could not be reached from any output.
	if outputs == 0 {
		return fail("it has no output")
	}
	return nil
}

// attr checks subgraphs by checkers of their own, to a depth of onnx.MaxDepth.
func (c *checker) attr(a onnx.Attr, depth int) (err error) {
	defer try.Catch(&err)
	graphs := a.Graphs
	switch a.Kind {
	case onnx.AttrFloat:
		// of Imputer, a missing value
		if math.IsNaN(float64(a.Float)) && a.Name != "replaced_value_float" {
			return fmt.Errorf("the value is not a number")
		}
	case onnx.AttrInt, onnx.AttrString, onnx.AttrInts, onnx.AttrFloats, onnx.AttrStrings:
	case onnx.AttrTensor:
		return onnx.CheckTensor(a.Tensor)
	case onnx.AttrTensors:
		for _, t := range a.Tensors {
			try.Do(onnx.CheckTensor(t))
		}
	case onnx.AttrGraph:
		graphs = []*onnx.Graph{a.Graph}
	case onnx.AttrGraphs:
	default:
		return fmt.Errorf("kind %d is not known", a.Kind)
	}
	for _, g := range graphs {
		if g == nil {
			return fmt.Errorf("it holds no graph")
		}
		if depth >= onnx.MaxDepth {
			return fmt.Errorf("subgraphs are nested more than %d deep", onnx.MaxDepth)
		}
		inner := newChecker(c.opsets, c.local)
		inner.outer, inner.inFunction = c, c.inFunction
		inner.graph(g, depth+1)
	}
	return nil
}
