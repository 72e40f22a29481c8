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
	twins     = 4 // Gaussian twins of the images, whose curves are averaged
	minCell   = 3 // images of a class: one is left out, and two have a scatter
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

// Curves are measured by a client of its own images: the log-likelihood of each, left out of the
// discriminant of the others (Own), and the same of Gaussian twins with the class means and the
// scatter of the images (Twin). Images have heavier tails along a head than Gaussian draws; the
// peaks of the two sums differ by log kappa. Twins of few images a class err: their rows lie in the
// span of the images' residuals. Package candidate draws its own where it knows the counts.
type Curves struct {
	Own, Twin Curve
	Clients   int // whose sum they may be; 0: 1
}

// CurvesOf returns the curves of a client's rows, [n, k], of c classes; nil where fewer than two
// classes have three rows. Of more than MaxCurveImages rows a random subset is measured. Subset and
// twins are drawn by key and rows: the same ones have the same curves, to the byte on every
// machine.
func CurvesOf(rows []float32, k int, labels []int, c int, key string) (*Curves, error) {
	if err := checkRows(rows, k, labels, c); err != nil {
		return nil, err
	}
	seed := seedOf(rows, key)
	kept := Measured(labels, c, rng.New(seed, "moments", "curves", "subset"))
	if len(kept) < minImages {
		return nil, nil
	}
	rows, labels = chosenOf(rows, k, labels, kept)
	s := newSpread(rows, k, labels)
	if s == nil {
		return nil, nil
	}
	grid := temperatures()
	out := &Curves{Own: s.leftOut(&grid, nil)}
	for t := range twins {
		for i, v := range s.twin(halves(rng.New(seed, "moments", "curves", "twin", t),
			len(labels))).leftOut(&grid, nil) {
			out.Twin[i] += v / twins
		}
	}
	out.round()
	return out, nil
}

func (c *Curves) round() {
	for _, curve := range []*Curve{&c.Own, &c.Twin} {
		for i, v := range curve {
			curve[i] = math.RoundToEven(v/CurveStep) * CurveStep
		}
	}
}

// Check returns an error unless the curves are sums over at most n images: multiples of the step
// between n times the least likelihood and 0.
func (c *Curves) Check(n int) error {
	least := MinLikelihood * float64(min(n, MaxCurveImages))
	for name, curve := range map[string]*Curve{"own": &c.Own, "twin": &c.Twin} {
		for i, v := range curve {
			if !(v >= least && v <= 0) || v != math.Trunc(v/CurveStep)*CurveStep {
				return fmt.Errorf(
					"moments: the %s curve at temperature %.3g is %v; want a multiple of %v "+
						"from %v to 0", name,
					Temperature(i), v, CurveStep, least)
			}
		}
	}
	return nil
}

// temperatures returns the grid from a table of its logarithms' arithmetic that has the same bits
// on every machine.
func temperatures() (grid [Temperatures]float64) {
	ratio := logarithm(HighestTemperature / LowestTemperature)
	for i := range grid {
		grid[i] = LowestTemperature / exponential(-ratio*float64(i)/(Temperatures-1))
	}
	return grid
}

// seedOf hashes rows and key, so that clients with one key have twins of their own.
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

// halves returns n x n draws of mean 0 and variance 1: the ones among 256 fair bits. Gaussian draws
// proper take logarithms, which differ between machines.
func halves(r *rand.Rand, n int) []float64 {
	z := make([]float64, n*n)
	for i := range z {
		ones := 0
		for range 4 {
			ones += bits.OnesCount64(r.Uint64())
		}
		z[i] = float64(ones-128) / 8
	}
	return z
}

// LeftOut returns the curve of rows, [n, k], of classes that have two or more each: the
// log-likelihood of each row, left out of the discriminant of the others. Random is the curve of the
// same rows where each is of a class at random. Both are nil where no class spreads.
func LeftOut(rows []float32, k int, labels []int) (own, random *Curve) {
	s := newSpread(rows, k, labels)
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
