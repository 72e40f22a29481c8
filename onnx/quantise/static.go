package quantise

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"math"
	"slices"

	"fmp/onnx"
	"fmp/onnx/check"
	"fmp/onnx/engine"
	"fmp/onnx/internal/try"
	"fmp/onnx/pass"
	"fmp/onnx/shape"
)

// Options of [Static]. Zero fields but Float have the defaults of [Defaults].
type Options struct {
	Method Method
	// Percentile of the numbers of a value that its range holds, above 50 and up to 100.
	Percentile float64
	// Loss is the most that an output may lose, as a share of its variance. Where one loses more,
	// the layers that cost most stay in float32.
	Loss float64
	// Float is the most layers that may stay in float32 for their loss, as a share of those that
	// can compute in bytes, rounded up to whole layers; 0 lets none.
	Float float64
	// Bits of weights: 8, or 7 for x86 processors without VNNI: there the ONNX Runtime adds two
	// products of an activation and a weight in 16 bits, and saturates where weights have 8, unless
	// session.x64quantprecision is set.
	Bits int
	// Progress, where it is not nil, is told of each run of the model.
	Progress func(done, all int)
}

// Defaults returns the default options.
func Defaults() Options {
	return Options{Method: MSE, Percentile: 99.99, Loss: .01, Float: .1, Bits: 8}
}

// Report describes a quantised model.
type Report struct {
	Layers int      `json:"layers"`           // convolutions and products of inputs with constant weights
	Float  []string `json:"float,omitempty"`  // of them, those left in float32
	Folded int      `json:"folded,omitempty"` // normalisations that were folded
	// Loss is the squared error of an output on the images that chose no range, as a share of its
	// variance ([Sums.Loss]), of the output that loses most; All is that with all layers in bytes
	// that can be.
	Loss Loss `json:"loss"`
	All  Loss `json:"loss_of_all_layers"`
}

// Batch is the inputs of one run of a model.
type Batch = map[string]*onnx.Tensor

// Static returns a copy of m whose products compute in bytes. Ranges are those of the batches, of
// which a half chooses them and the other measures the loss, of two images at least; one batch
// alone does both. Models are run on e. The time is that of four runs a batch, and, where layers
// may stay in float32, of one more for each layer and each measuring batch.
func Static(ctx context.Context, m *onnx.Model, e engine.Engine, batches []Batch,
	o Options) (*onnx.Model, *Report, error) {
	d := Defaults()
	o.Method, o.Percentile, o.Loss = cmp.Or(o.Method, d.Method), cmp.Or(o.Percentile, d.Percentile),
		cmp.Or(o.Loss, d.Loss)
	o.Bits = cmp.Or(o.Bits, d.Bits)
	switch {
	case !slices.Contains(Methods(), o.Method):
		return nil, nil, fmt.Errorf("quantising: method %q; allowed are %v", o.Method, Methods())
	case o.Bits != 7 && o.Bits != 8:
		return nil, nil, fmt.Errorf("quantising: weights of %d bits; allowed are 7 and 8", o.Bits)
	case !(o.Percentile > 50 && o.Percentile <= 100):
		return nil, nil, fmt.Errorf("quantising: percentile %v; allowed are numbers above 50, up to 100",
			o.Percentile)
	case !(o.Loss > 0) || !(o.Float >= 0 && o.Float <= 1):
		return nil, nil, fmt.Errorf("quantising: loss %v and share in float32 %v; allowed are a loss "+
			"above 0 and a share of 0 to 1", o.Loss, o.Float)
	case len(batches) == 0:
		return nil, nil, errors.New("quantising: there are no images to take ranges from")
	}
	s := &static{options: o, engine: e, spans: map[string]*span{}}
	q, err := s.quantise(ctx, m, batches)
	if err != nil {
		return nil, nil, fmt.Errorf("quantising: %w", err)
	}
	return q, &s.report, nil
}

