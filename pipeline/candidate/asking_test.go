package candidate

import (
	"math"
	"slices"
	"testing"

	"gonum.org/v1/gonum/floats"

	"fmp/onnx/must"
	"fmp/pipeline/moments"
)

// TestByClients: of clients with one image a class, which stand for themselves, the log-likelihood
// is that of each under the discriminant of the corpus and all others, counted one by one.
func TestByClients(t *testing.T) {
	w := newWorld(5)
	r, _, _ := w.moved(t, 1, 0, 5, 40)
	for i := range r.Clients {
		for j := range r.Clients[i].Means.W {
			r.Clients[i].Means.W[j] = 1
		}
	}
	of, s := namedOf(t, r), must.Get(r.sum(1))(t)
	got := must.Get(of.byClients(r, s, &Options{}))(t)
	for i, shift := range shifts {
		var curve moments.Curve
		for m := range r.Clients {
			for _, v := range r.Clients[m].cells() {
				l := make([]float64, w.c)
				for y := range w.c {
					l[y] = -math.Pow(floats.Distance(of.coordinates(v), of.others(r, m, y, i), 2), 2) / 2
				}
				for at := range curve {
					logs := slices.Clone(l)
					floats.Scale(1/moments.Temperature(at), logs)
					all, random := floats.LogSumExp(logs), surprises/s.images
					curve[at] += logs[v.class] - all + random*(floats.Sum(logs)/float64(w.c)-all)
				}
			}
		}
		if want := slices.Max(curve[:]); !(math.Abs(got[i]-want) < 1e-4*(1+math.Abs(want))) {
			t.Errorf("shift %g: log-likelihood %g, want %g", shift, got[i], want)
		}
	}
}

// others returns the mean of a class by the corpus, at a shift, and all clients but one, where W is
// I.
func (of *named) others(r *Round, but, class, shift int) []float64 {
	mean, n, squares := make([]float64, of.k), 0.0, 0.0
	for m := range r.Clients {
		for _, v := range r.Clients[m].cells() {
			if m != but && v.class == class {
				floats.AddScaled(mean, v.n, of.coordinates(v))
				n, squares = n+v.n, squares+v.n*v.n
			}
		}
	}
	uneven := max(squares/(n*n)-1/float64(len(r.Clients)-1), 0) * of.clientVariance
	floats.Scale(1/(1+n*uneven), mean)
	a := of.count[class] * of.mass(class, shift)
	floats.AddScaled(mean, a, of.centre[class*of.k:][:of.k])
	floats.Scale(1/(a+n/(1+n*uneven)), mean)
	return mean
}
