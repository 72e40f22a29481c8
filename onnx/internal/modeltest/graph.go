package modeltest

import (
	"fmt"
	"math"
	"strconv"
	"strings"

	"fmp/onnx"
	"fmp/onnx/op"
)

// Values reads descriptions such as "x:float32[n,3] on:bool[] any:float32"; the last has no shape.
// A size that is no number is a symbol, and [] is a scalar's shape. A type that no [onnx.DType] is
// called stays undefined.
func Values(text string) []onnx.ValueInfo {
	var out []onnx.ValueInfo
	for _, w := range strings.Fields(text) {
		name, typ, _ := strings.Cut(w, ":")
		typ, dims, shaped := strings.Cut(strings.TrimSuffix(typ, "]"), "[")
		v := onnx.ValueInfo{Name: name}
		for d := onnx.DType(1); v.DType == onnx.Undefined && d < 32; d++ {
			if d.String() == typ {
				v.DType = d
			}
		}
		if shaped {
			v.Shape = []onnx.Dim{}
			for _, s := range strings.FieldsFunc(dims, func(r rune) bool { return r == ',' }) {
				if n, err := strconv.Atoi(s); err == nil {
					v.Shape = append(v.Shape, onnx.Known(n))
				} else {
					v.Shape = append(v.Shape, onnx.Symbolic(s))
				}
			}
		}
		out = append(out, v)
	}
	return out
}

// Node makes a node from names apart by spaces; "_" is a value left out. The node's name is its
// operator and outputs.
func Node(op, in, out string, attrs ...onnx.Attr) *onnx.Node {
	names := func(text string) []string {
		f := strings.Fields(text)
		for i, s := range f {
			if s == "_" {
				f[i] = ""
			}
		}
		return f
	}
	n := &onnx.Node{Op: op, Inputs: names(in), Outputs: names(out), Attrs: attrs}
	n.Name = op + " " + out
	return n
}

// Graph makes a graph; in and out are as for [Values].
func Graph(in, out string, inits map[string]*onnx.Tensor, nodes ...*onnx.Node) *onnx.Graph {
	if inits == nil {
		inits = map[string]*onnx.Tensor{}
	}
	return &onnx.Graph{Name: "graph", Inputs: Values(in), Outputs: Values(out),
		Initializers: inits, Nodes: nodes}
}

// Body makes an attribute that is a graph.
func Body(name string, g *onnx.Graph) onnx.Attr {
	g.Name = name
	return onnx.Attr{Name: name, Kind: onnx.AttrGraph, Graph: g}
}

