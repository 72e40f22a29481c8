package models

import (
	"testing"

	"fmp/onnx"
	"fmp/onnx/engine"
	"fmp/onnx/engine/ort/orttest"
	"fmp/onnx/engine/pure"
)

// eval runs m on the ONNX Runtime, or skips the test where there is none.
func eval(t *testing.T, m *onnx.Model, feeds map[string]*onnx.Tensor,
	outputs ...string) map[string]*onnx.Tensor {
	t.Helper()
	return evalOn(t, orttest.New(t), m, feeds, outputs...)
}

// evalPure runs m on the engine that is Go alone.
func evalPure(t *testing.T, m *onnx.Model, feeds map[string]*onnx.Tensor,
	outputs ...string) map[string]*onnx.Tensor {
	t.Helper()
	e, err := pure.New(engine.Options{Threads: 1})
	if err != nil {
		t.Fatal(err)
	}
	defer e.Close()
	return evalOn(t, e, m, feeds, outputs...)
}

func evalOn(t *testing.T, e engine.Engine, m *onnx.Model, feeds map[string]*onnx.Tensor,
	outputs ...string) map[string]*onnx.Tensor {
	t.Helper()
	s, err := e.Load(m)
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	out, err := engine.Eval(s, feeds, outputs...)
	if err != nil {
		t.Fatal(err)
	}
	return out
}
