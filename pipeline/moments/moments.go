// Package moments holds the statistics that a client sends beside its class means: the scatter of
// its images within its classes, and calibration points. Class means alone stop learning at about
// 100 images a client; scatter adds up over clients to the covariance within classes, and
// calibration points, single images that take no part in means and scatter, tell how sure the
// classifier may be.
//
// The package is part of the program for small devices and depends on the standard library,
// models/rng and pipeline/point alone.
package moments

import (
	"bytes"
	"crypto/sha256"
	"encoding/binary"
	"fmt"
	"math"
	"slices"

	"fmp/pipeline/point"
)

// Calibration points are one image in calibrationShare of a client's, at most MaxCalibration and at
// least one where it has several.
const (
	calibrationShare = 5
	MaxCalibration   = 10
)

// Within is the scatter of a client's rows within its classes, and its calibration points. Rows
// have K numbers.
type Within struct {
	K int
	// Rank is the number of rows of a factor F of the scatter F'F, [Rank, K] in Data; 0 where Data
	// is the upper triangle of the scatter itself, row by row, K(K+1)/2 numbers. Its element (i,
	// j), i <= j, is number i K - i (i - 1)/2 + j - i.
	Rank int
	Data []float32
	// Dof is the number of degrees of freedom of the scatter: rows less classes.
	Dof int
	// Calibration are rows, [len(Labels), K], and Labels their classes.
	Calibration []float32
	Labels      []int
}

// Compute is [Parted] with as many calibration points as there may be, chosen by [Calibration]:
// that of simulated clients.
func Compute(rows []float32, k int, labels []int, c int, key string) (*point.Set, *Within, error) {
	if k < 1 || len(rows) != len(labels)*k {
		return Parted(rows, k, labels, c, nil) // which says what is wrong
	}
	return Parted(rows, k, labels, c, Calibration(rows, k, key, MaxCalibration))
}

// Parted returns the class means of a client's rows, [n, k], with their counts as weights, and the
// scatter of those that are not chosen; the chosen ones are its calibration points. nil chooses
// none. The mean is updated one image at a time. Dof is the number of rows that are kept less that
// of their classes. It costs n k^2/2 multiplications for a triangle.
//
// Means are in the order of classes, those without images left out. Sums are in float64, and
// rounded once to float32. chosen has an entry for each row.
func Parted(rows []float32, k int, labels []int, c int,
	chosen []bool) (*point.Set, *Within, error) {
	if err := checkRows(rows, k, labels, c); err != nil {
		return nil, nil, err
	}
	w := &Within{K: k}
	var kept []int
	for i, y := range labels {
		if chosen == nil || !chosen[i] {
			kept = append(kept, i)
			continue
		}
		w.Calibration, w.Labels = append(w.Calibration, rows[i*k:(i+1)*k]...), append(w.Labels, y)
	}
	mean, count := make([]float64, c*k), make([]float64, c)
	for _, i := range kept {
		count[labels[i]]++
		m := mean[labels[i]*k:][:k]
		for j, v := range rows[i*k : (i+1)*k] {
			m[j] += (float64(v) - m[j]) / count[labels[i]]
		}
	}
	means := &point.Set{Dx: k, C: c}
	for y, n := range count {
		if n == 0 {
			continue
		}
		for _, v := range mean[y*k:][:k] {
			means.Z = append(means.Z, float32(v))
		}
		means.N, means.Y, means.W = means.N+1, append(means.Y, int32(y)),
			append(means.W, float32(n))
	}
	if means.Small() {
		means = means.Dense()
	}
	rest := make([]float64, len(kept)*k)
	for at, i := range kept {
		m := mean[labels[i]*k:][:k]
		for j, v := range rows[i*k : (i+1)*k] {
			rest[at*k+j] = float64(v) - m[j]
		}
	}
	w.Dof = len(kept) - means.N
	w.scatter(rest)
	return means, w, nil
}

// checkRows returns an error unless there is a label a row, of one of c classes.
// Numbers that are not finite pass.
func checkRows(rows []float32, k int, labels []int, c int) error {
	if k < 1 || len(rows) != len(labels)*k || len(labels) == 0 {
		return fmt.Errorf("moments: %d numbers for %d labels of rows of %d; "+
			"want %d and a label at least", len(rows), len(labels), k, len(labels)*k)
	}
	for i, y := range labels {
		if y < 0 || y >= c {
			return fmt.Errorf("moments: label %d of row %d; allowed are 0 to %d", y, i, c-1)
		}
	}
	return nil
}

