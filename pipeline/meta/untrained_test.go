package meta

import (
	"math"
	"testing"

	"gonum.org/v1/gonum/floats"

	"fmp/models"
	"fmp/models/rng"
	"fmp/onnx"
	"fmp/onnx/must"
	"fmp/pipeline/task"
)

// TestUntrained: a predictor of few rows a feature is no surer of images to come than they bear
// out. Its heads are the mean heads of classes whose means are known well. Of many rows of Gaussian
// classes its variances are those of their moments.
func TestUntrained(t *testing.T) {
	const dx, classes = 200, 12
	centres := make([]float32, classes*dx)
	rng.Normal(rng.New(3, "centres"), centres)
	bank := func(name string, n int, apart float32) *task.Bank {
		x, labels := make([]float32, n*dx), make([]int, n)
		rng.Normal(rng.New(3, name), x)
		for i := range labels {
			labels[i] = i % classes
			for j := range dx {
				x[i*dx+j] += apart * centres[labels[i]*dx+j]
			}
		}
		return must.Get(task.NewBank(x, dx, labels, classes))(t)
	}
	for _, c := range []struct {
		name       string
		n, clients int // rows of the corpus and of all clients
		apart      float32
		below      float64 // NLL, nats, beside log C
	}{
		{"noise", 60, 240, 0, 0.05},
		{"few rows", 60, 240, 0.2, 0.05},
		{"one row a class", 60, classes, 0.2, 0.1},
		{"more rows", 600, 240, 0.2, -0.5},
	} {
		m := must.Get(UntrainedConjugate(bank("corpus", c.n, c.apart)))(t)
		_, values := must.Get2(models.ConjugateValues(m))(t)
		if got := nllOf(values, bank("clients", c.clients, c.apart), bank("test", 600, c.apart)); !(got <
			math.Log(classes)+c.below) {
			t.Errorf("%s: NLL %.3f, want less than %.3f", c.name, got, math.Log(classes)+c.below)
		}
		if v := varianceWithin(values, bank("test", 600, c.apart)); v < 0.2 || v > 1.6 {
			t.Errorf("%s: images to come have variance %.2f within their classes, want .2 to 1.6", c.name, v)
		}
	}
	for _, n := range []int{classes + 1, classes + 2, 2 * classes} {
		must.Get(UntrainedConjugate(bank("corpus", n, 0.2)))(t)
	}
	corpus := bank("corpus", 40*dx, 0.15)
	_, got := must.Get2(models.ConjugateValues(must.Get(UntrainedConjugate(corpus))(t)))(t)
	want := must.Get(StartConjugate(corpus, 0, 0))(t)
	for j, v := range got[models.ConjLogLambda].F32() {
		if d := v - want[models.ConjLogLambda].F32()[j]; math.Abs(float64(d)) > 0.2 {
			t.Errorf("log lambda %d is %v off the moments' of 40 rows a feature", j, d)
		}
	}
	if rho := got[models.ConjMean+models.ConjLogRho].F32()[0]; rho < -0.3 {
		t.Errorf("log rho of Gaussian classes is %v, want about 0", rho)
	}
}

// varianceWithin returns that of rows within their classes, a coordinate.
func varianceWithin(values map[string]*onnx.Tensor, rows *task.Bank) (v float64) {
	f := &leftOut{w: coordinates(values, rows)}
	f.describe(values, rows)
	_, k := f.w.Dims()
	for i, y := range rows.Labels {
		d := floats.Distance(f.w.RawRowView(i), f.mean.RawRowView(y), 2)
		v += d * d / float64(k*(rows.Len()-rows.C))
	}
	return v
}

// nllOf returns the mean NLL, in nats, of test rows by the heads of a predictor's values and the
// class means of clients' rows.
func nllOf(values map[string]*onnx.Tensor, clients, test *task.Bank) (nll float64) {
	f := &leftOut{w: coordinates(values, test), labels: test.Labels}
	f.describe(values, clients)
	rho := math.Exp(float64(values[models.ConjMean+models.ConjLogRho].F32()[0]))
	for _, z := range f.logits(1, 1) {
		floats.Scale(rho, z)
		nll += floats.LogSumExp(z) / float64(len(f.labels))
	}
	return nll
}
