package train

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"

	"golang.org/x/sync/errgroup"

	"fmp/onnx"
	"fmp/onnx/engine"
	"fmp/onnx/optim"
)

// Split is a training step in parts: gradients, of as many batches as are wanted, are summed, then
// the parameters are updated. It serves where the cotangents come from outside the graph (run the
// forward model with [Split.Params], work out the cotangents, then [Split.Accumulate], or
// [Split.Gradient] and [Split.Add]), and where a batch is cut into shards that run at once. The sum
// is taken in the order of the shards, so that the figures do not depend on the number of threads.
// Only [Split.Gradient] may run in several goroutines at once; the others are for one.
type Split struct {
	gradient engine.Session
	update   engine.Session
	opt      optim.Optimizer
	state    *carried // parameters and moments
	// values that the gradient model itself carries, such as running statistics
	running *carried
	grads   map[string]*onnx.Tensor // sums
	params  []string
	shards  int // summed so far
	threads int
}

// SplitOptions are the options of [NewSplit].
type SplitOptions struct {
	Params    []string // names of the parameters
	Optimizer optim.Optimizer
	Update    optim.Options
	Init      map[string]*onnx.Tensor // first values of the parameters
	Threads   int                     // shards that run at once (at least one)
}

// NewSplit loads a gradient model, made by grad.Build with ParamsAsInputs and the prefix
// [optim.GradPrefix], and the update of its parameters. On an error no session stays open.
func NewSplit(eng engine.Engine, gradient *onnx.Model, o SplitOptions) (*Split, error) {
	var infos []onnx.ValueInfo
	if err := wantInit(o.Params, o.Init); err != nil {
		return nil, fmt.Errorf("training in parts: %w", err)
	}
	for _, p := range o.Params {
		v, ok := gradient.Graph.Input(p)
		if !ok {
			return nil, fmt.Errorf("training in parts: the gradient model has no input %q; build it with "+
				"ParamsAsInputs", p)
		}
		infos = append(infos, v)
	}
	um, err := optim.StepModel(infos, o.Optimizer, o.Update)
	if err != nil {
		return nil, fmt.Errorf("training in parts: %w", err)
	}
	s := &Split{opt: o.Optimizer, params: o.Params, grads: map[string]*onnx.Tensor{},
		threads: max(1, o.Threads)}
	if s.gradient, err = eng.Load(gradient); err != nil {
		return nil, fmt.Errorf("training in parts: %w", err)
	}
	if s.update, err = eng.Load(um); err != nil {
		s.gradient.Close()
		return nil, fmt.Errorf("training in parts: %w", err)
	}
	s.state, err = newCarried(s.update.Inputs(), s.update.Outputs(), o.Init)
	if err == nil {
		s.running, err = newCarried(s.gradient.Inputs(), s.gradient.Outputs(), o.Init)
	}
	if err != nil {
		s.Close()
		return nil, fmt.Errorf("training in parts: %w", err)
	}
	for _, p := range o.Params {
		s.grads[p] = onnx.ZerosF32(s.state.now[p].Shape...)
	}
	return s, nil
}

// Params returns the current parameters, to be fed to models of the caller's. It is to be called
// after each [Split.Update], which leaves the tensors of before with other numbers.
func (s *Split) Params() map[string]*onnx.Tensor {
	out := make(map[string]*onnx.Tensor, len(s.params))
	for _, p := range s.params {
		out[p] = s.state.now[p]
	}
	return out
}

// Gradient runs the gradient model on a shard and returns its outputs, for [Split.Add]. A shard's
// feeds are the gradient model's inputs but for parameters and carried values. Several may run at
// once.
func (s *Split) Gradient(shard map[string]*onnx.Tensor) (map[string]*onnx.Tensor, error) {
	feeds := maps.Clone(shard)
	maps.Copy(feeds, s.Params())
	maps.Copy(feeds, s.running.now)
	out, err := engine.Eval(s.gradient, feeds)
	if err != nil {
		return nil, fmt.Errorf("gradients: %w", err)
	}
	return out, nil
}

