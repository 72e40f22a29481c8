package train

import (
	"context"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"fmp/onnx"
	"fmp/onnx/build"
	"fmp/onnx/check"
	"fmp/onnx/engine"
	"fmp/onnx/engine/ort/orttest"
	"fmp/onnx/engine/pure"
	"fmp/onnx/internal/modeltest"
	"fmp/onnx/must"
	"fmp/onnx/optim"
	"fmp/onnx/serde"
)

func pureEngine(t *testing.T) engine.Engine {
	t.Helper()
	e := must.Get(pure.New(engine.Options{}))(t)
	t.Cleanup(func() { e.Close() })
	return e
}

// engineFor returns the engine that runs a model in training form, which the pure one does not.
func engineFor(t *testing.T, training bool) engine.Engine {
	t.Helper()
	if !training {
		return pureEngine(t)
	}
	return orttest.New(t)
}

func random(name string, shape ...int) *onnx.Tensor {
	t := onnx.ZerosF32(shape...)
	uniform(t, 0.5, 7, name)
	return t
}

// small is preprocessing, a linear layer, a batch normalisation, Relu, and a head of 3 classes with
// a softmax behind it.
func small(t *testing.T, training bool) *onnx.Model {
	t.Helper()
	b := build.New("small")
	x := b.Mul(b.Input("x", onnx.Float32, "batch", 6), b.Param("scale", random("scale", 6)))
	h := b.Add(b.MatMul(x, b.Param("body.weight", random("body", 6, 12))),
		b.Param("body.bias", onnx.ZerosF32(12)))
	one := onnx.ZerosF32(12)
	for i := range one.F32() {
		one.F32()[i] = 1
	}
	in := []build.Ref{h, b.Param("norm.weight", one.Clone()), b.Param("norm.bias", onnx.ZerosF32(12)),
		b.Param("norm.mean", onnx.ZerosF32(12)), b.Param("norm.var", one)}
	if training {
		h = b.OpN("BatchNormalization", in, 3, onnx.IntAttr("training_mode", 1))[0]
	} else {
		h = b.Op("BatchNormalization", in)
	}
	y := b.Add(b.MatMul(b.Relu(h), b.Param("head", random("head", 12, 3))),
		b.Param("offset", onnx.ZerosF32(3)))
	b.Output("probabilities", b.Softmax(y, 1))
	return must.Get(b.Model())(t)
}

// clusters are rows around a point for each class.
func clusters(t *testing.T, n, classes int) Data {
	t.Helper()
	r := rand.New(rand.NewPCG(1, 2))
	x, labels := onnx.ZerosF32(n, 6), make([]int, n)
	for i := range n {
		labels[i] = i % classes
		for j := range 6 {
			x.F32()[i*6+j] = float32(r.NormFloat64()*0.4 + 2*math.Cos(float64(3*labels[i]*(j+1))))
		}
	}
	return must.Get(Rows(map[string]*onnx.Tensor{"x": x, TargetInput: Target(labels, classes, CrossEntropy)}))(t)
}

func names(ws []Weight) (out []string) {
	for _, w := range ws {
		out = append(out, w.Name)
	}
	return out
}

func tuningOf(m *onnx.Model) Tuning {
	return Tuning{Loss: Loss{Name: CrossEntropy},
		Weights: names(Weights(m.Graph, m.Graph.Outputs[0].Name)), Optimizer: optim.AdamW{},
		Update: optim.Options{ClipNorm: 1}, Rate: optim.WarmupCosine(0.02, 0, 2), Epochs: 6, Batch: 12,
		Parts: 2, Threads: 2, Seed: 3}
}

