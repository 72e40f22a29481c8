package train

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"

	"fmp/onnx"
	"fmp/onnx/engine"
	"fmp/onnx/grad"
	"fmp/onnx/optim"
)

// Params returns a model's trainable values: the float32 initializers that keep is true for (nil:
// all).
func Params(m *onnx.Model, keep func(name string) bool) map[string]*onnx.Tensor {
	out := map[string]*onnx.Tensor{}
	for name, t := range m.Graph.Initializers {
		if t.DType == onnx.Float32 && (keep == nil || keep(name)) {
			out[name] = t
		}
	}
	return out
}

// StepModel makes one graph of a training step from one that computes a scalar loss: forward,
// backward and update. params are initializers of loss; they become inputs, and so do the moments.
// Other outputs of the loss model stay: those called new_x replace its input x in the next step.
// The gradients' names begin with optim.GradPrefix, which the update reads.
func StepModel(loss *onnx.Model, output string, params []string, o optim.Optimizer,
	opt optim.Options) (*onnx.Model, error) {
	m, err := grad.Build(loss, grad.Options{
		Outputs: []string{output}, WRT: params, KeepOutputs: true, ParamsAsInputs: true,
		UnitCotangent: true, Prefix: optim.GradPrefix,
	})
	if err != nil {
		return nil, err
	}
	if err := optim.Attach(m, params, o, opt); err != nil {
		return nil, err
	}
	return m, nil
}

// Step is a training step that is one run of one session. It is for one goroutine.
type Step struct {
	session engine.Session
	opt     optim.Optimizer
	state   *carried
	rest    []string // outputs that are not carried
}

// NewStep loads a model of [StepModel]. init holds the parameters' first values, and those of other
// carried values that do not start from zero.
func NewStep(eng engine.Engine, m *onnx.Model, o optim.Optimizer,
	init map[string]*onnx.Tensor) (*Step, error) {
	s, err := eng.Load(m)
	if err != nil {
		return nil, fmt.Errorf("training step: %w", err)
	}
	st := &Step{session: s, opt: o}
	if st.state, err = newCarried(s.Inputs(), s.Outputs(), init); err != nil {
		s.Close()
		return nil, fmt.Errorf("training step: %w", err)
	}
	// Parameters are the carried values that have a moment of the optimizer.
	params := slices.DeleteFunc(slices.Clone(st.state.names), func(n string) bool {
		return st.state.now[o.State()[0]+n] == nil
	})
	if err := wantInit(params, init); err != nil {
		s.Close()
		return nil, fmt.Errorf("training step: %w", err)
	}
	for _, v := range s.Outputs() {
		if name, ok := strings.CutPrefix(v.Name, optim.NewPrefix); !ok ||
			st.state.now[name] == nil {
			st.rest = append(st.rest, v.Name)
		}
	}
	return st, nil
}

// Run takes step t (from 0) at a learning rate with a batch, and returns the outputs that are not
// carried.
func (s *Step) Run(t int, rate float64,
	batch map[string]*onnx.Tensor) (map[string]*onnx.Tensor, error) {
	feeds, fetch := map[string]*onnx.Tensor{}, map[string]*onnx.Tensor{}
	maps.Copy(feeds, batch)
	scalars(feeds, s.opt, t+1, rate)
	for _, n := range s.state.names {
		feeds[n] = s.state.now[n]
		fetch[optim.NewPrefix+n] = s.state.after[n]
	}
	for _, n := range s.rest {
		fetch[n] = nil
	}
	if err := s.session.Run(context.Background(), feeds, fetch); err != nil {
		return nil, fmt.Errorf("training step %d: %w", t, err)
	}
	s.state.swap()
	out := make(map[string]*onnx.Tensor, len(s.rest))
	for _, n := range s.rest {
		out[n] = fetch[n]
	}
	return out, nil
}

// State returns everything that is carried. The tensors are the live ones: the step after next
// overwrites them.
func (s *Step) State() map[string]*onnx.Tensor { return s.state.now }

// SetState replaces everything that is carried.
func (s *Step) SetState(state map[string]*onnx.Tensor) error { return s.state.set(state) }

// Close frees the session.
func (s *Step) Close() error { return s.session.Close() }
