package effect

import (
	"fmt"
	"math"

	"gonum.org/v1/gonum/floats"
	"gonum.org/v1/gonum/mat"
)

const (
	// rounds is the number of variational steps; the covariance changes by less than a hundredth
	// after about ten.
	rounds = 20
	// pseudo is the number of cells by which a client's own noise is shrunk toward that of all, and
	// of clients by which the covariance of effects is shrunk toward a multiple of I.
	pseudo = 2
)

// shrinkage is the model of a round in which most clients have an effect: with u_mc = x_mc less the
// mean of all,
//
//	u_mc = mu_c + b_m + e_mc,  mu_c ~ N(0, t I),  b_m ~ N(0, T),  e_mc ~ N(0, s_m^2 I / a_mc)
//	T    = U diag(l) U' + t0 I
//
// q(mu) q(b) maximizes the evidence lower bound, t, T and s_m its value (empirical Bayes; Bishop
// 2006, section 10.1). T is of low rank plus a multiple of I: U spans the posterior means of
// effects. A client whose class means differ from the others' each in its own way has a large s_m,
// so that it counts little and has a small effect.
type shrinkage struct {
	cells   [][]cell
	shift   [][]float64 // posterior means of b_m
	noise   []float64   // s_m^2
	mean    [][]float64 // posterior means of mu_c, plus the mean of all
	vary    []float64   // posterior variances of mu_c
	between float64     // t
	basis   *mat.Dense  // U [k, r]
	along   []float64   // l + t0 [r]
	rest    float64     // t0
	k       int
	centre  []float64 // the mean of all
	form    form
}

// form is that of T.
type form int

const (
	lowRank   form = iota // U diag(l) U' + t0 I
	isotropic             // t0 I
	none                  // 0
)

// fitted fits the model to the cells of clients that are in. t, t0 and the noise start at a third,
// a tenth and a half of the variance of class means. A fixed number of [rounds] follows.
// Means that are all alike are an error, as all variances would start at 0.
func fitted(cells [][]cell, classes, k int, of form) (*shrinkage, error) {
	s := &shrinkage{form: of, cells: cells, k: k, shift: make([][]float64, len(cells)),
		noise: make([]float64, len(cells)),
		mean:  make([][]float64, classes), vary: make([]float64, classes)}
	var total, square float64
	centre := make([]float64, k)
	for _, of := range cells {
		for _, l := range of {
			total += l.a
			floats.AddScaled(centre, l.a, l.x)
		}
	}
	floats.Scale(1/total, centre)
	off := make([]float64, k)
	for _, of := range cells {
		for _, l := range of {
			floats.SubTo(off, l.x, centre)
			square += l.a * floats.Dot(off, off) / total / float64(k)
		}
	}
	if !(square > 0) {
		return nil, fmt.Errorf("client effects: all class means are alike")
	}
	s.between, s.rest, s.centre = square/3, square/10, centre
	if of == none {
		s.rest = 0
	}
	for m := range cells {
		s.shift[m], s.noise[m] = make([]float64, k), square/2
	}
	for range rounds {
		s.classes(centre)
		if err := s.clients(); err != nil {
			return nil, err
		}
	}
	return s, nil
}

// classes updates q(mu) and t. With m the mean of all and p_c = sum_m a_mc/s_m^2
//
//	v_c = 1/(p_c + 1/t),   mu_c - m = v_c sum_m a_mc/s_m^2 (x_mc - b_m - m)
//	t   = mean_c (|mu_c - m|^2/k + v_c)
//
// A class without a cell counts in no average.
func (s *shrinkage) classes(centre []float64) {
	precision, held := make([]float64, len(s.mean)), 0
	for y := range s.mean {
		s.mean[y] = make([]float64, s.k)
	}
	for m, of := range s.cells {
		for _, l := range of {
			w := l.a / s.noise[m]
			precision[l.class] += w
			row := s.mean[l.class]
			floats.AddScaled(row, w, l.x)
			floats.AddScaled(row, -w, s.shift[m])
		}
	}
	var sum float64
	for y, w := range precision {
		if w == 0 {
			continue
		}
		held++
		floats.AddScaled(s.mean[y], -w, centre)
		s.vary[y] = 1 / (w + 1/s.between)
		floats.Scale(s.vary[y], s.mean[y])
		sum += floats.Dot(s.mean[y], s.mean[y])/float64(s.k) + s.vary[y]
		floats.Add(s.mean[y], centre)
	}
	s.between = sum / float64(held)
}