// TestScores: cross-entropy is of the scores before a softmax, and binary of those before a sigmoid,
// whatever moves its numbers behind it, but where a softmax is over groups of classes or over the
// batch; the squared error and directions are of the output itself.
func TestScores(t *testing.T) {
	t.Parallel()
	node := modeltest.Node
	float, twice := onnx.IntAttr("to", int(onnx.Float32)), onnx.IntAttr("to", int(onnx.Float64))
	weights := map[string]*onnx.Tensor{"w": random("w", 6, 3), "rows": onnx.Vector[int64](-1, 3),
		"axis": onnx.Vector[int64](1), "row": onnx.Vector[int64](-1, 1, 3)}
	opset := int64(17)
	data := clusters(t, 24, 3)
	numbered := Data{N: data.N, Batch: func(rows []int, r *rand.Rand) (map[string]*onnx.Tensor, error) {
		b, err := data.Batch(rows, r)
		b[TargetInput] = onnx.ZerosF32(len(rows), 1)
		for i, row := range rows {
			b[TargetInput].F32()[i] = float32(row % 3)
		}
		return b, err
	}}
	tried := func(loss string, nodes ...*onnx.Node) (Metrics, error) {
		m := onnx.NewModel(modeltest.Graph("x:float32[n,6]", "y:float32[n,3]", weights,
			append([]*onnx.Node{node("MatMul", "x w", "s")}, nodes...)...))
		m.Opsets[""] = opset
		tn := tuningOf(m)
		if tn.Loss.Name = loss; loss == Contrastive {
			return tn.Measure(t.Context(), pureEngine(t), m, numbered)
		}
		return tn.Measure(t.Context(), pureEngine(t), m, data)
	}
	measure := func(loss string, nodes ...*onnx.Node) float64 {
		return must.Get(tried(loss, nodes...))(t)["loss"]
	}
	for _, c := range []struct {
		name  string
		nodes []*onnx.Node // from p to y
	}{
		{"Identity", []*onnx.Node{node("Identity", "p", "y")}},
		{"Cast", []*onnx.Node{node("Cast", "p", "y", float)}},
		{"Casts", []*onnx.Node{node("Cast", "p", "a", twice), node("Cast", "a", "y", float)}},
		{"Flatten", []*onnx.Node{node("Flatten", "p", "y")}},
		{"Reshape", []*onnx.Node{node("Reshape", "p rows", "y")}},
		{"Squeeze", []*onnx.Node{node("Unsqueeze", "p axis", "a"), node("Squeeze", "a axis", "y")}},
	} {
		for _, of := range [][2]string{{CrossEntropy, "Softmax"}, {CrossEntropy, "LogSoftmax"}, {Binary, "Sigmoid"}} {
			got := measure(of[0], append([]*onnx.Node{node(of[1], "s", "p")}, c.nodes...)...)
			if want := measure(of[0], node("Identity", "s", "y")); got != want {
				t.Errorf("%s and %s: the loss is %v, of the scores %v", of[1], c.name, got, want)
			}
		}
		for _, loss := range []string{MSE, Contrastive} {
			got := measure(loss, append([]*onnx.Node{node("Softmax", "s", "p")}, c.nodes...)...)
			if scores := measure(loss, node("Identity", "s", "y")); got == scores {
				t.Errorf("%s: the loss %s is of the scores", c.name, loss)
			}
		}
		for _, of := range [][3]string{{CrossEntropy, "Sigmoid", Binary}, {Binary, "Softmax", CrossEntropy},
			{Binary, "LogSoftmax", CrossEntropy}} {
			must.Fail(tried(of[0], append([]*onnx.Node{node(of[1], "s", "p")}, c.nodes...)...))(t,
				`output "y": loss `+of[0]+" has a "+links[of[0]][0]+" of its own in it, and a "+of[1]+
					" makes the output; train with loss "+of[2], c.name)
		}
	}
	for _, c := range []struct {
		opset int64
		axis  int
		whole bool
	}{{17, 2, true}, {17, -1, true}, {17, 1, false}, {17, -2, false}, {17, 0, false},
		{12, 1, true}} {
		opset = c.opset
		got := measure(CrossEntropy, node("Reshape", "s row", "a"),
			node("Softmax", "a", "p", onnx.IntAttr("axis", c.axis)), node("Reshape", "p rows", "y"))
		if want := measure(CrossEntropy, node("Identity", "s", "y")); (got == want) != c.whole {
			t.Errorf("operator set %d, axis %d: the loss is %v, of the scores %v", c.opset, c.axis, got, want)
		}
	}
}

// TestMasks: initializers that close places are no weights, and one with a number that is not finite
// cannot be trained.
func TestMasks(t *testing.T) {
	t.Parallel()
	inf := float32(math.Inf(1))
	i64 := onnx.Vector[int64]
	for _, c := range []struct {
		nodes  string // from h and the mask m to k
		mask   []float32
		vector bool
		weight bool
	}{
		{"Add h m > k", []float32{0, -inf, 0, 0, 0, 0}, true, false},
		{"Sub h m > k", []float32{0, inf, 0, 0, 0, 0}, true, false},
		{"Add h m > k", []float32{0, -1e9, 0, 0, 0, 0}, false, false},
		{"Add h m > k", []float32{0, -100, 0, 0, -100, 0}, false, false},
		{"Add h m > k", []float32{0, -99, 0, 0, 0, 0}, false, true},
		{"Add h m > k", []float32{0, -1e4, 0, 1, 0, 0}, false, true},
		{"Add h m > k", []float32{-2e4, -1e4, -3e4, -200, -100, -500}, false, true},
		{"Add h m > k", []float32{0, 0, 0, 0, 0, 0}, false, true},
		{"Add h m > k", []float32{0, -2e4, 0, 0, 0, 0}, true, true}, // a bias
		{"Identity m > a, Add h a > k", []float32{0, -1e4, 0, 0, 0, 0}, false, false},
		{"Reshape m s > a, Add h a > k", []float32{0, -1e4, 0, 0, 0, 0}, false, false},
		{"Gather m i > a, Add h a > k", []float32{0, -1e4, 0, 0, 0, 0}, false, false},
		{"Concat m m > a, Gather a i > b, Add h b > k", []float32{0, -1e4, 0, 0, 0, 0}, false, false},
		{"Mul h m > k", []float32{0, 1, 1, 1, 1, 0}, true, false},
		{"Mul h m > k", []float32{0, 1, 1, 1, 1, 2}, true, true},
		{"Mul h m > k", []float32{1, 1, 1, 1, 1, 1}, true, true},
		{"Mul h m > k", []float32{0, -2e4, 1, 1, 1, 1}, false, true},
		{"Add h m > k", []float32{0, 1, 1, 1, 1, 0}, true, true},
	} {
		t.Run(fmt.Sprint(c.nodes, c.mask), func(t *testing.T) {
			mask := onnx.Vector(c.mask...)
			if !c.vector {
				mask = onnx.NewTensor(c.mask, 1, len(c.mask))
			}
			nodes := []*onnx.Node{modeltest.Node("MatMul", "x w", "h")}
			for n := range strings.SplitSeq(c.nodes, ", ") {
				op, rest, _ := strings.Cut(n, " ")
				in, out, _ := strings.Cut(rest, " > ")
				node := modeltest.Node(op, in, out)
				if op == "Concat" {
					node.Attrs = []onnx.Attr{onnx.IntAttr("axis", 0)}
				}
				nodes = append(nodes, node)
			}
			m := onnx.NewModel(modeltest.Graph("x:float32[n,6]", "y:float32[n,3]",
				map[string]*onnx.Tensor{"w": random("w", 6, 6), "m": mask, "v": random("v", 6, 3),
					"s": i64(1, 6), "i": i64(0)}, append(nodes, modeltest.Node("MatMul", "k v", "y"))...))
			must.Do(t, check.Model(m))
			tn := tuningOf(m)
			if got := slices.Contains(tn.Weights, "m"); got != c.weight {
				t.Errorf("a weight: %v", got)
			}
			if slices.Max(c.mask) < inf && slices.Min(c.mask) > -inf {
				return
			}
			tn.Weights = append(tn.Weights, "m")
			must.Fail(tn.Train(t.Context(), pureEngine(t), m, clusters(t, 12, 3), Data{}))(t, `"m"`, c.nodes)
		})
	}
}

