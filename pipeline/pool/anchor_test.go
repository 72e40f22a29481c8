package pool

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"fmp/models"
	"fmp/onnx"
)

// misnamed returns uploads of which the first bad clients name each class by the next one's name.
func misnamed(us []Upload, bad int) []Upload {
	out := slices.Clone(us)
	for m := range bad {
		u, points := *us[m].Upload, *us[m].Points.Dense()
		points.Z = slices.Clone(points.Z)
		for i := range points.N {
			y := points.Row(i)[points.Dx:]
			copy(y, append(y[classes-1:classes:classes], y[:classes-1]...))
		}
		u.Points = &points
		out[m].Upload = &u
	}
	return out
}

// TestAnchor: where five of eight clients agree on false names, an upload of the server's own tells who is honest, of class means in
// coordinates and in features and of moments; without it the five are believed. An anchor that cannot act is refused.
func TestAnchor(t *testing.T) {
	w := newWorld(t)
	const clients, bad = 8, 5
	for name, made := range map[string]func() ([]Upload, *onnx.Model, models.Manifest){
		"coordinates": func() ([]Upload, *onnx.Model, models.Manifest) {
			g, f := w.client(t, false)
			return w.uploads(t, g, f, slices.Repeat([]int{30}, clients+1)...), g, f
		},
		"features": func() ([]Upload, *onnx.Model, models.Manifest) {
			g, f := w.client(t, true)
			return w.uploads(t, g, f, slices.Repeat([]int{30}, clients+1)...), g, f
		},
		"moments": func() (us []Upload, g *onnx.Model, f models.Manifest) {
			for m := range clients + 1 { // the easiest client of as many rounds
				var one []Upload
				one, g, f = w.momentsRound(t, 1, uint64(m))
				one[0].Client = fmt.Sprint("client ", m)
				us = append(us, one...)
			}
			return us, g, f
		},
	} {
		us, g, f := made()
		o := Options{Predictor: w.predictor, Seed: 3, Samples: 20, Level: -1}
		if name == "moments" {
			o.Predictor = ""
		}
		honest := func(o Options) []float64 {
			t.Helper()
			r, err := New(misnamed(us[:clients], bad), g, f, o)
			if err != nil {
				t.Fatal(name, err)
			}
			p, err := r.Posterior(t.Context(), w.eng)
			if err != nil {
				t.Fatal(name, err)
			}
			return p.Judgement.Honest
		}
		if p := honest(o); p[0] < 0.5 || p[clients-1] > 0.5 {
			t.Errorf("%s: without an anchor P(honest) is %.2f; the five agree", name, p)
		}
		o.Anchor = us[clients].Upload
		for m, p := range honest(o) {
			if (p > 0.5) != (m >= bad) {
				t.Errorf("%s: with an anchor client %d is honest with %.2f", name, m, p)
			}
		}
		trusting, other := o, o
		trusting.Trust = true
		of := *o.Anchor
		of.Model = strings.Repeat("0", 64)
		other.Anchor = &of
		for want, o := range map[string]Options{"all are taken for honest": trusting, "make it with the round's": other} {
			if _, err := New(us[:clients], g, f, o); err == nil || !strings.Contains(err.Error(), want) {
				t.Errorf("%s: %v; want %q", name, err, want)
			}
		}
	}
}