// Calibration marks the rows of a simulated client that are calibration points: [Lowest] of hashes
// of key and content. A client's own program chooses by a secret (pipeline/client), since who makes
// the rows could steer a hash of them.
// The hash is SHA-256 of the key behind its length, and of the row as little-endian float32.
func Calibration(rows []float32, k int, key string, most int) []bool {
	sums := make([][sha256.Size]byte, len(rows)/k)
	b := make([]byte, 4*k)
	for i := range sums {
		for j, v := range rows[i*k : (i+1)*k] {
			binary.LittleEndian.PutUint32(b[4*j:], math.Float32bits(v))
		}
		h := sha256.New()
		fmt.Fprintf(h, "%d %s\n", len(key), key)
		h.Write(b)
		sums[i] = [sha256.Size]byte(h.Sum(nil))
	}
	return Lowest(sums, most)
}

// Lowest marks those of the lowest sums, as many as asked for and one in five at most, and at least
// one where there are several. Equal sums are all marked, or none is.
// So the marks do not depend on the order of images. It costs O(n log n) comparisons.
func Lowest(sums [][sha256.Size]byte, most int) []bool {
	n := len(sums)
	out := make([]bool, n)
	most = min(most, max(n/calibrationShare, 1))
	if n < 2 {
		return out
	}
	order := make([]int, n)
	for i := range order {
		order[i] = i
	}
	slices.SortStableFunc(order,
		func(a, b int) int { return bytes.Compare(sums[a][:], sums[b][:]) })
	for at := 0; at < n; {
		next := at + 1
		for next < n && sums[order[at]] == sums[order[next]] {
			next++
		}
		if next > most {
			break
		}
		for _, i := range order[at:next] {
			out[i] = true
		}
		at = next
	}
	return out
}

// scatter sets the scatter of centred rows, [n, K], in the form of fewer numbers. It is a factor of
// Dof K where these are less than the K (K+1)/2 of a triangle, that is 2 Dof < K + 1. The factor is
// that of Cholesky with pivots, which the scatter alone determines: a factor of the rows themselves
// would give single images away. Sums run over rows in their order, so that equal images have equal
// bytes.
func (w *Within) scatter(rest []float64) {
	k := w.K
	if w.Dof <= 0 {
		w.Dof, w.Rank, w.Data = 0, 0, nil
		return
	}
	if 2*w.Dof < k+1 {
		w.Data = factor(rest, k, w.Dof)
		w.Rank = len(w.Data) / k
		return
	}
	w.Data = make([]float32, 0, k*(k+1)/2)
	sum := make([]float64, k)
	for i := range k {
		clear(sum[i:])
		for at := 0; at < len(rest); at += k {
			row := rest[at : at+k]
			if f := row[i]; f != 0 {
				for j := i; j < k; j++ {
					sum[j] += f * row[j]
				}
			}
		}
		for _, v := range sum[i:] {
			w.Data = append(w.Data, float32(v))
		}
	}
}

// negligible is the share of the trace that a factor of the scatter may leave out.
const negligible = 1e-9

// factor returns rows F, at most rank of them, with F'F = A'A for rows A, [n, k]: Cholesky
// decomposition with pivots (Higham 2002, section 10.3), without forming A'A. With j the coordinate
// of the largest variance v_j that is left, and F the rows so far, the next row is
//
//	(a_j'A - f_j'F)/sqrt(v_j),   a_j, f_j: column j of A and of F
//
// It costs O(rank (n + rank) k).
func factor(rows []float64, k, rank int) []float32 {
	left, total := make([]float64, k), 0.0
	for i, v := range rows {
		left[i%k] += v * v
		total += v * v
	}
	var f []float64
	for range rank {
		pivot := 0
		for j, v := range left {
			if v > left[pivot] {
				pivot = j
			}
		}
		if left[pivot] <= negligible*total {
			break
		}
		row := make([]float64, k)
		for at := 0; at < len(rows); at += k {
			if a := rows[at+pivot]; a != 0 {
				for j, v := range rows[at : at+k] {
					row[j] += a * v
				}
			}
		}
		for at := 0; at < len(f); at += k {
			a := f[at+pivot]
			for j, v := range f[at : at+k] {
				row[j] -= a * v
			}
		}
		scale := 1 / math.Sqrt(left[pivot])
		for j := range row {
			row[j] *= scale
			left[j] = max(left[j]-row[j]*row[j], 0)
		}
		left[pivot] = 0
		f = append(f, row...)
	}
	out := make([]float32, len(f))
	for i, v := range f {
		out[i] = float32(v)
	}
	return out
}

