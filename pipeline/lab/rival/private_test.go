package rival

import (
	"context"
	"math"
	"slices"
	"testing"

	"fmp/models/rng"
	"fmp/onnx/must"
	"fmp/pipeline/internal/memo"
	"fmp/pipeline/lab/score"
	"fmp/pipeline/posterior"
	"fmp/pipeline/privacy"
)

// TestPrivateRounds: the noise is where the budget says, rows are the same again for a seed, and
// the posterior that knows it does better than one that does not where there is much.
func TestPrivateRounds(t *testing.T) {
	w := newWorld(1, 16, 10, 5)
	x, y := w.draw(rng.New(3, "test"), 1000)
	in := w.input(t, 2, 20, 20)
	run := func(name string, b privacy.Budget) (*posterior.Result, float64) {
		t.Helper()
		in.Privacy = &b
		m := must.Get(Lookup(name))(t)
		r := must.Get(m.Run(context.Background(), newTestTask(t, in), DefaultSettings()))(t)
		return r, must.Get(score.Evaluate(context.Background(), r, x, y, 2))(t).NLL
	}
	b := *in.Privacy
	b.Epsilon = 1
	first, aware := run("FMP-DP", b)
	again, _ := run("FMP-DP", b)
	if !slices.Equal(first.Ensembles[0][7].W, again.Ensembles[0][7].W) {
		t.Error("the same seed gives other heads")
	}
	if first.Diagnostics["epsilon"] != 1 || math.Abs(first.Diagnostics["sigma"]-3.73) > 0.01 {
		t.Errorf("account %v", first.Diagnostics)
	}
	_, plugin := run("FMP-DP-plugin", b)
	if aware > plugin {
		t.Errorf("NLL of the posterior that knows the noise %.3f, of the other %.3f", aware, plugin)
	}
	weak := b
	weak.Epsilon = 20
	if _, nll := run("FMP-DP", weak); nll > aware {
		t.Errorf("NLL %.3f at epsilon 20, %.3f at 1", nll, aware)
	}
	task := newTestTask(t, in)
	for noise, want := range map[string]int{privacy.Trusted: 1, privacy.TwoServers: 2, privacy.Local: 20} {
		b.Noise, task.memo = noise, &memo.Memo{}
		task.in.Privacy = &b
		totals, account, err := task.released(context.Background())
		if err != nil || account.Releases != want {
			t.Fatalf("%s: noise in %d releases, want %d; %v", noise, account.Releases, want, err)
		}
		step := in.Private.Clip() / privacy.Steps * float64(account.Deviation)
		if got := totals.SumVariance / (step * step); math.Abs(got-float64(want)) > 1e-9 {
			t.Errorf("%s: variance %v, want %d", noise, got, want)
		}
	}
	b.Noise, b.Unit = privacy.Trusted, privacy.Client
	if _, nll := run("FMP-DP", b); math.IsNaN(nll) {
		t.Error("no NLL for a whole client")
	}
	if _, nll := run("FedPFT-DP", b); math.IsNaN(nll) {
		t.Error("no NLL for FedPFT-DP")
	}
}
