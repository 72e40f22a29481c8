package models

import (
	"testing"

	"fmp/onnx"
	"fmp/onnx/engine"
	"fmp/onnx/engine/ort/orttest"
	"fmp/onnx/engine/pure"
	"fmp/onnx/must"
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
	e := must.Get(pure.New(engine.Options{Threads: 1}))(t)
	defer e.Close()
	return evalOn(t, e, m, feeds, outputs...)
}

func evalOn(t *testing.T, e engine.Engine, m *onnx.Model, feeds map[string]*onnx.Tensor,
	outputs ...string) map[string]*onnx.Tensor {
	t.Helper()
	s := must.Get(e.Load(m))(t)
	defer s.Close()
	return must.Get(engine.Eval(s, feeds, outputs...))(t)
}
