package rival

import (
	"fmt"
	"math"

	"fmp/pipeline/internal/memo"
	"gonum.org/v1/gonum/mat"
)

// naming matches a task's classes to the corpus': names[c] is the corpus class whose mean is
// nearest to the clients' mean of class c, no corpus class twice. With u the coordinates in which
// the corpus' covariance within classes is I, the assignment minimises
//
//	sum_c n_c |u_c - u_names(c)|^2,
//
// which is twice the negative log-likelihood of the clients' class means. In closed scope it finds
// nearly every name, and a server trained on the tasks' classes needs nothing else: see corpusOnly.
// It costs O(C_t C_k dx) for the distances of C_t classes to C_k of the corpus, beside the
// assignment. Two threads of a task wait for one computation.
func (t *Task) naming() ([]int, error) {
	return memo.Once(t.memo, "naming", func() ([]int, error) {
		k, err := t.corpus()
		if err != nil {
			return nil, err
		}
		if k.C < t.c {
			return nil, fmt.Errorf("naming %d classes by a corpus of %d; want at least as many",
				t.c, k.C)
		}
		const shrinkage = 0.1 // a corpus of few rows has a singular covariance
		l, err := t.latent(shrinkage)
		if err != nil {
			return nil, err
		}
		var known mat.Dense
		known.Mul(k.Means, l.v)
		s := t.statistics()
		var own mat.Dense
		own.Mul(s.sum, l.v)
		cost := make([][]float64, t.c)
		for c := range cost {
			cost[c] = make([]float64, k.C)
			if s.count[c] == 0 {
				continue // any name will do
			}
			for j := range cost[c] {
				for i, v := range own.RawRowView(c) {
					// m0 is not taken away: it cancels in the difference.
					e := v/s.count[c] - known.At(j, i)
					cost[c][j] += s.count[c] * e * e
				}
			}
		}
		return assign(cost), nil
	})
}

// assign returns the column of each row of a cost matrix, no column twice, at least total cost: the
// Hungarian method with shortest augmenting paths (Jonker and Volgenant 1987, Computing 38). There
// must not be more rows than columns. It costs O(rows^2 columns). Costs must be finite, and rows of
// one length. Each row is added in turn along the cheapest path, and rows before it may change
// columns. Ties go to the lowest column.
func assign(cost [][]float64) []int {
	rows, columns := len(cost), len(cost[0])
	rowOf := make([]int, columns) // the row that holds a column; -1: none
	for j := range rowOf {
		rowOf[j] = -1
	}
	// potentials: cost - u - v >= 0, and 0 along the assignment
	u, v := make([]float64, rows), make([]float64, columns)
	for start := range rows {
		dist, from, done := make([]float64, columns), make([]int, columns), make([]bool, columns)
		for j := range dist {
			dist[j], from[j] = math.Inf(1), -1
		}
		// Dijkstra's search for the cheapest path from the row to a free column, through columns
		// assigned to other rows.
		row, at, reached := start, -1, 0.0
		for {
			next := -1
			for j := range columns {
				if done[j] {
					continue
				}
				if d := reached + cost[row][j] - u[row] - v[j]; d < dist[j] {
					dist[j], from[j] = d, at
				}
				if next < 0 || dist[j] < dist[next] {
					next = j
				}
			}
			at, reached = next, dist[next]
			done[at] = true
			if rowOf[at] < 0 {
				break
			}
			row = rowOf[at]
		}
		u[start] += reached
		for j := range columns {
			if done[j] && j != at {
				u[rowOf[j]] += reached - dist[j]
				v[j] -= reached - dist[j]
			}
		}
		for at >= 0 { // every row of the path takes the next column
			before := from[at]
			if before < 0 {
				rowOf[at] = start
			} else {
				rowOf[at] = rowOf[before]
			}
			at = before
		}
	}
	out := make([]int, rows)
	for j, r := range rowOf {
		if r >= 0 {
			out[r] = j
		}
	}
	return out
}
