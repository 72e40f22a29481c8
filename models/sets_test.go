package models

import (
	"math"
	"slices"
	"testing"

	"fmp/onnx"
)

// TestSets: the output set is that of the threshold for both scores, probabilities stay as they were, and a second calibration replaces
// the first.
func TestSets(t *testing.T) {
	const n, k, classes = 40, 5, 6
	heads := someHeads(3, k, classes, 1)
	plain, err := NewClassifier(ClassifierParts{Heads: heads}, Manifest{Dx: k})
	if err != nil {
		t.Fatal(err)
	}
	rows := onnx.ZerosF32(n, k)
	for i := range rows.F32() {
		rows.F32()[i] = float32(2 * math.Sin(float64(i)))
	}
	feeds := map[string]*onnx.Tensor{"features": rows}
	want := eval(t, plain, feeds, "probabilities")["probabilities"].F32()
	m := plain
	for _, c := range []struct {
		adaptive  bool
		threshold float32
	}{{false, 0.2}, {true, 0.3}, {false, 0.3}} {
		if m, err = WithSets(m, OriginSets{Level: 0.9, Threshold: c.threshold, Images: 9}, c.adaptive); err != nil {
			t.Fatal(err)
		}
		out := eval(t, m, feeds, "probabilities", SetOutput)
		for i, v := range evalPure(t, m, feeds, SetOutput)[SetOutput].Data.([]bool) {
			if v != out[SetOutput].Data.([]bool)[i] {
				t.Errorf("the engines disagree about element %d of the sets", i)
			}
		}
		in := 0
		for i := range n {
			p := out["probabilities"].F32()[i*classes : (i+1)*classes]
			for y, v := range p {
				if v != want[i*classes+y] {
					t.Fatalf("probability %v became %v", want[i*classes+y], v)
				}
				score := v
				if c.adaptive {
					score = 1
					for _, u := range p {
						if u >= v {
							score -= u
						}
					}
				}
				got := out[SetOutput].Data.([]bool)[i*classes+y]
				if math.Abs(float64(score-c.threshold)) > 1e-5 && got != (score >= c.threshold || v == slices.Max(p)) {
					t.Errorf("adaptive %v: class %d of row %d with score %v is in the set: %v", c.adaptive, y, i, score, got)
				}
				if got {
					in++
				}
			}
		}
		if in == 0 || in == n*classes {
			t.Errorf("%+v: %d of %d classes are in sets; the test wants some in and some out", c, in, n*classes)
		}
		f, err := ReadManifest(m)
		if err != nil {
			t.Fatal(err)
		}
		if o, err := ReadOrigin(f); err != nil || o.Sets == nil || o.Sets.Threshold != c.threshold {
			t.Errorf("the provenance has %+v, %v; want the threshold %v", o.Sets, err, c.threshold)
		}
	}
	for _, v := range append(m.Graph.Inputs, m.Graph.Outputs...) {
		if v.Doc == "" {
			t.Errorf("%s has no doc string", v.Name)
		}
	}
	if _, ok := m.Graph.Initializers["sets.threshold"]; len(m.Graph.Outputs) != len(plain.Graph.Outputs)+1 || ok {
		t.Errorf("after three calibrations the outputs are %v", m.Graph.Outputs)
	}
}
