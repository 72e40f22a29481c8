// Package differential draws random valid graphs and compares results that must agree:
//
//   - engine: the pure engine against another engine (the ONNX Runtime)
//   - fold: the graph after simplification, with its inputs as they are and as constants
//   - upgrade: the graph raised to a newer operator set
//   - gradient: grad's model against central differences, in float64
//   - peer: the pure engine on a machine of 32 bits ([Outputs])
//
// A graph follows from its family, the seed and its number, so that a disagreement can be looked at
// again. Pairs known to disagree stand in one table with their reasons (known.go).
package differential

import (
	"errors"
	"fmt"
	"hash/fnv"
	"maps"
	"math"
	"math/rand/v2"
	"slices"
	"strings"

	"fmp/onnx"
	"fmp/onnx/conformance"
	"fmp/onnx/engine"
	"fmp/onnx/engine/pure"
	"fmp/onnx/grad"
	"fmp/onnx/pass"
	"fmp/onnx/shape"
)

// Case is a random graph with values for its inputs. A case is drawn once and changed by no check:
// each works on a clone of the model.
type Case struct {
	Family string
	Seed   uint64
	Number int
	Model  *onnx.Model
	Feeds  map[string]*onnx.Tensor
}

func (c *Case) String() string {
	return fmt.Sprintf("%s, seed %d, number %d", c.Family, c.Seed, c.Number)
}

// node is the last one.
func (c *Case) node() *onnx.Node { return c.Model.Graph.Nodes[len(c.Model.Graph.Nodes)-1] }

// Draw makes a case; double draws it for gradients: in float64, of operators that have a rule. A
// family that does not exist, or has no recipe, ends the program.
func Draw(family string, seed uint64, number int, double bool) *Case {
	// The hash gives each case a stream of its own, so that one is drawn again without those before
	// it.
	h := fnv.New64a()
	fmt.Fprintf(h, "%s %d %d %t", family, seed, number, double)
	g := &generator{Rand: rand.New(rand.NewPCG(h.Sum64(), seed)), double: double}
	m, feeds := g.graph(family)
	return &Case{family, seed, number, m, feeds}
}

// Disagreement is a check that failed.
type Disagreement struct {
	Check  string // engine, fold, upgrade, gradient or peer
	Op     string // of the node that is named, else of the last
	Detail string
	Known  string // why it may; "" where there is no reason
}

// Tally counts the cases of a family. A case may count several times, once for each check that
// compares it.
type Tally struct {
	Cases    int
	Compared map[string]int // by check
	Declined map[string]int // cases that one side declines by name, by check
	Known    map[string]int // disagreements by their reason
	Unknown  int
}

// Run draws the cases of a family from number first on, and checks them; other may be nil. report
// is called with each disagreement. The pure engine has one thread, so that sums are in one order
// at each run. An error is that of making the engine; failures of cases go to report.
func Run(family string, seed uint64, first, count int, other engine.Engine,
	report func(*Case, Disagreement)) (*Tally, error) {
	own, err := pure.New(engine.Options{Threads: 1})
	if err != nil {
		return nil, err
	}
	t := &Tally{Cases: count, Compared: map[string]int{}, Declined: map[string]int{},
		Known: map[string]int{}}
	k := &checker{own: own, other: other, tally: t}
	for i := first; i < first+count; i++ {
		k.say = func(c *Case, check, detail string) {
			d := Disagreement{check, c.blamed(detail).Op, detail, known(c, check, detail)}
			if d.Known != "" {
				t.Known[d.Known]++
			} else {
				t.Unknown++
			}
			report(c, d)
		}
		k.check(Draw(family, seed, i, false))
		if slices.Contains(differentiable, family) {
			k.gradient(Draw(family, seed, i, true))
		}
	}
	return t, nil
}

// checker compares the pure engine with another one, which may be nil, and notes the results.
type checker struct {
	own, other engine.Engine
	tally      *Tally
	say        func(c *Case, check, detail string)
}

