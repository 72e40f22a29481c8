// Command fmp-edge is the client alone: labelled images in, one upload out. It runs the client
// graph that `fmp fuse` writes, in Go alone, on small machines, and sends the upload where it is
// asked to.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"runtime/debug"
	"strconv"
	"strings"
	"syscall"

	"github.com/spf13/pflag"

	"fmp/cmd/buildinfo"
	"fmp/cmd/internal/crash"
	"fmp/cmd/internal/interrupt"
	"fmp/cmd/internal/outputs"
	"fmp/featurize/imagefile"
	"fmp/onnx/printable"
	"fmp/onnx/regularfile"
	"fmp/pipeline/federate/sender"
)

// Exit codes. Scripts may tell by 4 that another try is of no use, and by 5 that a person must
// decide.
const (
	exitOK          = 0
	exitFailed      = 1
	exitUsage       = 2
	exitMissing     = 3   // a file or a folder is not there
	exitClosed      = 4   // the round's deadline has passed
	exitUntrusted   = 5   // the extractor is unknown, and nobody approved it
	exitInterrupted = 130 // 128 + SIGINT, as shells have it
)

// The garbage collector works harder than it does by default, for the sake of memory; GOGC and
// GOMEMLIMIT overrule it. The bytes of a model come on top of the limit: else the collector never
// rests behind a larger one. GOGC=25 lets the heap grow by a quarter over the live bytes before it
// is collected.
const (
	gcPercent   = 25
	memoryLimit = 48 << 20
)

// limited says that the program chose its limit of memory itself.
var limited bool

// usageError is a fault of the command line or of the files that it names.
type usageError struct{ err error }

func (e *usageError) Error() string { return e.err.Error() }
func (e *usageError) Unwrap() error { return e.err }

// usagef is apart, as its many callers are smaller so.
//
//go:noinline
func usagef(format string, args ...any) error { return &usageError{fmt.Errorf(format, args...)} }

// refused marks err as a fault of the command's input; nil stays nil. A reader who went away is
// none. A misuse of flags that package imagefile tells of is worded as usage.
func refused(command string, err error) error {
	if err == nil || errors.Is(err, syscall.EPIPE) {
		return err
	}
	var m *imagefile.MisuseError
	if errors.As(err, &m) {
		return usagef("%s: %w", command, err)
	}
	return &usageError{err}
}

// command is one of the program's. A command line is its name, flags and arguments, in any order
// behind the name. args and example are for the help, and short is a line of the list. log is
// standard error, and out standard output.
type command struct {
	name, args, short, example string
	// flags declares the command's flags and returns the function of its arguments.
	flags func(f *pflag.FlagSet) func(ctx context.Context, args []string, out, log io.Writer) error
}

// commands are those of the program, in the order of the help.
func commands() []command {
	return []command{joinCommand, keyCommand, compressCommand, sendCommand, withdrawCommand,
		predictCommand, evaluateCommand, inspectCommand, approveCommand, pageCommand,
		benchCommand, versionCommand}
}

// The limits are set before anything is read.
func main() {
	crash.Abort()
	if os.Getenv("GOGC") == "" {
		debug.SetGCPercent(gcPercent)
	}
	if limited = os.Getenv("GOMEMLIMIT") == ""; limited {
		debug.SetMemoryLimit(memoryLimit)
	}
	ctx := interrupt.Context("fmp-edge", exitInterrupted)
	os.Exit(execute(ctx, os.Args[1:], os.Stdout, os.Stderr))
}

