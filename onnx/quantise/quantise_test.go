package quantise

import (
	"fmt"
	"maps"
	"math"
	"math/rand/v2"
	"reflect"
	"slices"
	"strings"
	"testing"

	"fmp/onnx"
	"fmp/onnx/build"
	"fmp/onnx/engine"
	"fmp/onnx/engine/ort/orttest"
	"fmp/onnx/engine/pure"
	_ "fmp/onnx/integers"
	"fmp/onnx/internal/modeltest"
	"fmp/onnx/must"
)

var drawn = modeltest.Normal

// network is a small residual network with normalisations, pooling, and a classifier.
func network(t testing.TB) *onnx.Model {
	t.Helper()
	r := rand.New(rand.NewPCG(1, 2))
	b := build.New("small")
	x := b.Input("x", onnx.Float32, "n", 3, 16, 16)
	conv := func(in build.Ref, name string, from, to, side, group int) build.Ref {
		w := b.Param(name, drawn(r, 1/math.Sqrt(float64(from/group*side*side)), to,
			from/group, side, side))
		return b.Op("Conv", []build.Ref{in, w, b.Param(name+"b", drawn(r, .1, to))},
			onnx.IntsAttr("pads", side/2, side/2, side/2, side/2), onnx.IntAttr("group", group))
	}
	norm := func(in build.Ref, name string, n int) build.Ref {
		v := drawn(r, .2, n)
		for i := range v.F32() {
			v.F32()[i] = 1 + v.F32()[i]*v.F32()[i]
		}
		return b.Op("BatchNormalization",
			[]build.Ref{in, b.Param(name+"g", drawn(r, 1, n)), b.Param(name+"c", drawn(r, .2, n)),
				b.Param(name+"m", drawn(r, .2, n)), b.Param(name+"v", v)})
	}
	h := b.Relu(norm(conv(x, "c1", 3, 16, 3, 1), "n1", 16))
	d := b.Op("Clip", []build.Ref{norm(conv(h, "c2", 16, 16, 3, 16), "n2", 16), b.F32(0), b.F32(6)})
	h = b.Relu(b.Add(h, norm(conv(d, "c3", 16, 16, 1, 1), "n3", 16)))
	h = b.Op("MaxPool", []build.Ref{h}, onnx.IntsAttr("kernel_shape", 2, 2),
		onnx.IntsAttr("strides", 2, 2))
	h = conv(h, "c4", 16, 32, 3, 1)
	h = b.Op("HardSigmoid", []build.Ref{h})
	h = b.Op("Flatten", []build.Ref{b.Op("GlobalAveragePool", []build.Ref{h})})
	b.Output("scores", b.Op("Gemm",
		[]build.Ref{h, b.Param("w", drawn(r, 1, 32, 10)), b.Param("wb", drawn(r, 1, 10))}))
	return must.Get(b.Model())(t)
}

func images(n int) (out []Batch) {
	r := rand.New(rand.NewPCG(3, 4))
	for range n {
		x, brightness := drawn(r, 1, 1, 3, 16, 16), drawn(r, 1, 3)
		for i := range x.F32() { // images differ by more than noise
			x.F32()[i] += brightness.F32()[i/256]
		}
		out = append(out, Batch{"x": x})
	}
	return out
}

func inGo(t testing.TB, reproducible bool) engine.Engine {
	t.Helper()
	return must.Get(pure.New(engine.Options{Threads: 1, Reproducible: reproducible}))(t)
}

// run evaluates the scores of a batch.
func run(t *testing.T, e engine.Engine, m *onnx.Model, b Batch) []float32 {
	t.Helper()
	out := modeltest.Eval(t, e, m, b)
	return out["scores"].F32()
}

func count(m *onnx.Model, op string) (n int) {
	for _, node := range m.Graph.Nodes {
		if node.Op == op {
			n++
		}
	}
	return n
}

// far is the largest difference of two lists.
func far(a, b []float32) (most float64) {
	for i := range a {
		most = max(most, math.Abs(float64(a[i])-float64(b[i])))
	}
	return most
}

