package pure

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"fmp/onnx"
	"fmp/onnx/alloctest"
	"fmp/onnx/build"
	"fmp/onnx/engine"
	"fmp/onnx/internal/kernel"
	"fmp/onnx/internal/modeltest"
	"fmp/onnx/must"
)

// TestAfterConvolution: what follows a convolution is done with it, to the same bits as by itself,
// in tiles to the last one; a value that others read is left alone.
func TestAfterConvolution(t *testing.T) {
	// a convolution ends with a curve in vectors alone
	vectors := kernel.CanSwish(&kernel.Spec{Node: &onnx.Node{Op: "Conv"}})
	random := func(name string, shape ...int) *onnx.Tensor {
		return modeltest.Normal(rand.New(rand.NewPCG(1, uint64(len(name)))), 1, shape...)
	}
	for _, c := range []struct {
		name     string
		channels int // of the input; twice as many come out
		side     int
		group    int
		after    []string
		steps    int
	}{
		{"normalised", 4, 9, 1, []string{"BatchNormalization"}, 1},
		{"normalised, cut off", 4, 9, 1, []string{"BatchNormalization", "Relu"}, 1},
		{"cut off", 4, 9, 1, []string{"Relu"}, 1},
		{"clipped", 4, 9, 2, []string{"BatchNormalization", "Clip"}, 1},
		{"depthwise", 4, 9, 4, []string{"BatchNormalization", "Clip"}, 1},
		{"in another order", 4, 9, 1, []string{"Relu", "BatchNormalization"}, 2},
		{"in tiles, normalised", 32, 9, 1, []string{"BatchNormalization"}, 1},
		{"in tiles, cut off", 32, 16, 1, []string{"Relu"}, 1},
		{"in tiles, clipped", 64, 32, 2, []string{"BatchNormalization", "Clip"}, 1},
		{"hard", 4, 9, 1, []string{"BatchNormalization", "HardSwish"}, 1},
		{"logistic", 4, 9, 2, []string{"Sigmoid"}, 1},
		{"times its sigmoid", 4, 9, 1, []string{"BatchNormalization", "Swish"}, 1},
		{"depthwise, times its sigmoid", 4, 9, 4, []string{"Swish"}, 1},
		{"depthwise, hard", 4, 70, 4, []string{"HardSwish"}, 1},
		{"in tiles, times its sigmoid", 32, 9, 1, []string{"BatchNormalization", "Swish"}, 1},
		{"in tiles, hard", 64, 32, 2, []string{"HardSwish"}, 1},
		{"cut off after a curve", 4, 9, 1, []string{"Swish", "Relu"}, 2},
		{"twice", 4, 9, 1, []string{"BatchNormalization", "BatchNormalization", "Relu"}, 3},
	} {
		curves := 0
		for _, op := range c.after {
			if op == "Swish" { // two nodes
				curves++
			}
		}
		curved := func(op string) bool { return op == "Sigmoid" || strings.HasSuffix(op, "Swish") }
		// the curve and what comes after it run by themselves
		if first := slices.IndexFunc(c.after, curved); first >= 0 && !vectors {
			c.steps = 1 + len(c.after) - first + curves
		}
		image := random("image", 3, c.channels, c.side, c.side)
		image.F32()[7] = float32(math.NaN())
		model := func(separate bool) *onnx.Model {
			b := build.New("after")
			x := b.Input("image", onnx.Float32, "n", c.channels, c.side, c.side)
			x = b.Op("Conv", []build.Ref{x, b.Param("w", random("w", 2*c.channels, c.channels/c.group, 3, 3)),
				b.Param("bias", random("bias", 2*c.channels))}, onnx.IntsAttr("pads", 1, 1, 1, 1),
				onnx.IntAttr("group", c.group))
			for i, op := range c.after {
				if separate {
					b.Output(fmt.Sprint("before", i), x)
				}
				in := []build.Ref{x}
				switch op {
				case "BatchNormalization":
					for _, p := range []string{"scale", "shift", "mean", "variance"} {
						v := random(p, 2*c.channels)
						if p == "variance" {
							for i := range v.F32() {
								v.F32()[i] = 1 + v.F32()[i]*v.F32()[i]
							}
						}
						in = append(in, b.Param(fmt.Sprint(p, i), v))
					}
				case "Clip":
					in = append(in, b.F32(-0.5), b.F32(0.75))
				}
				if op == "Swish" { // of an output in the same order
					x = b.Mul(b.Op("Sigmoid", in), x)
					continue
				}
				x = b.Op(op, in)
			}
			b.Output("out", x)
			return must.Get(b.Model())(t)
		}
		var outs [2][]float32
		for i, separate := range []bool{false, true} {
			m := model(separate)
			steps := working(t, m, false)
			if want := []int{c.steps, 1 + len(c.after) + curves}[i]; len(steps) != want {
				t.Errorf("%s: %d steps, want %d", c.name, len(steps), want)
			}
			e := must.Get(New(engine.Options{Threads: 2}))(t)
			outs[i] = modeltest.Eval(t, e, m, map[string]*onnx.Tensor{"image": image})["out"].F32()
		}
		for i, v := range outs[0] {
			apart := float64(outs[1][i])
			if d := math.Abs(float64(v) - apart); math.Float32bits(v) != math.Float32bits(outs[1][i]) &&
				(c.channels == 4 || !(d <= 1e-5*(1+math.Abs(apart)))) && v != 0 {
				t.Errorf("%s: element %d is %v together and %v apart", c.name, i, v, apart)
				break
			}
		}
	}
}

