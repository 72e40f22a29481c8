package metric

import (
	"context"
	"math/rand/v2"
	"runtime"
	"runtime/debug"
	"testing"

	"fmp/onnx/must"
	"fmp/pipeline/erm"
)

// TestPredictionAllocates: what prediction allocates is the sum of what goes with heads and what
// goes with points: nothing goes with both.
func TestPredictionAllocates(t *testing.T) {
	if testing.Short() {
		t.Skip("the race detector, which goes over the short tests, empties pools at random")
	}
	// it empties pools, of which there is one a processor
	defer debug.SetGCPercent(debug.SetGCPercent(-1))
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(1))
	const dx, c = 16, 5
	rng := rand.New(rand.NewPCG(1, 2))
	heads := make([]erm.Theta, 400)
	for s := range heads {
		heads[s] = erm.NewTheta(dx+1, c)
		for i := range heads[s].W {
			heads[s].W[i] = rng.NormFloat64()
		}
	}
	features := make([]float32, 8000*dx)
	for i := range features {
		features[i] = float32(rng.NormFloat64())
	}
	allocated := func(s, n int) int64 {
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		must.Get(Predict(context.Background(), heads[:s], features[:n*dx], 1))(t)
		runtime.ReadMemStats(&after)
		return int64(after.TotalAlloc - before.TotalAlloc)
	}
	allocated(400, 8000)
	few, heavy := allocated(10, 1000), allocated(400, 8000)
	onlyHeads, onlyPoints := allocated(400, 1000), allocated(10, 8000)
	if both := heavy - onlyHeads - onlyPoints + few; both > 1<<16 {
		t.Errorf("%d bytes for 10 heads on 1,000 points, %d for 400, %d for 8,000 points, %d for both: "+
			"%d go with both", few, onlyHeads, onlyPoints, heavy, both)
	}
}