// A model is quantised, loses little, and has the same outputs in float32 arithmetic, on integers,
// and on the ONNX Runtime.
func TestStatic(t *testing.T) {
	m, batches := network(t), images(24)
	theirs := orttest.New(t)
	for _, method := range Methods() {
		t.Run(string(method), func(t *testing.T) {
			q, report := must.Get2(Static(t.Context(), m, inGo(t, true), batches,
				Options{Method: method, Float: 0}))(t)
			if report.Layers != 5 || report.Folded != 3 || len(report.Float) != 0 ||
				report.Loss != report.All || !(report.Loss < .01) {
				t.Errorf("report %+v", report)
			}
			// Rectifiers are the ends of bytes: none is left. All products read bytes.
			if n := count(q, "BatchNormalization") + count(q, "Relu") + count(q, "Clip"); n != 0 {
				t.Errorf("%d normalisations and rectifiers are left", n)
			}
			bytes := 0
			for _, v := range q.Graph.Initializers {
				if v.DType == onnx.Int8 && len(v.Shape) > 1 {
					bytes++
				}
			}
			if bytes != 5 {
				t.Errorf("%d weights are in bytes, of 5", bytes)
			}
			for _, b := range batches[:3] {
				want := run(t, inGo(t, true), q, b)
				if d := far(run(t, inGo(t, false), q, b), want); d > .05 {
					t.Errorf("on integers the scores are %v off", d)
				}
				if d := far(run(t, theirs, q, b), want); d > .05 {
					t.Errorf("on the ONNX Runtime the scores are %v off", d)
				}
			}
			seven, report := must.Get2(Static(t.Context(), m, inGo(t, true), batches,
				Options{Method: method, Bits: 7}))(t)
			if !(report.Loss < .02) {
				t.Errorf("weights of 7 bits lose %v", report.Loss)
			}
			for _, v := range seven.Graph.Initializers {
				if w, ok := v.Data.([]int8); ok && len(v.Shape) > 1 &&
					(slices.Max(w) > 63 || slices.Min(w) < -63) {
					t.Errorf("weights of 7 bits are %d to %d", slices.Min(w), slices.Max(w))
				}
			}
			for _, b := range batches[:3] {
				if d := far(run(t, theirs, seven, b), run(t, inGo(t, true), seven, b)); d > .05 {
					t.Errorf("on the ONNX Runtime the scores are %v off", d)
				}
			}
		})
	}
	if count(m, "BatchNormalization") != 3 {
		t.Error("the model itself was changed")
	}
}

// Layers stay in float32 where the loss is larger than wanted, the costliest first, and no more
// than may.
func TestFloat(t *testing.T) {
	m, batches := network(t), images(16)
	_, all := must.Get2(Static(t.Context(), m, inGo(t, true), batches, Options{}))(t)
	s := &static{options: Defaults(), engine: inGo(t, true), spans: map[string]*span{}}
	s.prepare(m)
	s.calibrate(t.Context(), batches[:8])
	var want []map[string]*onnx.Tensor
	for _, b := range batches[8:] {
		want = append(want, modeltest.Eval(t, inGo(t, true), m, b))
	}
	least := Loss(math.Inf(1))
	for _, l := range s.layers {
		least = min(least, s.loss(t.Context(), s.build(map[int]bool{l: true}), batches[8:], want))
	}
	_, some := must.Get2(Static(t.Context(), m, inGo(t, true), batches,
		Options{Loss: float64(all.Loss) / 100, Float: .2}))(t)
	if len(some.Float) != 1 || math.Abs(float64(some.Loss/least)-1) > .01 || some.All != all.Loss {
		t.Errorf("with a layer in float32: %+v, without: %+v; want a loss of %v", some, all, least)
	}
	_, none, err := Static(t.Context(), m, inGo(t, true), batches,
		Options{Loss: 2 * float64(all.Loss), Float: 1})
	if err != nil || len(none.Float) != 0 {
		t.Errorf("where the loss is small: %+v, %v", none, err)
	}
}

// TestConstants: neither a constant that is added to a column of an output, nor trivial outputs beside
// it, hide its loss or change which layers stay in float32.
func TestConstants(t *testing.T) {
	of := func(constant float32, trivial int) *Report {
		m := onnx.Clone(network(t))
		g, b := m.Graph, onnx.ZerosF32(10)
		b.F32()[3] = constant
		scores := g.Outputs[0]
		g.Initializers["constant"] = b
		g.Nodes = append(g.Nodes, modeltest.Node("Add", "scores constant", "masked"))
		g.Outputs[0].Name = "masked"
		for i := range trivial {
			name := fmt.Sprint("trivial", i)
			g.Nodes = append(g.Nodes, modeltest.Node("Identity", "x", name))
			g.Outputs = append(g.Outputs, onnx.ValueInfo{Name: name, DType: onnx.Float32, Shape: g.Inputs[0].Shape})
		}
		g.Values = append(g.Values, scores)
		_, report := must.Get2(Static(t.Context(), m, inGo(t, true), images(16), Options{Loss: 1e-5, Float: .2}))(t)
		return report
	}
	want := of(0, 0)
	for _, c := range []struct {
		constant float32
		trivial  int
	}{{-1e3, 0}, {0, 19}} {
		if got := of(c.constant, c.trivial); math.Abs(float64(got.All/want.All)-1) > .05 ||
			!slices.Equal(got.Float, want.Float) || len(got.Float) == 0 {
			t.Errorf("%v added, %d trivial outputs: %+v; want %+v", c.constant, c.trivial, got, want)
		}
	}
}

