package meta

import (
	"context"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"

	"fmp/models"
	"fmp/onnx"
	"fmp/onnx/must"
	"fmp/pipeline/task"
)

// TestTrainPrivate: training lowers the score on validation rounds; neither an interruption nor the
// number of threads leaves a trace.
func TestTrainPrivate(t *testing.T) {
	corpus := blobs(t, "corpus", 900, 4, 3)
	private := func(of *task.Bank) training {
		m := must.Get(conjugateOf(of, 0))(t)
		return func(ctx context.Context, c Config) (*onnx.Model, error) {
			c.Batch, c.Samples, c.Points, c.ValidationTasks, c.Corpus = 4, 8, 6, 24, corpus
			return TrainPrivate(ctx, PrivateConfig{Config: c, Conjugate: m})
		}
	}
	trains(t, "nll", 30, private(corpus), func(*onnx.Model) []training {
		return []training{private(blobs(t, "others", 900, 4, 3))}
	})
}

// TestTrainPrivateLeavingOut: a predictor for other classes has the coordinates that were asked
// for, of all classes, and scalars that were learned on classes left out.
func TestTrainPrivateLeavingOut(t *testing.T) {
	c := PrivateConfig{Config: config(t, 40), Coordinates: 2}
	c.Batch, c.Samples, c.Points, c.ValidationTasks, c.ValidateEvery = 4, 8, 6, 24, 10
	c.Corpus = blobs(t, "corpus", 900, 4, 6)
	c.Validation = blobs(t, "validation", 300, 4, 6)
	c.Log = filepath.Join(t.TempDir(), "log.jsonl")
	m := must.Get(TrainPrivate(context.Background(), c))(t)
	v := validations(t, c.Log)
	if first, last := v[0]["nll"].(float64), v[len(v)-1]["nll"].(float64); !(last < first) {
		t.Errorf("nll went from %v to %v", first, last)
	}
	sizes, values, err := models.PrivateValues(m)
	if err != nil || sizes.K != 2 {
		t.Fatal(sizes, err)
	}
	all := must.Get(conjugateOf(c.Corpus, 2))(t)
	_, start := must.Get2(StartPrivate(c.Corpus, all))(t)
	for _, name := range []string{models.ConjMap, models.ConjLogLambda, models.PrivateClip} {
		if !cmp.Equal(start[name].F32(), values[name].F32()) {
			t.Errorf("%s is not that of all classes", name)
		}
	}
	for _, name := range models.PrivateScalars(true) {
		if start[name].F32()[0] == values[name].F32()[0] {
			t.Errorf("%s was not learned", name)
		}
	}
	c.Corpus, c.Validation = blobs(t, "corpus", 90, 4, 3), nil
	must.Fail(TrainPrivate(context.Background(), c))(t, "takes 4 and more", "three classes")
}
