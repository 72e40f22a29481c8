package train_test

import (
	"context"
	"encoding/json"
	"errors"
	"maps"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"fmp/onnx"
	"fmp/onnx/build"
	"fmp/onnx/engine"
	"fmp/onnx/engine/ort/orttest"
	"fmp/onnx/grad"
	"fmp/onnx/internal/modeltest"
	"fmp/onnx/must"
	"fmp/onnx/optim"
	"fmp/onnx/train"
)

// regression is the mean squared error of a small network, which counts its steps in a carried
// value.
func regression(t testing.TB) *onnx.Model {
	t.Helper()
	r := rand.New(rand.NewPCG(1, 2))
	param := func(shape ...int) *onnx.Tensor {
		return modeltest.Normal(r, 0.5, shape...)
	}
	b := build.New("regression")
	x := b.Input("x", onnx.Float32, "batch", 3)
	y := b.Input("y", onnx.Float32, "batch", 1)
	count := b.Input("count", onnx.Float32)
	h := b.Op("Tanh", []build.Ref{b.Add(b.MatMul(x, b.Param("w1", param(3, 8))), b.Param("b1", param(8)))})
	d := b.Sub(b.MatMul(h, b.Param("w2", param(8, 1))), y)
	b.Output("loss", b.ReduceMean(b.Mul(d, d), false, 0, 1))
	b.Output("new_count", b.Add(count, b.F32(1)))
	return must.Get(b.Model())(t)
}

var params = []string{"w1", "b1", "w2"}

func batch(t int) map[string]*onnx.Tensor {
	r := rand.New(rand.NewPCG(9, uint64(t)))
	x, y := onnx.ZerosF32(16, 3), onnx.ZerosF32(16, 1)
	for i := range 16 {
		for j := range 3 {
			x.F32()[3*i+j] = float32(r.NormFloat64())
		}
		y.F32()[i] = x.F32()[3*i] * x.F32()[3*i+1]
	}
	return map[string]*onnx.Tensor{"x": x, "y": y}
}

func newStep(t testing.TB, eng engine.Engine) *train.Step {
	t.Helper()
	loss := regression(t)
	o := optim.AdamW{WeightDecay: 0.01}
	m := must.Get(train.StepModel(loss, "loss", params, o, optim.Options{ClipNorm: 1, EMA: 0.9}))(t)
	s := must.Get(train.NewStep(eng, m, o, train.Params(loss, nil)))(t)
	t.Cleanup(func() { s.Close() })
	return s
}

// TestUnsavedCheckpointCostsNoMore: a checkpoint that cannot be saved, on a full disk say, is told,
// and training goes on to its end.
func TestUnsavedCheckpointCostsNoMore(t *testing.T) {
	done, problems := 0, 0
	l := train.Loop{
		Steps: 3, Rate: func(int, int) float64 { return 1 }, Model: held{}, Interval: time.Nanosecond,
		Checkpoint: filepath.Join(t.TempDir(), "c"),
		Step: func(context.Context, int, float64) (train.Metrics, error) {
			done++
			return train.Metrics{"loss": 1}, nil
		},
		Progress: func(p train.Progress) {
			if p.Problem != nil {
				problems++
			}
		},
	}
	if err := l.Train(t.Context()); err != nil || done != 3 || problems != 3 {
		t.Errorf("%d steps, %d problems, %v", done, problems, err)
	}
	l.Progress = nil // where nobody hears of it, it is an error
	must.Fail(l.Train(t.Context()))(t, "")
}

// held cannot be saved.
type held struct{}

func (held) State() map[string]*onnx.Tensor {
	return map[string]*onnx.Tensor{"w": {DType: onnx.Float32, Shape: []int{2}}}
}
func (held) SetState(map[string]*onnx.Tensor) error { return nil }

func loop(s *train.Step, steps int, dir string) *train.Loop { return loopOf(s, steps, dir, batch) }

