package discriminant

import (
	"cmp"
	"fmt"
	"math"
	"slices"

	"gonum.org/v1/gonum/blas"
	"gonum.org/v1/gonum/blas/blas64"
	"gonum.org/v1/gonum/floats"
	"gonum.org/v1/gonum/mat"
	"gonum.org/v1/gonum/stat"

	"fmp/pipeline/honesty"
	"fmp/pipeline/internal/moment"
)

// Judges are clients by whose moments those of further clients are weighed.
type Judges struct {
	p          *pooled
	h          *head
	along      *mat.Dense // directions, [k, r]
	first      int        // of them those in which classes lie apart
	deviations []float64
	all        tally
	clients    int
}

// NewJudges returns the clients as judges of further ones, their class means as package honesty
// weighs them, with masses as claimed, and the variances of class means.
//
// Coordinates are the directions v_j in which the classes of all clients lie apart: those of the
// discriminant, whose values are those of the Gram matrix (m_c - m0)'W^-1(m_d - m0). Mislabelled
// means leave their span as it is. Each is measured in its standard deviation within classes, that
// of the median client: a false scatter moves the median little. The scatter is judged by the same
// numbers ([scatterOdds]). That of improper clients ([Improper]) is not read, and they are bad.
//
// Further coordinates are random directions of the space in which W is I ([scattered]). False means
// hide from the directions of true ones, not from those: the noise of a mean of n images has 1/n of
// their variance.
func NewJudges(clients []Client) (by *Judges, u honesty.Uploads, lambda []float64, err error) {
	p, clients, improper, err := properPool(clients)
	if err != nil {
		return nil, u, nil, err
	}
	p.addCalibration()
	h, err := p.head(nil)
	if err != nil {
		return nil, u, nil, err
	}
	v, values, err := directions(h)
	if err != nil {
		return nil, u, nil, err
	}
	_, first := v.Dims()
	along := scattered(h, v)
	_, r := along.Dims()
	deviations, odds := scatters(clients, along, first)
	p.labelOdds(h, odds)
	for m, bad := range improper {
		if bad {
			odds[m] = math.Inf(-1)
		}
	}
	by = &Judges{p: p, h: h, along: along, first: first, deviations: deviations,
		clients: len(clients)}
	u = by.claims(p, clients)
	u.Odds = odds
	by.all = newTally(p.c, r-first)
	for m, client := range clients {
		by.all.add(&u, m, first, cmp.Or(client.Share, 1))
	}
	for m, client := range clients {
		by.all.centre(&u, m, first, cmp.Or(client.Share, 1))
	}
	if r > first {
		values = append(values, slices.Repeat([]float64{squares(h, along, first)}, r-first)...)
	}
	lambda = make([]float64, r)
	for j, value := range values {
		lambda[j] = max(value/float64(held(p.n))/(deviations[j]*deviations[j]), minVariance)
	}
	u.Wide = honesty.IsWide(p.c, first)
	return by, u, lambda, nil
}

// claims returns the cells of clients as masses and coordinates.
func (by *Judges) claims(p *pooled, clients []Client) honesty.Uploads {
	_, r := by.along.Dims()
	u := honesty.Uploads{Clients: len(clients), Classes: p.c, K: r}
	u.Masses, u.Means = make([]float64, len(clients)*p.c), make([]float64, len(clients)*p.c*r)
	d, at := make([]float64, p.k), mat.NewVecDense(r, nil)
	for _, e := range p.cells {
		floats.SubTo(d, e.mean, by.h.origin)
		at.MulVec(by.along.T(), mat.NewVecDense(p.k, d))
		i := e.client*p.c + e.class
		u.Masses[i] = e.n / cmp.Or(clients[e.client].Share, 1)
		floats.DivTo(u.Means[i*r:(i+1)*r], at.RawVector().Data, by.deviations)
	}
	return u
}

