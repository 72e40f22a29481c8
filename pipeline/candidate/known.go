package candidate

import (
	"math"
	"slices"

	"gonum.org/v1/gonum/floats"

	"fmp/models/rng"
	"fmp/onnx/dense"
	"fmp/pipeline/moments"
)

const (
	// predictedDraws is the least number of a class's images that are drawn to tell a temperature,
	// and allDraws that of all classes. Half are the others' opposites. Many are wanted, as few
	// err.
	predictedDraws, allDraws = 128, 8192
	// regressionFolds are the parts of each class of a corpus that its own regression is judged by,
	// each left out: heads have seen four fifths of its images.
	regressionFolds = 5
)

// known is a corpus of the round's classes, in coordinates where W is I.
type known struct {
	*Corpus
	rows          []float64 // [N, K]
	count, centre []float64 // of its classes, [C], and their means, [C, K]
	within        []within  // of the images of each class, [C]
	// alike is the mass of an image of each class without a shift, less than 1 where the class is
	// unlike the others, [C]; nil: 1. At a shift all classes lie elsewhere, and clients judge them.
	alike []float64
	start float64 // log temperature, in nats, of the discriminant of its class means
	// tied says that its regression is tied to the discriminant of its class means, not to zero.
	tied bool
	// kappa is the log of the factor between the temperature of its images, each left out, and that
	// of Gaussian draws in their place. It is priorKappa where the corpus is too small.
	kappa normal
	// weight is that among the ways in which the regression is tied at one shift, which sum to 1.
	weight float64
}

// knows measures a corpus: its classes, and the temperature of the discriminant of their means.
func (h *discriminant) knows(c *Corpus) (*known, error) {
	k := &known{Corpus: c, count: make([]float64, h.c), centre: make([]float64, h.c*h.k),
		rows: h.white(h.of(dense.As[float64](c.Rows), len(c.Labels))), tied: true,
		kappa: priorKappa}
	of := make([][]int, h.c)
	for i, y := range c.Labels {
		k.count[y]++
		of[y] = append(of[y], i)
		m := k.centre[y*h.k:][:h.k]
		for j, v := range k.rows[i*h.k:][:h.k] {
			m[j] += (v - m[j]) / k.count[y]
		}
	}
	for y, rows := range of {
		k.within = append(k.within, k.measure(y, rows, h.k))
	}
	if !k.largeEnough() {
		return k, nil
	}
	start, err := h.leftOut(k, 0, func(in *images) (linear, error) {
		return h.byMeans(in.means(h)), nil
	})
	k.start = start.log.mean
	return k, err
}

// at returns the corpus with its regression tied in each way, weighed by its images, each left out,
// at the masses that a shift leaves: the fewer count, the more a discriminant is worth beside a
// regression. A corpus that is too small to tell is tied to the discriminant. Of each way kappa is
//
//	log T(images, each left out) - log T(draws of N(centre_y, (1 + 1/n_y) I))
//
// as a new image lies so far from the mean of n_y others.
func (k *known) at(h *discriminant, shift int, o *Options) ([]*known, error) {
	if !k.largeEnough() {
		of := *k
		of.weight = 1
		return []*known{&of}, nil
	}
	size := make([]float64, h.c)
	for y, n := range k.count {
		if n > 0 {
			size[y] = math.Sqrt(1 + 1/n)
		}
	}
	var out []*known
	var scores []float64
	for _, tied := range []bool{false, true} {
		of := *k
		of.tied = tied
		told, err := h.leftOut(k, shift, func(in *images) (linear, error) {
			return h.regression(in, in.means(h), &of)
		})
		if err != nil {
			return nil, err
		}
		alone, err := h.regression(of.images(shift), of.centre, &of)
		if err != nil {
			return nil, err
		}
		of.kappa = normal{told.log.mean - h.twin(alone, &of, of.centre, size, o).mean,
			told.log.deviation}
		out, scores = append(out, &of), append(scores, told.score)
	}
	order, weight := heaviest(weigh(scores), len(scores), minWeight)
	likely := make([]*known, len(order))
	for at, i := range order {
		likely[at] = out[i]
		likely[at].weight = weight[at]
	}
	return likely, nil
}

// mass returns that of an image of class y at a shift, the place of one in shifts.
func (k *known) mass(y, shift int) float64 {
	if shift == 0 && k.alike != nil {
		return k.alike[y]
	}
	return plainMass(k.count[y], shift)
}

// images returns those of the corpus, with the masses that a shift leaves.
func (k *known) images(shift int) *images {
	on := &images{rows: k.rows, label: k.Labels, mass: make([]float64, len(k.Labels))}
	for i, y := range k.Labels {
		on.mass[i] = k.mass(y, shift)
	}
	return on
}

// addVariance changes kappa for images of clients whose class means have the variance v about the
// pooled ones, in units of W. A temperature is the variance of images about their class mean in
// units of that which the head assumes. It is e^kappa of the corpus's, and v more of the clients':
//
//	log kappa' = log(e^kappa + v),   deviation'^2 = deviation^2 + (log kappa' - kappa)^2
//
// Where no image comes near another class v changes nothing, and class means do not tell: hence
// the further deviation.
func (k *known) addVariance(v float64) {
	added := math.Log(math.Exp(k.kappa.mean)+v) - k.kappa.mean
	k.kappa = normal{k.kappa.mean + added, math.Hypot(k.kappa.deviation, added)}
}

