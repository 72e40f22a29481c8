package meta

import (
	"context"
	"encoding/json"
	"errors"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"fmp/models"
	"fmp/models/rng"
	"fmp/onnx"
	"fmp/onnx/engine"
	"fmp/onnx/engine/ort/orttest"
	"fmp/onnx/must"
	"fmp/onnx/serde"
	"fmp/onnx/train"
	"fmp/pipeline/erm"
	"fmp/pipeline/metric"
	"fmp/pipeline/open"
	"fmp/pipeline/point"
	"fmp/pipeline/task"
)

// blobs is a bank of Gaussian clusters, one a class.
func blobs(t *testing.T, name string, n, dx, c int) *task.Bank {
	t.Helper()
	centres := make([]float32, c*dx)
	rng.Normal(rng.New(1, "centres"), centres)
	r := rng.New(1, "blobs", name)
	h, y := make([]float32, n*dx), make([]int, n)
	rng.Normal(r, h)
	for i := range y {
		y[i] = i % c
		for j := range dx {
			h[i*dx+j] += 1.5 * centres[y[i]*dx+j]
		}
	}
	return must.Get(task.NewBank(h, dx, y, c))(t)
}

func config(t *testing.T, steps int) Config {
	return Config{
		Engine: orttest.New(t), Corpus: blobs(t, "corpus", 600, 4, 3),
		Validation: blobs(t, "validation", 300, 4, 3),
		Clients:    4, Points: 12, Fresh: 12, Steps: steps, Batch: 3, Warmup: 2, Seed: 5,
		ValidationTasks:   4,
		ValidationSamples: 3, L2: 1,
	}
}

func bytesOf(t *testing.T, m *onnx.Model) []byte {
	t.Helper()
	return must.Get(serde.Marshal(m))(t)
}

// validations are the validation lines of a log.
func validations(t *testing.T, path string) []map[string]any {
	t.Helper()
	data := must.Get(os.ReadFile(path))(t)
	var out []map[string]any
	for _, line := range strings.Split(strings.TrimSpace(string(data)), "\n") {
		var v map[string]any
		if err := json.Unmarshal([]byte(line), &v); err != nil {
			t.Fatalf("log line %q: %v", line, err)
		}
		if v["kind"] == "validation" {
			out = append(out, v)
		}
	}
	return out
}

// stopped ends a training of a configuration after a step, and the test unless it says so.
func stopped(t *testing.T, c *Config, step int, run func(ctx context.Context) (*onnx.Model, error)) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	c.Progress = func(p train.Progress) {
		if p.Step == step {
			cancel()
		}
	}
	if _, err := run(ctx); !errors.Is(err, context.Canceled) {
		t.Fatalf("a cancelled training says %v", err)
	}
	c.Progress = nil
}

// training is one of a model, by a configuration.
type training func(ctx context.Context, c Config) (*onnx.Model, error)

// predicting is the training of a predictor, with an embedding for its uploads.
func predicting(m, compressor *onnx.Model) training {
	return func(ctx context.Context, c Config) (*onnx.Model, error) {
		return TrainPredictor(ctx, m, PredictorConfig{Config: c, Compressor: compressor})
	}
}

// embedding is the training of an embedding beside a predictor.
func embedding(m, predictor *onnx.Model) training {
	return func(ctx context.Context, c Config) (*onnx.Model, error) {
		return TrainEmbedding(ctx, m, EmbeddingConfig{Config: c, Predictor: predictor})
	}
}

