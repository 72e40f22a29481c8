package metric

import (
	"math"
	"math/rand/v2"
	"slices"

	"gonum.org/v1/gonum/stat/distuv"

	"fmp/models/rng"
)

// Calibration compares a calibration error with that of a calibrated classifier at its number of
// points. ECE takes absolute values bin by bin, so that it is above 0 for a perfectly calibrated
// predictor too, the more the fewer points there are (Kumar et al. 2019, arXiv:1909.10155, section
// 4).
type Calibration struct {
	ECE float64 `json:"ece"`
	// Perfect is the mean ECE of a predictor that states the same probabilities and is right
	// exactly as often as it says, on as many points; Low and High are the ends of the interval
	// that holds 95% of them.
	Perfect float64 `json:"perfect"`
	Low     float64 `json:"perfect_low"`
	High    float64 `json:"perfect_high"`
	// Gap is the mean stated probability of the predicted class less the accuracy: below 0 a
	// classifier is too cautious, above it too confident. Chance is the reach of 95% of a perfect
	// predictor's gaps on either side of 0.
	Gap    float64 `json:"gap"`
	Chance float64 `json:"gap_by_chance"`
	// GapLow and GapHigh are the ends of the normal 95% interval of Gap over points. Where fewer
	// than [fewAnswers] answers are right, or wrong, they are no nearer than those of the
	// accuracy's Wilson interval: answers that are all right have no variance.
	GapLow  float64 `json:"gap_low"`
	GapHigh float64 `json:"gap_high"`
	// Debiased is the root of the debiased mean squared calibration error over the same bins (Kumar
	// et al. 2019, definition 5.2), 0 where that is negative. Bins of a single point, whose
	// variance is not known, are left out.
	Debiased float64 `json:"debiased_rms"`
}

// calibrationDraws is the number of simulated sets of labels behind Perfect, Low and High.
const calibrationDraws = 2000

// fewAnswers is the number of right, and of wrong, answers from which a normal interval holds: the
// rule of ten successes and ten failures. The accuracy's interval is wider than that of the gap,
// whose confidences vary with the answers.
const fewAnswers = 10

// Calibration simulates, from a stream of its own, the labels that the stated probabilities call
// for: in a bin of n points and mean confidence p, Binomial(n, p) of them are right. The stream has
// a fixed seed, so that equal curves have equal figures. The cost is one binomial draw for each bin
// and set of labels, whatever the number of points. A curve without points has the zero value.
func (c *Curve) Calibration() Calibration {
	total, squares, right := 0.0, 0.0, 0.0
	var out Calibration
	weight := 0.0
	for _, b := range c {
		total += b.Count
		right += b.Count * b.Accuracy
		if b.Count > 1 {
			// With a rate r of right answers E d^2 = (r - confidence)^2 + r (1-r)/n. The last term
			// is the mean of a (1-a)/(n-1), of the accuracy a of n points.
			d := b.Accuracy - b.Confidence
			squares += b.Count * (d*d - b.Accuracy*(1-b.Accuracy)/(b.Count-1))
			weight += b.Count
		}
	}
	if total == 0 {
		return out
	}
	if weight > 0 {
		out.Debiased = math.Sqrt(max(0, squares/weight))
	}
	variance, spread := 0.0, 0.0
	r := rng.New(0, "calibration")
	draws := make([]float64, calibrationDraws)
	for _, b := range c {
		if b.Count == 0 {
			continue
		}
		out.ECE += b.Count / total * math.Abs(b.Accuracy-b.Confidence)
		out.Gap += b.Count / total * (b.Confidence - b.Accuracy)
		// The mean square of a point's gap: its variance within the bin, a (1-a), and the square of
		// the bin's own gap. Confidences count as equal within a bin.
		spread += b.Count / total * (b.Accuracy*(1-b.Accuracy) +
			(b.Confidence-b.Accuracy)*(b.Confidence-b.Accuracy))
		p := min(b.Confidence, 1)
		// The variance of Gap where every answer is right with its bin's confidence.
		variance += b.Count * p * (1 - p) / (total * total)
		n := math.Round(b.Count)
		drawn := distuv.Binomial{N: n, P: min(b.Confidence, 1), Src: rand.Source(r)}
		for i := range draws {
			draws[i] += b.Count / total * math.Abs(drawn.Rand()/max(n, 1)-b.Confidence)
		}
	}
	out.Chance = distuv.UnitNormal.Quantile(0.975) * math.Sqrt(variance)
	half := distuv.UnitNormal.Quantile(0.975) * math.Sqrt(max(0, spread-out.Gap*out.Gap)/total)
	n := max(int(math.Round(total)), 1)
	out.GapLow, out.GapHigh = out.Gap-half, out.Gap+half
	if hits := min(int(math.Round(right)), n); min(hits, n-hits) < fewAnswers {
		low, high := Wilson(hits, n, 0.95)
		out.GapLow = out.Gap - max(half, high-right/total)
		out.GapHigh = out.Gap + max(half, right/total-low)
	}
	slices.Sort(draws)
	for _, d := range draws {
		out.Perfect += d / calibrationDraws
	}
	// A fortieth of the draws, 2.5%, is left out on each side.
	out.Low, out.High = draws[calibrationDraws/40], draws[calibrationDraws-1-calibrationDraws/40]
	return out
}

// MeanCalibration averages over repeats; the interval is that of one repeat.
func MeanCalibration(all []Calibration) (m Calibration) {
	n := float64(len(all))
	for _, c := range all {
		m.ECE += c.ECE / n
		m.Perfect += c.Perfect / n
		m.Low += c.Low / n
		m.High += c.High / n
		m.Debiased += c.Debiased / n
		m.Gap += c.Gap / n
		m.Chance += c.Chance / n
		m.GapLow += c.GapLow / n
		m.GapHigh += c.GapHigh / n
	}
	return m
}
