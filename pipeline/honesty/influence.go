package honesty

import (
	"math"
	"slices"
)

// An upload claims masses, and nobody can check them. Three rules bound the worth of a claim,
// whatever its size, in rounds of three clients or more. Of two, each counts as it claims.
//
// Cap. A client's images count up to the median of all clients' ([Cap]). While fewer than half of
// the clients are bad the median lies between two honest ones, so that no claim moves it beyond an
// honest client's mass. With a share b of bad clients and honest ones of one size, the bad ones
// hold at most the share b of the counted mass, as in a round in which nobody claims too much.
//
// Copies. Equal or nearly equal uploads are one piece of evidence ([Uploads.Copies]): together they
// count as the largest of them, and are honest or bad together.
//
// Confirmation. Beyond the cap a claim counts as far as the others confirm it ([Uploads.Confirm]):
// a mean of many images lies closer to those of the others than a mean of few. The number of images
// behind a client's class means has a posterior distribution between cap and claim; its expectation
// is counted, and for each class at most as much as all others together, which can confirm no more.
// Of moments a claim is confirmed by how well the others' images are predicted (package posterior).

// Cap returns the number of images up to which a client's claim counts without confirmation: the
// lower median of all clients' totals. Of two clients it is the larger's: no minority of bad ones
// can be told, and an honest large one would count as the smaller. A false claim is then believed.
func Cap(totals []float64) float64 {
	at := (len(totals) - 1) / 2
	if len(totals) == 2 {
		at = 1
	}
	return slices.Sorted(slices.Values(totals))[at]
}

// copyDistance is the distance below which two uploads are copies of each other: in each coordinate
// of each class mean, this many standard deviations of the difference of two independent means of
// the claimed images. In nine coordinates, for one class, two honest uploads are that near with a
// probability of 1e-10.
const copyDistance = 0.1

// box is where uploads are looked for that may be copies of a client's: the first class held, and
// the box of its mean's first coordinates, as wide as two means of 4^level images or more can be
// apart.
type box struct {
	class, level int
	at           [3]int
}

// box returns the box of a client at a level.
func (u *Uploads) box(m, class, level int) box {
	b := box{class: class, level: level}
	width := copyDistance * math.Sqrt2 / math.Pow(2, float64(level))
	for j := range min(len(b.at), u.K) {
		b.at[j] = int(math.Floor(max(-1e9, min(u.mean(m, class)[j], 1e9)) / width))
	}
	return b
}

// first returns the first class that a client holds, -1 if there is none, and the level of its mass
// of it.
func (u *Uploads) first(m int) (class, level int) {
	for class, n := range u.masses(m) {
		if n > 0 {
			return class, int(math.Log2(max(1, min(n, 1e9))) / 2)
		}
	}
	return -1, 0
}

// Copies sets Copy from the masses as they are claimed: clients whose uploads hold the same classes
// and nearly the same means, directly or through others, have the number of the first of them. Each
// client is looked for at all levels up to its own, and looks at its own.
func (u *Uploads) Copies() {
	u.Copy = make([]int, u.Clients)
	boxes := make(map[box][]int, u.Clients)
	for m := range u.Copy {
		u.Copy[m] = m
		if class, level := u.first(m); class >= 0 {
			for l := range level + 1 {
				b := u.box(m, class, l)
				boxes[b] = append(boxes[b], m)
			}
		}
	}
	root := func(m int) int {
		for u.Copy[m] != m {
			m = u.Copy[m]
		}
		return m
	}
	for m := range u.Copy {
		class, level := u.first(m)
		if class < 0 {
			continue
		}
		own := u.box(m, class, level)
		for i := range 27 { // the neighbours of a box, and itself
			b := own
			for j := range b.at {
				b.at[j] += i%3 - 1
				i /= 3
			}
			for _, other := range boxes[b] {
				if from, to := root(m), root(other); from != to && u.copies(m, other) {
					u.Copy[max(from, to)] = min(from, to)
				}
			}
		}
	}
	for m := range u.Copy {
		u.Copy[m] = root(m)
	}
}

// copies reports whether two uploads are copies of each other.
func (u *Uploads) copies(a, b int) bool {
	for c, n := range u.masses(a) {
		other := u.masses(b)[c]
		if (n > 0) != (other > 0) {
			return false
		}
		if n == 0 {
			continue
		}
		// no mean is of less than an image
		within := copyDistance * math.Sqrt(1/max(n, 1)+1/max(other, 1))
		x, y := u.mean(a, c), u.mean(b, c)
		for j, v := range x {
			if !(math.Abs(v-y[j]) <= within) {
				return false
			}
		}
	}
	return true
}

