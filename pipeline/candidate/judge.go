package candidate

import (
	"math"

	"gonum.org/v1/gonum/floats"

	"fmp/onnx/dense"
	"fmp/pipeline/moments"
)

const (
	// maxJudges bounds the images of a judge that are asked about, so that a pool takes bounded
	// time.
	maxJudges = 2000
	// judgeBlocks are the parts of a judge's images whose leaving out gives the error of its
	// verdict.
	judgeBlocks = 10
	// maxJudged bounds the candidates that a judge is asked about, and minJudged how far below the
	// best their evidence may lie, in nats: a candidate of e^-7 of the best's weight is not asked.
	maxJudged, minJudged = 8, 14
)

// fewestPoints is how many calibration points a round must have for them to judge its candidates:
// two for each block that the jackknife leaves out.
const fewestPoints = 2 * judgeBlocks

// judge is real images with labels that took no part in the round's statistics: calibration points.
// They measure a candidate's temperature without a twin, and count as evidence for a number of
// images.
type judge struct {
	rows   []float32
	labels []int
	images float64
}

// Judged returns how many calibration points judge the round's candidates: none, or all.
func (r *Round) Judged() int {
	if n := len(r.Points.Labels); n >= fewestPoints {
		return n
	}
	return 0
}

// judge returns the round's judge; nil where it has none.
func (r *Round) judge() *judge {
	n := r.Judged()
	if n == 0 {
		return nil
	}
	g := &judge{r.Points.Rows, r.Points.Labels, float64(n)}
	g.thin(maxJudges, r.K)
	return g
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
	logits := timesT(b.of(dense.As[float64](g.rows), n), l.w, n, b.k, b.c)
	var out [judgeBlocks]moments.Curve
	row := make([]float64, b.c)
	for i, y := range g.labels {
		own := logits[i*b.c : (i+1)*b.c]
		axpy(1, l.bias, own)
		block := i % judgeBlocks
		share := 1 / float64((n-block+judgeBlocks-1)/judgeBlocks)
		for t, by := range inverseTemperatures {
			floats.ScaleTo(row, by, own)
			out[block][t] += share * (row[y] - floats.LogSumExp(row))
		}
	}
	return out
}

// verdict is the judge's of a head: the log of the factor on its temperature, with its error, and
// the blocks' mean log-likelihoods there.
func verdict(blocks [judgeBlocks]moments.Curve) (at, e float64, likelihood []float64) {
	best := floats.MaxIdx(sumOf(blocks[:])[:])
	for i := range blocks {
		likelihood = append(likelihood, blocks[i][best])
	}
	at, e = peakOf(blocks[:])
	return at, e, likelihood
}

// judged is a candidate's head after the judge was asked.
type judged struct {
	head  linear // at its temperature
	log   normal // of the factor on the temperature
	score float64
	left  []float64 // the score's parts, of the judge's blocks
}

// judge judges a head, the log of the factor on whose temperature has a prior, which is left as it
// is where there is no judge.
func (g *judge) judge(h *discriminant, l linear, prior normal) judged {
	out := judged{log: prior}
	if g != nil {
		at, e, likelihood := verdict(g.ask(h.basis, l))
		scale(g.images/judgeBlocks, likelihood)
		out.log, out.score, out.left = prior.given(at, e+errorT), floats.Sum(likelihood), likelihood
	}
	out.head = *l.over(math.Exp(out.log.mean))
	return out
}
