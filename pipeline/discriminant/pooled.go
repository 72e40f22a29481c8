package discriminant

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math"
	"slices"

	"gonum.org/v1/gonum/blas"
	"gonum.org/v1/gonum/blas/blas64"
	"gonum.org/v1/gonum/floats"
	"gonum.org/v1/gonum/mat"

	"fmp/models/rng"
	"fmp/onnx/dense"
	"fmp/pipeline/erm"
	"fmp/pipeline/internal/moment"
)

// pooled is the sum of the uploads: sums over clients, and the class means of each.
type pooled struct {
	k, c    int
	n       []float64  // C
	mean    *mat.Dense // C x k
	cells   []cell
	scatter *mat.SymDense
	dof     float64
	rows    *mat.Dense // calibration points
	labels  []int
	of      []int     // client of each calibration point
	shares  []float64 // of that client's images that count
	prior   *corpus
	unread  string // why nothing weighs the corpus
	effects *mat.SymDense
}

// cell is a client's mean of one class.
type cell struct {
	client, class int
	n             float64
	mean          []float64
}

// pool adds up the uploads of clients. Shifts are subtracted from means and calibration points, and
// not from scatters, which they do not move. It costs O(clients k^2) for whole scatters, and
// rank k^2 for factors.
// Every client must have the first's numbers of features and classes. A share of 0 stands for 1.
// Means of no image are passed over. Calibration points stay out of means and scatter until
// addCalibration.
func pool(clients []Client) (*pooled, error) {
	if len(clients) == 0 || clients[0].Means == nil || clients[0].Within == nil {
		return nil, fmt.Errorf("discriminant: no uploads of moments; give at least one")
	}
	p := &pooled{k: clients[0].Within.K, c: clients[0].Means.C}
	raw := make([]float64, p.k*p.k)
	rank := 0
	for _, u := range clients {
		if u.Within != nil {
			rank = min(rank+max(u.Within.Rank, 0), moment.FactorRows)
		}
	}
	scatter := moment.Factor{K: p.k, To: raw, Rows: make([]float64, 0, rank*p.k)}
	var calibration []float64
	for m, u := range clients {
		if u.Means == nil || u.Within == nil || u.Means.Dx != p.k || u.Means.C != p.c ||
			u.Within.K != p.k {
			return nil,
				fmt.Errorf(
					"discriminant: the upload of client %d is not of %d numbers and %d classes, "+
						"as the first is",
					m, p.k, p.c)
		}
		if err := u.Within.Check(p.c); err != nil {
			return nil, fmt.Errorf("client %d: %w", m, err)
		}
		if u.Shift != nil && len(u.Shift) != p.k {
			return nil, fmt.Errorf("discriminant: the shift of client %d has %d numbers; want %d",
				m, len(u.Shift), p.k)
		}
		share := cmp.Or(u.Share, 1)
		scatter.AddScatter(u.Within, share)
		p.dof += share * float64(u.Within.Dof)
		rows, labels := u.Means.Labelled()
		for i, y := range labels {
			e := cell{m, y, share * float64(u.Means.W[i]),
				dense.As[float64](rows[i*p.k : (i+1)*p.k])}
			if e.n == 0 {
				continue
			}
			if u.Shift != nil {
				floats.Sub(e.mean, u.Shift)
			}
			p.cells = append(p.cells, e)
		}
		for i, y := range u.Within.Labels {
			for j, v := range u.Within.Calibration[i*p.k : (i+1)*p.k] {
				at := float64(v)
				if u.Shift != nil {
					at -= u.Shift[j]
				}
				calibration = append(calibration, at)
			}
			p.labels, p.of, p.shares = append(p.labels, y), append(p.of, m), append(p.shares, share)
		}
	}
	scatter.Flush()
	p.scatter = mat.NewSymDense(p.k, raw)
	if len(p.labels) > 0 {
		p.rows = mat.NewDense(len(p.labels), p.k, calibration)
	}
	p.sum()
	return p, nil
}

