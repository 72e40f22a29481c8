package honesty

import (
	"encoding/json"
	"math"
	"math/rand/v2"
	"os"
	"reflect"
	"slices"
	"testing"
	"time"

	"fmp/models/rng"
	"fmp/onnx/must"
)

// TestParity: log posteriors of states, probabilities of honesty and disputes are those of an
// independent implementation in numpy, exactly for few clients; the chains of many find the same.
func TestParity(t *testing.T) {
	text := must.Get(os.ReadFile("testdata/parity.json"))(t)
	var cases []struct {
		Clients, Classes, K int
		Lam, Masses, Means  []float64
		States              [][]int
		LogPosterior        []float64 `json:"log_posterior"`
		PHonest             []float64 `json:"p_honest"`
		Dispute             []float64
	}
	if err := json.Unmarshal(text, &cases); err != nil || len(cases) == 0 {
		t.Fatal(err)
	}
	for _, c := range cases {
		u := Uploads{Clients: c.Clients, Classes: c.Classes, K: c.K, Masses: c.Masses, Means: c.Means}
		h := must.Get(newModel(u, c.Lam))(t)
		for q, bits := range c.States {
			z := make([]bool, len(bits))
			for m, b := range bits {
				z[m] = b == 1
			}
			if got := h.logPosterior(z); !(math.Abs(got-c.LogPosterior[q]) <= 1e-5) {
				t.Errorf("%d clients, state %d: log posterior %v, want %v", c.Clients, q, got,
					c.LogPosterior[q])
			}
		}
		s := must.Get(Infer(t.Context(), u, c.Lam, 1, 0))(t)
		tolerance := 1e-6
		if c.Clients > Exact {
			tolerance = 0.05 // which of the improbable states the chains end in is chance
		}
		for m, p := range s.Marginal() {
			if !(math.Abs(p-c.PHonest[m]) <= tolerance) {
				t.Errorf("%d clients: client %d is honest with %v, want %v", c.Clients, m,
					p, c.PHonest[m])
			}
		}
		for k, d := range s.Dispute(u) {
			if !(math.Abs(d-c.Dispute[k]) <= 0.02) {
				t.Errorf("%d clients: dispute of class %d is %v, want %v", c.Clients, k,
					d, c.Dispute[k])
			}
		}
	}
}

// truth draws class means, [classes, k], of falling variances, [k].
func truth(r *rand.Rand, classes, k int) (lambda, mu []float64) {
	lambda, mu = make([]float64, k), make([]float64, classes*k)
	for j := range lambda {
		lambda[j] = 12 - 10*float64(j)/float64(k)
	}
	for i := range mu {
		mu[i] = r.NormFloat64() * math.Sqrt(lambda[i%k])
	}
	return lambda, mu
}

// round makes honest uploads of clients of n points each; the first bad of them name every class by
// the next one's name.
func round(seed uint64, clients, classes, k, n, bad int) (Uploads, []float64) {
	r := rng.New(seed, "round")
	u := Uploads{Clients: clients, Classes: classes, K: k, Masses: make([]float64, clients*classes),
		Means: make([]float64, clients*classes*k)}
	lambda, mu := truth(r, classes, k)
	for m := range clients {
		for range n {
			y := r.IntN(classes)
			label := y
			if m < bad {
				label = (y + 1) % classes
			}
			u.Masses[m*classes+label]++
			for j := range k {
				u.Means[(m*classes+label)*k+j] += mu[y*k+j] + r.NormFloat64()
			}
		}
		for i := m * classes; i < (m+1)*classes; i++ {
			for j := range k {
				u.Means[i*k+j] /= max(u.Masses[i], 1)
			}
		}
	}
	return u, lambda
}

