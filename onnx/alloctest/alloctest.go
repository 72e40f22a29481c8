// Package alloctest bounds the allocations of parsers of foreign files. Tests use it, fuzz tests above all.
package alloctest

import (
	"runtime/metrics"
	"testing"
)

// Slack is the memory that any call may allocate besides: buffers of a fixed size, tables that are made at the first call, memory that
// the test's own goroutines take meanwhile, and small objects that the runtime counts by whole pages.
const Slack = 1 << 20

// AtMost runs f and fails the test where f allocates more than Slack and limit bytes in all, freed again or not: a
// bound on the sum is one on the peak.
func AtMost(t testing.TB, limit int, f func()) {
	t.Helper()
	before := allocated()
	f()
	if got := allocated() - before; got > uint64(limit)+Slack {
		t.Errorf("%d bytes were allocated; the bound is %d and %d more", got, limit, Slack)
	}
}

// allocated returns the bytes that the program has allocated so far. [runtime.ReadMemStats] stops it each time, which costs a fuzz target
// more than many an input does.
func allocated() uint64 {
	s := []metrics.Sample{{Name: "/gc/heap/allocs:bytes"}}
	metrics.Read(s)
	return s[0].Value.Uint64()
}
