package kernel

import (
	"fmt"
	"slices"

	"fmp/onnx"
	"fmp/onnx/internal/try"
)

// Body is a graph within a node, made ready by the engine.
type Body struct {
	Out []onnx.ValueInfo // its outputs, with their element types
	// Run evaluates it. The results' buffers come from the call's pool and belong to the caller.
	Run func(c *Call, in []*onnx.Tensor) ([]*onnx.Tensor, error)
}

// If, Loop, Scan: operators that run graphs of their own, which see the values around them.
func init() {
	register(
		Def{Op: "If", Since: 1, New: newIf},
		Def{Op: "Loop", Since: 1, New: newLoop},
		Def{Op: "Scan", Since: 9, New: newScan},
	)
}

// body readies the graph in an attribute for inputs of the given types. It ends by package try
// where the attribute has no graph, or one of other numbers of inputs or outputs. [Evaluate] runs
// no bodies.
func (s *Spec) body(attr string, in []onnx.DType, outputs int) *Body {
	a, ok := s.Node.Attr(attr)
	switch {
	case !ok || a.Graph == nil:
		try.Fail("the attribute %s holds no graph", attr)
	case s.Body == nil:
		try.Fail("graphs within nodes are not run here")
	case len(a.Graph.Inputs) != len(in) || len(a.Graph.Outputs) != outputs:
		try.Fail("%s takes %d inputs and gives %d outputs where %d and %d are expected", attr,
			len(a.Graph.Inputs), len(a.Graph.Outputs), len(in), outputs)
	}
	s.used[attr] = true
	return try.Get(s.Body(a.Graph, in))
}

// results gives the node's outputs the element types of a body's. The second branch of an If must
// agree with the first.
func (s *Spec) results(out []onnx.ValueInfo) {
	for i, v := range out {
		if s.Out[i] != onnx.Undefined && s.Out[i] != v.DType {
			try.Fail("output %d is %v in one branch and %v in the other", i, s.Out[i], v.DType)
		}
		s.Out[i] = v.DType
	}
}

// If runs then_branch where the condition holds, else else_branch; neither has inputs of its own.
// Both branches are prepared, so that a model whose other branch cannot run is refused before the
// first run.
func newIf(s *Spec) (Kernel, error) {
	var branches [2]*Body
	for i, name := range []string{"else_branch", "then_branch"} {
		branches[i] = s.body(name, nil, len(s.Out))
		s.results(branches[i].Out)
	}
	return func(c *Call) error {
		b := branches[0]
		if condition(c.In[0]) {
			b = branches[1]
		}
		copy(c.Out, try.Get(b.Run(c, nil)))
		return nil
	}, nil
}

// condition is the one boolean of a tensor; another number of elements ends the kernel.
func condition(t *onnx.Tensor) bool { return only[bool](t, "the condition") }

// Loop runs its body at most M times, as long as the condition holds:
//
//	condition, v_1..v_n, scanned_1..scanned_k = body(turn, condition, v_1..v_n)
//
// and gives the last v and the scanned values of all turns, one below the other. M that is left out
// means no limit; the run's own end then stops the loop. A carried value keeps its element type,
// but may change its shape.
func newLoop(s *Spec) (Kernel, error) {
	carried := max(0, len(s.In)-2)
	in := append([]onnx.DType{onnx.Int64, onnx.Bool}, s.In[min(2, len(s.In)):]...)
	body := s.body("body", in, len(s.Out)+1)
	s.results(body.Out[1:])
	for i := range carried {
		if s.Out[i] != in[2+i] {
			return nil, fmt.Errorf("carried value %d goes in as %v and comes out as %v", i,
				in[2+i], s.Out[i])
		}
	}
	if body.Out[0].DType != onnx.Bool {
		return nil, fmt.Errorf("the body's condition is %v where bool is expected",
			body.Out[0].DType)
	}
	return func(c *Call) error {
		// No turn has the number -1, which stands for no limit.
		turns, on := int64(-1), true
		if t := c.in(0); t != nil && len(s.In) > 0 {
			turns = max(0, only[int64](t, "the number of turns"))
		}
		if t := c.in(1); t != nil && len(s.In) > 1 {
			on = condition(t)
		}
		st := newTurns(c, carried, body.Out[1:])
		defer st.release()
		for turn := int64(0); on && turn != turns; turn++ {
			out, err := st.run(body, []*onnx.Tensor{onnx.Scalar(turn), onnx.Scalar(on)}, 2, nil, 1)
			if err != nil {
				return fmt.Errorf("turn %d: %w", turn, err)
			}
			on = func() bool {
				defer c.env.Pool.Put(out[0].Data) // whatever its shape is
				return condition(out[0])
			}()
		}
		return st.finish(2, nil, nil)
	}, nil
}

// turns is the state of a loop: the carried values, and the scanned ones of each turn so far.
type turns struct {
	c       *Call
	carried []*onnx.Tensor // nil before the first turn
	scanned [][]*onnx.Tensor
	out     []onnx.ValueInfo // of carried and scanned values
}

// newTurns is the state before the first turn; out tells the types of outputs that no turn makes.
func newTurns(c *Call, carried int, out []onnx.ValueInfo) *turns {
	return &turns{c: c, carried: make([]*onnx.Tensor, carried),
		scanned: make([][]*onnx.Tensor, len(out)-carried), out: out}
}

