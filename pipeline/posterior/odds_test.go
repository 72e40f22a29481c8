package posterior

import (
	"math"
	"math/big"
	"testing"
)

// TestLogOdds: log-odds of a class that is nearly certain are as exact as those of the others.
func TestLogOdds(t *testing.T) {
	t.Parallel()
	logit := []float64{-3, 60, 1, 2}
	odds := append([]float64{}, logit...)
	logOdds(odds, make([]float64, len(odds)))
	for y, v := range logit {
		others := new(big.Float).SetPrec(200)
		for c, o := range logit {
			if c != y {
				others.Add(others, big.NewFloat(math.Exp(o)))
			}
		}
		sum, _ := others.Float64()
		if want := v - math.Log(sum); math.Abs(odds[y]-want) > 1e-13*math.Abs(want) {
			t.Errorf("class %d: %v, want %v", y, odds[y], want)
		}
	}
}
