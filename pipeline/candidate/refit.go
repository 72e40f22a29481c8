package candidate

import (
	"context"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"

	"gonum.org/v1/gonum/floats"

	"fmp/models/rng"
	"fmp/onnx/dense"
	"fmp/pipeline/erm"
)

const (
	// tie is the weight, beside images, that ties a regression to where it starts: on half the
	// squared distance, in coordinates where W is I. A larger one leaves the head nearer there.
	tie = 60
	// refitDraws is the number of draws of W about a class mean, half of them the others'
	// opposites. maxRefitDraws bounds those of one of more images: a client may claim any number.
	refitDraws, maxRefitDraws = 8, 256
	// imagesPerDraw is how many images of a class a row of a named corpus's regression stands for,
	// and maxNamedDraws bounds the rows of a class: beyond 1,280 images a row stands for more.
	imagesPerDraw, maxNamedDraws = 5, 256
	// fitProducts bounds the products of a regression with its curvature. A fit that wants more
	// ends there, nearer to the minimum than the discriminant. Those to images take 4 to 90.
	fitProducts = 500
	// minCount stands for no image in logarithms.
	minCount = 1e-9
)

// images are rows that stand for images, in coordinates in which the covariance within classes is
// I.
type images struct {
	rows  []float64 // [N, K]
	mass  []float64
	label []int
}

func (m *images) add(row []float64, mass float64, label int) {
	m.rows, m.mass, m.label = append(m.rows, row...), append(m.mass, mass), append(m.label, label)
}

// white returns the rows of the basis in coordinates in which the covariance within classes is I.
func (h *discriminant) white(rows []float64) []float64 {
	root := h.roots()
	for i := range rows {
		rows[i] *= root[i%h.k]
	}
	return rows
}

// maxNumbers bounds the numbers of the rows that stand for images, 64 MiB: a regression holds some
// ten copies. Of more class means, those of all clients together stand, with as many rows as fit.
const maxNumbers = 1 << 23

// drawing is how class means are turned into rows that stand for their images.
type drawing struct {
	together []cell  // the class means of all clients as one; nil: each client's own
	least    int     // rows of a class mean at least
	share    float64 // rows for each of its further images
}

// furtherImages returns the images of a class mean of n beyond refitDraws, of maxRefitDraws at
// most.
func furtherImages(n float64) float64 { return max(min(n, maxRefitDraws)-refitDraws, 0) }

// rows returns the number of rows of a class mean of n images: draws, each beside its opposite, or
// the image itself.
func (d drawing) rows(n float64) int {
	if n == 1 {
		return 1
	}
	return 2 * (d.least/2 + int(d.share*furtherImages(n)/2))
}

// rowsOf returns the number of rows of class means.
func (d drawing) rowsOf(cells []cell) (n int) {
	for _, v := range cells {
		n += d.rows(v.n)
	}
	return n
}

// drawing returns that of a refit to a pool's clients, and the number of its rows. A class mean has
// refitDraws rows. Where these are fewer in all than a round's images, and clients are enough to
// tell how much more a refit to many rows sharpens the head (minRefitted), one of more images has
// as many rows as images, to an even number: maxRefitDraws at most, or the share of them that fits
// in maxNumbers and maxProducts. Where not even refitDraws fit in maxNumbers, rows are of the class
// means of all clients together, as many as fit.
func (r *Round) drawing(p *pool) (d drawing, rows int) {
	d.least = refitDraws
	count := func() (n int) {
		for _, i := range p.clients {
			n += d.rowsOf(r.Clients[i].cells())
		}
		return n
	}
	means, images, further := 0, 0.0, 0.0
	for _, i := range p.clients {
		cells := r.Clients[i].cells()
		means += len(cells)
		for _, v := range cells {
			images += v.n
			further += furtherImages(v.n)
		}
	}
	if means*refitDraws > maxNumbers/r.K {
		for y, n := range p.n {
			if n > 0 {
				mean := dense.As[float32](p.mean[y*r.K:][:r.K])
				d.together = append(d.together, cell{class: y, n: n, mean: mean})
			}
		}
		d.least = max(maxNumbers/r.K/len(d.together), 2)
		return d, d.rowsOf(d.together)
	}
	rows = count()
	free := min(maxNumbers/(r.K+r.C), maxProducts/r.C/r.K) - rows
	if judged := max(r.halfOf, len(r.Clients)) >= minRefitted; judged && float64(rows) < images &&
		free > 0 {
		d.share = min(1, float64(free)/further)
		rows = count()
	}
	return d, rows
}

// standIns returns rows that stand for the images of a pool's clients, in coordinates where W is I:
// class means and antithetic draws about them. About a mean of n images these are
// mean ± sqrt(1 - 1/n) z, with z of N(0, I). Each stands for n over their number.
func (r *Round) standIns(h *discriminant, p *pool, d drawing, o *Options) *images {
	out := &images{}
	if d.together != nil {
		out.about(h, d.together, d, rng.New(o.Seed, "candidate", o.Stream, "images"))
		return out
	}
	for _, i := range p.clients {
		at := rng.New(o.Seed, "candidate", o.Stream, "images", i)
		out.about(h, r.Clients[i].cells(), d, at)
	}
	return out
}

