// Package build makes models from Go.
package build

import (
	"fmt"
	"strings"

	"fmp/onnx"
	"fmp/onnx/check"
	"fmp/onnx/shape"
)

// Ref names a value of the graph under construction.
type Ref string

// Builder makes a Graph node by node. The first mistake is kept and returned by [Builder.Model], so
// that calls can be chained without checking each.
//
//	b := build.New("linear")
//	x := b.Input("x", onnx.Float32, "batch", 64)
//	w := b.Param("w", weights)
//	b.Output("y", b.MatMul(x, w))
//	model, err := b.Model()
type Builder struct {
	root   *builderState
	prefix string
}

type builderState struct {
	graph *onnx.Graph
	taken map[string]bool
	next  map[string]int
	err   error
}

// New starts an empty graph.
func New(name string) *Builder {
	return &Builder{root: &builderState{
		graph: &onnx.Graph{Name: name, Initializers: map[string]*onnx.Tensor{}},
		taken: map[string]bool{}, next: map[string]int{},
	}}
}

// Scope returns a builder of the same graph that puts prefix and "/" before the names it makes.
func (b *Builder) Scope(prefix string) *Builder {
	return &Builder{root: b.root, prefix: b.prefix + prefix + "/"}
}

// Fail records an error unless one is recorded already.
func (b *Builder) Fail(format string, args ...any) {
	if b.root.err == nil {
		b.root.err = fmt.Errorf("building graph %q: %w", b.root.graph.Name,
			fmt.Errorf(format, args...))
	}
}

func (b *Builder) claim(name string) string {
	if b.root.taken[name] {
		b.Fail("the name %q is given twice", name)
	}
	b.root.taken[name] = true
	return name
}

func (b *Builder) fresh(op string) string {
	base := b.prefix + strings.ToLower(op)
	for {
		n := b.root.next[base]
		b.root.next[base]++
		name := base
		if n > 0 {
			name = fmt.Sprintf("%s_%d", base, n)
		}
		if !b.root.taken[name] {
			return b.claim(name)
		}
	}
}

// Input declares a graph input; dims are ints (known sizes) and strings (symbols). Inputs take no
// scope's prefix.
func (b *Builder) Input(name string, d onnx.DType, dims ...any) Ref {
	b.root.graph.Inputs = append(b.root.graph.Inputs,
		onnx.ValueInfo{Name: b.claim(name), DType: d, Shape: onnx.Shape(dims...)})
	return Ref(name)
}

// Optional declares a graph input that may be left out: t is its value then. It takes no scope's
// prefix.
func (b *Builder) Optional(name string, t *onnx.Tensor) Ref {
	if err := onnx.CheckTensor(t); err != nil {
		b.Fail("optional input %q: %w", name, err)
	}
	b.root.graph.AddOptional(b.claim(name), t)
	return Ref(name)
}

// Param adds a named initializer (with the scope's prefix): a weight.
func (b *Builder) Param(name string, t *onnx.Tensor) Ref {
	name = b.claim(b.prefix + name)
	if err := onnx.CheckTensor(t); err != nil {
		b.Fail("parameter %q: %w", name, err)
	}
	b.root.graph.Initializers[name] = t
	return Ref(name)
}

// Const adds an initializer whose name does not matter.
func (b *Builder) Const(t *onnx.Tensor) Ref {
	name := b.fresh("const")
	if err := onnx.CheckTensor(t); err != nil {
		b.Fail("constant: %w", err)
	}
	b.root.graph.Initializers[name] = t
	return Ref(name)
}

// F32 returns a float32 scalar constant.
func (b *Builder) F32(v float32) Ref { return b.Const(onnx.Scalar(v)) }

// Axes returns an int64 vector constant: axes, shapes, starts and ends.
func (b *Builder) Axes(v ...int) Ref {
	d := make([]int64, len(v))
	for i, x := range v {
		d[i] = int64(x)
	}
	return b.Const(onnx.Vector(d...))
}

// Op adds a node of the standard operator set with one output. An empty Ref is an optional input
// left out.
//
//go:noinline
func (b *Builder) Op(op string, in []Ref, attrs ...onnx.Attr) Ref {
	return b.OpN(op, in, 1, attrs...)[0]
}

// OpN adds a node with n outputs.
func (b *Builder) OpN(op string, in []Ref, n int, attrs ...onnx.Attr) []Ref {
	if n < 1 {
		b.Fail("%s has %d outputs; allowed are 1 and up", op, n)
		return nil
	}
	node := &onnx.Node{Op: op, Attrs: attrs}
	for _, r := range in {
		if r != "" && !b.root.taken[string(r)] {
			b.Fail("%s reads %q, which nothing has produced", op, r)
		}
		node.Inputs = append(node.Inputs, string(r))
	}
	out := make([]Ref, n)
	for i := range out {
		name := b.fresh(op)
		node.Outputs = append(node.Outputs, name)
		out[i] = Ref(name)
	}
	node.Name = node.Outputs[0]
	b.root.graph.Nodes = append(b.root.graph.Nodes, node)
	return out
}

