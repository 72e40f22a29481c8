package conformal

import (
	"math"
	"math/rand/v2"

	"fmp/models/rng"
)

// Drift tests that the images of a stream are drawn like those that calibrated a classifier, by a
// conformal test martingale (Vovk, Nouretdinov and Gammerman 2003), and looks at each image once.
// The p-value of an image is the rank of its score among those of the reference and of the stream
// so far, ties by lot. While reference and stream are drawn alike these are independent and uniform
// on [0, 1], whatever the size of the reference. A gambler starts with 1 and bets on each,
//
//	f(p) = 1 + e (p - 1/2),  e in {-1, 0, 1}
//
// with a third of the wealth on each e. A share J of the wealth is dealt anew ahead of each bet. It
// is the Simple Jumper (Vovk, Petej, Nouretdinov, Ahlberg, Carlsson and Gammerman 2021, Retrain or
// not retrain). Wealth ever reaches 1/a with a probability of at most a, however often one looks
// (Ville 1939). Without a reference the stream is tested against its own beginning: a shift that
// was there from the first image is not found. Images that depend on those before them, such as
// frames of a film, are not drawn alike, and are found as well. A Drift is for one goroutine.
type Drift struct {
	counts  [levels + 1]int // of scores, as sums over levels (Fenwick 1994)
	n       int             // scores, those of the reference included
	before  int             // those of the reference
	shares  [3]float64      // of the wealth on each e, which sum to 1
	log     float64         // of wealth, natural
	highest float64
	lot     *rand.Rand
}

const (
	// levels are the scores that are told apart: log odds of -odds to odds, in steps of .0003.
	// Above .9999 they are one, as the reference was computed by another program, and rounding of
	// float32 must not tell the two apart.
	levels = 1 << 16
	odds   = 9.
	// jump is J: the more, the sooner bets follow a drift that turns, and the less they win by one
	// that stays.
	jump = 0.01
)

// NewDrift returns a test that has seen no image. The reference is the probabilities of the most
// probable class of the images that calibrated the classifier ([models.OriginSets].Top); empty
// where it has none. The seed is that of the lots.
func NewDrift(seed uint64, reference []float32) *Drift {
	d := &Drift{shares: [3]float64{1. / 3, 1. / 3, 1. / 3}, lot: rng.New(seed, "drift", "lots"),
		before: len(reference)}
	for _, confidence := range reference {
		d.insert(float64(confidence))
	}
	return d
}

// Images is the number of images that were looked at.
func (d *Drift) Images() int { return d.n - d.before }

// Reference is the number of images of the reference; 0 where there is none.
func (d *Drift) Reference() int { return d.before }

// Wealth returns the decimal logarithm of the gambler's wealth now, and of the highest ever: 2 and
// more is evidence of drift at a level of .01.
func (d *Drift) Wealth() (now, highest float64) { return d.log / math.Ln10, d.highest / math.Ln10 }

// Add looks at one more image, by the probability of its most probable class.
func (d *Drift) Add(confidence float64) {
	d.bet(d.rank(confidence))
}

// rank returns the p-value of a confidence among all n so far, itself included: (b + u e)/n, where
// b are below it, e equal to it, and u is of the lot.
func (d *Drift) rank(confidence float64) float64 {
	at := d.insert(confidence)
	below, upTo := d.sum(at-1), d.sum(at)
	return (float64(below) + d.lot.Float64()*float64(upTo-below)) / float64(d.n)
}

// insert counts a score, and returns its level, from 1 on. NaN and scores below 0 count as 0: an
// image that no class fits is among the least sure. The cost is O(log levels), as in sum.
func (d *Drift) insert(confidence float64) (level int) {
	if !(confidence >= 0) { // no probability
		confidence = 0
	}
	confidence = min(confidence, 1) // but for rounding
	logOdds := min(max(math.Log(confidence/(1-confidence)), -odds), odds)
	at := 1 + int((levels-1)*(logOdds/(2*odds)+0.5))
	d.n++
	for i := at; i <= levels; i += i & -i {
		d.counts[i]++
	}
	return at
}

// sum returns how many scores are of a level or lower.
func (d *Drift) sum(level int) (n int) {
	for ; level > 0; level -= level & -level {
		n += d.counts[level]
	}
	return n
}

// bet plays one p-value. A share s_e of the wealth becomes ((1 - J) s_e + J/3)(1 + e (p - 1/2)),
// and the wealth is times their sum. The mean of f(p) is 1 for a uniform p, which makes the wealth
// a martingale; f is 1/2 at least, so that the logarithm is finite.
func (d *Drift) bet(p float64) {
	var total float64
	for i := range d.shares {
		d.shares[i] = ((1-jump)*d.shares[i] + jump/3) * (1 + float64(i-1)*(p-0.5))
		total += d.shares[i]
	}
	for i := range d.shares {
		d.shares[i] /= total
	}
	d.log += math.Log(total)
	d.highest = max(d.highest, d.log)
}
