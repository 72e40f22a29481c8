package pure

import (
	"context"
	"fmt"
	"slices"

	"fmp/onnx"
	"fmp/onnx/engine"
	"fmp/onnx/internal/kernel"
	"fmp/onnx/internal/mapped"
)

// session runs one plan. It may be shared: runs take turns, each with all of the engine's threads.
type session struct {
	turn chan struct{} // holds an element while a run or Close has its turn
	*frame
	closed bool
	blocks *blocks        // of the last size of batch
	files  []*mapped.File // that hold weights
}

// frame is a plan with the values of its run.
type frame struct {
	plan   *plan
	env    *kernel.Env
	calls  []*kernel.Call
	values []held
	seen   func(st *step, c *kernel.Call) // called after each step; may be nil
}

// newFrame readies a call for every step; outputs that nothing reads are not wanted of it. A frame
// serves one run at a time; its calls are kept from run to run.
func newFrame(p *plan, env *kernel.Env) *frame {
	f := &frame{plan: p, env: env, values: make([]held, p.slots)}
	for _, st := range p.steps {
		c := kernel.NewCall(env, len(st.in), len(st.out))
		for i, k := range st.out {
			c.Want[i] = k >= 0 && p.uses[k] > 0
		}
		f.calls = append(f.calls, c)
	}
	return f
}

// body is a graph within a node.
type body struct {
	plan *plan
	// where the node's call has the first of the values that the graph takes from around it
	first int
	frame *frame
}

// run evaluates the body; see [kernel.Body]. Its outputs have buffers of their own: one that is an
// input, a constant or another output is copied. The frame is made at the first turn and kept for
// the next.
func (b *body) run(c *kernel.Call, in []*onnx.Tensor) ([]*onnx.Tensor, error) {
	if b.frame == nil {
		b.frame = newFrame(b.plan, c.Env())
	}
	f := b.frame
	defer f.drop()
	if err := f.run(append(in, c.In[b.first:][:len(b.plan.captures)]...)); err != nil {
		return nil, err
	}
	out := make([]*onnx.Tensor, len(b.plan.outputs))
	for i, o := range b.plan.outputs {
		v := &f.values[b.plan.slot[o.Name]]
		if out[i] = v.tensor; v.buffer != nil && v.buffer.refs == 1 {
			v.buffer = nil // the caller's from now on
			continue
		}
		data, err := f.env.Pool.Get(v.tensor.DType, v.tensor.Len())
		if err != nil {
			return nil, err
		}
		out[i] = &onnx.Tensor{DType: v.tensor.DType, Shape: v.tensor.Shape, Data: data}
		kernel.Copy(out[i], v.tensor)
	}
	return out, nil
}

// run evaluates a frame's steps on the values of the plan's inputs and captures, in their order.
func (f *frame) run(in []*onnx.Tensor) error {
	f.begin(in)
	return f.steps(0, len(f.plan.steps))
}

// begin sets the values that no step makes. It sets how often each value is still to be read, as
// well.
func (f *frame) begin(in []*onnx.Tensor) {
	p := f.plan
	for i := range f.values {
		f.values[i] = held{tensor: p.constants[i], uses: p.uses[i]}
	}
	for i, v := range p.inputs {
		f.values[p.slot[v.Name]].tensor = in[i]
	}
	for i, name := range p.captures {
		f.values[p.slot[name]].tensor = in[len(p.inputs)+i]
	}
}

// steps runs the steps lo <= i < hi. Before each it looks whether the run is to end; an error names
// the node.
func (f *frame) steps(lo, hi int) error {
	for i := lo; i < hi; i++ {
		if err := f.env.Stopped(); err != nil {
			return err
		}
		st := &f.plan.steps[i]
		if err := f.step(st, f.calls[i]); err != nil {
			return fmt.Errorf("%s: %w", st.node.Label(), err)
		}
		if err := f.watch(st, f.calls[i]); err != nil {
			return fmt.Errorf("%s: %w", st.node.Label(), err)
		}
	}
	return nil
}

// watch shows a step that ran to the frame's watcher, where it has one. A panic of the watcher is
// an error of the run.
func (f *frame) watch(st *step, c *kernel.Call) (err error) {
	if f.seen == nil {
		return nil
	}
	defer func() {
		if r := recover(); r != nil {
			err = fmt.Errorf("it ran, and what was made of it failed: %v", r)
		}
	}()
	f.seen(st, c)
	return nil
}

// held is a value while a run lasts.
type held struct {
	tensor *onnx.Tensor
	buffer *buffer // nil for what the caller or the model owns
	uses   int     // reads still to come
}

// buffer is memory from the pool that one or more values share.
type buffer struct {
	data any
	refs int
}

// Inputs and Outputs are the plan's own lists: callers read them only.
func (s *session) Inputs() []onnx.ValueInfo  { return s.plan.inputs }
func (s *session) Outputs() []onnx.ValueInfo { return s.plan.outputs }

