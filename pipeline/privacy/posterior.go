package privacy

import (
	"math"
	"math/rand/v2"
	"slices"
	"sort"

	"fmp/pipeline/point"
)

// The posterior of class means mu_c ~ N(0, diag beta), points N(mu_c, I), given noisy sums S~ and
// counts n~ of known noise:
//
//	S~ | n, mu ~ N(n mu, n + v_s),  n~ | n ~ N(n, v_n),  n ~ beta-binomial(T; 1, C - 1)
//	p(n | S~, n~)  prop. to  p(n) N(n~; n, v_n) prod_j N(S~_j; 0, n^2 beta_j + n + v_s)
//	mu | n, S~     has precision 1/beta + n^2/(n + v_s) and mean v n S~/(n + v_s)
//
// The unknown count is summed over on a grid, and every sample draws its own.

// countA is the parameter of the prior of a class's share: beta-binomial (countA, (C-1) countA),
// the marginal of a symmetric Dirichlet.
const countA = 1

// gridDense is the number of consecutive counts at the start of the grid, gridSize the number of
// geometrically spaced ones beyond.
const gridDense, gridSize = 40, 160

// countGrid returns the grid of possible counts, 0 to total, and the width that each stands for.
// Steps of 1 serve classes of few images, where the posterior is narrow. Geometric ones keep the
// grid short for large totals.
func countGrid(total int) (grid, width []float64) {
	b := max(min(total, gridDense), 1)
	for n := range b + 1 {
		grid = append(grid, float64(n))
	}
	top := float64(max(total, b))
	for i := range gridSize {
		grid = append(grid, math.Round(float64(b)*math.Pow(top/float64(b),
			float64(i)/(gridSize-1))))
	}
	slices.Sort(grid)
	grid = slices.Compact(grid)
	width = make([]float64, len(grid))
	for i := range grid {
		low, high := grid[max(i-1, 0)], grid[min(i+1, len(grid)-1)]
		width[i] = (high - low) / float64(min(i+1, len(grid)-1)-max(i-1, 0))
	}
	return grid, width
}

// logWeights returns the log posterior weights of the counts of a class, up to a constant. Terms
// are the logarithms of p(n), of the noisy count, and of each noisy sum. The variance of a sum is
// n^2 beta_j + n + v_s. It costs O(K) for each count of the grid.
func (t *Totals) logWeights(c int, beta, grid, width []float64, total float64) []float64 {
	b := float64(t.Classes-1) * countA
	sums := t.Sums[c*t.K:][:t.K]
	out := make([]float64, len(grid))
	for i, n := range grid {
		l := lgamma(n+countA) - lgamma(n+1) + lgamma(total-n+b) - lgamma(total-n+1) +
			math.Log(width[i])
		if t.CountVariance > 0 {
			l -= 0.5 * (t.Counts[c] - n) * (t.Counts[c] - n) / t.CountVariance
		} else if math.Abs(t.Counts[c]-n) > width[i]/2 {
			l = math.Inf(-1)
		}
		for j, s := range sums {
			v := n*n*beta[j] + n + t.SumVariance
			if v == 0 { // no points and no noise
				continue
			}
			l -= 0.5 * (s*s/v + math.Log(v))
		}
		out[i] = l
	}
	return out
}

// lgamma is ln Gamma(x) of x above 0, where the sign is always 1.
func lgamma(x float64) float64 {
	v, _ := math.Lgamma(x)
	return v
}

// Total returns the sum of the counts, at least one per class. It is computed from released values
// only, so it costs no privacy.
func (t *Totals) Total() int {
	var sum float64
	for _, n := range t.Counts {
		sum += n
	}
	return max(int(math.Round(sum)), t.Classes)
}

// DrawCounts draws the counts of all classes, one per sample, samples x classes, by systematic
// resampling in random order.
// Sample i of S takes the count at (p_i + U_i)/S of the distribution function. p permutes 0 to S -
// 1, and U_i is uniform in 0 to 1. It costs O(C (grid K + S log grid)).
func (t *Totals) DrawCounts(beta []float64, samples int, r *rand.Rand) []float64 {
	total := t.Total()
	grid, width := countGrid(total)
	out := make([]float64, samples*t.Classes)
	for c := range t.Classes {
		w := t.logWeights(c, beta, grid, width, float64(total))
		top := slices.Max(w)
		var sum float64
		for i, l := range w {
			sum += math.Exp(l - top)
			w[i] = sum
		}
		if !(sum > 0) { // without noise a count may lie beyond the grid
			for i := range grid {
				if i == len(grid)-1 ||
					math.Abs(grid[i]-t.Counts[c]) <= math.Abs(grid[i+1]-t.Counts[c]) {
					for j := i; j < len(w); j++ {
						w[j] = 1
					}
					sum = 1
					break
				}
				w[i] = 0
			}
		}
		order := r.Perm(samples)
		for s := range samples {
			u := (float64(order[s]) + r.Float64()) / float64(samples) * sum
			out[s*t.Classes+c] = grid[min(sort.SearchFloat64s(w, u), len(grid)-1)]
		}
	}
	return out
}

// Moments returns means and variances of the class means, samples x classes x K, given counts from
// [Totals.DrawCounts]. With q = n/(n + v_s) they are
//
//	v_j = 1/(1/beta_j + n q),   mean_j = v_j q S~_j
func (t *Totals) Moments(beta, counts []float64) (mean, variance []float64) {
	for i, n := range counts {
		q := 0.0
		if n > 0 {
			q = n / (n + t.SumVariance)
		}
		for j, s := range t.Sums[i%t.Classes*t.K:][:t.K] {
			v := 1 / (1/beta[j] + n*q)
			mean, variance = append(mean, v*q*s), append(variance, v)
		}
	}
	return mean, variance
}

// Points returns class means with masses, as if the totals had no noise, for a posterior that
// ignores the noise. Counts below 1 are taken as 1, as means would otherwise be unbounded.
func (t *Totals) Points() *point.Set {
	out := point.New(t.Classes, t.K, t.Classes)
	for c, n := range t.Counts {
		n = max(n, 1)
		row := out.Row(c)
		for j, s := range t.Sums[c*t.K:][:t.K] {
			row[j] = float32(s / n)
		}
		row[t.K+c], out.W[c] = 1, float32(n)
	}
	return out
}

// Plain returns the totals with their noise variances set to 0, and the counts of [Totals.Points]
// for each sample.
func (t *Totals) Plain(samples int) (*Totals, []float64) {
	out := *t
	out.SumVariance, out.CountVariance = 0, 0
	var counts []float64
	for range samples {
		for _, n := range t.Counts {
			counts = append(counts, max(n, 1))
		}
	}
	return &out, counts
}
