package metric

import (
	"context"
	"fmt"
	"math"
	"math/rand/v2"
	"runtime"
	"runtime/debug"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	"gonum.org/v1/gonum/floats"
	"gonum.org/v1/gonum/stat"

	"fmp/models/rng"
	"fmp/onnx/alloctest"
	"fmp/onnx/must"
	"fmp/pipeline/erm"
)

// TestScoreByHand: four points of two classes, worked out by hand.
func TestScoreByHand(t *testing.T) {
	t.Parallel()
	p := &Probabilities{N: 4, C: 2, P: []float64{0.9, 0.1, 0.88, 0.12, 0.4, 0.6, 1, 0}}
	s := must.Get(Score(p, []int{0, 1, 1, 0}))(t)
	near := func(what string, got, want float64) {
		if math.Abs(got-want) > 1e-9 {
			t.Errorf("%s is %v, want %v", what, got, want)
		}
	}
	near("ACC", s.ACC, 0.75)
	// 0.9 and 0.88 share the bin (13/15, 14/15]: confidence 0.89, accuracy 0.5. 0.6 ends the bin
	// (8/15, 9/15]. 1 is alone.
	near("ECE", s.ECE, 2./4*math.Abs(0.5-0.89)+1./4*0.4+0)
	near("NLL", s.NLL, -(math.Log(0.9)+math.Log(0.12)+math.Log(0.6))/4)
	near("Brier", s.Brier, (2*0.01+2*0.88*0.88+2*0.16)/4)
	near("count of bin 13", s.Curve[13].Count, 2)
	near("confidence of bin 13", s.Curve[13].Confidence, 0.89)
	near("accuracy of bin 13", s.Curve[13].Accuracy, 0.5)
	near("count of bin 8", s.Curve[8].Count, 1)
	near("count of bin 14", s.Curve[14].Count, 1)
	if sure := must.Get(Score(&Probabilities{N: 1, C: 2, P: []float64{1, 0}}, []int{0}))(t); sure.NLL != 0 {
		t.Errorf("NLL of a point that is sure and right is %v", sure.NLL)
	}
}

func TestEstimate(t *testing.T) {
	t.Parallel()
	// Student's t with 4 degrees of freedom: 97.5% quantile 2.776445.
	got := must.Get(Paired([]float64{2, 4, 6, 8, 10}, []float64{1, 2, 3, 4, 5}, 0.95))(t)
	if got.N != 5 || got.Mean != 3 || math.Abs(got.SD-math.Sqrt(2.5)) > 1e-12 ||
		math.Abs(got.Half-2.776445*math.Sqrt(0.5)) > 1e-5 {
		t.Errorf("interval of 1 to 5 is %+v", got)
	}
	if one, err := Estimate([]float64{7}, 0.95); err != nil || one.Mean != 7 ||
		one.Half != 0 || one.N != 1 {
		t.Errorf("interval of one value is %+v, %v", one, err)
	}
}

func TestMean(t *testing.T) {
	t.Parallel()
	a, b := Scores{ACC: 0.2, ECE: 0.1, NLL: 1, Brier: 0.4},
		Scores{ACC: 0.4, ECE: 0.3, NLL: 3, Brier: 0.6}
	a.Curve[3], b.Curve[3] = Bin{10, 0.2, 0.1}, Bin{30, 0.24, 0.5}
	m := must.Get(Mean([]Scores{a, b}))(t)
	want := Scores{ACC: 0.3, ECE: 0.2, NLL: 2, Brier: 0.5}
	want.Curve[3] = Bin{20, 0.23, 0.4}
	if d := cmp.Diff(want, m, cmp.Comparer(func(x, y float64) bool { return math.Abs(x-y) < 1e-12 })); d != "" {
		t.Error(d)
	}
}

