package main

import (
	"context"
	"net/http"
	"time"

	"fmp/cmd/internal/interrupt"
	"fmp/pipeline/federate/service"
)

// outlasting returns a context for the engine of a server's predictions, which outlives the signal
// that ends ctx: requests under way are answered first. stop ends it, as [drain] does.
func outlasting(ctx context.Context) (context.Context, context.CancelCauseFunc) {
	return context.WithCancelCause(context.WithoutCancel(ctx))
}

// Requests under way have these times to be answered. After a signal the rest of interrupt.Grace is
// for the program to close its state. Where a notice ends the server the program has no such bound,
// unless a signal comes meanwhile.
const (
	afterSignal = interrupt.Grace / 2
	afterNotice = 5 * time.Second
)

// drain ends a server. Requests under way have the given time to be answered. stop ends the runs of
// those that take longer, which have an eighth of interrupt.Grace to tell their clients.
// Connections that are left are cut, so that nothing waits for a body that comes slowly.
func drain(srv *http.Server, stop context.CancelCauseFunc, within time.Duration) {
	for _, within := range []time.Duration{within, interrupt.Grace / 8} {
		end, cancel := context.WithTimeout(context.Background(), within)
		_ = srv.Shutdown(end) // requests that are left are cut below
		cancel()
		stop(service.ErrStopping)
	}
	_ = srv.Close()
}
