package models

import (
	"math"
	"slices"
	"testing"

	"fmp/onnx"
	"fmp/onnx/build"
	"fmp/onnx/must"
	"fmp/onnx/serde"
)

// scaledBy computes by hand the probabilities [C] of heads' probabilities [S, C].
func scaledBy(s Scaling, heads []float32, classes int) []float64 {
	out := make([]float64, classes)
	samples := len(heads) / classes
	for h := range samples {
		z, u, sum := heads[h*classes:(h+1)*classes], make([]float64, classes), 0.0
		for c := range u {
			u[c] = float64(s.Factor[min(c, len(s.Factor)-1)]) * math.Log(float64(z[c]))
			if s.Offset != nil {
				u[c] += float64(s.Offset[c])
			}
			for j := 0; s.Mixing != nil && j < classes; j++ {
				u[c] += math.Log(float64(z[j])) * float64(s.Mixing[j*classes+c])
			}
		}
		for c := range u {
			u[c] = math.Exp(u[c])
			sum += u[c]
		}
		for c := range u {
			out[c] += u[c] / sum / float64(samples)
		}
	}
	return out
}

// TestScaling: each kind changes the probabilities as stated, entropies and samples with them; sets
// read the probabilities before; a second scaling takes the place of the first; and the file says
// where it comes from.
func TestScaling(t *testing.T) {
	const n, k, classes = 40, 5, 4
	plain := must.Get(NewClassifier(ClassifierParts{Heads: someHeads(3, k, classes, 1), Samples: true,
		Widening: 1}, Manifest{Dx: k}))(t)
	feeds := map[string]*onnx.Tensor{"features": waves(n, k)}
	was := evalPure(t, plain, feeds, "probabilities", SamplesOutput)
	mixing := slices.Repeat([]float32{0}, classes*classes)
	mixing[1], mixing[6] = 0.5, -0.3
	m := plain
	for _, s := range []Scaling{
		{Kind: Temperature, Factor: []float32{2}},
		{Kind: Vector, Factor: []float32{1, 2, 0.5, 1}, Offset: []float32{0, 1, -1, 0.5}},
		{Kind: Matrix, Factor: []float32{1, 2, 0.5, 1}, Offset: []float32{0, 1, -1, 0.5}, Mixing: mixing},
		{Kind: Temperature, Factor: []float32{0.5}},
		{Kind: Temperature, Factor: []float32{1}},
	} {
		m = must.Get(WithScaling(m, OriginScaling{Scaling: s, Images: 9}))(t)
		m = must.Get(WithSets(m, OriginSets{Level: 0.9,
			Table:  &SetTable{Columns: 1, Levels: []float32{0.92}, Thresholds: []float32{0.3}},
			Images: 9}, false))(t)
		m = must.Get(serde.Unmarshal(must.Get(serde.Marshal(m))(t)))(t)
		out := evalPure(t, m, feeds, "probabilities", UncalibratedOutput, SetOutput, "entropy",
			"mutual_information", "low", "high")
		for i := range n {
			want := scaledBy(s, was[SamplesOutput].F32()[i*3*classes:(i+1)*3*classes], classes)
			entropy := 0.0
			for c, v := range want {
				p := out["probabilities"].F32()[i*classes+c]
				if math.Abs(float64(p)-v) > 2e-6 {
					t.Fatalf("%s: image %d, class %d: %v, want %v", s.Kind, i, c, p, v)
				}
				if raw := was["probabilities"].F32()[i*classes+c]; raw !=
					out[UncalibratedOutput].F32()[i*classes+c] {
					t.Fatalf("%s: before it %v, and uncalibrated is %v", s.Kind, raw,
						out[UncalibratedOutput].F32()[i*classes+c])
				} else if in := raw >= 0.3 ||
					p == slices.Max(out["probabilities"].F32()[i*classes:(i+1)*classes]); in !=
					out[SetOutput].Data.([]bool)[i*classes+c] {
					t.Fatalf("%s: class %d of probability %v before is in the set: %v", s.Kind, c, raw, !in)
				}
				entropy -= v * math.Log(v)
				if low, high := out["low"].F32()[i*classes+c],
					out["high"].F32()[i*classes+c]; !(low < high) {
					t.Fatalf("%s: the interval is %v to %v", s.Kind, low, high)
				}
			}
			if got := float64(out["entropy"].F32()[i]); math.Abs(got-entropy) > 1e-5 ||
				out["mutual_information"].F32()[i] < 0 {
				t.Fatalf("%s: entropy %v, want %v; mutual information %v", s.Kind, got, entropy,
					out["mutual_information"].F32()[i])
			}
		}
		if names := m.Graph.Outputs; len(names) != len(plain.Graph.Outputs)+2 {
			t.Errorf("%s: outputs %v", s.Kind, names)
		}
		for _, v := range slices.Concat(m.Graph.Inputs, m.Graph.Optional, m.Graph.Outputs) {
			if v.Doc == "" {
				t.Errorf("%s: %s has no doc string", s.Kind, v.Name)
			}
		}
		heads := must.Get(WithSamples(m))(t)
		for i, v := range evalPure(t, heads, feeds, SamplesOutput)[SamplesOutput].F32() {
			if v != was[SamplesOutput].F32()[i] {
				t.Fatalf("%s: number %d of the heads is %v, and was %v", s.Kind, i, v,
					was[SamplesOutput].F32()[i])
			}
		}
	}
	must.Do(t, Descends(m, "abc"))
	f := must.Get(ReadManifest(m))(t)
	if o, err := ReadOrigin(f); err != nil || o.Scaling == nil || o.Scaling.Factor[0] != 1 ||
		o.Sets == nil ||
		!slices.Equal(o.Of, []string{"abc"}) {
		t.Errorf("the provenance has %+v, %v", o, err)
	}
	for _, s := range []Scaling{{}, {Kind: Vector, Factor: []float32{1, 2}},
		{Kind: Temperature, Factor: []float32{float32(math.NaN())}},
		{Kind: Matrix, Factor: []float32{1}, Mixing: []float32{1}}} {
		must.Fail(WithScaling(m, OriginScaling{Scaling: s}))(t, "", s)
	}
}