// Close waits for the run that has its turn. It may be called twice. A run afterwards is an error.
func (s *session) Close() error {
	s.turn <- struct{}{}
	defer func() { <-s.turn }()
	s.closed = true
	// The pool's memory is given to the collector.
	s.env.Pool = &kernel.Pool{}
	s.values, s.calls = nil, nil
	return nil
}

// Run evaluates the model; see engine.Session. It waits for its turn, but not beyond the end of
// ctx. Feeds are only read. On an error no tensor of fetch is written.
func (s *session) Run(ctx context.Context, feeds, fetch map[string]*onnx.Tensor) (err error) {
	select {
	case s.turn <- struct{}{}:
		defer func() { <-s.turn }()
	case <-ctx.Done():
		return fmt.Errorf("engine pure: %w", engine.Stopped(ctx))
	}
	if s.closed {
		return fmt.Errorf("engine pure: the session is closed")
	}
	if err := engine.Check(s, feeds, fetch); err != nil {
		return fmt.Errorf("engine pure: %w", err)
	}
	for _, f := range s.files {
		if err := f.Unchanged(); err != nil {
			return fmt.Errorf("engine pure: %w", err)
		}
	}
	p := s.plan
	// The context is asked before each step, so that a run ends within one node at the latest.
	s.env.Stopped = func() error { return engine.Stopped(ctx) }
	defer s.drop()
	in := make([]*onnx.Tensor, len(p.inputs))
	for i, v := range p.inputs {
		in[i] = feeds[v.Name]
	}
	if err := s.env.Flushed(func() error { return s.inBlocks(in) }); err != nil {
		return fmt.Errorf("engine pure: %w", err)
	}
	// All outputs are compared before the first is written.
	for name, dst := range fetch {
		v := s.values[p.slot[name]].tensor
		if dst != nil && (dst.DType != v.DType || !slices.Equal(dst.Shape, v.Shape)) {
			return fmt.Errorf("engine pure: output %q is %v, the tensor given for it is %v", name,
				v, dst)
		}
	}
	for name, dst := range fetch {
		v := &s.values[p.slot[name]]
		switch {
		case dst != nil:
			kernel.Copy(dst, v.tensor)
		// The buffer itself becomes the caller's, who is its only holder.
		case v.buffer != nil && v.buffer.refs == 1 && len(fetch) >= 1 && exact(v.tensor):
			fetch[name] = v.tensor
			s.env.Pool.Forget(v.buffer.data)
			v.buffer = nil
		default:
			fetch[name] = v.tensor.Clone()
		}
	}
	return nil
}

// exact says that a tensor's buffer is not much larger than the tensor, so that giving it away
// wastes nothing. The bound is an eighth more, and 64 elements for small tensors.
func exact(t *onnx.Tensor) bool { return kernel.Capacity(t.Data) <= t.Len()+t.Len()/8+64 }

// step runs one node and releases the values that no later node reads. A kernel that fails, or
// makes an output of another type than planned, ends the run.
func (f *frame) step(st *step, c *kernel.Call) error {
	c.Reset()
	for i, k := range st.in {
		if k < 0 {
			continue
		}
		v := &f.values[k]
		c.In[i] = v.tensor
		// The last reader of a buffer that no other value shares may write into it.
		c.Overwrite[i] = v.uses == 1 && v.buffer != nil && v.buffer.refs == 1
	}
	err := c.Do(st.run)
	for i, t := range c.Out {
		if t == nil {
			if err == nil && c.Want[i] {
				err = fmt.Errorf("output %d was not made", i)
			}
			continue
		}
		var b *buffer
		if j := c.Alias[i]; j >= 0 {
			b = f.values[st.in[j]].buffer // nil where the caller or the model owns it
		} else {
			b = &buffer{data: t.Data}
		}
		k := st.out[i]
		if err != nil || k < 0 || f.plan.uses[k] == 0 {
			if b != nil && b.refs == 0 {
				f.env.Pool.Put(b.data)
			}
			continue
		}
		if t.DType != st.types[i] {
			return fmt.Errorf("output %d came out as %v where %v was planned", i, t.DType,
				st.types[i])
		}
		if b != nil {
			b.refs++
		}
		f.values[k].tensor, f.values[k].buffer = t, b
	}
	if err != nil {
		return err
	}
	for _, k := range st.in {
		if k < 0 {
			continue
		}
		v := &f.values[k]
		if v.uses--; v.uses == 0 {
			f.release(v)
		}
	}
	return nil
}

// release gives up a value; its buffer goes back to the pool with the last value that shares it. A
// value that is released already has neither, so that to do it twice is harmless.
func (f *frame) release(v *held) {
	if v.buffer != nil {
		if v.buffer.refs--; v.buffer.refs == 0 {
			f.env.Pool.Put(v.buffer.data)
		}
	}
	v.buffer, v.tensor = nil, nil
}

// drop releases everything at the end of a run, and the calls' hold on the caller's tensors.
func (f *frame) drop() {
	for i := range f.values {
		f.release(&f.values[i])
	}
	for _, c := range f.calls {
		c.Reset()
	}
}
