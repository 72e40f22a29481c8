package experiment

import (
	"context"
	"encoding/json"
	"fmt"
	"sync"

	"golang.org/x/sync/semaphore"

	"fmp/pipeline/corpus"
	"fmp/pipeline/settings"
)

// Shared holds the resources of concurrent runs of one program: a number of threads, and the data
// of runs on the same images behind the same extractor, which are loaded once. No figure depends on
// which run is the first or on how many there are. The nil *Shared shares nothing. All its methods
// are safe for concurrent use.
type Shared struct {
	threads, runs int
	free          *semaphore.Weighted

	mu    sync.Mutex     // guards users and data
	users map[string]int // runs that have yet to use the data of a key
	// data makes the data of a key once; others wait, and get the same, or the same error.
	data map[string]func() (*loaded, error)
}

// loaded is a data set passed through an extractor and split into the parts of a run. It is
// read-only.
type loaded struct {
	*corpus.Images                   // without the training images and their rows
	others         map[string]string // digests of the other data sets
	// digest of the corpus's features where it has other images; else ""
	corpus string
	data   *Data
}

// NewShared returns a Shared for runs of the given settings, at most atOnce of them concurrent, on
// a total of threads threads. Both are at least 1.
func NewShared(threads, atOnce int, runs []Config) (*Shared, error) {
	s := &Shared{threads: threads, runs: max(1, min(atOnce, len(runs))),
		free: semaphore.NewWeighted(int64(threads)), users: map[string]int{},
		data: map[string]func() (*loaded, error){}}
	for _, c := range runs {
		k, err := dataKey(c)
		if err != nil {
			return nil, err
		}
		s.users[k]++
	}
	return s, nil
}

// Done reports that the run of settings c has ended, successfully or not. Data that no other run
// will use are released. Each run given to [NewShared] reports once. Runs that still hold the data
// keep them in memory.
func (s *Shared) Done(c Config) error {
	k, err := dataKey(c)
	if err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.users[k]--; s.users[k] <= 0 {
		delete(s.data, k)
	}
	return nil
}

// Do calls do, which uses n threads, once that many are free. Work that asks for more than there
// are gets all of them. A call within do may wait for itself. Waiting calls are served in their
// order, so that work of many threads is not put off for ever. An error is that of do, or of ctx
// where it ended while waiting.
func (s *Shared) Do(ctx context.Context, n int, do func() error) error {
	if s == nil {
		return do()
	}
	weight := int64(max(1, min(n, s.threads)))
	if err := s.free.Acquire(ctx, weight); err != nil {
		return err
	}
	defer s.free.Release(weight)
	return do()
}

// plan distributes a run's threads over n pieces of work: how many run at the same time, and with
// how many threads each. With t threads and n pieces at = min(t, n) run at once, with t/at threads
// each, rounded down.
func (s *Shared) plan(threads, n int) (at, inner int) {
	at = max(1, min(threads, n))
	inner = threads / at
	if s != nil {
		inner /= s.runs // the other runs use these threads
	}
	return at, max(1, inner)
}

// load calls make, or returns its result for another run of the same data. The lock is not held
// while make runs, so that runs of other data do not wait.
func (s *Shared) load(c Config, make func() (*loaded, error)) (*loaded, error) {
	if s == nil {
		return make()
	}
	k, err := dataKey(c)
	if err != nil {
		return nil, err
	}
	s.mu.Lock()
	if s.data[k] == nil {
		s.data[k] = sync.OnceValues(make)
	}
	made := s.data[k]
	s.mu.Unlock()
	return made()
}

// dataKey identifies the settings that decide feature rows and their parts. Scores that are
// computed after loading are left out of it. Two runs that differ in methods or in the federation
// alone have one key. A key that is too fine costs time, and one too coarse would mix data.
func dataKey(c Config) (string, error) {
	c.FillDefaults()
	c.Scores.Coverage, c.Scores.Hindsight = false, false
	if len(c.Scores.Other)+len(c.Scores.Domains) == 0 && !c.Scores.Corruptions {
		c.Seed = 0 // the data do not depend on the seed
	}
	b, err := json.Marshal(struct {
		D    settings.Dataset
		C    Corpus
		X    settings.Extractor
		E, P string
		S    Scores
		T    string
		Seed uint64
	}{c.Dataset, c.Corpus, c.Extractor, c.Engine.Name, c.Engine.Provider, c.Scores,
		c.Tuning.Classes, c.Seed})
	if err != nil {
		return "", fmt.Errorf("settings of the data: %w", err)
	}
	return string(b), nil
}