// Normalisations are folded without a change beyond rounding.
func TestFold(t *testing.T) {
	m := network(t)
	trains := onnx.Clone(m)
	for _, n := range trains.Graph.Nodes {
		if n.Op == "BatchNormalization" {
			n.Attrs = append(n.Attrs, onnx.IntAttr("training_mode", 1))
		}
	}
	before := count(trains, "BatchNormalization")
	foldNormalisation(trains)
	if n := count(trains, "BatchNormalization"); n != before {
		t.Errorf("%d of %d normalisations by the batch are left", n, before)
	}
	folded := onnx.Clone(m)
	foldNormalisation(folded)
	if n := count(folded, "BatchNormalization"); n != 0 {
		t.Fatalf("%d normalisations are left", n)
	}
	b := images(1)[0]
	if d := far(run(t, inGo(t, true), m, b), run(t, inGo(t, true), folded, b)); d > 1e-5 {
		t.Errorf("scores are %v off", d)
	}
}

// Weights alone: the file's numbers are few, and the outputs near.
func TestWeights(t *testing.T) {
	m, b := network(t), images(1)[0]
	want := run(t, inGo(t, true), m, b)
	theirs := orttest.New(t)
	for _, c := range []struct {
		bits int
		near float64
	}{{8, .05}, {4, 1}} {
		q, n, err := Weights(m, c.bits, 1)
		if err != nil || n != 5 {
			t.Fatalf("%d bits: %d tensors, %v", c.bits, n, err)
		}
		got := run(t, inGo(t, true), q, b)
		if d := far(got, want); d > c.near || d == 0 {
			t.Errorf("%d bits: scores are %v off, of at most %v", c.bits, d, c.near)
		}
		if d := far(run(t, theirs, q, b), got); d > 1e-5 {
			t.Errorf("%d bits: the engines are %v apart", c.bits, d)
		}
		four := slices.ContainsFunc(slices.Collect(maps.Values(q.Graph.Initializers)),
			func(v *onnx.Tensor) bool { return v.DType == onnx.Int4 })
		if four != (c.bits == 4) {
			t.Errorf("%d bits: weights of 4 bits: %v", c.bits, four)
		}
	}
}

// TestOptionalInputs: optional inputs stay such, with the effect that they had: a scale of the scores,
// a matrix, a bias and the lower bound of a Clip.
func TestOptionalInputs(t *testing.T) {
	r := rand.New(rand.NewPCG(3, 4))
	b := build.New("open")
	x := b.Input("x", onnx.Float32, "n", 8)
	h := b.Op("Gemm", []build.Ref{x, b.Param("w", drawn(r, 1, 8, 16)), b.Optional("bias", onnx.ZerosF32(16))})
	h = b.Op("Clip", []build.Ref{h, b.Optional("low", onnx.Scalar[float32](0))})
	h = b.Add(h, b.MatMul(h, b.Optional("matrix", onnx.ZerosF32(16, 16))))
	y := b.Op("Gemm", []build.Ref{h, b.Param("v", drawn(r, 1, 16, 4)), b.Param("c", drawn(r, 1, 4))})
	b.Output("scores", b.Mul(y, b.Mul(b.F32(1), b.Optional("scale", onnx.Vector[float32](1)))))
	m := must.Get(b.Model())(t)
	feeds := Batch{"x": drawn(r, 1, 5, 8), "bias": drawn(r, .1, 16), "low": onnx.Scalar[float32](.5),
		"matrix": drawn(r, .03, 16, 16), "scale": onnx.Vector[float32](3)}
	eval := func(m *onnx.Model) []float32 {
		m = onnx.Clone(m)
		for _, v := range m.Graph.Optional {
			must.Do(t, m.Graph.SetDefault(v.Name, feeds[v.Name]))
		}
		return run(t, inGo(t, true), m, Batch{"x": feeds["x"]})
	}
	want := eval(m)
	for name, quantised := range map[string]func() (*onnx.Model, error){
		"bytes": func() (*onnx.Model, error) {
			q, _, err := Static(t.Context(), m, inGo(t, true), []Batch{{"x": drawn(r, 1.5, 64, 8)}}, Options{})
			return q, err
		},
		"weights of 8 bits": func() (*onnx.Model, error) { q, _, err := Weights(m, 8, 1); return q, err },
		"weights of 4 bits": func() (*onnx.Model, error) { q, _, err := Weights(m, 4, 1); return q, err },
	} {
		q := must.Get(quantised())(t)
		if !reflect.DeepEqual(q.Graph.Optional, m.Graph.Optional) || len(q.Graph.Inputs) != 1 {
			t.Errorf("%s: inputs are %v, optional %v", name, q.Graph.Inputs, q.Graph.Optional)
			continue
		}
		if d := far(eval(q), want); d > 1.5 || d == 0 {
			t.Errorf("%s: %v off", name, d)
		}
		t.Logf("%s: %v off of %v", name, far(eval(q), want), slices.Max(want))
	}
}

