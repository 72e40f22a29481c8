package pure

import (
	"cmp"
	"crypto/sha256"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"fmp/onnx"
	"fmp/onnx/build"
	"fmp/onnx/engine"
	"fmp/onnx/internal/modeltest"
	"fmp/onnx/must"
)

func init() { EnableIntegers() }

// quantizer builds graphs whose values are quantised and dequantised between all operators.
type quantizer struct {
	*build.Builder
	r *rand.Rand
	n int
	d onnx.DType

	scale, zeroPoint build.Ref // the last ones
}

func (q *quantizer) zero() build.Ref {
	q.n++
	name, v := fmt.Sprint("zero", q.n), q.r.IntN(40)
	if q.d == onnx.Int8 {
		return q.Param(name, onnx.Scalar(int8(v-20)))
	}
	return q.Param(name, onnx.Scalar(uint8(v+100)))
}

// bytes quantises and dequantises x.
func (q *quantizer) bytes(x build.Ref, scale float32) build.Ref {
	q.scale, q.zeroPoint = q.Param(fmt.Sprint("scale", q.n), onnx.Scalar(scale)), q.zero()
	return q.again(x)
}

// again is bytes with the scale and zero point of the last ones.
func (q *quantizer) again(x build.Ref) build.Ref {
	return q.Op("DequantizeLinear",
		[]build.Ref{q.Op("QuantizeLinear", []build.Ref{x, q.scale, q.zeroPoint}), q.scale, q.zeroPoint})
}

// weights are of signed bytes, with a scale for each of their outputs, the axis.
func (q *quantizer) weights(axis int, shape ...int) build.Ref {
	q.n++
	w, scale := make([]int8, product(shape)), onnx.ZerosF32(shape[axis])
	for i := range w {
		w[i] = int8(q.r.Uint32())
	}
	for i := range scale.F32() {
		scale.F32()[i] = .002 + .002*q.r.Float32()
	}
	return q.Op("DequantizeLinear",
		[]build.Ref{q.Param(fmt.Sprint("w", q.n), onnx.NewTensor(w, shape...)),
			q.Param(fmt.Sprint("ws", q.n), scale),
			q.Param(fmt.Sprint("wz", q.n), onnx.NewTensor(make([]int8, shape[axis]), shape[axis]))},
		onnx.IntAttr("axis", axis))
}

func product(shape []int) int {
	n := 1
	for _, d := range shape {
		n *= d
	}
	return n
}

func (q *quantizer) conv(x build.Ref, in, out, size, stride, group int) build.Ref {
	q.n++
	bias, p := modeltest.Normal(q.r, 1, out), size/2
	return q.Op("Conv", []build.Ref{x, q.weights(0, out, in/group, size, size),
		q.Param(fmt.Sprint("b", q.n), bias)}, onnx.IntsAttr("strides", stride, stride),
		onnx.IntsAttr("pads", p, p, p, p), onnx.IntAttr("group", group))
}

// QuantizedNetwork has each of the operators that are run on bytes.
func QuantizedNetwork(t *testing.T, d onnx.DType) *onnx.Model {
	q := &quantizer{Builder: build.New("quantized"), r: rand.New(rand.NewPCG(3, 1)), d: d}
	x := q.bytes(q.Input("image", onnx.Float32, "n", 3, 21, 21), .03)
	x = q.bytes(q.Op("Relu", []build.Ref{q.conv(x, 3, 12, 3, 2, 1)}), .02)
	x = q.bytes(q.Op("Clip", []build.Ref{q.conv(x, 12, 12, 5, 1, 12), q.Param("low", onnx.Scalar(float32(-1))),
		q.Param("high", onnx.Scalar(float32(2)))}), .02)
	x = q.bytes(q.Op("Mul", []build.Ref{x, q.bytes(q.Op("Sigmoid", []build.Ref{x}), .004)}), .015)
	y := q.bytes(q.conv(x, 12, 12, 1, 1, 1), .02)
	x = q.bytes(q.Op("Add", []build.Ref{x, y}), .03)
	scale := q.bytes(q.Op("GlobalAveragePool", []build.Ref{x}), .01)
	x = q.bytes(q.Op("Mul", []build.Ref{q.bytes(q.Op("HardSigmoid", []build.Ref{scale}), .004), x}),
		.02)
	x = q.again(q.Op("MaxPool", []build.Ref{x}, onnx.IntsAttr("kernel_shape", 2, 2),
		onnx.IntsAttr("strides", 2, 2)))
	x = q.again(q.Op("Flatten", []build.Ref{x}))
	x = q.bytes(q.Op("Gemm",
		[]build.Ref{x, q.weights(0, 9, 12*5*5),
			q.Param("gb", onnx.Vector[float32](1, 2, 3, 4, 5, 6, 7, 8, 9))},
		onnx.IntAttr("transB", 1)), .05)
	x = q.bytes(q.Op("MatMul", []build.Ref{x, q.weights(1, 9, 7)}), .05)
	q.Output("y", x)
	return must.Get(q.Model())(t)
}

