package experiment

import (
	"sync"

	"fmp/pipeline/lab/rival"
)

// group is the cells of one task, a partition and a repeat, that are left to run. They share the
// task and its memo.
type group struct {
	partition Partition
	repeat    int
	cells     []Cell
	started   bool

	// the task, and the same as rivals have it in the protocol calibrated, which the first callers
	// make
	task       func() (*rival.Task, error)
	calibrated func() (*calibrated, error)
}

// queue hands out the cells of a run.
type queue struct {
	mu     sync.Mutex
	groups []*group
}

// next returns a cell and its group: of the caller's own group, so that methods find others'
// results in the memo; where it has none left, of a task that nobody has begun; and where there is
// none, of any task, so that its methods run on all threads at once. The group is nil at the end. A
// call costs O(groups) where the caller's own is at its end, and O(1) otherwise.
func (q *queue) next(own *group) (*group, Cell) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if own == nil || len(own.cells) == 0 {
		own = nil
		left := q.groups[:0]
		for _, g := range q.groups {
			if len(g.cells) == 0 {
				continue // its memo can go
			}
			left = append(left, g)
			if own == nil || own.started && !g.started {
				own = g
			}
		}
		clear(q.groups[len(left):])
		if q.groups = left; own == nil {
			return nil, Cell{}
		}
	}
	own.started = true
	cell := own.cells[0]
	own.cells = own.cells[1:]
	return own, cell
}