// Claims returns the class means of a further client, as [NewJudges] does, with the log odds of
// honesty that its scatter and its calibration points tell: -Inf where the scatter, beside that of
// a mean judge, is no covariance.
func (by *Judges) Claims(client Client) (honesty.Uploads, error) {
	clients := []Client{client}
	p, err := pool(clients)
	if err == nil && (p.k != by.p.k || p.c != by.p.c) {
		err = fmt.Errorf("discriminant: %d numbers and %d classes; the judges have %d and %d", p.k,
			p.c, by.p.k, by.p.c)
	}
	if err != nil {
		return honesty.Uploads{}, err
	}
	odds := make([]float64, 1)
	if client.Within.Dof > 0 {
		odds[0] = scatterOdds(variances(client, by.along)[:by.first], by.deviations,
			client.Within.Dof)
	}
	if client.Within.Rank == 0 && client.Within.Dof > 0 {
		beside := mat.NewSymDense(p.k, nil)
		beside.ScaleSym(1/float64(by.clients), by.p.scatter)
		beside.AddSym(beside, p.scatter)
		// as in [Improper]
		prior := strength * mat.Trace(by.p.scatter) / max(by.p.dof, 1) / float64(by.clients)
		for i := range p.k {
			beside.SetSym(i, i, beside.At(i, i)+prior)
		}
		var chol mat.Cholesky
		if !chol.Factorize(beside) {
			odds[0] = math.Inf(-1)
		}
	}
	p.labelOdds(by.h, odds)
	p.addCalibration()
	u := by.claims(p, clients)
	u.Odds = odds
	all := by.all.clone()
	all.add(&u, 0, by.first, cmp.Or(client.Share, 1))
	all.centre(&u, 0, by.first, cmp.Or(client.Share, 1))
	return u, nil
}

// Constants of the random directions, chosen on ten classes of CIFAR-100 behind a pretrained
// network (docs/notes/moments.md).
const (
	maxRandom = 64
	// tightness is that by which standard deviations along them are divided. At 1 false means pass
	// more often: NLL under noise is .878 in place of .732. At 1.5 and more honest clients are
	// lost.
	tightness = 1.25
)

// scattered returns directions, [k, r], followed by random ones in which W is I: as many as there
// are directions beyond the principal ones, [maxRandom] at most. Their coordinates of class means
// are independent and alike.
func scattered(h *head, v *mat.Dense) *mat.Dense {
	k, r := v.Dims()
	n := min(k-leading, maxRandom)
	if n <= 0 {
		return v
	}
	q := moment.Orthonormal(gaussian(k, n, 2))
	var upper mat.TriDense
	h.chol.UTo(&upper)
	// U^-1 q has covariance I, with W = U'U
	blas64.Trsm(blas.Left, blas.NoTrans, 1, upper.RawTriangular(), q.RawMatrix())
	out := mat.NewDense(k, r+n, nil)
	out.Augment(v, q)
	return out
}

// tally holds the images of each class that count, and the sums of their coordinates from one on.
type tally struct {
	k      int
	n, sum []float64 // [classes], [classes, k]
}

func newTally(classes, k int) tally {
	return tally{k, make([]float64, classes), make([]float64, classes*k)}
}

func (t tally) clone() tally { return tally{t.k, slices.Clone(t.n), slices.Clone(t.sum)} }

// of returns a client's images of a class that count, and their coordinates from a number on.
func (t tally) of(u *honesty.Uploads, m, c, from int, share float64) (float64, []float64) {
	i := m*u.Classes + c
	return u.Masses[i] * share, u.Means[i*u.K+from:][:t.k]
}

// add adds a client of which a share of the images counts.
func (t tally) add(u *honesty.Uploads, m, from int, share float64) {
	for c := range t.n {
		mass, at := t.of(u, m, c, from, share)
		t.n[c] += mass
		floats.AddScaled(t.sum[c*t.k:][:t.k], mass, at)
	}
}