// sum computes the class means of all clients.
// Images weigh: m_c = sum_m n_mc x̄_mc / sum_m n_mc. The mean of a class without images stays 0.
func (p *pooled) sum() {
	p.n, p.mean = make([]float64, p.c), mat.NewDense(p.c, p.k, nil)
	for _, e := range p.cells {
		p.n[e.class] += e.n
		floats.AddScaled(p.mean.RawRowView(e.class), e.n, e.mean)
	}
	for y, n := range p.n {
		if n > 0 {
			floats.Scale(1/n, p.mean.RawRowView(y))
		}
	}
}

// seen returns the calibration points with their clients' shifts.
// It undoes the subtraction of pool, on a copy. The clients must be those of pool, in its order.
func (p *pooled) seen(clients []Client) *mat.Dense {
	out := mat.DenseCopyOf(p.rows)
	for i, m := range p.of {
		if b := clients[m].Shift; b != nil {
			floats.Add(out.RawRowView(i), b)
		}
	}
	return out
}

// total returns the images behind all class means, each client's by its share.
func (p *pooled) total() float64 { return floats.Sum(p.n) }

// addCalibration adds the calibration points to the moments of their clients, one at a time
// (Welford's update). Each counts by the share s of its client's images. With n images behind the
// client's mean of the class, and d the point less this mean,
//
//	S += s n/(n + s) d d',   mean += s/(n + s) d,   nu += s
//
// where the first and the last are of a class that the client holds.
func (p *pooled) addCalibration() {
	at := map[[2]int]int{}
	for i, e := range p.cells {
		at[[2]int{e.client, e.class}] = i
	}
	for i, y := range p.labels {
		key := [2]int{p.of[i], y}
		to, ok := at[key]
		if !ok {
			to, at[key] = len(p.cells), len(p.cells)
			p.cells = append(p.cells, cell{p.of[i], y, 0, make([]float64, p.k)})
		}
		e, share := &p.cells[to], p.shares[i]
		d := make([]float64, p.k)
		floats.SubTo(d, p.rows.RawRowView(i), e.mean)
		if e.n > 0 {
			p.scatter.SymRankOne(p.scatter, share*e.n/(e.n+share), mat.NewVecDense(p.k, d))
			p.dof += share
		}
		e.n += share
		floats.AddScaled(e.mean, share/e.n, d)
	}
	p.sum()
}

// CheckScatter returns an error where the clients' images differ within their classes by no more
// than rounding makes them.
// It costs as much as adding up the uploads, and factors no matrix.
func CheckScatter(clients []Client) error {
	p, err := pool(clients)
	if err == nil {
		_, _, err = p.scattered()
	}
	return err
}

// scattered returns the scatter of images within their classes, and its degrees of freedom. Of one
// image of each class at each client it is the scatter of these.
// Its trace over the degrees of freedom must exceed rounding^2 times the mean square norm of class
// means. A trace that is no number is refused too, as no comparison with it holds.
func (p *pooled) scattered() (*mat.SymDense, float64, error) {
	s, dof := p.scatter, p.dof
	if dof == 0 {
		s = mat.NewSymDense(p.k, nil)
		for _, e := range p.cells {
			d := make([]float64, p.k)
			floats.SubTo(d, e.mean, p.mean.RawRowView(e.class))
			s.SymRankOne(s, e.n, mat.NewVecDense(p.k, d))
		}
		dof = float64(len(p.cells) - held(p.n))
	}
	var squares float64
	for _, e := range p.cells {
		squares += e.n * floats.Dot(e.mean, e.mean)
	}
	if t := mat.Trace(s); !(t/dof > rounding*rounding*squares/p.total()) || math.IsInf(t, 0) {
		return nil, 0, fmt.Errorf("discriminant: the clients' images do not differ within their "+
			"classes, or by rounding alone (scatter of trace %v, %v degrees of freedom); send "+
			"more images a class, and if they have several, check that features depend on the "+
			"image: mean, std and layer of fmp fuse", t, dof)
	}
	return s, dof, nil
}

