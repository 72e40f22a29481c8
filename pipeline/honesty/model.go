package honesty

import (
	"fmt"
	"math"
	"slices"
)

// cell is a client's upload for one class.
// A class without images at a client has no cell.
type cell struct {
	class        int
	n            float64   // mass
	a, iv        float64   // precision, and its inverse
	x            []float64 // [k]
	fresh, broad float64   // log densities that do not depend on the state
	// near are the classes that the cell may be of, its own at own, and then those of a fresh class
	// and of garbage. In a wide round they are few (wide.go), else all.
	near  []int
	own   int
	at    []int // where these are in the class's model.among
	alone bool  // others claim few images of its class
}

// model is the uploads, prepared for evaluation. It is read by many states at once, and not changed
// after newModel.
// Sizes: k is the number of coordinates, and lambda [k] their prior variances, in units of W.
type model struct {
	clients, classes, k int
	lambda              []float64
	copy                []int // by client: the first of its copies
	// by client, copies have theirs with the first of them; then those that are known
	cells   [][]cell
	among   [][]int   // by class: all that its cells may be of, in ascending order
	claimed []float64 // by class: the mass of all cells
	large   bool
	most    int       // clients that may be bad
	odds    []float64 // by client: prior log odds of being honest
	// by client: the terms of the honest likelihood that do not depend on the state
	e []float64
}

var log2pi = math.Log(2 * math.Pi)

// priorOdds returns each client's log odds of being honest before class means are looked at.
// log(0.95/0.05) is 2.9 nats, to which odds of other sources are added, [clients].
func priorOdds(u Uploads) []float64 {
	out := make([]float64, u.Clients)
	for m := range out {
		out[m] = math.Log(Prior / (1 - Prior))
		if u.Odds != nil {
			out[m] += tempered(u.Odds[m])
		}
	}
	return out
}

// tempered returns log odds of honesty to the power of the likelihood, and no stronger than needed
// to make a state impossible.
// power is that of the class means, so that neither source outweighs the other by its scale.
func tempered(odds float64) float64 { return power * min(max(odds, -maxOdds), maxOdds) }

// newModel checks sizes and numbers, and prepares them. Cells of known means are the last ones,
// with their precision times the number of clients.
// Means are shared with u, and must not change while the model is in use.
func newModel(u Uploads, lambda []float64) (*model, error) {
	h := &model{clients: u.Clients, classes: u.Classes, k: u.K, lambda: lambda}
	if u.Clients < 1 || u.Classes < 2 || u.K < 1 || len(lambda) != u.K ||
		len(u.Masses) != u.Clients*u.Classes ||
		u.misplaced() || u.Copy != nil && len(u.Copy) != u.Clients || u.Odds != nil &&
		len(u.Odds) != u.Clients {
		return nil, fmt.Errorf("%d clients, %d classes, k %d with %d masses, %d means and %d "+
			"variances; want clients x classes masses, as many x k means, k variances, 2 classes "+
			"or more",
			u.Clients, u.Classes, u.K, len(u.Masses), len(u.Means), len(lambda))
	}
	if k := u.Known; k != nil && (len(k.Masses) != u.Classes || len(k.Means) != u.Classes*u.K) {
		return nil, fmt.Errorf("known class means of %d masses and %d numbers; want %d and %d",
			len(k.Masses), len(k.Means), u.Classes, u.Classes*u.K)
	}
	for j, v := range lambda {
		if !(v > 0) || math.IsInf(v, 0) {
			return nil, fmt.Errorf("lambda[%d] is %v; want finite numbers above 0", j, v)
		}
	}
	h.copy = u.Copy
	if h.copy == nil {
		h.copy = make([]int, u.Clients)
		for m := range h.copy {
			h.copy[m] = m
		}
	}
	// A majority is honest, unless the round is anchored.
	if h.most = (u.Clients - 1) / 2; u.anchored() {
		h.most = u.Clients - 1
	}
	h.odds = priorOdds(u)
	if err := h.read(u); err != nil {
		return nil, err
	}
	for m := range h.cells {
		h.densities(m)
	}
	for i := range h.cells[u.Clients] { // in each class they weigh as much as all clients together
		h.cells[u.Clients][i].a *= float64(u.Clients)
	}
	h.nearby(&u)
	h.count()
	return h, nil
}