// clients updates q(b), T and the noise of clients. With p_m = sum_c a_mc/s_m^2, N_m cells of
// client m, and s^2 that of all clients together
//
//	Cov b_m = (p_m I + T^-1)^-1,   b_m = Cov b_m sum_c a_mc/s_m^2 (x_mc - mu_c)
//	r_m     = sum_c a_mc (|x_mc - mu_c - b_m|^2 + k v_c + tr Cov b_m)
//	s_m^2   = (r_m + pseudo k s^2) / (k (N_m + pseudo))
//
// A client without cells has no effect, and no part in T.
func (s *shrinkage) clients() error {
	clients := len(s.cells)
	spread := make([]float64, clients) // tr Cov(b_m)
	sums := make([]float64, len(s.along))
	var rest float64 // sum of the variances of b_m outside U
	for m, of := range s.cells {
		var precision float64
		b := make([]float64, s.k)
		for _, l := range of {
			w := l.a / s.noise[m]
			precision += w
			floats.AddScaled(b, w, l.x)
			floats.AddScaled(b, -w, s.mean[l.class])
		}
		if s.form == none || len(of) == 0 { // clients that are left out say nothing of T
			s.shift[m] = b
			clear(b)
			continue
		}
		s.posterior(b, precision)
		s.shift[m] = b
		for j, v := range s.along {
			v = 1 / (precision + 1/v)
			sums[j] += v
			spread[m] += v
		}
		v := 1 / (precision + 1/s.rest)
		rest += v
		spread[m] += float64(s.k-len(s.along)) * v
	}
	switch s.form {
	case lowRank:
		s.centred()
		if err := s.covariance(sums, rest); err != nil {
			return err
		}
	case isotropic:
		s.centred()
		s.rest = s.variance(rest)
	}
	var sum, of float64
	own := make([]float64, clients)
	off := make([]float64, s.k)
	for m, cells := range s.cells {
		for _, l := range cells {
			floats.SubTo(off, l.x, s.mean[l.class])
			floats.Sub(off, s.shift[m])
			own[m] += l.a * (floats.Dot(off, off) + float64(s.k)*s.vary[l.class] + spread[m])
		}
		sum, of = sum+own[m], of+float64(len(cells)*s.k)
	}
	for m, cells := range s.cells {
		s.noise[m] = (own[m] + pseudo*float64(s.k)*sum/of) /
			(float64(len(cells)+pseudo) * float64(s.k))
	}
	return nil
}

// variance returns t0 of T = t0 I, given the sum over clients of the posterior variances of
// effects. It is (sum_m |b_m|^2/k + sum)/M over M clients with cells, the maximum of the bound in
// t0.
func (s *shrinkage) variance(sum float64) float64 {
	var squares, held float64
	for m, b := range s.shift {
		if len(s.cells[m]) > 0 {
			held++
			squares += floats.Dot(b, b) / float64(s.k)
		}
	}
	return max((squares+sum)/held, math.SmallestNonzeroFloat32)
}

// posterior replaces the precision-weighted sum of a client's differences by the posterior mean of
// its effect. Along column u_j of U the factor is 1/(p + 1/l_j), outside of U it is 1/(p + 1/t0).
// It costs O(k rank).
func (s *shrinkage) posterior(b []float64, precision float64) {
	outside := 1 / (precision + 1/s.rest)
	if s.basis == nil {
		floats.Scale(outside, b)
		return
	}
	var at, in mat.VecDense
	at.MulVec(s.basis.T(), mat.NewVecDense(s.k, b))
	for j, v := range s.along {
		at.SetVec(j, at.AtVec(j)*(1/(precision+1/v)-outside))
	}
	in.MulVec(s.basis, &at)
	floats.Scale(outside, b)
	floats.Add(b, in.RawVector().Data)
}

