package rival

import (
	"context"
	"math"
	"testing"

	"fmp/models/rng"
	"fmp/onnx/must"
	"fmp/pipeline/lab/score"
	"fmp/pipeline/point"
)

// TestAssign: the assignment costs as little as the best of all that there are.
func TestAssign(t *testing.T) {
	r := rng.New(1, "assign")
	for _, size := range [][2]int{{1, 1}, {1, 4}, {3, 3}, {4, 6}, {6, 6}, {5, 8}} {
		for range 20 {
			cost := make([][]float64, size[0])
			for i := range cost {
				cost[i] = make([]float64, size[1])
				if r.IntN(4) == 0 {
					continue // a row to which all columns are equal
				}
				for j := range cost[i] {
					cost[i][j] = r.Float64() * 10
				}
			}
			got, used := 0.0, map[int]bool{}
			for i, j := range assign(cost) {
				got += cost[i][j]
				used[j] = true
			}
			if len(used) != size[0] {
				t.Fatalf("%v: %d columns for %d rows", size, len(used), size[0])
			}
			if want := cheapest(cost, map[int]bool{}); math.Abs(got-want) > 1e-9 {
				t.Errorf("%v: cost %v, want %v", size, got, want)
			}
		}
	}
}

// cheapest tries every assignment.
func cheapest(cost [][]float64, used map[int]bool) float64 {
	if len(cost) == 0 {
		return 0
	}
	best := math.Inf(1)
	for j, v := range cost[0] {
		if !used[j] {
			used[j] = true
			best = math.Min(best, v+cheapest(cost[1:], used))
			delete(used, j)
		}
	}
	return best
}

// TestCorpusOnly: classes that the task calls otherwise than the corpus are named by the clients'
// points, and then the corpus' classifier answers for them, also where a client holds one class
// only.
func TestCorpusOnly(t *testing.T) {
	const dx, c = 4, 4
	r := rng.New(2, "corpus")
	draw := func(class int) []float32 {
		x := make([]float32, dx)
		rng.Normal(r, x)
		x[class] += 6
		return x
	}
	var known []float32
	var labels []int
	for i := range 400 {
		known, labels = append(known, draw(i%c)...), append(labels, i%c)
	}
	k := must.Get(NewCorpus(known, dx, labels, c))(t)
	names := []int{2, 0, 3, 1} // the corpus class that the task's class is
	in := Input{Corpus: k, Seed: 1, Stream: "task"}
	for class, name := range names {
		set := must.Get(point.FromLabelled(append(draw(name), draw(name)...), dx, []int{class, class}, c))(t)
		in.Clients = append(in.Clients, set)
	}
	task := must.Get(NewTask(in))(t)
	res := must.Get(corpusOnly.Run(context.Background(), task, DefaultSettings()))(t)
	var x []float32
	var y []int
	for i := range 200 {
		x, y = append(x, draw(names[i%c])...), append(y, i%c)
	}
	s := must.Get(score.Evaluate(context.Background(), res, x, y, 1))(t)
	if s.ACC < 0.97 {
		t.Errorf("accuracy is %v; want nearly 1", s.ACC)
	}
}