// TestLayersOfInputs: a product of an optional input alone stays as it is, and is no layer.
func TestLayersOfInputs(t *testing.T) {
	r := rand.New(rand.NewPCG(3, 4))
	for _, fed := range []int{0, 1, 2} {
		b := build.New("prompted")
		x := b.Input("x", onnx.Float32, "n", 8)
		h := b.Add(x, b.MatMul(b.Op("Relu", []build.Ref{b.Optional("prompt", drawn(r, 1, 1, 8))}),
			b.Param("w", drawn(r, 1, 8, 8))))
		for i := range fed {
			h = b.MatMul(b.Op("Relu", []build.Ref{h}), b.Param(fmt.Sprint("w", i), drawn(r, 1, 8, 8)))
		}
		b.Output("scores", h)
		_, report, err := Static(t.Context(), must.Get(b.Model())(t), inGo(t, true),
			[]Batch{{"x": drawn(r, 1.5, 64, 8)}}, Options{})
		if fed == 0 {
			must.Fail(err)(t, "no convolution or product", "")
		} else if must.Do(t, err); report.Layers != fed {
			t.Errorf("%d layers are fed, and the report says %d", fed, report.Layers)
		}
	}
}

// TestWithin: a branch reads the rectified numbers of a layer in bytes, as the name of the value says.
func TestWithin(t *testing.T) {
	r := rand.New(rand.NewPCG(3, 4))
	node := modeltest.Node
	branch := func(name, op string) onnx.Attr {
		return modeltest.Body(name, modeltest.Graph("", name+":float32", nil, node(op, "d", name)))
	}
	m := onnx.NewModel(modeltest.Graph("x:float32[n,8]", "scores:float32[n,4] e:float32[n,4]", map[string]*onnx.Tensor{
		"w": drawn(r, 1, 8, 4), "v": drawn(r, .1, 4, 4), "zero": onnx.Scalar[float32](0)},
		node("MatMul", "x w", "a"), node("Relu", "a", "d"), node("MatMul", "d v", "e"),
		node("ReduceMax", "x", "most", onnx.IntAttr("keepdims", 0)), node("Greater", "most zero", "on"),
		node("If", "on", "scores", branch("then_branch", "Identity"), branch("else_branch", "Neg"))))
	batch := Batch{"x": drawn(r, 1, 64, 8)}
	q, report := must.Get2(Static(t.Context(), m, inGo(t, true), []Batch{batch}, Options{}))(t)
	if d := far(run(t, inGo(t, true), q, batch), run(t, inGo(t, true), m, batch)); report.Layers != 2 || d > .3 {
		t.Errorf("scores are %v off, and the report is %+v", d, report)
	}
}