// TestWeightsWithin: weights are those that graphs within nodes read, or what is before these, too;
// training moves each, also by low-rank factors.
func TestWeightsWithin(t *testing.T) {
	t.Parallel()
	node, body, graph := modeltest.Node, modeltest.Body, modeltest.Graph
	turns, yes := onnx.Scalar(int64(2)), onnx.Scalar(true)
	for name, c := range map[string]struct {
		nodes []*onnx.Node
		read  string // by the graphs within
	}{
		"If": {[]*onnx.Node{node("If", "yes", "k",
			body("then_branch", graph("", "t:float32[n,6]", nil, node("MatMul", "h inner", "m"),
				node("Add", "m shift", "t"))),
			body("else_branch", graph("", "e:float32[n,6]", nil, node("Neg", "h", "e"))))},
			"inner shift"},
		"a weight chosen": {[]*onnx.Node{node("If", "yes", "chosen",
			body("then_branch", graph("", "inner:float32[6,6]", nil)),
			body("else_branch", graph("", "e:float32[6,6]", nil, node("Neg", "inner", "e")))),
			node("MatMul", "h chosen", "k")}, "inner"},
		"Loop": {[]*onnx.Node{node("Loop", "turns yes h", "k", body("body",
			graph("i:int64[] on:bool[] s:float32[n,6]", "on2:bool[] s2:float32[n,6]", nil,
				node("Identity", "on", "on2"), node("Add", "s shift", "a"),
				node("MatMul", "a inner", "s2"))))}, "shift inner"},
	} {
		t.Run(name, func(t *testing.T) {
			inits := map[string]*onnx.Tensor{"w": random("w", 6, 6), "inner": random("inner", 6, 6),
				"shift": random("shift", 6), "v": random("v", 6, 3), "turns": turns, "yes": yes}
			if !strings.Contains(c.read, "shift") {
				delete(inits, "shift")
			}
			nodes := append(append([]*onnx.Node{node("MatMul", "x w", "h")}, c.nodes...),
				node("MatMul", "k v", "y"))
			m := onnx.NewModel(graph("x:float32[n,6]", "y:float32[n,3]", inits, nodes...))
			tn := tuningOf(m)
			if want := strings.Fields("w " + c.read + " v"); !slices.Equal(tn.Weights, want) {
				t.Fatalf("weights are %q, want %q", tn.Weights, want)
			}
			for _, rank := range []int{0, 2} {
				if tn.LoRA, tn.Epochs = rank, 1; rank > 0 {
					tn.Weights, tn.Adapted = nil, []string{"w", "inner", "v"}
				}
				res := must.Get(tn.Train(t.Context(), pureEngine(t), m, clusters(t, 24, 3), Data{}))(t)
				for _, w := range append(tn.Weights, tn.Adapted...) {
					if slices.Equal(res.Model.Graph.Initializers[w].F32(), inits[w].F32()) {
						t.Errorf("rank %d: %s has not moved", rank, w)
					}
				}
			}
		})
	}
}

// TestTune: a model with a new head of four classes learns them, keeps its softmax, and what is not
// trained stays to the bit.
func TestTune(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name     string
		training bool
		lora     int
	}{{"evaluation form", false, 0}, {"training form", true, 0}, {"low rank", false, 2}} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			eng, old := engineFor(t, c.training), small(t, c.training)
			m, head := must.Get2(NewHead(old, "probabilities", 4, false, 1))(t)
			tn := tuningOf(m)
			if tn.LoRA = c.lora; c.lora > 0 {
				tn.Adapted, tn.Weights = []string{"body.weight", "body.bias"}, head
			}
			data, held := must.Get2(clusters(t, 200, 4).HoldOut(0.2, 1))(t)
			before := must.Get(tn.Measure(t.Context(), eng, m, held))(t)
			res := must.Get(tn.Train(t.Context(), eng, m, data, held))(t)
			after := must.Get(tn.Measure(t.Context(), eng, res.Model, held))(t)
			if before["acc"] > 0.7 || after["acc"] < 0.95 || after["loss"] > before["loss"]/2 {
				t.Errorf("before %v, after %v", before, after)
			}
			for _, name := range []string{"scale", "norm.mean", "norm.var", "body.bias"} {
				moves := c.training && strings.HasPrefix(name, "norm.") || c.lora == 0 && name == "body.bias"
				if same := slices.Equal(old.Graph.Initializers[name].F32(),
					res.Model.Graph.Initializers[name].F32()); same == moves {
					t.Errorf("%s: the same is %v, moves is %v", name, same, moves)
				}
			}
			if slices.Equal(old.Graph.Initializers["body.weight"].F32(),
				res.Model.Graph.Initializers["body.weight"].F32()) {
				t.Error("the body has not moved")
			}
			if n := res.Model.Graph.Initializers; len(n) != len(m.Graph.Initializers) {
				t.Errorf("%d initializers, want the %d of before", len(n), len(m.Graph.Initializers))
			}
			// in evaluation form: an image's probabilities do not depend on its batch
			feeds := must.Get(held.Batch([]int{0, 1}, nil))(t)
			delete(feeds, TargetInput)
			out := modeltest.Eval(t, eng, res.Model, feeds)
			sum := float32(0)
			for _, p := range out["probabilities"].F32()[:4] {
				sum += p
			}
			if math.Abs(float64(sum)-1) > 1e-5 {
				t.Errorf("probabilities sum to %v", sum)
			}
		})
	}
}