// TestHonesty: clients that name classes falsely are found, in few and in many; nobody else is; a
// client that alone holds a class is kept; the number of threads makes no difference.
func TestHonesty(t *testing.T) {
	for _, c := range []struct{ clients, bad int }{{10, 2}, {10, 0}, {100, 20}, {100, 0}, {600, 100}} {
		u, lambda := round(3, c.clients, 10, 9, 20, c.bad)
		start := time.Now()
		s := must.Get(Infer(t.Context(), u, lambda, 1, 1))(t)
		t.Logf("%d clients, %d bad: %v, %d states", c.clients, c.bad, time.Since(start), len(s.P))
		for m, p := range s.Marginal() {
			if bad := m < c.bad; bad != (p < 0.5) || (bad && p > 0.02) || (!bad && p < 0.8) {
				t.Errorf("%d clients, %d bad: client %d is honest with %.3f", c.clients, c.bad, m, p)
			}
		}
		again, err := Infer(t.Context(), u, lambda, 1, 3)
		if err != nil || !reflect.DeepEqual(s, again) {
			t.Errorf("%d clients: other figures on other threads (%v)", c.clients, err)
		}
		count := 0
		for _, z := range s.Draw(50, rng.New(1, "draw")) {
			if !z[0] {
				count++
			}
		}
		if want := 50 * (1 - s.Marginal()[0]); math.Abs(float64(count)-want) > 1+1e-9 {
			t.Errorf("%d clients: client 0 is bad in %d of 50 draws, want %.1f", c.clients, count, want)
		}
	}
	u, lambda := round(4, 8, 5, 4, 20, 0)
	for m := range 8 { // class 2 is client 3's alone
		if m != 3 {
			u.Masses[m*5+2] = 0
		}
	}
	s, err := Infer(t.Context(), u, lambda, 1, 0)
	if err != nil || s.Marginal()[3] < 0.8 || s.Dispute(u)[2] > Contested {
		t.Errorf("the only holder of a class is honest with %.3f (%v)", s.Marginal()[3], err)
	}
}

// TestAlone: honest clients whose classes nobody else holds are not suspected, although these are like
// classes that all hold, and although one client claims a little of each. One of them that sends
// images of those is found, and so are two who share a class of such images.
func TestAlone(t *testing.T) {
	const clients, shared, k = 5, 5, 40
	const classes = shared + clients
	for seed := range uint64(8) {
		for _, kin := range []float64{.3, .6} { // how far alike classes are apart, where two of all are at 1
			r := rng.New(seed, "alone")
			lambda, mu := truth(r, classes, k)
			for y := range clients {
				for j := range k {
					mu[(shared+y)*k+j] = mu[y*k+j] + kin*r.NormFloat64()*math.Sqrt(2*lambda[j])
				}
			}
			for which := range 8 {
				liars, stray, wide := [][]int{nil, {2}, {2, 3}, nil}[which%4], which%4 == 3, which > 3
				u := Uploads{Clients: clients, Classes: classes, K: k, Masses: make([]float64, clients*classes),
					Means: make([]float64, clients*classes*k), Wide: wide}
				for m := range clients {
					lies := slices.Contains(liars, m)
					for y := range classes {
						of, n := y, 20.
						switch own := y == shared+m; {
						case lies && y == shared+2: // the liars' class is the first of all
							of = 0
						case y >= shared && !own && stray && m == 0:
							n = 1e-4 // an image, of a client that claims very many of others
						case y >= shared && (!own || lies), liars == nil && y < shared && y != m && seed%2 == 0:
							continue
						}
						u.Masses[m*classes+y] = n
						for j := range k {
							u.Means[(m*classes+y)*k+j] = mu[of*k+j] + r.NormFloat64()/math.Sqrt(n)
						}
					}
				}
				for m, p := range must.Get(Infer(t.Context(), u, lambda, 1, 0))(t).Marginal() {
					if lies := slices.Contains(liars, m); lies && p > .1 || !lies && p < .9 {
						t.Errorf("seed %d, classes %.1f apart, liars %v, stray %v, wide %v: client %d is honest with %.3f",
							seed, kin, liars, stray, wide, m, p)
					}
				}
			}
		}
	}
}

