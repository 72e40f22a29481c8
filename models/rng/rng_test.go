package rng

import (
	"math"
	"sync"
	"testing"
)

func draws(seed uint64, name ...any) [64]uint64 {
	r := New(seed, name...)
	var out [64]uint64
	for i := range out {
		out[i] = r.Uint64()
	}
	return out
}

func TestStreamsAreNamed(t *testing.T) {
	base := draws(7, "task", 3, "noise")
	if draws(7, "task", 3, "noise") != base {
		t.Error("the same seed and name gave two streams")
	}
	for _, other := range [][64]uint64{draws(8, "task", 3, "noise"), draws(7, "task", 4, "noise"),
		draws(7, "task", 3),
		draws(7, "task", "noise", 3), draws(7, "task", 33, "noise")} {
		if other == base {
			t.Error("another seed or name gave the same stream")
		}
	}
}

// Streams read by many goroutines in any order are those read one after the other.
func TestOrderDoesNotMatter(t *testing.T) {
	want := make([][64]uint64, 50)
	for i := range want {
		want[i] = draws(1, "item", i)
	}
	got := make([][64]uint64, len(want))
	var wg sync.WaitGroup
	for i := len(got) - 1; i >= 0; i-- {
		wg.Add(1)
		go func() { defer wg.Done(); got[i] = draws(1, "item", i) }()
	}
	wg.Wait()
	for i := range want {
		if got[i] != want[i] {
			t.Fatalf("stream %d differs", i)
		}
	}
}

// Mean, variance and the correlation of two neighbouring streams, within five standard errors.
func TestNormal(t *testing.T) {
	const n = 100_000
	a, b := make([]float32, n), make([]float32, n)
	Normal(New(1, "a"), a)
	Normal(New(1, "b"), b)
	var mean, square, cross float64
	for i := range a {
		mean += float64(a[i]) / n
		square += float64(a[i]) * float64(a[i]) / n
		cross += float64(a[i]) * float64(b[i]) / n
	}
	se := 1 / math.Sqrt(n)
	if math.Abs(mean) > 5*se || math.Abs(square-1) > 5*math.Sqrt2*se || math.Abs(cross) > 5*se {
		t.Errorf("mean %v, second moment %v, correlation of two streams %v", mean, square, cross)
	}
}
