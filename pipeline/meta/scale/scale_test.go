package scale

import (
	"math"
	"testing"

	"fmp/models/rng"
	"fmp/onnx/must"
	"fmp/pipeline/meta"
	"fmp/pipeline/task"
)

// corpus returns rows of classes that scatter by the one number or the other along each direction:
// unlike each other, which the closed form cannot know, unless the two are equal.
func corpus(t *testing.T, scatter [2]float32) *task.Bank {
	t.Helper()
	const rows, classes, dx = 720, 12, 4
	r := rng.New(1, "means")
	means := make([]float32, classes*dx)
	rng.Normal(r, means)
	x, y := make([]float32, rows*dx), make([]int, rows)
	rng.Normal(r, x)
	for i := range y {
		y[i] = i % classes
		for j := range dx {
			x[i*dx+j] = scatter[(y[i]+j)%2]*x[i*dx+j] + means[y[i]*dx+j]
		}
	}
	return must.Get(task.NewBank(x, dx, y, classes))(t)
}

// TestLearn: samples have some of the uncertainty of a fit where fits learn something, as much for
// any number of threads, and none where the closed form is right; a corpus too small for the
// clients is an error that says so.
func TestLearn(t *testing.T) {
	bank := corpus(t, [2]float32{0.4, 2})
	p := must.Get(meta.UntrainedOpen(bank, 4))(t)
	c := Config{Corpus: bank, Clients: 4, Threads: 1, Tasks: 3, Seed: 1}
	last := 0
	c.Progress = func(done, total int) {
		if last = max(last, done); total != c.Tasks {
			t.Errorf("%d of %d tasks", done, total)
		}
	}
	one, apart := must.Get2(Learn(t.Context(), p, c))(t)
	if last != c.Tasks || !(one > 0) || one > grid[len(grid)-1] {
		t.Errorf("scale %v after %d tasks", one, last)
	}
	if apart < minDeviation || apart > maxDeviation {
		t.Errorf("temperatures are %v apart", apart)
	}
	c.Progress, c.Threads = nil, 3
	if again, same, err := Learn(t.Context(), p, c); err != nil || again != one || same != apart {
		t.Errorf("scale %v with one worker, %v with three, %v", one, again, err)
	}
	c.Corpus = corpus(t, [2]float32{1, 1})
	if other, _, err := Learn(t.Context(), p, c); err != nil || other >= one {
		t.Errorf("scale %v where the closed form is right, %v; %v where it is not", other, err, one)
	}
	c.Clients = 1000
	must.Fail(Learn(t.Context(), p, c))(t, "federation.clients")
}

// TestBest: inside the grid the least of a parabola in log scale is found between the values tried;
// at the ends it is the end.
func TestBest(t *testing.T) {
	loss := func(at float64) []float64 {
		out := make([]float64, len(grid))
		for j, v := range grid {
			u := math.Log2(max(v, 1./32)) - at
			out[j] = 3 + u*u
		}
		return out
	}
	for _, c := range []struct{ at, want float64 }{{-1.7, math.Exp2(-1.7)}, {-2.2, math.Exp2(-2.2)},
		{-9, 0}, {5, 2}} {
		if got := best(grid, loss(c.at)); math.Abs(got-c.want) > 1e-9 {
			t.Errorf("the least is at 2^%v: %v; want %v", c.at, got, c.want)
		}
	}
}
