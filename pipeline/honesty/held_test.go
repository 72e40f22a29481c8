package honesty

import (
	"context"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"

	"fmp/onnx/must"
)

// TestHeld: uploads that keep the means that are held alone are judged, bounded, confirmed and
// pooled to the bit as those with means of all classes, which take memory of clients x classes.
func TestHeld(t *testing.T) {
	r := rand.New(rand.NewPCG(41, 42))
	const clients, classes, k = 14, 6, 3
	held, full := NewUploads(clients, classes, k), Uploads{Clients: clients, Classes: classes, K: k,
		Masses: make([]float64, clients*classes), Means: make([]float64, clients*classes*k)}
	cells := 0
	for m := range clients {
		for _, c := range r.Perm(classes)[:1+m%3] {
			for range 2 { // in two parts
				n := float64(1 + r.IntN(9))
				sum, mean := held.Add(m, c, n), full.mean(m, c)
				full.masses(m)[c] += n
				for j := range k {
					x := float64(c*j) + r.NormFloat64()
					sum[j], mean[j] = sum[j]+n*x, mean[j]+n*x
				}
			}
			cells++
		}
		held.Divide(m)
		for c, n := range full.masses(m) {
			for j := range k {
				full.mean(m, c)[j] /= max(n, 1)
			}
		}
	}
	if len(held.Means) != cells*k {
		t.Errorf("%d numbers for %d means of %d", len(held.Means), cells, k)
	}
	if d := cmp.Diff(held.Dense(), full); d != "" {
		t.Fatal(d)
	}
	known := &Known{Masses: slices.Repeat([]float64{20}, classes), Means: full.Means[:classes*k]}
	lambda := []float64{4, 2, 1}
	judge := func(u Uploads) (out []any) {
		claimed := u.Masses
		u.Copies()
		u.Known = known
		no := must.Get(u.Contradicted(lambda))(t)
		u = u.Bound()
		states := must.Get(Infer(context.Background(), u, lambda, 1, 1))(t)
		all := u.Pool(func(m int) bool { return m%3 > 0 })
		return append(out, no, u.Copy, u.Masses, states, u.Confirm(claimed, lambda, states.Marginal()),
			states.Dispute(u), all)
	}
	if d := cmp.Diff(judge(held), judge(full)); d != "" {
		t.Error(d)
	}
	held.Rows[slices.IndexFunc(held.Masses, func(n float64) bool { return n > 0 })] = int32(cells)
	must.Fail(Infer(context.Background(), held, lambda, 1, 1))(
		t, "",
		"a place beyond the means is accepted")

}
