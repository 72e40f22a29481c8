package service

import (
	"context"
	"errors"
	"slices"
	"strings"

	"fmp/pipeline/federate/store"
	"fmp/pipeline/pool"
)

// sumObject begins the name of a noisy sum in the store.
const sumObject = "sum-"

// Sums keeps the noisy sums of a private round in its state, one for each set of uploads. Who is in
// such a round is settled once a sum is kept, so that no upload is in two of them.
type Sums struct {
	Ctx   context.Context
	Store *store.Store
}

func (s Sums) String() string { return "the state of the round" }

// Keep implements [pool.Keeper].
// A sum that is kept is returned, so that the noise of one set of uploads is drawn once. An error
// after the draw leaves it unknown whether it is kept.
func (s Sums) Keep(inputs string, _ map[string]string, draw func(before int) ([]byte,
	error)) ([]byte, error) {
	data, err := s.Store.Object(s.Ctx, sumObject+inputs, pool.MaxPublished)
	if !errors.Is(err, store.ErrNone) {
		return data, err
	}
	if data, err = draw(0); err != nil {
		return nil, err
	}
	return data, s.Store.PutObject(s.Ctx, sumObject+inputs, data)
}

// summed reports whether a sum of uploads is kept.
func (s *Server) summed(ctx context.Context) (bool, error) {
	names, err := s.Store.Objects(ctx)
	return slices.ContainsFunc(names, func(name string) bool {
		return strings.HasPrefix(name, sumObject)
	}), err
}
