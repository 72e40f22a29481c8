// Package train trains ONNX models with any engine: steps that are one run of one graph ([Step]) or
// that let a loss outside the graph have its say between forward and backward ([Split]), and a loop
// around them with checkpoints, validation, a log and a watch for values that are not finite
// ([Loop]).
//
// State between steps (parameters, moments, running statistics) lives in two sets of tensors:
// a step reads one and writes the other, then they change places. Nothing is copied.
package train

import (
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"

	"fmp/onnx"
	"fmp/onnx/optim"
)

// carried holds the values x that the outputs new_x of a model replace. now is read by a step and
// after written by it; both have the same names, types and shapes.
type carried struct {
	names      []string
	now, after map[string]*onnx.Tensor
}

// newCarried finds the pairs x, new_x of a model's inputs and outputs and allocates both sets.
// Values start from init; running averages of parameters from the parameter, everything else from
// zero. First values are copied, so that init stays the caller's.
func newCarried(inputs, outputs []onnx.ValueInfo, init map[string]*onnx.Tensor) (*carried, error) {
	c := &carried{now: map[string]*onnx.Tensor{}, after: map[string]*onnx.Tensor{}}
	have := map[string]onnx.ValueInfo{}
	for _, v := range inputs {
		have[v.Name] = v
	}
	for _, o := range outputs {
		name, ok := strings.CutPrefix(o.Name, optim.NewPrefix)
		v, isInput := have[name]
		if !ok || !isInput {
			continue
		}
		shape := make([]int, len(v.Shape))
		for i, d := range v.Shape {
			if !d.IsKnown() {
				return nil, fmt.Errorf("%q is carried from step to step and has no fixed shape",
					name)
			}
			shape[i] = d.Size
		}
		var err error
		if c.after[name], err = onnx.Zeros(v.DType, shape...); err != nil {
			return nil, fmt.Errorf("%q: %w", name, err)
		}
		from := init[name]
		if p, isAverage := strings.CutPrefix(name, optim.EMAPrefix); from == nil && isAverage {
			from = init[p]
		}
		if from == nil {
			if c.now[name], err = onnx.Zeros(v.DType, shape...); err != nil {
				return nil, fmt.Errorf("%q: %w", name, err)
			}
		} else if err := sameType(from, c.after[name]); err != nil {
			return nil, fmt.Errorf("%q: %w", name, err)
		} else {
			c.now[name] = from.Clone()
		}
		c.names = append(c.names, name)
	}
	slices.Sort(c.names)
	return c, nil
}

// wantInit returns an error unless each parameter has a first value.
func wantInit(params []string, init map[string]*onnx.Tensor) error {
	for _, p := range params {
		if init[p] == nil {
			return fmt.Errorf("no first value is given of the parameter %q; given are those of %q",
				p, slices.Sorted(maps.Keys(init)))
		}
	}
	return nil
}

// sameType is an error unless a tensor has the type and shape of another.
func sameType(have, want *onnx.Tensor) error {
	if err := onnx.CheckTensor(have); err != nil {
		return err
	}
	if have.DType != want.DType || !slices.Equal(have.Shape, want.Shape) {
		return fmt.Errorf("given %v where the model has %v", have, want)
	}
	return nil
}

// swap makes the values that a step wrote those of the next one.
func (c *carried) swap() { c.now, c.after = c.after, c.now }

// fits is an error unless a state has every value, of its type and shape, and no other.
func (c *carried) fits(state map[string]*onnx.Tensor) error {
	for _, n := range c.names {
		t, ok := state[n]
		if !ok {
			return fmt.Errorf("the state has no %q", n)
		}
		if err := sameType(t, c.now[n]); err != nil {
			return fmt.Errorf("%q: %w", n, err)
		}
	}
	if len(state) != len(c.names) {
		for n := range state {
			if _, ok := c.now[n]; !ok {
				return fmt.Errorf("the state has %q, which the model has not", n)
			}
		}
	}
	return nil
}

// set replaces all values by copies of those given. On an error nothing is replaced.
func (c *carried) set(state map[string]*onnx.Tensor) error {
	if err := c.fits(state); err != nil {
		return err
	}
	for _, n := range c.names {
		c.now[n] = state[n].Clone()
	}
	return nil
}

// notFinite names the first value, in alphabetical order, that holds NaN or an infinity; "" where
// all are finite. Values that are not of float32 are passed over.
func notFinite(values map[string]*onnx.Tensor) string {
	for _, n := range slices.Sorted(maps.Keys(values)) {
		for _, v := range values[n].F32() {
			if f := float64(v); math.IsNaN(f) || math.IsInf(f, 0) {
				return n
			}
		}
	}
	return ""
}

// scalars adds the optimizer's numbers for step t to feeds.
func scalars(feeds map[string]*onnx.Tensor, o optim.Optimizer, t int, rate float64) {
	for name, v := range o.Scalars(t, rate) {
		feeds[name] = onnx.Scalar(v)
	}
}