// loopOf is loop with the batch of each step.
func loopOf(s *train.Step, steps int, dir string, batch func(t int) map[string]*onnx.Tensor) *train.Loop {
	return &train.Loop{
		Steps: steps, Rate: optim.WarmupCosine(0.02, 0, 10), Model: s,
		Step: func(_ context.Context, t int, rate float64) (train.Metrics, error) {
			out, err := s.Run(t, rate, batch(t))
			if err != nil {
				return nil, err
			}
			return train.Metrics{"loss": float64(out["loss"].F32()[0])}, nil
		},
		Run: "test", Checkpoint: filepath.Join(dir, "checkpoint.onnx"),
		Log: filepath.Join(dir, "log.jsonl"),
	}
}

// wantSame fails unless two trainings have the same state, to the bit.
func wantSame(t *testing.T, got, want interface {
	State() map[string]*onnx.Tensor
}) {
	t.Helper()
	if len(got.State()) != len(want.State()) {
		t.Errorf("%d values, want %d", len(got.State()), len(want.State()))
	}
	for n, w := range want.State() {
		for i, v := range w.F32() {
			if g := got.State()[n].F32()[i]; math.Float32bits(g) != math.Float32bits(v) {
				t.Errorf("%s[%d] is %v, want %v", n, i, g, v)
				break
			}
		}
	}
}

// TestLogAfterKill: lines written after the last checkpoint are gone on resumption, which ends as a
// run does that was not broken off.
func TestLogAfterKill(t *testing.T) {
	eng := orttest.New(t)
	dir := t.TempDir()
	s := newStep(t, eng)
	l := loop(s, 10, dir)
	ctx, cancel := context.WithCancel(context.Background())
	l.Progress = func(p train.Progress) {
		if p.Step == 4 {
			cancel()
		}
	}
	if err := l.Train(ctx); !errors.Is(err, context.Canceled) {
		t.Fatal(err)
	}
	f := must.Get(os.OpenFile(l.Log, os.O_APPEND|os.O_WRONLY, 0))(t)
	f.WriteString("{\"kind\":\"train\",\"step\":7}\n{\"kind\":\"tr")
	f.Close()
	resumed, whole := newStep(t, eng), newStep(t, eng)
	l = loop(resumed, 10, dir)
	must.Do(t, l.Train(context.Background()))
	must.Do(t, loop(whole, 10, t.TempDir()).Train(context.Background()))
	wantSame(t, resumed, whole)
	if c := whole.State()["count"].F32()[0]; c != 10 {
		t.Errorf("the carried count is %v after 10 steps", c)
	}
	data, _ := os.ReadFile(l.Log)
	lines := strings.Split(strings.TrimSpace(string(data)), "\n")
	for i, line := range lines {
		var got struct{ Step int }
		if err := json.Unmarshal([]byte(line), &got); err != nil || got.Step != i+1 || len(lines) != 10 {
			t.Errorf("line %d of %d is %s (%v)", i+1, len(lines), line, err)
		}
	}
}

func TestNotFiniteIsNamed(t *testing.T) {
	s := newStep(t, orttest.New(t))
	l := loopOf(s, 20, t.TempDir(), func(i int) map[string]*onnx.Tensor {
		b := batch(i)
		if i == 5 {
			b["x"].F32()[0] = float32(math.NaN())
		}
		return b
	})
	var e *train.NotFiniteError
	if err := l.Train(context.Background()); !errors.As(err, &e) || e.Step != 5 || e.Tensor != "loss" {
		t.Errorf("error is %v; want one naming step 5 and the loss", err)
	}
}

func TestCheckpointOfAnotherRunIsRefused(t *testing.T) {
	eng := orttest.New(t)
	dir := t.TempDir()
	must.Do(t, loop(newStep(t, eng), 3, dir).Train(context.Background()))
	l := loop(newStep(t, eng), 3, dir)
	l.Run = "other"
	must.Fail(l.Train(context.Background()))(t, "another run")
	must.Do(t, os.WriteFile(l.Checkpoint, []byte("nonsense"), 0o644))
	must.Fail(l.Train(context.Background()))(t, "remove it")
}

