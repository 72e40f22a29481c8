package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"

	"fmp/featurize/dataset"
	"fmp/onnx/engine/ort"
	"fmp/onnx/regularfile"
)

// Exit codes, as `fmp help` documents them.
const (
	// Scripts tell by these alone whether to correct the call (2), to fetch something (3) or to try
	// again (1).
	exitOK          = 0
	exitFailed      = 1
	exitUsage       = 2
	exitMissing     = 3
	exitUnknown     = 4   // fmp onnx check: neither sound nor wrong, as far as is known here
	exitInterrupted = 130 // 128 + SIGINT, as shells have it
)

// codedError is an error that knows the exit code it deserves. Its text is that of the error that
// it wraps, and errors.Is and errors.As look through it. An error may be marked several times on
// its way up.
type codedError struct {
	code int
	err  error
}

func (e *codedError) Error() string { return e.err.Error() }
func (e *codedError) Unwrap() error { return e.err }

// silentError ends the program with a code and no message: the command has already said it all.
type silentError struct{ code int }

func (e *silentError) Error() string { return fmt.Sprintf("exit code %d", e.code) }

// usageError marks err as the user's: bad usage, settings or input (exit code 2), or, where it says
// that a file, a data set or the library is not there, as missing (3). A nil err stays nil. Callers
// mark errors of loading a person's input, whatever their cause, and leave the distinction to this
// function and to exitCode. The mark of an inner call is covered by an outer one.
func usageError(err error) error {
	if errors.Is(err, fs.ErrNotExist) || errors.Is(err, dataset.ErrNotFound) ||
		errors.Is(err, ort.ErrNoLibrary) {
		return missingError(err)
	}
	return coded(exitUsage, err)
}

// usageErrorf formats a usageError. %w keeps the wrapped error, so that one of a missing file gives
// 3.
func usageErrorf(format string, args ...any) error {
	return usageError(fmt.Errorf(format, args...))
}

// missingError marks err as a file, a data set or a library that is not there (exit code 3). A nil
// err stays nil. It is for callers that know that something is missing where the error does not say
// so, as a library that cannot be loaded.
func missingError(err error) error { return coded(exitMissing, err) }

// coded marks an error with its exit code; nil stays nil.
func coded(code int, err error) error {
	if err == nil {
		return nil
	}
	return &codedError{code, err}
}

// exitCode is the code of an error; the outermost mark counts. An interrupt has its own code,
// whatever an error is marked with, and a fault of the machine is nobody's usage. The order of the
// cases is the order of precedence. A full disk is of the machine even where a caller has marked
// the error as usage: no other command line would help. An error without a mark has code 1.
func exitCode(err error) int {
	var c *codedError
	var s *silentError
	switch {
	case err == nil:
		return exitOK
	// An interrupt reaches the command as the cancelled context of its work.
	case errors.Is(err, context.Canceled):
		return exitInterrupted
	case errors.As(err, &s):
		return s.code
	case regularfile.OfMachine(err):
		return exitFailed
	case errors.As(err, &c):
		return c.code
	}
	return exitFailed
}