// within returns W of the inverse-Wishart posterior, its Cholesky factor, and tr(W^-1 S/nu)/k, the
// variance of one image in units of W. A scatter that is no covariance loses its negative
// directions first. The covariance of clients' shifts is added to W, and not to the variance.
// Eigenvalues are computed only where W has no Cholesky factor. The variance is 1e-6 at least.
func (p *pooled) within() (*mat.SymDense, *mat.Cholesky, float64, error) {
	s, dof, err := p.scattered()
	if err != nil {
		return nil, nil, 0, err
	}
	var chol mat.Cholesky
	w := p.smoothed(s, dof)
	if !chol.Factorize(w) {
		s = moment.WithoutNegative(s)
		if p.dof > 0 { // the heads read it too
			p.scatter = s
		}
		if w = p.smoothed(s, dof); !chol.Factorize(w) {
			return nil, nil, 0, errors.New("discriminant: the covariance within classes is not " +
				"positive definite")
		}
	}
	var inv mat.SymDense
	if err := chol.InverseTo(&inv); err != nil {
		return nil, nil, 0, fmt.Errorf("discriminant: covariance within classes: %w", err)
	}
	var of float64 // tr(W^-1 S)
	for i := range p.k {
		for j := range p.k {
			of += inv.At(i, j) * s.At(i, j)
		}
	}
	if p.effects != nil {
		if w.AddSym(w, p.effects); !chol.Factorize(w) {
			return nil, nil, 0, fmt.Errorf(
				"discriminant: the covariance of clients' shifts is none; leave out the client " +
					"that sent it")
		}
	}
	return w, &chol, max(of/dof/float64(p.k), 1e-6), nil
}

// smoothed returns the mode of W of scatter s and its prior: a multiple of I, and the corpus's.
// Without a corpus it is (S + nu0 t I)/(nu0 + dof), of t = tr S/(dof k) and nu0 = strength k.
// Without a corpus tr W/k is t: smoothing keeps the mean variance. dof counts as 1 at least in t.
func (p *pooled) smoothed(s *mat.SymDense, dof float64) *mat.SymDense {
	t := mat.Trace(s) / max(dof, 1) / float64(p.k)
	prior := strength * float64(p.k)
	w := mat.NewSymDense(p.k, nil)
	w.ScaleSym(1/(prior+dof), s)
	share := prior / (prior + dof)
	for i := range p.k {
		w.SetSym(i, i, w.At(i, i)+share*t)
	}
	p.prior.add(w, share*t)
	return w
}

// held returns the number of classes with images.
func held(n []float64) int {
	h := 0
	for _, v := range n {
		if v > 0 {
			h++
		}
	}
	return h
}

// head is the discriminant before temperature, and the terms of its uncertainty.
type head struct {
	chol           *mat.Cholesky
	within         *mat.SymDense
	origin         []float64  // m0
	away           *mat.Dense // C x k: m_c - m0; zeros of a class that nobody holds
	a              *mat.Dense // k x C: W^-1 (m_c - m0)
	bias           []float64  // [C]: -(m_c - m0)'a_c/2
	pseudo, spread float64    // n0, in images, and b
	separation     float64    // Q/b
	rowSpread      float64    // as spread, along the directions of single rows
}

// temperature returns T = max(kappa sqrt(Q b), b).
// The field separation is Q/b, so that b kappa sqrt(Q/b) is kappa sqrt(Q b).
func (h *head) temperature(kappa float64) float64 {
	return h.spread * max(kappa*math.Sqrt(h.separation), 1)
}

// head computes the discriminant; rows, if not nil, are those that errors of class means are
// measured along. Its cost is a Cholesky factor of [k, k] and C solves.
// Logits before temperature are (x - m0)'a_c + bias_c. The spread is measured along a less its mean
// over classes, as a term that all classes share moves no probability.
func (p *pooled) head(rows *mat.Dense) (*head, error) {
	within, chol, noise, err := p.within()
	if err != nil {
		return nil, err
	}
	h := &head{chol: chol, within: within, origin: make([]float64, p.k),
		away: mat.NewDense(p.c, p.k, nil), a: mat.NewDense(p.k, p.c, nil),
		bias: make([]float64, p.c)}
	if err := p.shrink(h, noise); err != nil {
		return nil, err
	}
	if err := chol.SolveTo(h.a, h.away.T()); err != nil {
		return nil, fmt.Errorf("discriminant: %w", err)
	}
	var separation float64 // Q
	for y := range p.c {
		q := mat.Dot(h.away.RowView(y), h.a.ColView(y))
		h.bias[y] = -q / 2
		separation += q / float64(held(p.n)) // 0 of a class that nobody holds
	}
	centred := mat.DenseCopyOf(h.a)
	for j := range p.k {
		row := centred.RawRowView(j)
		floats.AddConst(-floats.Sum(row)/float64(p.c), row)
	}
	h.spread = p.spread(h, centred)
	h.separation = separation / h.spread
	h.rowSpread = h.spread
	if rows != nil {
		const most = 40 // rows are enough for a mean over them
		r, _ := rows.Dims()
		r = min(r, most)
		d := mat.DenseCopyOf(rows.Slice(0, r, 0, p.k))
		for i := range r {
			floats.Sub(d.RawRowView(i), h.origin)
		}
		along := mat.NewDense(p.k, r, nil)
		if err := chol.SolveTo(along, d.T()); err != nil {
			return nil, fmt.Errorf("discriminant: %w", err)
		}
		h.rowSpread = p.spread(h, along)
	}
	return h, nil
}

