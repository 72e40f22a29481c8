package experiment

import (
	"cmp"
	"sync"
	"time"

	"fmp/pipeline/lab/rival"
)

// Step is the progress of a stage of a run.
type Step struct {
	Stage string
	// Done of Total steps, including those of an earlier, interrupted run; Total is 0 where the end
	// is not known.
	Done, Total int
	// Share is the finished share of the stage's work, in [0, 1]: steps differ in cost.
	Share float64
}

// even returns a step of a stage whose steps cost the same.
func even(stage string, done, total int) Step {
	s := Step{Stage: stage, Done: done, Total: total}
	if total > 0 {
		s.Share = float64(done) / float64(total)
	}
	return s
}

// counter counts the finished cells of a stage and reports its progress. It is safe for concurrent
// use once its totals are set.
type counter struct {
	stage       string
	done, total int
	work        *work
	progress    Progress
	mu          sync.Mutex
}

func newCounter(stage string, progress Progress) *counter {
	return &counter{stage: stage, work: newWork(), progress: progress}
}

// expect adds a cell of a method to the stage, finished by an earlier run or not.
func (k *counter) expect(method string, finished bool) {
	k.total++
	k.work.total[method]++
	if finished {
		k.done++
		k.work.done[method]++
	}
}

// finish counts a cell of a method that took that long.
func (k *counter) finish(method string, took time.Duration) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.done++
	k.work.time(method, took)
	k.report()
}

func (k *counter) report() { k.progress(Step{k.stage, k.done, k.total, k.work.share()}) }

// work tracks how much of a run is done, each cell weighed by the cost of its method: its mean time
// so far or, before any, its usual cost, scaled as the timed methods compare with theirs. It is not
// safe for concurrent use.
type work struct {
	done, total map[string]int
	took        map[string]time.Duration
	timed       map[string]int
}

func newWork() *work {
	return &work{map[string]int{}, map[string]int{}, map[string]time.Duration{}, map[string]int{}}
}

func (w *work) time(method string, took time.Duration) {
	w.took[method] += took
	w.timed[method]++
	w.done[method]++
}

// share returns the finished share of the work.
func (w *work) share() float64 {
	usual := func(method string) float64 {
		if m, err := rival.Lookup(method); err == nil {
			return cmp.Or(m.Info().Cost, 2)
		}
		return 2
	}
	var seconds, expected float64
	for method, n := range w.timed {
		seconds += w.took[method].Seconds()
		expected += float64(n) * usual(method)
	}
	var done, all float64
	for method, n := range w.total {
		cost := usual(method)
		if k := w.timed[method]; k > 0 {
			cost = w.took[method].Seconds() / float64(k)
		} else if expected > 0 && seconds > 0 {
			cost *= seconds / expected
		}
		done += float64(w.done[method]) * cost
		all += float64(n) * cost
	}
	if all == 0 {
		return 0
	}
	return done / all
}
