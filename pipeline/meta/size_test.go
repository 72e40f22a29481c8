package meta

import (
	"context"
	"math"
	"testing"

	"gonum.org/v1/gonum/mat"

	"fmp/models"
	"fmp/models/rng"
	"fmp/onnx/must"
	"fmp/pipeline/internal/moment"
	"fmp/pipeline/task"
)

// TestBound: the steps of shipped predictors are as they are asked for; where classes and
// coordinates are many, a step keeps within its work down to the least of each, and no further.
func TestBound(t *testing.T) {
	for _, c := range []struct{ classes, k, batch, samples, wantClasses, wantBatch, wantSamples int }{
		{10, 9, 4, 64, 10, 4, 64},
		{100, 99, 4, 64, 100, 4, 64},
		{200, 199, 4, 64, 105, 4, 64},
		{1000, 999, 4, 64, 100, 1, 10},
		{1000, 999, 1, 4, 268, 1, 4},
		{10_000, 4095, 4, 64, 20, 1, 10},
		{15, 4095, 4, 64, 15, 1, 10},
	} {
		o := ConjugateConfig{Config: Config{Corpus: &task.Bank{C: c.classes}, Batch: c.batch,
			Samples: c.samples}}
		if got := o.bound(c.k); got != c.wantClasses || o.Batch != c.wantBatch ||
			o.Samples != c.wantSamples {
			t.Errorf("%d classes, k %d, %d tasks of %d samples: %d classes, %d tasks, %d samples; want "+
				"%d, %d and %d", c.classes, c.k, c.batch, c.samples, got, o.Batch,
				o.Samples, c.wantClasses, c.wantBatch, c.wantSamples)
		}
	}
}

// TestWidening: the ratio of traces is that of the covariances of the classes, written out.
func TestWidening(t *testing.T) {
	corpus := blobs(t, "corpus", 300, 6, 4)
	values := must.Get(StartConjugate(corpus, 0, 0))(t)
	k := values[models.ConjOrigin].Len()
	rng.Normal(rng.New(1, "metric"), values[models.ConjMetric].F32())
	tr := &conjugateTrainee{ConjugateConfig: &ConjugateConfig{Config: Config{Corpus: corpus}},
		sizes: models.ConjugateConfig{Dx: corpus.Dx, C: corpus.C, K: k}, values: values}
	got := must.Get(tr.widening())(t)
	m := must.Get(moment.Compute(coordinates(values, corpus), corpus.Labels, corpus.C, 1))(t)
	r := matrix(values[models.ConjMetric])
	var g mat.Dense
	g.Mul(r, r.T())
	want := 0.0
	for c, n := range m.Count {
		within := mat.NewSymDense(k, nil)
		for i, y := range corpus.Labels {
			if y == c {
				within.SymRankOne(within, 1/(n-1), m.Rest.RowView(i))
			}
		}
		var gw, gwgw, ggw mat.Dense
		gw.Mul(&g, within)
		gwgw.Mul(&gw, &gw)
		ggw.Mul(&g, &gw)
		want += mat.Trace(&gwgw) / mat.Trace(&ggw) / float64(corpus.C)
	}
	if math.Abs(got-want) > 1e-10*want {
		t.Errorf("widening %v; want %v", got, want)
	}
}

// TestTrainManyClasses: tasks of some of the classes train a predictor of all.
func TestTrainManyClasses(t *testing.T) {
	c := ConjugateConfig{Config: config(t, 1)}
	c.Corpus, c.Validation = blobs(t, "corpus", 1500, 130, 140), nil
	c.Samples = 1024
	m := must.Get(TrainConjugate(context.Background(), c))(t)
	sizes, _, err := models.ConjugateValues(m)
	if err != nil || sizes.C != 140 || sizes.K != 129 {
		t.Errorf("%+v, %v", sizes, err)
	}
}