// TestFactors: a Gemm's factors are in its weights and bias, so that both engines have the scores of
// the model.
func TestFactors(t *testing.T) {
	for _, c := range []struct {
		alpha, beta float32
		transB      int
		bias        []int // nil for none
	}{{1, 1, 0, []int{6}}, {.5, 1, 0, []int{6}}, {.5, 1, 1, []int{6}}, {-2, 1, 0, []int{6}}, {1, 2, 0, []int{6}},
		{.5, .25, 1, []int{6}}, {.5, 1, 0, []int{1, 6}}, {.5, 2, 0, []int{1}}, {3, 1, 0, nil}} {
		r := rand.New(rand.NewPCG(3, 4))
		b := build.New("factors")
		w := []int{32, 6}
		if c.transB == 1 {
			slices.Reverse(w)
		}
		in := []build.Ref{b.Input("x", onnx.Float32, "n", 32), b.Param("w", drawn(r, .3, w...))}
		if c.bias != nil {
			in = append(in, b.Param("b", drawn(r, 8, c.bias...)))
		}
		b.Output("scores", b.Op("Tanh", []build.Ref{b.Mul(b.F32(.05), b.Op("Gemm", in, onnx.FloatAttr("alpha", c.alpha),
			onnx.FloatAttr("beta", c.beta), onnx.IntAttr("transB", c.transB)))}))
		m := must.Get(b.Model())(t)
		batch := Batch{"x": drawn(r, 1, 64, 32)}
		q, report := must.Get2(Static(t.Context(), m, inGo(t, true), []Batch{batch}, Defaults()))(t)
		want := run(t, inGo(t, true), m, batch)
		for _, e := range []engine.Engine{inGo(t, false), orttest.New(t)} {
			if d := far(run(t, e, q, batch), want); report.Layers != 1 || len(report.Float) != 0 || d > .02 {
				t.Errorf("%+v: on %s the scores are %v off; the report is %+v", c, e.Name(), d, report)
			}
		}
	}
}

// TestRectifiers: a Clip from 0 whose upper bound is no constant stays, since bytes end at one number for
// all images.
func TestRectifiers(t *testing.T) {
	for _, c := range []struct {
		bound string // of the Clip, an input of the graph or an initializer
		left  int
	}{{"", 0}, {"six", 0}, {"most", 1}} {
		r := rand.New(rand.NewPCG(3, 4))
		m := onnx.NewModel(modeltest.Graph("x:float32[n,8] most:float32[]", "scores:float32[n,4]", map[string]*onnx.Tensor{
			"w": drawn(r, 1, 8, 8), "v": drawn(r, 1, 8, 4), "zero": onnx.Scalar[float32](0), "six": onnx.Scalar[float32](6)},
			modeltest.Node("MatMul", "x w", "a"), modeltest.Node("Clip", strings.TrimSpace("a zero "+c.bound), "d"),
			modeltest.Node("MatMul", "d v", "scores")))
		batch := Batch{"x": drawn(r, 1, 64, 8), "most": onnx.Scalar[float32](3)}
		q, _ := must.Get2(Static(t.Context(), m, inGo(t, true), []Batch{batch}, Options{}))(t)
		if n := count(q, "Clip"); n != c.left {
			t.Errorf("bound %q: %d Clips are left; want %d", c.bound, n, c.left)
		}
	}
}

// TestStacks: a product with a stack of matrices is quantised, and runs on both engines.
func TestStacks(t *testing.T) {
	for _, shape := range [][]int{{2, 45, 7}, {1, 45, 7}, {8, 2, 45, 7}} {
		r := rand.New(rand.NewPCG(3, 4))
		b := build.New("stack")
		b.Output("scores", b.Op("HardSwish", []build.Ref{b.MatMul(b.Input("x", onnx.Float32, "n", 3, 45),
			b.Param("w", drawn(r, .1, shape...)))}))
		var batches []Batch
		for range 4 {
			batches = append(batches, Batch{"x": drawn(r, 1, 2, 3, 45)})
		}
		batch := batches[0]
		q, report := must.Get2(Static(t.Context(), must.Get(b.Model())(t), inGo(t, true), batches, Defaults()))(t)
		if report.Layers != 1 || len(report.Float) != 0 || !(report.Loss < .01) {
			t.Errorf("%v: %+v", shape, report)
		}
		want := run(t, inGo(t, true), q, batch)
		for _, e := range []engine.Engine{inGo(t, false), orttest.New(t)} {
			if d := far(run(t, e, q, batch), want); d > .05 {
				t.Errorf("%v: on %s the scores are %v off", shape, e.Name(), d)
			}
		}
	}
}