// centre takes a client's shift, a vector that all of its class means share, as images of another
// camera have, out of their coordinates from number from on. A class mean differs from that of the
// other clients by the shift, which is N(0, 0.3 I) as far as class means of many images may differ,
// and by noise. Each is told the shift by the client's other classes: a lie about one class stays.
// With a_c the precision of its mean of n images (honesty.Precision), and d_c that mean less the
// others', the shift taken from class c is
//
//	sum_{y != c} a_y d_y / (1/0.3 + sum_{y != c} a_y)
func (t tally) centre(u *honesty.Uploads, m, from int, share float64) {
	// off: differences, by their precision
	precision, off := make([]float64, len(t.n)), make([]float64, len(t.sum))
	all := make([]float64, t.k)
	total := honesty.Precision(math.Inf(1))
	for c := range t.n {
		mass, at := t.of(u, m, c, from, share)
		if rest := t.n[c] - mass; mass > 0 && rest > 0 {
			a, d := honesty.Precision(mass), off[c*t.k:][:t.k]
			precision[c], total = a, total+a
			// less the mean of the rest, (sum - mass mean)/rest
			floats.AddScaled(d, a*(1+mass/rest), at)
			floats.AddScaled(d, -a/rest, t.sum[c*t.k:][:t.k])
			floats.Add(all, d)
		}
	}
	for c := range t.n {
		if mass, at := t.of(u, m, c, from, share); mass > 0 {
			scale := 1 / (total - precision[c])
			floats.AddScaled(at, -scale, all)
			floats.AddScaled(at, scale, off[c*t.k:][:t.k])
		}
	}
}

// squares returns the sum of squares of the class means along random directions, which start at
// column from of v, on average.
func squares(h *head, v *mat.Dense, from int) float64 {
	k, r := v.Dims()
	var on mat.Dense
	on.Mul(h.away, v.Slice(0, k, from, r))
	norm := mat.Norm(&on, 2)
	return norm * norm / float64(r-from)
}

// Improper reports for each client whether its scatter is no covariance: it has directions so
// negative that the covariance of all clients could have them. It is nil where all of them together
// make one.
func Improper(clients []Client) ([]bool, error) {
	_, _, improper, err := properPool(clients)
	return improper, err
}

// properPool pools clients without the scatter of those that are improper ([Improper]), and returns
// them so.
func properPool(clients []Client) (p *pooled, kept []Client, improper []bool, err error) {
	if p, err = pool(clients); err != nil {
		return nil, nil, nil, err
	}
	var chol mat.Cholesky
	if p.dof == 0 || chol.Factorize(p.smoothed(p.scatter, p.dof)) {
		return p, clients, nil, nil
	}
	improper = make([]bool, len(clients))
	// each client's part of nu0 t
	prior := strength * mat.Trace(p.scatter) / p.dof / float64(len(clients))
	kept = slices.Clone(clients)
	for m, u := range clients {
		raw := u.Within.Whole()
		floats.Scale(cmp.Or(u.Share, 1), raw)
		for i := range p.k {
			raw[i*p.k+i] += prior
		}
		if improper[m] = !chol.Factorize(mat.NewSymDense(p.k, raw)); improper[m] {
			own := *u.Within
			own.Rank, own.Dof, own.Data = 0, 0, nil
			kept[m].Within = &own
		}
	}
	p, err = pool(kept)
	return p, kept, improper, err
}

// minVariance is the lower bound of the variances of class means, for directions in which they
// hardly differ.
const minVariance = 1e-3

