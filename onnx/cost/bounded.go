package cost

import (
	"context"
	"fmt"
	"sync"

	"fmp/onnx"
	"fmp/onnx/engine"
)

// Bounded returns an engine that loads no model whose run on one item takes more than the limits,
// and whose sessions refuse, before they run, inputs with which a run takes more. A model whose
// work and memory cannot be told beforehand is refused.
func Bounded(e engine.Engine, l engine.Limits) engine.Engine { return &bounded{e, l} }

type bounded struct {
	engine.Engine
	limits engine.Limits
}

// Load prepares a model. A model whose run on one item is above the limits is refused; an open size
// counts as 1.
func (b *bounded) Load(m *onnx.Model) (engine.Session, error) {
	one := map[string][]int{}
	for _, in := range m.Graph.Inputs {
		one[in.Name] = []int{}
		for _, d := range in.Shape {
			size := 1
			if d.IsKnown() {
				size = d.Size
			}
			one[in.Name] = append(one[in.Name], size)
		}
	}
	c, err := Estimate(m, one)
	if err == nil {
		err = c.Check(b.limits)
	}
	if err != nil {
		return nil, fmt.Errorf("the model is not run: %w", err)
	}
	s, err := b.Engine.Load(m)
	if err != nil {
		return nil, err
	}
	// One item was counted above: a run of it need not be.
	return &session{Session: s, model: m, limits: b.limits,
		known: map[string]error{keyOf(one): nil}}, nil
}

// session remembers which shapes it was asked for.
type session struct {
	engine.Session
	model  *onnx.Model
	limits engine.Limits

	mu    sync.Mutex
	known map[string]error
}

// keyOf names the shapes of inputs.
func keyOf(shapes map[string][]int) string { return fmt.Sprint(shapes) } // in the order of their names

// maxKnown is the number of shapes of inputs that are remembered. One more and all are forgotten,
// so that hostile shapes cannot fill the memory.
const maxKnown = 256

// Run evaluates the model. Shapes above the limits are refused before anything runs. It may be
// called from several goroutines where the engine's session may.
func (s *session) Run(ctx context.Context, feeds, fetch map[string]*onnx.Tensor) error {
	if err := s.allowed(feeds); err != nil {
		return fmt.Errorf("the model is not run: %w", err)
	}
	return s.Session.Run(ctx, feeds, fetch)
}

// allowed reports why feeds of these shapes are not run. It holds the lock while it estimates, so
// that equal shapes at the same time are counted once.
func (s *session) allowed(feeds map[string]*onnx.Tensor) error {
	shapes := map[string][]int{}
	for name, t := range feeds {
		if t != nil {
			shapes[name] = t.Shape
		}
	}
	key := keyOf(shapes)
	s.mu.Lock()
	defer s.mu.Unlock()
	err, ok := s.known[key]
	if ok {
		return err
	}
	c, err := Estimate(s.model, shapes)
	if err == nil {
		err = c.Check(s.limits)
	}
	if len(s.known) == maxKnown {
		clear(s.known)
	}
	s.known[key] = err
	return err
}
