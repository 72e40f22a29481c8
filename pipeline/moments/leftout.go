package moments

import (
	"math"
	"slices"

	"gonum.org/v1/gonum/floats"
)

// Constants of the discriminant, whose other forms are in packages candidate and discriminant.
const (
	// priorStrength is that of the prior on the covariance, in degrees of freedom a feature: a
	// client's few images hardly move it.
	priorStrength = 10
	// caution is how much more class means err along the head's directions than on average
	// (docs/notes/moments.md).
	caution = 1.5
	// minSpread is the least spread of class means beyond noise, in units of the variance within
	// classes.
	minSpread = 1e-3
)

// parted is rows as products of their parts, which is all that a discriminant of them takes: cost
// is by rows, not by features. Row i is m0 + dm[label[i]] + r[i], where m0 is the mean, m0 + dm[c]
// the mean of class c and r the residual. Products are rounded before they are added
// (float64(a*b)), so that every machine has the same numbers.
type parted struct {
	n, c, k, dof int
	label        []int     // of n rows, among the c classes that are held
	count        []float64 // [c]
	rr           []float64 // [n, n], products of residuals
	rm           []float64 // [n, c], of residuals with means
	mm           []float64 // [c, c], of means
}

// newParted returns the products of rows; nil where no class spreads.
// It costs O((n + c)^2 k), and all that follows is without k. Residuals are about the class means
// of all rows, and means about the mean of all rows.
func newParted(rows []float32, k int, labels []int) *parted {
	held := slices.Clone(labels)
	slices.Sort(held)
	held = slices.Compact(held)
	s := &parted{n: len(labels), c: len(held), k: k, dof: len(labels) - len(held),
		count: make([]float64, len(held))}
	means, grand := make([]float64, s.c*k), make([]float64, k)
	for i, y := range labels {
		at, _ := slices.BinarySearch(held, y)
		s.label = append(s.label, at)
		s.count[at]++
		for j, v := range rows[i*k : (i+1)*k] {
			means[at*k+j] += float64(v)
			grand[j] += float64(v)
		}
	}
	for j := range means {
		means[j] /= s.count[j/k]
	}
	r := make([]float64, s.n*k)
	for i, at := range s.label {
		for j, v := range rows[i*k : (i+1)*k] {
			r[i*k+j] = float64(v) - means[at*k+j]
		}
	}
	for j := range means {
		means[j] -= grand[j%k] / float64(s.n)
	}
	s.rr, s.rm, s.mm = products(r, r, k), products(r, means, k), products(means, means, k)
	if trace(s.rr, s.n) <= 0 || s.dof < 1 {
		return nil
	}
	return s
}

// leftOut returns the curve of the rows, each judged by the discriminant whose mean of its class is
// without it. The covariance is the scatter drawn towards the identity, W = (nu0 size I + R'R)/(nu0
// + dof); with Q = I + RR'/(nu0 size), Woodbury's identity makes of products of a and b through W's
// inverse those of the parts: (R, R) is scale Q^-1 RR', (R, M) is scale Q^-1 RM'. The curve of the
// same rows with classes at random is added to random, which may be nil. With products <., .>
// through W's inverse, n_c rows of class c, d = k features and m_c the mean of class c less m0,
//
//	noise   = sum_i <r_i, r_i>/(d dof)
//	n0      = caution noise / max(mean_c (<m_c, m_c>/d - noise/n_c), minSpread)
//	logit_c = s_c <x_i, m_c> - s_c^2 <m_c, m_c>/2,   s_c = n_c/(n_c + n0)
//
// where x_i is a row less m0. Of the row's own class the mean without it is n_c/(n_c - 1) m_c -
// x_i/(n_c - 1), of n_c - 1 rows.
func (s *parted) leftOut(grid *[Temperatures]float64, random *Curve) (out Curve) {
	n, c := s.n, s.c
	d, dof := float64(s.k), float64(s.dof)
	ridge := priorStrength * trace(s.rr, n) / dof // nu0 size
	scale := (float64(priorStrength*d) + dof) / ridge
	q := make([]float64, n*n)
	for i, v := range s.rr {
		q[i] = v / ridge
	}
	for i := range n {
		q[i*n+i]++
	}
	root := inverseRoot(q, n)                                // Q^-1 = root'root
	half := products(root, transposed(s.rm, n, c), n)        // [n, c]
	halfT := transposed(half, n, c)                          // [c, n]
	rm := products(transposed(root, n, n), halfT, n)         // [n, c], over scale
	mm, low := slices.Clone(s.mm), products(halfT, halfT, n) // [c, c]
	for i, v := range low {
		mm[i] = scale * (mm[i] - v/ridge)
	}
	rr := make([]float64, n) // the diagonal alone
	var noise float64
	for i := range n {
		var inner float64
		for j := i; j < n; j++ {
			inner += float64(root[j*n+i] * root[j*n+i])
		}
		rr[i] = scale * ridge * (1 - inner)
		noise += rr[i] / d / dof
	}
	var between float64
	for y := range c {
		between += (mm[y*c+y]/d - noise/s.count[y]) / float64(c)
	}
	n0 := caution * noise / max(between, minSpread)
	logit := make([]float64, c)
	for i, own := range s.label {
		for y := range c {
			m, cross, norm := s.count[y], mm[own*c+y]+float64(scale*rm[i*c+y]), mm[y*c+y]
			if y == own { // the class mean is a m - b x
				a, b := m/(m-1), 1/(m-1)
				xx := norm + 2*float64(scale*rm[i*c+y]) + rr[i]
				cross, norm = float64(a*cross)-float64(b*xx),
					float64(a*a*norm)-float64(2*a*b*cross)+float64(b*b*xx)
				m--
			}
			shrink := m / (m + n0)
			logit[y] = float64(shrink*cross) - float64(.5*shrink*shrink*norm)
		}
		addLikelihood(&out, grid, logit, logit[own])
		if random != nil {
			addLikelihood(random, grid, logit, floats.Sum(logit)/float64(c))
		}
	}
	return out
}

