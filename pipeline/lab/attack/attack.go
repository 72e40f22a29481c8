// Package attack measures how real rounds degrade the classifier: bad clients, with the defences
// against them (package honesty, coordinatewise median, trimmed mean, geometric median), lost
// clients, and uploads of narrow element types.
package attack

import (
	"math"
	"math/rand/v2"
	"slices"

	"gonum.org/v1/gonum/floats"
	"gonum.org/v1/gonum/stat"

	"fmp/pipeline/honesty"
)

// Attack changes the uploads of bad clients. It may use the uploads of the others, which they know.
// An attack sees uploads in the coordinates of [bench.claims], where the variance within a class is
// 1. It is therefore independent of the extractor's scale.
type Attack struct {
	Name string
	// Does describes a bad client's upload.
	Does string
	// make changes the upload of client m in place; its mass is set afterwards.
	make func(a *attacker, m int)
}

// attacker holds the values that the bad clients share.
type attacker struct {
	// u is written in place, client by client; before keeps the true uploads, and shares no memory
	// with it.
	u      *honesty.Uploads
	lambda []float64 // [k] variances of class means, where the variance within classes is 1
	r      *rand.Rand
	pool   []float64       // [classes, k] means over all clients, before the attack
	before honesty.Uploads // before the attack
	bad    int             // the first clients attack
	shift  int             // a number on which colluders agree
	toward []float64       // [k] a direction of length 1 on which colluders agree
}

// mean is client m's mean of class c, [k], in place. It is arbitrary where the client holds nothing
// of the class.
func (a *attacker) mean(m, c int) []float64 {
	return a.u.Means[(m*a.u.Classes+c)*a.u.K:][:a.u.K]
}

// masses are client m's numbers of images of each class, in place.
func (a *attacker) masses(m int) []float64 { return a.u.Masses[m*a.u.Classes:][:a.u.Classes] }

// rename gives every class c the statistics of class to(c). Both arrays are built aside and copied
// back, since a renaming in place would overwrite sources.
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

// claim scales a client's masses to the given sum. The proportions n_c / sum_c n_c of its classes
// stay. A client must hold at least one image, or the quotient is 0/0.
func (a *attacker) claim(m int, total float64) {
	floats.Scale(total/floats.Sum(a.masses(m)), a.masses(m))
}

// each visits the means of the classes that client m has images of. Classes are visited in
// ascending order, which fixes the order of random draws.
func (a *attacker) each(m int, do func(c int, mean []float64)) {
	for c, n := range a.masses(m) {
		if n > 0 {
			do(c, a.mean(m, c))
		}
	}
}

// move replaces each coordinate j, of value v, of a client's mean of class c. Coordinates are
// visited class by class, which fixes the order of draws in to.
func (a *attacker) move(m int, to func(c, j int, v float64) float64) {
	a.each(m, func(c int, mean []float64) {
		for j, v := range mean {
			mean[j] = to(c, j, v)
		}
	})
}

// next returns the mean over all clients of the class behind a class. The last class is followed by
// the first. A class that nobody holds has the mean 0.
func (a *attacker) next(c int) []float64 { return a.pool[(c+1)%a.u.Classes*a.u.K:][:a.u.K] }

// Attacks are the attacks of the table. Each is measured at several masses, which [Attack.apply]
// sets. The place of an attack in the list names its random stream and that of its row. One put
// between others would change the numbers of all behind it.
var Attacks = []Attack{
	// All bad clients err alike here, so that they confirm each other.
	{"flip", "names each class by the next one's name", func(a *attacker, m int) {
		a.rename(m, func(c int) int { return (c + 1) % a.u.Classes })
	}},
	// The opposite case: bad clients contradict each other as well.
	{"shuffle", "names classes at random, each bad client in its own way",
		func(a *attacker, m int) {
			p := a.r.Perm(a.u.Classes)
			a.rename(m, func(c int) int { return p[c] })
		}},
	{"swap", "exchanges the names of two classes", func(a *attacker, m int) {
		one, other := a.shift%a.u.Classes, (a.shift+1)%a.u.Classes
		a.rename(m, func(c int) int {
			switch c {
			case one:
				return other
			case other:
				return one
			}
			return c
		})
	}},
	{"target", "says of one class what is true of another, and the truth of the rest",
		func(a *attacker, m int) {
			// The third class behind, and of three the next: three behind would be the same one.
			c := a.shift % a.u.Classes
			from := (c + 1 + 2%max(a.u.Classes-1, 1)) % a.u.Classes
			if a.masses(m)[from] > 0 {
				copy(a.mean(m, c), a.mean(m, from))
				a.masses(m)[c] = max(a.masses(m)[c], a.masses(m)[from])
			}
		}},
	// v becomes -v about the origin of the claims' coordinates.
	{"sign", "means with the sign turned", func(a *attacker, m int) {
		a.move(m, func(_, _ int, v float64) float64 { return -v })
	}},
	// a class mean has the variance lambda, and an image about it 1
	{"noise", "means drawn as those of new classes", func(a *attacker, m int) {
		a.move(m, func(_, j int, _ float64) float64 {
			return a.r.NormFloat64() * math.Sqrt(a.lambda[j]+1)
		})
	}},
	{"far", "means ten times as far out", func(a *attacker, m int) {
		a.move(m, func(_, j int, _ float64) float64 {
			return 10 * a.r.NormFloat64() * math.Sqrt(a.lambda[j]+1)
		})
	}},
	{"creep", "means moved half of the way to the next class's", func(a *attacker, m int) {
		a.move(m, func(c, j int, v float64) float64 { return (v + a.next(c)[j]) / 2 })
	}},
	// mean = p_c + 0.2 (p_(c+1) - p_c) with the pooled means p. The client's own images do not
	// enter.
	{"nudge", "means a fifth of the way from the class's to the next class's, so near that the " +
		"others confirm them", func(a *attacker, m int) {
		a.move(m, func(c, j int, _ float64) float64 {
			own := a.pool[c*a.u.K+j]
			return own + 0.2*(a.next(c)[j]-own)
		})
	}},
	{"collapse", "all classes at the mean of one, the same for all bad clients",
		func(a *attacker, m int) {
			a.each(m, func(_ int, mean []float64) {
				copy(mean, a.pool[a.shift%a.u.Classes*a.u.K:][:a.u.K])
			})
		}},
	// toward has length 1 and a class the deviation 1 along it, so that the factor counts
	// deviations.
	{"shift",
		"all means moved by two standard deviations of a class, in one direction for " +
			"all bad clients", func(a *attacker, m int) {
			a.move(m, func(_, j int, v float64) float64 { return v + 2*a.toward[j] })
		}},
	{"little", "all means one standard deviation of the honest clients' means from their mean, " +
		"in each coordinate (Baruch et al. 2019, " +
		"arXiv:1902.06156)", func(a *attacker, m int) {
		a.each(m, func(c int, mean []float64) { a.little(c, mean) })
	}},
	// Client number bad is the first honest one.
	{"copy", "an honest client's upload, the same for all bad clients",
		func(a *attacker, m int) { a.replace(m, a.bad) }},
	{"repeat", "the true upload of one bad client, the same for all",
		func(a *attacker, m int) { a.replace(m, 0) }},
	// Only [attacker.claim] acts, which follows every attack.
	{"overclaim", "the truth but for the mass", func(*attacker, int) {}},
}

