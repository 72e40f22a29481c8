// Package parallel does the same for many things at once.
package parallel

import (
	"context"
	"runtime"

	"golang.org/x/sync/errgroup"
)

// Each calls do for 0 to n-1 on at most threads goroutines at a time; 0: one a processor. The first
// error ends the context of the others, and none is begun after it. It returns after all that were
// begun have ended. do must write to places of its own.
func Each(ctx context.Context, threads, n int,
	do func(ctx context.Context, i int) error) error {
	g, ctx := errgroup.WithContext(ctx)
	if threads <= 0 {
		threads = runtime.GOMAXPROCS(0)
	}
	g.SetLimit(threads)
	for i := range n {
		g.Go(func() error {
			if err := ctx.Err(); err != nil {
				return err
			}
			return do(ctx, i)
		})
	}
	return g.Wait()
}
