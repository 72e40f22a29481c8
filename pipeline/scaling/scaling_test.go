package scaling

import (
	"math"
	"slices"
	"testing"

	"fmp/models"
	"fmp/models/rng"
	"fmp/onnx/must"
)

// drawn returns images whose labels follow the probabilities of a scaling of what heads say.
func drawn(t *testing.T, n, heads, classes int, truth models.Scaling, seed uint64) *Images {
	t.Helper()
	r := rng.New(seed, "scaling test")
	x := &Images{C: classes, Heads: heads}
	for range n {
		centre := make([]float64, classes)
		for c := range centre {
			centre[c] = 2 * r.NormFloat64()
		}
		var samples []float32
		mean := make([]float32, classes)
		for range heads {
			row, sum := make([]float64, classes), 0.0
			for c := range row {
				row[c] = math.Exp(centre[c] + 0.3*r.NormFloat64())
				sum += row[c]
			}
			for c := range row {
				samples = append(samples, float32(row[c]/sum))
				mean[c] += float32(row[c] / sum / float64(heads))
			}
		}
		must.Do(t, x.Add(samples, mean, 0))
		p := make([]float64, classes)
		i := len(x.Labels) - 1
		x.Apply(&truth, i, p)
		u, y := r.Float64(), 0
		for ; y < classes-1 && u > p[y]; y++ {
			u -= p[y]
		}
		x.Labels[i] = y
	}
	return x
}

// TestGradient: the gradient of each kind is that of differences.
func TestGradient(t *testing.T) {
	x := drawn(t, 100, 3, 4, models.Scaling{Factor: []float32{2}}, 1)
	of := []int{0, 3, 5, 70, 71, 99}
	for i := range 80 {
		of = append(of, i)
	}
	for _, kind := range Kinds {
		p := newParameters(kind, x.C)
		r := rng.New(7, kind)
		for i := range p.v {
			p.v[i] = 0.2 * r.NormFloat64()
		}
		gradient := make([]float64, len(p.v))
		x.loss(p, of, gradient)
		for i := range p.v {
			const h = 1e-5
			was := p.v[i]
			p.v[i] = was + h
			up := x.loss(p, of, nil)
			p.v[i] = was - h
			down := x.loss(p, of, nil)
			p.v[i] = was
			if want := (up - down) / (2 * h); math.Abs(gradient[i]-want) > 1e-6*(1+math.Abs(want)) {
				t.Errorf("%s: slope %d is %v, differences say %v", kind, i, gradient[i], want)
			}
		}
	}
}

// unheard is progress that nobody follows.
func unheard(string, int, int) {}

// TestChoose: what drew the labels is found: a classifier that is right stays as it is, a
// temperature is recovered, and a richer kind is taken where classes are off, each in its own way.
func TestChoose(t *testing.T) {
	for _, c := range []struct {
		name  string
		truth models.Scaling
		n     int
		want  []string
	}{
		{"right", models.Scaling{Factor: []float32{1}}, 600, []string{None, models.Temperature}},
		{"too cautious", models.Scaling{Factor: []float32{2}}, 300, []string{models.Temperature}},
		{"too confident", models.Scaling{Factor: []float32{0.4}}, 300, []string{models.Temperature}},
		{"classes", models.Scaling{Factor: []float32{1, 1.6, 1}, Offset: []float32{1.5, 0, -1}}, 600,
			[]string{models.Vector}},
		{"mixed", models.Scaling{Factor: []float32{1, 1, 1},
			Mixing: []float32{0, 1.2, 0, -1, 0, 0, 0, 0, 0}}, 3000, []string{models.Matrix}},
	} {
		x := drawn(t, c.n, 3, 3, c.truth, 11)
		trials, s := must.Get2(Choose(t.Context(), x, Kinds, unheard))(t)
		chosen := ""
		for _, k := range trials {
			if k.Chosen {
				chosen = k.Kind
			}
		}
		ok := false
		for _, w := range c.want {
			ok = ok || w == chosen
		}
		if !ok || len(trials) != 4 || (s == nil) != (chosen == None) {
			t.Errorf("%s: chosen is %q of %+v; want %v", c.name, chosen, trials, c.want)
		}
		if len(c.truth.Factor) == 1 && s != nil &&
			math.Abs(math.Log(float64(s.Factor[0]/c.truth.Factor[0]))) > 0.25 {
			t.Errorf("%s: the factor is %v, and %v drew the labels", c.name, s.Factor[0],
				c.truth.Factor[0])
		}
		if now, then := trials[0].Scores, trials[1].Scores; c.want[0] == models.Temperature &&
			(then.ECE > now.ECE || now.Gap < 0 != (c.truth.Factor[0] > 1)) {
			t.Errorf("%s: before %+v, after %+v", c.name, now, then)
		}
	}
}

