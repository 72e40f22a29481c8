package candidate

import (
	"math"
	"slices"

	"fmp/pipeline/internal/moment"
	"fmp/pipeline/moments"
	"fmp/pipeline/point"
)

// counted returns the round with its calibration points among the images of their clients; the
// round itself where it has none, or does not know of whom they are. The clients given are not
// changed: those with points are copies.
// It costs O(clients points) comparisons.
func (r *Round) counted() *Round {
	if len(r.Points.Clients) == 0 {
		return r
	}
	out := *r
	out.Points = Points{}
	out.Clients = slices.Clone(r.Clients)
	for m := range out.Clients {
		var rows []float32
		var labels []int
		for i, of := range r.Points.Clients {
			if of == m {
				rows, labels = append(rows, r.Points.Rows[i*r.K:(i+1)*r.K]...),
					append(labels, r.Points.Labels[i])
			}
		}
		out.Clients[m].add(rows, labels)
	}
	return &out
}

// add adds single images to class means and scatter, one at a time (Welford's update): the scatter
// grows by n/(n+1) times the outer product of the image less the mean of the n before. The
// contrasts sqrt(n/(n+1)) (x - mean) are rows of a factor of its growth.
// The first image of a class has no contrast: it is the class's mean. Cells are in the order of
// classes afterwards.
func (c *Client) add(rows []float32, labels []int) {
	if len(labels) == 0 {
		return
	}
	k := c.Means.Dx
	cells := c.cells()
	var contrasts []float32
	for i, y := range labels {
		row := rows[i*k : (i+1)*k]
		at := slices.IndexFunc(cells, func(v cell) bool { return v.class == y })
		if at < 0 {
			cells = append(cells, cell{class: y, n: 1, share: 1, mean: slices.Clone(row)})
			continue
		}
		v := &cells[at]
		v.mean = slices.Clone(v.mean)
		f := math.Sqrt(v.n / (v.n + 1))
		v.n++
		for j, x := range row {
			away := float64(x) - float64(v.mean[j])
			contrasts = append(contrasts, float32(f*away))
			v.mean[j] += float32(away / v.n)
		}
	}
	slices.SortFunc(cells, func(a, b cell) int { return a.class - b.class })
	means := &point.Set{Dx: k, C: c.Means.C, N: len(cells), Y: []int32{}}
	for _, v := range cells {
		means.Z, means.W, means.Y = append(means.Z, v.mean...), append(means.W, float32(v.n)),
			append(means.Y, int32(v.class))
	}
	c.Means = means
	if c.Within != nil && len(contrasts) > 0 {
		c.Within = widened(c.Within, contrasts)
	}
}

// widened returns a scatter with rows added to it. A factor becomes a triangle where its rows
// exceed the coordinates.
// An empty scatter, of no degrees of freedom, starts a factor. Neither w nor rows is changed.
func widened(w *moments.Within, rows []float32) *moments.Within {
	k, n := w.K, len(rows)/w.K
	out := &moments.Within{K: k, Dof: w.Dof + n, Rank: w.Rank + n,
		Data: append(slices.Clone(w.Data), rows...)}
	if (w.Rank > 0 || w.Dof == 0) && out.Rank <= k {
		return out
	}
	sum := w.Whole()
	(&moments.Within{K: k, Dof: n, Rank: n, Data: rows}).AddTo(sum)
	out.Rank, out.Data = 0, moment.Triangle(sum, k)
	return out
}
