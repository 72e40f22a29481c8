package models

import (
	"fmt"
	"slices"
	"strings"

	"fmp/onnx"
	"fmp/onnx/build"
	"fmp/onnx/check"
	"fmp/onnx/shape"
)

// Names of a classifier that can be adapted to a new owner's camera: the input shift [dx], which
// softened features are taken less of and which is 0 where it is not fed, and the output
// estimated_shift [dx], the shift that the images of a call have in common, of which no class need
// be known.
const (
	ShiftInput  = "shift"
	ShiftOutput = "estimated_shift"
)

// minWider bounds f - 1 from below, under the division.
const minWider = 1e-6

// shiftTurns is the number of steps of expectation and maximization. The number is fixed, so that
// the graph has no loop.
const shiftTurns = 10

// ShiftParts are the parts of the estimate of a shift b, which is N(0, diag(Variance)) in r
// directions in which the covariance within classes is I, and has variance Rest, in units of that
// covariance, in all others. With the probabilities p_i of n images i given b, and features
// softened to phi_i,
//
//	p_i = softmax(rows_i Head + Bias - b Slope)
//	f   = sum (sum_i p_i - n s)^2/(n s)/(C - 1)                     s = Shares/sum Shares
//	a   = min(sum Shares, (n - f)/(f - 1))
//	q   = (sum_i p_i + a s)/(n + a)                shares of the classes, a Dirichlet prior's
//	d   = mean_i phi_i - q Means,  o = d - d To Back
//	e   = max(1, f)/n where Rest is 0, else 1/n
//	u   = max(Rest, |o|^2/Trace - e)
//	b   = Variance/(Variance + 1/n) (d To) Back + u/(u + e) o
//
// are steps of expectation and maximization to the most probable b (Dempster, Laird and Rubin
// 1977). u is the variance of greatest marginal likelihood (empirical Bayes; Morris 1983) where the
// images tell of a larger one than the clients: another kind of camera shifts images in other
// directions than the clients' do. Where most clients have no shift (Rest is 0) and the images'
// classes have other shares than the clients', o is also of classes that are told wrong, and its
// variance is f times as large (quasi-likelihood; Wedderburn 1974). So is a, by the first moment of
// chi squared (Mosimann 1962), where the images' classes have other shares than the clients'.
type ShiftParts struct {
	To       *onnx.Tensor // [dx, r], softened features to the directions; nil for r = 0
	Back     *onnx.Tensor // [r, dx]
	Means    *onnx.Tensor // [C, dx], class means
	Variance *onnx.Tensor // [r]
	Rest     float32
	// of the covariance within classes outside of the directions; 0: there are no others
	Trace  float32
	Shares *onnx.Tensor // [C]
	Head   *onnx.Tensor // [k, C] of the coordinates, and
	Bias   *onnx.Tensor // [C]
}

// WithShift returns a graph of coordinates, features [n, dx] to coordinates [n, k], with the input
// shift and the output estimated_shift. The coordinates are a conjugate predictor's, of which
// further outputs read shifted features too, or embedded features (MomentsCoordinates), which the
// shift is of then, and dx is k. The graph given is not changed, and p's tensors are copied.
func WithShift(coordinates *onnx.Model, p ShiftParts) (m *onnx.Model, err error) {
	defer wrapped(&err, "adding a shift")
	m = onnx.Clone(coordinates)
	phi, rows, v, r := shiftPlace(m)
	if phi == "" {
		return nil,
			fmt.Errorf("graph %q is none of a conjugate predictor's coordinates or of embedded "+
				"features", m.Graph.Name)
	}
	dx, k, slope := p.Means.Shape[1], p.Head.Shape[0], p.Head
	if v != nil {
		slope = product(product(v, r), p.Head)
	}
	if slope.Shape[0] != dx {
		return nil, fmt.Errorf("class means have %d numbers, and what a shift is of has %d",
			dx, slope.Shape[0])
	}

	b := build.New("shift")
	features, at := b.Input("phi", onnx.Float32, "n", dx), b.Input("rows", onnx.Float32, "n", k)
	shift := b.Input(ShiftInput, onnx.Float32, dx)
	along := b.Param("shift/slope", slope.Clone()) // [dx, C]
	logits := b.Op("Gemm", []build.Ref{at, b.Param("shift/head", p.Head.Clone()),
		b.Param("shift/bias", p.Bias.Clone())})
	logits = b.Add(logits, b.MatMul(b.Unsqueeze(shift, 0), along)) // of features as they are
	s := newShiftStep(b, p, features)
	var moved build.Ref
	for turn := range shiftTurns {
		z := logits
		if turn > 0 {
			z = b.Sub(z, b.MatMul(moved, along))
		}
		moved = s.next(b.Softmax(z, 1))
	}
	b.Output(ShiftOutput, b.Squeeze(moved, 0))
	estimate, err := b.Model()
	if err != nil {
		return nil, err
	}
	return joined(m, estimate, phi, rows)
}