// replace gives client m the upload of another, as it was before the attack.
func (a *attacker) replace(m, from int) {
	copy(a.masses(m), a.before.Masses[from*a.u.Classes:][:a.u.Classes])
	copy(a.u.Means[m*a.u.Classes*a.u.K:],
		a.before.Means[from*a.u.Classes*a.u.K:][:a.u.Classes*a.u.K])
}

// little writes the mean of the honest clients' means of class c plus one standard deviation of
// them, in each coordinate. A class that no honest client holds keeps its mean. The deviation has
// the denominator n - 1; of one client alone there is none. Their true means are read from before,
// and the bad clients' are not: colluders know the honest uploads. Masses do not weigh, since the
// attack hides within the spread of clients.
func (a *attacker) little(c int, mean []float64) {
	for j := range mean {
		var of []float64
		for m := a.bad; m < a.u.Clients; m++ {
			if at := m*a.u.Classes + c; a.before.Masses[at] > 0 {
				of = append(of, a.before.Means[at*a.u.K+j])
			}
		}
		switch len(of) {
		case 0:
		case 1:
			mean[j] = of[0]
		default:
			centre, deviation := stat.MeanStdDev(of, nil)
			mean[j] = centre + deviation
		}
	}
}

// apply returns the uploads with those of the first bad clients replaced. Each bad client claims
// the given number of images. The uploads that are given stay as they are. Shift, direction and the
// means of the pool are drawn or taken once, before the attack: colluders agree on them. The
// generator is read in this order: shift, direction, then the clients' own draws, client by client.
// The number bad must lie below the number of clients for attacks that read honest uploads.
func (t Attack) apply(u honesty.Uploads, lambda []float64, bad int, claimed float64,
	r *rand.Rand) honesty.Uploads {
	out := u
	out.Masses, out.Means = slices.Clone(u.Masses), slices.Clone(u.Means)
	a := &attacker{u: &out, lambda: lambda, r: r, before: u, bad: bad, shift: r.IntN(u.Classes),
		toward: make([]float64, u.K)}
	_, a.pool = pooled(u)
	for j := range a.toward {
		a.toward[j] = r.NormFloat64()
	}
	floats.Scale(1/floats.Norm(a.toward, 2), a.toward)
	for m := range bad {
		t.make(a, m)
		a.claim(m, claimed)
	}
	return out
}

// pooled returns the mass and the mean of each class over all clients, weighted by mass; a class of
// no mass has the mean 0. For the masses n and means mu of clients m it is
// sum_m n_mc mu_mc / sum_m n_mc, in O(clients classes K). The floor of 1e-12 turns the 0/0 of such
// a class into 0.
func pooled(u honesty.Uploads) (masses, means []float64) {
	masses, means = make([]float64, u.Classes), make([]float64, u.Classes*u.K)
	for m := range u.Clients {
		for c := range u.Classes {
			at, n := m*u.Classes+c, u.Masses[m*u.Classes+c]
			masses[c] += n
			floats.AddScaled(means[c*u.K:][:u.K], n, u.Means[at*u.K:][:u.K])
		}
	}
	for i := range means {
		means[i] /= max(masses[i/u.K], 1e-12)
	}
	return masses, means
}
