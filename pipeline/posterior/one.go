package posterior

import (
	"cmp"
	"context"
	"fmt"
	"math"
	"slices"

	"gonum.org/v1/gonum/floats"

	"fmp/pipeline/candidate"
	"fmp/pipeline/discriminant"
	"fmp/pipeline/internal/moment"
)

// DiagnosticLeftOut is 1 where the temperature of moments is that of clients left out.
const DiagnosticLeftOut = "left out"

// One computes one posterior (package candidate) from uploads of moments: of clients less their
// shifts, with the shares of their images that count. It reads no kappa, and knows of no effects.
// Moments computes it where kappa is not known: its gate for other rounds (docs/results/gates.yaml)
// is not open. Shifts are subtracted from class means and calibration points, and leave scatters
// and curves as they are. Calibration points of all clients become points of the round. A single
// class in means and points is an error.
// The clients given are not changed.
func One(ctx context.Context, clients []discriminant.Client, c *Embedded,
	o MomentsOptions) (*Result, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	r := candidate.Round{K: clients[0].Within.K, C: clients[0].Means.C, Most: o.limit}
	held := map[int]bool{}
	for m, c := range clients {
		r.Clients = append(r.Clients, statisticsOf(c))
		for i, y := range c.Means.Indices() {
			if c.Means.W[i] > 0 {
				held[int(y)] = true
			}
		}
		for i, y := range c.Within.Labels {
			held[y] = true
			row := slices.Clone(c.Within.Calibration[i*r.K : (i+1)*r.K])
			subtract(row, c.Shift)
			r.Points.Rows, r.Points.Labels, r.Points.Clients = append(r.Points.Rows, row...),
				append(r.Points.Labels, y), append(r.Points.Clients, m)
		}
	}
	if len(held) == 1 {
		return nil, fmt.Errorf("posterior: %w", discriminant.ErrOneClass)
	}
	if o.Corpus != nil {
		r.Corpora = append(r.Corpora, corpusOf(o.Corpus))
	}
	of := candidate.Options{Seed: o.Seed, Stream: o.Stream, Threads: o.Threads, Stop: ctx.Err}
	m, err := r.Posterior(of)
	if err != nil {
		return nil, err
	}
	e := Ensemble(m.Ensemble(min(o.Samples, discriminant.MaxSamples(r.K, r.C)), of))
	d := map[string]float64{"moments": 1, DiagnosticLeftOut: 1, "kappa": math.Exp(m.LogKappa),
		"kappa deviation": m.LogKappaError, DiagnosticPoints: float64(r.Judged())}
	if e, ok := m.Corpora(); ok {
		d["corpus"] = e
	}
	return &Result{Ensembles: []Ensemble{e}, Coordinates: c, Means: c, Regression: true,
		Intervals:   &headIntervals{c, e, math.Sqrt(1 + 1/float64(len(e))), beyond(clients)},
		UploadBytes: momentsBytes(clients), Diagnostics: d}, ctx.Err()
}

// statisticsOf returns a client's statistics less its shift, with the share of its images that
// counts: a client counts for one image a class at least. A scatter S of dof degrees of freedom
// becomes S dof'/dof with dof' = round(share dof), 1 at least, so that the covariance S/dof stays.
// A factor F of S = F'F is scaled by sqrt(dof'/dof). One of more rows than dof' becomes a triangle,
// since a rank exceeds no dof.
func statisticsOf(c discriminant.Client) candidate.Client {
	out := candidate.Client{Means: c.Means, Within: c.Within, Curve: c.Curve}
	share := cmp.Or(c.Share, 1)
	if c.Shift == nil && share == 1 {
		return out
	}
	means := *c.Means
	means.Z, means.W = slices.Clone(means.Z), slices.Clone(means.W)
	for i := range means.N {
		subtract(means.Features(i), c.Shift)
		if means.W[i] > 0 {
			means.W[i] = max(1, means.W[i]*float32(share))
		}
	}
	out.Means = &means
	if share < 1 && c.Within.Dof > 0 {
		w := *c.Within
		w.Dof = max(1, int(math.Round(share*float64(w.Dof))))
		f := float64(w.Dof) / float64(c.Within.Dof)
		if w.Rank > 0 {
			f = math.Sqrt(f)
		}
		w.Data = slices.Clone(w.Data)
		for i := range w.Data {
			w.Data[i] *= float32(f)
		}
		if w.Rank > w.Dof {
			w.Rank, w.Data = 0, moment.Triangle(w.Whole(), w.K)
		}
		out.Within = &w
	}
	return out
}

// subtract subtracts a shift, which may be nil, from a row.
func subtract(row []float32, shift []float64) {
	for j, b := range shift {
		row[j] -= float32(b)
	}
}

// corpusOf returns a server's own images as a corpus. Its covariance is S/dof, and its class means
// are those with images.
func corpusOf(c *discriminant.Client) candidate.Corpus {
	out := candidate.Corpus{Within: c.Within.Whole(), Dof: float64(max(c.Within.Dof, 1))}
	floats.Scale(1/out.Dof, out.Within)
	for i := range c.Means.N {
		if c.Means.W[i] > 0 {
			out.Means = append(out.Means, c.Means.Features(i)...)
		}
	}
	return out
}