// TestMeasure: a model is measured whichever weights are trained, and has an accuracy where the loss
// is that of classes.
func TestMeasure(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		loss string
		lora int
		acc  bool
	}{{CrossEntropy, 0, true}, {CrossEntropy, 2, true}, {Binary, 0, false}, {MSE, 0, false}} {
		m := small(t, false)
		tn := tuningOf(m)
		if c.loss == Binary {
			last := m.Graph.Nodes[len(m.Graph.Nodes)-1]
			last.Op, last.Attrs = "Sigmoid", nil
		}
		if tn.Loss.Name, tn.LoRA = c.loss, c.lora; c.lora > 0 {
			tn.Weights, tn.Adapted = nil, []string{"head"}
		}
		got := must.Get(tn.Measure(t.Context(), pureEngine(t), m, clusters(t, 24, 3)))(t)
		if _, acc := got["acc"]; acc != c.acc || !(got["loss"] > 0) {
			t.Errorf("%+v: %v", c, got)
		}
		tn.LoRA, tn.Weights = 0, nil
		must.Fail(tn.Train(t.Context(), pureEngine(t), m, clusters(t, 24, 3), Data{}))(t,
			"no weights are trained", "a training of nothing")
	}
}

// TestNames: an output may be called as the loss is. An input may not be called as its target is.
// Too few examples for a fixed batch are an error that says what to do.
func TestNames(t *testing.T) {
	t.Parallel()
	of := func(in, out string) *onnx.Model {
		return onnx.NewModel(modeltest.Graph(in+",6]", out+":float32[n,3]",
			map[string]*onnx.Tensor{"w": random("w", 6, 3)},
			modeltest.Node("MatMul", strings.Split(in, ":")[0]+" w", out)))
	}
	data := clusters(t, 24, 3)
	var losses []float64
	for _, out := range []string{"y", LossOutput} {
		m := of("x:float32[n", out)
		tn := tuningOf(m)
		got := must.Get(tn.Train(t.Context(), pureEngine(t), m, data, data))(t)
		after := must.Get(tn.Measure(t.Context(), pureEngine(t), got.Model, data))(t)
		if losses = append(losses, after[LossOutput]); got.Model.Graph.Outputs[0].Name != out {
			t.Errorf("%s: %v, outputs %v", out, after, got.Model.Graph.Outputs)
		}
	}
	if losses[0] != losses[1] {
		t.Errorf("losses are %v", losses)
	}
	for in, want := range map[string]string{"target:float32[n": `input "target": examples give the target`,
		"x:float32[64": "24 examples: the model's batch is fixed at 64; hold out as many (--held-out)"} {
		m := of(in, "y")
		must.Fail(tuningOf(m).Measure(t.Context(), pureEngine(t), m, data))(t, want, in)
	}
}

// TestLoRABegins: at first the adapted model computes what the model did, and factors that are
// merged give the adapted one.
func TestLoRABegins(t *testing.T) {
	t.Parallel()
	eng, m := pureEngine(t), small(t, false)
	adapted, factors := must.Get2(AddLoRA(m, []string{"body.weight", "body.bias", "head"}, 2, 1))(t)
	if want := []string{"body.weight/lora_a", "body.weight/lora_b", "head/lora_a",
		"head/lora_b"}; !slices.Equal(factors, want) {
		t.Fatalf("factors are %q, want %q", factors, want)
	}
	input := random("x", 5, 6)
	for i := range input.F32() {
		input.F32()[i] *= 20
	}
	run := func(m *onnx.Model) []float32 {
		out := modeltest.Eval(t, eng, m, map[string]*onnx.Tensor{"x": input})
		return out["probabilities"].F32()
	}
	first := run(m)
	if !slices.Equal(run(adapted), first) {
		t.Error("the adapted model begins elsewhere")
	}
	values := map[string]*onnx.Tensor{}
	for _, f := range factors {
		values[f] = random("trained "+f, adapted.Graph.Initializers[f].Shape...)
		adapted.Graph.Initializers[f] = values[f]
	}
	must.Do(t, MergeLoRA(m, values))
	far := 0.0
	for i, v := range run(adapted) {
		if d := math.Abs(float64(v - run(m)[i])); d > 1e-5 {
			t.Fatalf("value %d differs by %g from the adapted model's", i, d)
		}
		far = max(far, math.Abs(float64(v-first[i])))
	}
	if far < 1e-2 {
		t.Error("the factors change nothing")
	}
}

// TestLoRAInPlace: a weight that gets factors is trained by them alone, also where it is named among
// the weights; a vector is passed over.
func TestLoRAInPlace(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		weights, adapted string
		trained          int
	}{
		{"head", "body.weight", 36 + 36},
		{"body.weight head", "body.weight", 36 + 36},
		{"body.weight body.bias head", "body.weight body.bias", 36 + 36 + 12},
	} {
		m := small(t, false)
		tn := tuningOf(m)
		tn.Weights, tn.Adapted, tn.LoRA, tn.Epochs = strings.Fields(c.weights), strings.Fields(c.adapted), 2, 1
		res := must.Get(tn.Train(t.Context(), pureEngine(t), m, clusters(t, 24, 3), Data{}))(t)
		if res.Trained != c.trained {
			t.Errorf("%+v: %d numbers are trained", c, res.Trained)
		}
	}
}