// QuantizedFeeds are three images for [QuantizedNetwork].
func QuantizedFeeds() map[string]*onnx.Tensor {
	image, r := onnx.ZerosF32(3, 3, 21, 21), rand.New(rand.NewPCG(4, 1))
	for i := range image.F32() {
		image.F32()[i] = float32(r.IntN(400)-200) / 64
	}
	return map[string]*onnx.Tensor{"image": image}
}

// QuantaApart returns how many outputs of [QuantizedNetwork] are a quantum from others, and faults
// those that are more.
func QuantaApart(t *testing.T, got, want *onnx.Tensor) (n int) {
	t.Helper()
	for i, v := range got.F32() {
		quanta := math.Abs(float64(v-want.F32()[i])) / .05
		if quanta > 1.01 {
			t.Errorf("output %d is %v where %v is expected", i, v, want.F32()[i])
		}
		if quanta > .5 {
			n++
		}
	}
	t.Logf("%d of %d outputs are a quantum apart", n, got.Len())
	return n
}

// refused fails unless an error has the words want, and is no failure of a kernel.
func refused(t *testing.T, err error, want string, about ...any) {
	t.Helper()
	if must.Fail(err)(t, want, about...); err != nil && strings.Contains(err.Error(), "kernel failed") {
		t.Errorf("%v: %v", about, err)
	}
}

// TestQuantized: a network of quantised operators runs on bytes to the same values on every
// machine, which are those of the float32 operators but for a quantum here and there.
func TestQuantized(t *testing.T) {
	for _, c := range []struct {
		d   onnx.DType
		sum string
	}{{onnx.Uint8, "7b94952d94b382d2"}, {onnx.Int8, "6c9fe0b4fa228e55"}} {
		m := QuantizedNetwork(t, c.d)
		e := must.Get(New(engine.Options{Threads: 2}))(t)
		got := modeltest.Eval(t, e, m, QuantizedFeeds())["y"]
		separate := onnx.Clone(m)
		for _, n := range m.Graph.Nodes { // a value that is an output is made as float32
			if n.Op != "QuantizeLinear" && n.Op != "DequantizeLinear" {
				separate.Graph.Outputs = append(separate.Graph.Outputs, onnx.ValueInfo{Name: n.Outputs[0]})
			}
		}
		if n := QuantaApart(t, got, modeltest.Eval(t, e, separate, QuantizedFeeds())["y"]); n > 3 {
			t.Errorf("%v: %d outputs are a quantum apart", c.d, n)
		}
		if sum := fmt.Sprintf("%x", sha256.Sum256(fmt.Append(nil, got.F32())))[:16]; sum != c.sum {
			t.Errorf("%v: outputs have the sum %s where %s is expected", c.d, sum, c.sum)
		}
		s := must.Get(e.Load(m))(t)
		var ops []string
		for _, st := range s.(*session).plan.steps {
			ops = append(ops, st.node.Op)
		}
		expected := []string{"QuantizeLinear", "Conv", "Conv", "Mul", "Conv", "Add", "DequantizeLinear",
			"GlobalAveragePool", "QuantizeLinear", "HardSigmoid", "Mul", "MaxPool", "Flatten", "Gemm",
			"MatMul", "DequantizeLinear", "Identity"}
		slices.Sort(ops)
		slices.Sort(expected)
		if !slices.Equal(ops, expected) {
			t.Errorf("%v: the steps are %v where %v are expected", c.d, ops, expected)
		}
		must.Do(t, s.Close())
	}
}