// rounds of the estimate of n0, which weighs the classes that it is estimated from.
const rounds = 4

// shrink sets origin, pseudo and away. noise is tr(W^-1 S/nu)/k, the variance of one image in units
// of W. With w_c = n_c/(n_c + n0), w their sum, d_c = x̄_c - m0 and v_c = w_c (1 - w_c/w) it
// iterates
//
//	m0  = sum_c w_c x̄_c / w
//	tau = sum_c (w_c d_c'W^-1 d_c/k - v_c noise/n_c) / sum_c v_c,   noise/200 at least
//	n0  = caution noise/tau,   300 at most
//
// n0 starts at 8 images. A class without images has zeros in away, and no part in m0 and tau. The
// products W^-1 x̄_c are solved for once, so that an iteration costs O(C k). With a corpus the
// last step is the corpus's own shrinkage. Where the sum of v_c is 0, as with one class, the error
// is [ErrOneClass].
func (p *pooled) shrink(h *head, noise float64) error {
	h.pseudo = 8
	w, all := make([]float64, p.c), 0.0
	var solved mat.Dense // W^-1 m_y
	if err := h.chol.SolveTo(&solved, p.mean.T()); err != nil {
		return fmt.Errorf("discriminant: %w", err)
	}
	for range rounds {
		all = 0
		clear(h.origin)
		for y, n := range p.n {
			w[y] = n / (n + h.pseudo)
			all += w[y]
			floats.AddScaled(h.origin, w[y], p.mean.RawRowView(y))
		}
		floats.Scale(1/all, h.origin)
		for y, n := range p.n {
			row := h.away.RawRowView(y)
			clear(row)
			if n > 0 {
				floats.SubTo(row, p.mean.RawRowView(y), h.origin)
			}
		}
		var between, sampling, of float64
		for y, n := range p.n {
			if n == 0 {
				continue
			}
			// sum w (m_y - m0)'W^-1(m_y - m0), as sum w (m_y - m0) is 0
			q := mat.Dot(h.away.RowView(y), solved.ColView(y)) / float64(p.k)
			share := w[y] * (1 - w[y]/all)
			between, sampling, of = between+w[y]*q, sampling+noise*share/n, of+share
		}
		if of <= 0 {
			return fmt.Errorf("discriminant: %w", ErrOneClass)
		}
		tau := max((between-sampling)/of, noise/200)
		h.pseudo = caution * noise / tau
	}
	if p.prior != nil {
		origin := mat.NewVecDense(p.k, nil)
		origin.MulVec(&solved, mat.NewVecDense(p.c, w))
		solved.Apply(func(j, _ int, v float64) float64 { return v - origin.AtVec(j)/all }, &solved)
		return p.prior.shrink(h, &solved, p.n, noise, caution*noise/h.pseudo*float64(p.k))
	}
	for y, n := range p.n {
		floats.Scale(n/(n+h.pseudo), h.away.RawRowView(y))
	}
	return nil
}

