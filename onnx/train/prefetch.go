package train

import (
	"context"
	"fmt"
)

// Prefetch calls produce for t = from, from+1, ... ahead of their use, in a goroutine that ends
// with the context, and returns a function that returns them in that order. produce must depend on
// t alone. At most ahead values wait, and one more is being made. The function returned is for one
// goroutine, and t must count up from from without a gap. An error of produce comes in the place of
// its value and ends the goroutine. A caller that stops early must cancel ctx, or the goroutine
// waits for ever.
func Prefetch[T any](ctx context.Context, from, to, ahead int,
	produce func(t int) (T, error)) func(t int) (T, error) {
	type item struct {
		t   int
		v   T
		err error
	}
	ready := make(chan item, max(1, ahead))
	go func() {
		defer close(ready)
		for t := from; t < to; t++ {
			v, err := produce(t)
			select {
			case ready <- item{t, v, err}:
			case <-ctx.Done():
				return
			}
			if err != nil {
				return
			}
		}
	}()
	return func(t int) (T, error) {
		it, ok := <-ready
		if !ok {
			var zero T
			if err := ctx.Err(); err != nil {
				return zero, err
			}
			return zero, fmt.Errorf("batch %d was asked for and there is none", t)
		}
		if it.err == nil && it.t != t {
			return it.v, fmt.Errorf("batch %d was asked for and %d is next", t, it.t)
		}
		return it.v, it.err
	}
}
