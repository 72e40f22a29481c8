package meta

import (
	"context"
	"errors"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"

	"fmp/onnx/train"
)

// TestTrainPrivate: training lowers the score on validation rounds; neither an interruption nor the number of workers leaves a trace.
func TestTrainPrivate(t *testing.T) {
	c := PrivateConfig{Config: config(t, 30)}
	c.Batch, c.Samples, c.Points, c.ValidationTasks, c.Workers = 4, 8, 6, 24, 2
	c.Corpus = blobs(t, "corpus", 900, 4, 3)
	c.ValidateEvery = 30
	c.Log = filepath.Join(t.TempDir(), "log.jsonl")
	var err error
	if c.Conjugate, err = UntrainedConjugate(c.Corpus); err != nil {
		t.Fatal(err)
	}
	want, err := TrainPrivate(context.Background(), c)
	if err != nil {
		t.Fatal(err)
	}
	v := validations(t, c.Log)
	trained := v[len(v)-1]["nll"].(float64)
	untrained := &privateTrainee{PrivateConfig: &c}
	if untrained.sizes, untrained.values, err = StartPrivate(c.Corpus, c.Conjugate); err != nil {
		t.Fatal(err)
	}
	if untrained.validation, err = untrained.bank(c.Validation); err != nil {
		t.Fatal(err)
	}
	before, err := untrained.validate(context.Background(), 0)
	if err != nil {
		t.Fatal(err)
	}
	if !(trained < before["nll"]) {
		t.Errorf("nll went from %v to %v", before["nll"], trained)
	}
	c.Workers, c.Validation, c.Log = 1, nil, ""
	c.Checkpoint = filepath.Join(t.TempDir(), "checkpoint.onnx")
	ctx, cancel := context.WithCancel(context.Background())
	c.Progress = func(p train.Progress) {
		if p.Step == 12 {
			cancel()
		}
	}
	if _, err := TrainPrivate(ctx, c); !errors.Is(err, context.Canceled) {
		t.Fatalf("a cancelled training says %v", err)
	}
	c.Progress = nil
	got, err := TrainPrivate(context.Background(), c)
	if err != nil {
		t.Fatal(err)
	}
	if !cmp.Equal(bytesOf(t, got), bytesOf(t, want)) {
		t.Error("an interrupted training gives another model")
	}
}
