package conformal

import (
	"maps"
	"math"
	"slices"

	"gonum.org/v1/gonum/dsp/fourier"
	"gonum.org/v1/gonum/mathext"
)

// False points. Of the clients that send calibration points up to f may send any points at all. For
// a threshold t, let k_m be the number of client m's n_m points of scores below t. The threshold is
// the largest score with
//
//	sum_m min(k_m, b_m) <= r
//
// where b_m bounds the influence of one client: b_m is the least number that a client whose points
// miss as often as stated exceeds with a probability of at most [aboveBound]. Points that are all
// too easy take nothing from the sum, so that r is that of the honest clients alone, of whom there
// are all but f, in the worst case those of the fewest points:
//
//	honest clients that differ in any way, none of them above its bound:
//		level heldByClients(N, N-r), N their points
//	honest clients drawn alike:
//		level 1 - int_0^1 P(sum_m min(Bin(n_m, u), b_m) <= r) du
//
// The level of r is the lower of the two. Both hold for any false points, as these add to the sum
// and never take from it. Points that are all too hard add b_m to it, which makes sets larger; a
// client that contradicts the others is left out ([Points.Without]), and adds nothing.

const (
	// aboveBound is the probability with which an honest client may exceed its bound. The less it
	// is, the larger bounds are, and the larger sets by false points that are too hard.
	aboveBound = 0.1
	// A client is left out where a client that misses hardness times as often as stated has as many
	// points below the threshold with a probability of at most implausible.
	hardness    = 2
	implausible = 0.05
)

// atLeast returns P(Bin(n, p) >= k).
func atLeast(n, k int, p float64) float64 {
	switch {
	case k <= 0:
		return 1
	case k > n:
		return 0
	}
	return mathext.RegIncBeta(float64(k), float64(n-k+1), min(p, 1))
}

// bound returns b of a client of n points at a level, from the one of a higher level on; 1 for
// none.
func bound(n, b int, level float64) int {
	for b < n && atLeast(n, b+1, 1-level) > aboveBound {
		b++
	}
	return b
}

// contradicts reports whether k of a client's n points below the threshold of a level contradict
// the other clients.
func contradicts(k, n int, level float64) bool {
	return k > bound(n, 1, level) && atLeast(n, k, hardness*(1-level)) <= implausible
}

// MaxPassing returns the largest number of a client's n points that may lie below the threshold of
// a level without that it is left out.
func MaxPassing(n int, level float64) int {
	k := bound(n, 1, level)
	for k < n && !contradicts(k+1, n, level) {
		k++
	}
	return k
}

// fewest returns the numbers of points of the clients that are honest at least, those of the fewest
// points, in ascending order.
func fewest(points []int, bad int) []int {
	out := slices.Sorted(slices.Values(points))
	return out[:max(len(out)-bad, 0)]
}

func total(n []int) (sum int) {
	for _, v := range n {
		sum += v
	}
	return sum
}

// nodes is the number of values of u at which the distribution of the sum is computed, midpoints of
// as many equal parts.
const nodes = 100

// heldAlike returns, for every r, the level for honest clients of n points each that are drawn
// alike, with bounds b, where the level is about a given one:
//
//	1 - int_0^1 P(sum_m min(Bin(n_m, u), b_m) <= r) du
//
// The distribution of the sum is the product of the clients' Fourier transforms. Beyond top the
// integrand counts as there, where it is larger than further on. Clients of equal n and b, which
// stand side by side, share a transform. The cost is O(nodes (G L log L + M L)) for M
// clients of G kinds, where L is the sum of all b. The result has one level for each r of 0 to L.
func heldAlike(n, b []int, level float64) []float64 {
	size := 1
	for _, v := range b {
		size += v
	}
	length := 2
	for length < size {
		length *= 2
	}
	held, f := make([]float64, size), fourier.NewFFT(length)
	// beyond, the sum is hardly ever as low as r
	top := min(1, 4*(1-level)+8/math.Sqrt(float64(total(n))))
	for r := range held {
		held[r] = 1
	}
	for i := range nodes + 1 {
		u, width := (float64(i)+0.5)/nodes*top, top/nodes
		if i == nodes { // what is beyond is bounded
			u, width = top, 1-top
		}
		product := make([]complex128, length/2+1)
		for j := range product {
			product[j] = 1
		}
		for from := 0; from < len(n); {
			to := from + 1
			for to < len(n) && n[to] == n[from] && b[to] == b[from] {
				to++
			}
			for j, c := range f.Coefficients(nil, bounded(n[from], b[from], u, length)) {
				for range to - from {
					product[j] *= c
				}
			}
			from = to
		}
		sum := 0.0
		for r, p := range f.Sequence(nil, product)[:size] {
			sum += max(p, 0) / float64(length)
			held[r] -= min(sum, 1) * width
		}
	}
	return held
}

// bounded returns the probabilities of min(Bin(n, u), b), of a length of more than b: that of k < b
// is the binomial one, by logarithms of factorials, and that of b is the rest.
func bounded(n, b int, u float64, length int) []float64 {
	out := make([]float64, length)
	rest := 1.0
	for k := range b {
		lg := func(v int) float64 { g, _ := math.Lgamma(float64(v + 1)); return g }
		out[k] = math.Exp(lg(n) - lg(k) - lg(n-k) + float64(k)*math.Log(u) +
			float64(n-k)*math.Log1p(-u))
		rest -= out[k]
	}
	out[b] = max(rest, 0)
	return out
}

