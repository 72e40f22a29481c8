package main

import (
	"context"
	"errors"
	"io/fs"

	"fmp/pipeline/federate/service"
	"fmp/pipeline/federate/store"
	"fmp/pipeline/pool"
	"fmp/pipeline/privacy"
)

// sums keeps the noisy sums of a private round in its state, one for each set of uploads.
type sums struct {
	ctx   context.Context
	store *store.Store
}

func (s sums) String() string { return "the state of the round" }

// Sum is what was kept for a set of uploads.
func (s sums) Sum(inputs string) ([]byte, error) {
	data, err := s.store.Object(s.ctx, "sum-"+inputs, pool.MaxPublished)
	if errors.Is(err, store.ErrNone) {
		err = fs.ErrNotExist
	}
	return data, err
}

// Keep keeps it.
func (s sums) Keep(inputs string, data []byte) error {
	return s.store.PutObject(s.ctx, "sum-"+inputs, data)
}

// privateSummary is what a version of a private round says of how it was made.
type privateSummary struct {
	Samples int             `json:"samples"`
	Spent   privacy.Account `json:"spent"`
}

// private makes the classifier of a private round, as fmp pool does.
func (p *pooling) private(ctx context.Context, releases []pool.Release, keeper pool.Keeper) (*service.Pooled, error) {
	r, err := pool.NewPrivate(releases, p.graph, p.client, p.options)
	if err != nil {
		return nil, err
	}
	totals, err := r.Totals(keeper)
	if err != nil {
		return nil, err
	}
	post, err := r.Posterior(ctx, p.eng, totals)
	if err != nil {
		return nil, err
	}
	made, err := bothForms(r, post)
	if err != nil {
		return nil, err
	}
	made.Summary = privateSummary{Samples: len(post.Ensembles[0]), Spent: r.Account}
	return made, nil
}
