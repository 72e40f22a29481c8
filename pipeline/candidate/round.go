package candidate

import (
	"cmp"
	"errors"
	"fmt"
	"math"
	"slices"

	"fmp/pipeline/moments"
	"fmp/pipeline/point"
)

// Client is one upload: class means whose weights are the counts of their images; the scatter
// within its classes, nil where it is not sent; and the curve that it measured, nil where it could
// not.
type Client struct {
	Means  *point.Set
	Within *moments.Within
	Curve  *moments.ClientCurve
}

// Corpus is a statistic of a server's own images: their covariance within classes W, [K, K], and
// its degrees of freedom; the means of its classes, [classes, K], nil where they are not to be a
// prior of the round's; and where its classes have the round's names, the images themselves, rows
// [N, K] with N labels of the round's classes. Rows may be empty; the first corpus that has some is
// the round's.
type Corpus struct {
	Within []float64
	Dof    float64 // images less classes; 0: the covariance is exact
	Means  []float32
	Rows   []float32
	Labels []int
}

// Named reports whether the corpus's classes are the round's.
func (c *Corpus) Named() bool { return len(c.Labels) > 0 }

// maxTrace bounds the trace of a corpus's covariance: its square and its inverse are numbers of
// float64.
const maxTrace = 1e100

// Round is the input of a posterior. Features have K numbers, and there are C classes.
type Round struct {
	K, C    int
	Clients []Client
	Corpora []Corpus
	Points  Points
	// Most is the number of its images that a client is asked about at most: beyond it a bad one
	// would tell the temperature for all. 0: there is no bound. With it NLL of rounds of two false
	// large clients is .479 in place of .558 (docs/notes/moments.md).
	Most float64

	halfOf int // the clients of the round whose half this is; 0: it is whole
}

// Points are the clients' calibration points: rows, [N, K], of single images with N labels, which
// are in no statistic; fewer than twenty are not asked. Clients are their numbers: with them the
// points count as images once they have been asked.
type Points struct {
	Rows    []float32
	Labels  []int
	Clients []int
}

// cell is one client's class mean.
type cell struct {
	class int
	n     float64
	share float64 // of images that the class mean stands for: n, but where some are sampled
	mean  []float32
}

// cells returns the class means of a client that have images.
// Means share memory with the client's. The labels must be of one class each, as check has found.
func (c *Client) cells() []cell {
	of := c.Means.Indices()
	var out []cell
	for i, w := range c.Means.W {
		if w > 0 {
			out = append(out, cell{int(of[i]), float64(w), float64(w), c.Means.Features(i)})
		}
	}
	return out
}

// ordered returns the round with the class means of each client in the order of their classes:
// draws about them follow it, and an upload may have any.
// The round given is not changed: clients out of order are copies. Holders of a curve, one a class
// mean, move with their means.
func (r *Round) ordered() *Round {
	out := *r
	out.Clients = slices.Clone(r.Clients)
	for m := range out.Clients {
		c := &out.Clients[m]
		of := c.Means.Indices()
		if slices.IsSorted(of) {
			continue
		}
		by := make([]int, len(of))
		for i := range by {
			by[i] = i
		}
		slices.SortFunc(by, func(a, b int) int { return cmp.Compare(of[a], of[b]) })
		means := &point.Set{N: c.Means.N, Dx: c.Means.Dx, C: c.Means.C}
		var holders []float64
		for _, i := range by {
			means.Z = append(means.Z, c.Means.Features(i)...)
			means.W, means.Y = append(means.W, c.Means.W[i]), append(means.Y, of[i])
			if c.Curve != nil && c.Curve.Holders != nil {
				holders = append(holders, c.Curve.Holders[i])
			}
		}
		if c.Means = means; holders != nil {
			curve := *c.Curve
			curve.Holders, c.Curve = holders, &curve
		}
	}
	return &out
}

// dof returns the degrees of freedom of the scatter; 0 where none is sent.
func (c *Client) dof() float64 {
	if c.Within == nil {
		return 0
	}
	return float64(c.Within.Dof)
}

