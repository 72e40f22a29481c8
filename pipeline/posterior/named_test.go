package posterior_test

import (
	"math"
	"testing"

	"fmp/models"
	"fmp/models/rng"
	"fmp/onnx/engine"
	"fmp/onnx/engine/pure"
	"fmp/onnx/must"
	"fmp/pipeline/meta"
	"fmp/pipeline/point"
	"fmp/pipeline/posterior"
	"fmp/pipeline/sample"
	"fmp/pipeline/task"
)

const namedDx, namedC = 6, 4

// gaussian returns n rows of each class about means that are a given distance apart.
func gaussian(seed uint64, stream string, n int, apart float64) (rows []float32, labels []int) {
	means := make([]float32, namedC*namedDx)
	rng.Normal(rng.New(1, "means"), means)
	z := make([]float32, n*namedC*namedDx)
	rng.Normal(rng.New(seed, stream), z)
	for i := range n * namedC {
		y := i % namedC
		for j := range namedDx {
			rows = append(rows, z[i*namedDx+j]+float32(apart)*means[y*namedDx+j])
		}
		labels = append(labels, y)
	}
	return rows, labels
}

// namedPredictor returns an untrained conjugate predictor that holds a corpus's images, with labels
// moved on by turn.
func namedPredictor(t *testing.T, turn int) *sample.Conjugate {
	t.Helper()
	rows, labels := gaussian(2, "corpus", 200, 1)
	bank := &task.Bank{Dx: namedDx, C: namedC, Features: rows, Labels: labels}
	m := must.Get(meta.UntrainedConjugate(bank))(t)
	turned := make([]int, len(labels))
	for i, y := range labels {
		turned[i] = (y + turn) % namedC
	}
	m = must.Get(models.WithImages(m, rows, turned))(t)
	eng := must.Get(pure.New(engine.Options{Threads: 1}))(t)
	return must.Get(sample.NewConjugate(eng, m))(t)
}

// uploadsOf returns the class means of clients that hold n images of each class.
func uploadsOf(t *testing.T, k *sample.Conjugate, clients, n int) []*point.Set {
	t.Helper()
	var sets []*point.Set
	for m := range clients {
		rows, labels := gaussian(uint64(10+m), "client", n, 1)
		sets = append(sets, must.Get(point.FromLabelled(rows, namedDx, labels, namedC))(t))
	}
	return must.Get(k.Compress(t.Context(), sets))(t)
}

func namedRound(t *testing.T, k *sample.Conjugate, means []*point.Set,
	named, honesty bool) *posterior.Result {
	t.Helper()
	f := must.Get(posterior.New(posterior.Input{Conjugate: k, ClassMeans: means, Named: named,
		Honesty: honesty, Samples: 20, Seed: 1, Stream: "test", Threads: 1}))(t)
	r := must.Get(f.Sample(t.Context()))(t)
	for i, h := range r.Ensembles[0] {
		for _, v := range h.W {
			if math.IsNaN(v) || math.IsInf(v, 0) {
				t.Fatalf("head %d holds %v", i, v)
			}
		}
	}
	return r
}

// TestNamed: the images of a corpus of the round's names count as one more client's, those of one
// whose names are false do not, and without names nothing is read of them.
func TestNamed(t *testing.T) {
	right, wrong := namedPredictor(t, 0), namedPredictor(t, 1)
	means := uploadsOf(t, right, 4, 2)
	if w := namedRound(t, right, means, true, false).Diagnostics[posterior.DiagnosticNamed]; w < 0.9 {
		t.Errorf("the corpus's images have weight %.3f; want nearly 1", w)
	}
	if w := namedRound(t, wrong, means, true, false).Diagnostics[posterior.DiagnosticNamed]; w > 0.1 {
		t.Errorf("images of other names have weight %.3f; want nearly 0", w)
	}
	was := namedRound(t, right, means, false, false)
	if _, told := was.Diagnostics[posterior.DiagnosticNamed]; told || was.Regression {
		t.Error("a round without names reads the corpus's images")
	}
	judged := namedRound(t, right, means, true, true)
	for m, p := range judged.Judgement.Honest {
		if p < 0.9 {
			t.Errorf("client %d is honest with probability %.2f", m, p)
		}
	}
}

// TestNamedSmallRounds: rounds of one client, one class or one image have finite heads.
func TestNamedSmallRounds(t *testing.T) {
	k := namedPredictor(t, 0)
	means := uploadsOf(t, k, 3, 1)
	one := *means[0]
	one.N, one.Z, one.W = 1, one.Z[:len(one.Z)/one.N], one.W[:1]
	if one.Y != nil {
		one.Y = one.Y[:1]
	}
	for name, sets := range map[string][]*point.Set{
		"one client": means[:1], "one class": {&one}, "a class twice": {&one, &one},
		"single images": means, "one and many": {&one, means[1]},
	} {
		t.Run(name, func(t *testing.T) { namedRound(t, k, sets, true, len(sets) > 1) })
	}
}
