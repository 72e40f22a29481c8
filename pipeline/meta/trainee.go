package meta

import (
	"errors"
	"fmt"
	"maps"

	"fmp/models"
	"fmp/onnx"
	"fmp/onnx/engine"
	"fmp/onnx/grad"
	"fmp/onnx/optim"
	"fmp/onnx/train"
)

// trainee is a model being trained: its forward graph with the parameters as inputs, and its
// gradient graph followed by the optimiser. Sessions are read by many tasks at once; the parameters
// change between steps alone.
type trainee struct {
	*train.Split
	model   *onnx.Model // as it was given, with its first parameters
	forward engine.Session
}

// newTrainee prepares all parameters of m for training, with cotangents for all its outputs. The
// forward graph takes parameters as inputs, so that it is loaded once for all steps. m is not
// changed. The caller closes the trainee; after an error nothing is open.
func newTrainee(e engine.Engine, m *onnx.Model, o optim.Options, threads int) (*trainee, error) {
	one := oneContext(m)
	params := models.Parameters(one)
	init := map[string]*onnx.Tensor{}
	lifted := onnx.Clone(one)
	g := lifted.Graph
	for _, p := range params {
		v := g.Initializers[p]
		delete(g.Initializers, p)
		dims := make([]onnx.Dim, len(v.Shape))
		for i, d := range v.Shape {
			dims[i] = onnx.Known(d)
		}
		g.Inputs = append(g.Inputs, onnx.ValueInfo{Name: p, DType: v.DType, Shape: dims})
		init[p] = v
	}
	reverse, err := grad.Build(one,
		grad.Options{WRT: params, ParamsAsInputs: true, Prefix: optim.GradPrefix})
	if err != nil {
		return nil, err
	}
	t := &trainee{model: m}
	if t.forward, err = e.Load(lifted); err != nil {
		return nil, err
	}
	if t.Split, err = train.NewSplit(e, reverse,
		train.SplitOptions{Params: params, Optimizer: optim.AdamW{}, Update: o, Init: init,
			Threads: threads}); err != nil {
		t.forward.Close()
		return nil, err
	}
	return t, nil
}

// oneContext returns m for one context a call, as [contextFeeds] gives it: with that known, two
// fifths of the gradient's nodes, which find the broadcast axes, are not needed.
// m is not changed.
func oneContext(m *onnx.Model) *onnx.Model {
	one := onnx.Clone(m)
	for _, in := range one.Graph.Inputs {
		if len(in.Shape) > 0 && in.Shape[0].Symbol == models.Contexts {
			in.Shape[0] = onnx.Known(1)
		}
	}
	return one
}

// Close closes the sessions.
func (t *trainee) Close() error { return errors.Join(t.forward.Close(), t.Split.Close()) }

// run evaluates the model's outputs at the current parameters.
// in is not changed: parameters are fed beside a copy of its entries.
func (t *trainee) run(in map[string]*onnx.Tensor) (map[string]*onnx.Tensor, error) {
	feeds := maps.Clone(in)
	maps.Copy(feeds, t.Params())
	return engine.Eval(t.forward, feeds)
}

// shard returns the argument of [train.Split.Accumulate]: inputs, and cotangents under the outputs'
// names.
func shard(in, cotangents map[string]*onnx.Tensor) map[string]*onnx.Tensor {
	s := maps.Clone(in)
	for n, v := range cotangents {
		s[optim.GradPrefix+n] = v
	}
	return s
}

// trained returns the model with the current parameters, or with their moving average if one is
// kept.
// Its tensors are clones, which further steps do not change.
func (t *trainee) trained() *onnx.Model {
	m := onnx.Clone(t.model)
	state := t.State()
	for n := range t.Params() {
		v := state[optim.EMAPrefix+n]
		if v == nil {
			v = state[n]
		}
		m.Graph.Initializers[n] = v.Clone()
	}
	return m
}

// frozen is a model that is not trained, with its gradient with respect to some inputs.
type frozen struct {
	forward, reverse engine.Session
}

// newFrozen loads a model and its gradient with respect to the inputs wrt. The caller closes them.
// After an error nothing is open.
func newFrozen(e engine.Engine, m *onnx.Model, wrt ...string) (*frozen, error) {
	m = oneContext(m)
	reverse, err := grad.Build(m, grad.Options{WRT: wrt, Prefix: optim.GradPrefix})
	if err != nil {
		return nil, err
	}
	f := &frozen{}
	if f.forward, err = e.Load(m); err != nil {
		return nil, err
	}
	if f.reverse, err = e.Load(reverse); err != nil {
		f.forward.Close()
		return nil, err
	}
	return f, nil
}

// Close closes the sessions.
func (f *frozen) Close() error { return errors.Join(f.forward.Close(), f.reverse.Close()) }

// run evaluates the outputs.
func (f *frozen) run(in map[string]*onnx.Tensor) (map[string]*onnx.Tensor, error) {
	return engine.Eval(f.forward, in)
}

// vjp returns the vector-Jacobian products with respect to the chosen inputs, by name: with outputs
// y of inputs x and cotangents y', each is sum_y y'^T dy/dx, of the shape of x. cotangents has one
// tensor for each output, under its name.
func (f *frozen) vjp(in, cotangents map[string]*onnx.Tensor) (map[string]*onnx.Tensor, error) {
	out, err := engine.Eval(f.reverse, shard(in, cotangents))
	if err != nil {
		return nil, fmt.Errorf("gradient: %w", err)
	}
	named := make(map[string]*onnx.Tensor, len(out))
	for n, v := range out {
		named[n[len(optim.GradPrefix):]] = v
	}
	return named, nil
}