// about adds rows for cells.
func (m *images) about(h *discriminant, cells []cell, d drawing, at *rand.Rand) {
	k := h.k
	m.rows = slices.Grow(m.rows, d.rowsOf(cells)*k)
	var means []float64
	for _, v := range cells {
		means = append(means, dense.As[float64](v.mean)...)
	}
	means = h.white(h.of(means, len(cells)))
	row := make([]float64, k)
	for j, v := range cells {
		mean := means[j*k : (j+1)*k]
		if v.n == 1 {
			m.add(mean, v.n, v.class)
			continue
		}
		size := math.Sqrt(1 - 1/v.n)
		half := d.rows(v.n) / 2
		for range half {
			for x := range row {
				row[x] = size * at.NormFloat64()
			}
			for range 2 {
				scale(-1, row)
				m.add(mean, v.n/float64(2*half), v.class)
				axpy(1, row, m.rows[len(m.rows)-k:])
			}
		}
	}
}

// problem is the regression of [discriminant.fitted].
func (h *discriminant) problem(on *images, prior []float64, start *linear) *erm.Problem {
	k, c, n := h.k, h.c, len(on.label)
	p := &erm.Problem{N: n, Dx: k, C: c, X: make([]float64, n*(k+1)), Y: make([]float64, n*c),
		W: on.mass, L2: tie}
	for i, y := range on.label {
		copy(p.X[i*(k+1):], on.rows[i*k:(i+1)*k])
		p.X[i*(k+1)+k] = 1
		p.Y[i*c+y] = 1
	}
	root := h.roots()
	centre := erm.NewTheta(k+1, c) // the prior moves the bias and its centre
	for y := range c {
		if start != nil {
			for j, v := range root {
				centre.W[j*c+y] = start.w[y*k+j] / v
			}
			centre.W[k*c+y] = start.bias[y]
		}
		centre.W[k*c+y] += prior[y]
	}
	p.Centre = &centre
	return p
}

// fitted returns the softmax regression on images, in the basis, whose logits have prior [C] added,
// tied to a head as if by tie images; to zero where start is nil. In coordinates where W is I rows
// x_i [K+1] end in a 1, masses are w_i, and H is the head of start. It is theta [K+1, C] of the
// least
//
//	-sum_i w_i log softmax(theta'x_i + prior)_(y_i) + tie/2 |theta - H|^2
func (h *discriminant) fitted(on *images, prior []float64, start *linear) (linear, error) {
	k, c, n := h.k, h.c, len(on.label)
	p, root := h.problem(on, prior, start), h.roots()
	s, err := erm.Solve(context.Background(), p, erm.Options{Threads: 1, MaxProducts: fitProducts})
	if err != nil {
		return linear{}, fmt.Errorf("candidate: regression on %d rows: %w", n, err)
	}
	out := linear{make([]float64, c*k), slices.Clone(s.Theta.Row(k))}
	for y := range c {
		for j, v := range root {
			out.w[y*k+j] = s.Theta.W[j*c+y] * v
		}
		out.bias[y] -= prior[y]
	}
	return out, nil
}

// refit returns the head at temperature t, fitted once more to the clients' images and tied to the
// discriminant. The prior of classes is the pool's in the fit and even in the answer.
func (r *Round) refit(h *discriminant, t float64, o *Options) (linear, error) {
	draws, rows := r.drawing(h.pool)
	if rows*r.K > maxProducts/r.C {
		return *h.linear().over(t), nil
	}
	on := r.standIns(h, h.pool, draws, o)
	// The noise of rows of more than an image would be learned. The discriminant is the surer the
	// more images there are: the tie to it is heavier by as much as masses are less.
	if f := float64(len(on.mass)) / floats.Sum(on.mass); f < 1 {
		scale(f*f, on.mass)
	}
	return h.fitted(on, prior(h.n), h.linear().over(t))
}

// maxProducts bounds the products of one pass over a regression's rows; beyond, the discriminant
// stands as it is.
const maxProducts = 1 << 30

// prior returns the logs of the numbers of images of classes over their mean, [C], in nats.
func prior(n []float64) []float64 {
	mean, out := floats.Sum(n)/float64(len(n)), make([]float64, len(n))
	for y, v := range n {
		out[y] = math.Log(max(v, minCount) / mean)
	}
	return out
}

// over returns the head with its logits divided by t.
func (l linear) over(t float64) *linear {
	out := linear{make([]float64, len(l.w)), make([]float64, len(l.bias))}
	axpy(1/t, l.w, out.w)
	axpy(1/t, l.bias, out.bias)
	return &out
}

// pooledStandIns returns rows that stand for the images of a pool: class means of all clients and
// draws of W about them. Rows depend on the sum alone.
func (h *discriminant) pooledStandIns(p *pool, o *Options) *images {
	out := &images{}
	for y, n := range p.n {
		if n > 0 {
			draws := 2 * int(min(math.Ceil(n/(2*imagesPerDraw)), maxNamedDraws/2))
			mean := dense.As[float32](p.mean[y*p.k:][:p.k])
			out.about(h, []cell{{class: y, n: max(n, 1), mean: mean}}, drawing{least: draws},
				rng.New(o.Seed, "candidate", o.Stream, "sum", y))
		}
	}
	return out
}
