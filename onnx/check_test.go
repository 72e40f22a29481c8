package onnx

import (
	"strings"
	"testing"
)

func TestCheckNamesTheFault(t *testing.T) {
	for _, tc := range []struct {
		name  string
		spoil func(m *Model)
		want  string
	}{
		{"a name twice", func(m *Model) { m.Graph.Nodes[1].Outputs[0] = "image" }, `"image" is given twice: by the input and by the node`},
		{"an initializer and a node", func(m *Model) { m.Graph.Nodes[0].Outputs[0] = "w" }, `"w" is given twice`},
		{"order", func(m *Model) { m.Graph.Nodes[0], m.Graph.Nodes[1] = m.Graph.Nodes[1], m.Graph.Nodes[0] }, `(Relu): it reads "matmul", which nothing before it gives`},
		{"no such value", func(m *Model) { m.Graph.Nodes[0].Inputs[1] = "nowhere" }, `(MatMul): it reads "nowhere"`},
		{"opset too new", func(m *Model) { m.Opsets[""] = 99 }, "version 99 of the standard domain; allowed are 7 to 21"},
		{"opset too old", func(m *Model) { m.Opsets[""] = 6 }, "version 6"},
		{"no opset", func(m *Model) { m.Opsets = nil }, "no operator set of the standard domain is imported"},
		{"another domain", func(m *Model) { m.Graph.Nodes[0].Domain = "com.microsoft" }, `com.microsoft.MatMul`},
		{"an untyped output", func(m *Model) { m.Graph.Outputs[0].DType = Undefined }, "no element type"},
		{"no output", func(m *Model) { m.Graph.Outputs = nil }, "no output"},
		{"an output from nowhere", func(m *Model) { m.Graph.Outputs[0].Name = "nowhere" }, `output "nowhere" is given by no node`},
		{"a tensor that lies", func(m *Model) {
			m.Graph.Initializers["w"] = &Tensor{DType: Float32, Shape: []int{9}, Data: []float32{1}}
		}, `initializer "w"`},
		{"an attribute twice", func(m *Model) { m.Graph.Nodes[0].Attrs = []Attr{IntAttr("a", 1), IntAttr("a", 2)} }, `attribute "a" is nameless or given twice`},
		{"metadata without a key", func(m *Model) { m.Metadata = map[string]string{"": "x"} }, "metadata key"},
		{"an IR version from the future", func(m *Model) { m.IR = 99 }, "IR version 99"},
		{"a function that misses a value", func(m *Model) {
			m.Functions = []*Function{{Domain: "own", Name: "f", Outputs: []string{"y"}, Nodes: []*Node{{Op: "Relu", Inputs: []string{"x"}, Outputs: []string{"y"}}}}}
		}, `function own.f: node "y" (Relu): it reads "x"`},
	} {
		t.Run(tc.name, func(t *testing.T) {
			m := linear(t, "m", "image", "features", 8, 4, nil)
			if err := Check(m); err != nil {
				t.Fatal(err)
			}
			tc.spoil(m)
			err := Check(m)
			if err == nil {
				t.Fatal("no error")
			}
			if !strings.Contains(err.Error(), tc.want) {
				t.Errorf("error %q does not say %q", err, tc.want)
			}
		})
	}
}

// doubler is a model whose one node calls scale(x) = x * factor + x through a second function.
func doubler(t *testing.T) *Model {
	t.Helper()
	factor := Attr{Name: "value_float", Kind: AttrFloat, Ref: "factor"}
	times := &Function{Domain: "own", Name: "times", Inputs: []string{"x"}, Outputs: []string{"y"}, Defaults: []Attr{FloatAttr("factor", 2)},
		Opsets: map[string]int64{"": DefaultOpset}, Nodes: []*Node{
			{Op: "Constant", Outputs: []string{"c"}, Attrs: []Attr{factor}},
			{Op: "Mul", Inputs: []string{"x", "c"}, Outputs: []string{"y"}},
		}}
	scale := &Function{Domain: "own", Name: "scale", Inputs: []string{"x"}, Outputs: []string{"y", "x"}, Attributes: []string{"factor"},
		Opsets: map[string]int64{"": DefaultOpset, "own": 1}, Nodes: []*Node{
			{Op: "times", Domain: "own", Inputs: []string{"x"}, Outputs: []string{"z"}, Attrs: []Attr{{Name: "factor", Kind: AttrFloat, Ref: "factor"}}},
			{Op: "Add", Inputs: []string{"x", "z"}, Outputs: []string{"y"}},
		}}
	g := &Graph{Name: "doubler", Inputs: []ValueInfo{{Name: "x", DType: Float32, Shape: Shape("n")}}, Initializers: map[string]*Tensor{},
		Outputs: []ValueInfo{{Name: "out", DType: Float32}, {Name: "same", DType: Float32}},
		Nodes: []*Node{
			{Name: "first", Op: "scale", Domain: "own", Inputs: []string{"x"}, Outputs: []string{"h"}, Attrs: []Attr{FloatAttr("factor", 3)}},
			{Name: "second", Op: "scale", Domain: "own", Inputs: []string{"h"}, Outputs: []string{"out", "same"}},
		}}
	m := NewModel(g)
	m.Opsets["own"] = 1
	m.Functions = []*Function{times, scale}
	return m
}