func TestErrors(t *testing.T) {
	t.Parallel()
	head, bad := erm.NewTheta(3, 2), erm.NewTheta(3, 2)
	bad.W[5] = math.NaN()
	p := &Probabilities{N: 1, C: 2, P: []float64{0.5, 0.5}}
	stopped, stop := context.WithCancel(t.Context())
	stop()
	predict := func(ctx context.Context, numbers int, heads ...erm.Theta) error {
		_, err := Predict(ctx, heads, make([]float32, numbers), 1)
		return err
	}
	score := func(p *Probabilities, labels ...int) error {
		_, err := Score(p, labels)
		return err
	}
	estimate := func(level float64, x ...float64) error {
		_, err := Estimate(x, level)
		return err
	}
	_, none := Mean(nil)
	_, unpaired := Paired([]float64{1, 2}, []float64{1}, 0.95)
	for want, err := range map[string]error{
		"the ensemble is empty":          predict(t.Context(), 0),
		"3 feature values do not divide": predict(t.Context(), 3, head),
		"holds NaN at row 2, class 1":    predict(t.Context(), 2, bad),
		"head 1 is 2 x 2":                predict(t.Context(), 0, head, erm.NewTheta(2, 2)),
		"context canceled":               predict(stopped, 2, head),
		"label 2 of point 0":             score(p, 2),
		"label -1 of point 0":            score(p, -1),
		"0 labels":                       score(p),
		"no points":                      score(&Probabilities{C: 2}),
		"probability NaN of class 0":     score(&Probabilities{1, 2, []float64{math.NaN(), 1}}, 0),
		"none given":                     none,
		"2 and 1 values":                 unpaired,
		"level 95":                       estimate(95, 1, 2),
		"interval: no values":            estimate(0.9),
	} {
		must.Fail(err)(t, want)
	}
}

func ExampleScore() {
	p := &Probabilities{N: 2, C: 2, P: []float64{0.75, 0.25, 0.5, 0.5}}
	s, err := Score(p, []int{0, 1})
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Printf("ACC %.2f, NLL %.2f\n", s.ACC, s.NLL)
	// Output: ACC 0.50, NLL 0.49
}

// TestUncertaintyByHand: the scores beside, of six points of two classes, worked out by hand.
func TestUncertaintyByHand(t *testing.T) {
	t.Parallel()
	p := &Probabilities{N: 6, C: 2,
		P: []float64{0.9, 0.1, 0.2, 0.8, 0.7, 0.3, 0.7, 0.3, 0.4, 0.6, 0.45, 0.55}}
	labels := []int{0, 1, 1, 0, 1, 0}
	near := func(what string, got, want float64) {
		t.Helper()
		if math.Abs(got-want) > 1e-12 {
			t.Errorf("%s is %v, want %v", what, got, want)
		}
	}
	// Right, right, then one right and one wrong of equal confidence, right, wrong.
	near("AURC", aurc(byConfidence(p, labels)), (0+0+0.5/3+1./4+1./5+2./6)/6)
	// Every point by itself, or (15 bins of 6 points) none; the two of 0.7 have half an error each.
	near("adaptive ECE", adaptiveECE(byConfidence(p, labels)), (0.1+0.2+0.2+0.2+0.4+0.55)/6)
	// Class 0: only the two of 0.7 share a bin. Class 1: they do (0.3), and so do 0.6, which ends
	// the bin, and 0.55.
	near("class-wise ECE", classECE(p, labels),
		(0.1+0.2+math.Abs(1.4-1)+0.4+0.55+0.1+0.2+math.Abs(0.6-1)+math.Abs(0.6+0.55-1))/12)
	near("AUROC", must.Get(AUROC([]float64{3, 1, 2}, []float64{0, 1}))(t), (2+1.5+2)/6)
	must.Fail(AUROC(nil, []float64{1}))(t, "", "AUROC without positives")
	held := must.Get(Coverage([]float64{0, 0.5, 0.2}, []float64{0.1, 0.6, 0.3}, []float64{0.1, 0.4, 0.25}))(t)
	near("coverage", held, 2./3)
}

// drawn are n rows of random features and classes.
func drawn(r *rand.Rand, n, dx, c int) (x []float32, y []int) {
	x, y = make([]float32, n*dx), make([]int, n)
	rng.Normal(r, x)
	for i := range y {
		y[i] = r.IntN(c)
	}
	return x, y
}

