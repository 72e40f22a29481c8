// Package metric measures predictive probabilities against true labels: accuracy, calibration and
// proper scores, with confidence intervals of paired differences over repeats.
package metric

import (
	"fmt"
	"math"
)

// Bins is the number of equal-width confidence bins of ECE and of the reliability curve (Guo et al.
// 2017, "On calibration of modern neural networks", use 15).
const Bins = 15

// nllFloor keeps the score finite for an event of probability 0.
const nllFloor = 1e-12

// Scores are those of one predictor on one labelled set.
type Scores struct {
	ACC   float64 `json:"acc"`   // share of points whose most probable class is the true one
	ECE   float64 `json:"ece"`   // expected calibration error over Bins bins of equal width
	NLL   float64 `json:"nll"`   // mean negative log-likelihood of the true class, in nats
	Brier float64 `json:"brier"` // mean squared distance to the one-hot label, 0 to 2
	Curve Curve   `json:"curve"` // reliability curve
	// Uncertainty holds the further scores of [ScoreAll]; nil otherwise.
	Uncertainty *Uncertainty `json:"uncertainty,omitempty"`
}

// Bin is one confidence bin ((i)/Bins, (i+1)/Bins] of a reliability curve. Confidence and Accuracy
// are means over its points, 0 where it has none. Count is a mean of counts where scores were
// averaged.
type Bin struct {
	Count      float64 `json:"count"`
	Confidence float64 `json:"confidence"`
	Accuracy   float64 `json:"accuracy"`
}

// Curve is a reliability curve.
type Curve [Bins]Bin

// Score scores p against labels, one class index per row of p. With the most probable class k_i of
// point i, the first at ties, and the bins B of confidence
//
//	ECE = sum_B |sum_{i in B} (1[y_i = k_i] - p_i,k_i)| / N
//	Brier = sum_i |p_i - e_{y_i}|^2 / N,   NLL = -sum_i log(p_i,y_i + 1e-12) / N
//
// No points, sizes that differ, and probabilities outside of 0 to 1 are errors. Rows need not sum
// to 1.
func Score(p *Probabilities, labels []int) (Scores, error) {
	var s Scores
	if len(labels) != p.N || len(p.P) != p.N*p.C {
		return s, fmt.Errorf("score: %d labels and %d probabilities for %d points of %d "+
			"classes; want one label and %d probabilities a point", len(labels),
			len(p.P), p.N, p.C, p.C)
	}
	if p.N == 0 {
		return s, fmt.Errorf("score: no points; give at least one")
	}
	for i, y := range labels {
		if y < 0 || y >= p.C {
			return s, fmt.Errorf("score: label %d of point %d; allowed are 0 to %d", y, i, p.C-1)
		}
		row := p.Row(i)
		best := 0
		for j, v := range row {
			if math.IsNaN(v) || v < 0 || v > 1+1e-9 {
				return s, fmt.Errorf("score: probability %v of class %d for point %d; allowed "+
					"are 0 to 1", v, j, i)
			}
			if v > row[best] {
				best = j
			}
			e := v
			if j == y {
				e--
			}
			s.Brier += e * e
		}
		s.NLL -= math.Log(row[y] + nllFloor)
		b := &s.Curve[bin(row[best])]
		b.Count++
		b.Confidence += row[best]
		if best == y {
			b.Accuracy++
			s.ACC++
		}
	}
	n := float64(p.N)
	// The floor puts the likelihood of a sure and right point above 1.
	s.ACC, s.NLL, s.Brier = s.ACC/n, max(s.NLL/n, 0), s.Brier/n
	for i := range s.Curve {
		b := &s.Curve[i]
		if b.Count == 0 {
			continue
		}
		s.ECE += math.Abs(b.Accuracy-b.Confidence) / n
		b.Confidence /= b.Count
		b.Accuracy /= b.Count
	}
	return s, nil
}

// bin returns the bin of a probability.
// Bins are open on the left; a probability of 0 is in the first one all the same.
func bin(p float64) int { return min(max(int(math.Ceil(p*Bins))-1, 0), Bins-1) }

// Mean averages scores, for example over the clients of a local method. ECE is the mean of ECEs
// (not the ECE of the mean curve); the curve's bins are averaged with their counts.
// A bin's confidence and accuracy are weighted by its counts.
func Mean(all []Scores) (Scores, error) {
	var m Scores
	if len(all) == 0 {
		return m, fmt.Errorf("mean of scores: none given; give at least one")
	}
	n := float64(len(all))
	further := make([]*Uncertainty, len(all))
	for i, s := range all {
		further[i] = s.Uncertainty
		m.ACC += s.ACC / n
		m.ECE += s.ECE / n
		m.NLL += s.NLL / n
		m.Brier += s.Brier / n
		for i, b := range s.Curve {
			m.Curve[i].Count += b.Count
			m.Curve[i].Confidence += b.Count * b.Confidence
			m.Curve[i].Accuracy += b.Count * b.Accuracy
		}
	}
	for i := range m.Curve {
		if b := &m.Curve[i]; b.Count > 0 {
			b.Confidence /= b.Count
			b.Accuracy /= b.Count
			b.Count /= n
		}
	}
	m.Uncertainty = mean(further)
	return m, nil
}
