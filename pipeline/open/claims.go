package open

import (
	"fmt"
	"math"

	"gonum.org/v1/gonum/floats"
	"gonum.org/v1/gonum/mat"

	"fmp/pipeline/honesty"
	"fmp/pipeline/internal/moment"
	"fmp/pipeline/point"
)

// Whitening is the map to coordinates u in which the corpus's within-class covariance, shrunk
// toward its mean variance, is I and the covariance of its class means is diagonal, in descending
// order. Package honesty judges uploads in these coordinates if the task's classes are not the
// corpus's. With LL' the shrunk covariance within classes, B that of class means and m0 their mean
//
//	L^-1 B L^-T = Q diag(lambda) Q',   u = Q'L^-1 (phi - m0)
type Whitening struct {
	// Lambda [k] are the variances of class means.
	Lambda []float64

	centre     []float64
	basis, inv *mat.Dense // phi - centre = basis u
}

// minVariance is the lower bound of Lambda, for directions in which the corpus's class means do not
// differ.
const minVariance = 1e-3

// Whitening returns the whitening of the corpus's moments. It costs O(k^3), and serves all clients
// of a round.
func (p *Predictor) Whitening() (*Whitening, error) {
	k := len(p.M0)
	// The within-class covariance as the metric takes it: shrunk toward its mean variance, as
	// directions in which corpus classes hardly vary may vary in others.
	chol, ok := factor(moment.Shrunk(p.W, logistic(p.Scalars[LogitDelta])))
	if !ok {
		return nil, fmt.Errorf("open predictor: its covariance within classes is singular; make " +
			"the model anew with fmp train open")
	}
	l, values, q, err := white(chol, p.B, "class means")
	if err != nil {
		return nil, err
	}
	w := &Whitening{Lambda: make([]float64, k), centre: p.M0}
	for j, v := range values { // in ascending order
		w.Lambda[k-1-j] = max(v, minVariance)
	}
	w.basis, w.inv, err = turned(l, moment.Leading(q, k))
	return w, err
}

// Claims returns the clients' class means, given in the predictor's coordinates, as package honesty
// takes them: in the first most of the coordinates u. client(m) is called when client m is read.
// client(m) is called once for each client, in their order.
func (w *Whitening) Claims(clients int, client func(m int) (*point.Set, error),
	most int) (honesty.Uploads, error) {
	k := min(most, len(w.Lambda))
	u := honesty.Uploads{Clients: clients, K: k}
	for m := range clients {
		set, err := client(m)
		if err != nil {
			return u, err
		}
		if m == 0 {
			u = honesty.NewUploads(clients, set.C, k)
		}
		if set.Dx != len(w.Lambda) || set.C != u.Classes {
			return u, fmt.Errorf("client %d sends %d coordinates and %d classes; the open "+
				"predictor has %d coordinates, client 0 %d classes",
				m, set.Dx, set.C, len(w.Lambda), u.Classes)
		}
		s := Means(set)
		var white mat.Dense
		for y, n := range s.Mass {
			if n > 0 {
				floats.Sub(s.Mean.RawRowView(y), w.centre)
			}
		}
		white.Mul(s.Mean, w.inv.T())
		for y, n := range s.Mass {
			if n > 0 {
				copy(u.Add(m, y, n), white.RawRowView(y))
			}
		}
	}
	return u, nil
}

// Sets returns claims of all coordinates as points in the predictor's coordinates, one point per
// class: the inverse of Claims.
func (w *Whitening) Sets(u honesty.Uploads) ([]*point.Set, error) {
	k := len(w.Lambda)
	if u.K != k {
		return nil, fmt.Errorf("claims of %d coordinates; want all %d", u.K, k)
	}
	out := make([]*point.Set, u.Clients)
	for m := range out {
		set := point.New(u.Classes, k, u.Classes)
		var phi mat.Dense
		_, means := u.Client(m)
		phi.Mul(mat.NewDense(u.Classes, k, means), w.basis.T())
		for y := range u.Classes {
			n := u.Masses[m*u.Classes+y]
			set.W[y] = float32(n)
			row := set.Row(y)
			row[k+y] = 1
			for j, v := range phi.RawRowView(y) {
				if n > 0 && !math.IsNaN(v) {
					row[j] = float32(v + w.centre[j])
				}
			}
		}
		out[m] = set.Held()
	}
	return out, nil
}