// spread returns b, as posterior mean: the variance of clients' class means about those of all
// clients, times their images, along directions [k, r], in units of W. With N means of P classes it
// is
//
//	(sum_mc n_mc |(x̄_mc - x̄_c)'along|^2 / tr(along'W along) + asWithin) / (N - P + asWithin)
//
// over classes that two clients hold. Where no class has two clients it is 1: W itself.
// N - P are the degrees of freedom, as each class's mean is estimated from these N. It costs O((N +
// k) k r).
func (p *pooled) spread(h *head, along *mat.Dense) float64 {
	_, r := along.Dims()
	var diffs []float64
	classes := map[int]bool{}
	rows := 0
	for _, e := range p.cells {
		if p.n[e.class] <= e.n {
			continue
		}
		d := make([]float64, p.k)
		floats.SubTo(d, e.mean, p.mean.RawRowView(e.class))
		floats.Scale(math.Sqrt(e.n), d)
		diffs, rows, classes[e.class] = append(diffs, d...), rows+1, true
	}
	if rows <= len(classes) {
		return 1
	}
	var e, wa mat.Dense
	e.Mul(mat.NewDense(rows, p.k, diffs), along)
	wa.Mul(h.within, along)
	var sum, unit float64
	for i := range rows {
		sum += floats.Dot(e.RawRowView(i), e.RawRowView(i))
	}
	for j := range p.k {
		unit += floats.Dot(wa.RawRowView(j), along.RawRowView(j)[:r])
	}
	if !(unit > 0) || !(sum > 0) {
		return 1
	}
	return (sum/unit + asWithin) / (float64(rows-len(classes)) + asWithin)
}

// asWithin is the prior of the spread: class means of as many further clients that differ as W
// says. Of one class that two clients hold, the spread alone is .04 to 4.5 where 1 is right. Over
// 40 such rounds mean NLL is .283 without, .223 with 4 and .222 with 10 (docs/notes/moments.md).
const asWithin = 4

// grid is the number of values of kappa that are weighed, up to three deviations of its prior's
// logarithm to both sides.
const grid = 41

// calibrate returns values of kappa, their posterior weights given the calibration points, which
// take no part in h, and the log evidence, in nats, up to a constant of the grid. A value z
// deviations from the prior's median has the weight exp(pointWeight l - z^2/2), with l the
// log-likelihood of the points.
// The weights sum to 1. Values ascend evenly in their logarithm.
func (p *pooled) calibrate(h *head,
	o Options) (kappas, weights []float64, evidence float64, err error) {
	kappas = make([]float64, grid)
	for g := range kappas {
		kappas[g] = o.Kappa.Median * math.Exp(deviations(g)*o.Kappa.Deviation)
	}
	if weights, err = p.logLikelihood(h, p.rows, p.labels, kappas, o); err != nil {
		return nil, nil, 0, err
	}
	for g := range weights {
		off := deviations(g)
		weights[g] = pointWeight*weights[g] - off*off/2
	}
	top := floats.LogSumExp(weights)
	for g := range weights {
		weights[g] = math.Exp(weights[g] - top)
	}
	return kappas, weights, top, nil
}

// deviations returns how far from the median of its prior value g of the grid lies.
// It is -3 at 0 and 3 at grid - 1, in even steps.
func deviations(g int) float64 { return 3 * (2*float64(g)/(grid-1) - 1) }

// logLikelihood returns the log-likelihood of labelled rows at each value of kappa, over draws of
// the class means. The logit of a row x has the variance, over draws,
//
//	Tempering rowSpread (x - m0)'W^-1 (x - m0) / (n_c + n0)
//
// and the draws of classes are independent.
// Every kappa has the same draws, so that values differ by kappa alone. A probability counts as
// 1e-12 at least: one image costs 28 nats at most. It costs O(G n draws C) for G values.
func (p *pooled) logLikelihood(h *head, rows *mat.Dense, labels []int, kappas []float64,
	o Options) ([]float64, error) {
	n := len(labels)
	draws := max(4, 1600/n) // many rows average out what few draws miss
	d := mat.DenseCopyOf(rows)
	for i := range n {
		floats.Sub(d.RawRowView(i), h.origin)
	}
	var solved, scores mat.Dense
	if err := h.chol.SolveTo(&solved, d.T()); err != nil {
		return nil, fmt.Errorf("discriminant: %w", err)
	}
	scores.Mul(d, h.a)
	sd := make([]float64, n*p.c)
	for i := range n {
		far := mat.Dot(d.RowView(i), solved.ColView(i))
		z := scores.RawRowView(i)
		for y := range z {
			z[y] += h.bias[y]
			sd[i*p.c+y] = math.Sqrt(Tempering * h.rowSpread * far / (p.n[y] + h.pseudo))
		}
	}
	eps := make([]float32, draws*p.c)
	rng.Normal(rng.New(o.Seed, o.Stream, "calibration"), eps)
	out, logit := make([]float64, len(kappas)), make([]float64, p.c)
	for g, kappa := range kappas {
		t := h.temperature(kappa)
		for i, y := range labels {
			z := scores.RawRowView(i)
			var prob float64
			for s := range draws {
				for c := range logit {
					logit[c] = (z[c] + sd[i*p.c+c]*float64(eps[s*p.c+c])) / t
				}
				prob += math.Exp(logit[y] - floats.LogSumExp(logit))
			}
			out[g] += math.Log(max(prob/float64(draws), 1e-12))
		}
	}
	return out, nil
}