// Control lists models of If, Loop and Scan with values for their inputs, by name: captures of the
// values around, conditions that end a loop, no turns at all, scanned axes and directions, graphs
// in graphs. With h = tanh x, If chooses e^h x or -h x. Loop computes v ← v sin w + 1/2 for a
// number of turns. "Loop until" computes v ← v w until |v|² is 30 or more, in 40 turns at most.
// Scan computes h ← tanh(x_t w + h). The nested one computes v ← u + v, where u is sin(v x) or
// v x + x.
func Control() map[string]Case {
	f := func(shape []int, v ...float32) *onnx.Tensor { return onnx.NewTensor(v, shape...) }
	x := f([]int{3}, -1, .5, 2)
	half := map[string]*onnx.Tensor{"half": onnx.Scalar[float32](.5)}
	branch := func(name, op string) onnx.Attr {
		return Body(name, Graph("", name+"_out:float32[3]", nil, Node(op, "h", name+"_h"),
			Node("Mul", name+"_h x", name+"_out")))
	}
	choice := Graph("x:float32[3] which:bool[]", "y:float32[3]", nil,
		Node("Tanh", "x", "h"), Node("If", "which", "y", branch("then_branch", "Exp"),
			branch("else_branch", "Neg")))
	power := func(turns string) *onnx.Graph {
		return Graph("x:float32[3] w:float32[3] turns:int64[]", "y:float32[3] all:float32[t,3]", nil,
			Node("Sin", "w", "s"),
			Node("Loop", turns+" _ x", "y all",
				Body("body", Graph("i:int64[] on:bool[] v:float32[3]", "on2:bool[] v2:float32[3] "+
					"scanned:float32[3]", half, Node("Identity", "on", "on2"), Node("Mul", "v s", "p"),
					Node("Add", "p half", "v2"), Node("Mul", "v2 v", "scanned")))))
	}
	until := Graph("x:float32[3] w:float32[3]", "y:float32[3] n:int64[] all:float32[t]",
		map[string]*onnx.Tensor{"big": onnx.Scalar[float32](30), "most": onnx.Scalar[int64](40),
			"zero": onnx.Scalar[int64](0), "one": onnx.Scalar[int64](1)},
		Node("Loop", "most _ x zero", "y n all", Body("body",
			Graph("i:int64[] on:bool[] v:float32[3] k:int64[]",
				"on2:bool[] v2:float32[3] k2:int64[] norm:float32[]", nil, Node("Mul", "v w", "v2"),
				Node("ReduceSumSquare", "v2", "norm", onnx.IntAttr("keepdims", 0)),
				Node("Less", "norm big", "on2"), Node("Add", "k one", "k2")))))
	cell := func() *onnx.Graph {
		return Graph("h:float32[2] xt:float32[2,3]", "h2:float32[2] yt:float32[2]", nil,
			Node("MatMul", "xt w", "p"), Node("Add", "p h", "q"), Node("Tanh", "q", "h2"),
			Node("Mul", "h2 h", "yt"))
	}
	scan := func(attrs ...onnx.Attr) *onnx.Graph {
		return Graph("h0:float32[2] x:float32[2,4,3] w:float32[3]", "hn:float32[2] y:float32", nil,
			Node("Scan", "h0 x", "hn y",
				append(attrs, onnx.IntAttr("num_scan_inputs", 1), Body("body", cell()))...))
	}
	nested := Graph("x:float32[3] which:bool[] turns:int64[]", "y:float32[3]", nil,
		Node("Loop", "turns _ x", "y",
			Body("body", Graph("i:int64[] on:bool[] v:float32[3]", "on2:bool[] v2:float32[3]", nil,
				Node("Identity", "on", "on2"), Node("Mul", "v x", "vx"), Node("If", "which", "u",
					Body("then_branch", Graph("", "a:float32[3]", nil, Node("Sin", "vx", "a"))),
					Body("else_branch", Graph("", "b:float32[3]", nil, Node("Add", "vx x", "b")))),
				Node("Add", "u v", "v2")))))
	h0, seq, w := f([]int{2}, .1, -.3), onnx.ZerosF32(2, 4, 3), f([]int{3}, .4, -.7, 1.1)
	for i := range seq.F32() {
		seq.F32()[i] = float32(i%7)/5 - .5
	}
	batches := func(lengths string, attrs ...onnx.Attr) *onnx.Graph {
		return Graph("n:int64[2] h0:float32[2,2] x:float32[2,4,3] w:float32[3]",
			"hn:float32[2,2] y:float32", nil,
			Node("Scan", lengths+" h0 x", "hn y",
				append(attrs, onnx.IntAttr("num_scan_inputs", 1),
					Body("body", Graph("h:float32[2] xt:float32[3]", "h2:float32[2] yt:float32[2]", nil,
						Node("Mul", "xt w", "p"), Node("ReduceSum", "p", "s", onnx.IntAttr("keepdims", 0)),
						Node("Add", "s h", "q"), Node("Tanh", "q", "h2"),
						Node("Mul", "h2 h", "yt"))))...))
	}
	lengths, states := onnx.Vector[int64](3, 1), f([]int{2, 2}, .1, -.3, .2, .7)
	yes, no, n := onnx.Scalar(true), onnx.Scalar(false), onnx.Scalar[int64]
	type feeds = map[string]*onnx.Tensor
	return map[string]Case{
		"If true":          {choice, feeds{"x": x, "which": yes}, 0},
		"If false":         {choice, feeds{"x": x, "which": no}, 0},
		"Loop":             {power("turns"), feeds{"x": x, "w": w, "turns": n(4)}, 0},
		"Loop of no turns": {power("turns"), feeds{"x": x, "w": w, "turns": n(0)}, 0},
		"Loop until":       {until, feeds{"x": x, "w": f([]int{3}, 1.5, -1.2, 1.8)}, 0},
		"Scan":             {scan(onnx.IntsAttr("scan_input_axes", 1)), feeds{"h0": h0, "x": seq, "w": w}, 0},
		"Scan backward": {scan(onnx.IntsAttr("scan_input_axes", -2), onnx.IntsAttr("scan_input_directions", 1),
			onnx.IntsAttr("scan_output_axes", -1)), feeds{"h0": h0, "x": seq, "w": w}, 0},
		"Scan to the front": {scan(onnx.IntsAttr("scan_input_axes", 1), onnx.IntsAttr("scan_output_directions", 1),
			onnx.IntsAttr("scan_output_axes", 1)), feeds{"h0": h0, "x": seq, "w": w}, 0},
		"Scan of batches": {batches("_"), feeds{"n": lengths, "h0": states, "x": seq, "w": w}, 8},
		"Scan of batches backward, of lengths": {batches("n", onnx.IntsAttr("directions", 1)),
			feeds{"n": lengths, "h0": states, "x": seq, "w": w}, 8},
		"nested true":  {nested, feeds{"x": x, "which": yes, "turns": n(3)}, 0},
		"nested false": {nested, feeds{"x": x, "which": no, "turns": n(2)}, 0},
	}
}

