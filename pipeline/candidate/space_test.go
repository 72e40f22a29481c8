package candidate

import (
	"fmt"
	"math"
	"strings"
	"testing"

	"fmp/models/rng"
	"fmp/onnx/must"
	"fmp/pipeline/erm"
	"fmp/pipeline/internal/moment"
	"fmp/pipeline/moments"
)

// spacious is a round of features of which a corpus varies in the first ones alone, where classes
// differ, and clients vary in all: beside few images the others are noise.
type spacious struct {
	k, c, width int
	noise       float64 // deviation of the other features of clients' images
	centres     [][]float64
}

func newSpacious(noise float64) *spacious {
	s := &spacious{k: spaceWidth + 60, c: 4, width: 6, noise: noise}
	at := rng.New(1, "centres")
	for range s.c {
		row := make([]float64, s.width)
		for j := range row {
			row[j] = 1.2 * at.NormFloat64()
		}
		s.centres = append(s.centres, row)
	}
	return s
}

// images returns n images of each class, [n C, K].
func (s *spacious) images(n int, of string, noise float64) (rows []float32, labels []int) {
	at := rng.New(1, of)
	for y := range s.c {
		for range n {
			for j := range s.k {
				v := at.NormFloat64()
				switch {
				case j < s.width:
					v += s.centres[y][j]
				case j >= spaceWidth:
					v *= noise
				}
				rows = append(rows, float32(v))
			}
			labels = append(labels, y)
		}
	}
	return rows, labels
}

// round is of m clients with n images of each class, and a corpus.
func (s *spacious) round(t *testing.T, m, n int) *Round {
	t.Helper()
	r := &Round{K: s.k, C: s.c}
	for i := range m {
		rows, labels := s.images(n, fmt.Sprint("client ", i), s.noise)
		means, within := must.Get2(moments.Compute(rows, s.k, labels, s.c, fmt.Sprint(i)))(t)
		within.Calibration, within.Labels = nil, nil
		r.Clients = append(r.Clients, Client{Means: means, Within: within})
	}
	rows, labels := s.images(400, "corpus", 0.05)
	c := must.Get(NewCorpus(rows, s.k, labels, s.c))(t)
	c.Rows, c.Labels = nil, nil
	r.Corpora = []Corpus{*c}
	return r
}

// nll is that of new images of the clients' kind.
func (s *spacious) nll(m *Mixture) (sum float64) {
	rows, labels := s.images(100, "test", s.noise)
	p := m.logProbabilities(rows)
	for i, y := range labels {
		sum -= p[i*s.c+y] / float64(len(labels))
	}
	return sum
}

// TestSpace: where a corpus hardly varies in features that are noise in clients' images, its
// coordinates are asked besides all features, and weigh by evidence.
func TestSpace(t *testing.T) {
	s := newSpacious(4)
	r := s.round(t, 6, 2)
	o := Options{Seed: 1, Threads: 1}
	m, all := must.Get(r.Posterior(o))(t), must.Get(r.weighed(&o, nil))(t)
	sum, inside := 0.0, 0.0
	for _, c := range m.Components {
		sum += c.Weight
		if strings.HasSuffix(c.Name, "128 coordinates") {
			inside += c.Weight
		}
		if c.Head.D != s.k+1 {
			t.Errorf("%s is of %d features; want %d", c.Name, c.Head.D-1, s.k)
		}
	}
	if math.Abs(sum-1) > 1e-12 || inside < 0.9 {
		t.Errorf("weights add up to %v, those in the space to %v; want 1, and .9 at least", sum, inside)
	}
	if with, without := s.nll(m), s.nll(all); with > without-0.02 {
		t.Errorf("NLL %.3f, and %.3f of all features alone", with, without)
	}
	for _, h := range m.Ensemble(5, o) {
		if h.D != s.k+1 {
			t.Errorf("a sample is of %d features; want %d", h.D-1, s.k)
		}
	}
	// Few features, no corpus, and a corpus of the round's names have no space.
	few := *r
	few.Corpora = nil
	if few.space() != nil {
		t.Error("a round without a corpus has a space")
	}
	few.Corpora = []Corpus{r.Corpora[0]}
	few.Corpora[0].Labels = []int{0}
	if few.space() != nil {
		t.Error("a round of named classes has a space")
	}
	few.Corpora, few.K = r.Corpora, spaceWidth
	if few.space() != nil {
		t.Errorf("a round of %d features has a space", spaceWidth)
	}
}

// TestSpaceMaps: heads, rows and scatters in a space are those of all features, seen there.
func TestSpaceMaps(t *testing.T) {
	s := newSpacious(1)
	r := s.round(t, 2, 3)
	at := r.space()
	in := at.round(r)
	draws := rng.New(1, "head")
	h := erm.NewTheta(spaceWidth+1, s.c)
	for i := range h.W {
		h.W[i] = draws.NormFloat64()
	}
	up := at.lift(h)
	back := at.lower(up)
	rows, _ := s.images(2, "rows", 1)
	low := at.project(rows)
	for i := range len(rows) / s.k {
		for y := range s.c {
			a, b := up.Row(s.k)[y], h.Row(spaceWidth)[y]
			for j, v := range rows[i*s.k : (i+1)*s.k] {
				a += float64(v) * up.Row(j)[y]
			}
			for j, v := range low[i*spaceWidth : (i+1)*spaceWidth] {
				b += float64(v) * h.Row(j)[y]
			}
			if math.Abs(a-b) > 1e-3 {
				t.Fatalf("row %d, class %d: logit %v of all features, %v in the space", i, y, a, b)
			}
		}
	}
	near(t, "a head there and back", back.W, h.W, 1e-9)
	whole := wholeWithin(r.Clients[0].Within)
	full := at.within(whole)
	low2 := in.Clients[0].Within
	near(t, "scatter of a whole matrix", full.Whole(), low2.Whole(), 1e-6)
}

// wholeWithin returns a scatter as a whole matrix.
func wholeWithin(w *moments.Within) *moments.Within {
	out := &moments.Within{K: w.K, Dof: w.Dof}
	if w.Dof > 0 {
		out.Data = moment.Triangle(w.Whole(), w.K)
	}
	return out
}
