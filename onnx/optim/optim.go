// Package optim turns gradient models into training steps: an optimizer's update becomes nodes of
// the same graph, so that one run of one ordinary ONNX model takes parameters, moments and a batch
// to new parameters and new moments.
//
// Names. A parameter p comes with its gradient grad_p; the update reads the moment state of p as
// m_p (and v_p for AdamW), and writes new_p, new_m_p, new_v_p. Whatever is called new_x replaces x
// in the next step. The rate and other numbers that change from step to step are scalar inputs,
// given by [Optimizer.Scalars]. A model that has one of these names already is refused.
package optim

import (
	"cmp"
	"fmt"
	"maps"
	"math"
	"slices"

	"fmp/onnx"
	"fmp/onnx/check"
	"fmp/onnx/shape"
)

// Names that the fragments use.
const (
	GradPrefix = "grad_" // gradient of a parameter
	NewPrefix  = "new_"  // what replaces a value in the next step
	EMAPrefix  = "ema_"  // running average of a parameter
	RateInput  = "rate"  // learning rate, float32 scalar
	NormOutput = "grad_norm"
)

// Optimizer is a rule that updates parameters from gradients.
type Optimizer interface {
	// State lists the prefixes of the values, of each parameter's shape and zero at first, that are
	// carried from step to step.
	State() []string
	// Scalars are the numbers that step t (from 1) feeds at learning rate rate.
	Scalars(t int, rate float64) map[string]float32
	// update adds the nodes for one parameter: its new value, then its new state.
	update(f *fragment, p param) (value string, state []string)
}

// SGD is stochastic gradient descent with momentum (Sutskever, Martens, Dahl and Hinton 2013), in
// the form
//
//	m' = μ m + g,  p' = p - rate (g + μ m')  with Nesterov's, p - rate m' without.
type SGD struct {
	Momentum float64 // μ in [0, 1); default 0
	Nesterov bool
	// WeightDecay adds WeightDecay·p to the gradient of every parameter of rank 2 or more. Default
	// 0.
	WeightDecay float64
}

// AdamW is Adam with decoupled weight decay (Loshchilov and Hutter 2019):
//
//	m' = β1 m + (1-β1) g,  v' = β2 v + (1-β2) g²,
//	p' = p - rate (m'/(1-β1^t) / (sqrt(v'/(1-β2^t)) + ε) + WeightDecay p).
type AdamW struct {
	Beta1   float64 // default 0.9
	Beta2   float64 // default 0.999
	Epsilon float64 // default 1e-8
	// WeightDecay shrinks parameters of rank 2 or more. Default 0.
	WeightDecay float64
}

var (
	_ Optimizer = SGD{}
	_ Optimizer = AdamW{}
)

// Options of a fragment.
type Options struct {
	// ClipNorm scales all gradients by one factor where the norm of all together is over it
	// (Pascanu, Mikolov and Bengio 2013); 0 leaves them.
	ClipNorm float64
	// EMA in (0, 1) keeps for every parameter p a running average ema_p' = EMA ema_p + (1-EMA) p';
	// 0 keeps none.
	EMA float64
	// RateOf are factors of the learning rate for some of the parameters, 0 and up; for the others
	// it is 1.
	RateOf map[string]float64
}