// tolerance is how far two computations of the same may be apart, relative to the largest element
// or 1. Float16 has 11 bits of precision and BFloat16 8, so that one rounding is 5e-4 or 4e-3. The
// rest is room for sums in another order.
func tolerance(d onnx.DType) float64 {
	switch d {
	case onnx.Float64:
		return 1e-6 // the ONNX Runtime computes some of them in float32 constants
	case onnx.Float16:
		return 1e-2
	case onnx.BFloat16:
		return 5e-2
	}
	return 2e-4
}

// differ compares outputs; "" where they agree. Integers and booleans must be equal. The scale is
// that of the whole output: an element near 0 may be the difference of large ones.
func differ(got, want map[string]*onnx.Tensor) string {
	for name, w := range want {
		g := got[name]
		scale := 1.0
		if w.DType.IsFloat() {
			for i := range w.Len() {
				if v := math.Abs(w.At(i)); v > scale && !math.IsInf(v, 0) {
					scale = v
				}
			}
		}
		tol := conformance.Tolerance{}
		if w.DType.IsFloat() {
			tol.Absolute = tolerance(w.DType) * scale
		}
		if err := conformance.Compare(g, w, tol); err != nil {
			return fmt.Sprintf("output %q %v", name, err)
		}
	}
	return ""
}

// run evaluates a model; declined says that the engine names an operator that it does not run. The
// session is closed before it returns; outputs stay valid.
func run(e engine.Engine, m *onnx.Model,
	feeds map[string]*onnx.Tensor) (out map[string]*onnx.Tensor, declined bool, err error) {
	s, err := e.Load(m)
	if err != nil {
		var u *pure.UnsupportedError
		return nil, errors.As(err, &u) || strings.Contains(err.Error(), "NOT_IMPLEMENTED") ||
			strings.Contains(err.Error(), "Could not find an implementation"), err
	}
	defer s.Close()
	out, err = engine.Eval(s, feeds)
	return out, false, err
}

// check compares engines first, and then the graph with its own rewritings on the pure engine. A
// case that both engines refuse counts as declined, whatever their reasons.
func (k *checker) check(c *Case) {
	got, declined, err := run(k.own, c.Model, c.Feeds)
	if k.other != nil {
		want, otherDeclined, otherErr := run(k.other, c.Model, c.Feeds)
		switch {
		case declined || otherDeclined || err != nil && otherErr != nil:
			k.tally.Declined["engine"]++
		case err != nil:
			k.say(c, "engine", "pure fails: "+err.Error())
		case otherErr != nil:
			k.say(c, "engine", "the other fails: "+otherErr.Error())
		default:
			k.tally.Compared["engine"]++
			if d := differ(got, want); d != "" {
				k.say(c, "engine", d)
			}
		}
	}
	if err != nil {
		return
	}
	k.simplified(c, got, false)
	k.simplified(c, got, true)
	k.upgraded(c, got)
}

// simplified holds a graph against itself after simplification, with its inputs as constants or as
// they are. With constants the whole graph may fold to its result, which holds folding against the
// engine. The inferred types are held against the outputs of the run too.
func (k *checker) simplified(c *Case, want map[string]*onnx.Tensor, constants bool) {
	m, feeds := onnx.Clone(c.Model), c.Feeds
	if constants {
		for name, t := range c.Feeds {
			m.Graph.Initializers[name] = t
		}
		m.Graph.Inputs, feeds = nil, nil
	}
	if err := shape.Infer(m); err != nil {
		k.say(c, "fold", "inference fails: "+err.Error())
		return
	}
	if err := pass.Simplify(m); err != nil {
		k.say(c, "fold", "simplifying fails: "+err.Error())
		return
	}
	got, _, err := run(k.own, m, feeds)
	if err != nil {
		k.say(c, "fold", "the simplified graph fails: "+err.Error())
		return
	}
	k.tally.Compared["fold"]++
	if d := differ(got, want); d != "" {
		k.say(c, "fold", d)
		return
	}
	for _, o := range m.Graph.Outputs {
		if err := fits(o, got[o.Name]); err != nil {
			k.say(c, "fold", "inference is wrong: "+err.Error())
		}
	}
}

