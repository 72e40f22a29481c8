package onnx

import (
	"errors"
	"fmt"
)

// ErrUnknown is wrapped by the errors of a model that may well be sound, but uses features that
// these packages do not know: a newer operator set, operators of another domain, values that are no
// tensors.
var ErrUnknown = errors.New("not known here")

// Unknownf formats an error that wraps [ErrUnknown].
func Unknownf(format string, args ...any) error { return &unknown{fmt.Errorf(format, args...)} }

type unknown struct{ err error }

func (u *unknown) Error() string        { return u.err.Error() }
func (u *unknown) Unwrap() error        { return u.err }
func (u *unknown) Is(target error) bool { return target == ErrUnknown }