// largeEnough reports whether a corpus has enough images to measure a temperature.
func (k *known) largeEnough() bool {
	return len(k.Labels) >= 10*judgeBlocks && slices.Max(k.count) >= regressionFolds
}

// share returns the share of the corpus's images that counts at a shift.
func (k *known) share(shift int) (sum float64) {
	for y, n := range k.count {
		sum += n * k.mass(y, shift)
	}
	return sum / float64(len(k.Labels))
}

// means returns the means of classes, [C, K]; zeros of a class without images.
func (m *images) means(h *discriminant) []float64 {
	out, mass := make([]float64, h.c*h.k), make([]float64, h.c)
	for i, y := range m.label {
		mass[y] += m.mass[i]
		to := out[y*h.k:][:h.k]
		for j, v := range m.rows[i*h.k:][:h.k] {
			to[j] += (v - to[j]) * m.mass[i] / mass[y]
		}
	}
	return out
}

// byMeans returns the discriminant of class means x_y, [C, K], where W is I: logits x_y'u -
// |x_y|^2/2.
func (h *discriminant) byMeans(means []float64) linear {
	root, l := h.roots(), linear{slices.Clone(means), make([]float64, h.c)}
	for y := range h.c {
		own := l.w[y*h.k:][:h.k]
		l.bias[y] = -dot(own, own) / 2
		floats.Mul(own, root)
	}
	return l
}

// regression returns that on images, tied to the discriminant of class means where the corpus's own
// is, and to zero where not. The prior of classes that have images is that of their masses
// in the fit, and even in the answer.
func (h *discriminant) regression(on *images, means []float64, k *known) (linear, error) {
	mass := make([]float64, h.c)
	for i, y := range on.label {
		mass[y] += on.mass[i]
	}
	weights := prior(mass)
	for y, m := range mass {
		if m == 0 {
			weights[y] = 0
		}
	}
	if !k.tied {
		return h.fitted(on, weights, nil)
	}
	return h.fitted(on, weights, h.byMeans(means).over(math.Exp(k.start)))
}

// leftOut judges heads by the corpus's images, with the masses that a shift leaves, each left out
// with a fifth of its class: the log temperature, with its error, and a log-likelihood to compare
// heads by. A class of one image is never left out. The order of classes in the corpus does not
// matter.
func (h *discriminant) leftOut(k *known, shift int,
	head func(in *images) (linear, error)) (judged, error) {
	var blocks [judgeBlocks]moments.Curve
	random := surprises / float64(len(k.Labels))
	for fold := range regressionFolds {
		in, seen := &images{}, make([]int, h.c)
		var out [judgeBlocks]images
		for i, y := range k.Labels {
			to, rank, mass := in, seen[y], k.mass(y, shift)
			if seen[y]++; k.count[y] > 1 && rank%regressionFolds == fold {
				to, mass = &out[(rank/regressionFolds+y)%judgeBlocks], 1
			}
			to.add(k.rows[i*h.k:][:h.k], mass, y)
		}
		l, err := head(in)
		if err != nil {
			return judged{}, err
		}
		for block := range out {
			h.likelihood(&blocks[block], l, &out[block], random)
		}
	}
	at, e, likelihood := verdict(blocks)
	return judged{log: normal{at, math.Hypot(e, errorT)},
		score: floats.Sum(likelihood) / judgeBlocks}, nil
}

// twin returns the log temperature of draws of the images of each class, of means [C, K] and
// deviations [C] where W is I, under a head, and its error by leaving classes out.
func (h *discriminant) twin(l linear, k *known, centre, size []float64, o *Options) normal {
	random := surprises / float64(len(k.Labels))
	var curves []moments.Curve
	for y, s := range size {
		if s == 0 {
			continue
		}
		at, on, row := rng.New(o.Seed, "candidate", o.Stream, "predicted", y), &images{},
			make([]float64, h.k)
		for range max(predictedDraws, allDraws/h.c) / 2 {
			for j := range row {
				row[j] = s * at.NormFloat64()
			}
			for range 2 {
				scale(-1, row)
				on.add(row, 1, y)
				axpy(1, centre[y*h.k:][:h.k], on.rows[len(on.rows)-h.k:])
			}
		}
		var curve moments.Curve
		h.likelihood(&curve, l, on, random)
		curves = append(curves, curve)
	}
	peak, e := peakOf(curves)
	return normal{peak, e}
}

// likelihood adds the log-likelihood of images where W is I, under a head in the basis, and a share
// of that of a random class. Each image counts by its mass.
func (h *discriminant) likelihood(to *moments.Curve, l linear, on *images, random float64) {
	n, root, w := len(on.label), h.roots(), slices.Clone(l.w)
	for i := range w {
		w[i] /= root[i%h.k]
	}
	logits := timesT(on.rows, w, n, h.k, h.c)
	for i, y := range on.label {
		row := logits[i*h.c : (i+1)*h.c]
		axpy(1, l.bias, row)
		addRows(to, row, h.c, cell{class: y, share: on.mass[i]}, random)
	}
}