// split returns scores by client, ascending, of those that have any.
func split(scores []float32, client []int) [][]float32 {
	out := make([][]float32, slices.Max(client)+1)
	for i, m := range client {
		out[m] = append(out[m], scores[i])
	}
	out = slices.DeleteFunc(out, func(own []float32) bool { return len(own) == 0 })
	for _, own := range out {
		slices.Sort(own)
	}
	return out
}

// below returns the number of scores, ascending, that are below a threshold.
func below(own []float32, threshold float32) int {
	n, _ := slices.BinarySearch(own, threshold)
	return n
}

// surviving returns the ranks of thresholds that survive false points of some of the clients, by
// ascending levels from the last below a level on.
func surviving(scores []float32, client []int, bad int, from float64) []rank {
	clients := split(scores, client)
	points := make([]int, len(clients))
	for m, own := range clients {
		points[m] = len(own)
	}
	honest := fewest(points, bad)
	n := total(honest)
	all := slices.Sorted(slices.Values(scores))
	// of: by number of points
	b, least, of := make([]int, len(clients)), make([]int, len(honest)), map[int]int{}
	var alike []float64
	var out []rank
	for r := range n {
		level := heldByClients(n, n-r)
		if len(out) > 0 && out[len(out)-1].level < from {
			break
		}
		changed := false
		for _, k := range slices.Compact(slices.Sorted(slices.Values(points))) {
			v := bound(k, max(of[k], 1), level)
			changed, of[k] = changed || of[k] != v, v
		}
		if changed {
			for m, k := range points {
				b[m] = of[k]
			}
			for i, k := range honest {
				least[i] = of[k]
			}
			alike = heldAlike(honest, least, level)
		}
		if r < len(alike) {
			level = min(level, alike[r])
		}
		// the first score of a larger sum
		next, _ := slices.BinarySearchFunc(all, r, func(t float32, r int) int {
			sum := 0
			for m, own := range clients {
				sum += min(below(own, t), b[m])
			}
			if sum <= r {
				return -1
			}
			return 1
		})
		// Below the least score there is none. A larger r has a lower level. Bounds that grow with
		// it may lower the threshold: one that holds at a higher level holds at a lower one as
		// well.
		to := rank{level, all[next-1]}
		if last := len(out) - 1; last >= 0 {
			to.level, to.score = min(to.level, out[last].level), max(to.score, out[last].score)
		}
		out = append(out, to)
	}
	slices.Reverse(out)
	return out
}

// Without returns the points without those of clients that contradict the others at a level, by a
// score, and the design for the rest, of which as many fewer may be false. left are the numbers of
// the clients that are left out, the most contradicted first.
func (x *Points) Without(d Design, level float64,
	score Score) (kept *Points, rest Design, left []int) {
	if d.False == nil {
		return x, d, nil
	}
	d.False = slices.Clone(d.False)
	for g, bad := range d.False {
		clients := map[int]bool{}
		for i, m := range d.Client {
			if d.groupOf(i) == g {
				clients[m] = true
			}
		}
		for range (len(clients) - 1) / 2 { // fewer than half
			m := -1
			if bad > 0 {
				m = x.contradicted(d, g, level, score)
			}
			if m < 0 {
				break
			}
			left = append(left, m)
			d.False[g] = max(d.False[g]-1, 0)
			var rest []int
			for i, of := range d.Client {
				if of != m {
					rest = append(rest, i)
				}
			}
			x, d = x.of(d, rest)
		}
	}
	return x, d, left
}

// contradicted returns the client of a group that contradicts the others most, by its share of
// points below the threshold; -1 for none.
func (x *Points) contradicted(d Design, group int, level float64, score Score) int {
	own := map[int][]float32{}
	var scores []float32
	var client []int
	for i, s := range x.True[score] {
		if m := d.Client[i]; d.groupOf(i) == group {
			own[m], scores, client = append(own[m], s), append(scores, s), append(client, m)
		}
	}
	if len(scores) == 0 {
		return -1
	}
	ranks := surviving(scores, client, d.False[group], level)
	at := slices.IndexFunc(ranks, func(r rank) bool { return r.level >= level })
	if at < 0 {
		return -1
	}
	worst, most := -1, 0.0
	for _, m := range slices.Sorted(maps.Keys(own)) {
		slices.Sort(own[m])
		k, n := below(own[m], ranks[at].score), len(own[m])
		if share := float64(k) / float64(n); share > most && contradicts(k, n, level) {
			worst, most = m, share
		}
	}
	return worst
}

// of returns the points at places, in their order, with their design.
func (x *Points) of(d Design, places []int) (*Points, Design) {
	out := &Points{True: map[Score][]float32{}}
	rest := d
	rest.Client, rest.Group = nil, nil
	for _, i := range places {
		out.Class, out.Top, out.Right = append(out.Class, x.Class[i]), append(out.Top, x.Top[i]),
			append(out.Right, x.Right[i])
		for s, v := range x.True {
			out.True[s] = append(out.True[s], v[i])
		}
		if d.Client != nil {
			rest.Client = append(rest.Client, d.Client[i])
		}
		if d.Group != nil {
			rest.Group = append(rest.Group, d.Group[i])
		}
	}
	return out, rest
}