// shiftPlace returns the values of a graph that a shift is subtracted from, and its coordinates,
// and the maps between these: nil where they are the same. phi is "" where the graph is of another
// kind.
func shiftPlace(m *onnx.Model) (phi, rows string, v, r *onnx.Tensor) {
	g := m.Graph
	if len(g.Inputs) != 1 || len(g.Outputs) == 0 {
		return "", "", nil, nil
	}
	rows = g.Outputs[0].Name
	at := slices.IndexFunc(g.Nodes,
		func(n *onnx.Node) bool { return n.Op == "MatMul" && n.Input(1) == ConjMap })
	v, r = g.Initializers[ConjMap], g.Initializers[ConjMetric]
	switch {
	case at >= 0 && v != nil && r != nil:
		return g.Nodes[at].Inputs[0], rows, v, r
	case at < 0 && len(g.Outputs) == 1 && rows == ConjCoordinates:
		return rows, rows, nil, nil
	}
	return "", "", nil, nil
}

// shiftStep is a step of expectation and maximization.
type shiftStep struct {
	b                                *build.Builder
	p                                ShiftParts
	mean, images, once               build.Ref // of the features [1, dx]; n; 1/n
	means, shares, all               build.Ref // shares sum to 1, all is the sum
	to, back, variance, rest, traces build.Ref
}

// newShiftStep adds the constants of all steps, and the values of the features that each step
// takes.
// Constants stand once in the graph, whatever the number of steps.
func newShiftStep(b *build.Builder, p ShiftParts, features build.Ref) *shiftStep {
	s := &shiftStep{b: b, p: p, mean: b.ReduceMean(features, true, 0),
		means: b.Param("shift/means", p.Means.Clone())}
	s.images = b.Cast(b.Slice(b.Op("Shape", []build.Ref{features}), 0, 0, 1), onnx.Float32)
	s.once = b.Div(b.F32(1), s.images)
	shares := b.Param("shift/shares", p.Shares.Clone())
	s.all = b.ReduceSum(shares, true, 0)
	s.shares = b.Div(shares, s.all)
	if p.To != nil {
		s.to, s.back = b.Param("shift/to", p.To.Clone()), b.Param("shift/back", p.Back.Clone())
		s.variance = b.Param("shift/variance", p.Variance.Clone())
	}
	if p.Trace > 0 {
		s.rest, s.traces = b.Param("shift/rest", onnx.Vector(p.Rest)),
			b.Param("shift/trace", onnx.Vector(p.Trace))
	}
	return s
}

// next returns b [1, dx], given the images' probabilities. p is [n, C]. The names are those of
// [ShiftParts].
func (s *shiftStep) next(p build.Ref) build.Ref {
	b := s.b
	sum, want := b.ReduceSum(p, true, 0), b.Mul(s.images, s.shares) // [1, C] and [C]
	// f, in wide: by how much the classes' shares vary more than by chance.
	off := b.Sub(sum, want)
	wide := b.Div(b.ReduceSum(b.Div(b.Mul(off, off), want), true, 1),
		b.F32(float32(s.p.Shares.Len()-1)))
	a := b.Div(b.Relu(b.Sub(s.images, wide)),
		b.Op("Max", []build.Ref{b.Sub(wide, b.F32(1)), b.F32(minWider)}))
	a = b.Op("Min", []build.Ref{a, s.all})
	// The classes' shares, and the mean of the images less that of these classes.
	q := b.Div(b.Add(sum, b.Mul(a, s.shares)), b.Add(s.images, a))
	d := b.Sub(s.mean, b.MatMul(q, s.means))
	// x v/(v + noise) is the posterior mean of a normal prior of variance v.
	gained := func(x, v, noise build.Ref) build.Ref { return b.Mul(x, b.Div(v, b.Add(v, noise))) }
	noise := s.once
	if s.p.Rest == 0 {
		noise = b.Mul(noise, b.Op("Max", []build.Ref{wide, b.F32(1)}))
	}
	outside := func(o build.Ref) build.Ref {
		tells := b.Div(b.ReduceSum(b.Mul(o, o), true, 1), s.traces)
		return gained(o, b.Op("Max", []build.Ref{s.rest, b.Sub(tells, noise)}), noise)
	}
	if s.p.To == nil {
		return outside(d)
	}
	in := b.MatMul(d, s.to)
	moved := b.MatMul(gained(in, s.variance, s.once), s.back)
	if s.p.Trace > 0 {
		moved = b.Add(moved, outside(b.Sub(d, b.MatMul(in, s.back))))
	}
	return moved
}