// AddTo adds the scatter to the upper triangle of a matrix, [K, K]. Numbers below the diagonal are
// left as they are. It costs K^2/2 sums of a triangle, and Rank K^2/2 products of a factor.
func (w *Within) AddTo(sum []float64) {
	k := w.K
	if w.Rank == 0 {
		at := 0
		for i := range k {
			for j := i; j < k && at < len(w.Data); j++ {
				sum[i*k+j] += float64(w.Data[at])
				at++
			}
		}
		return
	}
	for at := 0; at < len(w.Data); at += k {
		row := w.Data[at : at+k]
		for i, a := range row {
			to := sum[i*k : (i+1)*k]
			for j := i; j < k; j++ {
				to[j] += float64(a) * float64(row[j])
			}
		}
	}
}

// Whole returns the scatter as a symmetric matrix, [K, K].
// The matrix is new, and both of its triangles are filled.
func (w *Within) Whole() []float64 {
	s := make([]float64, w.K*w.K)
	w.AddTo(s)
	for i := range w.K {
		for j := range i {
			s[i*w.K+j] = s[j*w.K+i]
		}
	}
	return s
}

// alike explains a scatter of no rank.
func (w *Within) alike() string {
	if len(w.Data) > 0 || w.Rank > 0 {
		return ""
	}
	return ": the images of each class are alike, and do not tell how images of a class differ; " +
		"give others"
}

// Check returns an error unless sizes agree, numbers are finite, labels are of c classes and no
// diagonal element is negative. It does not tell whether the scatter is a covariance, which wants a
// factorization.
func (w *Within) Check(c int) error {
	k := w.K
	switch {
	case k < 1 || w.Dof < 0 || w.Rank < 0 || w.Rank > k:
		return fmt.Errorf("moments: rows of %d numbers, %d degrees of freedom and rank %d; want "+
			"1, 0 and 0 at least, and no more rank than numbers", k, w.Dof, w.Rank)
	case w.Dof == 0 && len(w.Data) != 0, w.Dof > 0 && w.Rank == 0 && len(w.Data) != k*(k+1)/2,
		w.Rank > 0 && len(w.Data) != w.Rank*k:
		return fmt.Errorf(
			"moments: a scatter of %d numbers, rank %d and %d degrees of freedom for rows of %d%s",
			len(w.Data), w.Rank, w.Dof, k, w.alike())
	case w.Rank > w.Dof:
		return fmt.Errorf("moments: a scatter of rank %d with %d degrees of freedom; "+
			"want no higher rank", w.Rank, w.Dof)
	case len(w.Labels) > MaxCalibration || len(w.Calibration) != len(w.Labels)*k:
		return fmt.Errorf(
			"moments: %d calibration points of %d numbers; allowed are %d at most, of %d each",
			len(w.Labels), len(w.Calibration), MaxCalibration, k)
	}
	for i, y := range w.Labels {
		if y < 0 || y >= c {
			return fmt.Errorf("moments: class %d of calibration point %d; allowed are 0 to %d", y,
				i, c-1)
		}
	}
	for _, part := range [][]float32{w.Data, w.Calibration} {
		for _, v := range part {
			if f := float64(v); math.IsNaN(f) || math.IsInf(f, 0) {
				return fmt.Errorf("moments: a number is %v; want finite ones", v)
			}
		}
	}
	if w.Rank == 0 && w.Dof > 0 {
		for i, at := 0, 0; i < k; i++ {
			if w.Data[at] < 0 {
				return fmt.Errorf("moments: the scatter of coordinate %d is %v; want at least 0", i,
					w.Data[at])
			}
			at += k - i
		}
	}
	return nil
}

// Trace returns the trace of the scatter: the sum of squares of a factor, or of the diagonal of a
// triangle. Over Dof it is the variance of an image about its class mean, in all coordinates.
func (w *Within) Trace() float64 {
	var t float64
	if w.Rank > 0 {
		for _, v := range w.Data {
			t += float64(v) * float64(v)
		}
		return t
	}
	for i, at := 0, 0; i < w.K && at < len(w.Data); i++ {
		t += float64(w.Data[at])
		at += w.K - i
	}
	return t
}
