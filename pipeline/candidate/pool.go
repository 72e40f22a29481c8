package candidate

import (
	"math"
	"slices"

	"fmp/pipeline/internal/memo"
	"fmp/pipeline/internal/moment"
)

// maxFolds bounds the groups of clients that are left out in turn: of more clients, several are
// left out together. Time grows with the groups, the error of a temperature falls with them
// (jackknife).
const maxFolds = 10

// pool is the sum of some clients' statistics. Client m has n_mc images of class c with mean m_mc,
// and the scatter S_m of dof_m degrees of freedom:
//
//	n_c = sum_m n_mc,   m_c = sum_m n_mc m_mc / n_c
//	S   = sum_m S_m + sum_mc n_mc (m_mc - m_c)(m_mc - m_c)'
//	dof = sum_m dof_m + cells - held classes, 1 at least
//
// A cell is one client's mean of one class.
type pool struct {
	k, c    int
	n       []float64 // n_c, [C]
	mean    []float64 // m_c, [C, K]; zeros of a class that nobody holds
	scatter []float64 // S, [K, K], the upper triangle
	dof     float64
	m0      []float64 // the mean of all images
	clients []int
}

// held reports whether any client of the pool has images of a class.
func (p *pool) held(class int) bool { return p.n[class] > 0 }

// unheld returns the number of classes that nobody holds beside those that somebody does: the share
// of their images among new ones, which are of all classes alike.
func (p *pool) unheld() float64 {
	held := 0.0
	for _, n := range p.n {
		if n > 0 {
			held++
		}
	}
	return (float64(p.c) - held) / held
}

// finish sets the grand mean.
// Degrees of freedom become 1 at least. It is called once counts and class means are complete.
func (p *pool) finish() {
	p.m0 = make([]float64, p.k)
	var all float64
	for y, n := range p.n {
		all += n
		axpy(n, p.mean[y*p.k:(y+1)*p.k], p.m0)
	}
	scale(1/all, p.m0)
	p.dof = max(p.dof, 1)
}

// part is the sum of one group's statistics beside the means of all clients: away is sum n (mean -
// pooled mean), [C, K], and the scatter about the pooled means is rows'rows of few rows, [rank, K],
// or the upper triangle of a matrix, [K, K].
type part struct {
	n, away, rows, scatter []float64
	dof                    float64 // with one for each cell
}

// lowRank reports whether n rows of k numbers are few enough to be taken away from a pool's basis,
// in place of a basis without them.
// A downdate costs O(n^2 k + n k^2) beside O(k^3).
func lowRank(n, k int) bool { return 3*n <= k }

// sums are a round's statistics by the groups that are left out in turn.
type sums struct {
	all    *pool
	folds  [][]int // clients
	parts  []part
	images float64 // that clients are asked about

	bases memo.Memo // of all clients, by target
}

// in returns the basis of all clients for a target, computed once.
// It is safe for concurrent use.
func (s *sums) in(t *target) *basis {
	b, _ := memo.Once(&s.bases, t.name, func() (*basis, error) { return s.all.in(*t), nil })
	return b
}

// foldsOf deals m clients to at most maxFolds groups.
// Client i is in group i mod the number of groups, so that groups differ by one client at most.
func foldsOf(m int) [][]int {
	out := make([][]int, min(m, maxFolds))
	for i := range m {
		out[i%len(out)] = append(out[i%len(out)], i)
	}
	return out
}

// others returns the clients that are in all groups but one.
// They are in ascending order.
func (s *sums) others(g int) (out []int) {
	for h, fold := range s.folds {
		if h != g {
			out = append(out, fold...)
		}
	}
	slices.Sort(out)
	return out
}

// sum adds up a round's statistics.
func (r *Round) sum(threads int) (*sums, error) { return r.sumOf(foldsOf(len(r.Clients)), threads) }

// sumOf adds up a round's statistics by groups of its clients.
// Class means of all clients come first, as scatters of groups are about them. Parts are added in
// the order of groups, so that sums have the same bits for any number of threads.
func (r *Round) sumOf(folds [][]int, threads int) (*sums, error) {
	k := r.K
	all := &pool{k: k, c: r.C, n: make([]float64, r.C), mean: make([]float64, r.C*k),
		scatter: make([]float64, k*k)}
	s := &sums{all: all, folds: folds}
	for i := range r.Clients {
		all.clients = append(all.clients, i)
		for _, v := range r.Clients[i].cells() {
			all.n[v.class] += v.n
			m := all.mean[v.class*k:][:k]
			for j, x := range v.mean { // a running mean
				m[j] += (float64(x) - m[j]) * v.n / all.n[v.class]
			}
		}
	}
	s.parts = make([]part, len(s.folds))
	err := each(len(s.folds), threads, func(g int) error {
		s.parts[g] = r.part(s.folds[g], all)
		return nil
	})
	for g := range s.parts {
		s.parts[g].addTo(all.scatter)
		all.dof += s.parts[g].dof
	}
	for _, n := range all.n {
		if n > 0 {
			all.dof--
		}
	}
	s.images = r.askedImages(all.clients)
	all.finish()
	return s, err
}

