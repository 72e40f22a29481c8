// Package alloctest bounds what parsers of foreign files allocate. Tests use it, fuzz tests above all.
package alloctest

import (
	"runtime"
	"testing"
)

// Slack is what any call may allocate besides: buffers of a fixed size, tables that are made at the first call, and what
// the test's own goroutines take meanwhile.
const Slack = 1 << 20

// AtMost runs f and fails the test where f allocates more than Slack and limit bytes in all, freed again or not: a
// bound on the sum is one on the peak.
func AtMost(t testing.TB, limit int, f func()) {
	t.Helper()
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	f()
	runtime.ReadMemStats(&after)
	if got := after.TotalAlloc - before.TotalAlloc; got > uint64(limit)+Slack {
		t.Errorf("%d bytes were allocated; the bound is %d and %d more", got, limit, Slack)
	}
}