// TestShared: weights that several products read are stored once, and those that others read as well
// stay in float32 alone.
func TestShared(t *testing.T) {
	r := rand.New(rand.NewPCG(5, 6))
	b := build.New("shared")
	w, u := b.Param("w", drawn(r, .1, 64, 64)), b.Param("u", drawn(r, .1, 64, 64))
	y := b.Input("x", onnx.Float32, "n", 64)
	batch := Batch{"x": drawn(r, 1, 8, 64), "k": onnx.Vector[int64](3)}
	for i := range 4 {
		bias := b.Param(fmt.Sprint("bias", i), onnx.ZerosF32(64))
		y = b.Op("Tanh", []build.Ref{b.Op("Gemm", []build.Ref{y, w, bias})})
	}
	b.Output("scores", b.Add(b.MatMul(y, u), b.Op("Gather", []build.Ref{u, b.Input("k", onnx.Int64, 1)})))
	m := must.Get(b.Model())(t)
	weights := func(bits int) func() (*onnx.Model, error) {
		return func() (*onnx.Model, error) {
			q, n, err := Weights(m, bits, 1)
			if n != 1 {
				t.Errorf("%d bits: %d tensors; want 1", bits, n)
			}
			return q, err
		}
	}
	for name, q := range map[string]func() (*onnx.Model, error){
		"bytes": func() (*onnx.Model, error) {
			q, _, err := Static(t.Context(), m, inGo(t, true), []Batch{batch}, Options{})
			return q, err
		},
		"weights of 8 bits": weights(8),
		"weights of 4 bits": weights(4),
	} {
		q := must.Get(q())(t)
		size := 0
		for _, v := range q.Graph.Initializers {
			size += v.Len() * v.DType.Size()
		}
		// Of w, a byte and less; of u, four, and in the form of bytes one more.
		if most := 6*64*64 + 4096; size > most {
			t.Errorf("%s: %d bytes of constants; want %d at most", name, size, most)
		}
		want := run(t, inGo(t, true), q, batch)
		if d := far(run(t, orttest.New(t), q, batch), want); d > .02 {
			t.Errorf("%s: the engines are %v apart", name, d)
		}
	}
}

// TestSharedScales: readers of the same scales share a constant, and those of others have their own.
func TestSharedScales(t *testing.T) {
	c := newConstants(&onnx.Graph{Initializers: map[string]*onnx.Tensor{}})
	for _, k := range []struct {
		last  float32
		named string
	}{{3, "w/integers"}, {3, "w/integers"}, {4, "w/integers/2"}} {
		n, _ := c.dequantise("w", onnx.Vector[int8](1, 2), onnx.Vector(1, k.last), nil, onnx.IntAttr("axis", 0))
		if scales := c.g.Initializers[n.Inputs[1]].F32(); n.Inputs[0] != k.named || scales[1] != k.last {
			t.Errorf("a scale of %v: %v of %v; want %s", k.last, n.Inputs, scales, k.named)
		}
	}
}

// TestBlocks: each block has its own scale, along any axis, the last block shorter.
func TestBlocks(t *testing.T) {
	w := onnx.ZerosF32(3, 2*Block+5, 2)
	for i := range w.F32() {
		block := i / 2 % (2*Block + 5) / Block
		w.F32()[i] = float32(math.Pow(10, float64(block))) * float32(i%2*2-1)
	}
	q, scales := blocks(w, 1)
	if !slices.Equal(scales.Shape, []int{3, 3, 2}) {
		t.Fatalf("scales are %v", scales.Shape)
	}
	for i, v := range q.Data.([]int8) {
		at := i/2/(2*Block+5)*6 + i/2%(2*Block+5)/Block*2 + i%2
		if got := float32(v) * scales.F32()[at]; math.Abs(float64(got-w.F32()[i])) > 1e-5*math.Abs(
			float64(w.F32()[i])) {
			t.Fatalf("element %d is %v, want %v", i, got, w.F32()[i])
		}
	}
}

// A range holds what its method says.
func TestBounds(t *testing.T) {
	x := make([]float32, 10_000)
	for i := range x {
		x[i] = float32(i) / 10_000
	}
	x[0], x[1] = 100, -50
	var s span
	must.Do(t, s.widen(x))
	s.add(x)
	for _, c := range []struct {
		o      Options
		lo, hi float64
	}{{Options{Method: MinMax}, -50, 100}, {Options{Method: Percentile, Percentile: 99.9}, 0, 1},
		{Options{Method: Percentile, Percentile: 100}, -50, 100}} {
		if lo, hi := s.bounds(c.o); math.Abs(lo-c.lo) > .15 || math.Abs(hi-c.hi) > .15 {
			t.Errorf("%+v: %v to %v, want %v to %v", c.o, lo, hi, c.lo, c.hi)
		}
	}
	if lo, hi := s.bounds(Options{Method: MSE}); !(hi < 100 && lo > -50) {
		t.Errorf("least squares take %v to %v", lo, hi)
	}
	must.Fail(s.widen([]float32{float32(math.NaN())}))(t, "", "a range holds what is no number")
	for _, c := range []struct {
		lo, hi float64
		zero   uint8
	}{{0, 1, 0}, {-1, 0, 255}, {-1, 1, 127}, {0, 0, 0}} {
		if scale, zero := quanta(c.lo, c.hi); zero != c.zero || !(scale > 0) {
			t.Errorf("%v to %v: scale %v, zero %d, want %d", c.lo, c.hi, scale, zero, c.zero)
		}
	}
}

