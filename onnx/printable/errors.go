package printable

import (
	"errors"
	"fmt"
)

// maxErrors bounds the errors that [Errors] writes out: a screen of them.
const maxErrors = 20

// many holds all errors, of which its text has some.
type many []error

func (m many) Error() string {
	if len(m) <= maxErrors {
		return errors.Join(m...).Error()
	}
	return fmt.Sprintf("%v\nand %d more", errors.Join(m[:maxErrors-1]...), len(m)-maxErrors+1)
}

func (m many) Unwrap() []error { return m }

// Errors joins errors as [errors.Join] does, and writes out twenty lines at most: the first ones
// and the number of the others. errors.Is and errors.As look at all. It returns nil of none.
func Errors(errs []error) error {
	if len(errs) == 0 {
		return nil
	}
	return many(errs)
}
