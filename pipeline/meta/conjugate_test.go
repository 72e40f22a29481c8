package meta

import (
	"context"
	"math"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"

	"fmp/models"
	"fmp/models/rng"
	"fmp/onnx"
	"fmp/onnx/must"
	"fmp/pipeline/internal/moment"
	"fmp/pipeline/task"
)

// TestTrainConjugate: training lowers the score on validation tasks; an interruption in any phase
// leaves no trace, nor does the number of threads.
func TestTrainConjugate(t *testing.T) {
	c := ConjugateConfig{Config: config(t, 40)}
	c.Batch, c.Samples, c.Points = 2, 8, 6
	c.Corpus = blobs(t, "corpus", 900, 4, 3)
	c.ValidateEvery = 20
	c.Log = filepath.Join(t.TempDir(), "log.jsonl")
	want := must.Get(TrainConjugate(context.Background(), c))(t)
	v := validations(t, c.Log)
	if first, last := v[0]["nll"].(float64), v[1]["nll"].(float64); !(last <= first+0.01) {
		t.Errorf("nll went from %v to %v", first, last)
	}
	untrained := must.Get(UntrainedConjugate(c.Corpus))(t)
	if cmp.Equal(bytesOf(t, untrained), bytesOf(t, want)) {
		t.Error("training changed nothing")
	}
	for _, stop := range []int{10, 45, 60, 80} {
		c.Threads, c.Validation, c.Log = 1, nil, ""
		c.Checkpoint = filepath.Join(t.TempDir(), "checkpoint.onnx")
		stopped(t, &c.Config, stop,
			func(ctx context.Context) (*onnx.Model, error) { return TrainConjugate(ctx, c) })
		got := must.Get(TrainConjugate(context.Background(), c))(t)
		if !cmp.Equal(bytesOf(t, got), bytesOf(t, want)) {
			t.Errorf("stopped after step %d and resumed it came out otherwise than in one go", stop)
		}
	}
}

// TestConjugateMoments: in the coordinates w of the start classes have covariance I within and diag
// lambda between.
func TestConjugateMoments(t *testing.T) {
	corpus := blobs(t, "corpus", 3000, 6, 4)
	values := must.Get(StartConjugate(corpus, 0, 0))(t)
	m := must.Get(moment.Compute(coordinates(values, corpus), corpus.Labels, corpus.C, 1))(t)
	n, k, within, means := corpus.Len(), len(m.Centre), m.Within, m.Means
	lambda := values[models.ConjLogLambda].F32()
	for i := range k {
		for j := range k {
			want, between := 0.0, 0.0
			if i == j {
				want = 1
			}
			for c := range corpus.C {
				between += means.At(c, i) * means.At(c, j) / float64(corpus.C-1)
			}
			if math.Abs(within.At(i, j)-want) > 0.01 {
				t.Errorf("within-class covariance [%d,%d] is %v; want %v", i, j, within.At(i, j), want)
			}
			if i == j {
				want = math.Exp(float64(lambda[i])) + float64(corpus.C)/float64(n)
			}
			if math.Abs(between-want) > 0.01*(1+want) {
				t.Errorf("between-class covariance [%d,%d] is %v; want %v", i, j, between, want)
			}
		}
		if i > 0 && lambda[i] > lambda[i-1] {
			t.Errorf("lambda %v does not descend", lambda)
		}
	}
}

func TestConjugateErrors(t *testing.T) {
	same := must.Get(task.NewBank(make([]float32, 20), 2, []int{0, 1, 0, 1, 0, 1, 0, 1, 0, 1}, 2))(t)
	absent := make([]float32, 30)
	rng.Normal(rng.New(1), absent)
	lacking := must.Get(task.NewBank(absent, 3, make([]int, 10), 3))(t)
	for _, c := range []struct {
		corpus *task.Bank
		k      int
		want   string
	}{
		{nil, 0, "dataset.splits.corpus"},
		{same, 0, "are the same"},
		{lacking, 0, "class 1 has 0 rows"},
		{lacking, 3, "3 coordinates"},
	} {
		must.Fail(StartConjugate(c.corpus, c.k, 0))(t, c.want)
	}
}
