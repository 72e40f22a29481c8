package candidate

import (
	"encoding/json"
	"math"
	"os"
	"slices"
	"testing"

	"fmp/onnx/dense"
	"fmp/onnx/must"
	"fmp/pipeline/moments"
	"fmp/pipeline/point"
)

// parity is a round and what the reference in numpy makes of it (testdata/parity.py). Matrices are
// row-major.
type parity struct {
	Name string
	K, C int
	Pool struct {
		N, Mean, Scatter []float64
		Dof              float64
	}
	Clients []struct {
		N, Mean, Scatter, Residuals []float64
		Dof                         int
		Curves                      [][]float64
	}
	Corpora []struct {
		Within []float64
		Rows   []float32
		Labels []int
	}
	Candidates []struct {
		Name                              string
		Evidence, Temperature, Head, Bias []float64
		Best                              float64
	}
	Kappa        []float64
	Refit, Named *struct {
		Of         string
		Rows, Mass []float64
		Label      []int
		Head, Bias []float64
	}
}

func read(t *testing.T) []parity {
	t.Helper()
	b := must.Get(os.ReadFile("testdata/parity.json"))(t)
	var out []parity
	must.Do(t, json.Unmarshal(b, &out))
	return out
}

func (p *parity) round() *Round {
	r := &Round{K: p.K, C: p.C}
	for _, u := range p.Clients {
		c := Client{Means: &point.Set{Dx: p.K, C: p.C}}
		for y, n := range u.N {
			if n > 0 {
				c.Means.N++
				c.Means.W, c.Means.Y = append(c.Means.W, float32(n)), append(c.Means.Y, int32(y))
				c.Means.Z = append(c.Means.Z, dense.As[float32](u.Mean[y*p.K:(y+1)*p.K])...)
			}
		}
		c.Within = &moments.Within{K: p.K}
		if u.Dof > 0 {
			c.Within.Dof, c.Within.Data = u.Dof, dense.As[float32](u.Scatter)
		}
		if u.Curves != nil {
			c.Curve = &moments.ClientCurve{Curve: moments.Curve(u.Curves[0])}
		}
		r.Clients = append(r.Clients, c)
	}
	for _, c := range p.Corpora {
		r.Corpora = append(r.Corpora, Corpus{Within: c.Within, Rows: c.Rows, Labels: c.Labels})
	}
	return r
}

// kappa returns the mean and deviation of log kappa by the curves of clients' images and of the
// Gaussian twins that the reference draws of each.
func (p *parity) kappa() []float64 {
	var of [2][]moments.Curve
	var single, all float64
	for _, u := range p.Clients {
		for _, n := range u.N {
			if all += n; n == 1 {
				single++
			}
		}
		for i, c := range u.Curves {
			of[i] = append(of[i], moments.Curve(c))
		}
	}
	kappa, real := priorKappa, single/all
	if len(of[0]) >= fewCurves {
		kappa = kappa.measured(of[0], of[1], 0)
	}
	return []float64{(1-real)*kappa.mean + real*singleKappa, (1 - real) * kappa.deviation}
}

// near reports an error unless numbers agree to 1e-8 of the largest, or to tol.
func near(t *testing.T, what string, got, want []float64, tol float64) {
	t.Helper()
	if len(got) != len(want) {
		t.Fatalf("%s: %d numbers, want %d", what, len(got), len(want))
	}
	most := 1e-300
	for _, v := range want {
		most = max(most, math.Abs(v))
	}
	for i, v := range want {
		if !(math.Abs(got[i]-v) <= tol*most) {
			t.Fatalf("%s: number %d is %.12g, want %.12g (the largest is %.3g)", what, i,
				got[i], v, most)
		}
	}
}

// logits returns H [K, C] from weights in the basis, [C, K].
func onFeatures(b *basis, w []float64) []float64 { return timesT(b.v, w, b.k, b.k, b.c) }