// count adds up the mass that is claimed of each class, and says which cells hold theirs alone.
// A cell holds a class alone where n >= 4 (claimed - n).
func (h *model) count() {
	h.claimed = make([]float64, h.classes)
	for _, cells := range h.cells {
		for _, l := range cells {
			h.claimed[l.class] += l.n
		}
	}
	for m := range h.cells {
		for i := range h.cells[m] {
			l := &h.cells[m][i]
			l.alone = few*(h.claimed[l.class]-l.n) <= l.n
		}
	}
}

// few is how many times the images of all others a cell has that alone holds its class: some of
// these may have strayed into it.
const few = 4

// strayed is the precision of as many images of a class, beside which a cell still holds it alone.
var strayed = Precision(few)

// read sets the cells of clients, and those that are known. Means of copies go to the cells of the
// first of them, where the masses add up.
// One allocation serves the cells of all clients, as wide rounds have millions of classes and
// clients together.
func (h *model) read(u Uploads) error {
	h.cells, h.e = make([][]cell, u.Clients+1), make([]float64, u.Clients+1)
	cells := make([]cell, len(u.Masses)-zeros(u.Masses)) // of all clients
	for m := range u.Clients {
		held := u.Classes - zeros(u.masses(m))
		h.cells[m], cells = cells[:0:held], cells[held:]
		for c := range u.Classes {
			n := u.Masses[m*u.Classes+c]
			if !(n >= 0) || math.IsInf(n, 0) {
				return fmt.Errorf("client %d has mass %v of class %d; want finite numbers of "+
					"at least 0", m, n, c)
			}
			if n == 0 {
				continue
			}
			for _, v := range u.mean(m, c) {
				// Squares of numbers up to 1e100 stay below the largest float64, 1.8e308.
				if math.IsNaN(v) || math.Abs(v) > 1e100 {
					return fmt.Errorf("client %d has %v in its mean of class %d; want "+
						"finite numbers", m, v, c)
				}
			}
			h.hold(h.copy[m], c, n, u.mean(m, c))
		}
	}
	if k := u.Known; k != nil {
		for c, n := range k.Masses {
			mean := k.Means[c*u.K:][:u.K]
			if !(n >= 0) || math.IsInf(n, 0) || n > 0 &&
				slices.ContainsFunc(mean, func(v float64) bool { return !(math.Abs(v) <= 1e100) }) {
				return fmt.Errorf("known class means: mass %v of class %d, or a number of its "+
					"mean; want finite numbers", n, c)
			}
			if n > 0 {
				h.hold(u.Clients, c, n, mean)
			}
		}
	}
	return nil
}

// zeros returns how many of some numbers are 0.
func zeros(x []float64) (n int) {
	for _, v := range x {
		if v == 0 {
			n++
		}
	}
	return n
}

// hold adds class means to those of a client. Means of a class that it holds already, which are
// nearly the same, count together.
// The mean stays that of the first, and only the mass grows. It costs O(cells of the client).
func (h *model) hold(m, c int, n float64, x []float64) {
	for i := range h.cells[m] {
		if l := &h.cells[m][i]; l.class == c {
			l.n += n
			return
		}
	}
	h.cells[m] = append(h.cells[m], cell{class: c, n: n, x: x})
}

// meanVariance is pointVariance/n + cellVariance, in units of W: it does not fall to 0, as
// clients' classes differ.
func meanVariance(n float64) float64 { return pointVariance/max(n, 1e-9) + cellVariance }

// Precision returns a, the precision of a mean of n images.
func Precision(n float64) float64 { return 1 / meanVariance(n) }

// densities computes a client's terms that do not depend on the state. fresh is log N(x; 0, λ +
// 1/a), and broad log N(x; 0, 30 (λ + 1/a)).
// e is sum over cells of k/2 (log a - log 2 pi) - a |x|²/2.
func (h *model) densities(m int) {
	for i := range h.cells[m] {
		l := &h.cells[m][i]
		l.iv = meanVariance(l.n)
		l.a = 1 / l.iv
		var norm float64
		for j, v := range l.x {
			norm += v * v
			s := h.lambda[j] + l.iv
			l.fresh -= 0.5 * (v*v/s + math.Log(s) + log2pi)
			l.broad -= 0.5 * (v*v/(rubbish*s) + math.Log(rubbish*s) + log2pi)
		}
		h.e[m] += 0.5*float64(h.k)*(math.Log(l.a)-log2pi) - 0.5*l.a*norm
	}
}

// tie gives copies the state of the first of them.
// z has one entry a client, and is changed in place.
func (h *model) tie(z []bool) {
	for m, first := range h.copy {
		z[m] = z[first]
	}
}

