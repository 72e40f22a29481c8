// Command fmp draws federated martingale posteriors: raw images in, calibrated predictions and
// their table out, every model an ONNX graph. `fmp help` lists its commands.
package main

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"runtime"
	"slices"
	"strings"

	"fmp/cmd/internal/crash"
	"fmp/cmd/internal/interrupt"
	"fmp/cmd/internal/outputs"
	_ "fmp/onnx/classical" // operators of ai.onnx.ml on the pure engine
	"fmp/onnx/printable"
	_ "fmp/onnx/rare" // operators of signals, losses and detection on the pure engine
	_ "fmp/onnx/text" // operators on strings on the pure engine

	"github.com/spf13/cobra"
)

// resumable are the commands that keep finished work and go on when they are given again. Names are
// those of cobra's CommandPath. An interrupt of one of them says so.
var resumable = []string{"fmp data pull", "fmp grid", "fmp run", "fmp train embedding",
	"fmp train extractor", "fmp train predictor"}

// os.Exit runs no deferred calls, which is why execute has them all.
func main() {
	crash.Abort()
	ctx := interrupt.Context("fmp", exitInterrupted)
	os.Exit(execute(ctx, os.Args[1:], os.Stdin, os.Stdout, os.Stderr))
}

// execute runs the program with the given arguments and streams, and is its exit code. Errors are
// printed here and nowhere else. The order of judgement is: an internal error, an interrupt, a
// silent error, any other error.
func execute(ctx context.Context, args []string, stdin io.Reader, stdout,
	stderr io.Writer) (code int) {
	// A terminal obeys no text of others.
	stdout, stderr = printable.Writer(stdout), printable.Writer(stderr)
	defer func() {
		// Panics of goroutines are not recovered here: they end the program by crash.Abort's
		// signal.
		if r := recover(); r != nil {
			fmt.Fprintf(stderr, "fmp: internal error: %v\nfmp: this is a fault of the program, "+
				"not of your input; please report it with the command you ran\n", r)
			code = crash.Code
		}
	}()
	// On Windows patterns are expanded before cobra checks arguments.
	root := newRootCommand(stdout)
	expanding(runtime.GOOS, root)
	root.SetArgs(args)
	root.SetIn(stdin)
	root.SetErr(stderr)
	var unprinted error
	help := root.HelpFunc() // which leaves errors of its writer out
	root.SetHelpFunc(func(cmd *cobra.Command, args []string) {
		var text bytes.Buffer
		cmd.SetOut(&text)
		help(cmd, args)
		cmd.SetOut(stdout)
		if _, err := stdout.Write(text.Bytes()); err != nil {
			unprinted = fmt.Errorf("printing the help: %w", err)
		}
	})
	// Outputs stay guarded against being read until the command has ended.
	release := func() {}
	defer func() { release() }()
	// It runs after flags are parsed and before the command itself.
	root.PersistentPreRunE = func(cmd *cobra.Command, args []string) error {
		free, err := outputs.Check(cmd.Flags(), args)
		if err == nil {
			release = free
		}
		return usageError(err)
	}
	cmd, err := root.ExecuteContextC(ctx)
	if err = cmp.Or(err, unprinted); err == nil {
		return exitOK
	}
	// A command that failed for another reason while it was being interrupted tells that reason.
	if ctx.Err() != nil && errors.Is(err, context.Canceled) {
		said := "fmp: interrupted"
		if slices.Contains(resumable, cmd.CommandPath()) {
			said += "; the same command goes on from here"
		}
		fmt.Fprintln(stderr, said)
		return exitInterrupted
	}
	var silent *silentError
	if !errors.As(err, &silent) {
		// Several faults at once (settings, say) stand one a line.
		fmt.Fprintf(stderr, "fmp: %s\n", strings.ReplaceAll(err.Error(), "\n", "\nfmp: "))
	}
	return exitCode(err)
}
