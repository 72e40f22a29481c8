package honesty

import (
	"math"
	"slices"
	"testing"

	"fmp/models/rng"
	"fmp/onnx/must"
)

// sized makes honest uploads of clients of the given numbers of images: class means with the noise
// of so many.
func sized(seed uint64, classes, k int, images ...float64) (Uploads, []float64) {
	r := rng.New(seed, "sized")
	clients := len(images)
	u := Uploads{Clients: clients, Classes: classes, K: k, Masses: make([]float64, clients*classes),
		Means: make([]float64, clients*classes*k)}
	lambda, mu := truth(r, classes, k)
	for i := range u.Masses {
		u.Masses[i] = images[i/classes] / float64(classes)
		for j := range k {
			u.Means[i*k+j] = mu[i%classes*k+j] + r.NormFloat64()/math.Sqrt(u.Masses[i])
		}
	}
	return u, lambda
}

// counted returns the masses that count of each client if all are honest, and the bounded uploads.
func counted(u Uploads, lambda []float64) ([]float64, Uploads) {
	u.Copies()
	bounded := u.Bound()
	confirmed := bounded
	confirmed.Masses = bounded.Confirm(u.Masses, lambda, repeated(u.Clients, 1))
	return confirmed.totals(), bounded
}

// repeated returns n times v.
func repeated(n int, v float64) []float64 { return slices.Repeat([]float64{v}, n) }

// clone copies uploads.
func clone(u Uploads) Uploads {
	u.Masses, u.Means = slices.Clone(u.Masses), slices.Clone(u.Means)
	return u
}

// scale multiplies the masses of a client.
func scale(u *Uploads, m int, by float64) {
	for c := range u.masses(m) {
		u.masses(m)[c] *= by
	}
}

// TestCounted: clients of one size count as they claim; a claim that grows never counts less, never
// more than is claimed, and for no class more than the cap or all others together; far from the
// others it counts up to the cap.
func TestCounted(t *testing.T) {
	u, lambda := sized(1, 10, 9, repeated(10, 20)...)
	if got, _ := counted(u, lambda); slices.ContainsFunc(got,
		func(n float64) bool { return math.Abs(n-20) > 1e-9 }) {
		t.Errorf("clients of 20 images count as %v", got)
	}
	for _, moved := range []float64{0, 0.1, 1, 5} {
		last := 0.0
		for _, times := range []float64{0.5, 1, 1.5, 2, 3, 10, 100, 1000, 1e6} {
			v := clone(u)
			scale(&v, 0, times)
			for i := range 10 * 9 {
				v.Means[i] += moved
			}
			got, _ := counted(v, lambda)
			if got[0] < last-1e-9 || got[0] > 20*times+1e-9 || got[0] > 10*9*2+1e-9 {
				t.Errorf("moved by %v, a claim of %v counts as %v; a smaller one as %v", moved,
					20*times, got[0], last)
			}
			if last = got[0]; moved >= 1 && got[0] > 20.5 {
				t.Errorf("moved by %v, a claim of %v counts as %v; the cap is 20", moved,
					20*times, got[0])
			}
			for m, n := range got[1:] {
				if math.Abs(n-20) > 1e-9 {
					t.Errorf("client %d counts as %v while another claims %v", m+1, n, 20*times)
				}
			}
		}
	}
}

// TestLarge: large honest clients beside many small ones count for the larger part of what they
// claim, as the others confirm them. Those that claim as much and have the noise of few images do
// not.
func TestLarge(t *testing.T) {
	sizes := append(repeated(10, 1000), repeated(90, 10)...)
	u, lambda := sized(2, 10, 9, sizes...)
	got, _ := counted(u, lambda)
	for m, n := range got[:10] {
		if n < 500 || n > 1000 {
			t.Errorf("client %d of 1,000 images counts as %v", m, n)
		}
	}
	u, lambda = sized(2, 10, 9, repeated(100, 10)...)
	for m := range 10 {
		scale(&u, m, 100)
	}
	got, _ = counted(u, lambda)
	for m, n := range got[:10] {
		if n > 25 {
			t.Errorf("client %d of 10 images, which claims 1,000, counts as %v", m, n)
		}
	}
}

// TestLimit: one client counts for no more than all others together, which can confirm no more,
// though it has a million images.
func TestLimit(t *testing.T) {
	u, lambda := sized(6, 10, 9, append([]float64{1e6}, repeated(9, 20)...)...)
	if got, _ := counted(u, lambda); got[0] < 40 || got[0] > 9*20+1e-6 {
		t.Errorf("a client of 1e6 images beside 9 of 20 counts as %v", got[0])
	}
}

