package moments

import "math"

// Temperatures is the number of temperatures at which likelihoods are told, and LowestTemperature and HighestTemperature the ends of
// their grid, whose logarithms are evenly apart.
const (
	Temperatures       = 49
	LowestTemperature  = 0.3
	HighestTemperature = 40
)

// Temperature returns temperature i of the grid, from 0.
func Temperature(i int) float64 {
	return LowestTemperature * math.Pow(HighestTemperature/LowestTemperature, float64(i)/(Temperatures-1))
}

// Curve is a log-likelihood, in nats, at each temperature of the grid. Curves of clients add up.
type Curve [Temperatures]float64

// Curves are what a client measures of its own images: the log-likelihood of each, left out of the discriminant of the others (Own), and
// the same of Gaussian twins with the same class means and scatter (Twin). Images have heavier tails along a head than Gaussian draws; the
// peaks of the two sums differ by log kappa.
type Curves struct{ Own, Twin Curve }
