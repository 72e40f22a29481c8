// Package honesty estimates the probability that each client of a round is honest, that is, that
// its upload was computed from images of the classes that it names. The estimate is part of the
// posterior: every posterior sample draws a state, the set of honest clients, and uses their
// uploads only.
//
// Uploads are class means in coordinates in which a class's points have covariance I and class
// means are N(0, diag(λ)) (package posterior's conjugate form). A cell is a client and a class with
// mass N > 0; its precision
//
//	a = 1 / (2.5/N + 0.3)
//
// lets no cell count for more than 3.3 points. With z_m = 1 for an honest client and μ_c shared by
// the honest ones,
//
//	honest:  x_mc ~ N(μ_c, 1/a),  μ_c ~ N(0, λ)      integrated out
//	bad:     x_mc ~ .6  N(m_c, v_c + 1/a)            this cell is correct (attacks on one class)
//	              + .3  Σ_{j≠c} T_cj N(m_j, v_j + 1/a)   another class's (flipped labels)
//	              + .05 N(0, λ + 1/a)                a class that nobody holds
//	              + .05 N(0, 30 (λ + 1/a))           garbage
//
// where (m, v) are the moments of μ given the honest uploads, and T_c ~ Dirichlet(.3/(C−1)) is
// shared by all bad clients, so that colluders pay for their target once (integrated out with a
// variational bound). A class that a single client holds has (m_c, v_c) = (0, λ): three of the
// densities coincide there, so that its holder is not suspected for it, nor is it where that class
// is like another (related). The likelihood is tempered with power .5, the prior probability that a
// client is honest is .95, and fewer than half of the clients are bad. The constants were fitted on
// corpora under simulated attacks and are the same for all data sets.
//
// The share of a claimed mass that counts is bounded before clients are judged, and further by the
// others' confirmation (influence.go).
//
// Limitation: colluders who outnumber the honest holders of a class are not detected. A bad client
// that alone holds a class is not contradicted by anybody.
package honesty

import (
	"context"
	"fmt"
	"math"
	"math/bits"
	"math/rand/v2"
	"slices"
	"sync/atomic"

	"fmp/models/rng"
	"fmp/pipeline/internal/parallel"
	"fmp/pipeline/point"
)

// Prior is the probability that a client is honest before anything is known of it.
const Prior = 0.95

// Constants of the model.
const (
	// pointVariance is the variance of a mean of one image about its class at a client, in units of
	// W. cellVariance is that of a mean of any number of images.
	pointVariance = 2.5
	cellVariance  = 0.3
	// power is that of the likelihood of class means, and of other odds: at 0 all clients would
	// keep the prior.
	power = 0.5
	// rubbish is the factor on the variance of garbage, beside that of a class that nobody holds.
	rubbish = 30.0
	// maxOdds bounds the log odds of honesty that others tell, in nats.
	maxOdds = 200.0
	// concentration is the sum of the parameters of the Dirichlet of T_c. The smaller it is, the
	// more T_c lies on one target.
	concentration = 0.3
)

// logMix are the logarithms of the weights of the kinds of a bad client's cell: its own class,
// another's, one that nobody holds, and garbage.
var logMix = [4]float64{math.Log(0.6), math.Log(0.3), math.Log(0.05), math.Log(0.05)}

// Exact is the largest number of clients for which all states are enumerated; for more clients,
// Gibbs chains propose states.
const Exact = 10

// Numbers of chains and sweeps of the annealed Gibbs sampler. Above a hundred clients there are
// fewer chains, as their cost grows and the influence of one client shrinks.
const (
	maxChains = 24
	minChains = 4
	// sweeps over the clients of a chain. The power of the likelihood rises from 0.03 of its own in
	// the first to all of it in three fifths of them, by equal factors.
	sweeps = 20
	greedy = 2 // sweeps from the end of a chain to the nearby mode
)

// Chains returns the number of chains that propose states for a round; 0 if all states are
// enumerated.
func (u *Uploads) Chains() int {
	switch {
	case u.Clients <= u.exact():
		return 0
	case u.large():
		return minChains
	}
	return max(minChains, min(maxChains, 100*maxChains/u.Clients))
}