// headsOf are n random heads.
func headsOf(r *rand.Rand, n, dx, c int) []erm.Theta {
	out := make([]erm.Theta, n)
	for s := range out {
		out[s] = erm.NewTheta(dx+1, c)
		for i := range out[s].W {
			out[s].W[i] = r.NormFloat64()
		}
	}
	return out
}

// TestExamine: scores do not depend on threads, and a head alone has no disagreement.
func TestExamine(t *testing.T) {
	t.Parallel()
	r := rand.New(rand.NewPCG(3, 5))
	const n, dx, c, heads = 150, 4, 3, 5
	x, y := drawn(r, n, dx, c)
	ensemble := headsOf(r, heads, dx, c)
	b := must.Get(NewBatches(r, x, dx, 20))(t)
	var first Scores
	for threads := 1; threads <= 2; threads++ {
		a := must.Get(Examine(context.Background(), ensemble, x, y, threads))(t)
		s := must.Get(ScoreAll(a, y, b))(t)
		if s.Uncertainty.Disagreement <= 0 || s.Uncertainty.Disagreement >= s.Uncertainty.Entropy ||
			s.Uncertainty.Joint.Random <= 0 {
			t.Errorf("%+v", s.Uncertainty)
		}
		if threads == 1 {
			first = s
		} else if d := cmp.Diff(first, s); d != "" {
			t.Errorf("1 and 2 threads differ: %s", d)
		}
	}
	a := must.Get(Examine(context.Background(), ensemble[:1], x, y, 1))(t)
	s := must.Get(ScoreAll(a, y, nil))(t)
	if s.Uncertainty.Disagreement > 1e-12 || s.Uncertainty.Joint != nil {
		t.Errorf("one head: %+v", s.Uncertainty)
	}
	must.Fail(Examine(context.Background(), ensemble, x, y[1:], 1))(t, "", "a label is missing")
}

// TestExamineFirst: means, entropies and likelihoods of an ensemble's first heads, and what each
// head says, are those of the definition, for more heads than one product of sums has room for. So
// is a prediction, by one thread and by two.
func TestExamineFirst(t *testing.T) {
	t.Parallel()
	r := rand.New(rand.NewPCG(8, 5))
	const n, dx, c, heads = 130, 2, 11, 400
	x, y := drawn(r, n, dx, c)
	ensemble := headsOf(r, heads, dx, c)
	ctx, numbers := context.Background(), []int{1, 5, heads}
	answers := must.Get(ExamineFirst(ctx, ensemble, numbers, x, y, 2))(t)
	said := must.Get(Said(ctx, ensemble, x, 2))(t)
	predicted := must.Get(Predict(ctx, ensemble, x, 1))(t)
	if d := cmp.Diff(predicted, must.Get(Predict(ctx, ensemble, x, 2))(t)); d != "" {
		t.Errorf("1 and 2 threads differ: %s", d)
	}
	for i := range n {
		mean, entropy, next := make([]float64, c), 0.0, 0
		for s, head := range ensemble {
			p := slices.Clone(head.Row(dx))
			for j, v := range x[i*dx : (i+1)*dx] {
				floats.AddScaled(p, float64(v), head.Row(j))
			}
			softmax(p)
			floats.Add(mean, p)
			entropy += stat.Entropy(p)
			for k, v := range p {
				if got := said[(i*c+k)*heads+s]; math.Abs(got-v) > 1e-12 {
					t.Fatalf("point %d, head %d: probability %v, want %v", i, s, got, v)
				}
			}
			if s+1 < numbers[next] {
				continue
			}
			a := answers[next]
			if got := a.Likelihood[i]; len(got) != s+1 || math.Abs(got[s]-p[y[i]]-nllFloor) > 1e-12 {
				t.Fatalf("point %d: %d likelihoods, the last %v; want %v", i, len(got), got[s], p[y[i]])
			}
			if got, want := a.Entropy[i], entropy/float64(s+1); math.Abs(got-want) > 1e-12 {
				t.Fatalf("point %d, %d heads: entropy %v, want %v", i, s+1, got, want)
			}
			for k, v := range a.Mean.Row(i) {
				if math.Abs(v-mean[k]/float64(s+1)) > 1e-12 {
					t.Fatalf("point %d, %d heads: probabilities %v", i, s+1, a.Mean.Row(i))
				}
			}
			next++
		}
		for k, v := range predicted.Row(i) {
			if math.Abs(v-mean[k]/heads) > 1e-12 {
				t.Fatalf("point %d: probabilities %v are predicted", i, predicted.Row(i))
			}
		}
	}
	for _, numbers := range [][]int{{1, 1, heads}, {5}, nil} {
		must.Fail(ExamineFirst(ctx, ensemble, numbers, x, y, 1))(t, "",
			fmt.Sprintf("the first %v of %d heads", numbers, heads))
	}
}