// execute runs the program and is its exit code. Errors are printed here and nowhere else. The
// order of judgement is: interrupt, an extractor that nobody approved, a closed round, the machine,
// files, usage.
func execute(ctx context.Context, args []string, out, log io.Writer) (code int) {
	out, log = printable.Writer(out), printable.Writer(log) // a terminal obeys no text of others
	defer func() {
		if r := recover(); r != nil {
			fmt.Fprintf(log, "fmp-edge: internal error: %v\nfmp-edge: this is a fault of the "+
				"program, not of your input; please report it with the command you ran\n", r)
			code = crash.Code
		}
	}()
	err := dispatch(ctx, args, out, log)
	switch {
	case err == nil:
		return exitOK
	case errors.Is(err, context.Canceled):
		fmt.Fprintln(log, "fmp-edge: interrupted")
		return exitInterrupted
	}
	fmt.Fprintf(log, "fmp-edge: %v\n", err)
	var untrusted *untrustedError
	if errors.As(err, &untrusted) {
		fmt.Fprintf(log, "fmp-edge: if it is meant: %s\n", withYes(args, untrusted.digest))
		return exitUntrusted
	}
	var usage *usageError
	switch {
	case errors.Is(err, sender.ErrClosed):
		return exitClosed
	case regularfile.OfMachine(err): // and of no input, however it is marked
		return exitFailed
	case errors.Is(err, fs.ErrNotExist):
		return exitMissing
	case errors.As(err, &usage):
		return exitUsage
	}
	return exitFailed
}

// dispatch runs the command that the first argument names. Its outputs are claimed until it has
// ended. Outputs are checked against all inputs before the command begins. Flags come into being
// with the command that is run, and others have none.
func dispatch(ctx context.Context, args []string, out, log io.Writer) error {
	if len(args) == 2 && args[0] == "help" {
		args = []string{args[1], "--help"}
	}
	if len(args) == 0 || args[0] == "help" || args[0] == "-h" || args[0] == "--help" {
		return help(out)
	}
	if args[0] == "--version" {
		args = []string{versionCommand.name}
	}
	var names []string
	for _, c := range commands() {
		names = append(names, c.name)
		if c.name != args[0] {
			continue
		}
		f := pflag.NewFlagSet(c.name, pflag.ContinueOnError)
		f.Usage = func() {}
		run := c.flags(f)
		err := parse(f, args[1:], strconv.IntSize)
		if errors.Is(err, pflag.ErrHelp) {
			_, err := fmt.Fprintf(out, "%s\n\nUsage:\n  fmp-edge %s %s\n\nExamples:\n%s\n"+
				"\nFlags:\n%s", c.short, c.name, c.args, c.example, f.FlagUsages())
			return err
		}
		if err != nil {
			return usagef("%s: %w; see fmp-edge %s --help", c.name, err, c.name)
		}
		release, err := outputs.Check(f, f.Args())
		if err != nil {
			return usagef("%s: %w", c.name, err)
		}
		defer release()
		return run(ctx, f.Args(), out, log)
	}
	return usagef("unknown command %q; there are %s: see fmp-edge help", args[0],
		strings.Join(names, ", "))
}

// help lists the commands and the exit codes. It needs no flags, and is printed for no arguments
// too.
func help(out io.Writer) error {
	text := "fmp-edge turns labelled images into one upload for a federation, on small " +
		"machines.\n\nCommands:\n"
	for _, c := range commands() {
		text += fmt.Sprintf("  %-10s %s\n", c.name, c.short)
	}
	text += "\nfmp-edge COMMAND --help says more. Exit codes: 0 done, 1 failed, 2 wrong usage or " +
		"input, 3 a file is missing, 4 the round is closed, 5 the extractor is not approved, 130 " +
		"interrupted, 134 out of memory or a fault of the program.\n"
	_, err := io.WriteString(out, text)
	return err
}

var versionCommand = command{
	name: "version", short: "Print the version of this program", example: "  fmp-edge version",
	flags: func(*pflag.FlagSet) func(context.Context, []string, io.Writer, io.Writer) error {
		return func(_ context.Context, _ []string, out, _ io.Writer) error {
			_, err := fmt.Fprintf(out, "fmp-edge %v\n", buildinfo.Read())
			return err
		}
	},
}

// parse is f's, which forgets of a number the bits that an int here has not. On processors of 32
// bits a larger number would be taken for a smaller one. bits is 32 or 64.
func parse(f *pflag.FlagSet, args []string, bits int) error {
	return f.ParseAll(args, func(flag *pflag.Flag, value string) error {
		err := f.Set(flag.Name, value)
		if err == nil && flag.Value.Type() == "int" {
			if _, err := strconv.ParseInt(value, 0, bits); err != nil {
				return fmt.Errorf("--%s: %w", flag.Name, err)
			}
		}
		return err
	})
}