// quantise takes ranges from the first half of the batches, so that the loss is of images that
// chose none.
func (s *static) quantise(ctx context.Context, m *onnx.Model, batches []Batch) (q *onnx.Model,
	err error) {
	defer try.Catch(&err)
	s.prepare(m)
	choose, measure := batches, batches
	if half := (len(batches) + 1) / 2; half < len(batches) {
		choose, measure = batches[:half], batches[half:]
	}
	s.calibrate(ctx, choose)
	best := s.choose(ctx, measure)
	return best, check.Model(best)
}

// static is one model on its way.
type static struct {
	options Options
	engine  engine.Engine
	model   *onnx.Model // ready to be quantised
	types   map[string]onnx.DType
	fed     map[string]bool // values that depend on the model's inputs
	layers  []int           // nodes
	spans   map[string]*span
	report  Report
}

// ready returns a copy of m of some operator set or a later one, without functions, weights in half
// precision and foldable normalisations, and the number of these. Optional inputs stay such. m is
// not changed; the passes take it as a copy.
func ready(m *onnx.Model, opset int) (*onnx.Model, int, error) {
	c := onnx.Clone(m)
	err := pass.Inline(c)
	if err == nil {
		pass.RestoreHalf(c)
	}
	if err == nil && c.Opset() < int64(opset) {
		err = pass.Upgrade(c, max(opset, onnx.DefaultOpset))
	}
	if err == nil {
		err = errors.Join(shape.Infer(c), check.Model(c))
	}
	if err != nil {
		return nil, 0, err
	}
	g := c.Graph
	// Simplifying and folding take initializers for constants, and so these are inputs meanwhile.
	inputs, optional, defaults := g.Inputs, g.Optional, map[string]*onnx.Tensor{}
	g.Inputs, g.Optional = slices.Concat(inputs, optional), nil
	for _, v := range optional {
		defaults[v.Name] = g.Initializers[v.Name]
		delete(g.Initializers, v.Name)
	}
	if err := pass.Simplify(c); err != nil {
		return nil, 0, err
	}
	g = c.Graph
	before := len(g.Nodes)
	foldNormalisation(c)
	folded := before - len(g.Nodes)
	g.Inputs, g.Optional = inputs, optional
	maps.Copy(g.Initializers, defaults)
	pass.RemoveUnused(g)
	return c, folded, shape.Infer(c)
}

// see makes m the model that is quantised. c is kept and not copied, and build clones it for each
// trial.
func (s *static) see(c *onnx.Model) {
	s.model, s.types, s.fed = c, map[string]onnx.DType{}, map[string]bool{}
	for _, vs := range [][]onnx.ValueInfo{c.Graph.Inputs, c.Graph.Values, c.Graph.Outputs} {
		for _, v := range vs {
			s.types[v.Name] = v.DType
		}
	}
	for _, v := range c.Graph.Inputs {
		s.fed[v.Name] = true
	}
	for _, n := range c.Graph.Nodes {
		depends := slices.ContainsFunc(n.Reads(), func(v string) bool { return s.fed[v] })
		for _, o := range n.Outputs {
			s.fed[o] = depends
		}
	}
}

// prepare readies a model, and finds its layers.
func (s *static) prepare(m *onnx.Model) {
	// DequantizeLinear has a scale for each channel from operator set 13 on.
	c, folded := try.Get2(ready(m, 13))
	foldFactors(c.Graph)
	s.see(c)
	s.report.Folded = folded
	for i, n := range c.Graph.Nodes {
		if n.Op == "QuantizeLinear" || n.Op == "DequantizeLinear" {
			try.Fail("it is quantised already")
		}
		if s.weights(n) != nil && s.active(n.Inputs[0]) {
			s.layers = append(s.layers, i)
		}
	}
	if s.report.Layers = len(s.layers); s.report.Layers == 0 {
		try.Fail("it has no convolution or product of its inputs with constant weights")
	}
}

// weights returns the constant float32 weights of a product, nil where there are none.
func (s *static) weights(n *onnx.Node) *onnx.Tensor {
	if n.Domain != "" || !slices.Contains([]string{"Conv", "MatMul", "Gemm"}, n.Op) ||
		len(n.Inputs) < 2 ||
		s.types[n.Inputs[0]] != onnx.Float32 {
		return nil
	}
	w := constant(s.model.Graph, n.Inputs[1])
	if w == nil || w.DType != onnx.Float32 || len(w.Shape) < 2 || w.Len() == 0 {
		return nil
	}
	return w
}