// Output makes r a graph output called name. Its type and shape are inferred by [Builder.Model].
func (b *Builder) Output(name string, r Ref) {
	if string(r) != name {
		node := &onnx.Node{Name: b.claim(name), Op: "Identity", Inputs: []string{string(r)},
			Outputs: []string{name}}
		b.root.graph.Nodes = append(b.root.graph.Nodes, node)
	}
	b.root.graph.Outputs = append(b.root.graph.Outputs, onnx.ValueInfo{Name: name})
}

// Model infers shapes, checks the graph and returns it as a model of [onnx.DefaultOpset].
func (b *Builder) Model() (*onnx.Model, error) {
	if b.root.err != nil {
		return nil, b.root.err
	}
	m := onnx.NewModel(b.root.graph)
	if err := shape.Infer(m); err != nil {
		return nil, fmt.Errorf("building graph %q: %w", m.Graph.Name, err)
	}
	if err := check.Model(m); err != nil {
		return nil, fmt.Errorf("building graph %q: %w", m.Graph.Name, err)
	}
	return m, nil
}

// The operators that nearly every graph uses, by their ONNX names.

// Add adds elementwise; shapes are broadcast.
//
//go:noinline
func (b *Builder) Add(x, y Ref) Ref { return b.Op("Add", []Ref{x, y}) }

// Sub subtracts elementwise; shapes are broadcast.
//
//go:noinline
func (b *Builder) Sub(x, y Ref) Ref { return b.Op("Sub", []Ref{x, y}) }

// Mul multiplies elementwise; shapes are broadcast.
//
//go:noinline
func (b *Builder) Mul(x, y Ref) Ref { return b.Op("Mul", []Ref{x, y}) }

// Div divides elementwise; shapes are broadcast.
//
//go:noinline
func (b *Builder) Div(x, y Ref) Ref { return b.Op("Div", []Ref{x, y}) }

// MatMul multiplies matrices, the last two axes, over the axes before them, which are broadcast.
//
//go:noinline
func (b *Builder) MatMul(x, y Ref) Ref { return b.Op("MatMul", []Ref{x, y}) }

// Relu is max(x, 0) elementwise.
func (b *Builder) Relu(x Ref) Ref { return b.Op("Relu", []Ref{x}) }

// Exp is e^x elementwise.
func (b *Builder) Exp(x Ref) Ref { return b.Op("Exp", []Ref{x}) }

// Log is the natural logarithm elementwise.
func (b *Builder) Log(x Ref) Ref { return b.Op("Log", []Ref{x}) }

// Sqrt is the square root elementwise.
func (b *Builder) Sqrt(x Ref) Ref { return b.Op("Sqrt", []Ref{x}) }

// Softmax normalises over one axis (opset 13 meaning).
func (b *Builder) Softmax(x Ref, axis int) Ref {
	return b.Op("Softmax", []Ref{x}, onnx.IntAttr("axis", axis))
}

// Transpose permutes the axes.
func (b *Builder) Transpose(x Ref, perm ...int) Ref {
	return b.Op("Transpose", []Ref{x}, onnx.IntsAttr("perm", perm...))
}

// Concat joins values along an axis.
func (b *Builder) Concat(axis int, xs ...Ref) Ref {
	return b.Op("Concat", xs, onnx.IntAttr("axis", axis))
}

// Slice keeps start <= index < end on one axis; an end over the size means the size.
func (b *Builder) Slice(x Ref, axis, start, end int) Ref {
	return b.Op("Slice", []Ref{x, b.Axes(start), b.Axes(end), b.Axes(axis)})
}

// Reshape reshapes x to the constant shape dims; -1 is worked out, 0 keeps the input's size.
func (b *Builder) Reshape(x Ref, dims ...int) Ref {
	return b.Op("Reshape", []Ref{x, b.Axes(dims...)})
}

// Unsqueeze inserts axes of size 1.
func (b *Builder) Unsqueeze(x Ref, axes ...int) Ref {
	return b.Op("Unsqueeze", []Ref{x, b.Axes(axes...)})
}

// Squeeze removes axes of size 1.
func (b *Builder) Squeeze(x Ref, axes ...int) Ref {
	return b.Op("Squeeze", []Ref{x, b.Axes(axes...)})
}

// ReduceSum sums over axes; keep leaves them with size 1.
func (b *Builder) ReduceSum(x Ref, keep bool, axes ...int) Ref {
	return b.Op("ReduceSum", []Ref{x, b.Axes(axes...)}, onnx.BoolAttr("keepdims", keep))
}

// ReduceMean averages over axes, all where none are named (opset 17: axes are an attribute).
func (b *Builder) ReduceMean(x Ref, keep bool, axes ...int) Ref {
	return b.Op("ReduceMean", []Ref{x}, onnx.IntsAttr("axes", axes...),
		onnx.BoolAttr("keepdims", keep))
}

// ReduceMax takes the largest over axes; keep leaves them with size 1 (opset 17: axes are an
// attribute).
func (b *Builder) ReduceMax(x Ref, keep bool, axes ...int) Ref {
	return b.Op("ReduceMax", []Ref{x}, onnx.IntsAttr("axes", axes...),
		onnx.BoolAttr("keepdims", keep))
}

// Cast converts elements.
func (b *Builder) Cast(x Ref, to onnx.DType) Ref {
	return b.Op("Cast", []Ref{x}, onnx.IntAttr("to", int(to)))
}
