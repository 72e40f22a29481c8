package optim_test

import (
	"math"
	"slices"
	"strings"
	"testing"

	"fmp/onnx"
	"fmp/onnx/engine"
	"fmp/onnx/engine/ort/orttest"
	"fmp/onnx/engine/pure"
	"fmp/onnx/must"
	"fmp/onnx/optim"
)

// reference is one step in float64 on one parameter, as the doc comments define it.
type reference func(t int, rate float64, p, g float64, state []float64) float64

func sgd(mu, decay float64, nesterov bool) reference {
	return func(_ int, rate, p, g float64, s []float64) float64 {
		g += decay * p
		s[0] = mu*s[0] + g
		if nesterov {
			return p - rate*(g+mu*s[0])
		}
		return p - rate*s[0]
	}
}

func adamw(b1, b2, eps, decay float64) reference {
	return func(t int, rate, p, g float64, s []float64) float64 {
		s[0] = b1*s[0] + (1-b1)*g
		s[1] = b2*s[1] + (1-b2)*g*g
		m := s[0] / (1 - math.Pow(b1, float64(t)))
		v := s[1] / (1 - math.Pow(b2, float64(t)))
		return p - rate*(m/(math.Sqrt(v)+eps)+decay*p)
	}
}

func TestUpdatesFollowTheirEquations(t *testing.T) {
	t.Parallel()
	eng := orttest.New(t)
	for _, c := range []struct {
		name string
		o    optim.Optimizer
		opt  optim.Options
		ref  reference
	}{
		{"SGD", optim.SGD{}, optim.Options{}, sgd(0, 0, false)},
		{"momentum", optim.SGD{Momentum: 0.9, WeightDecay: 0.1}, optim.Options{}, sgd(0.9, 0.1, false)},
		{"Nesterov", optim.SGD{Momentum: 0.8, Nesterov: true}, optim.Options{ClipNorm: 0.5},
			sgd(0.8, 0, true)},
		{"AdamW", optim.AdamW{}, optim.Options{}, adamw(0.9, 0.999, 1e-8, 0)},
		{"AdamW decay", optim.AdamW{Beta1: 0.8, Beta2: 0.95, Epsilon: 1e-3, WeightDecay: 0.2},
			optim.Options{EMA: 0.7}, adamw(0.8, 0.95, 1e-3, 0.2)},
	} {
		t.Run(c.name, func(t *testing.T) {
			m := must.Get(optim.StepModel(
				[]onnx.ValueInfo{{Name: "w", DType: onnx.Float32, Shape: onnx.Shape(1, 2)}}, c.o, c.opt))(t)
			s := must.Get(eng.Load(m))(t)
			defer s.Close()
			feeds := map[string]*onnx.Tensor{"w": onnx.NewTensor([]float32{1, -2}, 1, 2)}
			want := []float64{1, -2}
			average := []float64{1, -2}
			state := make([][]float64, 2)
			for i := range state {
				state[i] = make([]float64, 2)
			}
			for _, p := range c.o.State() {
				feeds[p+"w"] = onnx.ZerosF32(1, 2)
			}
			if c.opt.EMA > 0 {
				feeds["ema_w"] = feeds["w"].Clone()
			}
			for step := 1; step <= 5; step++ {
				g := []float64{math.Sin(float64(step)), 0.5 * float64(step)}
				feeds["grad_w"] = onnx.NewTensor([]float32{float32(g[0]), float32(g[1])}, 1, 2)
				for k, v := range c.o.Scalars(step, 0.1) {
					feeds[k] = onnx.Scalar(v)
				}
				out := must.Get(engine.Eval(s, feeds))(t)
				norm := math.Hypot(g[0], g[1])
				if got := float64(out[optim.NormOutput].F32()[0]); math.Abs(got-norm) > 1e-5 {
					t.Errorf("step %d: norm is %v, want %v", step, got, norm)
				}
				for i := range want {
					gi := g[i]
					if c.opt.ClipNorm > 0 {
						gi *= min(1, c.opt.ClipNorm/(norm+1e-6))
					}
					want[i] = c.ref(step, 0.1, want[i], gi, state[i])
					average[i] = c.opt.EMA*average[i] + (1-c.opt.EMA)*want[i]
					if got := float64(out["new_w"].F32()[i]); math.Abs(got-want[i]) > 1e-5 {
						t.Errorf("step %d: w[%d] is %v, want %v", step, i, got, want[i])
					}
					if c.opt.EMA > 0 && math.Abs(float64(out["new_ema_w"].F32()[i])-average[i]) > 1e-5 {
						t.Errorf("step %d: average of w[%d] is %v, want %v", step, i,
							out["new_ema_w"].F32()[i], average[i])
					}
				}
				for name, v := range out {
					if x, ok := strings.CutPrefix(name, optim.NewPrefix); ok {
						feeds[x] = v
					}
				}
			}
		})
	}
}

