package alloctest

import (
	"runtime"
	"testing"
)

// failures is a test that counts its errors, and how often it is skipped.
type failures struct {
	testing.TB
	n, skipped int
}

func (f *failures) Errorf(string, ...any) { f.n++ }
func (f *failures) Skip(...any)           { f.skipped++ }

// TestNoRace: bounds are tested without the race detector, and with it they are not.
func TestNoRace(t *testing.T) {
	f := &failures{TB: t}
	if NoRace(f); (f.skipped == 1) != raced {
		t.Errorf("skipped %d times; under the race detector: %v", f.skipped, raced)
	}
}

var kept [][]byte

// TestAtMost: allocations above the bound fail the test, and small objects of before that a
// collection adds do not.
func TestAtMost(t *testing.T) {
	f := &failures{TB: t}
	AtMost(f, 1<<20, func() { kept = append(kept, make([]byte, slack+1<<20+1)) })
	if f.n != 1 {
		t.Errorf("%d failures above the bound", f.n)
	}
	n := f.n
	AtMost(f, 1<<20, func() {
		for range 16 {
			kept = append(kept, make([]byte, (slack+1<<20)/16-16<<10))
		}
	})
	if f.n != n {
		t.Error("a failure below the bound")
	}
	for size := 8; size < 32<<10; size += size/8 + 8 {
		kept = append(kept, make([]byte, size))
	}
	AtMost(f, 0, runtime.GC)
	if f.n != n {
		t.Error("objects of before are counted")
	}
}