// logDet is the logarithm of a product of many factors: parts is that of partial products that were
// about to leave the range, rest that of the remainder.
// One logarithm for many factors costs less than one for each.
type logDet struct{ parts, rest float64 }

// start returns the state of the honest clients z. It costs O(cells k + classes k).
// Known means are honest in every state. The state is the caller's.
func (h *model) start(z []bool) *state {
	st := &state{h: h, n: make([]float64, h.classes), s: make([]float64, h.classes*h.k),
		mean: make([]float64, h.classes*h.k),
		v:    make([]float64, h.classes*h.k), dets: make([]logDet, h.classes)}
	for m, honest := range z {
		if honest {
			st.add(m, 1)
		}
	}
	for m := len(z); m < len(h.cells); m++ {
		st.add(m, 1) // what is known
	}
	for c := range h.classes {
		st.moments(c)
	}
	return st
}

// kind returns the log weight of type j for a cell of class c: this class, another, fresh, garbage.
func (h *model) kind(c, j int) float64 {
	switch {
	case j == c:
		return logMix[0]
	case j < h.classes:
		return logMix[1]
	}
	return logMix[2+j-h.classes]
}

// tables returns a number for each class and each of its components in model.among.
// Rows are zeros of the caller's.
func (h *model) tables() [][]float64 {
	out := make([][]float64, h.classes)
	for c := range out {
		out[c] = make([]float64, len(h.among[c]))
	}
	return out
}

// expected sets the parameters of each class's Dirichlet given the expected types of the bad cells,
// and returns the cells' part of the bound.
// A parameter becomes concentration/(classes - 1) and the sum of its p over the bad cells.
func (h *model) expected(bad []*cell, density []float64, weights,
	target [][]float64) (bound float64) {
	for _, own := range target {
		for at := range own {
			own[at] = concentration / float64(h.classes-1)
		}
	}
	width := len(density) / len(bad)
	a := make([]float64, width) // normalised log weights of a cell: density + weight - log sum
	for i, b := range bad {
		own := density[i*width:][:width]
		for at, d := range own {
			a[at] = d + weights[b.class][b.at[at]]
		}
		z := logSum(a)
		for at, j := range b.near {
			a[at] -= z
			// p log p is 0 at p = 0, where its logarithm is not finite.
			p := math.Exp(a[at])
			if p > 0 {
				bound += p * (own[at] + h.kind(b.class, j) - a[at])
			}
			target[b.class][b.at[at]] += p
		}
	}
	return bound
}

// total returns the sum of the parameters of a class's Dirichlet and, if asked for, that of the
// logarithms of their gamma functions. The parameters are those of the other classes: of the ones
// in among[c] as given, of the rest as before any cell. Sums run in the order of the classes,
// whichever are given.
func (h *model) total(c int, given []float64, gammas bool) (sum, logs float64) {
	alpha := concentration / float64(h.classes-1)
	first, _ := math.Lgamma(alpha)
	next := 0
	rest := func(to int) {
		for ; next < to; next++ {
			if next != c {
				sum += alpha
				logs += first
			}
		}
		next++
	}
	for at, v := range given {
		j := h.among[c][at]
		if rest(min(j, h.classes)); j == c || j >= h.classes {
			continue
		}
		if sum += v; gammas {
			g := first
			if v != alpha { // most are equal
				g, _ = math.Lgamma(v)
			}
			logs += g
		}
	}
	rest(h.classes)
	return sum, logs
}

// logBeta returns the logarithm of the multivariate beta function of a class's parameters, the
// normaliser of the Dirichlet.
// log B(alpha) = sum_j log Gamma(alpha_j) - log Gamma(sum_j alpha_j).
func (h *model) logBeta(c int, given []float64) float64 {
	sum, logs := h.total(c, given, true)
	g, _ := math.Lgamma(sum)
	return logs - g
}

// logPosterior returns power log p(uploads | z) + log p(z), in nats, up to a constant of the round.
// Copies count once in log p(z). It starts a state anew, so that it does not depend on which states
// were weighed before.
// It costs O(cells k + classes k), and the two sweeps of the bad clients' types.
func (h *model) logPosterior(z []bool) float64 {
	st := h.start(z)
	_, bad := st.contamination(z, 2)
	out := power * (st.honest() + bad)
	for m, honest := range z {
		if h.copy[m] != m {
			continue
		}
		if out += math.Log(1 - Prior); honest {
			out += h.odds[m]
		}
	}
	return out
}