// TestDropout: a Dropout in training form, also in a branch, drops nothing, and is in evaluation form in
// the result.
func TestDropout(t *testing.T) {
	t.Parallel()
	node, body, graph := modeltest.Node, modeltest.Body, modeltest.Graph
	for _, c := range []struct {
		name  string
		nodes []*onnx.Node // from h to k
	}{
		{"a node", []*onnx.Node{node("Dropout", "h ratio yes", "k")}},
		{"with its mask", []*onnx.Node{node("Dropout", "h ratio yes", "k mask")}},
		{"in a branch", []*onnx.Node{node("If", "choose", "k",
			body("then_branch", graph("", "a:float32[n,6]", nil, node("Dropout", "h ratio yes", "a"))),
			body("else_branch", graph("", "b:float32[n,6]", nil, node("Neg", "h", "b"))))}},
	} {
		inits := map[string]*onnx.Tensor{"w": random("w", 6, 6), "v": random("v", 6, 3),
			"ratio": onnx.Scalar[float32](.5), "yes": onnx.Scalar(true), "choose": onnx.Scalar(true)}
		m := onnx.NewModel(graph("x:float32[n,6]", "y:float32[n,3]", inits,
			append(append([]*onnx.Node{node("MatMul", "x w", "h")}, c.nodes...), node("MatMul", "k v", "y"))...))
		var results []string
		for range 2 {
			tn := tuningOf(m)
			res := must.Get(tn.Train(t.Context(), orttest.New(t), m, clusters(t, 24, 3), Data{}))(t)
			if init := res.Model.Graph.Initializers; init["yes"] != nil || init["ratio"] != nil {
				t.Errorf("%s: the result has %q", c.name, res.Model.Graph.InitializerNames())
			}
			results = append(results, string(must.Get(serde.Marshal(res.Model))(t)))
		}
		if results[0] != results[1] {
			t.Errorf("%s: two trainings give two results", c.name)
		}
	}
}

// TestTuneResumes: a run that is broken off at any step and resumed equals one that was not, to the
// bit, the best weights with it.
func TestTuneResumes(t *testing.T) {
	t.Parallel()
	for _, training := range []bool{false, true} {
		t.Run(fmt.Sprint("training form ", training), func(t *testing.T) {
			t.Parallel()
			resumes(t, engineFor(t, training), small(t, training))
		})
	}
}

func resumes(t *testing.T, eng engine.Engine, m *onnx.Model) {
	t.Helper()
	data, held := must.Get2(clusters(t, 60, 3).HoldOut(0.2, 1))(t)
	tn := tuningOf(m)
	// After the second epoch of four steps the gradient is climbed: the best ones are from before
	// most of the stops.
	tn.Rate = func(step, _ int) float64 {
		if step < 8 {
			return 0.02
		}
		return -0.02
	}
	want := must.Get(tn.Train(t.Context(), eng, m, data, held))(t)
	bytes := must.Get(serde.Marshal(want.Model))(t)
	tn.Checkpoint = filepath.Join(t.TempDir(), "checkpoint")
	for stop, broken := 1, false; ; {
		ctx, cancel := context.WithCancel(t.Context())
		tn.Progress = func(p Progress) {
			if p.Step == stop {
				cancel()
			}
		}
		part := held
		if stop == 7 && !broken { // this time in the middle of the validation after step 8
			stop, broken = 0, true
			part.Batch = func(rows []int, r *rand.Rand) (map[string]*onnx.Tensor, error) {
				cancel()
				return held.Batch(rows, r)
			}
		}
		got, err := tn.Train(ctx, eng, m, data, part)
		cancel()
		if errors.Is(err, context.Canceled) {
			if stop == 0 {
				stop = 7
			}
			stop += 3
			continue
		}
		if err != nil {
			t.Fatal(err)
		}
		have := must.Get(serde.Marshal(got.Model))(t)
		if string(have) != string(bytes) || got.Best != want.Best || got.Steps != want.Steps ||
			!broken || want.Best > 8 {
			t.Errorf("resumed to step %d, best %d; want %d, %d, and the same model; broken off in a "+
				"validation is %v", got.Steps, got.Best, want.Steps, want.Best, broken)
		}
		return
	}
}

// elsewhere is an engine of another identity.
type elsewhere struct {
	engine.Engine
	identity string
}

func (e elsewhere) Identity() string { return e.identity }

// TestOtherEngine: a run goes on with the engine that began it, to its version, and else is refused.
func TestOtherEngine(t *testing.T) {
	t.Parallel()
	m, data := small(t, false), clusters(t, 12, 3)
	tn := tuningOf(m)
	tn.Checkpoint = filepath.Join(t.TempDir(), "checkpoint")
	for _, c := range []struct {
		identity string
		goes     bool
	}{{"ort 1.32.0 cpu", true}, {"ort 1.32.0 cpu", true}, {"ort 1.31.0 cpu", false}, {"pure", false}} {
		e := engine.Under(t.Context(), elsewhere{pureEngine(t), c.identity})
		if _, err := tn.Train(t.Context(), e, m, data, Data{}); c.goes {
			must.Do(t, err)
		} else {
			must.Fail(err)(t, c.identity, "another run", "ort 1.32.0 cpu")
		}
	}
}