// Uploads are the bounded uploads of a round, as class means.
type Uploads struct {
	Clients, Classes, K int
	// Masses [clients, classes]; 0 if a client holds nothing of a class.
	Masses []float64
	// Means [clients, classes, k] of the classes; arbitrary where the mass is 0. Where Rows
	// [clients, classes] is not nil, it has the places of the means that are held, of k numbers.
	Means []float64
	Rows  []int32
	// Copy is, for each client, the first client of those that sent copies of one upload (see
	// [Uploads.Copies]); nil if there are none.
	Copy []int
	// Odds [clients] are log odds of honesty that something else than class means tells; nil where
	// nothing does.
	Odds []float64
	// Known are class means that nobody doubts; nil: none.
	Known *Known
	// Wide says that the uploads have fewer coordinates than the round (wide.go), and Pool's class
	// means are of these.
	Wide bool
	// Progress is told of the steps of Propose, or of Weigh where no chain proposed states, from
	// any goroutine; nil: nobody asks.
	Progress func(stage string, done, total int)
}

// counter returns a function that reports one step more, of total.
func (u *Uploads) counter(total int) func() {
	if u.Progress == nil {
		return func() {}
	}
	const stage = "who is honest"
	u.Progress(stage, 0, total)
	var done atomic.Int64
	return func() { u.Progress(stage, int(done.Add(1)), total) }
}

// Known are class means of images that the server knows, its own or those of an earlier round,
// which anchor who is honest. They count as those of as many clients as there are, which are honest
// in every state, so that no number of colluders outvotes them, and are not pooled. Where they have
// all classes that clients hold, all clients but one may be bad.
type Known struct {
	Masses []float64 // [classes]; 0 where nothing is known
	Means  []float64 // [classes, k]
}

// anchored reports whether every class that a client holds is known.
func (u *Uploads) anchored() bool {
	if u.Known == nil {
		return false
	}
	for i, n := range u.Masses {
		if n > 0 && u.Known.Masses[i%u.Classes] == 0 {
			return false
		}
	}
	return true
}

// Pool returns the pooled class means of the selected clients, one point per class that they hold,
// so that later stages read no more than that however many clients there are.
func (u *Uploads) Pool(of func(client int) bool) *point.Set {
	counts := make([]float64, u.Clients)
	for m := range counts {
		if of(m) {
			counts[m] = 1
		}
	}
	pooled := u.weighted(counts)
	all := point.New(u.Classes, u.K, u.Classes)
	for c, n := range pooled.mass {
		all.W[c] = float32(n)
		row := all.Row(c)
		row[u.K+c] = 1
		for j := range u.K {
			if n > 0 {
				row[j] = float32(pooled.sum[c*u.K+j] / n)
			}
		}
	}
	return all.Held()
}

// States are the candidate sets of honest clients, with their probabilities.
type States struct {
	// Honest [state][client] says who is honest.
	Honest [][]bool
	// P [state] are the probabilities; they sum to 1.
	P []float64
}

// Check returns an error unless the states, made elsewhere, are valid for this number of clients.
func (s *States) Check(clients int) error {
	if len(s.P) == 0 || len(s.P) != len(s.Honest) {
		return fmt.Errorf("honesty: %d states with %d probabilities; want as many, and at least "+
			"one", len(s.Honest), len(s.P))
	}
	sum := 0.0
	for q, p := range s.P {
		if len(s.Honest[q]) != clients || !(p >= 0) {
			return fmt.Errorf(
				"honesty: state %d is of %d clients and has probability %v; "+
					"want %d clients and 0 to 1", q, len(s.Honest[q]), p, clients)
		}
		sum += p
	}
	if math.Abs(sum-1) > 1e-6 {
		return fmt.Errorf("honesty: the states' probabilities sum to %v; want 1", sum)
	}
	return nil
}

// Marginal returns each client's probability of being honest.
func (s *States) Marginal() []float64 {
	out := make([]float64, len(s.Honest[0]))
	for q, z := range s.Honest {
		for m, honest := range z {
			if honest {
				out[m] += s.P[q]
			}
		}
	}
	for m := range out {
		out[m] = min(out[m], 1)
	}
	return out
}

// Draw draws one state for each of n posterior samples by systematic resampling: a state of
// probability p is drawn n p times, to within one.
func (s *States) Draw(n int, r *rand.Rand) [][]bool {
	out := make([][]bool, n)
	u, at, sum := r.Float64(), 0, s.P[0]
	for i := range out {
		for (u+float64(i))/float64(n) > sum && at+1 < len(s.P) {
			at++
			sum += s.P[at]
		}
		out[i] = s.Honest[at]
	}
	r.Shuffle(n, func(i, j int) { out[i], out[j] = out[j], out[i] })
	return out
}