// TestConstantsAfterConvolution: bounds that Constant nodes give after the convolution, where
// PyTorch's exporter writes them, are as good as initializers.
func TestConstantsAfterConvolution(t *testing.T) {
	b := build.New("bounds")
	x := b.Op("Conv", []build.Ref{b.Input("image", onnx.Float32, 1, 4, 5, 5),
		b.Param("w", onnx.ZerosF32(4, 4, 1, 1))})
	for _, v := range []float32{0, 6} {
		b.Op("Constant", nil, onnx.TensorAttr("value", onnx.Scalar(v)))
	}
	b.Output("out", b.Op("Clip", []build.Ref{x, b.F32(0), b.F32(6)}))
	m := must.Get(b.Model())(t)
	nodes := m.Graph.Nodes
	clip := slices.IndexFunc(nodes, func(n *onnx.Node) bool { return n.Op == "Clip" })
	nodes[clip].Inputs[1], nodes[clip].Inputs[2] = nodes[1].Outputs[0], nodes[2].Outputs[0]
	p := must.Get(compile(m, false))(t)
	if p.steps[0].node.Op != "Conv" ||
		slices.ContainsFunc(p.steps, func(s step) bool { return s.node.Op == "Clip" }) {
		t.Errorf("the steps are %+v", p.steps)
	}
}

// Weights that many nodes share are not kept for each of them: a small file would take any amount
// of memory.
func TestSharedWeights(t *testing.T) {
	const nodes, side = 400, 512
	for _, op := range []string{"Conv", "MatMul"} {
		b := build.New("shared")
		shape, weights := []any{1, side, 1, 1}, []int{side, side, 1, 1}
		if op == "MatMul" {
			shape, weights = []any{1, side}, weights[:2]
		}
		x := b.Input("x", onnx.Float32, shape...)
		w := b.Param("w", onnx.ZerosF32(weights...))
		for range nodes {
			x = b.Op(op, []build.Ref{x, w})
		}
		b.Output("y", x)
		m := must.Get(b.Model())(t)
		e := must.Get(New(engine.Options{Threads: 1}))(t)
		size := make([]int, len(shape))
		for i, d := range shape {
			size[i] = d.(int)
		}
		alloctest.AtMost(t, nodes*side*side*4/2, func() {
			s := must.Get(e.Load(m))(t)
			must.Get(engine.Eval(s, map[string]*onnx.Tensor{"x": onnx.ZerosF32(size...)}))(t)
		})
	}
}

// TestWeightsOfNoWindow: a convolution of constant weights that are none is refused when it runs,
// also where another operator follows.
func TestWeightsOfNoWindow(t *testing.T) {
	for _, shape := range [][]int{{}, {0}, {4}, {4, 4}, {4, 4, 3}, {4, 4, 0, 3}, {4, 4, 3, 0}} {
		b := build.New("weights")
		x := b.Op("Conv", []build.Ref{b.Input("image", onnx.Float32, 1, 4, 5, 5), b.Param("w", onnx.ZerosF32(4, 4, 3, 3))})
		b.Output("out", b.Relu(x))
		m := must.Get(b.Model())(t)
		m.Graph.Initializers["w"] = onnx.ZerosF32(shape...)
		feeds := map[string]*onnx.Tensor{"image": onnx.ZerosF32(1, 4, 5, 5)}
		must.Fail(engine.Eval(load(t, m), feeds))(t, "expected", shape)
	}
}