// TestHoldOut: every example is in one part, once.
func TestHoldOut(t *testing.T) {
	t.Parallel()
	all := must.Get(Rows(map[string]*onnx.Tensor{"x": onnx.Vector[int64](0, 1, 2, 3, 4, 5, 6, 7, 8, 9)}))(t)
	a, b := must.Get2(all.HoldOut(0.3, 1))(t)
	var rows []int64
	for _, d := range []Data{a, b} {
		for i := range d.N {
			feeds := must.Get(d.Batch([]int{i}, nil))(t)
			rows = append(rows, feeds["x"].I64()...)
		}
	}
	slices.Sort(rows)
	if b.N != 3 || !slices.Equal(rows, []int64{0, 1, 2, 3, 4, 5, 6, 7, 8, 9}) {
		t.Errorf("%d held out, rows %v", b.N, rows)
	}
	must.Fail(all.HoldOut(0.99, 1))(t, "", "all may be held out")
}

// TestEarlyStop: where the held-out loss cannot fall, training ends after as many epochs as
// patience allows, with the first one's weights.
func TestEarlyStop(t *testing.T) {
	t.Parallel()
	m := small(t, false)
	data := clusters(t, 60, 3)
	tn := tuningOf(m)
	tn.Rate, tn.Epochs, tn.Patience = optim.Constant(0), 50, 2
	tn.Checkpoint = filepath.Join(t.TempDir(), "checkpoint")
	for call := range 2 { // the second has nothing to do
		res := must.Get(tn.Train(t.Context(), pureEngine(t), m, data, data))(t)
		if res.Best != 5 || res.Steps != 15 {
			t.Errorf("call %d: ended at step %d, best %d; want 15 and 5", call, res.Steps, res.Best)
		}
	}
}

// counted is a model whose state is the number of steps it has taken.
type counted struct{ steps *onnx.Tensor }

func (c *counted) State() map[string]*onnx.Tensor { return map[string]*onnx.Tensor{"steps": c.steps} }
func (c *counted) SetState(s map[string]*onnx.Tensor) error {
	c.steps = s["steps"].Clone()
	return nil
}

// TestLoopGoesOn: a loop that is called again with its checkpoint makes up for a validation that was
// broken off, and stays ended where a validation ended it. A validation of no finite number is null in
// the log.
func TestLoopGoesOn(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name          string
		breaks, stops int // the step of the validation that is broken off, and of that which ends the training
		again         int // steps of the second call
		validations   string
		taken         float64
		want          string // of the error of the second call
	}{
		{"done", 0, 0, 8, "2 4 6 8", 8, ""},
		{"fewer steps", 0, 0, 6, "2 4 6 8", 8, "it is of step 8, and 6 are to be taken"},
		{"more steps", 0, 0, 10, "2 4 6 8 10", 10, ""},
		{"broken off", 4, 0, 8, "2 4 4 6 8", 8, ""},
		{"broken off in the last", 8, 0, 8, "2 4 6 8 8", 8, ""},
		{"ended", 0, 4, 8, "2 4", 4, ""},
		{"broken off in that which ends it", 4, 4, 8, "2 4 4", 4, ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			dir, done := t.TempDir(), []string{}
			model := &counted{steps: onnx.Scalar(0.)}
			for call := range 3 {
				ctx, cancel := context.WithCancel(t.Context())
				l := Loop{Steps: 8, Rate: optim.Constant(1), Model: model, ValidateEvery: 2,
					Checkpoint: filepath.Join(dir, "checkpoint"), Log: filepath.Join(dir, "log"),
					Step: func(context.Context, int, float64) (Metrics, error) {
						model.steps.F64()[0]++
						return Metrics{LossOutput: 1}, nil
					},
					Validate: func(ctx context.Context, step int) (Metrics, error) {
						done = append(done, fmt.Sprint(step))
						if call == 0 && step == c.breaks {
							cancel()
							return nil, ctx.Err()
						}
						if step == c.stops {
							return Metrics{LossOutput: math.Inf(1)}, ErrStop
						}
						return Metrics{LossOutput: math.NaN()}, nil
					}}
				if call > 0 {
					l.Steps = c.again
				}
				err := l.Train(ctx)
				cancel()
				if call == 1 && c.want != "" {
					must.Fail(err)(t, c.want, c.name)
					break
				}
				if err != nil && (call > 0 || c.breaks == 0) {
					t.Fatal(err)
				}
			}
			if got := strings.Join(done, " "); got != c.validations || model.steps.F64()[0] != c.taken {
				t.Errorf("validations after %s, %v steps", got, model.steps.F64()[0])
			}
			log := string(must.Get(os.ReadFile(filepath.Join(dir, "log")))(t))
			if n := strings.Count(log, `"loss":null`); n != len(slices.Compact(done)) {
				t.Errorf("%d validations in the log:\n%s", n, log)
			}
		})
	}
	l := Loop{Steps: 1, Rate: optim.Constant(1), Checkpoint: "none",
		Step: func(context.Context, int, float64) (Metrics, error) { return Metrics{LossOutput: 1}, nil }}
	must.Fail(l.Train(t.Context()))(t, "Model", "a checkpoint of no model")
}