// TestQuantizedEdges: quantised products of unusual sizes have the values of the float32 operators
// but for a quantum, and those that do not fit are refused, by an error that is none of the kernel.
func TestQuantizedEdges(t *testing.T) {
	conv := func(group int, w ...int) func(q *quantizer, x build.Ref) build.Ref {
		return func(q *quantizer, x build.Ref) build.Ref {
			return q.Op("Conv", []build.Ref{x, q.weights(0, w...)}, onnx.IntAttr("group", group))
		}
	}
	for _, c := range []struct {
		name    string
		x       []int
		make    func(q *quantizer, x build.Ref) build.Ref
		failed  string
		instead map[string][]int // the shapes of constants, which the builder would refuse
	}{
		{"groups without filters", []int{1, 4, 5, 5}, conv(4, 4, 1, 3, 3), "do not match",
			map[string][]int{"w2": {2, 1, 3, 3}, "ws2": {2}, "wz2": {2}}},
		{"groups of parts of filters", []int{1, 4, 5, 5}, conv(4, 8, 1, 3, 3), "do not match",
			map[string][]int{"w2": {6, 1, 3, 3}, "ws2": {6}, "wz2": {6}}},
		{"a window without columns", []int{1, 2, 5, 5}, conv(2, 2, 1, 3, 1), "at least 1",
			map[string][]int{"w2": {2, 1, 3, 0}}},
		{"three axes", []int{2, 4, 5, 4, 3}, conv(2, 6, 2, 2, 3, 2), "", nil},
		{"no images", []int{0, 2, 5, 5}, conv(1, 3, 2, 3, 3), "", nil},
		{"no rows", []int{0, 4}, func(q *quantizer, x build.Ref) build.Ref {
			return q.Op("MatMul", []build.Ref{x, q.weights(1, 4, 3)})
		}, "", nil},
		{"no rows of one of three axes", []int{2, 0, 4}, func(q *quantizer, x build.Ref) build.Ref {
			return q.Op("MatMul", []build.Ref{x, q.weights(1, 4, 3)})
		}, "", nil},
		{"no rows with a bias", []int{0, 4}, func(q *quantizer, x build.Ref) build.Ref {
			return q.Op("Gemm", []build.Ref{x, q.weights(1, 4, 3), q.Param("b", onnx.ZerosF32(3))})
		}, "", nil},
		{"one bias", []int{2, 4}, func(q *quantizer, x build.Ref) build.Ref {
			w := q.Op("DequantizeLinear", []build.Ref{
				q.Param("w", onnx.NewTensor([]int8{1, 2, 3, 4, 5, 6, 7, 8}, 4, 2)), q.F32(.05),
				q.Param("wz", onnx.Scalar[int8](1))})
			return q.Op("Gemm", []build.Ref{x, w, q.Param("b", onnx.Vector[float32](.5))})
		}, "", nil},
		{"a bias below the quanta of sums", []int{2, 4}, func(q *quantizer, x build.Ref) build.Ref {
			return q.Op("Gemm", []build.Ref{q.bytes(x, 1000), q.weights(1, 4, 3),
				q.Param("b", onnx.Vector[float32](.4, -.7, .9))})
		}, "", nil},
		{"scales of rows", []int{2, 4}, func(q *quantizer, x build.Ref) build.Ref {
			return q.Op("MatMul", []build.Ref{x, q.weights(0, 4, 4)})
		}, "", nil},
		{"a computed zero point", []int{2, 4}, func(q *quantizer, x build.Ref) build.Ref {
			w := q.Op("DequantizeLinear", []build.Ref{
				q.Param("w", onnx.NewTensor([]int8{1, 2, 3, 4, 5, 6, 7, 8}, 4, 2)), q.F32(.05),
				q.Op("Identity", []build.Ref{q.Param("wz", onnx.Scalar[int8](9))})})
			return q.Op("MatMul", []build.Ref{x, w})
		}, "", nil},
		{"a bias without scales", []int{1, 2, 5, 5}, func(q *quantizer, x build.Ref) build.Ref {
			b := q.Op("DequantizeLinear", []build.Ref{q.Param("b", onnx.Vector[int32](1, 2)),
				q.Param("bs", onnx.ZerosF32(1))})
			return q.Op("Conv", []build.Ref{x, q.weights(0, 2, 2, 3, 3), b})
		}, "axis 1 is outside", map[string][]int{"bs": {0}}},
		{"zero points of other columns", []int{2, 4}, func(q *quantizer, _ build.Ref) build.Ref {
			a := q.Op("Cast", []build.Ref{"x"}, onnx.IntAttr("to", int(onnx.Uint8)))
			y := q.Op("MatMulInteger", []build.Ref{a, q.Param("w", onnx.NewTensor(make([]int8, 20), 4, 5)),
				q.Param("az", onnx.Scalar[uint8](3)), q.Param("wz", onnx.NewTensor(make([]int8, 5), 5))})
			return q.Op("Cast", []build.Ref{y}, onnx.IntAttr("to", int(onnx.Float32)))
		}, "[3] for axis 1", map[string][]int{"wz": {3}}},
	} {
		q := &quantizer{Builder: build.New("edges"), r: rand.New(rand.NewPCG(6, 1)), d: onnx.Uint8}
		dims := make([]any, len(c.x))
		for i := range dims {
			dims[i] = c.x[i]
		}
		x, r := onnx.ZerosF32(c.x...), rand.New(rand.NewPCG(7, 1))
		for i := range x.F32() {
			x.F32()[i] = r.Float32()
		}
		of := c.make(q, q.bytes(q.Input("x", onnx.Float32, dims...), .01))
		q.Output("y", q.bytes(of, .05))
		m := must.Get(q.Model())(t)
		for name, shape := range c.instead {
			w := must.Get(onnx.Zeros(m.Graph.Initializers[name].DType, shape...))(t)
			if m.Graph.Initializers[name] = w; w.DType == onnx.Float32 {
				w.Data = slices.Repeat([]float32{.01}, w.Len())
			}
		}
		e := must.Get(New(engine.Options{Threads: 1}))(t)
		s, err := e.Load(m)
		if err != nil {
			t.Errorf("%s: it does not load: %v", c.name, err)
			continue
		}
		got, err := engine.Eval(s, map[string]*onnx.Tensor{"x": x})
		if c.failed != "" {
			refused(t, err, c.failed, c.name)
			continue
		}
		if err != nil {
			t.Errorf("%s: %v", c.name, err)
			continue
		}
		m.Graph.Outputs = append(m.Graph.Outputs, onnx.ValueInfo{Name: string(of)}) // so it is made as float32
		want := modeltest.Eval(t, e, m, map[string]*onnx.Tensor{"x": x})["y"]
		if !slices.Equal(got["y"].Shape, want.Shape) {
			t.Errorf("%s: a result of %v where %v is expected", c.name, got["y"], want)
			continue
		}
		for i, v := range got["y"].F32() {
			if d := math.Abs(float64(v - want.F32()[i])); d > .051 {
				t.Errorf("%s: element %d is %v where %v is expected", c.name, i, v, want.F32()[i])
			}
		}
		must.Do(t, s.Close())
	}
}