// directions returns directions, [k, r], in which W is I and the class means are uncorrelated, and
// the sums of squares of the means along them, in descending order. They are of the span of W's
// [leading] principal directions, which class means had no part in: in all of many coordinates the
// means of few images lie apart by their noise, and a second client of a class would seem to
// contradict the first. With L L' = W in the span, they are L^-T times the eigenvectors of A A'
// with A = L^-1 M', where M are the means: of the span's dimensions, however many the classes.
func directions(h *head) (*mat.Dense, []float64, error) {
	k, c := h.a.Dims()
	q := principal(h.within, min(k, leading))
	var on, inner, means, product mat.Dense
	on.Mul(h.within, q)
	inner.Mul(q.T(), &on)
	means.Mul(h.away, q)
	var chol mat.Cholesky
	if !chol.Factorize(moment.Symmetric(&inner)) {
		return nil, nil, fmt.Errorf("discriminant: the principal directions of the covariance " +
			"are dependent; check the uploads for numbers out of range")
	}
	var lower mat.TriDense
	chol.LTo(&lower)
	var a, back mat.Dense
	if err := a.Solve(&lower, means.T()); err != nil {
		return nil, nil, fmt.Errorf("discriminant: %w", err)
	}
	product.Mul(&a, a.T())
	values, vectors, ok := moment.Eigen(moment.Symmetric(&product))
	if !ok {
		return nil, nil, fmt.Errorf("discriminant: the eigenvalues of the class means did not " +
			"converge; check the uploads for numbers out of range")
	}
	slices.Reverse(values)
	r := 1
	for r < min(c-1, honesty.Leading, len(values)) && values[r] > 1e-6*values[0] {
		r++
	}
	if err := back.Solve(lower.T(), moment.Leading(vectors, r)); err != nil {
		return nil, nil, fmt.Errorf("discriminant: %w", err)
	}
	v := mat.NewDense(k, r, nil)
	v.Mul(q, &back)
	return v, values[:r], nil
}

// leading is the number of principal directions in which clients are judged, chosen on ten classes
// of CIFAR-100 behind a pretrained network. 32 are worse under attack: NLL with flipped labels is
// 1.092 with them and .857 with 96 (docs/notes/moments.md).
const leading = 96

// principal returns r orthonormal principal directions of a covariance, [k, r], by subspace
// iteration.
func principal(w *mat.SymDense, r int) *mat.Dense {
	k := w.SymmetricDim()
	if r == k {
		return mat.DenseCopyOf(mat.NewDiagDense(k, slices.Repeat([]float64{1}, k)))
	}
	q := gaussian(k, r, 1)
	for range 2 * turns {
		var on mat.Dense
		on.Mul(w, q)
		q = moment.Orthonormal(&on)
	}
	return q
}

// scatters returns the standard deviation within classes along each direction, that of the median
// client by degrees of freedom (1 where no client has any), and each client's [scatterOdds] along
// the first directions, in which the classes lie apart. Those that follow are alike: they share one
// deviation.
func scatters(clients []Client, v *mat.Dense, apart int) (deviations, odds []float64) {
	_, r := v.Dims()
	along := make([][]float64, len(clients)) // variances of each client
	weights := make([]float64, len(clients))
	for m, u := range clients {
		if u.Within.Dof == 0 {
			continue
		}
		along[m] = variances(u, v)
		if alike := along[m][apart:]; len(alike) > 0 {
			mean := stat.Mean(alike, nil)
			for j := range alike {
				alike[j] = mean / (tightness * tightness)
			}
		}
		weights[m] = cmp.Or(u.Share, 1) * float64(u.Within.Dof)
	}
	deviations, odds = make([]float64, r), make([]float64, len(clients))
	of := make([]float64, len(clients))
	for j := range deviations {
		deviations[j] = 1
		for m, a := range along {
			if of[m] = 0; a != nil {
				of[m] = a[j]
			}
		}
		if t := median(of, weights); t > 0 {
			deviations[j] = math.Sqrt(t)
		}
	}
	for m, a := range along {
		if a != nil {
			odds[m] = scatterOdds(a[:apart], deviations, clients[m].Within.Dof)
		}
	}
	return deviations, odds
}

