package kernel

import "runtime"

// flush has the processor take numbers below the normal range of float32 for zeros, as operands and
// as results, until the function that it returns is called, where the environment asks for it: on
// many processors an operation on such a number takes a hundred times as long as on others. The
// goroutine keeps its thread meanwhile, as the setting is the thread's. Processors but amd64 and
// arm64 are left as they are.
func (e *Env) flush() (restore func()) {
	if !e.Flush || !canFlush {
		return func() {}
	}
	runtime.LockOSThread()
	was := control()
	setControl(was | flushBits)
	return func() {
		setControl(was)
		runtime.UnlockOSThread()
	}
}

// Flushed calls f with numbers below the normal range taken for zeros, where the environment asks
// for it and the processor can.
func (e *Env) Flushed(f func() error) error {
	defer e.flush()()
	return f()
}
