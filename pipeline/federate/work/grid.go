package work

import (
	"context"

	"fmp/pipeline/federate/store"
)

// Grid is the queue of a grid's runs.
type Grid struct{ queue }

// NewGrid opens the queue.
func NewGrid(ctx context.Context, st *store.Store) (*Grid, error) {
	q, err := newQueue(ctx, st)
	return &Grid{q}, err
}

// Ask puts a run into the queue. settings is the contents of the settings file in the run's
// directory.
func (g *Grid) Ask(ctx context.Context, settings []byte) (Job, error) {
	return g.ask(ctx, Job{Run: true,
		Sampling: Sampling{Store: g.store.Name(), Replicas: g.store.Replicas()}}, settings)
}

// Wait waits until a worker has finished the run, and returns the files of its directory by name.
func (g *Grid) Wait(ctx context.Context, j Job) (map[string][]byte, error) {
	r, err := g.wait(ctx, j)
	if err != nil {
		return nil, err
	}
	return r.Files, g.forget(ctx, j)
}
