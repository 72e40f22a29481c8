//go:build cgo

package pure_test

import (
	"context"
	"errors"
	"maps"
	"testing"

	"fmp/onnx"
	"fmp/onnx/engine"
	"fmp/onnx/engine/pure"
	"fmp/onnx/internal/modeltest"
	"fmp/onnx/must"
)

// Graphs within nodes give what the ONNX Runtime gives, twice in one session.
func TestControlFlow(t *testing.T) {
	own, reference := engines(t, 1)
	cases := modeltest.Control()
	maps.Copy(cases, modeltest.Recurrent())
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			m := c.Model()
			want := modeltest.Eval(t, reference, m, c.Feeds)
			s := must.Get(own.Load(m))(t)
			defer s.Close()
			for range 2 {
				got := must.Get(engine.Eval(s, c.Feeds))(t)
				for name, w := range want {
					near(t, name, got[name], w)
				}
			}
		})
	}
}

// A loop without an end ends with the context.
func TestLoopStops(t *testing.T) {
	ctx, cancel := context.WithCancelCause(context.Background())
	e := must.Get(pure.New(engine.Options{}))(t)
	g := modeltest.Graph("x:float32[]", "y:float32[]", nil, modeltest.Node("Loop", "_ _ x", "y",
		modeltest.Body("body", modeltest.Graph("i:int64[] on:bool[] v:float32[]",
			"on2:bool[] v2:float32[]", nil, modeltest.Node("Identity", "on", "on2"),
			modeltest.Node("Neg", "v", "v2")))))
	s := must.Get(engine.Under(ctx, e).Load(onnx.NewModel(g)))(t)
	enough := errors.New("enough")
	go cancel(enough)
	if _, err := engine.Eval(s, map[string]*onnx.Tensor{"x": onnx.Scalar[float32](1)}); !errors.Is(err, enough) {
		t.Errorf("the run ended with %v", err)
	}
}