// TestQuantizedPadding: a padding of bytes is none of float32, and the convolution after it does it
// where it can, to the values of the float32 operators.
func TestQuantizedPadding(t *testing.T) {
	t.Parallel()
	around := []int{0, 0, 1, 2, 0, 0, 3, 0}
	for _, c := range []struct {
		name  string
		pads  []int
		value float32
		mode  string
		next  string // the operator after the padding; "" is a Conv
		twice bool   // the padding is an output as well
		steps []string
	}{
		{name: "in a convolution", pads: around, steps: []string{"Conv"}},
		{name: "of other numbers", pads: around, value: 1, steps: []string{"Conv", "Pad"}},
		{name: "of the edge", pads: around, mode: "edge", steps: []string{"Conv", "Pad"}},
		{name: "of channels", pads: []int{0, 2, 0, 0, 0, 1, 0, 0}, steps: []string{"Conv", "Pad"}},
		{name: "cut", pads: []int{0, 0, -1, 0, 0, 0, 1, -1}, steps: []string{"Conv", "Pad"}},
		{name: "read twice", pads: around, twice: true, steps: []string{"Conv", "Pad"}},
		{name: "maximum", pads: around, next: "MaxPool", steps: []string{"MaxPool", "Pad"}},
	} {
		for _, d := range []onnx.DType{onnx.Uint8, onnx.Int8} {
			q := &quantizer{Builder: build.New("padded"), r: rand.New(rand.NewPCG(9, 1)), d: d}
			x := q.bytes(q.Input("x", onnx.Float32, 2, 3, 7, 6), .02)
			x = q.again(q.Op("Pad", []build.Ref{x, q.Axes(c.pads...), q.F32(c.value)},
				onnx.StrAttr("mode", cmp.Or(c.mode, "constant"))))
			padded := x
			if c.next == "MaxPool" {
				x = q.again(q.Op("MaxPool", []build.Ref{x}, onnx.IntsAttr("kernel_shape", 2, 2)))
			} else {
				x = q.bytes(q.conv(x, 3+c.pads[1]+c.pads[5], 4, 3, 1, 1), .05)
			}
			q.Output("y", x)
			if c.twice {
				q.Output("padded", padded)
			}
			m := must.Get(q.Model())(t)
			e := must.Get(New(engine.Options{Threads: 1}))(t)
			var ops []string
			for _, st := range working(t, m, false) {
				if !strings.HasSuffix(st.node.Op, "uantizeLinear") {
					ops = append(ops, st.node.Op)
				}
				if in := st.types[0]; st.node.Op == "Pad" && (in == d) != (c.value == 0) {
					t.Errorf("%s: a padding of %v", c.name, in)
				}
			}
			if slices.Sort(ops); !slices.Equal(ops, c.steps) {
				t.Errorf("%s: the steps are %v where %v are expected", c.name, ops, c.steps)
			}
			feeds := map[string]*onnx.Tensor{"x": modeltest.Normal(rand.New(rand.NewPCG(2, 1)), 1, 2, 3, 7, 6)}
			got := modeltest.Eval(t, e, m, feeds)["y"]
			for _, n := range m.Graph.Nodes { // a value that is an output is made as float32
				if n.Op == "Pad" || n.Op == "Conv" || n.Op == "MaxPool" {
					m.Graph.Outputs = append(m.Graph.Outputs, onnx.ValueInfo{Name: n.Outputs[0]})
				}
			}
			want := modeltest.Eval(t, e, m, feeds)["y"]
			for i, v := range got.F32() {
				if math.Abs(float64(v-want.F32()[i])) > .051 || c.next != "" && v != want.F32()[i] {
					t.Errorf("%s: element %d is %v where %v is expected", c.name, i, v, want.F32()[i])
				}
			}
		}
	}
}