// Attach appends the update of the named parameters to a model that has each as a float32 input of
// known shape and computes, or is given, its gradient grad_p. The gradients cease to be outputs;
// the norm of all together (before clipping) becomes the output grad_norm. m is changed.
func Attach(m *onnx.Model, params []string, o Optimizer, opt Options) error {
	f := &fragment{g: m.Graph, taken: map[string]bool{}}
	if err := f.check(params, o, opt); err != nil {
		return fmt.Errorf("attaching an optimizer to %q: %w", m.Graph.Name, err)
	}
	for _, name := range slices.Sorted(maps.Keys(o.Scalars(1, 1))) {
		if f.taken[name] {
			return fmt.Errorf("attaching an optimizer to %q: the model has a value %q, which is the name of "+
				"a number of the optimizer; rename it", m.Graph.Name, name)
		}
		f.g.Inputs = append(f.g.Inputs,
			onnx.ValueInfo{Name: name, DType: onnx.Float32, Shape: onnx.Shape()})
	}
	var squares []string
	grads := map[string]bool{}
	for _, p := range params {
		grads[GradPrefix+p] = true
		squares = append(squares,
			f.op("ReduceSumSquare", []string{GradPrefix + p}, onnx.IntAttr("keepdims", 0)))
	}
	var outputs []onnx.ValueInfo
	for _, v := range m.Graph.Outputs {
		if !grads[v.Name] {
			outputs = append(outputs, v)
		}
	}
	m.Graph.Outputs = outputs
	norm := f.op("Sqrt", []string{f.op("Sum", squares)})
	f.output(NormOutput, norm, onnx.ValueInfo{DType: onnx.Float32, Shape: onnx.Shape()})
	scale := ""
	if opt.ClipNorm > 0 {
		scale = f.op("Min", []string{f.num(1),
			f.op("Div", []string{f.num(opt.ClipNorm), f.op("Add", []string{norm, f.num(1e-6)})})})
	}
	for _, name := range params {
		info, _ := m.Graph.Input(name)
		p := param{name: name, grad: GradPrefix + name, matrix: len(info.Shape) >= 2,
			rate: RateInput}
		if factor, ok := opt.RateOf[name]; ok {
			p.rate = f.op("Mul", []string{RateInput, f.num(factor)})
		}
		if scale != "" {
			p.grad = f.op("Mul", []string{p.grad, scale})
		}
		for _, s := range o.State() {
			f.g.Inputs = append(f.g.Inputs,
				onnx.ValueInfo{Name: s + name, DType: info.DType, Shape: info.Shape})
			p.state = append(p.state, s+name)
		}
		value, state := o.update(f, p)
		f.output(NewPrefix+name, value, info)
		for i, s := range o.State() {
			f.output(NewPrefix+s+name, state[i], info)
		}
		if opt.EMA > 0 {
			ema := EMAPrefix + name
			f.g.Inputs = append(f.g.Inputs, onnx.ValueInfo{Name: ema, DType: info.DType,
				Shape: info.Shape})
			f.output(NewPrefix+ema, f.mix(ema, value, opt.EMA), info)
		}
	}
	m.Graph.Values = nil
	if err := shape.Infer(m); err != nil {
		return fmt.Errorf("attaching an optimizer to %q: %w", m.Graph.Name, err)
	}
	if err := check.Model(m); err != nil {
		return fmt.Errorf("attaching an optimizer to %q: %w", m.Graph.Name, err)
	}
	return nil
}

// StepModel returns the model of the update alone: its inputs are p and grad_p for every parameter,
// their state and the scalars.
func StepModel(params []onnx.ValueInfo, o Optimizer, opt Options) (*onnx.Model, error) {
	g := &onnx.Graph{Name: "update", Initializers: map[string]*onnx.Tensor{}}
	var names []string
	for _, p := range params {
		names = append(names, p.Name)
		g.Inputs = append(g.Inputs, p,
			onnx.ValueInfo{Name: GradPrefix + p.Name, DType: p.DType, Shape: p.Shape})
	}
	m := onnx.NewModel(g)
	return m, Attach(m, names, o, opt)
}

// param is one parameter as an update sees it.
type param struct {
	name, grad string
	state      []string
	rate       string // learning rate
	matrix     bool   // of rank 2 or more: a weight that decays, not a bias or a gain
}

// fragment appends nodes to a graph.
type fragment struct {
	g     *onnx.Graph
	taken map[string]bool
	n     int
}

func (f *fragment) check(params []string, o Optimizer, opt Options) error {
	if len(params) == 0 {
		return fmt.Errorf("no parameters named")
	}
	for p, factor := range opt.RateOf {
		if !(factor >= 0) || !slices.Contains(params, p) {
			return fmt.Errorf("the factor of the learning rate of %q is %v; allowed are 0 and up, of the "+
				"parameters %q", p, factor, params)
		}
	}
	if !(opt.ClipNorm >= 0 && opt.EMA >= 0 && opt.EMA < 1) {
		return fmt.Errorf("the norm to clip at is %v and the running average's factor %v; allowed are "+
			"0 and up, and 0 to less than 1", opt.ClipNorm, opt.EMA)
	}
	for _, n := range f.g.Nodes {
		for _, out := range n.Outputs {
			f.taken[out] = true
		}
	}
	for _, v := range f.g.Inputs {
		f.taken[v.Name] = true
	}
	for name := range f.g.Initializers {
		f.taken[name] = true
	}
	for _, p := range params {
		if err := f.checkParam(p); err != nil {
			return err
		}
	}
	return checkOptimizer(o)
}

// checkParam returns an error unless a parameter is a float32 input of a fixed shape with a
// gradient.
func (f *fragment) checkParam(p string) error {
	v, ok := f.g.Input(p)
	if !ok {
		return fmt.Errorf("the parameter %q is not an input; differentiate with ParamsAsInputs", p)
	}
	if v.DType != onnx.Float32 || v.Shape == nil {
		return fmt.Errorf("the parameter %q is of %v; only float32 of known shape is trained", p, v.DType)
	}
	for _, d := range v.Shape {
		if !d.IsKnown() {
			return fmt.Errorf("the parameter %q has no fixed shape", p)
		}
	}
	if !f.taken[GradPrefix+p] {
		return fmt.Errorf("the model has no value %q", GradPrefix+p)
	}
	return nil
}

