package meta

import (
	"math"

	"gonum.org/v1/gonum/floats"
	"gonum.org/v1/gonum/mat"

	"fmp/models"
	"fmp/onnx"
	"fmp/pipeline/task"
)

// UntrainedConjugate returns the conjugate predictor of a corpus's moments ([StartConjugate]), with
// the variances and the precision of heads that its rows, each left out, bear out.
// Without any fold that has moments the start stays as it is. It costs the moments of the corpus
// and of each fold's others.
func UntrainedConjugate(corpus *task.Bank) (*onnx.Model, error) {
	values, err := StartConjugate(corpus, 0, 0)
	if err != nil {
		return nil, err
	}
	var folds []*leftOut
	for fold := range leftOutFolds {
		f, err := leaveOut(corpus, fold, values[models.ConjOrigin].Len())
		if err != nil {
			return nil, err
		}
		if f != nil {
			folds = append(folds, f)
		}
	}
	if len(folds) > 0 {
		within, between := variances(folds)
		rescale(values, within, between)
		log := onnx.Scalar(float32(logRho(folds, within, between)))
		for _, set := range []string{models.ConjSample, models.ConjMean, models.ConjInterval} {
			values[set+models.ConjLogRho] = log.Clone()
		}
	}
	return conjugateWith(corpus, values)
}

// leftOutFolds are the parts of each class that are left out in turn, and maxLeftOut the rows of
// one that are judged, at even steps. The precision of heads is at most 1, that of Gaussian
// classes, and at least minRho, at which heads are even on any image. It is tried in steps of
// e^farStep, then around the best in steps of e^nearStep. In units of the corpus's moments the
// variance between classes is at least minBetween.
const (
	leftOutFolds      = 5
	maxLeftOut        = 400
	minRho            = 1e-6
	farStep, nearStep = 0.8, 0.05
	minBetween        = 1e-3
)

// leftOut are rows of a fifth of the corpus, maxLeftOut at most, in coordinates of the others,
// w [n, k], and of the others the means of classes, [C, k], their rows, [C], and the variances
// between them, [k].
type leftOut struct {
	w, mean *mat.Dense
	labels  []int
	count   []float64
	lambda  []float64
}

// leaveOut returns a fold; nil of one without rows, or whose others have no moments, as of one row
// a class. A class of one row is never left out. It costs the moments of the others,
// O(n dx^2 + dx^3).
func leaveOut(corpus *task.Bank, fold, k int) (*leftOut, error) {
	var in, out []int
	seen, all := make([]int, corpus.C), make([]int, corpus.C)
	for _, y := range corpus.Labels {
		all[y]++
	}
	for i, y := range corpus.Labels {
		if seen[y]++; all[y] > 1 && seen[y]%leftOutFolds == fold {
			out = append(out, i)
		} else {
			in = append(in, i)
		}
	}
	if len(out) == 0 || len(in) <= corpus.C {
		return nil, nil
	}
	if step := (len(out) + maxLeftOut - 1) / maxLeftOut; step > 1 {
		kept := out[:0]
		for i := 0; i < len(out); i += step {
			kept = append(kept, out[i])
		}
		out = kept
	}
	others, err := corpus.Subset(in)
	if err != nil {
		return nil, err
	}
	left, err := corpus.Subset(out)
	if err != nil {
		return nil, err
	}
	values, err := StartConjugate(others, k, 0)
	if err != nil {
		return nil, nil // they do not vary within their classes, and all of them do
	}
	f := &leftOut{w: coordinates(values, left), labels: left.Labels}
	f.describe(values, others)
	return f, nil
}

// describe takes the class means of rows, and the variances of the values.
// The mean of a class without rows stays 0.
func (f *leftOut) describe(values map[string]*onnx.Tensor, rows *task.Bank) {
	_, k := f.w.Dims()
	f.mean, f.count = mat.NewDense(rows.C, k, nil), make([]float64, rows.C)
	w := coordinates(values, rows)
	for i, y := range rows.Labels {
		f.count[y]++
		floats.Add(f.mean.RawRowView(y), w.RawRowView(i))
	}
	for y, n := range f.count {
		floats.Scale(1/max(n, 1), f.mean.RawRowView(y))
	}
	for _, v := range values[models.ConjLogLambda].F32() {
		f.lambda = append(f.lambda, math.Exp(float64(v)))
	}
}