// TestFew: a cell's densities under few classes are those under all, for every number of coordinates
// and for masses as small as a float32 has.
func TestFew(t *testing.T) {
	const classes = 3
	for k := 1; k <= 40; k++ {
		for _, n := range []float64{20, 1, 1e-20, 1e-38, math.SmallestNonzeroFloat32} {
			r := rng.New(uint64(k), "few")
			st := &state{h: &model{k: k, classes: classes}, n: []float64{1, 1, 1}, iv: math.NaN(), dets: make([]logDet, classes)}
			l := &cell{iv: meanVariance(n), near: []int{0, 1, 2, classes, classes + 1}}
			for range classes * k {
				st.mean, st.v = append(st.mean, r.NormFloat64()), append(st.v, math.Exp(r.NormFloat64()))
			}
			for range k {
				l.x = append(l.x, 3*r.NormFloat64())
			}
			want, got := make([]float64, classes+2), make([]float64, classes+2)
			st.components(l, want)
			st.few(l, got)
			for c, v := range want {
				if !(math.Abs(got[c]-v) <= 1e-10*(1+math.Abs(v))) {
					t.Fatalf("%d coordinates, mass %g: log density %g under class %d, want %g", k, n, got[c], c, v)
				}
			}
		}
	}
}

// TestStatesCheck: each part of what states must be is looked at by itself.
func TestStatesCheck(t *testing.T) {
	sound := func() *States {
		return &States{Honest: [][]bool{{true, true}, {true, false}}, P: []float64{.75, .25}}
	}
	must.Do(t, sound().Check(2))
	for name, spoil := range map[string]func(s *States){
		"none":                         func(s *States) { *s = States{} },
		"a probability too few":        func(s *States) { s.P = []float64{1} },
		"a client too few":             func(s *States) { s.Honest[1] = s.Honest[1][:1] },
		"a negative probability":       func(s *States) { s.P = []float64{1.25, -.25} },
		"a probability of no number":   func(s *States) { s.P[0] = math.NaN() },
		"probabilities that sum to .9": func(s *States) { s.P[0] = .65 },
	} {
		s := sound()
		spoil(s)
		if s.Check(2) == nil {
			t.Errorf("%s: no error", name)
		}
	}
}

// TestRefusedParts: what a round gives is looked at part by part, and what cannot be weighed is an
// error and not a figure.
func TestRefusedParts(t *testing.T) {
	for name, change := range map[string]func(*Uploads, []float64){
		"a mass of no number": func(u *Uploads, _ []float64) { u.Masses[0] = math.NaN() },
		"an infinite mass":    func(u *Uploads, _ []float64) { u.Masses[0] = math.Inf(1) },
		"a negative mass":     func(u *Uploads, _ []float64) { u.Masses[0] = -1 },
		"a mean of no number": func(u *Uploads, _ []float64) {
			u.Masses[0], u.Means[0] = 1, math.NaN()
		},
		"an infinite mean":      func(u *Uploads, _ []float64) { u.Masses[0], u.Means[0] = 1, math.Inf(1) },
		"a variance of 0":       func(_ *Uploads, l []float64) { l[0] = 0 },
		"a number too few":      func(u *Uploads, _ []float64) { u.Means = u.Means[1:] },
		"a mean of 1e101":       func(u *Uploads, _ []float64) { u.Masses[0], u.Means[0] = 1, -1e101 },
		"an infinite variance":  func(_ *Uploads, l []float64) { l[0] = math.Inf(1) },
		"a mass too few":        func(u *Uploads, _ []float64) { u.Masses = u.Masses[1:] },
		"a copy too few":        func(u *Uploads, _ []float64) { u.Copy = []int{0} },
		"one class":             func(u *Uploads, _ []float64) { u.Classes = 1 },
		"another k than lambda": func(u *Uploads, _ []float64) { u.K++ },
	} {
		u, lambda := round(1, 4, 3, 2, 6, 0)
		change(&u, lambda)
		must.Fail(Infer(t.Context(), u, lambda, 1, 0))(t, "", name)
	}
}
