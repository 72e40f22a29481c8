// Package alloctest bounds the allocations of parsers of foreign files. Tests use it, fuzz tests
// above all.
package alloctest

import (
	"runtime"
	"runtime/metrics"
	"testing"
)

// slack is the memory that any call may allocate besides: buffers of a fixed size, tables that are
// made at the first call, memory that the test's own goroutines take meanwhile, and small objects
// that the runtime counts by whole pages.
const slack = 1 << 20

// AtMost runs f and fails the test where f allocates more than slack and limit bytes in all, freed
// again or not: a bound on the sum is one on the peak. Where the fast count exceeds the bound f
// runs under the exact one, up to three times and the least counts, as a garbage collection in the
// middle empties pools: f must be fit to run four times.
func AtMost(t testing.TB, limit int, f func()) {
	t.Helper()
	max := uint64(limit) + slack
	if counted(f, fast) <= max {
		return
	}
	var got uint64
	for range 3 {
		if got = counted(f, exact); got <= max {
			return
		}
	}
	t.Errorf("%d bytes were allocated; the bound is %d and %d more", got, limit, slack)
}

// NoRace skips a test under the race detector, which empties pools at random and allocates for its
// own ends: a bound that leaves little room does not hold there.
func NoRace(t testing.TB) {
	t.Helper()
	if raced {
		t.Skip("the race detector empties pools at random")
	}
}

// counted returns the bytes that the program allocates while f runs.
func counted(f func(), count func() uint64) uint64 {
	before := count()
	f()
	return count() - before
}

// fast returns the bytes that the program has allocated so far, less the small objects in pages
// that are not full: a garbage collection adds those of all sizes at once, some megabytes, whenever
// they were allocated.
func fast() uint64 {
	s := []metrics.Sample{{Name: "/gc/heap/allocs:bytes"}}
	metrics.Read(s)
	return s[0].Value.Uint64()
}

// exact returns all bytes. It stops the program, which costs a fuzz target more than many an input
// does.
func exact() uint64 {
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return m.TotalAlloc
}