// run makes one turn: the body is given before, the carried values, which at first are the node's
// inputs from `first` on, and after; its outputs from skip on are the new carried values and the
// scanned ones. Memory of the carried values before goes back to the pool. That of all scanned
// values lasts to the end of the loop, within the session's limit.
func (t *turns) run(body *Body, before []*onnx.Tensor, first int, after []*onnx.Tensor,
	skip int) ([]*onnx.Tensor, error) {
	if err := t.c.env.stopped(); err != nil {
		return nil, err
	}
	in := before
	for i, v := range t.carried {
		if v == nil {
			v = t.c.In[first+i]
		}
		in = append(in, v)
	}
	out, err := body.Run(t.c, append(in, after...))
	if err != nil {
		return nil, err
	}
	for i, v := range out[skip:] {
		if k := i - len(t.carried); k >= 0 {
			t.scanned[k] = append(t.scanned[k], v)
			continue
		}
		if old := t.carried[i]; old != nil {
			t.c.env.Pool.Put(old.Data)
		}
		t.carried[i] = v
	}
	return out, nil
}

// finish makes the node's outputs: the carried values (of no turn: the inputs from first on) and
// the scanned ones joined along axes, nil for the first, in the order of the turns or, where
// backward says so, from the last to the first. Scanned values must have one shape in all turns. Of
// no turn, their shape is that of the body's declaration, with 0 for unknown sizes.
func (t *turns) finish(first int, axes []int, backward []bool) error {
	for i, v := range t.carried {
		if v == nil {
			try.Do(t.c.view(i, first+i, t.c.In[first+i].Shape))
			continue
		}
		t.c.Out[i], t.carried[i] = v, nil
	}
	for k, all := range t.scanned {
		i := len(t.carried) + k
		var one []int // the shape of what a turn gives
		if len(all) > 0 {
			one = all[0].Shape
		} else {
			for _, d := range t.out[i].Shape {
				one = append(one, max(d.Size, 0))
			}
		}
		axis := 0
		if axes != nil {
			axis = try.Get(axisOf(axes[k], len(one)+1))
		}
		shape := append(append(append([]int{}, one[:axis]...), len(all)), one[axis:]...)
		out := try.Get(t.c.New(i, t.out[i].DType, shape))
		inner := product(one[axis:])
		for at, v := range all {
			if !slices.Equal(v.Shape, one) {
				return fmt.Errorf("a scanned value has shape %v in turn %d and had %v in the first",
					v.Shape, at, one)
			}
			if backward != nil && backward[k] {
				at = len(all) - 1 - at
			}
			for o := range product(one[:axis]) {
				copyRange(out.Data, (o*len(all)+at)*inner, v.Data, o*inner, inner)
			}
		}
	}
	return nil
}

// release gives back the memory that did not become an output. It runs after every loop, on an
// error as well.
func (t *turns) release() {
	for _, v := range t.carried {
		if v != nil {
			t.c.env.Pool.Put(v.Data)
		}
	}
	for _, all := range t.scanned {
		for _, v := range all {
			t.c.env.Pool.Put(v.Data)
		}
	}
}

// Scan runs its body for each position of the scanned inputs:
//
//	v_1..v_n, scanned_1..scanned_k = body(v_1..v_n, slice of x_1 .. slice of x_m)
//
// scan_input_axes and scan_output_axes (0) say which axis is scanned, the directions (0) whether
// from the end (1). Negative axes count from the end. All scanned inputs have the same number of
// positions.
func newScan(s *Spec) (Kernel, error) {
	m := s.int("num_scan_inputs")
	carried := len(s.In) - m
	if m < 1 || carried < 0 || carried > len(s.Out) {
		return nil, fmt.Errorf("num_scan_inputs is %d of %d inputs", m, len(s.In))
	}
	body := s.body("body", s.In, len(s.Out))
	s.results(body.Out)
	for i := range carried {
		if s.Out[i] != s.In[i] {
			return nil, fmt.Errorf("carried value %d goes in as %v and comes out as %v", i, s.In[i],
				s.Out[i])
		}
	}
	var lists [4][]int
	for i, suffix := range []string{"input_axes", "input_directions", "output_axes",
		"output_directions"} {
		n := m
		if i > 1 {
			n = len(s.Out) - carried
		}
		if lists[i] = s.ints("scan_" + suffix); lists[i] == nil {
			lists[i] = make([]int, n)
		}
		if len(lists[i]) != n {
			return nil, fmt.Errorf("scan_%s has %d numbers where %d are expected", suffix,
				len(lists[i]), n)
		}
	}
	backward := make([]bool, len(lists[3]))
	for i, d := range lists[3] {
		backward[i] = d == 1
	}
	return func(c *Call) error {
		length := -1
		slices, axes := make([]*onnx.Tensor, m), make([]int, m)
		for i := range slices {
			x := c.In[carried+i]
			axes[i] = try.Get(axisOf(lists[0][i], len(x.Shape)))
			n := x.Shape[axes[i]]
			if length >= 0 && n != length {
				return fmt.Errorf("scanned inputs of %d and of %d positions", length, n)
			}
			length = n
			shape := append(append([]int{}, x.Shape[:axes[i]]...), x.Shape[axes[i]+1:]...)
			// One buffer serves all turns, as the results of a body have buffers of their own.
			buf := try.Get(c.buffer(x.DType, product(shape)))
			slices[i] = &onnx.Tensor{DType: x.DType, Shape: shape, Data: buf}
		}
		st := newTurns(c, carried, body.Out)
		defer st.release()
		for turn := range length {
			for i, v := range slices {
				at := turn
				if lists[1][i] == 1 {
					at = length - 1 - turn
				}
				inner := product(v.Shape[axes[i]:])
				for o := range product(v.Shape[:axes[i]]) {
					copyRange(v.Data, o*inner, c.In[carried+i].Data, (o*length+at)*inner, inner)
				}
			}
			if _, err := st.run(body, nil, 0, slices, 0); err != nil {
				return fmt.Errorf("position %d: %w", turn, err)
			}
		}
		return st.finish(0, lists[2], backward)
	}, nil
}
