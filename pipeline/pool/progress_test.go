package pool

import (
	"os"
	"path/filepath"
	"slices"
	"sync"
	"testing"

	"fmp/onnx/must"
	"fmp/pipeline/federate"
	"fmp/pipeline/merge"
)

// steps records what Round.Progress is told.
type steps struct {
	mu     sync.Mutex
	stages []string
	done   map[string]int
	total  map[string]int
}

func (s *steps) told(stage string, done, total int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !slices.Contains(s.stages, stage) {
		s.stages = append(s.stages, stage)
	}
	if s.done == nil {
		s.done, s.total = map[string]int{}, map[string]int{}
	}
	s.done[stage], s.total[stage] = max(s.done[stage], done), total
}

// ends checks that the stages are those wanted, in order, and that each came to its end.
func (s *steps) ends(t *testing.T, want ...string) {
	t.Helper()
	if !slices.Equal(s.stages, want) {
		t.Errorf("stages %v; want %v", s.stages, want)
	}
	for _, stage := range s.stages {
		if s.done[stage] != s.total[stage] || s.total[stage] == 0 {
			t.Errorf("%s: ended at %d of %d", stage, s.done[stage], s.total[stage])
		}
	}
}

// TestProgress: a round tells each stage to its end, with and without the chains that more clients
// need, and its samples do not depend on who listens.
func TestProgress(t *testing.T) {
	w := newWorld(t)
	g, f := w.client(t, true)
	sizes := slices.Repeat([]int{9}, 12)
	gm, fm := momentsGraph(t)
	us := w.owned(t, gm, fm, 5)
	o := Options{Predictor: w.predictor, Seed: 3, Samples: 25}
	for name, c := range map[string]struct {
		make func() (*Round, error)
		want []string
	}{
		"chains": {func() (*Round, error) { return New(w.uploads(t, g, f, sizes...), g, f, o) },
			[]string{"who is honest", "samples"}},
		"states": {func() (*Round, error) { return New(w.uploads(t, g, f, 9, 9, 9), g, f, o) },
			[]string{"who is honest", "samples"}},
		"moments": {func() (*Round, error) { return New(us, gm, fm, Options{Seed: 3}) },
			[]string{"reading moments", "who is honest", "samples"}},
		"trusted": {func() (*Round, error) { return New(us, gm, fm, Options{Seed: 3, Trust: true}) },
			[]string{"reading moments", "samples"}},
	} {
		t.Run(name, func(t *testing.T) {
			var heads [2][]float64
			for i := range heads {
				r := must.Get(c.make())(t)
				var s steps
				if i == 1 {
					r.Progress = s.told
				}
				p := must.Get(r.Posterior(t.Context(), w.eng))(t)
				heads[i] = p.Ensembles[0].Tensor().F64()
				if i == 1 {
					s.ends(t, c.want...)
				}
			}
			if !slices.Equal(heads[0], heads[1]) {
				t.Error("samples depend on who listens")
			}
		})
	}
}

// TestReadingProgress: each file counts, the unusable too, whatever reads them.
func TestReadingProgress(t *testing.T) {
	bad := filepath.Join(t.TempDir(), "bad")
	must.Do(t, os.WriteFile(bad, []byte("x"), 0o600))
	files := []string{bad, bad + ".none"}
	for name, read := range map[string]func(told func(string, int, int)) []error{
		"uploads": func(told func(string, int, int)) []error {
			_, errs := ReadUploads(files, federate.Expect{}, nil, told)
			return errs
		},
		"releases": func(told func(string, int, int)) []error {
			_, errs := ReadReleases(files, federate.Expect{}, told)
			return errs
		},
		"merged": func(told func(string, int, int)) []error {
			errs, _ := ReadMerged(files, &merge.Merger{}, nil, told)
			return errs
		},
	} {
		t.Run(name, func(t *testing.T) {
			var s steps
			if errs := read(s.told); len(errs) != 2 {
				t.Errorf("errors %v; want two", errs)
			}
			s.ends(t, "uploads")
			if errs := read(nil); len(errs) != 2 {
				t.Errorf("errors without a listener %v; want two", errs)
			}
		})
	}
}
