package candidate

import (
	"math"
	"slices"

	"gonum.org/v1/gonum/floats"

	"fmp/pipeline/moments"
)

const (
	// maxJudges bounds the images of a judge that are asked about, so that a pool takes bounded
	// time.
	maxJudges = 2000
	// judgeBlocks are the parts of a judge's images whose leaving out gives the error of its
	// verdict.
	judgeBlocks = 10
	// maxJudged bounds the candidates that judges are asked about, and minJudged how far below the
	// best their evidence may lie, in nats.
	maxJudged, minJudged = 8, 14
	// regressionFolds are the parts of a corpus that its own regression is judged by, each left
	// out.
	regressionFolds = 5
)

// judge is real images with labels that took no part in the round's statistics: calibration points,
// or those of a corpus whose classes are the round's. They measure a candidate's temperature
// without a twin, and count as evidence for a number of images.
type judge struct {
	rows   []float32
	labels []int
	images float64
	corpus *Corpus // whose images they are; nil for calibration points
}

// judges returns a round's judges. A corpus of the round's names is one where the clients' own
// evidence finds the names right.
func (r *Round) judges(s *sums, cands []candidate, weight []float64) (out []judge) {
	if n := len(r.Points.Labels); n >= 2*judgeBlocks {
		out = append(out, judge{r.Points.Rows, r.Points.Labels, float64(n), nil})
	}
	for j := range cands {
		if c := cands[j].corpus; c != nil && weight[j] > minWeight && len(c.Labels) >= 2*judgeBlocks {
			out = append(out, judge{c.Rows, c.Labels, s.images, c})
		}
	}
	for i := range out {
		out[i].thin(maxJudges, r.K)
	}
	return out
}

// thin keeps images at even steps, most at most.
func (g *judge) thin(most, k int) {
	n := len(g.labels)
	if n <= most {
		return
	}
	var rows []float32
	var labels []int
	for i := range most {
		at := i * n / most
		rows, labels = append(rows, g.rows[at*k:(at+1)*k]...), append(labels, g.labels[at])
	}
	g.rows, g.labels = rows, labels
}

// ask returns the mean log-likelihood of each block of the judge's images under a head in a basis.
func (g *judge) ask(b *basis, l linear) [judgeBlocks]moments.Curve {
	n := len(g.labels)
	rows := make([]float64, len(g.rows))
	widen(rows, g.rows)
	logits := timesT(b.of(rows, n), l.w, n, b.k, b.c)
	var out [judgeBlocks]moments.Curve
	row := make([]float64, b.c)
	for i, y := range g.labels {
		own := logits[i*b.c : (i+1)*b.c]
		axpy(1, l.bias, own)
		block := i % judgeBlocks
		share := 1 / float64((n-block+judgeBlocks-1)/judgeBlocks)
		for t, by := range temperatures {
			for c, v := range own {
				row[c] = v * by
			}
			out[block][t] += share * (row[y] - floats.LogSumExp(row))
		}
	}
	return out
}

// askRegression is ask for the regression of the judge's own corpus, each image left out with a
// fifth of the others.
func (r *Round) askRegression(g *judge, h *discriminant, s *sums,
	o *Options) (out [judgeBlocks]moments.Curve, err error) {
	theirs := h.sum(s.all, o)
	for fold := range regressionFolds {
		in, left := &Corpus{}, judge{}
		for i, y := range g.corpus.Labels {
			row := g.corpus.Rows[i*r.K : (i+1)*r.K]
			if i%regressionFolds == fold {
				left.rows, left.labels = append(left.rows, row...), append(left.labels, y)
			} else {
				in.Rows, in.Labels = append(in.Rows, row...), append(in.Labels, y)
			}
		}
		left.thin(maxJudges/regressionFolds, r.K)
		l, err := h.beside(in, theirs)
		if err != nil {
			return out, err
		}
		for block, c := range left.ask(h.basis, l) {
			for t, v := range c {
				out[block][t] += v / regressionFolds
			}
		}
	}
	return out, nil
}

// verdict is the judge's of a head: the log of the factor on its temperature, with its error, and
// its mean log-likelihood there.
func verdict(blocks [judgeBlocks]moments.Curve) (at, e, likelihood float64) {
	all := sumOf(blocks[:])
	left := make([]float64, judgeBlocks)
	for i := range blocks {
		left[i] = peak(less(all, &blocks[i]))
	}
	return peak(all), jackknife(left) + errorT, slices.Max(all[:]) / judgeBlocks
}

// judged is a candidate's head after the judges were asked.
type judged struct {
	head  linear // at its temperature
	log   normal // of the factor on the temperature
	score float64
}

// hear asks the judges about a candidate's head before kappa, whose prior is that of the factor on
// its temperature.
func (r *Round) hear(js []judge, c *candidate, h *discriminant, l linear, prior normal, s *sums,
	o *Options) (judged, error) {
	out := judged{head: l, log: prior}
	for i := range js {
		g := &js[i]
		var blocks [judgeBlocks]moments.Curve
		if c.corpus != nil && c.corpus == g.corpus {
			var err error
			if blocks, err = r.askRegression(g, h, s, o); err != nil {
				return out, err
			}
		} else {
			blocks = g.ask(h.basis, l)
		}
		at, e, likelihood := verdict(blocks)
		if g.corpus != nil && c.corpus == nil {
			out.log.deviation = priorT.deviation // the clients' curves are of other images
		}
		out.log = out.log.given(at, e)
		out.score += g.images * likelihood
	}
	out.head = *l.over(math.Exp(out.log.mean))
	return out, nil
}