// TestInvariance: the order of clients does not matter, and in units of other images the bounded
// masses are the same.
func TestInvariance(t *testing.T) {
	u, lambda := sized(3, 5, 4, 10, 10, 300, 20, 40, 15, 15, 90)
	scale(&u, 4, 50)
	copy(u.Means[6*5*4:], u.Means[5*5*4:6*5*4]) // 6 copies 5
	want, bounded := counted(u, lambda)
	order := rng.New(3, "order").Perm(u.Clients)
	v := clone(u)
	for to, from := range order {
		copy(v.masses(to), u.masses(from))
		copy(v.Means[to*5*4:], u.Means[from*5*4:][:5*4])
	}
	got, _ := counted(v, lambda)
	for to, from := range order {
		if math.Abs(got[to]-want[from]) > 1e-9*want[from] {
			t.Errorf("client %d counts as %v in another order, as %v in its own", from,
				got[to], want[from])
		}
	}
	for m := range u.Clients {
		scale(&u, m, 7)
	}
	u.Copies()
	for i, n := range u.Bound().Masses {
		if math.Abs(n-7*bounded.Masses[i]) > 1e-9*n {
			t.Errorf("7 times all claims: %v counts, want 7 times %v", n, bounded.Masses[i])
		}
	}
}

// TestCopies: equal and nearly equal uploads are one piece of evidence, whatever they claim;
// independent ones, of few or of many images, are not.
func TestCopies(t *testing.T) {
	u, lambda := sized(4, 6, 5, repeated(9, 18)...)
	alone, _ := counted(u, lambda)
	h := must.Get(newModel(u, lambda))(t)
	z := make([]bool, 9)
	for m := range z {
		z[m] = m != 3
	}
	want := h.logPosterior(z)
	const each = 6 * 5
	for name, far := range map[string]float64{"equal": 0, "nearly equal": 0.02} {
		v := clone(u)
		v.Clients = 11
		v.Masses = append(v.Masses, slices.Concat(u.masses(3), u.masses(3))...)
		v.Means = append(v.Means, slices.Concat(u.Means[3*each:4*each], u.Means[3*each:4*each])...)
		for i := 9 * each; i < len(v.Means); i++ {
			v.Means[i] += far
		}
		scale(&v, 10, 1000)
		got, bounded := counted(v, lambda)
		if bounded.Copy[9] != 3 || bounded.Copy[10] != 3 || bounded.Copy[2] != 2 {
			t.Errorf("%s: copies %v", name, bounded.Copy)
		}
		if n := got[3] + got[9] + got[10]; math.Abs(n-alone[3]) > 1e-9 {
			t.Errorf("%s: three copies count as %v, one as %v", name, n, alone[3])
		}
		h = must.Get(newModel(bounded, lambda))(t)
		if got := h.logPosterior(append(slices.Clone(z), false, false)); math.Abs(got-want) > 1e-9 {
			t.Errorf("%s: log posterior %v with copies, %v without", name, got, want)
		}
		s := must.Get(Infer(t.Context(), bounded, lambda, 1, 0))(t)
		if p := s.Marginal(); p[9] != p[3] || p[10] != p[3] || p[3] < 0.8 {
			t.Errorf("%s: P(honest) of copies %v, %v and %v", name, p[3], p[9], p[10])
		}
	}
	for _, images := range []float64{6, 60, 6000, 6e6} {
		u, _ := sized(5, 6, 5, repeated(200, images)...)
		u.Copies()
		for m, first := range u.Copy {
			if first != m {
				t.Errorf("clients %d and %d of %v images each are taken for copies", m, first, images)
			}
		}
	}
}

// TestLowerMedian: of an even number of clients the cap is the lower of the two in the middle, of
// two alone the larger.
func TestLowerMedian(t *testing.T) {
	for _, c := range []struct {
		totals []float64
		want   float64
	}{{[]float64{9, 4}, 9}, {[]float64{4, 9}, 9}, {[]float64{5, 1, 9, 3}, 3},
		{[]float64{7}, 7}, {[]float64{2, 8, 4}, 4}} {
		if got := Cap(c.totals); got != c.want {
			t.Errorf("%v: %v, want %v", c.totals, got, c.want)
		}
	}
}

// TestAgreement: a client's own means do not confirm it: they agree with the others' as if it were
// no part of the round.
func TestAgreement(t *testing.T) {
	u, lambda := sized(5, 4, 3, 10, 25, 40, 15)
	honest, without := []float64{0.9, 0.8, 0.7, 1}, []float64{0.9, 0, 0.7, 1}
	n := repeated(4, 7)
	of, others := u.weighted(honest), u.weighted(without)
	got, want := of.agreement(&u, 1, honest[1], n, lambda), others.agreement(&u, 1, 0, n, lambda)
	if math.Abs(got-want) > 1e-9*math.Abs(want) {
		t.Errorf("agreement %v, and %v with the others alone", got, want)
	}
}