// trains returns the model of a training, which lowers a metric of validation tasks. Neither the
// number of threads nor an interruption leaves a trace in it, and no other training takes its
// checkpoint, nor do those of other models.
func trains(t *testing.T, metric string, steps int, run training,
	others func(trained *onnx.Model) []training) *onnx.Model {
	t.Helper()
	dir := t.TempDir()
	c := config(t, steps)
	c.Log, c.ValidateEvery = filepath.Join(dir, "log.jsonl"), steps/3
	c.Threads, c.EMA = 2, 0.9
	want := must.Get(run(t.Context(), c))(t)
	v := validations(t, c.Log)
	if len(v) != 3 {
		t.Fatalf("%s: %d validations in the log, want 3", metric, len(v))
	}
	if first, last := v[0][metric].(float64), v[2][metric].(float64); !(last < first) {
		t.Errorf("%s went from %v to %v", metric, first, last)
	}
	c.Threads, c.Validation, c.Log = 1, nil, ""
	c.Checkpoint = filepath.Join(dir, "checkpoint.onnx")
	stopped(t, &c, steps/2, func(ctx context.Context) (*onnx.Model, error) { return run(ctx, c) })
	if got := must.Get(run(t.Context(), c))(t); !cmp.Equal(bytesOf(t, got), bytesOf(t, want)) {
		t.Errorf("%s: stopped, resumed and on one worker it came out otherwise than in one go on two", metric)
	}
	for name, change := range map[string]func(c *Config){"seed": func(c *Config) { c.Seed = 6 },
		"warmup": func(c *Config) { c.Warmup = 1 }, "clip": func(c *Config) { c.Clip = 0.01 },
		"engine": func(c *Config) { c.Engine = other{c.Engine} },
		"corpus": func(c *Config) { c.Run = "others" }} {
		other := c
		change(&other)
		must.Fail(run(t.Context(), other))(t, "another run", metric, "checkpoint of another", name)
	}
	for i, run := range others(want) {
		must.Fail(run(t.Context(), c))(t, "another run", metric, "checkpoint of other models", i)
	}
	return want
}

// other is an engine of another name.
type other struct{ engine.Engine }

func (other) Name() string { return "other" }

// TestTraining: training lowers the predictor's score and the embedding's gap on validation tasks;
// neither the number of threads nor an interruption leaves a trace in the result.
func TestTraining(t *testing.T) {
	if testing.Short() {
		t.Skip("trains for some seconds")
	}
	p := must.Get(models.NewPredictor(models.PredictorConfig{Dx: 4, C: 3, Dim: 15}, 1))(t)
	e := must.Get(models.NewEmbedding(models.EmbeddingConfig{Dx: 4, C: 3, Dim: 15,
		Blocks: 1, Hidden: 16}, 1))(t)
	learned := trains(t, "nll", 60, predicting(p, nil), func(trained *onnx.Model) []training {
		return []training{predicting(p, e), predicting(trained, nil)}
	})
	trains(t, "gap", 150, embedding(e, learned), func(trained *onnx.Model) []training {
		return []training{embedding(e, p), embedding(trained, learned)}
	})
}

func TestTrainingErrors(t *testing.T) {
	p := must.Get(models.NewPredictor(models.PredictorConfig{Dx: 4, C: 3}, 1))(t)
	other := must.Get(models.NewPredictor(models.PredictorConfig{Dx: 5, C: 3}, 1))(t)
	e := must.Get(models.NewEmbedding(models.EmbeddingConfig{Dx: 4, C: 3}, 1))(t)
	for _, c := range []struct {
		want   string
		run    training
		change func(c *Config)
	}{
		{"dx 5", predicting(other, nil), nil},
		{`kind "embedding"`, predicting(e, nil), nil},
		{`kind "predictor"`, embedding(p, p), nil},
		{"dx 5", embedding(e, other), nil},
		{"steps is 0", predicting(p, nil), func(c *Config) { c.Steps = 0 }},
		{"give the corpus 12060 images", predicting(p, nil), func(c *Config) { c.Points = 1000 }},
		{"lower federation.clients to 2 at most", predicting(p, nil),
			func(c *Config) { c.Validation = blobs(t, "few", 48, 4, 3) }},
	} {
		base := config(t, 1)
		if c.change != nil {
			c.change(&base)
		}
		must.Fail(c.run(t.Context(), base))(t, c.want)
	}
}