// constant is an initializer, nil where it is none or the default of an optional input.
func constant(g *onnx.Graph, name string) *onnx.Tensor {
	if slices.ContainsFunc(g.Optional, func(v onnx.ValueInfo) bool { return v.Name == name }) {
		return nil
	}
	return g.Initializers[name]
}

// active is a value of float32 that depends on the images: no constant, and no optional input.
func (s *static) active(name string) bool {
	return s.types[name] == onnx.Float32 && s.fed[name]
}

// calibrate collects the ranges of all values, in two passes: ends, then histograms. All values are
// outputs of one run, so that memory is that of all activations of a batch.
func (s *static) calibrate(ctx context.Context, batches []Batch) {
	all := onnx.Clone(s.model)
	all.Graph.Outputs = nil
	for _, v := range append(slices.Clone(s.model.Graph.Values), s.model.Graph.Outputs...) {
		if s.active(v.Name) {
			all.Graph.Outputs = append(all.Graph.Outputs, v)
			s.spans[v.Name] = &span{}
		}
	}
	for _, v := range s.model.Graph.Inputs {
		if s.active(v.Name) {
			s.spans[v.Name] = &span{}
		}
	}
	session := try.Get(s.engine.Load(all))
	defer session.Close()
	for turn := range 2 {
		for i, b := range batches {
			s.tell(turn*len(batches)+i, 2*len(batches))
			out := evaluate(ctx, session, b)
			// Values are gone through in order, so that the first bad one is the same each time.
			for _, name := range slices.Sorted(maps.Keys(s.spans)) {
				// The numbers of an input are the batch's own.
				sp, t := s.spans[name], cmp.Or(out[name], b[name])
				if turn == 1 {
					sp.add(t.F32())
				} else if err := sp.widen(t.F32()); err != nil {
					try.Fail("value %q: %w", name, err)
				}
			}
		}
		// A mask of -Inf has no range: it stays in float32, and so do the layers that need one.
		maps.DeleteFunc(s.spans, func(_ string, sp *span) bool { return math.IsInf(sp.hi-sp.lo, 0) })
	}
	outputs := s.model.Graph.Outputs // by the first of float32 models are compared
	if i := slices.IndexFunc(outputs, func(v onnx.ValueInfo) bool { return s.active(v.Name) }); i >= 0 &&
		s.spans[outputs[i].Name] == nil {
		try.Fail("output %q: a number is infinite; export the model without this output, or store the "+
			"weights alone in few bits (fmp onnx quantise --weights-only 8)", outputs[i].Name)
	}
	s.leave()
}

// leave leaves the layers in float32 whose input cannot be quantised.
func (s *static) leave() {
	nodes := s.model.Graph.Nodes
	first := nodes[s.layers[0]]
	s.layers = slices.DeleteFunc(s.layers, func(l int) bool {
		if s.can(nodes[l].Inputs[0]) {
			return false
		}
		s.report.Float = append(s.report.Float, nodes[l].Label())
		return true
	})
	if len(s.layers) == 0 {
		try.Fail("value %q: it is infinite, 0 throughout or an output of the model, and so is the "+
			"input of each other layer: none can compute in bytes; store the weights alone in few bits "+
			"(fmp onnx quantise --weights-only 8)", first.Inputs[0])
	}
}

// can reports whether a value can be quantised: a float32 that is no constant and no output of the
// model. One that was 0 throughout has no range: an adapter that is still to be fed gives such.
func (s *static) can(v string) bool {
	return s.spans[v] != nil && s.spans[v].lo < s.spans[v].hi &&
		!slices.ContainsFunc(s.model.Graph.Outputs, func(o onnx.ValueInfo) bool { return o.Name == v })
}

func (s *static) tell(done, all int) {
	if s.options.Progress != nil {
		s.options.Progress(done, all)
	}
}