// fits checks a value against its inferred type and shape. A symbol fits any size.
func fits(v onnx.ValueInfo, t *onnx.Tensor) error {
	ok := v.DType == t.DType && (v.Shape == nil || len(v.Shape) == len(t.Shape))
	for i := 0; ok && i < len(v.Shape); i++ {
		ok = !v.Shape[i].IsKnown() || v.Shape[i].Size == t.Shape[i]
	}
	if !ok {
		return fmt.Errorf("output %q is said to be %s and is %v", v.Name, v.Type(), t)
	}
	return nil
}

// upgraded raises the graph to a set that follows from the case's seed and number. A refusal of the
// upgrade counts as declined, as it names an operator that it cannot raise.
func (k *checker) upgraded(c *Case, want map[string]*onnx.Tensor) {
	from := onnx.ClampInt(c.Model.Opset())
	if from >= onnx.MaxOpset {
		return
	}
	m := onnx.Clone(c.Model)
	to := from + 1 + int((c.Seed+uint64(c.Number))%uint64(onnx.MaxOpset-from))
	if err := pass.Upgrade(m, to); err != nil {
		k.tally.Declined["upgrade"]++
		return
	}
	got, declined, err := run(k.own, m, c.Feeds)
	switch {
	case declined:
		k.tally.Declined["upgrade"]++
	case err != nil:
		k.say(c, "upgrade", fmt.Sprintf("from %d to %d: %v", from, to, err))
	default:
		k.tally.Compared["upgrade"]++
		if d := differ(got, want); d != "" {
			k.say(c, "upgrade", fmt.Sprintf("from %d to %d: %s", from, to, d))
		}
	}
}

// gradient holds the derivative along a random direction against central differences of two widths;
// where these differ from each other there is a kink, and the case says nothing. With cotangents c
// of the outputs and a direction v, sum_w <grad_w, v_w> is d<c, y(x + h v)>/dh at 0. One number
// checks all inputs at once, for eight runs of the model in place of two for each element.
func (k *checker) gradient(c *Case) {
	y, _, err := run(k.own, c.Model, c.Feeds)
	if err != nil {
		k.tally.Declined["gradient"]++
		return
	}
	var wrt []string
	for _, v := range c.Model.Graph.Inputs {
		if v.DType == onnx.Float64 {
			wrt = append(wrt, v.Name)
		}
	}
	m := onnx.Clone(c.Model)
	m.Graph.Outputs = slices.DeleteFunc(m.Graph.Outputs,
		func(v onnx.ValueInfo) bool { return y[v.Name].DType != onnx.Float64 })
	if len(wrt) == 0 || len(m.Graph.Outputs) == 0 {
		k.tally.Declined["gradient"]++
		return
	}
	gm, err := grad.Build(m, grad.Options{WRT: wrt, Prefix: "bar_"})
	if (grad.Supports(m) == nil) && err != nil {
		k.say(c, "gradient", fmt.Sprintf("Supports says yes and Build %v", err))
		return
	}
	if err != nil {
		k.tally.Declined["gradient"]++
		return
	}
	p := newProbe(c, m, wrt, y)
	got, declined, err := run(k.own, gm, p.feeds)
	if declined {
		k.tally.Declined["gradient"]++
		return
	}
	if err != nil {
		k.say(c, "gradient", err.Error())
		return
	}
	inner := 0.0
	for _, w := range wrt {
		if fmt.Sprint(got["bar_"+w].Shape) != fmt.Sprint(c.Feeds[w].Shape) {
			k.say(c, "gradient", fmt.Sprintf("the gradient of %q has shape %v where %v is expected", w,
				got["bar_"+w].Shape, c.Feeds[w].Shape))
			return
		}
		for i, v := range got["bar_"+w].F64() {
			inner += v * p.along[w][i]
		}
	}
	s, err := k.own.Load(c.Model)
	if err != nil {
		return
	}
	defer s.Close()
	// The error of fourth order is 256 times smaller at the narrower width where y is smooth.
	wide, narrow := p.slope(s, 1e-3), p.slope(s, 2.5e-4)
	scale := 1 + math.Abs(wide)
	if !(math.Abs(wide-narrow) <= 1e-7*scale) {
		k.tally.Declined["gradient"]++
		return
	}
	k.tally.Compared["gradient"]++
	if !(math.Abs(inner-wide) <= 1e-5*scale) {
		k.say(c, "gradient", fmt.Sprintf("the slope is %v, and by differences %v", inner, wide))
	}
}