// TestLeftOut: scores after are of images that the scaling was not fitted to: labels without any
// relation to the images gain nothing.
func TestLeftOut(t *testing.T) {
	x := drawn(t, 60, 2, 5, models.Scaling{Factor: []float32{1e-3}}, 3)
	for i := range x.Stated { // it says so, too
		x.Stated[i] = 0.2
	}
	for i := range x.Labels {
		x.Labels[i] = i % 5
	}
	trials, s := must.Get2(Choose(t.Context(), x, Kinds, unheard))(t)
	for _, k := range trials[1:] {
		if k.Skipped != "" || k.Gain > 0 {
			t.Errorf("%s gains %v on labels that nothing tells (%q)", k.Kind, k.Gain, k.Skipped)
		}
	}
	if s != nil {
		t.Errorf("chosen is %+v", s)
	}
}

// TestFew: too few images are refused, and classes with few are no class's own parameters.
func TestFew(t *testing.T) {
	x := drawn(t, 40, 2, 3, models.Scaling{Factor: []float32{2}}, 5)
	for i := range x.Labels {
		x.Labels[i] = i % 2
	}
	trials, _, err := Choose(t.Context(), x, Kinds, unheard)
	if err != nil || trials[2].Skipped == "" || trials[3].Skipped == "" {
		t.Errorf("%+v, %v", trials, err)
	}
	if _, _, err := Choose(t.Context(), drawn(t, 9, 2, 3, models.Scaling{Factor: []float32{2}}, 5),
		Kinds, unheard); err == nil {
		t.Error("nine images are taken")
	}
	must.Fail(x.Add(make([]float32, 6), make([]float32, 3), 3))(t, "", "a class that is none is taken")
}

// TestOneClass: images of one class alone choose no scaling, however sure of them the classifier
// ought to be.
func TestOneClass(t *testing.T) {
	x := drawn(t, 200, 1, 3, models.Scaling{Factor: []float32{3}}, 5)
	clear(x.Labels)
	for i := range x.Labels {
		copy(x.head(i, 0), []float32{0, -1, -1})
	}
	trials, s, err := Choose(t.Context(), x, Kinds, unheard)
	if err != nil || s != nil || !trials[0].Chosen || trials[1].Skipped == "" {
		t.Errorf("%+v, %+v: %v", trials, s, err)
	}
}

// TestProgress: every step of a fit is told, and the fits of each kind that are done, up to all.
func TestProgress(t *testing.T) {
	x := drawn(t, 300, 3, 3, models.Scaling{Factor: []float32{2}}, 11)
	var stages []string
	calls, last := map[string]int{}, map[string]int{}
	must.Get2(Choose(t.Context(), x, Kinds, func(stage string, done, total int) {
		if calls[stage]++; calls[stage] == 1 {
			stages = append(stages, stage)
		}
		if done < last[stage] || done > total || total != Folds && total != 1 {
			t.Errorf("%s: %d of %d after %d", stage, done, total, last[stage])
		}
		last[stage] = done
	}))(t)
	want := []string{"fits of a temperature", "fits of a vector", "fits of a matrix",
		"fit of the temperature to all images"}
	if !slices.Equal(stages, want) {
		t.Errorf("the stages are %q; want %q", stages, want)
	}
	for i, s := range stages {
		if total := []int{Folds, Folds, Folds, 1}[i]; last[s] != total || calls[s] < 3*total {
			t.Errorf("%s: %d of %d in %d calls", s, last[s], total, calls[s])
		}
	}
}
