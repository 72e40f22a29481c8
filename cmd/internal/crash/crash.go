// Package crash gives the ends of a program that it cannot catch an exit code of their own. The Go
// runtime ends a program with exit code 2 where the system has no memory left, a stack overflows,
// or a goroutine panics; 2 is bad usage here.
package crash

import "runtime/debug"

// Code is the exit code that shells show for such an end: 128 + SIGABRT. On Windows it is another,
// and not 2 either.
const Code = 134

// Abort makes such an end one by SIGABRT. No core file is written: it would hold images and keys.
func Abort() {
	noCore()
	debug.SetTraceback("crash")
}