// Dispute returns, for each class, the expected share of its mass that the posterior leaves out;
// above [Contested] a class is contested.
func (s *States) Dispute(u Uploads) []float64 {
	p := s.Marginal()
	out, all := make([]float64, u.Classes), make([]float64, u.Classes)
	for m := range u.Clients {
		for c := range u.Classes {
			n := u.Masses[m*u.Classes+c]
			all[c] += n
			out[c] += n * (1 - p[m])
		}
	}
	for c := range out {
		if all[c] > 0 {
			out[c] /= all[c]
		}
	}
	return out
}

// Contested is the share of a class's mass left out above which the class is contested.
const Contested = 0.35

// Infer computes the posterior probabilities of the states of a round. lambda [k] are the variances
// of class means between the corpus's classes. seed determines the random streams of the chains,
// which more than [Exact] clients need; threads (0: one per processor) does not affect the result.
func Infer(ctx context.Context, u Uploads, lambda []float64, seed uint64,
	threads int) (*States, error) {
	proposed, err := u.Propose(ctx, lambda, seed, 0, u.Chains(), threads)
	if err != nil {
		return nil, err
	}
	return Weigh(ctx, u, lambda, proposed, threads)
}

// Weigh computes the probabilities of the states that all chains of a round proposed, in order; for
// up to [Exact] clients, of every state. Up to [Exact] clients have 2^clients states, of which
// those with fewer than half bad are weighed.
func Weigh(ctx context.Context, u Uploads, lambda []float64, proposed [][]bool,
	threads int) (*States, error) {
	h, err := newModel(u, lambda)
	if err != nil {
		return nil, fmt.Errorf("honesty: %w", err)
	}
	var states [][]bool
	if u.Clients <= u.exact() {
		for s := range uint(1) << u.Clients {
			z := fromBits(s, u.Clients)
			if h.tie(z); u.Clients-bits.OnesCount(s) <= h.most &&
				slices.Equal(z, fromBits(s, u.Clients)) {
				states = append(states, z)
			}
		}
	} else if states, err = h.distinct(proposed); err != nil {
		return nil, fmt.Errorf("honesty: %w", err)
	}
	l := make([]float64, len(states))
	step := func() {}
	if len(proposed) == 0 {
		step = u.counter(len(states))
	}
	if err := parallel.Each(ctx, threads, len(states), func(_ context.Context, q int) error {
		l[q] = h.logPosterior(states[q])
		step()
		return nil
	}); err != nil {
		return nil, err
	}
	top := slices.Max(l)
	var sum float64
	for q := range l {
		l[q] = math.Exp(l[q] - top)
		sum += l[q]
	}
	for q := range l {
		l[q] /= sum
	}
	return &States{states, l}, nil
}

func fromBits(s uint, n int) []bool {
	z := make([]bool, n)
	for m := range z {
		z[m] = s>>m&1 == 1
	}
	return z
}

// cell is a client's upload for one class.
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
func tempered(odds float64) float64 { return power * min(max(odds, -maxOdds), maxOdds) }

// newModel checks sizes and numbers, and prepares them. Cells of known means are the last ones,
// with their precision times the number of clients.
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
func (h *model) hold(m, c int, n float64, x []float64) {
	for i := range h.cells[m] {
		if l := &h.cells[m][i]; l.class == c {
			l.n += n
			return
		}
	}
	h.cells[m] = append(h.cells[m], cell{class: c, n: n, x: x})
}

func meanVariance(n float64) float64 { return pointVariance/max(n, 1e-9) + cellVariance }

// Precision returns a, the precision of a mean of n images.
func Precision(n float64) float64 { return 1 / meanVariance(n) }

// densities computes a client's terms that do not depend on the state. fresh is log N(x; 0, λ +
// 1/a), and broad log N(x; 0, 30 (λ + 1/a)).
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
func (h *model) tie(z []bool) {
	for m, first := range h.copy {
		z[m] = z[first]
	}
}

// state holds sums over the honest clients of a state, and the moments of class means given them.
// It serves one goroutine, as components writes its cache. It takes classes x k numbers three
// times.
type state struct {
	h    *model
	n    []float64 // [classes] precisions
	s    []float64 // [classes, k] precision times mean
	e    float64
	mean []float64 // [classes, k]
	v    []float64 // [classes, k]
	// dets are the log determinants of v + iv for each class, cached for the last cell's iv: most
	// cells of a client have the same mass, and log determinants take most of the time. They are
	// valid until the moments change.
	iv   float64
	dets []logDet
}