// addLikelihood adds the log-likelihood of one row's class, whose logit is own, at each temperature
// T, in nats: own/T - log sum_c exp(logit_c/T), MinLikelihood at least.
func addLikelihood(to *Curve, grid *[Temperatures]float64, logits []float64, own float64) {
	top := slices.Max(logits)
	for i, t := range grid {
		var sum float64
		for _, v := range logits {
			sum += exponential((v - top) / t)
		}
		to[i] += max((own-top)/t-logarithm(sum), MinLikelihood)
	}
}

// products returns a b', [n, m], of a, [n, k], and b, [m, k].
// Sums of BLAS differ between machines, and these do not.
func products(a, b []float64, k int) []float64 {
	n, m := len(a)/k, len(b)/k
	out := make([]float64, n*m)
	for i := range n {
		for j := range m {
			out[i*m+j] = Dot(a[i*k:(i+1)*k], b[j*k:(j+1)*k])
		}
	}
	return out
}

// Dot returns the product of two rows, with the same bits on every machine.
// Four sums run side by side and are added in a fixed order. b has as many numbers as a, or more.
func Dot(a, b []float64) float64 {
	b = b[:len(a)]
	var s0, s1, s2, s3 float64
	i := 0
	for ; i+4 <= len(a); i += 4 {
		s0 += float64(a[i] * b[i])
		s1 += float64(a[i+1] * b[i+1])
		s2 += float64(a[i+2] * b[i+2])
		s3 += float64(a[i+3] * b[i+3])
	}
	for ; i < len(a); i++ {
		s0 += float64(a[i] * b[i])
	}
	return (s0 + s1) + (s2 + s3)
}

// transposed returns a', [m, n], of a, [n, m].
func transposed(a []float64, n, m int) []float64 {
	out := make([]float64, n*m)
	for i := range n {
		for j := range m {
			out[j*n+i] = a[i*m+j]
		}
	}
	return out
}

// trace returns that of a matrix, [n, n].
func trace(a []float64, n int) (t float64) {
	for i := range n {
		t += a[i*n+i]
	}
	return t
}

// inverseRoot returns the inverse X of the lower Cholesky factor L of q, [n, n], whose eigenvalues
// are 1 at least, so that no pivot is small. Row by row, with e_i the row of the identity,
//
//	L_ij = (q_ij - sum_(l<j) L_il L_jl)/L_jj,   X_i = (e_i - sum_(j<i) L_ij X_j)/L_ii
//
// It costs O(n^3).
func inverseRoot(q []float64, n int) []float64 {
	l := make([]float64, n*n)
	for i := range n {
		for j := range i + 1 {
			v := q[i*n+j] - Dot(l[i*n:i*n+j], l[j*n:j*n+j])
			if i == j {
				l[i*n+i] = math.Sqrt(v)
			} else {
				l[i*n+j] = v / l[j*n+j]
			}
		}
	}
	out := make([]float64, n*n)
	for i := range n {
		row := out[i*n : (i+1)*n]
		for j := range i {
			f := l[i*n+j]
			for at, v := range out[j*n : j*n+j+1] {
				row[at] -= float64(f * v)
			}
		}
		row[i] = 1
		for at := range i + 1 {
			row[at] /= l[i*n+i]
		}
	}
	return out
}