// Recurrent lists graphs of one recurrent layer, of five steps of two sequences of three features
// and a state of four, by name: each operator in all directions and with everything that it may
// have besides.
func Recurrent() map[string]Case {
	const steps, batch, features, hidden = 5, 2, 3, 4
	cases := map[string]Case{}
	add := func(name, op, direction string, lens, states bool, attrs ...onnx.Attr) {
		// Gates are stacked as the operators have them: z, r, h of GRU and i, o, f, c of LSTM.
		gates, dirs := map[string]int{"RNN": 1, "GRU": 3, "LSTM": 4}[op], 1
		if direction == "bidirectional" {
			dirs = 2
		}
		count := 0
		// Numbers are 0.8 sin(k² + 3 k) in the order of drawing: spread, and the same in every run.
		draw := func(shape ...int) *onnx.Tensor {
			t := onnx.ZerosF32(shape...)
			for i := range t.F32() {
				t.F32()[i] = float32(math.Sin(float64(count*count+3*count))) * .8
				count++
			}
			return t
		}
		feeds := map[string]*onnx.Tensor{"x": draw(steps, batch, features),
			"w": draw(dirs, gates*hidden, features), "r": draw(dirs, gates*hidden, hidden)}
		in := fmt.Sprintf("x:float32[%d,%d,%d] w:float32[%d,%d,%d] r:float32[%d,%d,%d]", steps, batch,
			features, dirs, gates*hidden, features, dirs, gates*hidden, hidden)
		// The order of inputs is X, W, R, B, sequence_lens, initial_h, initial_c, P.
		names := "x w r _ _"
		if lens {
			feeds["lens"], names = onnx.Vector[int32](3, steps), "x w r _ lens"
			in += fmt.Sprintf(" lens:int32[%d]", batch)
		}
		if states {
			feeds["b"], feeds["h"] = draw(dirs, 2*gates*hidden), draw(dirs, batch, hidden)
			names = strings.Replace(names, "r _", "r b", 1) + " h"
			in += fmt.Sprintf(" b:float32[%d,%d] h:float32[%d,%d,%d]", dirs, 2*gates*hidden,
				dirs, batch, hidden)
			if op == "LSTM" {
				feeds["c"], feeds["p"] = draw(dirs, batch, hidden), draw(dirs, 3*hidden)
				names += " c p"
				in += fmt.Sprintf(" c:float32[%d,%d,%d] p:float32[%d,%d]", dirs, batch, hidden,
					dirs, 3*hidden)
			}
		}
		out, outs := "y:float32 yh:float32", "y yh"
		if op == "LSTM" {
			out, outs = out+" yc:float32", outs+" yc"
		}
		attrs = append(attrs, onnx.StrAttr("direction", direction),
			onnx.IntAttr("hidden_size", hidden))
		cases[strings.TrimSpace(op+" "+direction+" "+name)] = Case{Graph(in, out, nil,
			Node(op, names, outs, attrs...)), feeds, 0}
	}
	for _, op := range []string{"RNN", "GRU", "LSTM"} {
		for _, direction := range []string{"forward", "reverse", "bidirectional"} {
			add("", op, direction, false, false)
			add("with all inputs", op, direction, true, true)
		}
		add("clipped", op, "forward", true, true, onnx.FloatAttr("clip", .4))
	}
	add("reset after", "GRU", "bidirectional", true, true, onnx.IntAttr("linear_before_reset", 1))
	add("coupled", "LSTM", "forward", false, true, onnx.IntAttr("input_forget", 1))
	strs := func(v ...string) onnx.Attr {
		return onnx.Attr{Name: "activations", Kind: onnx.AttrStrings, Strs: v}
	}
	add("other activations", "LSTM", "reverse", false, true, strs("HardSigmoid", "Elu", "Softsign"),
		onnx.FloatsAttr("activation_alpha", .3, .7), onnx.FloatsAttr("activation_beta", .4))
	add("affine", "RNN", "forward", false, true, strs("Affine"),
		onnx.FloatsAttr("activation_alpha", .9), onnx.FloatsAttr("activation_beta", .1))
	add("scaled", "GRU", "forward", false, true, strs("LeakyRelu", "ScaledTanh"),
		onnx.FloatsAttr("activation_alpha", .2, .7), onnx.FloatsAttr("activation_beta", .4))
	return cases
}