func TestParity(t *testing.T) {
	for _, p := range read(t) {
		t.Run(p.Name, func(t *testing.T) {
			r := p.round()
			must.Do(t, r.Check())
			s := must.Get(r.sum(2))(t)
			near(t, "counts", s.all.n, p.Pool.N, 0)
			near(t, "means", s.all.mean, p.Pool.Mean, 1e-9)
			mirror(s.all.scatter, p.K)
			near(t, "scatter", s.all.scatter, p.Pool.Scatter, 1e-9)
			near(t, "degrees of freedom", []float64{s.all.dof}, []float64{p.Pool.Dof}, 0)
			near(t, "log kappa", p.kappa(), p.Kappa, 1e-8)
			cands := slices.DeleteFunc(must.Get(r.candidates())(t), func(c candidate) bool {
				return c.target.inverse != nil && c.strength < strengths[2] // as the reference has them
			})
			draw := func(group []int, _ int) []residuals { // of classes that others hold too, in order
				const draws = 12
				out, own := residuals{root: p.Clients[group[0]].Residuals}, p.Clients[group[0]].N
				out.rank = len(out.root) / p.K
				out.z = func(v cell) []float64 {
					z, at := make([]float64, draws*out.rank), 0
					for y := range v.class {
						if own[y] > 0 && p.Pool.N[y] > own[y] {
							at += draws
						}
					}
					for i := range draws {
						z[i*out.rank+at+i] = 1
					}
					return z
				}
				return []residuals{out}
			}
			per := must.Get(r.evidence(s, len(s.folds), cands, draw, &Options{Threads: 2}))(t)
			for j, want := range p.Candidates {
				if cands[j].name != want.Name {
					t.Fatalf("candidate %d is %s, want %s", j, cands[j].name, want.Name)
				}
				b := s.all.in(*cands[j].target)
				h := b.at(cands[j].strength, cands[j].prior)
				near(t, want.Name+": head", onFeatures(b, h.linear().w), want.Head, 1e-8)
				near(t, want.Name+": bias", h.bias, want.Bias, 1e-8)
				var of []moments.Curve
				var some []float64
				for g := range per {
					of = append(of, per[g][j])
					for i := 0; i < moments.Temperatures; i += 8 {
						some = append(some, per[g][j][i])
					}
				}
				near(t, want.Name+": evidence", some, want.Evidence, 1e-6)
				near(t, want.Name+": best", []float64{slices.Max(sumOf(of)[:])},
					[]float64{want.Best}, 1e-6)
				at := temperature(of)
				near(t, want.Name+": temperature", []float64{at.mean, at.deviation},
					want.Temperature, 1e-5)
				if want.Name == p.Refit.Of {
					on := &images{h.white(h.of(p.Refit.Rows, len(p.Refit.Label))),
						p.Refit.Mass, p.Refit.Label}
					l := must.Get(h.fitted(on, prior(h.n), h.linear().over(math.Exp(want.Temperature[0]))))(t)
					// where two minimisers stop
					near(t, "refit", onFeatures(b, l.w), p.Refit.Head, 1e-6)
					near(t, "refit: bias", l.bias, p.Refit.Bias, 1e-6)
				}
			}
			if p.Named == nil {
				return
			}
			b := s.all.in(*cands[len(cands)-1].target)
			h := b.at(strengths[len(strengths)-1], nil)
			k := must.Get(h.knows(&r.Corpora[0]))(t)
			of := &named{discriminant: h, known: k, theirs: &images{
				h.white(h.of(p.Named.Rows, len(p.Named.Label))), p.Named.Mass, p.Named.Label}}
			l := must.Get(of.fitted(of.images(0), make([]float64, of.c), nil))(t)
			near(t, "named", onFeatures(b, l.w), p.Named.Head, 1e-6)
			near(t, "named: bias", l.bias, p.Named.Bias, 1e-6)
		})
	}
}
