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
)

// Graphs within nodes give what the ONNX Runtime gives, twice in one session.
func TestControlFlow(t *testing.T) {
	own, reference := engines(t, 1)
	cases := modeltest.Control()
	maps.Copy(cases, modeltest.Recurrent())
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			m := c.Model()
			want := run(t, reference, m, c.Feeds)
			s, err := own.Load(m)
			if err != nil {
				t.Fatal(err)
			}
			defer s.Close()
			for range 2 {
				got, err := engine.Eval(s, c.Feeds)
				if err != nil {
					t.Fatal(err)
				}
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
	e, err := pure.New(engine.Options{})
	if err != nil {
		t.Fatal(err)
	}
	g := modeltest.Graph("x:float32[]", "y:float32[]", nil, modeltest.Node("Loop", "_ _ x", "y",
		modeltest.Body("body", modeltest.Graph("i:int64[] on:bool[] v:float32[]",
			"on2:bool[] v2:float32[]", nil, modeltest.Node("Identity", "on", "on2"),
			modeltest.Node("Neg", "v", "v2")))))
	s, err := engine.Under(ctx, e).Load(onnx.NewModel(g))
	if err != nil {
		t.Fatal(err)
	}
	enough := errors.New("enough")
	go cancel(enough)
	if _, err := engine.Eval(s, map[string]*onnx.Tensor{"x": onnx.Scalar[float32](1)}); !errors.Is(err, enough) {
		t.Errorf("the run ended with %v", err)
	}
}