func TestInlineFunctions(t *testing.T) {
	m := doubler(t)
	if err := Check(m); err != nil {
		t.Fatal(err)
	}
	if err := InlineFunctions(m); err != nil {
		t.Fatal(err)
	}
	if err := Infer(m); err != nil {
		t.Fatal(err)
	}
	if err := Check(m); err != nil {
		t.Fatal(err)
	}
	var ops []string
	var factors []float32
	for _, n := range m.Graph.Nodes {
		ops = append(ops, n.Op)
		if n.Op == "Constant" {
			factors = append(factors, n.Float("value_float", 0))
		}
	}
	if got, want := strings.Join(ops, " "), "Constant Mul Add Constant Mul Add Identity"; got != want {
		t.Errorf("operators are %s, want %s", got, want)
	}
	// The first call says 3; the second says nothing, so that times falls back to its own 2.
	if len(factors) != 2 || factors[0] != 3 || factors[1] != 2 {
		t.Errorf("factors are %v, want [3 2]", factors)
	}
	if len(m.Functions) != 0 || m.Opsets["own"] != 0 {
		t.Error("the functions are still there")
	}
	if got := m.Graph.Outputs[1].String(); got != "float32[n]" {
		t.Errorf("output same is %s", got)
	}
}

func TestInlineRefusesEndlessFunctions(t *testing.T) {
	m := doubler(t)
	m.Functions[0].Nodes[1] = &Node{Op: "scale", Domain: "own", Inputs: []string{"x"}, Outputs: []string{"y"}}
	if err := InlineFunctions(m); err == nil || !strings.Contains(err.Error(), "deep") {
		t.Errorf("error is %v", err)
	}
	// Each function calls the one before it sixteen times: 16^12 nodes.
	m = doubler(t)
	call := func(name string) *Node {
		return &Node{Op: name, Domain: "own", Inputs: []string{"x"}, Outputs: []string{"y"}}
	}
	for i := range 12 {
		f := &Function{Domain: "own", Name: string(rune('a' + i)), Inputs: []string{"x"}, Outputs: []string{"y0"}}
		below := "times"
		if i > 0 {
			below = string(rune('a' + i - 1))
		}
		for j := range 16 {
			n := call(below)
			n.Outputs[0] = "y" + string(rune('0'+j))
			f.Nodes = append(f.Nodes, n)
		}
		m.Functions = append(m.Functions, f)
	}
	m.Graph.Nodes[0] = call("l")
	m.Graph.Nodes[0].Outputs[0] = "h"
	if err := InlineFunctions(m); err == nil || !strings.Contains(err.Error(), "grow by more than") {
		t.Errorf("error is %v", err)
	}
}

func TestSortNodes(t *testing.T) {
	g := &Graph{Name: "g", Nodes: []*Node{
		{Op: "C", Inputs: []string{"b", "a"}, Outputs: []string{"c"}},
		{Op: "A", Inputs: []string{"x"}, Outputs: []string{"a"}},
		{Op: "B", Inputs: []string{"a"}, Outputs: []string{"b"}},
	}}
	if err := SortNodes(g); err != nil {
		t.Fatal(err)
	}
	var order string
	for _, n := range g.Nodes {
		order += n.Op
	}
	if order != "ABC" {
		t.Errorf("order is %s, want ABC", order)
	}
	g.Nodes[0].Inputs[0] = "c"
	if err := SortNodes(g); err == nil || !strings.Contains(err.Error(), "cycle") {
		t.Errorf("error is %v", err)
	}
}