// A channel of tiny weights keeps its bias.
func TestBias(t *testing.T) {
	b := build.New("tiny")
	w := onnx.NewTensor([]float32{1e-12, 1, -1e-12, 2}, 2, 2)
	b.Output("scores", b.Relu(b.Op("Gemm", []build.Ref{b.Input("x", onnx.Float32, "n", 2), b.Param("w", w),
		b.Param("b", onnx.Vector[float32](5, 1))})))
	m := must.Get(b.Model())(t)
	batch := Batch{"x": onnx.NewTensor([]float32{1, -.5, .9, -.4}, 2, 2)}
	q, _ := must.Get2(Static(t.Context(), m, inGo(t, true), []Batch{batch}, Options{Loss: 10}))(t)
	if got, want := run(t, inGo(t, true), q, batch),
		run(t, inGo(t, true), m, batch); far(got, want) > .02 {
		t.Errorf("scores %v, want %v", got, want)
	}
}

func TestErrors(t *testing.T) {
	m, batches := network(t), images(4)
	e := inGo(t, true)
	q, _ := must.Get2(Static(t.Context(), m, e, batches, Options{}))(t)
	b := build.New("plain")
	b.Output("scores", b.Relu(b.Input("x", onnx.Float32, "n")))
	plain := must.Get(b.Model())(t)
	infinite := images(1)
	infinite[0]["x"].F32()[5] = float32(math.Inf(1))
	b = build.New("infinite output")
	b.Output("scores", b.Log(b.Relu(b.MatMul(b.Input("x", onnx.Float32, "n", 4), b.Param("w", onnx.ZerosF32(4, 4))))))
	logs := must.Get(b.Model())(t)
	r := rand.New(rand.NewPCG(1, 2))
	b = build.New("those above")
	h := b.MatMul(b.Input("x", onnx.Float32, "n", 8), b.Param("w", drawn(r, 1, 8, 8)))
	h = b.Reshape(b.MatMul(b.Relu(h), b.Param("v", drawn(r, 1, 8, 8))), -1)
	b.Output("scores", b.Op("Compress", []build.Ref{h, b.Op("Greater", []build.Ref{h, b.F32(0)})}))
	above := must.Get(b.Model())(t)
	b = build.New("zeros")
	product := drawn(r, 1, 4, 4)
	b.Output("scores", b.MatMul(b.Input("x", onnx.Float32, "n", 4), b.Param("w", product)))
	zeros := must.Get(b.Model())(t)
	static := func(m *onnx.Model, batches []Batch, o Options) error {
		_, _, err := Static(t.Context(), m, e, batches, o)
		return err
	}
	weights := func(m *onnx.Model, bits, least int) error {
		_, _, err := Weights(m, bits, least)
		return err
	}
	for _, c := range []struct {
		name string
		err  error
		want string
	}{
		{"no graph", weights(&onnx.Model{}, 8, 1), "no graph"},
		{"twice", static(q, batches, Options{}), "quantised already"},
		{"no layer", static(plain, batches, Options{}), "no convolution or product"},
		{"no images", static(m, nil, Options{}), "no images"},
		{"method", static(m, batches, Options{Method: "best"}), `method "best"`},
		{"percentile", static(m, batches, Options{Percentile: 50}), "percentile 50"},
		{"one image", static(m, images(1), Options{}), "differ between images: the loss cannot be told; give more"},
		{"share", static(m, batches, Options{Float: 2}), "share in float32 2"},
		{"no number", static(m, infinite, Options{}), ": a number is NaN"},
		{"infinite", static(logs, []Batch{{"x": onnx.ZerosF32(1, 4)}}, Options{}), `output "scores": a number is infinite`},
		{"as many numbers as are above 0", static(above, []Batch{{"x": drawn(r, 1, 256, 8)}}, Options{}),
			`output "scores": its shape depends on the images`},
		{"no layer in bytes", static(zeros, []Batch{{"x": onnx.ZerosF32(1, 4)}}, Options{}),
			`value "x": it is infinite, 0 throughout or an output`},
		{"bits", weights(m, 3, 1), "3 bits"},
		{"small", weights(m, 8, 1<<20), "of 1048576 elements or more"},
	} {
		must.Fail(c.err)(t, c.want, c.name)
	}
}