// softmax is the definition, in place.
func softmax(l []float64) {
	sum := floats.LogSumExp(l)
	for i, v := range l {
		l[i] = math.Exp(v - sum)
	}
}

// TestPredictionAllocates: what prediction allocates is the sum of what goes with heads and what
// goes with points: nothing goes with both.
func TestPredictionAllocates(t *testing.T) {
	alloctest.NoRace(t)
	// it empties pools, of which there is one a processor
	defer debug.SetGCPercent(debug.SetGCPercent(-1))
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(1))
	const dx, c = 16, 5
	r := rand.New(rand.NewPCG(1, 2))
	heads := headsOf(r, 400, dx, c)
	features, _ := drawn(r, 8000, dx, c)
	allocated := func(s, n int) int64 {
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		must.Get(Predict(context.Background(), heads[:s], features[:n*dx], 1))(t)
		runtime.ReadMemStats(&after)
		return int64(after.TotalAlloc - before.TotalAlloc)
	}
	allocated(400, 8000)
	few, heavy := allocated(10, 1000), allocated(400, 8000)
	onlyHeads, onlyPoints := allocated(400, 1000), allocated(10, 8000)
	if both := heavy - onlyHeads - onlyPoints + few; both > 1<<16 {
		t.Errorf("%d bytes for 10 heads on 1,000 points, %d for 400, %d for 8,000 points, %d for both: "+
			"%d go with both", few, onlyHeads, onlyPoints, heavy, both)
	}
}

// TestWilson: intervals that can be looked up (the equation of Wilson 1927, worked out apart).
func TestWilson(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		hits, n int
		lo, hi  float64
	}{{8, 10, .490162, .943318}, {0, 10, 0, .277533}, {10, 10, .722467, 1},
		{500, 1000, .469070, .530930}} {
		lo, hi := Wilson(c.hits, c.n, .95)
		if math.Abs(lo-c.lo) > 1e-5 || math.Abs(hi-c.hi) > 1e-5 {
			t.Errorf("%d of %d: %.6f to %.6f, want %.6f to %.6f", c.hits, c.n, lo, hi, c.lo, c.hi)
		}
	}
}

// TestEqualConfidence: figures over points sorted by confidence do not depend on the order of equal
// ones.
func TestEqualConfidence(t *testing.T) {
	t.Parallel()
	figures := func(wrong func(i int) bool) string {
		p := &Probabilities{N: 100, C: 2}
		labels := make([]int, p.N)
		for i := range labels {
			p.P = append(p.P, 0.9, 0.1)
			if wrong(i) {
				labels[i] = 1
			}
		}
		curve := must.Get(RiskCoverage(p, labels, 4))(t)
		return fmt.Sprintf("%.6f %.6f", curve[0].Risk, adaptiveECE(byConfidence(p, labels)))
	}
	first := figures(func(i int) bool { return i < 30 })
	for name, wrong := range map[string]func(int) bool{
		"last": func(i int) bool { return i >= 70 }, "mixed": func(i int) bool { return i*3%10 < 3 },
	} {
		if got := figures(wrong); got != first || first != "0.300000 0.200000" {
			t.Errorf("%s: %s; with the wrong ones first %s", name, got, first)
		}
	}
}
