package meta

import (
	"context"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"

	"fmp/models"
	"fmp/onnx"
	"fmp/onnx/must"
)

// TestTrainPrivate: training lowers the score on validation rounds; neither an interruption nor the
// number of threads leaves a trace.
func TestTrainPrivate(t *testing.T) {
	c := PrivateConfig{Config: config(t, 30)}
	c.Batch, c.Samples, c.Points, c.ValidationTasks, c.Threads = 4, 8, 6, 24, 2
	c.Corpus = blobs(t, "corpus", 900, 4, 3)
	c.ValidateEvery = 30
	c.Log = filepath.Join(t.TempDir(), "log.jsonl")
	c.Conjugate = must.Get(UntrainedConjugate(c.Corpus))(t)
	want := must.Get(TrainPrivate(context.Background(), c))(t)
	v := validations(t, c.Log)
	trained := v[len(v)-1]["nll"].(float64)
	untrained := &privateTrainee{PrivateConfig: &c}
	untrained.sizes, untrained.values = must.Get2(StartPrivate(c.Corpus, c.Conjugate))(t)
	untrained.validation = must.Get(untrained.bank(c.Validation))(t)
	before := must.Get(untrained.validate(context.Background(), 0))(t)
	if !(trained < before["nll"]) {
		t.Errorf("nll went from %v to %v", before["nll"], trained)
	}
	c.Threads, c.Validation, c.Log = 1, nil, ""
	c.Checkpoint = filepath.Join(t.TempDir(), "checkpoint.onnx")
	stopped(t, &c.Config, 12,
		func(ctx context.Context) (*onnx.Model, error) { return TrainPrivate(ctx, c) })
	got := must.Get(TrainPrivate(context.Background(), c))(t)
	if !cmp.Equal(bytesOf(t, got), bytesOf(t, want)) {
		t.Error("an interrupted training gives another model")
	}
	c.Conjugate = must.Get(UntrainedConjugate(blobs(t, "others", 900, 4, 3)))(t)
	must.Fail(TrainPrivate(context.Background(), c))(
		t, "another run", "a checkpoint of another conjugate predictor was taken")

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