// probe is a random direction of a case's inputs and random cotangents of its outputs. The
// direction and the cotangents are normal and follow from the case's seed and number.
type probe struct {
	c          *Case
	along, cot map[string][]float64
	feeds      map[string]*onnx.Tensor // of the gradient model
}

// newProbe draws in the order of wrt and of the outputs, so that a case's probe is the same each
// time.
func newProbe(c *Case, m *onnx.Model, wrt []string, y map[string]*onnx.Tensor) *probe {
	r := rand.New(rand.NewPCG(c.Seed, uint64(c.Number)))
	p := &probe{c: c, along: map[string][]float64{}, cot: map[string][]float64{},
		feeds: maps.Clone(c.Feeds)}
	for _, w := range wrt {
		for range c.Feeds[w].Len() {
			p.along[w] = append(p.along[w], r.NormFloat64())
		}
	}
	for _, o := range m.Graph.Outputs {
		t := y[o.Name].Clone()
		for i := range t.F64() {
			t.F64()[i] = r.NormFloat64()
		}
		p.cot[o.Name] = t.F64()
		p.feeds["bar_"+o.Name] = t
	}
	return p
}

// at is the outputs' product with the cotangents after a step along the direction; NaN where it
// cannot be computed.
func (p *probe) at(s engine.Session, step float64) float64 {
	moved := map[string]*onnx.Tensor{}
	for name, t := range p.c.Feeds {
		moved[name] = t
		if d := p.along[name]; d != nil {
			moved[name] = t.Clone()
			for i := range d {
				moved[name].F64()[i] += step * d[i]
			}
		}
	}
	out, err := engine.Eval(s, moved)
	if err != nil {
		return math.NaN()
	}
	sum := 0.0
	for name, c := range p.cot {
		if out[name].Len() != len(c) {
			return math.NaN()
		}
		for i, v := range out[name].F64() {
			sum += v * c[i]
		}
	}
	return sum
}

// slope is the derivative of [probe.at] by central differences of fourth order. The weights 8 and
// -1 over 12 h cancel the error of third derivatives, and leave O(h^4).
func (p *probe) slope(s engine.Session, h float64) float64 {
	return (8*(p.at(s, h)-p.at(s, -h)) - (p.at(s, 2*h) - p.at(s, -2*h))) / (12 * h)
}

// Outputs evaluates a case on the pure engine, for a machine of another kind to compare; nil where
// it has none. nil also stands for a case that the engine refuses.
func Outputs(family string, seed uint64, number int) map[string]*onnx.Tensor {
	own, err := pure.New(engine.Options{Threads: 1})
	if err != nil {
		return nil
	}
	c := Draw(family, seed, number, false)
	out, _, err := run(own, c.Model, c.Feeds)
	if err != nil {
		return nil
	}
	return out
}

// Peer compares a peer's outputs with our own; "" where they agree. Outputs are compared within the
// tolerances of [tolerance], not to the last bit.
func Peer(own, peer map[string]*onnx.Tensor) string {
	if (own == nil) != (peer == nil) {
		return "one machine refuses what the other computes"
	}
	return differ(peer, own)
}
