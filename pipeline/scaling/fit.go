package scaling

import (
	"context"
	"fmt"
	"math"

	"gonum.org/v1/gonum/floats"
	"gonum.org/v1/gonum/optimize"

	"fmp/models"
	"fmp/pipeline/internal/parallel"
)

// Deviations of the normal priors of a scaling's parameters, about the classifier as it is: of the
// logarithm of the common factor and of the offsets, of the logarithms of the classes' factors
// about the common one, and, over the root of the number of classes, of the numbers of the matrix.
// They say how far off a classifier may reasonably be; no measurement chose them.
const (
	common  = 1.0
	byClass = 0.5
	mixing  = 0.5
)

// leastLog bounds log-probabilities from below.
const leastLog = -69

// maxNumbers bounds the log-probabilities that are held: 1 GiB.
const maxNumbers = 1 << 28

// block is the number of images that one goroutine adds up: sums do not depend on the number of
// goroutines.
const block = 64

// Images are labelled images as a classifier's heads saw them.
type Images struct {
	C, Heads int
	Labels   []int
	// Log are the log-probabilities of each head, [n, Heads, C]; Stated are the classifier's
	// probabilities as they are, [n, C].
	Log    []float32
	Stated []float64
}

// Add adds an image of class y, by the probabilities of its heads [Heads, C] and those that the
// classifier states [C].
func (x *Images) Add(samples, stated []float32, y int) error {
	if y < 0 || y >= x.C || len(samples) != x.Heads*x.C || len(stated) != x.C {
		return fmt.Errorf("scaling: class %d, %d and %d probabilities; want %d heads of %d classes",
			y, len(samples), len(stated), x.Heads, x.C)
	}
	if len(x.Log)+len(samples) > maxNumbers {
		return fmt.Errorf(
			"scaling: more than %d images of %d heads and %d classes take over 1 GiB: "+
				"give fewer images", len(x.Labels), x.Heads, x.C)
	}
	for _, p := range samples {
		x.Log = append(x.Log, float32(math.Max(math.Log(float64(p)), leastLog)))
	}
	var sum float64
	for _, p := range stated {
		sum += float64(p)
	}
	for _, p := range stated {
		x.Stated = append(x.Stated, float64(p)/sum)
	}
	x.Labels = append(x.Labels, y)
	return nil
}

// head returns the log-probabilities of an image by one head.
func (x *Images) head(i, s int) []float32 { return x.Log[(i*x.Heads+s)*x.C:][:x.C] }

// parameters are those of a scaling: log factor, and of the richer kinds the logarithms of the
// classes' factors over it, offsets, matrix.
type parameters struct {
	kind string
	c    int
	v    []float64
}

func newParameters(kind string, c int) parameters {
	n := 1
	if kind != models.Temperature {
		n += 2 * c
	}
	if kind == models.Matrix {
		n += c * c
	}
	return parameters{kind, c, make([]float64, n)}
}

// maps is [models.Scaling] in float64.
type maps struct{ factor, offset, mixing []float64 }

// maps returns the maps of parameters.
func (p parameters) maps() maps {
	if p.kind == models.Temperature {
		return maps{factor: []float64{math.Exp(p.v[0])}}
	}
	m := maps{factor: make([]float64, p.c), offset: p.v[1+p.c : 1+2*p.c]}
	for c := range m.factor {
		m.factor[c] = math.Exp(p.v[0] + p.v[1+c])
	}
	if p.kind == models.Matrix {
		m.mixing = p.v[1+2*p.c:]
	}
	return m
}

// numbers converts between the types of numbers; none are nil.
func numbers[A, B float32 | float64](of []A) (out []B) {
	for _, v := range of {
		out = append(out, B(v))
	}
	return out
}

// scaling returns the scaling of parameters.
func (p parameters) scaling() models.Scaling {
	m := p.maps()
	return models.Scaling{Kind: p.kind, Factor: numbers[float64, float32](m.factor),
		Offset: numbers[float64, float32](m.offset), Mixing: numbers[float64, float32](m.mixing)}
}

// Apply writes the mean over heads of the probabilities that a scaling makes of an image's, [C].
func (x *Images) Apply(s *models.Scaling, i int, p []float64) {
	m := maps{numbers[float32, float64](s.Factor), numbers[float32, float64](s.Offset),
		numbers[float32, float64](s.Mixing)}
	clear(p)
	u := make([]float64, x.C)
	for h := range x.Heads {
		m.logits(x.head(i, h), u)
		total := floats.LogSumExp(u)
		for c, v := range u {
			p[c] += math.Exp(v-total) / float64(x.Heads)
		}
	}
}

// logits writes those of [models.Scaling]. Of log-probabilities z they are
//
//	u_c = factor_c z_c + offset_c + sum_j z_j mixing_jc
//
// A temperature has one factor for all classes, and neither offsets nor a matrix.
func (m *maps) logits(z []float32, u []float64) {
	for c := range u {
		u[c] = m.factor[min(c, len(m.factor)-1)] * float64(z[c])
		if m.offset != nil {
			u[c] += m.offset[c]
		}
	}
	for j := 0; m.mixing != nil && j < len(z); j++ {
		floats.AddScaled(u, float64(z[j]), m.mixing[j*len(u):(j+1)*len(u)])
	}
}