// evaluate fetches all outputs of one run. An error of the run ends the caller by package try.
func evaluate(ctx context.Context, s engine.Session, b Batch) map[string]*onnx.Tensor {
	fetch := map[string]*onnx.Tensor{}
	for _, o := range s.Outputs() {
		fetch[o.Name] = nil
	}
	try.Do(s.Run(ctx, b, fetch))
	return fetch
}

// choose quantises all layers, and leaves those in float32 that cost most where the loss is too
// large. Each layer is tried alone in float32, and then layers join in the order of the loss that
// is left. That takes one trial a layer and at most Float of them more, in place of every subset.
func (s *static) choose(ctx context.Context, batches []Batch) *onnx.Model {
	var want []map[string]*onnx.Tensor
	session := try.Get(s.engine.Load(s.model))
	defer session.Close()
	for _, b := range batches {
		want = append(want, evaluate(ctx, session, b))
	}
	float := map[int]bool{}
	best := s.build(float)
	s.report.Loss = s.loss(ctx, best, batches, want)
	s.report.All = s.report.Loss
	most := int(math.Ceil(s.options.Float * float64(len(s.layers))))
	if s.report.Loss <= Loss(s.options.Loss) || most == 0 {
		return best
	}
	losses := map[int]Loss{}
	for i, l := range s.layers {
		s.tell(i, len(s.layers))
		losses[l] = s.loss(ctx, s.build(map[int]bool{l: true}), batches, want)
	}
	order := slices.Clone(s.layers)
	slices.SortStableFunc(order, func(a, b int) int { return cmp.Compare(losses[a], losses[b]) })
	for _, l := range order[:most] {
		float[l] = true
		m := s.build(float)
		loss := s.loss(ctx, m, batches, want)
		// It costs nothing beside the others; of an infinite loss several layers may have a part.
		if loss >= s.report.Loss && !math.IsInf(float64(loss), 0) {
			delete(float, l)
			continue
		}
		best, s.report.Loss = m, loss
		s.report.Float = append(s.report.Float, s.model.Graph.Nodes[l].Label())
		if loss <= Loss(s.options.Loss) {
			break
		}
	}
	return best
}

// loss is that of the output of finite float32 numbers that loses most. Losses of several outputs
// are not added, as they may be of different units.
func (s *static) loss(ctx context.Context, m *onnx.Model, batches []Batch,
	want []map[string]*onnx.Tensor) Loss {
	session := try.Get(s.engine.Load(m))
	defer session.Close()
	total := map[string]*Sums{}
	for i, b := range batches {
		out := evaluate(ctx, session, b)
		for _, name := range slices.Sorted(maps.Keys(want[i])) {
			w, y := want[i][name], out[name].F32()
			if w.DType != onnx.Float32 {
				continue // no part of the loss
			}
			if !slices.Equal(out[name].Shape, w.Shape) {
				try.Fail("output %q: its shape depends on the images: it is %v, and %v in bytes; export "+
					"the model without this output", name, w.Shape, out[name].Shape)
			}
			if total[name] == nil {
				total[name] = &Sums{}
			}
			// The sums are of images: a batch's output is cut into theirs.
			for x, size := w.F32(), imageSize(w, b); len(x) > 0; x, y = x[size:], y[size:] {
				total[name].Add(x[:size], y[:size])
			}
		}
	}
	worst := Loss(-1)
	for _, t := range total {
		if l := t.Loss(); !t.left && !math.IsNaN(float64(l)) {
			worst = max(worst, l)
		}
	}
	if worst < 0 {
		try.Fail("no output is of float32 numbers that differ between images: the loss cannot be told; " +
			"give more images, or others")
	}
	return worst
}

// imageSize returns how many numbers of an output are of one image: those of one row, where the
// first axis is that of an input, and else all.
func imageSize(t *onnx.Tensor, b Batch) int {
	for _, in := range b {
		if len(t.Shape) > 0 && len(in.Shape) > 0 && t.Shape[0] == in.Shape[0] && t.Shape[0] > 0 {
			return t.Len() / t.Shape[0]
		}
	}
	return t.Len()
}