func TestRefusals(t *testing.T) {
	t.Parallel()
	w := []onnx.ValueInfo{{Name: "w", DType: onnx.Float32, Shape: onnx.Shape(2)}}
	for _, c := range []struct {
		name   string
		params []onnx.ValueInfo
		o      optim.Optimizer
		opt    optim.Options
	}{
		{"no parameters", nil, optim.SGD{}, optim.Options{}},
		{"momentum 1", w, optim.SGD{Momentum: 1}, optim.Options{}},
		{"beta 1", w, optim.AdamW{Beta1: 1}, optim.Options{}},
		{"negative clip", w, optim.SGD{}, optim.Options{ClipNorm: -1}},
		{"average 1", w, optim.SGD{}, optim.Options{EMA: 1}},
		{"no number for clip", w, optim.SGD{}, optim.Options{ClipNorm: math.NaN()}},
		{"no number for average", w, optim.SGD{}, optim.Options{EMA: math.NaN()}},
		{"no number for momentum", w, optim.SGD{Momentum: math.NaN()}, optim.Options{}},
		{"no number for decay", w, optim.SGD{WeightDecay: math.NaN()}, optim.Options{}},
		{"no number for beta", w, optim.AdamW{Beta2: math.NaN()}, optim.Options{}},
		{"no number for epsilon", w, optim.AdamW{Epsilon: math.NaN()}, optim.Options{}},
		{"negative rate", w, optim.SGD{}, optim.Options{RateOf: map[string]float64{"w": -1}}},
		{"rate of another", w, optim.SGD{}, optim.Options{RateOf: map[string]float64{"W": 1}}},
		{"integers", []onnx.ValueInfo{{Name: "w", DType: onnx.Int64, Shape: onnx.Shape(2)}},
			optim.SGD{}, optim.Options{}},
		{"symbolic", []onnx.ValueInfo{{Name: "w", DType: onnx.Float32, Shape: onnx.Shape("n")}},
			optim.SGD{}, optim.Options{}},
	} {
		must.Fail(optim.StepModel(c.params, c.o, c.opt))(t, "", c.name)
	}
}

// TestTakenNames: a name that the update needs is refused where the model has it, whichever value that is.
func TestTakenNames(t *testing.T) {
	t.Parallel()
	for name, want := range map[string]string{"rate": "rename it", "unbias1": "rename it", "unbias2": "rename it",
		"grad_norm": "given twice", "m_w": "given twice", "v_w": "given twice", "new_w": "given twice"} {
		for _, c := range []struct {
			kind string
			add  func(g *onnx.Graph)
		}{
			{"input", func(g *onnx.Graph) {
				g.Inputs = append(g.Inputs, onnx.ValueInfo{Name: name, DType: onnx.Float32, Shape: onnx.Shape()})
			}},
			{"initializer", func(g *onnx.Graph) { g.Initializers[name] = onnx.Scalar[float32](1) }},
			{"node", func(g *onnx.Graph) {
				g.Nodes = append(g.Nodes, &onnx.Node{Op: "Neg", Inputs: []string{"w"}, Outputs: []string{name}})
			}},
		} {
			g := &onnx.Graph{Name: "loss", Initializers: map[string]*onnx.Tensor{}}
			for _, v := range []string{"w", "grad_w"} {
				g.Inputs = append(g.Inputs, onnx.ValueInfo{Name: v, DType: onnx.Float32, Shape: onnx.Shape(2)})
			}
			c.add(g)
			err := optim.Attach(onnx.NewModel(g), []string{"w"}, optim.AdamW{}, optim.Options{})
			must.Fail(err)(t, want, name+" "+c.kind)
		}
	}
}

func TestWarmupCosine(t *testing.T) {
	t.Parallel()
	s := optim.WarmupCosine(1, 0.1, 4)
	for _, c := range []struct {
		t    int
		want float64
	}{{0, 0.25}, {3, 1}, {4, 1}, {12, 0.55}, {20, 0.1}, {100, 0.1}} {
		if got := s(c.t, 20); math.Abs(got-c.want) > 1e-12 {
			t.Errorf("rate of step %d is %v, want %v", c.t, got, c.want)
		}
	}
}

// stepped returns the values of parameters after one step at the rate 0.5 from 1, by a gradient.
func stepped(t *testing.T, o optim.SGD, opt optim.Options, gradient float32, names ...string) (out []float32) {
	t.Helper()
	var params []onnx.ValueInfo
	feeds := map[string]*onnx.Tensor{optim.RateInput: onnx.Scalar[float32](0.5)}
	for _, p := range names {
		params = append(params, onnx.ValueInfo{Name: p, DType: onnx.Float32, Shape: onnx.Shape(1)})
		feeds[p], feeds["grad_"+p], feeds["m_"+p] = onnx.Vector[float32](1), onnx.Vector(gradient),
			onnx.Vector[float32](0)
	}
	m := must.Get(optim.StepModel(params, o, opt))(t)
	s := must.Get(must.Get(pure.New(engine.Options{}))(t).Load(m))(t)
	defer s.Close()
	got := must.Get(engine.Eval(s, feeds))(t)
	for _, p := range names {
		out = append(out, got["new_"+p].F32()[0])
	}
	return out
}

// TestOneStep: a parameter with a factor moves by so much of the others' step, and biases do not
// decay.
func TestOneStep(t *testing.T) {
	t.Parallel()
	quarter := optim.Options{RateOf: map[string]float64{"b": 0.25}}
	if got := stepped(t, optim.SGD{}, quarter, 1, "a", "b"); !slices.Equal(got, []float32{0.5, 0.875}) {
		t.Errorf("a and b are %v; want 0.5 and 0.875", got)
	}
	if got := stepped(t, optim.SGD{WeightDecay: 0.5}, optim.Options{}, 0, "b"); got[0] != 1 {
		t.Errorf("a bias without gradient went from 1 to %v", got[0])
	}
}