// Case is a graph with values for its inputs.
type Case struct {
	Graph *onnx.Graph
	Feeds map[string]*onnx.Tensor
	Opset int64 // 0: that of [onnx.NewModel]
}

// Model returns the graph as a model of its operator set.
func (c Case) Model() *onnx.Model {
	m := onnx.NewModel(c.Graph)
	if c.Opset > 0 {
		m.Opsets[""] = c.Opset
	}
	return m
}

// Attrs reads attributes such as "pads=1,1,0,0 mode=linear alpha=.5": each is of the kind that the
// operator of the standard set has it in.
func Attrs(operator string, opset int, text string) []onnx.Attr {
	schema := op.Lookup("", operator, opset)
	var out []onnx.Attr
	for _, w := range strings.Fields(text) {
		name, value, _ := strings.Cut(w, "=")
		a := onnx.Attr{Name: name, Kind: schema.Attr(name).Kind}
		for _, v := range strings.Split(value, ",") {
			whole, _ := strconv.ParseInt(v, 10, 64)
			real, _ := strconv.ParseFloat(v, 32)
			switch a.Kind {
			case onnx.AttrInt:
				a.Int = whole
			case onnx.AttrInts:
				a.Ints = append(a.Ints, whole)
			case onnx.AttrFloat:
				a.Float = float32(real)
			case onnx.AttrFloats:
				a.Floats = append(a.Floats, float32(real))
			case onnx.AttrString:
				a.Str = value
			default:
				a.Strs = append(a.Strs, v)
			}
		}
		out = append(out, a)
	}
	return out
}