func newSplit(t *testing.T, eng engine.Engine, threads int) *train.Split {
	t.Helper()
	loss := regression(t)
	g := must.Get(grad.Build(loss,
		grad.Options{Outputs: []string{"loss"}, WRT: params, KeepOutputs: true, ParamsAsInputs: true,
			UnitCotangent: true}))(t)
	s := must.Get(train.NewSplit(eng, g, train.SplitOptions{
		Params: params, Optimizer: optim.AdamW{WeightDecay: 0.01},
		Update: optim.Options{ClipNorm: 1, EMA: 0.9}, Init: train.Params(loss, nil),
		Threads: threads,
	}))(t)
	t.Cleanup(func() { s.Close() })
	return s
}

// TestSplitEqualsStep: the same updates in parts, to rounding, and the same bits for any number of
// threads.
func TestSplitEqualsStep(t *testing.T) {
	eng := orttest.New(t)
	whole, one, two := newStep(t, eng), newSplit(t, eng, 1), newSplit(t, eng, 2)
	for i := range 20 {
		b := batch(i)
		must.Get(whole.Run(i, 0.01, b))(t)
		half := func(from int) map[string]*onnx.Tensor {
			return map[string]*onnx.Tensor{
				"x": onnx.NewTensor(b["x"].F32()[3*from:3*(from+8)], 8, 3),
				"y": onnx.NewTensor(b["y"].F32()[from:from+8], 8, 1),
			}
		}
		for _, s := range []*train.Split{one, two} {
			must.Get(s.Accumulate(half(0), half(8)))(t)
			must.Get(s.Update(i, 0.01, true))(t)
		}
	}
	wantSame(t, two, one)
	for n, want := range whole.State() {
		for i, w := range want.F32() {
			if v := one.State()[n].F32()[i]; math.Abs(float64(v-w)) > 2e-4*(1+math.Abs(float64(w))) {
				t.Errorf("%s[%d] is %v in parts and %v in one", n, i, v, w)
			}
		}
	}
	must.Do(t, one.SetState(two.State()))
}

// TestSplitKeepsItsState: a state of which one value does not fit, a parameter or a running one,
// replaces nothing.
func TestSplitKeepsItsState(t *testing.T) {
	s := newSplit(t, orttest.New(t), 1)
	for _, name := range []string{"w2", "count"} {
		before, state := s.State(), map[string]*onnx.Tensor{}
		for n, v := range before {
			state[n] = v.Clone()
			state[n].F32()[0]++
		}
		state[name] = onnx.ZerosF32(2, 2)
		must.Fail(s.SetState(state))(t, name, "another shape of "+name)
		if after := s.State(); !maps.EqualFunc(before, after, func(a, b *onnx.Tensor) bool {
			return slices.Equal(a.F32(), b.F32())
		}) {
			t.Errorf("%s of another shape: the state is %v, was %v", name, after, before)
		}
	}
}

// TestFirstValues: a parameter without a first value is refused.
func TestFirstValues(t *testing.T) {
	eng, loss, o := orttest.New(t), regression(t), optim.SGD{}
	init := train.Params(loss, func(name string) bool { return name != "b1" })
	m := must.Get(train.StepModel(loss, "loss", params, o, optim.Options{}))(t)
	must.Fail(train.NewStep(eng, m, o, init))(t, `"b1"`, "in a step")
	g := must.Get(grad.Build(loss, grad.Options{Outputs: []string{"loss"}, WRT: params, ParamsAsInputs: true,
		UnitCotangent: true}))(t)
	must.Fail(train.NewSplit(eng, g, train.SplitOptions{Params: params, Optimizer: o, Init: init}))(t, `"b1"`, "in parts")
}

func TestPrefetchKeepsOrder(t *testing.T) {
	ctx, cancel := context.WithCancel(context.Background())
	next := train.Prefetch(ctx, 3, 8, 2, func(t int) (int, error) { return t * t, nil })
	for i := 3; i < 8; i++ {
		if v, err := next(i); err != nil || v != i*i {
			t.Errorf("batch %d is %d (%v)", i, v, err)
		}
	}
	must.Fail(next(8))(t, "", "a batch past the last was given")
	cancel()
}
