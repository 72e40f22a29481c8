package sample

import (
	"fmt"
	"math"

	"fmp/models"
	"fmp/onnx/dense"
	"fmp/pipeline/honesty"
	"fmp/pipeline/point"
)

// Claims returns clients' uploads as package honesty weighs them, and the variances of class means
// between the corpus's classes. lambda has as many numbers as the claims have coordinates, the
// leading ones of a wide round.
// Clients are those of the slice, in its order. Uploads of phi and of w give the same claims but
// for rounding.
func (c *Conjugate) Claims(clients []*point.Set) (u honesty.Uploads, lambda []float64, err error) {
	if u, err = c.claims(clients, honesty.IsWide(c.config.C, c.config.K)); err != nil {
		return u, nil, err
	}
	return u, c.lambda()[:u.K], nil
}

// claims returns those of a round; of a wide one in the leading coordinates. Sums are in float64.
// Soft labels add a share of the point to each of their classes. With p_iy the share of point i in
// class y, n_i its mass and w_i its coordinates
//
//	mass_y = sum_i p_iy n_i,   mean_y = sum_i p_iy n_i w_i/mass_y
//
// An upload of another size is an error that names its place.
func (c *Conjugate) claims(clients []*point.Set, wide bool) (honesty.Uploads, error) {
	k := c.config.K
	if wide {
		k = min(honesty.Leading, k)
	}
	u := honesty.NewUploads(len(clients), c.config.C, k)
	u.Wide = wide
	for m, set := range clients {
		if err := c.fits(set); err != nil {
			return u, fmt.Errorf("client %d: %w", m, err)
		}
		var rows []float64
		if wide || set.Dx != c.config.Dx {
			rows = c.leading(set, k)
		} else {
			set = c.project(set.Dense())
			for i := range set.N {
				rows = append(rows, dense.As[float64](set.Features(i))...)
			}
		}
		for i := range set.N {
			set.Shares(i, func(y int, p float32) {
				n := float64(p) * float64(set.W[i])
				if n == 0 {
					return
				}
				mean := u.Add(m, y, n)
				for j, v := range rows[i*k : (i+1)*k] {
					mean[j] += n * v
				}
			})
		}
		u.Divide(m)
	}
	return u, nil
}

// lambda returns the variances of class means between the corpus's classes.
// They are in units of the variance within classes, before any round's factor b.
func (c *Conjugate) lambda() []float64 {
	out := make([]float64, c.config.K)
	for j, v := range c.values[models.ConjLogLambda].F32() {
		out[j] = math.Exp(float64(v))
	}
	return out
}