// variances returns that of left-out rows within classes and between them, in units of those that
// the others' moments say. In coordinates in which rows are furthest apart they lie nearer to their
// class mean than any image to come, and class means further apart, by the more the fewer rows
// there are a feature. A row w of class y lies away from the mean m of n others by N(0, (1 + 1/n)
// within), and E w m' is (C - 1)/C of the variance between C classes. Over the rows i of all folds,
// in k coordinates of variances lambda_j between classes,
//
//	within  = mean_i |w_i - m_y|^2/(1 + 1/n_y)/k, 1 at least
//	between = C/(C - 1) sum_i w_i'm_y / sum_ij lambda_j, from minBetween to 1
func variances(folds []*leftOut) (within, between float64) {
	c := float64(len(folds[0].count))
	var away, of, along, lambda float64
	for _, f := range folds {
		_, k := f.w.Dims()
		for i, y := range f.labels {
			w, m := f.w.RawRowView(i), f.mean.RawRowView(y)
			d := floats.Distance(w, m, 2)
			away, of = away+d*d/(1+1/max(f.count[y], 1)), of+float64(k)
			along, lambda = along+floats.Dot(w, m)*c/(c-1), lambda+floats.Sum(f.lambda)
		}
	}
	return max(away/of, 1), min(max(along/lambda, minBetween), 1)
}

// rescale puts w in units in which the variance within classes is I again, and lambda with it:
// V and m0 become V/sqrt(within) and m0/sqrt(within), and lambda becomes lambda between/within.
// The values are changed in place.
func rescale(values map[string]*onnx.Tensor, within, between float64) {
	for _, name := range []string{models.ConjMap, models.ConjOrigin} {
		v := values[name].F32()
		for i := range v {
			v[i] /= float32(math.Sqrt(within))
		}
	}
	v := values[models.ConjLogLambda].F32()
	for i := range v {
		v[i] += float32(math.Log(between / within))
	}
}

// logits returns those of the rows at rho 1, less that of the label, by the posterior means m_y of
// the classes of n others, in the units of [rescale]:
//
//	logit_y = rho (w m_y - |m_y|^2/2),   m_y = n lambda/(1 + n lambda) mean_y
func (f *leftOut) logits(within, between float64) [][]float64 {
	means, bias := mat.DenseCopyOf(f.mean), make([]float64, len(f.count))
	for y, n := range f.count {
		m := means.RawRowView(y)
		for j, v := range f.lambda {
			l := n * v * between / within
			m[j] *= l / (1 + l)
		}
		bias[y] = -floats.Dot(m, m) / 2
	}
	var z mat.Dense
	z.Mul(f.w, means.T())
	out := make([][]float64, len(f.labels))
	for i, y := range f.labels {
		out[i] = z.RawRowView(i)
		floats.Add(out[i], bias)
		floats.AddConst(-out[i][y], out[i])
		floats.Scale(1/within, out[i])
	}
	return out
}

// logRho returns log of the precision rho of heads that is likeliest by left-out rows and the prior
// log rho ~ N(log startRho, 1), which keeps few rows that nothing errs on from certainty. It is
// that of the least
//
//	sum_i log sum_c exp(rho z_ic) + (log rho - log startRho)^2/2
//
// over rows i of logits z_i at rho 1, less that of the label. The NLL is convex in rho. Each of
// some fifty values costs O(n C).
func logRho(folds []*leftOut, within, between float64) float64 {
	var logits [][]float64
	for _, f := range folds {
		logits = append(logits, f.logits(within, between)...)
	}
	best, least := 0.0, math.Inf(1)
	scaled := make([]float64, len(logits[0]))
	try := func(at float64) {
		nll := math.Pow(at-math.Log(startRho), 2) / 2
		for _, z := range logits {
			floats.ScaleTo(scaled, math.Exp(at), z)
			nll += floats.LogSumExp(scaled)
		}
		if nll < least {
			best, least = at, nll
		}
	}
	for at := 0.0; at >= math.Log(minRho); at -= farStep {
		try(at)
	}
	for at, to := best-farStep, min(best+farStep, 0); at <= to; at += nearStep {
		try(at)
	}
	return best
}