// TestMasks: scores to which a mask adds a number that takes some out stay in float32, whatever
// number that is, as bytes would hold the mask alone.
func TestMasks(t *testing.T) {
	r := rand.New(rand.NewPCG(11, 1))
	const steps, wide = 16, 12
	for _, c := range []struct {
		out   float32
		bytes bool // of the scores with their mask
	}{{0, true}, {-4, true}, {-1e4, false}, {-math.MaxFloat32, false}, {float32(math.Inf(-1)), false}} {
		b := build.New("attention")
		x := b.Input("x", onnx.Float32, "n", steps, wide)
		layer := func(name string) build.Ref { return b.MatMul(x, b.Param(name, drawn(r, .4, wide, wide))) }
		scores := b.Add(b.MatMul(layer("q"), b.Transpose(layer("k"), 0, 2, 1)), b.Input("mask", onnx.Float32, "n", 1, steps))
		b.Output("y", b.MatMul(b.MatMul(b.Softmax(scores, -1), layer("v")), b.Param("w", drawn(r, .3, wide, 3))))
		m := must.Get(b.Model())(t)
		mask := drawn(r, .5, 8, 1, steps)
		for i := range mask.F32() {
			if i%3 == 1 {
				mask.F32()[i] = c.out
			}
		}
		q, report, err := Static(t.Context(), m, inGo(t, false), []Batch{{"x": drawn(r, 1, 8, steps, wide), "mask": mask}},
			Options{})
		must.Do(t, err)
		stored := slices.ContainsFunc(q.Graph.Nodes, func(n *onnx.Node) bool {
			return n.Op == "QuantizeLinear" && n.Inputs[0] == string(scores)
		})
		if report.All > .01 || stored != c.bytes {
			t.Errorf("%v: the loss is %.4f, the scores in bytes: %v", c.out, report.All, stored)
		}
	}
}

// TestLeft: layers whose input is infinite, 0 throughout or an output of the model stay in float32,
// and the report names them. An infinite output is refused where models are compared by it.
func TestLeft(t *testing.T) {
	log := func(b *build.Builder, h build.Ref) build.Ref { return b.Log(b.Relu(h)) }
	none := func(*build.Builder, build.Ref, build.Ref) {}
	for _, c := range []struct {
		name        string
		of          func(b *build.Builder, h build.Ref) build.Ref // the input of the last layer
		first, last func(b *build.Builder, h, v build.Ref)        // other outputs
		left        int
		refused     string
	}{
		{"numbers", (*build.Builder).Relu, none, none, 0, ""},
		{"infinite", log, none, none, 1, ""},
		{"0 throughout", func(b *build.Builder, h build.Ref) build.Ref {
			return b.Relu(b.Op("Neg", []build.Ref{b.Relu(h)}))
		}, none, none, 1, ""},
		{"output", (*build.Builder).Relu, none, func(b *build.Builder, _, v build.Ref) { b.Output("v", v) }, 1, ""},
		{"last output infinite", (*build.Builder).Relu, none,
			func(b *build.Builder, h, _ build.Ref) { b.Output("log", log(b, h)) }, 0, ""},
		{"first output infinite", (*build.Builder).Relu,
			func(b *build.Builder, h, _ build.Ref) { b.Output("log", log(b, h)) }, none, 0,
			`output "log": a number is infinite; export the model without this output, or store`},
	} {
		r := rand.New(rand.NewPCG(7, 8))
		above := drawn(r, .1, 8, 8) // 0, for no product of an infinity to be NaN
		for i, v := range above.F32() {
			above.F32()[i] = float32(math.Abs(float64(v)))
		}
		b := build.New("left")
		h := b.MatMul(b.Input("x", onnx.Float32, "n", 8), b.Param("u", drawn(r, 1, 8, 8)))
		v := c.of(b, h)
		c.first(b, h, v)
		b.Output("scores", b.Add(b.MatMul(h, b.Param("w", drawn(r, 1, 8, 8))), b.Exp(b.MatMul(v, b.Param("above", above)))))
		c.last(b, h, v)
		q, report, err := Static(t.Context(), must.Get(b.Model())(t), inGo(t, false),
			[]Batch{{"x": drawn(r, 1, 64, 8)}}, Options{})
		if c.refused != "" {
			must.Fail(err)(t, c.refused, c.name)
			continue
		}
		must.Do(t, err)
		var float []string
		for _, n := range q.Graph.Nodes {
			if n.Op == "MatMul" && q.Graph.Initializers[n.Inputs[1]] != nil {
				float = append(float, n.Label())
			}
		}
		if report.Layers != 3 || len(float) != c.left || !slices.Equal(report.Float, float) || !(report.Loss < .01) {
			t.Errorf("%s: the report is %+v; in float32 are %v, want %d", c.name, report, float, c.left)
		}
	}
}