// Bound returns the uploads with masses as they count without confirmation: capped, and those of
// copies shared among them.
func (u Uploads) Bound() Uploads {
	totals := u.totals()
	limit := Cap(totals)
	claimed := u.Masses
	u.Masses = slices.Clone(claimed)
	sets := map[int][]int{} // of copies, by the first of them
	for m, n := range totals {
		sets[u.Copy[m]] = append(sets[u.Copy[m]], m)
		for c := range u.Classes {
			if n > limit {
				u.Masses[m*u.Classes+c] *= limit / n
			}
		}
	}
	for _, of := range sets {
		for c := 0; c < u.Classes && len(of) > 1; c++ {
			most, all := 0.0, 0.0
			for _, m := range of {
				n := u.Masses[m*u.Classes+c]
				most, all = max(most, n), all+n
			}
			for _, m := range of {
				if all > most {
					u.Masses[m*u.Classes+c] *= most / all
				}
			}
		}
	}
	return u
}

// Confirm returns the masses that count [clients, classes], given bounded uploads, the masses
// claimed, and the clients' probabilities of being honest. Let N be a client's claim, B its bounded
// mass, and m, v the posterior mean and variance of a class mean given the bounded uploads of the
// others, each weighted by its probability. For t = B, B√2, 2B, … up to N, with equal prior
// probabilities,
//
//	x_mc ~ N(m_c, v_c + 1/n_c),  n_c = min(t N_c/N, the others' mass of the class)
//
// to the power of the likelihood of package honesty. The mass counted is the posterior mean of n_c.
// Claiming more adds larger t, so that it never lowers the counted mass. Copies are not confirmed.
func (u *Uploads) Confirm(claimed, lambda, honest []float64) []float64 {
	out := slices.Clone(u.Masses)
	of := u.weighted(honest)
	size := make([]int, u.Clients)
	for _, m := range u.Copy {
		size[m]++
	}
	logs, n := []float64(nil), make([]float64, u.Classes)
	for m := range u.Clients {
		claim, bound := sum(claimed[m*u.Classes:][:u.Classes]), sum(u.masses(m))
		if size[u.Copy[m]] > 1 || claim <= bound {
			continue
		}
		at := func(i int) bool { // sets n for the i-th t
			t := bound * math.Pow(2, float64(i)/2)
			for c := range n {
				own := u.Masses[m*u.Classes+c]
				others := of.mass[c] - honest[m]*own
				n[c] = max(own, min(t/claim*claimed[m*u.Classes+c], others))
			}
			return t <= claim
		}
		logs = logs[:0]
		for i := 0; at(i); i++ {
			logs = append(logs, power*of.agreement(u, m, honest[m], n, lambda))
		}
		total := logSum(logs)
		counted := out[m*u.Classes:][:u.Classes]
		clear(counted)
		for i, l := range logs {
			at(i)
			for c, n := range n {
				counted[c] += math.Exp(l-total) * n
			}
		}
	}
	return out
}

// pooled are the mass of each class and the mass times mean, over clients weighted by their
// probabilities of being honest.
type pooled struct{ mass, sum []float64 }

func (u *Uploads) weighted(honest []float64) pooled {
	t := pooled{make([]float64, u.Classes), make([]float64, u.Classes*u.K)}
	for m, p := range honest {
		for c, n := range u.masses(m) {
			if n *= p; n == 0 {
				continue
			}
			t.mass[c] += n
			for j, v := range u.mean(m, c) {
				t.sum[c*u.K+j] += n * v
			}
		}
	}
	return t
}

// agreement returns the log density, in nats and up to a constant, of client m's class means as
// means of n images, given the others' uploads, of N_c images and mean x̄_c: with v_cj = λ_j/(1 +
// N_c λ_j)
//
//	-sum_cj ((x_cj - N_c v_cj x̄_cj)²/(v_cj + 1/n_c) + log(v_cj + 1/n_c))/2
func (t *pooled) agreement(u *Uploads, m int, honest float64, n, lambda []float64) float64 {
	var out float64
	for c, own := range u.masses(m) {
		if own == 0 {
			continue
		}
		own *= honest
		others := max(t.mass[c]-own, 0)
		for j, x := range u.mean(m, c) {
			v := lambda[j] / (1 + others*lambda[j])
			d, s := x-v*(t.sum[c*u.K+j]-own*x), v+1/n[c]
			out -= 0.5 * (d*d/s + math.Log(s))
		}
	}
	return out
}

// totals returns the mass of each client.
func (u *Uploads) totals() []float64 {
	out := make([]float64, u.Clients)
	for m := range out {
		out[m] = sum(u.masses(m))
	}
	return out
}

func (u *Uploads) masses(m int) []float64 { return u.Masses[m*u.Classes:][:u.Classes] }
func (u *Uploads) mean(m, c int) []float64 {
	at := m*u.Classes + c
	if u.Rows != nil {
		at = int(u.Rows[at])
	}
	return u.Means[at*u.K:][:u.K]
}

func sum(x []float64) (s float64) {
	for _, v := range x {
		s += v
	}
	return s
}