// TestLosses holds each loss to its formula.
func TestLosses(t *testing.T) {
	t.Parallel()
	eng := pureEngine(t)
	b := build.New("scores")
	b.Output("y", b.Mul(b.Input("x", onnx.Float32, "batch", 2), b.F32(1)))
	m := must.Get(b.Model())(t)
	x := onnx.NewTensor([]float32{1, 2, -1, 3, 0.5, 0.25}, 3, 2)
	logsum := func(v ...float64) float64 {
		s := 0.0
		for _, y := range v {
			s += math.Exp(y)
		}
		return math.Log(s)
	}
	unit := func(a, b float64) (float64, float64) { n := math.Hypot(a, b); return a / n, b / n }
	a0, a1 := unit(1, 2)
	b0, b1 := unit(-1, 3)
	c0, c1 := unit(0.5, 0.25)
	ab, ac, bc := (a0*b0+a1*b1)/0.5, (a0*c0+a1*c1)/0.5, (b0*c0+b1*c1)/0.5
	soft := onnx.NewTensor([]float32{1, 0, 0, 1, 0.5, 0.5}, 3, 2)
	for _, c := range []struct {
		l      Loss
		target *onnx.Tensor
		want   float64
	}{
		{Loss{Name: CrossEntropy}, soft,
			(logsum(1, 2) - 1 + logsum(-1, 3) - 3 + logsum(0.5, 0.25) - 0.375) / 3},
		{Loss{Name: CrossEntropy, Smoothing: 0.2}, soft,
			(logsum(1, 2) - 1.1 + logsum(-1, 3) - 2.6 + logsum(0.5, 0.25) - 0.375) / 3},
		{Loss{Name: Binary}, soft, (logsum(0, 1) - 1 + logsum(0, 2) + logsum(0, -1) +
			logsum(0, 3) - 3 + logsum(0, 0.5) - 0.25 + logsum(0, 0.25) - 0.125) / 6},
		{Loss{Name: MSE}, soft, (0 + 4 + 1 + 4 + 0 + 0.0625) / 6},
		{Loss{Name: Contrastive, Temperature: 0.5}, onnx.NewTensor([]float32{4, 4, 2}, 3, 1),
			(logsum(ab, ac) - ab + logsum(ab, bc) - ab) / 3},
	} {
		loss := must.Get(WithLoss(m, m.Graph.Outputs[0], c.l))(t)
		s := must.Get(eng.Load(loss))(t)
		out, err := engine.Eval(s, map[string]*onnx.Tensor{"x": x, TargetInput: c.target})
		s.Close()
		if err != nil {
			t.Fatal(err)
		}
		if got := float64(out[LossOutput].F32()[0]); math.Abs(got-c.want) > 1e-5 {
			t.Errorf("%v: %v, want %v", c.l, got, c.want)
		}
	}
	must.Fail(WithLoss(m, m.Graph.Outputs[0], Loss{Name: "hinge"}))(t, "", "an unknown loss is taken")
}

// TestTuneRefuses: a training without an optimizer, with averages, or with a count below 0, and a tensor
// that is nil, are errors.
func TestTuneRefuses(t *testing.T) {
	t.Parallel()
	m := small(t, false)
	for _, c := range []struct {
		name, want string
		set        func(*Tuning)
	}{
		{"no optimizer", "Optimizer", func(t *Tuning) { t.Optimizer = nil }},
		{"averages", "EMA", func(t *Tuning) { t.Update.EMA = .9 }},
		{"parts", "0 and up", func(t *Tuning) { t.Parts = -1 }},
		{"threads", "0 and up", func(t *Tuning) { t.Threads = -1 }},
		{"patience", "0 and up", func(t *Tuning) { t.Patience = -1 }},
		{"rank", "0 and up", func(t *Tuning) { t.LoRA = -1 }},
	} {
		tn := tuningOf(m)
		c.set(&tn)
		must.Fail(tn.Train(t.Context(), pureEngine(t), m, clusters(t, 12, 3), Data{}))(t, c.want, c.name)
	}
	must.Fail(Rows(map[string]*onnx.Tensor{"x": nil}))(t, `"x" is nil`, "nil rows")
	for step, want := range map[int]string{0: "examples", 3: "learning rate"} {
		must.Fail(&NotFiniteError{Step: step, Tensor: "loss"})(t, want, step)
	}
	for _, shape := range [][]int{{0, 3}, {3, 0}} { // a weight without elements gets no factors
		m.Graph.Initializers["empty"] = onnx.ZerosF32(shape...)
		must.Fail(AddLoRA(m, []string{"empty"}, 1, 1))(t, "no weight is a matrix larger", shape)
	}
}

// TestStatistics: statistics of a normalisation and factors of inputs are no weights. Running
// statistics that a file shares with weights, as exporters share equal tensors, do not move with
// them; in training form they move apart from them.
func TestStatistics(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name     string
		training bool
		mean     string // and "" for the file's own statistics
		variance string
		outputs  int
	}{{"apart", false, "", "", 1}, {"shared", false, "norm.bias", "norm.weight", 1},
		{"by an Identity", false, "mean", "var", 1},
		{"in training form", true, "norm.bias", "norm.weight", 3},
		{"in training form of one output", true, "norm.bias", "norm.weight", 1}} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			m := small(t, c.training)
			g := m.Graph
			at := slices.IndexFunc(g.Nodes, func(n *onnx.Node) bool { return n.Op == "BatchNormalization" })
			norm := g.Nodes[at]
			norm.Outputs = norm.Outputs[:c.outputs]
			if c.mean != "" {
				norm.Inputs[3], norm.Inputs[4] = c.mean, c.variance
			}
			if c.mean == "mean" { // of a tensor that nothing else reads
				g.Nodes = slices.Insert(g.Nodes, at, modeltest.Node("Identity", "norm.mean", "mean"),
					modeltest.Node("Identity", "norm.weight", "var"))
			}
			want := []string{"body.weight", "body.bias", "norm.weight", "norm.bias", "head", "offset"}
			if got := names(Weights(g, "probabilities")); !slices.Equal(got, want) {
				t.Errorf("weights are %q, want %q", got, want)
			}
			tn, data := tuningOf(m), clusters(t, 24, 3)
			res := must.Get(tn.Train(t.Context(), engineFor(t, c.training), m, data, Data{}))(t)
			for _, n := range res.Model.Graph.Nodes {
				if n.Op != "BatchNormalization" {
					continue
				}
				for i, before := range []float32{1, 0, 0, 1} {
					v := res.Model.Graph.Initializers[n.Input(1+i)]
					moved := slices.ContainsFunc(v.F32(), func(f float32) bool { return f != before })
					if moved != (i < 2 || c.training) {
						t.Errorf("input %d has moved: %v", 1+i, moved)
					}
				}
				if c.training && slices.Equal(res.Model.Graph.Initializers[n.Input(1)].F32(),
					res.Model.Graph.Initializers[n.Input(4)].F32()) {
					t.Error("the variance is the weight")
				}
			}
			must.Do(t, serde.Save(filepath.Join(t.TempDir(), "m.onnx"), res.Model))
		})
	}
}

