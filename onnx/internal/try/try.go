// Package try ends work of many steps where one of them fails: by a panic that one place of the
// same package, from where the work is begun, makes an error again with [Catch]. Steps then need no
// branch each for an error that they only pass on. Functions that end so are not called from
// anywhere else.
package try

import "fmt"

// end is the panic.
type end struct{ error }

// Do ends the work at an error.
func Do(err error) {
	if err != nil {
		panic(end{err})
	}
}

// Fail ends the work with an error.
func Fail(format string, args ...any) { Do(fmt.Errorf(format, args...)) }

// Get is the value of a step, or the end of the work at its error.
func Get[T any](v T, err error) T {
	Do(err)
	return v
}

// Get2 is Get of two values.
func Get2[A, B any](a A, b B, err error) (A, B) {
	Do(err)
	return a, b
}

// Catch sets err, where it is deferred, to the error that work has ended with. Other panics go on,
// or become the error that other makes of them.
func Catch(err *error, other ...func(panicked any) error) {
	switch r := recover().(type) {
	case nil:
	case end:
		*err = r.error
	default:
		if len(other) == 0 {
			panic(r)
		}
		*err = other[0](r)
	}
}