// variances returns the client's variances within classes along directions.
func variances(u Client, v *mat.Dense) []float64 {
	k, r := v.Dims()
	out := make([]float64, r)
	if n := u.Within.Rank; n > 0 {
		var on mat.Dense
		on.Mul(moment.Rows(u.Within.Data, k), v)
		for i := range n {
			for j, f := range on.RawRowView(i) {
				out[j] += f * f
			}
		}
	} else {
		var on mat.Dense
		on.Mul(mat.NewSymDense(k, u.Within.Whole()), v)
		for i := range k {
			for j, f := range on.RawRowView(i) {
				out[j] += f * v.At(i, j)
			}
		}
	}
	floats.Scale(1/float64(u.Within.Dof), out)
	return out
}

// Constants of scatterOdds and labelOdds.
const (
	// logSpread is the standard deviation of the log of honest clients' variances along a
	// direction, as their classes differ. False ones have logFalse beside it.
	logSpread = 0.7
	logFalse  = 4.0
	// falseShare is the probability that a bad client's scatter is false, and that the classes of
	// its calibration points are.
	falseShare = 0.5
	// least bounds a ratio of variances, whose logarithm is told.
	least = 1e-6
)

// scatterOdds returns the log odds of honesty that a client's variances along r directions tell.
// Their logarithms, less those of the median client, are N(0, s^2 + 2/dof) of an honest client and,
// of a bad one, with one half the same and with one half of the standard deviation [logFalse]. The
// largest of them counts alone: a client's directions are alike, and a false scatter may be true of
// all but one. With h = s^2 + 2/dof, w = logFalse^2 + h and l the largest logarithm
//
//	odds = -log(1/2 + 1/2 exp(l^2/2 (1/h - 1/w) - log(w/h)/2)),   s = logSpread
func scatterOdds(variances, deviations []float64, dof int) float64 {
	honest := logSpread*logSpread + 2/float64(dof)
	wide := logFalse*logFalse + honest
	var most float64
	for j, s := range variances {
		l := math.Log(max(s/(deviations[j]*deviations[j]), least))
		most = max(most, l*l)
	}
	ratio := 0.5*most*(1/honest-1/wide) - 0.5*math.Log(wide/honest)
	return -math.Log(1 - falseShare + falseShare*math.Exp(min(ratio, 700)))
}

// minLabel is the lower bound of a calibration point's probability of its class, as a share of that
// of a class named at random.
const minLabel = 0.01

// labelOdds adds the log likelihood ratio of the classes of its calibration points to each client's
// odds: of an honest client they have the probabilities of the discriminant of all clients; of a
// bad one, with one half the same, and with one half they are named at random. With p_i the
// probability of point i's class under the discriminant, minLabel/C at least, it subtracts
//
//	log(1/2 + 1/2 prod_i (1/C)/p_i)
func (p *pooled) labelOdds(h *head, odds []float64) {
	chance := -math.Log(float64(p.c))
	least := chance + math.Log(minLabel)
	t := h.temperature(Unknown.Median)
	random := make([]float64, len(odds))
	logit, d := make([]float64, p.c), make([]float64, p.k)
	for i, y := range p.labels {
		floats.SubTo(d, p.rows.RawRowView(i), h.origin)
		mat.NewVecDense(p.c, logit).MulVec(h.a.T(), mat.NewVecDense(p.k, d))
		floats.Add(logit, h.bias)
		floats.Scale(1/t, logit)
		random[p.of[i]] += chance - max(logit[y]-floats.LogSumExp(logit), least)
	}
	for m, ratio := range random {
		odds[m] -= math.Log(1 - falseShare + falseShare*math.Exp(ratio))
	}
}

// median returns the weighted lower median of numbers.
func median(x, weights []float64) float64 {
	order := make([]int, 0, len(x))
	var total float64
	for i, w := range weights {
		if w > 0 {
			order, total = append(order, i), total+w
		}
	}
	slices.SortStableFunc(order, func(a, b int) int { return cmp.Compare(x[a], x[b]) })
	var below float64
	for _, i := range order {
		if below += weights[i]; 2*below >= total {
			return x[i]
		}
	}
	return 0
}