// TestNoClipping: a clip below 0 is none, one of 0 the default.
func TestNoClipping(t *testing.T) {
	for clip, want := range map[float64]float64{-1: 0, 0: 1, 0.5: 0.5} {
		c := config(t, 1)
		c.Clip, c.Fresh = clip, 1
		if err := c.fill(1, 1, 1); err != nil || c.optim().ClipNorm != want {
			t.Errorf("clip %v: norm %v, %v; want %v", clip, c.optim().ClipNorm, err, want)
		}
	}
}

// TestScore: the score's derivative with respect to the heads agrees with central differences.
func TestScore(t *testing.T) {
	const dx, c = 3, 4
	target := point.New(5, dx, c)
	for i := range target.N {
		rng.Normal(rng.New(1, "x", i), target.Row(i)[:dx])
		target.Row(i)[dx+i%c] = 1
	}
	heads := []erm.Theta{erm.NewTheta(dx+1, c), erm.NewTheta(dx+1, c)}
	for k := range heads {
		r := rng.New(1, "head", k)
		for i := range heads[k].W {
			heads[k].W[i] = r.NormFloat64()
		}
	}
	const weight = 0.7
	batches := [][]int{{0, 1, 3}, {2, 4, 4}}
	loss := func() float64 {
		nll, joint, _ := score(heads, target, batches, weight)
		return nll + weight*joint
	}
	_, joint, cots := score(heads, target, batches, weight)
	rows, labels := target.Labelled()
	says := must.Get(metric.Examine(context.Background(), heads, rows, labels, 1))(t)
	if want := metric.JointNLL(says.Likelihood, batches); math.Abs(joint-want) > 1e-6 {
		t.Errorf("joint score %v, that of the metric %v", joint, want)
	}
	// slope is the central difference of a function of a number.
	slope := func(w *float64, h float64, f func() float64) float64 {
		keep := *w
		*w = keep + h
		up := f()
		*w = keep - h
		down := f()
		*w = keep
		return (up - down) / (2 * h)
	}
	for k := range heads {
		for i := range heads[k].W {
			if d := slope(&heads[k].W[i], 1e-5, loss) - cots[k].W[i]; d > 1e-8 || d < -1e-8 {
				t.Errorf("head %d, weight %d: derivative %v is off by %v", k, i, cots[k].W[i], d)
			}
		}
	}
	gap, norm, cot := distance(heads[0], heads[1])
	if !(gap > 0) || !(norm > 0) {
		t.Fatalf("gap %v, norm %v", gap, norm)
	}
	far := func() float64 {
		gap, _, _ := distance(heads[0], heads[1])
		return gap
	}
	for i := range cot.W {
		if d := slope(&heads[0].W[i], 1e-6, far) - cot.W[i]; d > 1e-7 || d < -1e-7 {
			t.Errorf("distance, weight %d: derivative %v is off by %v", i, cot.W[i], d)
		}
	}
}

// TestTrainOpen: training on classes left out improves what scalars score on others, gives the same
// bytes when it is stopped and resumed, and whatever the number of threads.
func TestTrainOpen(t *testing.T) {
	corpus := blobs(t, "open corpus", 1600, 6, 12)
	of := func(coordinates int) training {
		return func(ctx context.Context, c Config) (*onnx.Model, error) {
			c.Corpus, c.Clients, c.Samples = corpus, 5, 8
			return TrainOpen(ctx, OpenConfig{Config: c, Coordinates: coordinates})
		}
	}
	m := trains(t, "nll", 12, of(5), func(*onnx.Model) []training { return []training{of(4)} })
	p := must.Get(open.FromModel(m))(t)
	if p.K() != 5 || p.Scalars == open.Start {
		t.Errorf("%d coordinates, scalars %v", p.K(), p.Scalars)
	}
	corpus = blobs(t, "few", 300, 4, 3)
	must.Fail(of(5)(t.Context(), config(t, 12)))(t, "4 and more", "three classes")
}
