// Package interrupt ends a program that is asked to end: by Ctrl-C (SIGINT), by a system that stops it (SIGTERM), or by a
// terminal that goes away (SIGHUP).
package interrupt

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"syscall"
	"time"
)

// Grace is how long work may take to stop after the first signal.
const Grace = 1500 * time.Millisecond

// Context is done at the first signal, which asks the work to stop at its next safe point. A second one ends the program at
// once, as does the end of Grace, with a line from the program of the given name and the given exit code: work that does not
// listen is not waited for, as files are written whole or not at all whenever the program ends. SIGHUP is left alone where
// whoever started the program had it ignored (nohup).
func Context(program string, code int) context.Context {
	signals := []os.Signal{os.Interrupt, syscall.SIGTERM}
	if !signal.Ignored(syscall.SIGHUP) {
		signals = append(signals, syscall.SIGHUP)
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