// logDet is the logarithm of a product of many factors: parts is that of partial products that were
// about to leave the range, rest that of the remainder.
type logDet struct{ parts, rest float64 }

// start returns the state of the honest clients z. It costs O(cells k + classes k).
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

// add adds (sign 1) or removes (-1) a client's cells. The caller updates the moments.
func (st *state) add(m int, sign float64) {
	k := st.h.k
	for _, l := range st.h.cells[m] {
		st.n[l.class] += sign * l.a
		s := st.s[l.class*k:][:k]
		for j, x := range l.x {
			s[j] += sign * l.a * x
		}
	}
	st.e += sign * st.h.e[m]
}

// moments updates the moments of a class: v = λ/(1 + nλ), mean = v s.
func (st *state) moments(c int) {
	st.iv = math.NaN()
	k := st.h.k
	n := max(st.n[c], 0) // rounding, if all clients were removed
	for j, l := range st.h.lambda {
		v := l / (1 + n*l)
		st.v[c*k+j], st.mean[c*k+j] = v, v*st.s[c*k+j]
	}
}

// honest returns log p(honest uploads | state), class means integrated out: with n_c the sum of the
// precisions a of the honest cells of a class and s_c = sum a x
//
//	e + sum_cj (λ_j s_cj²/(1 + n_c λ_j) - log(1 + n_c λ_j))/2
//
// where e holds the terms of each cell, k (log a - log 2π)/2 - a |x|²/2.
func (st *state) honest() float64 {
	k, out := st.h.k, st.e
	for c := range st.h.classes {
		for j, l := range st.h.lambda {
			g, s := 1+st.n[c]*l, st.s[c*k+j]
			out += -0.5*math.Log(g) + 0.5*l*s*s/g
		}
	}
	return out
}

// components writes a cell's log densities under each class that it may be of, a fresh class, and
// garbage. With d_j = x_j - m_j it is of class c
//
//	-(sum_j d_j^2/(v_j + 1/a) + sum_j log(v_j + 1/a) + k log 2π)/2
//
// It costs O(classes k) for each cell, but in a large round (wide.go).
func (st *state) components(l *cell, out []float64) {
	k := st.h.k
	if st.h.large {
		st.few(l, out)
		st.related(l, out)
		return
	}
	if l.iv != st.iv {
		st.iv = l.iv
		for c := range st.dets {
			logs, product := 0.0, 1.0
			for _, v := range st.v[c*k:][:k] {
				// One logarithm of many factors, taken before their product leaves the range.
				if product *= v + l.iv; product < 1e-200 || product > 1e200 {
					logs += math.Log(product)
					product = 1
				}
			}
			st.dets[c] = logDet{logs, math.Log(product)}
		}
	}
	x := l.x[:k]
	for c, det := range st.dets {
		mean, v := st.mean[c*k:][:k], st.v[c*k:][:k]
		q := 0.0
		for j, x := range x {
			d := x - mean[j]
			q += d * d / (v[j] + l.iv)
		}
		out[c] = -0.5 * (q + det.parts + det.rest + float64(k)*log2pi)
	}
	out[st.h.classes], out[st.h.classes+1] = l.fresh, l.broad
	st.related(l, out)
}

// kin are the shares of the variance between classes by which two classes that are alike may lie
// apart.
var kin = [3]float64{1, 1. / 2, 1. / 4}