// smallQuantized is a Conv with a bias, a Flatten and a Gemm, quantised.
func smallQuantized(t *testing.T) *onnx.Model {
	q := &quantizer{Builder: build.New("refused"), r: rand.New(rand.NewPCG(8, 1)), d: onnx.Uint8}
	x, axis := q.bytes(q.Input("x", onnx.Float32, 1, 2, 1, 4), .01), onnx.IntAttr("axis", 0)
	w := q.Op("DequantizeLinear", []build.Ref{q.Param("w", onnx.NewTensor([]int8{1, 2, 3, 4}, 2, 2, 1, 1)),
		q.Param("ws", onnx.Vector[float32](.1, .2)), q.Param("wz", onnx.Vector[int8](0, 0))}, axis)
	b := q.Op("DequantizeLinear", []build.Ref{q.Param("b", onnx.Vector[int32](10, 20)),
		q.Param("bs", onnx.Vector[float32](.1, .1)), q.Param("bz", onnx.Vector[int32](0, 0))}, axis)
	x = q.bytes(q.Op("Conv", []build.Ref{x, w, b}), .05)
	x = q.again(q.Op("Flatten", []build.Ref{x}))
	q.Output("y", q.bytes(q.Op("Gemm", []build.Ref{x, q.weights(0, 3, 8)}, onnx.IntAttr("transB", 1)), .05))
	return must.Get(q.Model())(t)
}

