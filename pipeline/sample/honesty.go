package sample

import (
	"fmt"
	"math"

	"fmp/models"
	"fmp/pipeline/honesty"
	"fmp/pipeline/point"
)

// Claims returns clients' uploads as package honesty weighs them, and the variances of class means
// between the corpus's classes.
func (c *Conjugate) Claims(clients []*point.Set) (u honesty.Uploads, lambda []float64, err error) {
	k, classes := c.config.K, c.config.C
	if honesty.IsWide(classes, k) {
		if u, err = c.wideClaims(clients); err != nil {
			return u, nil, err
		}
		return u, c.lambda()[:u.K], nil
	}
	u = honesty.NewUploads(len(clients), classes, k)
	for m, set := range clients {
		in, err := c.context(set)
		if err != nil {
			return u, nil, fmt.Errorf("client %d: %w", m, err)
		}
		z := in["points"].F32()
		for i := range set.N {
			row := z[i*(k+classes):][:k+classes]
			for y, p := range row[k:] {
				n := float64(p) * float64(set.W[i])
				if n == 0 {
					continue
				}
				mean := u.Add(m, y, n)
				for j, v := range row[:k] {
					mean[j] += n * float64(v)
				}
			}
		}
		u.Divide(m)
	}
	return u, c.lambda(), nil
}

// lambda returns the variances of class means between the corpus's classes.
func (c *Conjugate) lambda() []float64 {
	out := make([]float64, c.config.K)
	for j, v := range c.values[models.ConjLogLambda].F32() {
		out[j] = math.Exp(float64(v))
	}
	return out
}
