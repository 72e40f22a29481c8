package task

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"

	"gonum.org/v1/gonum/stat/distuv"
)

// Partition draws the rows of m clients of n points each. Client by client, class proportions are
// uniform (alpha 0: the homogeneous partition) or drawn from a symmetric Dirichlet(alpha), the
// usual model of label skew (Hsu, Qi and Brown 2019, arXiv 1909.06335); every point's class is then
// drawn from the proportions and its row from that class without replacement, so that no row serves
// twice.
//
// Once a class is exhausted, the point's class is drawn again from the client's own proportions
// over the classes that still have rows (uniformly, if these have no mass at all). A bank of fewer
// than m·n rows is an error.
func (b *Bank) Partition(r *rand.Rand, m, n int, alpha float64) ([][]int, error) {
	clients, _, err := b.draw(r, m, n, alpha, 0)
	return clients, err
}

// PartitionBeside is Partition with further rows of each client, drawn from its own proportions
// once all clients have theirs: the clients are those of Partition. The stream has given all rows
// of clients by then, so that further ones do not move these.
func (b *Bank) PartitionBeside(r *rand.Rand, m, n, beside int,
	alpha float64) (clients, further [][]int, err error) {
	d, err := b.drawer(r, m, n, alpha, m*beside)
	if err != nil {
		return nil, nil, err
	}
	clients = d.clients(m, n, alpha)
	for k := range clients {
		further = append(further, d.rows(d.shares[k], beside))
	}
	return clients, further, nil
}

// drawer draws rows without replacement.
type drawer struct {
	r      *rand.Rand
	left   [][]int     // rows of each class not yet taken
	shares [][]float64 // class proportions of each client
}

// drawer checks that a bank has enough rows for m clients of n points each, and extra ones.
// The division by n keeps the product of hostile numbers from overflowing. The bank's own lists of
// rows are copied, as rows are taken from them.
func (b *Bank) drawer(r *rand.Rand, m, n int, alpha float64, extra int) (*drawer, error) {
	if m < 1 || n < 1 || extra < 0 || alpha < 0 || math.IsNaN(alpha) || math.IsInf(alpha, 0) {
		return nil, fmt.Errorf("partition: %d clients of %d points, alpha %g, %d held out; "+
			"allowed are 1 and more clients and points, and no negative number", m, n, alpha, extra)
	}
	have := 0
	for _, p := range b.pools {
		have += len(p)
	}
	if m > (have-extra)/n {
		held := ""
		if extra > 0 {
			held = "the number held out (tuning.points of a tuned run), "
		}
		return nil, fmt.Errorf("partition: %d clients of %d points and %d held out need %d "+
			"images, and this part of the data has %d: lower %sfederation.clients or "+
			"federation.points, or enlarge the part in dataset.splits",
			m, n, extra, m*n+extra, have, held)
	}
	d := &drawer{r: r, left: make([][]int, b.C)}
	for c, p := range b.pools {
		d.left[c] = append([]int(nil), p...)
	}
	return d, nil
}

// clients draws the rows of m clients.
// A client's proportions and rows are drawn before the next one's, so that the first clients of a
// stream do not depend on m.
func (d *drawer) clients(m, n int, alpha float64) [][]int {
	out := make([][]int, m)
	for k := range out {
		p := make([]float64, len(d.left))
		proportions(d.r, alpha, p)
		d.shares = append(d.shares, p)
		out[k] = d.rows(p, n)
	}
	return out
}

// rows draws n rows of class proportions p. A row that is drawn is replaced by the last one of its
// class, in O(1).
func (d *drawer) rows(p []float64, n int) []int {
	out := make([]int, n)
	q := make([]float64, len(p))
	for i := range out {
		// A class that has run dry deals its share to the others. Where these have none, classes
		// with rows left count alike.
		c := categorical(d.r, p)
		if len(d.left[c]) == 0 {
			var mass float64
			for j := range q {
				if q[j] = 0; len(d.left[j]) > 0 {
					q[j] = p[j]
				}
				mass += q[j]
			}
			if mass < 1e-12 {
				for j := range q {
					if len(d.left[j]) > 0 {
						q[j] = 1
					}
				}
			}
			c = categorical(d.r, q)
		}
		// A row of the class, each as likely as another.
		i0 := d.r.IntN(len(d.left[c]))
		last := len(d.left[c]) - 1
		out[i] = d.left[c][i0]
		d.left[c][i0] = d.left[c][last]
		d.left[c] = d.left[c][:last]
	}
	return out
}

// draw is Partition with, in addition, extra rows that no client holds, uniform over the remaining
// ones.
func (b *Bank) draw(r *rand.Rand, m, n int, alpha float64,
	extra int) (clients [][]int, rest []int, err error) {
	d, err := b.drawer(r, m, n, alpha, extra)
	if err != nil {
		return nil, nil, err
	}
	clients = d.clients(m, n, alpha)
	if extra > 0 {
		// The first places of a random permutation (Fisher and Yates).
		all := slices.Concat(d.left...)
		for i := range extra {
			j := i + r.IntN(len(all)-i)
			all[i], all[j] = all[j], all[i]
		}
		rest = all[:extra]
	}
	return clients, rest, nil
}

// proportions fills p with the uniform distribution (alpha 0) or with a draw from Dirichlet(alpha).
// Gamma variates of small shape underflow, so they are kept as logarithms: G(a) = G(a+1)·U^(1/a).
// U is taken from (0, 1], whose logarithm is finite.
func proportions(r *rand.Rand, alpha float64, p []float64) {
	if alpha == 0 {
		for i := range p {
			p[i] = 1 / float64(len(p))
		}
		return
	}
	g := distuv.Gamma{Alpha: alpha + 1, Beta: 1, Src: r}
	top := math.Inf(-1)
	for i := range p {
		p[i] = math.Log(g.Rand()) + math.Log(1-r.Float64())/alpha
		top = math.Max(top, p[i])
	}
	var sum float64
	for i := range p {
		p[i] = math.Exp(p[i] - top)
		sum += p[i]
	}
	for i := range p {
		p[i] /= sum
	}
}

// categorical draws an index with probability proportional to p, which has a positive entry.
func categorical(r *rand.Rand, p []float64) int {
	var sum float64
	for _, v := range p {
		sum += v
	}
	u := r.Float64() * sum
	last := 0
	for i, v := range p {
		if v == 0 {
			continue
		}
		if u < v {
			return i
		}
		u -= v
		last = i
	}
	return last // rounding left u at the upper end
}
