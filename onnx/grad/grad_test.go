package grad

import (
	"math"
	"math/rand/v2"
	"testing"

	"fmp/onnx"
	"fmp/onnx/build"
	"fmp/onnx/engine"
	"fmp/onnx/engine/ort/orttest"
	"fmp/onnx/internal/modeltest"
	"fmp/onnx/must"
	"fmp/onnx/serde"
)

// attention is one head over two sets with a residual and a layer norm, ending in a scalar.
func attention(t *testing.T) *onnx.Model {
	t.Helper()
	r := rand.New(rand.NewPCG(5, 6))
	b := build.New("attention")
	x := b.Input("x", onnx.Float32, "batch", "n", 4)
	z := b.Input("z", onnx.Float32, "batch", "m", 4)
	q := b.MatMul(x, b.Param("wq", modeltest.Normal(r, 0.5, 4, 6)))
	k := b.MatMul(z, b.Param("wk", modeltest.Normal(r, 0.5, 4, 6)))
	v := b.MatMul(z, b.Param("wv", modeltest.Normal(r, 0.5, 4, 4)))
	a := b.Softmax(b.Mul(b.MatMul(q, b.Transpose(k, 0, 2, 1)), b.F32(0.4)), 2)
	h := b.Add(x, b.MatMul(a, v)) // x is used twice
	n := b.Op("LayerNormalization",
		[]build.Ref{h, b.Param("gamma", modeltest.Normal(r, 1, 4)), b.Param("beta", modeltest.Normal(r, 1, 4))})
	b.Output("y", b.ReduceMean(b.Mul(n, n), false, 0, 1, 2))
	return must.Get(b.Model())(t)
}

func attentionFeeds(batch, n, m int) map[string]*onnx.Tensor {
	r := rand.New(rand.NewPCG(8, 9))
	return map[string]*onnx.Tensor{"x": modeltest.Normal(r, 1, batch, n, 4),
		"z": modeltest.Normal(r, 1, batch, m, 4)}
}

func TestGraphAgainstCentralDifferences(t *testing.T) {
	eng := orttest.New(t)
	m := attention(t)
	wrt := []string{"x", "z", "wq", "wk", "wv", "gamma", "beta"}
	checkGradient(t, eng, m, attentionFeeds(2, 3, 5), wrt)
	// A set of one, where a runtime that guesses axes from sizes would go wrong.
	checkGradient(t, eng, m, attentionFeeds(1, 1, 1), wrt)
}

func TestIntermediateValueAndUnusedValue(t *testing.T) {
	eng := orttest.New(t)
	b := build.New("g")
	x := b.Input("x", onnx.Float32, "n")
	u := b.Input("unused", onnx.Float32, "m", 2)
	b.Output("other", u)
	h := b.Mul(x, x)
	b.Output("y", b.Mul(h, b.F32(3)))
	m := must.Get(b.Model())(t)
	gm := must.Get(Build(m, Options{Outputs: []string{"y"}, WRT: []string{string(h), "unused"}}))(t)
	got := must.Get(engine.Eval(load(t, eng, gm), map[string]*onnx.Tensor{
		"x": onnx.Vector[float32](1, 2), "unused": onnx.ZerosF32(3, 2),
		"grad_y": onnx.Vector[float32](1, 10),
	}))(t)
	if v := got["grad_"+string(h)].F32(); v[0] != 3 || v[1] != 30 {
		t.Errorf("cotangent of the intermediate value is %v, want [3 30]", v)
	}
	if v := got["grad_unused"]; v.Len() != 6 || v.F32()[5] != 0 {
		t.Errorf("cotangent of an unused input is %v %v, want six zeros", v, v.Data)
	}
}

func TestOptions(t *testing.T) {
	eng := orttest.New(t)
	m := attention(t)
	before := must.Get(serde.Marshal(m))(t)
	full := must.Get(Build(m, Options{WRT: []string{"wq", "x"}, KeepOutputs: true, ParamsAsInputs: true,
		UnitCotangent: true}))(t)
	if after, _ := serde.Marshal(m); string(after) != string(before) {
		t.Error("Build changed the model it was given")
	}
	if _, ok := full.Graph.Input("wq"); !ok {
		t.Error("wq did not become an input")
	}
	if _, ok := full.Graph.Initializers["wq"]; ok {
		t.Error("wq is still an initializer")
	}
	if _, ok := full.Graph.Input("grad_y"); ok {
		t.Error("the unit cotangent is an input")
	}
	feeds := attentionFeeds(2, 3, 4)
	plain := must.Get(Build(m, Options{WRT: []string{"wq", "x"}}))(t)
	seeded := attentionFeeds(2, 3, 4)
	seeded["grad_y"] = onnx.Scalar[float32](1)
	want := must.Get(engine.Eval(load(t, eng, plain), seeded))(t)
	feeds["wq"] = m.Graph.Initializers["wq"]
	got := must.Get(engine.Eval(load(t, eng, full), feeds))(t)
	y := must.Get(engine.Eval(load(t, eng, m), attentionFeeds(2, 3, 4)))(t)
	if got["y"].F32()[0] != y["y"].F32()[0] {
		t.Errorf("kept output is %v, the model gives %v", got["y"].F32(), y["y"].F32())
	}
	for _, n := range []string{"grad_wq", "grad_x"} {
		for i, v := range got[n].F32() {
			if math.Abs(float64(v-want[n].F32()[i])) > 1e-6 {
				t.Fatalf("%s differs between a fed and a stored parameter: %v and %v", n, v, want[n].F32()[i])
			}
		}
	}
}

func TestClashWithNameOfModel(t *testing.T) {
	b := build.New("g")
	x := b.Input("x", onnx.Float32, 2)
	g := b.Input("grad_x", onnx.Float32, 2)
	b.Output("y", b.Mul(x, g))
	m := must.Get(b.Model())(t)
	must.Fail(Build(m, Options{WRT: []string{"x"}}))(t, "prefix")
	must.Get(Build(m, Options{WRT: []string{"x"}, Prefix: "d/"}))(t)
}
