package candidate

import (
	"context"
	"fmt"
	"math"
	"slices"

	"fmp/models/rng"
	"fmp/pipeline/erm"
)

const (
	// tie is the weight, in images, that ties a regression to where it starts.
	tie = 60
	// refitDraws and namedDraws are the numbers of draws of W about a class mean, half of them the others' opposites.
	refitDraws = 8
	namedDraws = 2
	// leastCount stands for no image in logarithms.
	leastCount = 1e-9
)

// images are rows that stand for images, in coordinates in which the covariance within classes is I.
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

// stand returns rows that stand for clients' images: class means and antithetic draws of the covariance within classes about them.
func (r *Round) stand(h *discriminant, clients []int, draws int, o *Options) *images {
	k := r.K
	out := &images{}
	for _, i := range clients {
		cells := r.Clients[i].cells()
		means := make([]float64, len(cells)*k)
		for j, v := range cells {
			widen(means[j*k:(j+1)*k], v.mean)
		}
		means = h.white(h.of(means, len(cells)))
		at := rng.New(o.Seed, "candidate", o.Stream, "images", i)
		row := make([]float64, k)
		for j, v := range cells {
			mean := means[j*k : (j+1)*k]
			if v.n == 1 {
				out.add(mean, v.n, v.class)
				continue
			}
			size := math.Sqrt(1 - 1/v.n)
			for range draws / 2 {
				for x := range row {
					row[x] = size * at.NormFloat64()
				}
				for range 2 {
					scale(-1, row)
					out.add(mean, v.n/float64(draws), v.class)
					axpy(1, row, out.rows[len(out.rows)-k:])
				}
			}
		}
	}
	return out
}

// fitted returns the softmax regression on images whose logits have prior [C] added, tied to a start [C, K] with biases [C] as if by tie
// images. Weights and start are in the images' coordinates.
func (h *discriminant) fitted(on *images, prior, start, bias []float64) (w, b []float64, err error) {
	k, c, n := h.k, h.c, len(on.label)
	p := &erm.Problem{N: n, Dx: k, C: c, X: make([]float64, n*(k+1)), Y: make([]float64, n*c), W: on.mass, L2: tie}
	for i, y := range on.label {
		copy(p.X[i*(k+1):], on.rows[i*k:(i+1)*k])
		p.X[i*(k+1)+k] = 1
		p.Y[i*c+y] = 1
	}
	if start != nil { // the prior moves the bias and what it is tied to
		centre := erm.NewTheta(k+1, c)
		for y := range c {
			for j := range k {
				centre.W[j*c+y] = start[y*k+j]
			}
			centre.W[k*c+y] = bias[y] + prior[y]
		}
		p.Centre = &centre
	}
	s, err := erm.Solve(context.Background(), p, erm.Options{Threads: 1})
	if err != nil {
		return nil, nil, fmt.Errorf("candidate: regression on %d rows: %w", n, err)
	}
	w, b = make([]float64, c*k), append([]float64(nil), s.Theta.Row(k)...)
	for y := range c {
		for j := range k {
			w[y*k+j] = s.Theta.W[j*c+y]
		}
		if start != nil {
			b[y] -= prior[y]
		}
	}
	return w, b, nil
}

// refit returns the head at temperature t, [C, K] and [C] in the basis, fitted once more to the clients' images and tied to the discriminant.
// The prior of classes is the pool's in the fit and even in the answer.
func (r *Round) refit(h *discriminant, t float64, o *Options) (w, b []float64, err error) {
	return h.again(r.stand(h, everyone(r), refitDraws, o), t)
}

// again fits the head at temperature t once more.
func (h *discriminant) again(on *images, t float64) (w, b []float64, err error) {
	var mean float64
	for _, n := range h.n {
		mean += n / float64(h.c)
	}
	prior, start, bias := make([]float64, h.c), make([]float64, len(h.m)), make([]float64, h.c)
	for y, n := range h.n {
		prior[y] = math.Log(max(n, leastCount) / mean)
		bias[y] = h.bias[y] / t
	}
	axpy(1/t, h.m, start)
	if w, b, err = h.fitted(on, prior, h.white(start), bias); err != nil {
		return nil, nil, err
	}
	return h.white(w), b, nil
}

// named returns the head, [C, K] and [C] in the basis, of a corpus of the round's classes, which is one more client that sends its images:
// one regression on all, calibrated by itself.
func (r *Round) named(h *discriminant, c *Corpus, clients []int, o *Options) (w, b []float64, err error) {
	return h.beside(c, r.stand(h, clients, namedDraws, o))
}

// beside fits one regression to a corpus's images and the clients'.
func (h *discriminant) beside(c *Corpus, theirs *images) (w, b []float64, err error) {
	rows := make([]float64, len(c.Rows))
	widen(rows, c.Rows)
	on := &images{rows: append(h.white(h.of(rows, len(c.Labels))), theirs.rows...), label: append(slices.Clone(c.Labels), theirs.label...)}
	for range c.Labels {
		on.mass = append(on.mass, 1)
	}
	on.mass = append(on.mass, theirs.mass...)
	if w, b, err = h.fitted(on, nil, nil, nil); err != nil {
		return nil, nil, err
	}
	return h.white(w), b, nil
}

func everyone(r *Round) []int {
	out := make([]int, len(r.Clients))
	for i := range out {
		out[i] = i
	}
	return out
}