// quantiles returns one kappa a sample, stratified over its posterior, in an order of the seed's.
// Sample s has the quantile (s + 1/2)/S before they are shuffled.
// The last value takes the quantiles that rounding leaves beyond the sum of the weights.
func quantiles(kappas, weights []float64, o Options) []float64 {
	out := make([]float64, o.Samples)
	at, below := 0, 0.0
	for s := range out {
		u := (float64(s) + 0.5) / float64(o.Samples)
		for at < len(weights)-1 && below+weights[at] < u {
			below += weights[at]
			at++
		}
		out[s] = kappas[at]
	}
	r := rng.New(o.Seed, o.Stream, "kappa")
	r.Shuffle(len(out), func(i, j int) { out[i], out[j] = out[j], out[i] })
	return out
}

// draw returns one head for each kappa: class means are drawn in antithetic pairs, as N(m_c,
// Tempering rowSpread/(n_c + n0) W). Both heads of a pair have the same noise with opposite signs.
// The last of an odd number of heads has no partner. A context that is done ends the work between
// two heads.
func (p *pooled) draw(ctx context.Context, h *head, kappas []float64,
	o Options) ([]erm.Theta, error) {
	heads := make([]erm.Theta, len(kappas))
	noise := make([]float32, p.k*p.c)
	r := rng.New(o.Seed, o.Stream, "latent")
	e := mat.NewDense(p.k, p.c, nil)
	var upper mat.TriDense
	h.chol.UTo(&upper)
	for s := range heads {
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		sign := 1.0
		if s%2 == 0 { // W^-1 eps of eps ~ N(0, W) is U^-1 z with W = U'U
			rng.Normal(r, noise)
			for i, v := range noise {
				variance := Tempering * h.rowSpread / (p.n[i%p.c] + h.pseudo)
				e.Set(i/p.c, i%p.c, float64(v)*math.Sqrt(variance))
			}
			blas64.Trsm(blas.Left, blas.NoTrans, 1, upper.RawTriangular(), e.RawMatrix())
		} else {
			sign = -1
		}
		heads[s] = p.at(h, e, sign, h.temperature(kappas[s]))
		if o.Drawn != nil {
			o.Drawn(s+1, len(heads))
		}
	}
	return heads, nil
}

// at returns the head of class means m0 + away + sign W e, at a temperature. Its weights are
// (a + sign e)/T, with e [k, C].
// Row k holds the intercepts b_c/T, with away_c the shrunk m_c - m0 and
//
//	b_c = -away_c'a_c/2 - sign away_c'e_c - m0'(a_c + sign e_c)
func (p *pooled) at(h *head, e *mat.Dense, sign, temperature float64) erm.Theta {
	t := erm.Theta{D: p.k + 1, C: p.c, W: make([]float64, (p.k+1)*p.c)}
	bias := slices.Clone(h.bias)
	for j := range p.k {
		row := t.Row(j)
		for y := range p.c {
			de := sign * e.At(j, y)
			row[y] = (h.a.At(j, y) + de) / temperature
			// The square of the draw is left out: it is a constant of the class, on average, and
			// larger where little is known.
			bias[y] -= h.away.At(y, j)*de + h.origin[j]*(h.a.At(j, y)+de)
		}
	}
	for y, v := range bias {
		t.Row(p.k)[y] = v / temperature
	}
	return t
}