// Check returns an error unless there are clients, sizes agree, numbers are finite, and no client
// has a class twice. Its cost is one pass over all numbers.
// It names the first client, corpus or point in error.
func (r *Round) Check() error {
	if r.K < 1 || r.C < 2 || len(r.Clients) == 0 {
		return fmt.Errorf(
			"candidate: %d features, %d classes and %d clients; want one, two and one at least",
			r.K, r.C, len(r.Clients))
	}
	for i := range r.Clients {
		if err := r.Clients[i].check(r.K, r.C); err != nil {
			return fmt.Errorf("candidate: client %d: %w", i, err)
		}
	}
	for i := range r.Corpora {
		if err := r.Corpora[i].check(r.K, r.C); err != nil {
			return fmt.Errorf("candidate: corpus %d: %w", i, err)
		}
	}
	if len(r.Points.Rows) != len(r.Points.Labels)*r.K {
		return fmt.Errorf("candidate: %d numbers for %d calibration points of %d",
			len(r.Points.Rows), len(r.Points.Labels), r.K)
	}
	if of := r.Points.Clients; of != nil && len(of) != len(r.Points.Labels) {
		return fmt.Errorf("candidate: %d clients of %d calibration points", len(of),
			len(r.Points.Labels))
	}
	for i, y := range r.Points.Labels {
		if of := r.Points.Clients; of != nil && (of[i] < 0 || of[i] >= len(r.Clients)) {
			return fmt.Errorf("candidate: client %d of calibration point %d; there are %d", of[i],
				i, len(r.Clients))
		}
		if y < 0 || y >= r.C {
			return fmt.Errorf("candidate: class %d of calibration point %d; allowed are 0 to %d",
				y, i, r.C-1)
		}
	}
	return finite(r.Points.Rows)
}

// check returns an error unless sizes agree, numbers are finite and classes differ. Counts are 0,
// or 1 and more.
func (c *Client) check(k, classes int) error {
	m := c.Means
	if m == nil || m.N < 1 || m.Dx != k || m.C != classes || len(m.W) != m.N {
		return fmt.Errorf("no class means of %d numbers and %d classes", k, classes)
	}
	of := m.Indices()
	if of == nil {
		return fmt.Errorf("a label of more than one class; want class means")
	}
	seen := map[int32]bool{}
	for i, y := range of {
		w := float64(m.W[i])
		if y < 0 || int(y) >= classes || seen[y] || !(w >= 0) || w > 0 && w < 1 ||
			math.IsInf(w, 0) {
			return fmt.Errorf("class mean %d is of class %d with weight %v; want each class once "+
				"at most, 0 to %d, with a count of images", i, y, w, classes-1)
		}
		seen[y] = true
		if err := finite(m.Features(i)); err != nil {
			return fmt.Errorf("class mean %d: %w", i, err)
		}
	}
	if !(m.Mass() > 0) {
		return fmt.Errorf("no images")
	}
	if c.Within == nil {
		return nil
	}
	if c.Within.K != k {
		return fmt.Errorf("a scatter of rows of %d numbers; class means have %d", c.Within.K, k)
	}
	return c.Within.Check(classes)
}

// check returns an error unless sizes agree and numbers are finite. A trace out of bounds would
// overflow in squares or inverses.
func (c *Corpus) check(k, classes int) error {
	if len(c.Within) != k*k || len(c.Rows) != len(c.Labels)*k {
		return fmt.Errorf("%d numbers of covariance, and %d for %d labels; want %d, and %d each",
			len(c.Within), len(c.Rows), len(c.Labels), k*k, k)
	}
	if !(c.Dof >= 0) || math.IsInf(c.Dof, 0) {
		return fmt.Errorf("a covariance of %v degrees of freedom; want a number of 0 at least",
			c.Dof)
	}
	size := trace(c.Within, k)
	if err := finite(c.Within); err != nil || !(size > 1/maxTrace && size < maxTrace) {
		return fmt.Errorf("the covariance has trace %v; want finite numbers and a trace of %g "+
			"to %g", size, 1/maxTrace, maxTrace)
	}
	for i, y := range c.Labels {
		if y < 0 || y >= classes {
			return fmt.Errorf("label %d of row %d; allowed are 0 to %d", y, i, classes-1)
		}
	}
	if len(c.Means)%k != 0 {
		return fmt.Errorf("%d numbers of class means of %d numbers each", len(c.Means), k)
	}
	return errors.Join(finite(c.Rows), finite(c.Means))
}

// finite returns an error for the first number that is not.
// f - f is 0 for finite f, and no number for infinities and for NaN.
func finite[T float32 | float64](x []T) error {
	for _, v := range x {
		if f := float64(v); f-f != 0 {
			return fmt.Errorf("a number is %v; want finite ones", v)
		}
	}
	return nil
}
