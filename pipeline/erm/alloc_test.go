package erm

import (
	"context"
	"runtime"
	"runtime/debug"
	"testing"

	"fmp/onnx/must"
)

// TestSharedPointsAreHeldOnce: what fits of S problems that share N points allocate is the sum of
// what goes with S (heads, the points of their own) and what goes with N: nothing goes with both.
func TestSharedPointsAreHeldOnce(t *testing.T) {
	if testing.Short() {
		t.Skip("the race detector, which goes over the short tests, empties pools at random")
	}
	// it empties pools, of which there is one a processor
	defer debug.SetGCPercent(debug.SetGCPercent(-1))
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(1))
	const dx, c, own, most, problems = 8, 4, 20, 4000, 40
	all := random(1, most+problems*own, dx, c, 1)
	part := func(from, n int) *Problem {
		d := all.D()
		return &Problem{N: n, Dx: dx, C: c, L2: all.L2, X: all.X[from*d : (from+n)*d],
			Y: all.Y[from*c : (from+n)*c], W: all.W[from : from+n]}
	}
	allocated := func(s, n int) int64 {
		shared, ps := part(0, n), make([]*Problem, s)
		for i := range ps {
			ps[i] = part(most+i*own, own)
		}
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		must.Get(SolveShared(context.Background(), shared, ps,
			Options{Threads: 1, Tolerance: 1e-6}))(t)
		runtime.ReadMemStats(&after)
		return int64(after.TotalAlloc - before.TotalAlloc)
	}
	allocated(problems, most)
	few, heavy := allocated(10, 200), allocated(problems, most)
	onlyS, onlyN := allocated(problems, 200), allocated(10, most)
	if both := heavy - onlyS - onlyN + few; both > 1<<16 {
		t.Errorf("%d bytes for 10 problems on 200 points, %d for %d, %d for %d points, %d for both: %d "+
			"go with both", few, onlyS, problems, onlyN, most, heavy, both)
	}
}
