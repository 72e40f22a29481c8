package metric

import (
	"math"
	"testing"

	"fmp/models/rng"
	"fmp/onnx/must"
)

// draw scores n points of which the stated probabilities are right as often as they say plus off.
func draw(t *testing.T, n int, off float64, seed uint64) Scores {
	t.Helper()
	r := rng.New(seed, "points")
	p := &Probabilities{N: n, C: 2}
	var labels []int
	for range n {
		c := 0.55 + 0.4*r.Float64()
		p.P = append(p.P, c, 1-c)
		y := 1
		if r.Float64() < c+off {
			y = 0
		}
		labels = append(labels, y)
	}
	return must.Get(Score(p, labels))(t)
}

// TestCalibration: what a perfectly calibrated predictor is said to read is what such predictors do
// read, and the debiased error is near the true one where ECE is not.
func TestCalibration(t *testing.T) {
	t.Parallel()
	const repeats = 120
	for _, n := range []int{50, 100, 1000} {
		var ece, inside, perfect float64
		for i := range repeats {
			s := draw(t, n, 0, uint64(i))
			c := s.Curve.Calibration()
			if math.Abs(c.ECE-s.ECE) > 1e-12 {
				t.Fatalf("ECE %v of the curve, %v of the scores", c.ECE, s.ECE)
			}
			ece += s.ECE / repeats
			perfect += c.Perfect / repeats
			if c.Low <= s.ECE && s.ECE <= c.High {
				inside += 1.0 / repeats
			}
		}
		if math.Abs(ece-perfect) > 0.05*ece || inside < 0.9 || inside > 0.99 {
			t.Errorf("n %d: perfectly calibrated predictors read %.4f and are said to read %.4f; %.3f are "+
				"within the interval", n, ece, perfect, inside)
		}
	}
	var squared, ece float64
	for i := range 100 {
		s := draw(t, 200, -0.1, uint64(i))
		squared += math.Pow(s.Curve.Calibration().Debiased, 2) / 100
		ece += s.ECE / 100
	}
	if math.Abs(math.Sqrt(squared)-0.1) > 0.004 || ece < 0.104 {
		t.Errorf("debiased error %.4f where probabilities are .1 off; ECE is %.4f",
			math.Sqrt(squared), ece)
	}
	if c := (&Curve{}).Calibration(); c != (Calibration{}) {
		t.Errorf("no points: %+v", c)
	}
}

// TestGap: the direction of the error is told, and chance alone passes its bound in one run of
// twenty.
func TestGap(t *testing.T) {
	t.Parallel()
	const repeats = 300
	for _, off := range []float64{0, 0.1, -0.1} {
		var mean, beyond, held float64
		for i := range repeats {
			s := draw(t, 400, off, uint64(i))
			c := s.Curve.Calibration()
			if mean += c.Gap / repeats; math.Abs(c.Gap) > c.Chance {
				beyond += 1.0 / repeats
			}
			if c.GapLow <= -off && -off <= c.GapHigh {
				held += 1.0 / repeats
			}
		}
		if math.Abs(mean+off) > 0.01 { // surer than it may be: right less often
			t.Errorf("gap %.4f where images are right %+.1f more often than stated", mean, off)
		}
		if held < 0.91 || held > 0.99 {
			t.Errorf("off by %+.1f: the 95%% interval of the gap holds it %.3f of the time", off, held)
		}
		if off == 0 && (beyond < 0.02 || beyond > 0.09) || off != 0 && beyond < 0.9 {
			t.Errorf("off by %+.1f: %.3f of the gaps are beyond chance", off, beyond)
		}
	}
}

// TestGapOfFewErrors: of points of one stated probability the interval of the gap holds the true one
// as often as it says where nearly all answers are right, and has a width where all are.
func TestGapOfFewErrors(t *testing.T) {
	t.Parallel()
	const repeats, stated = 400, 0.9
	for _, x := range []struct {
		n    int
		rate float64
	}{{100, 0.99}, {50, 0.99}, {50, 0.96}, {20, 0.02}} {
		r, held := rng.New(1, "few errors", x.n), 0.0
		for range repeats {
			var right float64
			for range x.n {
				if r.Float64() < x.rate {
					right++
				}
			}
			var curve Curve
			curve[bin(stated)] = Bin{Count: float64(x.n), Confidence: stated,
				Accuracy: right / float64(x.n)}
			c := curve.Calibration()
			if c.GapLow <= stated-x.rate && stated-x.rate <= c.GapHigh {
				held += 1.0 / repeats
			}
			lo, hi := Wilson(int(right), x.n, 0.95)
			if c.GapLow > stated-hi+1e-12 || c.GapHigh < stated-lo-1e-12 {
				t.Fatalf("%v of %d right: %v to %v; Wilson's are %v to %v", right, x.n, c.GapLow,
					c.GapHigh, stated-hi, stated-lo)
			}
		}
		if held < 0.91 {
			t.Errorf("%d points of the rate %v: the 95%% interval holds the gap %.3f of the time",
				x.n, x.rate, held)
		}
	}
}

// TestGapOfManyErrors: the interval of the gap holds the true one no more often than it says where
// sure answers are right more often, at an ordinary accuracy.
func TestGapOfManyErrors(t *testing.T) {
	t.Parallel()
	const repeats, of = 500, 200 // points of each of two probabilities
	r, held := rng.New(1, "many errors"), 0.0
	for range repeats {
		var curve Curve
		for _, p := range []float64{0.32, 0.98} {
			b := &curve[bin(p)]
			b.Count, b.Confidence = of, p
			for range of {
				if r.Float64() < p {
					b.Accuracy += 1.0 / of
				}
			}
		}
		if c := curve.Calibration(); c.GapLow <= 0 && 0 <= c.GapHigh {
			held += 1.0 / repeats
		}
	}
	if held < 0.92 || held > 0.98 { // three standard errors are 0.03
		t.Errorf("the 95%% interval holds the gap %.3f of the time", held)
	}
}