// related lowers the densities of other classes for a cell that alone holds its class, by all
// claims and by those who count as honest: its class may be like another without being it.
// Colluders who share a class do not hold it alone, also in the state that has them all bad. With
// q_t(x) = N(x; m_j, v_j + 1/a + tλ) and f the density of a fresh class, that of class j becomes
//
//	f N(x; m_j, v_j + 1/a) / max(f, mean_t q_t(x))
//
// so that a mean of the very images of another class still tells, and one that is merely near does
// not.
func (st *state) related(l *cell, out []float64) {
	if !l.alone || st.n[l.class] > strayed {
		return
	}
	k := st.h.k
	for at, c := range l.near[:len(l.near)-2] {
		if c == l.class || out[at] <= l.fresh {
			continue
		}
		mean, v := st.mean[c*k:][:k], st.v[c*k:][:k]
		var near [len(kin)]float64
		for i, t := range kin {
			q, logs, product := 0.0, 0.0, 1.0
			for j, x := range l.x[:k] {
				d, s := x-mean[j], v[j]+l.iv+t*st.h.lambda[j]
				q += d * d / s
				if product *= s; product < 1e-200 || product > 1e200 {
					logs += math.Log(product)
					product = 1
				}
			}
			near[i] = -0.5*(q+logs+math.Log(product)+float64(k)*log2pi) -
				math.Log(float64(len(kin)))
		}
		out[at] += l.fresh - max(l.fresh, logSum(near[:]))
	}
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

// contamination returns the log weights of the mixture of bad cells, for each class those of
// model.among, and a lower bound on log p(bad uploads | honest ones), after the given number of
// rounds of coordinate ascent. With d_ij the log density of bad cell i under kind j, and w_j the
// log of the kind's part of mix, a round sets
//
//	p_ij ∝ exp(d_ij + weight_ij),   target_cj = concentration/(C - 1) + sum_(i of c) p_ij
//	weight_ij = w_j, and of another class log(target_cj / sum_j target_cj) more
//	bound = sum_ij p_ij (d_ij + w_j - log p_ij) + sum_c (ln B(target_c) - ln B(prior))
//
// with B the normaliser of a Dirichlet, and c the class that a cell names. Two rounds serve a
// posterior and one a sweep. It costs O(bad cells x classes x k).
func (st *state) contamination(z []bool, rounds int) (weights [][]float64, bound float64) {
	h := st.h
	C := h.classes
	weights = h.tables()
	among := math.Log(float64(C - 1))
	for c, own := range weights {
		for at, j := range h.among[c] {
			if own[at] = h.kind(c, j); j != c && j < C {
				own[at] -= among
			}
		}
	}
	var bad []*cell
	for m, honest := range z {
		if honest {
			continue
		}
		for i := range h.cells[m] {
			bad = append(bad, &h.cells[m][i])
		}
	}
	if len(bad) == 0 {
		return weights, 0
	}
	width := h.width()
	density := make([]float64, len(bad)*width)
	for i, b := range bad {
		st.components(b, density[i*width:][:width])
	}
	alpha := concentration / float64(C-1)
	target := h.tables() // parameters of the Dirichlet of T_c
	for range rounds {
		bound = h.expected(bad, density, weights, target)
		for c, own := range target {
			sum, _ := h.total(c, own, false)
			// of a class that no cell looks like
			none := h.kind(c, (c+1)%C) + math.Log(max(alpha, 1e-300)/sum)
			for at, j := range h.among[c] {
				if j != c && j < C {
					if weights[c][at] = none; own[at] != alpha {
						weights[c][at] = h.kind(c, j) + math.Log(max(own[at], 1e-300)/sum)
					}
				}
			}
		}
	}
	prior := h.logBeta(0, nil)
	for c, own := range target {
		bound += h.logBeta(c, own) - prior
	}
	return weights, bound
}

// tables returns a number for each class and each of its components in model.among.
func (h *model) tables() [][]float64 {
	out := make([][]float64, h.classes)
	for c := range out {
		out[c] = make([]float64, len(h.among[c]))
	}
	return out
}

// expected sets the parameters of each class's Dirichlet given the expected types of the bad cells,
// and returns the cells' part of the bound.
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
func (h *model) logBeta(c int, given []float64) float64 {
	sum, logs := h.total(c, given, true)
	g, _ := math.Lgamma(sum)
	return logs - g
}

// logSum returns log sum_i exp(x_i). It subtracts the largest first, so that no exponential
// overflows.
func logSum(x []float64) float64 {
	top := slices.Max(x)
	var sum float64
	for _, v := range x {
		if v -= top; v > -50 { // smaller terms are lost in rounding
			sum += math.Exp(v)
		}
	}
	return top + math.Log(sum)
}

// logPosterior returns power log p(uploads | z) + log p(z), in nats, up to a constant of the round.
// Copies count once in log p(z). It starts a state anew, so that it does not depend on which states
// were weighed before.
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

// Proposals is the number of states that a chain proposes.
const Proposals = 2

// Propose runs the annealed Gibbs chains from to to-1 of [Chains] over the clients and returns, for
// each chain, its last state and the nearby mode. The proposals of a chain do not depend on which
// others run. Workers may each run some of the chains of a round.
func (u *Uploads) Propose(ctx context.Context, lambda []float64, seed uint64, from, to,
	threads int) ([][]bool, error) {
	if from == to {
		return nil, nil
	}
	if from < 0 || to > u.Chains() || from > to {
		return nil, fmt.Errorf("honesty: chains %d to %d; there are %d", from, to, u.Chains())
	}
	h, err := newModel(*u, lambda)
	if err != nil {
		return nil, fmt.Errorf("honesty: %w", err)
	}
	out := make([][]bool, Proposals*(to-from))
	step := u.counter(sweeps * (to - from))
	return out, parallel.Each(ctx, threads, to-from, func(ctx context.Context, at int) error {
		r := rng.New(seed, "honesty", "chain", from+at)
		z := make([]bool, h.clients)
		for m := range z {
			z[m] = r.Float64() < 0.7 || from+at == 0
		}
		h.tie(z)
		for t := range sweeps {
			if err := ctx.Err(); err != nil {
				return err
			}
			h.sweep(z, power*min(1, 0.03*math.Pow(1/0.03, float64(t)/(0.6*sweeps))), r)
			step()
		}
		out[Proposals*at] = slices.Clone(z)
		// With many clients a draw contains some states that are individually improbable: the
		// nearby mode is proposed as well.
		for range greedy {
			h.sweep(z, power, nil)
		}
		out[Proposals*at+1] = z
		return nil
	})
}

// distinct returns the distinct proposed states in which fewer than half are bad, the ends of the
// chains before the modes; the state in which all are honest is always among them.
func (h *model) distinct(proposed [][]bool) ([][]bool, error) {
	var out [][]bool
	add := func(z []bool) {
		bad := 0
		for _, honest := range z {
			if !honest {
				bad++
			}
		}
		if bad <= h.most && !slices.ContainsFunc(out,
			func(o []bool) bool { return slices.Equal(o, z) }) {
			out = append(out, z)
		}
	}
	for kind := range Proposals {
		for i := kind; i < len(proposed); i += Proposals {
			if len(proposed[i]) != h.clients {
				return nil, fmt.Errorf("a chain proposed a state of %d clients, and there are %d",
					len(proposed[i]), h.clients)
			}
			add(proposed[i])
		}
	}
	add(slices.Repeat([]bool{true}, h.clients))
	return out, nil
}

// judge returns a cell's log densities as an honest client's and as a bad one's, given the weights
// of the latter's kinds; density is room for them.
func (st *state) judge(l *cell, weights [][]float64, density []float64) (good, bad float64) {
	st.components(l, density)
	good = density[l.own]
	for at, j := range l.at {
		density[at] += weights[l.class][j]
	}
	return good, logSum(density)
}

// sweep resamples each client given the others, with the likelihood to the power eta; if r is nil,
// it takes the likelier state. The log odds of honesty of client m are
//
//	eta sum_c (log N(x_mc; m_c, v_c + 1/a) - log sum_j exp(weight_j + log density_j)) + odds_m
//
// with moments of the other honest clients, and are within 50 nats. Moments of a class change with
// each client that changes its state, and the weights stay those at the begin of the sweep. It
// costs O(cells x classes x k).
func (h *model) sweep(z []bool, eta float64, r *rand.Rand) {
	st := h.start(z)
	weights, _ := st.contamination(z, 1)
	density := make([]float64, h.width())
	order := make([]int, h.clients)
	for m := range order {
		order[m] = m
	}
	if r != nil {
		r.Shuffle(len(order), func(i, j int) { order[i], order[j] = order[j], order[i] })
	}
	for _, m := range order {
		if h.copy[m] != m {
			continue
		}
		if z[m] {
			st.add(m, -1)
			for _, l := range h.cells[m] {
				st.moments(l.class)
			}
		}
		var good, bad float64
		for i := range h.cells[m] {
			own, other := st.judge(&h.cells[m][i], weights, density)
			good, bad = good+own, bad+other
		}
		x := min(max(eta*(good-bad)+h.odds[m], -50), 50)
		z[m] = x > 0
		if r != nil {
			z[m] = r.Float64() < 1/(1+math.Exp(-x))
		}
		if z[m] {
			st.add(m, 1)
			for _, l := range h.cells[m] {
				st.moments(l.class)
			}
		}
	}
	h.tie(z)
}
