package meta

import (
	"math"
	"testing"

	"fmp/models/rng"
	"fmp/onnx/must"
	"fmp/pipeline/discriminant"
	"fmp/pipeline/task"
)

// tailed draws n rows of 4 classes of 12 numbers each, whose means a seed decides: Gaussian, or
// with heavy tails.
func tailed(t *testing.T, seed uint64, n int, heavy bool) *task.Bank {
	t.Helper()
	const k, c = 12, 4
	mean, x, y := make([]float32, c*k), make([]float32, n*k), make([]int, n)
	rng.Normal(rng.New(1, "means"), mean)
	r := rng.New(seed, "rows")
	rng.Normal(r, x)
	for i := range y {
		y[i] = r.IntN(c)
		scale := float32(1)
		if heavy { // Student's t of 4 degrees of freedom
			scale = float32(math.Sqrt(4 / (-2 * math.Log(r.Float64()*r.Float64()))))
		}
		for j := range k {
			x[i*k+j] = mean[y[i]*k+j] + 1.5*scale*x[i*k+j]
		}
	}
	return must.Get(task.NewBank(x, k, y, c))(t)
}

// TestKappa: kappa of heavy-tailed rows is above that of Gaussian ones, and the same of other
// images; it is more likely than four times it, and progress reaches its end.
func TestKappa(t *testing.T) {
	learn := func(b *task.Bank) discriminant.Kappa {
		last := 0
		got, err := Kappa(t.Context(), b, 1, func(done, total int) { last = done * 100 / total })
		if err != nil || last != 100 {
			t.Fatalf("%v, at %d%%", err, last)
		}
		if !(got.Deviation >= minDeviation) || got.Deviation > maxDeviation {
			t.Fatalf("kappa %v; want a deviation between the bounds", got)
		}
		return got
	}
	gauss, heavy, again := learn(tailed(t, 1, 1500, false)), learn(tailed(t, 1, 1500, true)),
		learn(tailed(t, 2, 1500, true))
	if !(heavy.Median > 1.1*gauss.Median) {
		t.Errorf("kappa is %v of heavy tails and %v of Gaussian rows; want more", heavy, gauss)
	}
	if math.Abs(math.Log(again.Median/heavy.Median)) > 0.25 {
		t.Errorf("kappa is %v of some images and %v of others", heavy, again)
	}
	clients, target := must.Get2(simulate(tailed(t, 3, 1500, true), 0, 9))(t)
	x, y := target.Labelled()
	l, err := discriminant.LogLikelihood(clients, x, y, []float64{heavy.Median, 4 * heavy.Median},
		discriminant.Options{Stream: "test"})
	if err != nil || !(l[0] > l[1]+10) {
		t.Errorf("log-likelihood %v at kappa and four times it, %v", l, err)
	}
}

func TestKappaRefused(t *testing.T) {
	apart := tailed(t, 1, 400, false)
	for i, y := range apart.Labels {
		apart.Row(i)[y] += 1e4
	}
	for name, b := range map[string]*task.Bank{"few": tailed(t, 1, 60, false), "tell nothing": apart} {
		must.Fail(Kappa(t.Context(), b, 1, nil))(t, name)
	}
}

// TestKappaOf: the median, and the deviation of a normal distribution with the same median absolute
// deviation, within its bounds; one wild task moves neither.
func TestKappaOf(t *testing.T) {
	for _, c := range []struct {
		logs              []float64
		median, deviation float64
	}{
		{[]float64{-0.2, 0, 0.2, 0.1, -0.1}, 1, 0.14826},
		{[]float64{-0.2, 0, 9, 0.1, -0.1}, 1, 0.14826},
		{[]float64{0.3, 0.3, 0.3}, math.Exp(0.3), minDeviation},
		{[]float64{-2, 0, 2}, 1, maxDeviation},
	} {
		if got := kappaOf(c.logs); math.Abs(got.Median-c.median) > 1e-9 ||
			math.Abs(got.Deviation-c.deviation) > 1e-5 {
			t.Errorf("kappa %v, want %v and %v", got, c.median, c.deviation)
		}
	}
}
