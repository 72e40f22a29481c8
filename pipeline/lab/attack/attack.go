// Package attack measures how real rounds degrade the classifier: bad clients, with the defences against them (package honesty,
// coordinatewise median, trimmed mean, geometric median), lost clients, and uploads of narrow element types.
package attack

import (
	"math"
	"math/rand/v2"

	"fmp/pipeline/honesty"
)

// Attack changes the uploads of bad clients. It may use the uploads of the others, which they know.
type Attack struct {
	Name string
	// Does describes what a bad client sends.
	Does string
	make func(a *attacker, m int)
}

// attacker is what the bad clients share.
type attacker struct {
	u      *honesty.Uploads
	lambda []float64
	cap    float64 // most points that the round lets a client claim
	r      *rand.Rand
	pool   []float64 // [classes, k] means over all clients, before the attack
	shift  int       // a number on which colluders agree
}

func (a *attacker) mean(m, c int) []float64 {
	return a.u.Means[(m*a.u.Classes+c)*a.u.K:][:a.u.K]
}

func (a *attacker) masses(m int) []float64 { return a.u.Masses[m*a.u.Classes:][:a.u.Classes] }

// rename gives every class c the statistics of class to(c).
func (a *attacker) rename(m int, to func(c int) int) {
	masses, means := make([]float64, a.u.Classes), make([]float64, a.u.Classes*a.u.K)
	for c := range a.u.Classes {
		from := to(c)
		masses[c] = a.masses(m)[from]
		copy(means[c*a.u.K:], a.mean(m, from))
	}
	copy(a.masses(m), masses)
	copy(a.u.Means[m*a.u.Classes*a.u.K:], means)
}

// claim scales a client's masses to the maximum that it may claim.
func (a *attacker) claim(m int) {
	var sum float64
	for _, n := range a.masses(m) {
		sum += n
	}
	for c := range a.masses(m) {
		a.masses(m)[c] *= a.cap / sum
	}
}

func (a *attacker) each(m int, do func(c int, mean []float64)) {
	for c, n := range a.masses(m) {
		if n > 0 {
			do(c, a.mean(m, c))
		}
	}
}

// Attacks are the nine attacks of the table.
var Attacks = []Attack{
	{"flip", "names each class by the next one's name", func(a *attacker, m int) {
		a.rename(m, func(c int) int { return (c + 1) % a.u.Classes })
	}},
	{"heavy flip", "the same, with the largest mass that it may claim", func(a *attacker, m int) {
		a.rename(m, func(c int) int { return (c + 1) % a.u.Classes })
		a.claim(m)
	}},
	{"shuffle", "names classes at random, each bad client in its own way", func(a *attacker, m int) {
		p := a.r.Perm(a.u.Classes)
		a.rename(m, func(c int) int { return p[c] })
	}},
	{"target", "says of one class what is true of another, and the truth of the rest", func(a *attacker, m int) {
		c, from := a.shift%a.u.Classes, (a.shift+3)%a.u.Classes
		if a.masses(m)[from] > 0 {
			copy(a.mean(m, c), a.mean(m, from))
			a.masses(m)[c] = max(a.masses(m)[c], a.masses(m)[from])
		}
	}},
	{"sign", "means with the sign turned, at the largest mass", func(a *attacker, m int) {
		a.each(m, func(_ int, mean []float64) {
			for j := range mean {
				mean[j] = -mean[j]
			}
		})
		a.claim(m)
	}},
	{"noise", "means drawn as those of new classes", func(a *attacker, m int) {
		a.each(m, func(_ int, mean []float64) {
			for j := range mean {
				mean[j] = a.r.NormFloat64() * math.Sqrt(a.lambda[j]+1)
			}
		})
	}},
	{"far", "means ten times as far out, at the largest mass", func(a *attacker, m int) {
		a.each(m, func(_ int, mean []float64) {
			for j := range mean {
				mean[j] = 10 * a.r.NormFloat64() * math.Sqrt(a.lambda[j]+1)
			}
		})
		a.claim(m)
	}},
	{"creep", "means moved half of the way to the next class's", func(a *attacker, m int) {
		a.each(m, func(c int, mean []float64) {
			next := a.pool[(c+1)%a.u.Classes*a.u.K:][:a.u.K]
			for j := range mean {
				mean[j] = (mean[j] + next[j]) / 2
			}
		})
		a.claim(m)
	}},
	{"collapse", "all classes at the mean of one, the same for all bad clients", func(a *attacker, m int) {
		a.each(m, func(_ int, mean []float64) { copy(mean, a.pool[a.shift%a.u.Classes*a.u.K:][:a.u.K]) })
		a.claim(m)
	}},
}

// apply returns the uploads with those of the first bad clients replaced.
func (t Attack) apply(u honesty.Uploads, lambda []float64, bad int, limit float64, r *rand.Rand) honesty.Uploads {
	out := u
	out.Masses, out.Means = append([]float64(nil), u.Masses...), append([]float64(nil), u.Means...)
	a := &attacker{u: &out, lambda: lambda, cap: limit, r: r, shift: r.IntN(u.Classes)}
	_, a.pool = pooled(u)
	for m := range bad {
		t.make(a, m)
	}
	return out
}

// pooled returns the mass and the mean of each class over all clients.
func pooled(u honesty.Uploads) (masses, means []float64) {
	masses, means = make([]float64, u.Classes), make([]float64, u.Classes*u.K)
	for m := range u.Clients {
		for c := range u.Classes {
			n := u.Masses[m*u.Classes+c]
			masses[c] += n
			for j := range u.K {
				means[c*u.K+j] += n * u.Means[(m*u.Classes+c)*u.K+j]
			}
		}
	}
	for i := range means {
		means[i] /= max(masses[i/u.K], 1e-12)
	}
	return masses, means
}
