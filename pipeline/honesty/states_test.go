package honesty

import (
	"math"
	"testing"

	"fmp/onnx/must"
)

// TestStatesCheck: each part of what states must be is looked at by itself.
func TestStatesCheck(t *testing.T) {
	sound := func() *States {
		return &States{Honest: [][]bool{{true, true}, {true, false}}, P: []float64{.75, .25}}
	}
	must.Do(t, sound().Check(2))
	for name, spoil := range map[string]func(s *States){
		"none":                         func(s *States) { *s = States{} },
		"a probability too few":        func(s *States) { s.P = []float64{1} },
		"a client too few":             func(s *States) { s.Honest[1] = s.Honest[1][:1] },
		"a negative probability":       func(s *States) { s.P = []float64{1.25, -.25} },
		"a probability of no number":   func(s *States) { s.P[0] = math.NaN() },
		"probabilities that sum to .9": func(s *States) { s.P[0] = .65 },
	} {
		s := sound()
		spoil(s)
		if s.Check(2) == nil {
			t.Errorf("%s: no error", name)
		}
	}
}

// TestRefusedParts: what a round gives is looked at part by part.
func TestRefusedParts(t *testing.T) {
	for name, change := range map[string]func(*Uploads, []float64){
		"an infinite mass": func(u *Uploads, _ []float64) { u.Masses[0] = math.Inf(1) },
		"a negative mass":  func(u *Uploads, _ []float64) { u.Masses[0] = -1 },
		"a mean of no number": func(u *Uploads, _ []float64) {
			u.Masses[0], u.Means[0] = 1, math.NaN()
		},
		"a mean of 1e101":       func(u *Uploads, _ []float64) { u.Masses[0], u.Means[0] = 1, -1e101 },
		"an infinite variance":  func(_ *Uploads, l []float64) { l[0] = math.Inf(1) },
		"a mass too few":        func(u *Uploads, _ []float64) { u.Masses = u.Masses[1:] },
		"a copy too few":        func(u *Uploads, _ []float64) { u.Copy = []int{0} },
		"one class":             func(u *Uploads, _ []float64) { u.Classes = 1 },
		"another k than lambda": func(u *Uploads, _ []float64) { u.K++ },
	} {
		u, lambda := round(1, 4, 3, 2, 6, 0)
		change(&u, lambda)
		must.Refuse(Infer(t.Context(), u, lambda, 1, 0))(t, name)
	}
}