// centred moves the mean of the effects to the classes' means, of which the data tell only the sum.
// Every difference x_mc - mu_c - b_m stays as it is.
func (s *shrinkage) centred() {
	mean := make([]float64, s.k)
	held := 0
	for m, b := range s.shift {
		if len(s.cells[m]) > 0 {
			held++
			floats.Add(mean, b)
		}
	}
	floats.Scale(1/float64(held), mean)
	for m, b := range s.shift {
		if len(s.cells[m]) > 0 {
			floats.Sub(b, mean)
		}
	}
	for _, row := range s.mean {
		floats.Add(row, mean)
	}
}

// covariance updates T, given the sums over clients of the posterior variances of effects along U,
// and outside it. Of M clients it is the mean of b_m b_m' + Cov b_m, of low rank plus a multiple of
// I. Each of its variances l is drawn to their mean v, as (M l + pseudo v)/(M + pseudo).
// Before that, along u_j, it is (sigma_j^2 + sum_m u_j'Cov b_m u_j)/M, with sigma_j the singular
// value of the rows b_m. U has M - 1 columns at most, as the effects are centred.
func (s *shrinkage) covariance(along []float64, outside float64) error {
	var held []float64
	clients := 0
	for m, b := range s.shift {
		if len(s.cells[m]) > 0 {
			held = append(held, b...)
			clients++
		}
	}
	all, values, err := principal(mat.NewDense(clients, s.k, held))
	if err != nil {
		return err
	}
	rank := min(len(values), clients-1, s.k)
	u := mat.DenseCopyOf(all.Slice(0, s.k, 0, rank))
	// The posterior covariance along the new basis: outside + sum of (along - outside) (U_old'
	// u)^2.
	next := make([]float64, rank)
	var turned mat.Dense
	if s.basis != nil {
		turned.Mul(s.basis.T(), u)
	}
	trace := outside * float64(s.k-len(along))
	for j := range next {
		v := outside
		for i, a := range along {
			c := turned.At(i, j)
			v += (a - outside) * c * c
		}
		next[j] = v
		trace -= v
	}
	trace += floats.Sum(along)
	for j := range next {
		next[j] = max((values[j]*values[j]+next[j])/float64(clients), math.SmallestNonzeroFloat32)
	}
	if rank < s.k {
		s.rest = max(trace/float64(clients*(s.k-rank)), math.SmallestNonzeroFloat32)
	}
	isotropic := (floats.Sum(next) + float64(s.k-rank)*s.rest) / float64(s.k)
	shrunk := func(v float64) float64 {
		return (float64(clients)*v + pseudo*isotropic) / float64(clients+pseudo)
	}
	for j, v := range next {
		next[j] = shrunk(v)
	}
	s.basis, s.along, s.rest = u, next, shrunk(s.rest)
	return nil
}

// share returns how many images of a client without an effect tell as much of a class as one of
// client m's, 1 at most. With N = (sum a)^2/sum a^2 it is (N - 1) k / sum_c n_mc |x_mc - mu_c -
// b_m|^2. That is the variance of images by W over the one found.
func (s *shrinkage) share(m int) float64 {
	var noise, total, squares float64
	off := make([]float64, s.k)
	for _, l := range s.cells[m] {
		floats.SubTo(off, l.x, s.mean[l.class])
		floats.Sub(off, s.shift[m])
		noise, total, squares = noise+l.n*floats.Dot(off, off), total+l.a, squares+l.a*l.a
	}
	if n := total * total / squares; n > 1 {
		return 1 / max(1, noise/((n-1)*float64(s.k)))
	}
	return 1
}
