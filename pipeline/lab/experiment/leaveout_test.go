package experiment

import (
	"slices"
	"testing"

	"fmp/models/rng"
	"fmp/onnx/must"
	"fmp/pipeline/meta"
	"fmp/pipeline/task"
)

// TestLeaveOut: settings are tuned on classes of the corpus of which the methods' predictor knows
// nothing, with the scalars and the scale of the run's own.
func TestLeaveOut(t *testing.T) {
	const dx, classes, drawn, each = 6, 7, 3, 20
	bank := func(classes int) *task.Bank {
		x, y := make([]float32, classes*each*dx), make([]int, classes*each)
		rng.Normal(rng.New(1, "rows"), x)
		for i := range y {
			y[i] = i % classes
			for j := range dx {
				x[i*dx+j] = x[i*dx+j]/10 + float32(y[i]*(j+1))
			}
		}
		return must.Get(task.NewBank(x, dx, y, classes))(t)
	}
	data := &Data{Clients: bank(drawn), Corpus: bank(classes)}
	known := must.Get(meta.UntrainedOpen(data.Corpus, dx))(t)
	known.Scalars[0], known.Scale = 1.5, 0.25
	tasks, tools := must.Get2(leaveOut(t.Context(), rng.New(1, "classes"), Config{}, data, Tools{Open: known}))(t)
	if n, _ := tools.Open.Known.Dims(); tasks.C != drawn || n != classes-drawn ||
		tools.Open.Scalars != known.Scalars ||
		tools.Open.Scale != 0.25 {
		t.Fatalf("%d classes to tune on and %d that are known, scale %v", tasks.C, n, tools.Open.Scale)
	}
	// Of which class a row is says its last feature.
	class := func(v float64) int { return int(v/dx + 0.5) }
	var seen []int
	for i := range tasks.Len() {
		if y := class(float64(tasks.Features[i*dx+dx-1])); !slices.Contains(seen, y) {
			seen = append(seen, y)
		}
	}
	rest := must.Get(data.Corpus.Choose(others(seen, classes)))(t)
	want := must.Get(meta.UntrainedOpen(rest, dx))(t)
	sum := func(v []float64) (s float64) {
		for _, x := range v {
			s += x
		}
		return s
	}
	if got, of := sum(tools.Open.M0), sum(want.M0); len(seen) != drawn ||
		got < of-1e-6 || got > of+1e-6 {
		t.Errorf("tuned on classes %v, and the predictor's centre is %v, that of the others %v", seen,
			got, of)
	}
}

// others returns the classes that are not among some.
func others(some []int, classes int) (out []int) {
	for y := range classes {
		if !slices.Contains(some, y) {
			out = append(out, y)
		}
	}
	return out
}
