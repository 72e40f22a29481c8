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

// counter counts the finished cells of a stage and reports its progress, each cell weighed by the
// cost of its method: its mean time so far or, before any, its usual cost, scaled as the timed
// methods compare with theirs. It is safe for concurrent use once its totals are set. The cells of
// all methods are expected before the first is finished.
type counter struct {
	stage       string
	done, total int
	progress    Progress
	mu          sync.Mutex
	methods     map[string]*methodCells
}

// methodCells are the cells of a method: all, those that are done, and the time of those that this
// run did.
type methodCells struct {
	done, total, timed int
	took               time.Duration
}

// newCounter returns a counter without cells, which [counter.expect] adds.
func newCounter(stage string, progress Progress) *counter {
	return &counter{stage: stage, progress: progress, methods: map[string]*methodCells{}}
}

// expect adds a cell of a method to the stage, finished by an earlier run or not.
func (k *counter) expect(method string, finished bool) {
	if k.methods[method] == nil {
		k.methods[method] = &methodCells{}
	}
	k.total++
	k.methods[method].total++
	if finished {
		k.done++
		k.methods[method].done++
	}
}

// finish counts a cell of a method that took that long.
func (k *counter) finish(method string, took time.Duration) {
	k.mu.Lock()
	defer k.mu.Unlock()
	m := k.methods[method]
	k.done, m.done, m.timed, m.took = k.done+1, m.done+1, m.timed+1, m.took+took
	k.report()
}

// report tells the progress. Callers hold mu, or are alone.
func (k *counter) report() { k.progress(Step{k.stage, k.done, k.total, k.share()}) }

// share returns the finished share of the work, sum_m done_m cost_m / sum_m total_m cost_m over
// methods m. A timed method costs its mean seconds, another its usual units times the seconds that
// a unit has taken so far. Estimates change with each time, so that the share may fall. Costs that
// are mean times include waiting for shared work.
func (k *counter) share() float64 {
	usual := func(method string) float64 {
		if m, err := rival.Lookup(method); err == nil {
			return cmp.Or(m.Info().Cost, 2)
		}
		return 2
	}
	var seconds, expected, done, all float64
	for name, m := range k.methods {
		seconds += m.took.Seconds()
		// The ratio of both sums is the seconds of one unit of cost on this machine.
		expected += float64(m.timed) * usual(name)
	}
	for name, m := range k.methods {
		cost := usual(name)
		if m.timed > 0 {
			cost = m.took.Seconds() / float64(m.timed)
		} else if expected > 0 && seconds > 0 {
			cost *= seconds / expected
		}
		done += float64(m.done) * cost
		all += float64(m.total) * cost
	}
	if all == 0 {
		return 0
	}
	return done / all
}