// loss is the negative log posterior of parameters by some of the images. With gradient it writes
// the gradient there. With u_h the logits of head h, an image of class y adds
//
//	-log mean_h softmax(u_h)_y
func (x *Images) loss(p parameters, of []int, gradient []float64) float64 {
	m := p.maps()
	blocks := (len(of) + block - 1) / block
	losses, slopes := make([]float64, blocks), make([][]float64, blocks)
	_ = parallel.Each(context.Background(), 0, blocks, func(_ context.Context, b int) error {
		space := space{make([]float64, x.Heads*x.C), make([]float64, x.Heads), make([]float64, x.C)}
		if gradient != nil {
			slopes[b] = make([]float64, len(gradient))
		}
		for _, i := range of[b*block : min((b+1)*block, len(of))] {
			losses[b] += space.image(x, &m, i, slopes[b])
		}
		return nil
	})
	clear(gradient)
	total := p.prior(gradient)
	for b := range blocks {
		if total += losses[b]; gradient != nil {
			floats.Add(gradient, slopes[b])
		}
	}
	return total
}

// prior returns the negative log prior but for a constant, and adds its gradient: the sum of
// v² / (2 sd²) over the parameters.
// The deviation sd is common of the common factor and of offsets, and byClass of classes' factors.
// Of the matrix it is mixing / sqrt(C).
func (p parameters) prior(gradient []float64) (loss float64) {
	for i, v := range p.v {
		sd := common
		switch {
		case i >= 1+2*p.c:
			sd = mixing / math.Sqrt(float64(p.c))
		case i >= 1 && i < 1+p.c:
			sd = byClass
		}
		if loss += v * v / (2 * sd * sd); gradient != nil {
			gradient[i] += v / (sd * sd)
		}
	}
	return loss
}

// space is the memory of one image's loss.
type space struct {
	q      []float64 // [Heads, C]
	weight []float64 // of each head, its share of the true class's probability
	slope  []float64 // by logit
}

// image returns the loss of an image, and adds its gradient where there is one.
// With q_h the probabilities by head h and w_h = q_hy, the slope by its logit of class c is
//
//	w_h / (sum_k w_k) (q_hc - [c = y])
func (t *space) image(x *Images, m *maps, i int, gradient []float64) float64 {
	y, sum := x.Labels[i], 0.0
	for h := range x.Heads {
		q := t.q[h*x.C : (h+1)*x.C]
		m.logits(x.head(i, h), q)
		total := floats.LogSumExp(q)
		for c, v := range q {
			q[c] = math.Exp(v - total)
		}
		t.weight[h] = math.Max(q[y], 1e-300)
		sum += t.weight[h]
	}
	if gradient != nil {
		for h := range x.Heads {
			z, q := x.head(i, h), t.q[h*x.C:(h+1)*x.C]
			for c, v := range q {
				if t.slope[c] = v * t.weight[h] / sum; c == y {
					t.slope[c] -= t.weight[h] / sum
				}
				step := t.slope[c] * m.factor[min(c, len(m.factor)-1)] * float64(z[c])
				if gradient[0] += step; m.offset != nil {
					gradient[1+c] += step
					gradient[1+x.C+c] += t.slope[c]
				}
			}
			for j := 0; m.mixing != nil && j < x.C; j++ {
				floats.AddScaled(gradient[1+2*x.C+j*x.C:][:x.C], float64(z[j]), t.slope)
			}
		}
	}
	return -math.Log(sum / float64(x.Heads))
}

// fit returns the most probable scaling of a kind by some of the images.
// L-BFGS begins at zeros, the classifier as it is, and takes 200 iterations at most.
// It ends at a gradient of 1e-4, or once five steps lower the loss by less than 1e-9 of itself.
func (x *Images) fit(ctx context.Context, kind string, of []int,
	step func()) (models.Scaling, error) {
	p := newParameters(kind, x.C)
	at := func(v []float64) parameters { return parameters{kind, x.C, v} }
	problem := optimize.Problem{
		Func: func(v []float64) float64 {
			step()
			return x.loss(at(v), of, nil)
		},
		Grad:   func(gradient, v []float64) { x.loss(at(v), of, gradient) },
		Status: func() (optimize.Status, error) { return optimize.NotTerminated, ctx.Err() },
	}
	r, err := optimize.Minimize(problem, p.v,
		&optimize.Settings{GradientThreshold: 1e-4, MajorIterations: 200,
			Converger: &optimize.FunctionConverge{Relative: 1e-9, Iterations: 5}},
		&optimize.LBFGS{})
	if ctx.Err() != nil {
		return models.Scaling{}, ctx.Err()
	}
	if r == nil {
		return models.Scaling{}, fmt.Errorf("scaling: fitting a %s: %w", kind, err)
	}
	// a line search that finds nothing lower ends at the least loss found
	return at(r.X).scaling(), nil
}
