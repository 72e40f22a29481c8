package moments

import (
	"crypto/sha256"
	"encoding/binary"
	"fmt"
	"math"
	"math/bits"
	"math/rand/v2"
	"slices"

	"fmp/models/rng"
)

// Temperatures is the number of temperatures at which likelihoods are told, and LowestTemperature
// and HighestTemperature the ends of their grid, whose logarithms are evenly apart.
const (
	Temperatures       = 49
	LowestTemperature  = 0.3
	HighestTemperature = 40
)

// Bounds on curves. With them every curve is a number of steps below 2^24, which float32 holds
// exactly.
const (
	// MaxCurveImages is the maximum number of images behind a curve.
	MaxCurveImages = 400
	// CurveStep is the unit of curves in nats; every value is a multiple.
	CurveStep = 1.0 / 1024
	// MinLikelihood is the lowest log-likelihood of one image in nats; lower ones count as this.
	MinLikelihood = -32
)

const (
	// minCell is the number of images of a class below which it is not measured: one is left out,
	// and two have a scatter.
	minCell   = 3
	minImages = 2 * minCell
	// fewest images a class are kept where a client has too many: rather fewer classes than none
	// with a scatter.
	fewest = 8
)

// Temperature returns temperature i of the grid, from 0.
func Temperature(i int) float64 {
	return LowestTemperature * math.Pow(HighestTemperature/LowestTemperature,
		float64(i)/(Temperatures-1))
}

// Curve is a log-likelihood, in nats, at each temperature of the grid. Curves of clients add up.
type Curve [Temperatures]float64

// ClientCurve is a client's measurement of its own images: the log-likelihood of each, left out of
// the discriminant of the others. Images lie further along a head than draws; the peak of the sum
// differs from that of images that a server draws in their place by log kappa (package candidate).
type ClientCurve struct {
	Curve
	// Clients is the number of clients that a sum of uploads has; 0 of a single one. Holders are
	// about as many clients as hold each of its class means: (sum n)^2 / sum n^2 over counts n.
	Clients int
	Holders []float64
}

// CurveOf returns the curve of a client's rows, [n, k], of c classes; nil where fewer than two
// classes have three rows. Of more than MaxCurveImages rows a random subset is measured, drawn by
// key and rows: the same ones have the same curve, to the byte on every machine.
func CurveOf(rows []float32, k int, labels []int, c int, key string) (*ClientCurve, error) {
	if err := checkRows(rows, k, labels, c); err != nil {
		return nil, err
	}
	kept := Measured(labels, c, rng.New(seedOf(rows, key), "moments", "curves", "subset"))
	if len(kept) < minImages {
		return nil, nil
	}
	rows, labels = chosenOf(rows, k, labels, kept)
	s := newParted(rows, k, labels)
	if s == nil {
		return nil, nil
	}
	grid := temperatures()
	out := &ClientCurve{Curve: s.leftOut(&grid, nil)}
	for i, v := range out.Curve {
		out.Curve[i] = math.RoundToEven(v/CurveStep) * CurveStep
	}
	return out, nil
}

// Check returns an error unless the curve is one of at most n images: multiples of the step between
// n times the least likelihood and 0.
func (c *ClientCurve) Check(n int) error {
	least := MinLikelihood * float64(min(n, MaxCurveImages))
	for i, v := range c.Curve {
		if !(v >= least && v <= 0) || v != math.Trunc(v/CurveStep)*CurveStep {
			return fmt.Errorf(
				"moments: the curve at temperature %.3g is %v; want a multiple of %v from %v to 0",
				Temperature(i), v, CurveStep, least)
		}
	}
	return nil
}

// temperatures returns the grid by arithmetic that has the same bits on every machine. Temperature
// i of n is, with r the highest over the lowest,
//
//	lowest r^(i/(n - 1))
func temperatures() (grid [Temperatures]float64) {
	ratio := logarithm(HighestTemperature / LowestTemperature)
	for i := range grid {
		grid[i] = LowestTemperature / exponential(-ratio*float64(i)/(Temperatures-1))
	}
	return grid
}

// seedOf hashes rows and key, so that clients with one key have subsets of their own.
func seedOf(rows []float32, key string) uint64 {
	h := sha256.New()
	fmt.Fprintf(h, "%d %s\n", len(key), key)
	var b [4]byte
	for _, v := range rows {
		binary.LittleEndian.PutUint32(b[:], math.Float32bits(v))
		h.Write(b[:])
	}
	return binary.LittleEndian.Uint64(h.Sum(nil))
}

// LeftOut returns the curve of rows, [n, k], of classes that have two or more each: the
// log-likelihood of each row, left out of the discriminant of the others. Random is the curve of
// the same rows where each is of a class at random. Both are nil where no class spreads.
func LeftOut(rows []float32, k int, labels []int) (own, random *Curve) {
	s := newParted(rows, k, labels)
	if s == nil {
		return nil, nil
	}
	grid := temperatures()
	random = &Curve{}
	out := s.leftOut(&grid, random)
	return &out, random
}

// Measured returns the images whose curve is measured: those of classes with minCell or more. Of
// too many it keeps a random subset: no class has more than the largest number that keeps the
// bound, and where that would be under fewest, random classes keep fewest each.
func Measured(labels []int, c int, r *rand.Rand) []int {
	cells := make([][]int, c)
	for i, y := range labels {
		cells[y] = append(cells[y], i)
	}
	cells = slices.DeleteFunc(cells, func(cell []int) bool { return len(cell) < minCell })
	if len(cells) < 2 {
		return nil
	}
	total := func(most int) (n int) {
		for _, cell := range cells {
			n += min(len(cell), most)
		}
		return n
	}
	most := len(labels)
	if total(most) > MaxCurveImages {
		for most = fewest; total(most+1) <= MaxCurveImages; most++ {
		}
		shuffle(cells, r)
		for i := range cells {
			shuffle(cells[i], r)
		}
	}
	var kept []int
	for _, cell := range cells {
		if n := min(len(cell), most); len(kept)+n <= MaxCurveImages {
			kept = append(kept, cell[:n]...)
		}
	}
	slices.Sort(kept)
	return kept
}

// chosenOf returns some of the rows, with their labels.
func chosenOf(rows []float32, k int, labels, kept []int) (some []float32, of []int) {
	for _, i := range kept {
		some, of = append(some, rows[i*k:(i+1)*k]...), append(of, labels[i])
	}
	return some, of
}

// shuffle puts elements into a random order, the same on machines of 32 and of 64 bits.
func shuffle[T any](s []T, r *rand.Rand) {
	for i := len(s) - 1; i > 0; i-- {
		j, _ := bits.Mul64(r.Uint64(), uint64(i+1))
		s[i], s[j] = s[j], s[i]
	}
}
