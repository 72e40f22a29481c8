// Package interrupt ends a program on a signal: Ctrl-C (SIGINT), a stop by the system (SIGTERM), or
// a terminal that closes (SIGHUP).
package interrupt

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"syscall"
	"time"
)

// Grace is the time that work may take to stop after the first signal.
const Grace = 1500 * time.Millisecond

// Context returns a context that is cancelled at the first signal, which asks the work to stop at
// its next safe point. A second signal ends the program at once, as does the end of Grace, with a
// line that names the program and the given exit code: work that does not listen is not waited for,
// since files are written completely or not at all whenever the program ends. SIGHUP stays ignored
// where the parent process ignores it (nohup).
func Context(program string, code int) context.Context {
	signals := []os.Signal{os.Interrupt, syscall.SIGTERM}
	for _, s := range closes {
		if !signal.Ignored(s) {
			signals = append(signals, s)
		}
	}
	ctx, stop := signal.NotifyContext(context.Background(), signals...)
	go func() {
		<-ctx.Done()
		stop()
		time.Sleep(Grace)
		fmt.Fprintf(os.Stderr, "%s: interrupted\n", program)
		os.Exit(code)
	}()
	return ctx
}