// TestNewHeadReshaped: a Reshape behind the last layer goes with the classes, or is refused.
func TestNewHeadReshaped(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name string
		then func(b *build.Builder, x, y build.Ref) build.Ref // x [n, 10, 2, 2] after y [n, 10, 2, 2]
		want string                                           // type of the output, or words of an error
	}{
		{"constant", func(b *build.Builder, x, y build.Ref) build.Ref {
			return b.Op("Reshape", []build.Ref{b.ReduceMean(y, true, 2, 3), b.Axes(-1, 10)})
		}, "float32[n,3]"},
		{"shared", func(b *build.Builder, x, y build.Ref) build.Ref {
			to := b.Axes(-1, 10)
			b.Output("rows", b.Op("Reshape", []build.Ref{x, to}))
			return b.Op("Reshape", []build.Ref{b.ReduceMean(y, true, 2, 3), to})
		}, "float32[n,3]"},
		{"open", func(b *build.Builder, x, y build.Ref) build.Ref {
			return b.Op("Reshape", []build.Ref{b.ReduceMean(y, true, 2, 3), b.Axes(0, -1)})
		}, "float32[n,3]"},
		{"computed", func(b *build.Builder, x, y build.Ref) build.Ref {
			n := b.Op("Shape", []build.Ref{x}, onnx.IntAttr("end", 1))
			to := b.Concat(0, b.Op("Neg", []build.Ref{b.Op("Div", []build.Ref{n, n})}), b.Axes(10))
			return b.Op("Reshape", []build.Ref{b.ReduceMean(y, true, 2, 3), to})
		}, "of 3 classes"},
		{"a map", func(_ *build.Builder, _, y build.Ref) build.Ref { return y }, "float32[n,3,2,2]"},
	} {
		t.Run(c.name, func(t *testing.T) {
			b := build.New(c.name)
			x := b.Input("x", onnx.Float32, "n", 10, 2, 2)
			y := b.Op("Conv", []build.Ref{x, b.Param("w", random("w", 10, 10, 1, 1))})
			b.Output("out", c.then(b, x, y))
			m := must.Get(b.Model())(t)
			got, _, err := NewHead(m, "out", 3, false, 1)
			if !strings.HasPrefix(c.want, "float32") {
				must.Fail(got, err)(t, c.want, "a new head")
				return
			}
			must.Do(t, err)
			out, _ := got.Graph.Output("out")
			if out.Type() != c.want {
				t.Errorf("the output is %v, want %s", out, c.want)
			}
			feeds := map[string]*onnx.Tensor{"x": random("x", 6, 10, 2, 2)}
			ran := modeltest.Eval(t, pureEngine(t), got, feeds)
			if s := ran["out"].Shape; s[0] != 6 || s[1] != 3 {
				t.Errorf("6 images give %v", s)
			}
			if r := ran["rows"]; r != nil && r.Shape[1] != 10 {
				t.Errorf("the other Reshape gives %v", r.Shape)
			}
		})
	}
}

// TestNewHeadOfTokens: a bias that is added before the product is the last layer's too. A last layer
// over the tokens of a sequence stays a product of any rank, with a bias of its own behind it.
func TestNewHeadOfTokens(t *testing.T) {
	t.Parallel()
	for _, bias := range []string{"none", "before", "behind"} {
		b := build.New(bias)
		y := b.MatMul(b.Input("x", onnx.Float32, "n", 2, 4), b.Param("w", random("w", 4, 5)))
		switch bias {
		case "before":
			y = b.Add(b.Param("b", random("b", 5)), y)
		case "behind":
			y = b.Add(y, b.Param("b", random("b", 5)))
		}
		b.Output("out", b.ReduceMean(y, false, 1))
		got, names := must.Get2(NewHead(must.Get(b.Model())(t), "out", 3, false, 1))(t)
		g := got.Graph
		if out, _ := g.Output("out"); out.Type() != "float32[n,3]" || len(g.Initializers) != 2 {
			t.Fatalf("bias %s: the output is %v of %v", bias, out, g.InitializerNames())
		}
		g.Initializers[names[1]] = onnx.Vector[float32](10, 20, 30)
		x, w := onnx.NewTensor([]float32{1, 0, 0, 0, 1, 0, 0, 0}, 1, 2, 4), g.Initializers[names[0]].F32()
		ran := modeltest.Eval(t, pureEngine(t), got, map[string]*onnx.Tensor{"x": x})["out"].F32()
		if want := []float32{10 + w[0], 20 + w[1], 30 + w[2]}; !slices.Equal(ran, want) {
			t.Errorf("bias %s: %v, want %v", bias, ran, want)
		}
	}
}