// TestScaledBeyond: with the variance that heads lack, too, a temperature multiplies the distances
// of ends in log-odds by its factor, whichever scaling there was before.
func TestScaledBeyond(t *testing.T) {
	const k, classes = 5, 3
	head := someHeads(3, k, classes, 1)
	for i := range head.F64() {
		head.F64()[i] /= 4 // far from certain: log-odds of float32
	}
	parts := ClassifierParts{Heads: head, Widening: 1, Beyond: []float64{1, 2, 3}}
	m := must.Get(NewClassifier(parts, Manifest{Dx: k}))(t)
	feeds := map[string]*onnx.Tensor{"features": onnx.NewTensor([]float32{.1, -.2, .3, .4, -.5}, 1, k)}
	reach := func() (out []float64) {
		ends := evalPure(t, m, feeds, "low", "high")
		for c := range classes {
			odds := func(p float32) float64 { return math.Log(float64(p) / (1 - float64(p))) }
			out = append(out, odds(ends["high"].F32()[c])-odds(ends["low"].F32()[c]))
		}
		return out
	}
	was := reach()
	for _, factor := range []float32{.5, 1.5, 1} {
		m = must.Get(WithScaling(m, OriginScaling{Scaling: Scaling{Kind: Temperature,
			Factor: []float32{factor}}, Images: 9}))(t)
		for c, v := range reach() {
			// spreads of log-odds of three classes are not quite proportional to the factor
			if math.Abs(v/was[c]/float64(factor)-1) > .02 {
				t.Errorf("factor %v: ends of class %d are %v apart, and were %v", factor, c, v, was[c])
			}
		}
	}
	for _, wrong := range []ClassifierParts{{Heads: head, Beyond: []float64{1, 2, 3}},
		{Heads: head, Widening: 1, Beyond: []float64{1}}} {
		must.Fail(NewClassifier(wrong, Manifest{Dx: k}))(t, "a variance that heads lack", wrong.Beyond)
	}
}

// TestScaledIntervals: ends that the heads do not make move with the probability's log-odds: of two
// classes and a temperature exactly.
func TestScaledIntervals(t *testing.T) {
	const n, k, classes = 30, 4, 2
	b := build.New("ends")
	x := b.Input("x", onnx.Float32, "n", k)
	b.Output("at", b.Mul(x, b.F32(1)))
	one := b.Op("Sigmoid", []build.Ref{b.Slice(x, 1, 0, 1)})
	b.Output("low", b.Concat(1, one, b.Sub(b.F32(1), one)))
	coordinates := must.Get(b.Model())(t)
	m := must.Get(NewClassifier(ClassifierParts{Heads: someHeads(1, k, classes, 1),
		Coordinates: coordinates}, Manifest{Dx: k}))(t)
	rows := onnx.ZerosF32(n, k)
	for i := range rows.F32() {
		rows.F32()[i] = float32(math.Sin(float64(3 * i)))
	}
	feeds := map[string]*onnx.Tensor{"x": rows}
	was := evalPure(t, m, feeds, "low")["low"].F32()
	odds := func(p float32) float64 { return math.Log(float64(p) / (1 - float64(p))) }
	for _, factor := range []float32{2, 0.5, 3} {
		m = must.Get(WithScaling(m,
			OriginScaling{Scaling: Scaling{Kind: Temperature, Factor: []float32{factor}}}))(t)
		for i, v := range evalPure(t, m, feeds, "low")["low"].F32() {
			if math.Abs(odds(v)-float64(factor)*odds(was[i])) > 1e-3*(1+math.Abs(odds(v))) {
				t.Fatalf("factor %v: the end %v becomes %v", factor, was[i], v)
			}
		}
	}
	must.Fail(WithScaling(&onnx.Model{Graph: &onnx.Graph{}},
		OriginScaling{Scaling: Scaling{Factor: []float32{1}}}))(t, "want a classifier", "a model that is none")
}
