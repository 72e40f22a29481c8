package run_test

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"fmp/onnx"
	"fmp/onnx/engine"
	"fmp/onnx/engine/pure"
	"fmp/onnx/must"
	"fmp/onnx/run"
	"fmp/onnx/serde"
)

// Goroutines share a session, and each gets the answer to its own question.
func TestConcurrent(t *testing.T) {
	s := must.Get(run.New(classifier(), run.Threads(2)))(t)
	defer s.Close()
	var all sync.WaitGroup
	for i := range 8 {
		all.Go(func() {
			x := onnx.ZerosF32(1, 3, 224, 224)
			for k := range x.F32() {
				x.F32()[k] = float32(i)
			}
			for range 4 {
				out, err := s.Run(t.Context(), map[string]*onnx.Tensor{"image": x}, "scores")
				if err != nil {
					t.Error(err)
					return
				}
				for _, y := range out["scores"].F32() {
					if y != float32(i) {
						t.Errorf("the mean of %d is %v", i, y)
					}
				}
			}
		})
	}
	all.Wait()
}

// A run ends with its context: one under way, and one that waits for its turn.
func TestCancel(t *testing.T) {
	s := must.Get(run.New(endless()))(t)
	enough := errors.New("enough")
	ctx, cancel := context.WithCancelCause(t.Context())
	feeds := map[string]*onnx.Tensor{"x": onnx.Scalar[float32](1)}
	ended := make(chan error)
	for range 2 {
		go func() { _, err := s.Run(ctx, feeds); ended <- err }()
	}
	cancel(enough)
	for range 2 {
		if err := <-ended; !errors.Is(err, enough) {
			t.Errorf("the run ended with %v", err)
		}
	}
	must.Do(t, s.Close())
	must.Fail(s.Run(t.Context(), feeds))(t, "closed", "a run after Close")
}

// endless is a loop that nothing ends.
func endless() *onnx.Model {
	scalar := func(name string, d onnx.DType) onnx.ValueInfo {
		return onnx.ValueInfo{Name: name, DType: d, Shape: onnx.Shape()}
	}
	body := &onnx.Graph{Name: "body",
		Inputs: []onnx.ValueInfo{scalar("i", onnx.Int64), scalar("on", onnx.Bool),
			scalar("v", onnx.Float32)},
		Outputs: []onnx.ValueInfo{scalar("on2", onnx.Bool), scalar("v2", onnx.Float32)},
		Nodes: []*onnx.Node{
			{Op: "Identity", Inputs: []string{"on"}, Outputs: []string{"on2"}},
			{Op: "Neg", Inputs: []string{"v"}, Outputs: []string{"v2"}}}}
	loop := &onnx.Node{Op: "Loop", Inputs: []string{"", "", "x"}, Outputs: []string{"y"},
		Attrs: []onnx.Attr{{Name: "body", Kind: onnx.AttrGraph, Graph: body}}}
	return onnx.NewModel(&onnx.Graph{Name: "endless", Inputs: []onnx.ValueInfo{scalar("x", onnx.Float32)},
		Outputs: []onnx.ValueInfo{scalar("y", onnx.Float32)}, Nodes: []*onnx.Node{loop}})
}

// Errors say what is wrong and what to do.
func TestErrors(t *testing.T) {
	dir := t.TempDir()
	text := filepath.Join(dir, "text.onnx")
	must.Do(t, os.WriteFile(text, []byte("not a model"), 0o644))
	misspelt := classifier()
	misspelt.Graph.Nodes[0].Op = "ReduceMaen"
	wrong := filepath.Join(dir, "wrong.onnx")
	must.Do(t, serde.Save(wrong, misspelt))
	for _, c := range []struct {
		path string
		opts []run.Option
		want string
	}{
		{filepath.Join(dir, "none.onnx"), nil, "none.onnx"},
		{text, nil, "text.onnx: not an ONNX model"},
		{wrong, nil, "did you mean ReduceMean?"},
		{double(), []run.Option{run.Engine("tpu")}, `engine "tpu": this program has pure`},
		{double(), []run.Option{run.Threads(-1)}, "threads -1"},
		{double(), []run.Option{run.Memory(-1)}, "memory of -1 bytes"},
	} {
		s, err := run.Open(c.path, c.opts...)
		if err == nil || s != nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s %d: error %v, want one with %q", c.path, len(c.opts), err, c.want)
		}
	}
	s := must.Get(run.New(classifier(), run.Memory(1000)))(t)
	must.Fail(s.Run(t.Context(), map[string]*onnx.Tensor{"image": onnx.ZerosF32(1, 3, 224, 223)}))(t,
		`was given float32[1 3 224 223]`, "a wrong shape")
	short := &onnx.Tensor{DType: onnx.Float32, Shape: []int{1, 3, 224, 224}, Data: make([]float32, 5)}
	must.Fail(s.Run(t.Context(), map[string]*onnx.Tensor{"image": short}))(t, "holds 5",
		"a short slice")
}

// A session closes the engine that it made, and no other.
func TestOn(t *testing.T) {
	e := must.Get(pure.New(engine.Options{Threads: 1}))(t)
	watched := &watched{Engine: e}
	s := must.Get(run.Open(double(), run.On(watched)))(t)
	if err := s.Close(); err != nil || watched.closed {
		t.Errorf("closed %v, %v", watched.closed, err)
	}
}

type watched struct {
	engine.Engine
	closed bool
}

func (w *watched) Close() error { w.closed = true; return w.Engine.Close() }