// TestQuantizedRefused: a file that is refused on float32 is refused on integers.
func TestQuantizedRefused(t *testing.T) {
	const product, weights, bias, mover = 0, 1, 2, 3 // the DequantizeLinear that is changed
	for _, c := range []struct {
		name   string
		of     int
		change func(g *onnx.Graph, n *onnx.Node)
		failed string
	}{
		{"axis of a bias", bias, func(_ *onnx.Graph, n *onnx.Node) { n.Attrs[0].Int = 3 }, "axis 3 is outside"},
		{"scales of a bias", bias, func(g *onnx.Graph, _ *onnx.Node) {
			g.Initializers["bs"] = onnx.NewTensor([]float32{.1, .1}, 2, 1)
		}, "a scale of shape [2 1]"},
		{"type of a bias", bias, func(g *onnx.Graph, n *onnx.Node) {
			g.Initializers["b"], n.Inputs = onnx.Vector[float32](1, 2), n.Inputs[:2]
		}, "is of float32"},
		{"type of a bias that is no quanta", bias, func(g *onnx.Graph, _ *onnx.Node) {
			for _, n := range g.Nodes {
				if n.Op == "Conv" {
					n.Inputs[2] = "b"
				}
			}
		}, "is of int32"},
		{"type of zero points", weights, func(g *onnx.Graph, _ *onnx.Node) {
			g.Initializers["wz"] = onnx.Vector[uint8](0, 0)
		}, "is of uint8"},
		{"floats of a product", product, func(_ *onnx.Graph, n *onnx.Node) { n.Inputs[0] = "x" }, "is of float32"},
		{"floats of a mover", mover, func(g *onnx.Graph, n *onnx.Node) {
			n.Inputs[0] = "x"
			flat := slices.Index(g.Nodes, n) + 1 // whose bytes are the output
			g.Nodes = g.Nodes[:flat+2]
			g.Outputs = []onnx.ValueInfo{{Name: g.Nodes[flat+1].Outputs[0]}}
		}, "is of float32"},
		{"kind of an attribute", product, func(_ *onnx.Graph, n *onnx.Node) {
			n.Attrs = []onnx.Attr{onnx.FloatAttr("axis", 1)}
		}, `"axis"`},
		{"values that nothing reads", bias, func(g *onnx.Graph, n *onnx.Node) {
			g.Nodes = append(g.Nodes, &onnx.Node{Op: n.Op, Inputs: n.Inputs, Outputs: []string{"unread"},
				Attrs: []onnx.Attr{onnx.IntAttr("axis", 3)}})
		}, "axis 3 is outside"},
		{"floats of bytes that nothing reads", mover, func(g *onnx.Graph, n *onnx.Node) {
			by := n.Inputs[1:]
			g.Nodes = append(g.Nodes,
				&onnx.Node{Op: n.Op, Inputs: append([]string{"x"}, by...), Outputs: []string{"u1"}},
				&onnx.Node{Op: "Sigmoid", Inputs: []string{"u1"}, Outputs: []string{"u2"}},
				&onnx.Node{Op: "QuantizeLinear", Inputs: append([]string{"u2"}, by...), Outputs: []string{"u3"}})
		}, "is of float32"},
		{"Gemm of a vector", mover, func(g *onnx.Graph, n *onnx.Node) {
			g.Initializers["flat"] = onnx.Vector[int64](8)
			for _, n := range g.Nodes {
				if n.Op == "Flatten" {
					n.Op, n.Inputs = "Reshape", append(n.Inputs, "flat")
				}
			}
		}, "[8] and "},
	} {
		m := smallQuantized(t)
		var of []*onnx.Node
		for _, n := range m.Graph.Nodes {
			if n.Op == "DequantizeLinear" {
				of = append(of, n)
			}
		}
		c.change(m.Graph, of[c.of])
		for _, reproducible := range []bool{false, true} {
			e := must.Get(New(engine.Options{Threads: 1, Reproducible: reproducible}))(t)
			s, err := e.Load(m)
			if err == nil {
				_, err = engine.Eval(s, map[string]*onnx.Tensor{"x": onnx.ZerosF32(1, 2, 1, 4)})
				must.Do(t, s.Close())
			}
			refused(t, err, c.failed, c.name, "reproducible", reproducible)
		}
	}
	modeltest.Eval(t, must.Get(New(engine.Options{Threads: 1}))(t), smallQuantized(t),
		map[string]*onnx.Tensor{"x": onnx.ZerosF32(1, 2, 1, 4)}) // as it is, it is refused on neither
}