func checkOptimizer(o Optimizer) error {
	switch o := o.(type) {
	case SGD:
		if !(o.Momentum >= 0 && o.Momentum < 1 && o.WeightDecay >= 0) {
			return fmt.Errorf("momentum %v and weight decay %v; allowed are 0 to less than 1, and 0 and up",
				o.Momentum, o.WeightDecay)
		}
	case AdamW:
		if b1, b2, eps := o.betas(); !(b1 >= 0 && b1 < 1 && b2 >= 0 && b2 < 1 && eps > 0 &&
			o.WeightDecay >= 0) {
			return fmt.Errorf("beta1 %v, beta2 %v, epsilon %v and weight decay %v; allowed are 0 to less "+
				"than 1, more than 0, and 0 and up", b1, b2, eps, o.WeightDecay)
		}
	}
	return nil
}

func (f *fragment) fresh(op string) string {
	for {
		name := fmt.Sprintf("update/%s_%d", op, f.n)
		f.n++
		if !f.taken[name] {
			f.taken[name] = true
			return name
		}
	}
}

func (f *fragment) op(op string, in []string, attrs ...onnx.Attr) string {
	out := f.fresh(op)
	f.g.Nodes = append(f.g.Nodes,
		&onnx.Node{Name: out, Op: op, Inputs: in, Outputs: []string{out}, Attrs: attrs})
	return out
}

func (f *fragment) num(v float64) string {
	name := f.fresh("const")
	f.g.Initializers[name] = onnx.Scalar(float32(v))
	return name
}

func (f *fragment) output(name, value string, like onnx.ValueInfo) {
	f.g.Nodes = append(f.g.Nodes,
		&onnx.Node{Name: name, Op: "Identity", Inputs: []string{value}, Outputs: []string{name}})
	like.Name = name
	f.g.Outputs = append(f.g.Outputs, like)
}

// mix is a x + (1-a) y.
func (f *fragment) mix(x, y string, a float64) string {
	return f.op("Add", []string{f.op("Mul", []string{x, f.num(a)}),
		f.op("Mul", []string{y, f.num(1 - a)})})
}

// State returns the prefix of the momentum.
func (o SGD) State() []string { return []string{"m_"} }

// Scalars returns the rate alone.
func (o SGD) Scalars(_ int, rate float64) map[string]float32 {
	return map[string]float32{RateInput: float32(rate)}
}

func (o SGD) update(f *fragment, p param) (string, []string) {
	g := p.grad
	if o.WeightDecay > 0 && p.matrix {
		g = f.op("Add", []string{g, f.op("Mul", []string{p.name, f.num(o.WeightDecay)})})
	}
	m := f.op("Add", []string{f.op("Mul", []string{p.state[0], f.num(o.Momentum)}), g})
	d := m
	if o.Nesterov {
		d = f.op("Add", []string{g, f.op("Mul", []string{m, f.num(o.Momentum)})})
	}
	return f.op("Sub", []string{p.name, f.op("Mul", []string{d, p.rate})}), []string{m}
}

func (o AdamW) betas() (b1, b2, eps float64) {
	b1, b2, eps = o.Beta1, o.Beta2, o.Epsilon
	b1 = cmp.Or(b1, 0.9)
	b2 = cmp.Or(b2, 0.999)
	eps = cmp.Or(eps, 1e-8)
	return b1, b2, eps
}

// State returns the prefixes of the first and the second moment.
func (o AdamW) State() []string { return []string{"m_", "v_"} }

// Scalars returns the rate and the corrections 1/(1-β^t) of the moments' bias.
func (o AdamW) Scalars(t int, rate float64) map[string]float32 {
	b1, b2, _ := o.betas()
	return map[string]float32{
		RateInput: float32(rate),
		"unbias1": float32(1 / (1 - math.Pow(b1, float64(t)))),
		"unbias2": float32(1 / (1 - math.Pow(b2, float64(t)))),
	}
}

func (o AdamW) update(f *fragment, p param) (string, []string) {
	b1, b2, eps := o.betas()
	m := f.mix(p.state[0], p.grad, b1)
	v := f.mix(p.state[1], f.op("Mul", []string{p.grad, p.grad}), b2)
	spread := f.op("Add", []string{f.op("Sqrt", []string{f.op("Mul", []string{v, "unbias2"})}),
		f.num(eps)})
	d := f.op("Div", []string{f.op("Mul", []string{m, "unbias1"}), spread})
	if o.WeightDecay > 0 && p.matrix {
		d = f.op("Add", []string{d, f.op("Mul", []string{p.name, f.num(o.WeightDecay)})})
	}
	return f.op("Sub", []string{p.name, f.op("Mul", []string{d, p.rate})}), []string{m, v}
}