// joined returns a graph whose nodes read phi less the shift, or give it where phi is the output
// rows, and the estimate, which reads both. The graph m is changed in place, and the estimate's
// nodes become its own.
func joined(m, estimate *onnx.Model, phi, rows string) (*onnx.Model, error) {
	g, from := m.Graph, "shift/from"
	dx := estimate.Graph.Inputs[0].Shape[1].Size
	at := slices.IndexFunc(g.Nodes,
		func(n *onnx.Node) bool { return slices.Contains(n.Inputs, phi) && n.Input(1) == ConjMap })
	if phi == rows {
		last := slices.IndexFunc(g.Nodes,
			func(n *onnx.Node) bool { return slices.Contains(n.Outputs, rows) })
		if last < 0 {
			return nil, fmt.Errorf("graph %q has no node that computes %q", g.Name, rows)
		}
		phi, from, at = "shift/phi", rows, last+1
		out := g.Nodes[last].Outputs
		out[slices.Index(out, rows)] = phi
	} else {
		g.Nodes[at].Inputs[0] = from
	}
	graft(g, estimate.Graph, map[string]string{"phi": phi, "rows": rows}, shiftName)
	g.AddOptional(ShiftInput, onnx.ZerosF32(dx))
	g.Nodes = slices.Insert(g.Nodes, at,
		&onnx.Node{Name: "shift/from", Op: "Sub", Inputs: []string{phi, ShiftInput},
			Outputs: []string{from}})
	g.Nodes = append(g.Nodes, estimate.Graph.Nodes...)
	g.Outputs = append(g.Outputs,
		onnx.ValueInfo{Name: ShiftOutput, DType: onnx.Float32, Shape: []onnx.Dim{onnx.Known(dx)}})
	g.Values = nil
	if err := shape.Infer(m); err != nil {
		return nil, err
	}
	return m, check.Model(m)
}

// graft gives a part's values and nodes their own names within a graph, but for inputs that stand
// for values of the graph, and adds its constants. The part's nodes are changed in place, and are
// the caller's to append.
func graft(g, part *onnx.Graph, inputs map[string]string, own func(name string) string) {
	name := func(v string) string {
		if to, ok := inputs[v]; ok || v == "" {
			return to
		}
		return own(v)
	}
	for _, n := range part.Nodes {
		n.Name = own(n.Name)
		for i, v := range n.Inputs {
			n.Inputs[i] = name(v)
		}
		for i, v := range n.Outputs {
			n.Outputs[i] = name(v)
		}
	}
	for v, t := range part.Initializers {
		g.Initializers[own(v)] = t
	}
}

// shiftName returns the name within the classifier of a value of the estimate's graph.
func shiftName(name string) string {
	if name == "" || name == ShiftInput || name == ShiftOutput ||
		strings.HasPrefix(name, "shift/") {
		return name
	}
	return "shift/" + name
}

// product returns the product of matrices, [n, m] and [m, k]. Sums are in float64, and the result
// is rounded once.
func product(a, b *onnx.Tensor) *onnx.Tensor {
	n, m, k := a.Shape[0], a.Shape[1], b.Shape[1]
	out := onnx.ZerosF32(n, k)
	for i := range n {
		for j := range k {
			var sum float64
			for l, v := range a.F32()[i*m : (i+1)*m] {
				sum += float64(v) * float64(b.F32()[l*k+j])
			}
			out.F32()[i*k+j] = float32(sum)
		}
	}
	return out
}

// Adapted returns a classifier whose shift is that of an owner's images, as estimated_shift gives
// it. The classifier given is not changed.
func Adapted(classifier *onnx.Model, shift *onnx.Tensor) (*onnx.Model, error) {
	m := onnx.Clone(classifier)
	if err := m.Graph.SetDefault(ShiftInput, shift); err != nil {
		return nil, fmt.Errorf("adapting a classifier: %w", err)
	}
	return m, nil
}