// part adds up the statistics of some clients.
// Its rows are sqrt(n_mc) (m_mc - m_c) for each cell, and those of the clients' factors. They stay
// rows where no client has a whole scatter and they are few ([lowRank]).
func (r *Round) part(clients []int, all *pool) part {
	k := r.K
	p := part{n: make([]float64, r.C), away: make([]float64, r.C*k)}
	f := moment.Factor{K: k}
	rank, whole := 0, false
	for _, i := range clients {
		rank += r.Clients[i].Means.N
		if w := r.Clients[i].Within; w != nil && w.Dof > 0 {
			rank, whole = rank+w.Rank, whole || w.Rank == 0
		}
	}
	if whole || !lowRank(rank, k) {
		p.scatter = make([]float64, k*k)
		f.To, rank = p.scatter, min(rank, moment.FactorRows)
	}
	f.Rows = make([]float64, 0, rank*k)
	for _, i := range clients {
		u := &r.Clients[i]
		for _, v := range u.cells() {
			p.n[v.class] += v.n
			p.dof++
			row := f.Row()
			for j, x := range v.mean {
				row[j] = float64(x) - all.mean[v.class*k+j]
			}
			axpy(v.n, row, p.away[v.class*k:][:k])
			scale(math.Sqrt(v.n), row)
		}
		p.dof += u.dof()
		if u.dof() > 0 {
			f.AddScatter(u.Within, 1)
		}
	}
	if p.scatter == nil {
		p.rows = f.Rows
		return p
	}
	f.Flush()
	return p
}

// addTo adds the scatter to a matrix, [K, K].
// Only its upper triangle counts. The part is not changed.
func (p *part) addTo(sum []float64) {
	if p.scatter != nil {
		axpy(1, p.scatter, sum)
		return
	}
	k := len(p.away) / len(p.n)
	f := moment.Factor{K: k, To: sum, Rows: slices.Clone(p.rows)}
	f.Flush()
}

// rest is the pool of all groups but one, of scatter S - R'R with the lost rows R, [rank, K]. Where
// S_g is the group's part and n'_c, m'_c are the rest's, these rows are those of
//
//	R'R = S_g + sum_c n'_c (m'_c - m_c)(m'_c - m_c)',   m'_c - m_c = -away_c / n'_c
//
// where away_c is the group's sum of n (mean - m_c), and the sum is over classes that both hold.
type rest struct {
	pool
	lost []float64 // nil where they are many
	of   *sums
	but  int
}

// without returns the pool of all groups but one, without its scatter.
// It costs O(C K), and O(rank K) for the lost rows. A class that only the group holds gets zeros.
func (s *sums) without(g int) *rest {
	k, own := s.all.k, &s.parts[g]
	p := &rest{pool: pool{k: k, c: s.all.c, n: make([]float64, s.all.c),
		mean: slices.Clone(s.all.mean), clients: s.others(g)}, of: s, but: g}
	for i := range s.parts {
		if i != g {
			p.dof += s.parts[i].dof
		}
	}
	f := moment.Factor{K: k, Rows: slices.Clone(own.rows)}
	for y := range p.n {
		p.n[y] = s.all.n[y] - own.n[y]
		m := p.mean[y*k:][:k]
		if p.n[y] <= 0 {
			clear(m)
			continue
		}
		p.dof--
		if own.n[y] == 0 {
			continue
		}
		row := make([]float64, k)
		axpy(-1/p.n[y], own.away[y*k:][:k], row)
		axpy(1, row, m)
		if own.rows != nil {
			scale(math.Sqrt(p.n[y]), row)
			copy(f.Row(), row)
		}
	}
	if own.rows != nil && lowRank(len(f.Rows)/k, k) {
		p.lost = f.Rows
	}
	p.finish()
	return p
}

// whole returns the pool with its scatter.
// As parts are about the means of all clients, n'_c (m'_c - m_c)(m'_c - m_c)' is subtracted for the
// classes whose mean has moved.
func (p *rest) whole() *pool {
	k := p.k
	out := p.pool
	out.scatter = make([]float64, k*k)
	for i := range p.of.parts {
		if i != p.but {
			p.of.parts[i].addTo(out.scatter)
		}
	}
	f := moment.Factor{K: k, To: out.scatter, Sign: -1}
	for y, n := range p.n {
		if n > 0 && p.of.parts[p.but].n[y] > 0 {
			row := f.Row()
			axpy(1, p.mean[y*k:][:k], row)
			axpy(-1, p.of.all.mean[y*k:][:k], row)
			scale(math.Sqrt(n), row)
		}
	}
	f.Flush()
	return &out
}

// mirror copies the upper triangle of a matrix, [k, k], to the lower.
func mirror(a []float64, k int) {
	for i := range k {
		for j := range i {
			a[i*k+j] = a[j*k+i]
		}
	}
}
