// Package run opens ONNX models and runs them: [Open] a file, [Session.Run] it on tensors by name.
// That is Go alone, without cgo:
//
//	s, err := run.Open("model.onnx")
//	if err != nil {
//		return err
//	}
//	defer s.Close()
//	image := onnx.NewTensor(pixels, 1, 3, 224, 224) // pixels is a []float32 of 3*224*224 numbers
//	out, err := s.Run(ctx, map[string]*onnx.Tensor{"image": image})
//	if err != nil {
//		return err
//	}
//	scores := out["scores"].F32() // beside out["scores"].Shape
//
// The ONNX Runtime runs the same session by one import more, and its name:
//
//	import _ "fmp/onnx/engine/ort"
//
//	s, err := run.Open("model.onnx", run.Engine("ort"))
//
// Two more imports add to the engine in Go: fmp/onnx/integers runs quantised models on integers,
// fmp/onnx/classical the trees and linear models of ai.onnx.ml.
package run

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"

	"fmp/onnx"
	"fmp/onnx/check"
	"fmp/onnx/engine"
	_ "fmp/onnx/engine/pure" // the default
	_ "fmp/onnx/rare"        // its operators
	"fmp/onnx/serde"
)

// Session is a model that is ready to run, by any number of goroutines at once.
type Session struct {
	engine  engine.Engine
	own     bool // whether Close ends the engine
	session engine.Session
	left    map[string]*onnx.Tensor // values of optional inputs that are left out
	closed  []onnx.ValueInfo        // optional inputs that Run does not take
}

// Option is a choice of [Open] and [New].
type Option func(*choice)

type choice struct {
	name    string
	options engine.Options
	given   engine.Engine
	open    bool // optional inputs
}

// Engine chooses an engine by name: "pure" (the default), or one whose package the program imports,
// such as "ort".
func Engine(name string) Option { return func(c *choice) { c.name = name } }

// Threads sets the number of threads of one operator; 0 (the default) means as many as there are
// cores.
func Threads(n int) Option { return func(c *choice) { c.options.Threads = n } }

// Memory bounds the bytes of intermediate values of a session; 0 (the default) is the engine's own
// bound, 8 GiB for pure.
func Memory(bytes int64) Option { return func(c *choice) { c.options.Bytes = bytes } }

// On runs the model on an engine that the caller made, and closes: one with settings of its own,
// such as an execution provider.
func On(e engine.Engine) Option { return func(c *choice) { c.given = e } }

// OptionalInputs has [Session.Run] take the model's optional inputs, whose values are constants
// else. They follow the others among [Session.Inputs]; one that is left out has the model's own
// value. Adapters are given so: tensors of [serde.LoadAdapter] beside the inputs of a run, others
// in the next.
func OptionalInputs() Option { return func(c *choice) { c.open = true } }

// Open reads a model file, with the files of external data beside it, checks it, and prepares it
// for running. The file may be from anybody. A model with an operator that the engine does not know
// is refused, by node and operator. Files of external data of 16 MiB and more are mapped
// ([serde.Load]): the engine "pure" refuses to run once one was written to.
func Open(path string, opts ...Option) (*Session, error) {
	m, err := serde.Load(path)
	if err != nil {
		return nil, err
	}
	s, err := New(m, opts...)
	if err != nil {
		return nil, fmt.Errorf("opening %s: %w", path, err)
	}
	return s, nil
}

// New is [Open] for a model in memory, as package serde decodes one and package build makes one.
// The session uses its weights in place: they must not change while it lives.
func New(m *onnx.Model, opts ...Option) (*Session, error) {
	c := choice{name: "pure"}
	for _, o := range opts {
		o(&c)
	}
	inGo := c.name == "pure" && c.given == nil
	// another engine may know operators that check does not
	if err := check.Model(m); err != nil && (inGo || !errors.Is(err, onnx.ErrUnknown)) {
		return nil, err
	}
	s := &Session{engine: c.given, closed: m.Graph.Optional}
	if c.open {
		m, s.left = opened(m)
		s.closed = nil
	}
	var err error
	if s.engine == nil {
		s.own = true
		if s.engine, err = engine.Open(c.name, c.options); err != nil {
			return nil, err
		}
	}
	if s.session, err = s.engine.Load(m); err != nil {
		s.closeEngine()
		return nil, err
	}
	return s, nil
}

// opened returns a model whose optional inputs are inputs, and the values that they have where they
// are left out. m stays as it is.
func opened(m *onnx.Model) (*onnx.Model, map[string]*onnx.Tensor) {
	model, g, left := *m, *m.Graph, map[string]*onnx.Tensor{}
	g.Inputs, g.Optional, g.Initializers = slices.Concat(g.Inputs, g.Optional), nil,
		maps.Clone(g.Initializers)
	for _, v := range m.Graph.Optional {
		left[v.Name] = g.Initializers[v.Name]
		delete(g.Initializers, v.Name)
	}
	model.Graph = &g
	return &model, left
}

// Inputs describes the model's inputs, in its order: names, element types, and shapes with symbols
// where an axis is free.
func (s *Session) Inputs() []onnx.ValueInfo { return s.session.Inputs() }

// Outputs describes the model's outputs, in its order.
func (s *Session) Outputs() []onnx.ValueInfo { return s.session.Outputs() }

// Run evaluates the outputs named, all of them where none is named, from inputs, which must name
// every input of the model. Inputs are not kept, outputs are new. When ctx is done the run ends at
// the next node or turn of a loop, with an error that wraps its cause.
func (s *Session) Run(ctx context.Context, inputs map[string]*onnx.Tensor,
	outputs ...string) (map[string]*onnx.Tensor, error) {
	fetch := map[string]*onnx.Tensor{}
	for _, o := range outputs {
		fetch[o] = nil
	}
	if len(outputs) == 0 {
		for _, o := range s.session.Outputs() {
			fetch[o.Name] = nil
		}
	}
	if len(s.left) > 0 {
		whole := maps.Clone(s.left)
		maps.Copy(whole, inputs)
		inputs = whole
	}
	if err := s.session.Run(ctx, inputs, fetch); err != nil {
		for _, v := range s.closed {
			if inputs[v.Name] != nil {
				return nil,
					fmt.Errorf("input %q is optional: open the session with "+
						"run.OptionalInputs(): %w", v.Name, err)
			}
		}
		return nil, err
	}
	return fetch, nil
}

// Close releases the model, after the runs under way have ended. The error of a later run says that
// the session is closed.
func (s *Session) Close() error { return errors.Join(s.session.Close(), s.closeEngine()) }

func (s *Session) closeEngine() error {
	if !s.own {
		return nil
	}
	return s.engine.Close()
}