// Add adds the gradients of shards to their sum, in order, and takes them out of outs.
func (s *Split) Add(outs ...map[string]*onnx.Tensor) {
	for _, out := range outs {
		for _, p := range s.params {
			sum(s.grads[p], out[optim.GradPrefix+p], s.shards == 0)
			delete(out, optim.GradPrefix+p)
		}
		for _, n := range s.running.names {
			sum(s.running.after[n], out[optim.NewPrefix+n], s.shards == 0)
			delete(out, optim.NewPrefix+n)
		}
		s.shards++
	}
}

// Accumulate runs the gradient model on every shard, adds its gradients to their sum, and returns
// each shard's other outputs. On an error nothing is added.
func (s *Split) Accumulate(shards ...map[string]*onnx.Tensor) ([]map[string]*onnx.Tensor, error) {
	outs := make([]map[string]*onnx.Tensor, len(shards))
	var g errgroup.Group
	g.SetLimit(s.threads)
	for i, shard := range shards {
		g.Go(func() (err error) {
			outs[i], err = s.Gradient(shard)
			return err
		})
	}
	if err := g.Wait(); err != nil {
		return nil, err
	}
	s.Add(outs...)
	return outs, nil
}

// sum adds v to total, or replaces it.
func sum(total, v *onnx.Tensor, replace bool) {
	t, x := total.F32(), v.F32()
	// The first shard replaces the sums of the step before, which saves a pass of zeros.
	if replace {
		copy(t, x)
		return
	}
	for i, d := range x {
		t[i] += d
	}
}

// Update takes step t (from 0) at a learning rate with the mean over shards of the gradients (or
// their sum, where mean is false), and returns the norm of all of them together. Running statistics
// get the mean over shards in either case.
func (s *Split) Update(t int, rate float64, mean bool) (norm float64, err error) {
	if s.shards == 0 {
		return 0, fmt.Errorf("training step %d: no gradients; call Accumulate first", t)
	}
	if s.shards > 1 {
		by := 1 / float32(s.shards)
		for _, p := range s.params {
			if mean {
				scale(s.grads[p], by)
			}
		}
		for _, n := range s.running.names {
			scale(s.running.after[n], by)
		}
	}
	s.shards = 0
	feeds, fetch := map[string]*onnx.Tensor{}, map[string]*onnx.Tensor{optim.NormOutput: nil}
	for p, g := range s.grads {
		feeds[optim.GradPrefix+p] = g
	}
	// Optimisers count steps from 1.
	scalars(feeds, s.opt, t+1, rate)
	for _, n := range s.state.names {
		feeds[n] = s.state.now[n]
		fetch[optim.NewPrefix+n] = s.state.after[n]
	}
	if err := s.update.Run(context.Background(), feeds, fetch); err != nil {
		return 0, fmt.Errorf("training step %d: %w", t, err)
	}
	s.state.swap()
	s.running.swap()
	return float64(fetch[optim.NormOutput].F32()[0]), nil
}

// scale multiplies a tensor in place.
func scale(t *onnx.Tensor, by float32) {
	x := t.F32()
	for i := range x {
		x[i] *= by
	}
}

// NotFinite names the first parameter whose gradient held NaN or an infinity in the last step, ""
// where none did.
func (s *Split) NotFinite() string {
	if n := notFinite(s.grads); n != "" {
		return optim.GradPrefix + n
	}
	return ""
}

// State returns everything that is carried; the tensors are live.
func (s *Split) State() map[string]*onnx.Tensor {
	out := maps.Clone(s.state.now)
	maps.Copy(out, s.running.now)
	return out
}

// SetState replaces everything that is carried. On an error nothing is replaced.
func (s *Split) SetState(state map[string]*onnx.Tensor) error {
	own, rest := map[string]*onnx.Tensor{}, map[string]*onnx.Tensor{}
	for n, t := range state {
		if slices.Contains(s.running.names, n) {
			rest[n] = t
		} else {
			own[n] = t
		}
	}
	// Running values are checked before the state is set, so that an error leaves both.
	if err := s.running.fits(rest); err != nil {
		return err
	}
	if err := s.state.set(own); err != nil {
		return err
	}
	return s.running.set(rest)
}

// Close frees the sessions.
func (s *Split) Close() error { return errors.Join(s.gradient.Close(), s.update.Close()) }
