package honesty

import (
	"math"
	"slices"
	"testing"

	"fmp/models/rng"
	"fmp/onnx/must"
)

// knownRound draws the uploads of clients that hold three of six classes each, of which the first
// bad turn the sign of their means, with known means of some classes.
func knownRound(clients, bad, classes int, known func(c int) bool) (u Uploads, lambda []float64) {
	const k, n = 5, 20
	r := rng.New(3, "known", clients, bad)
	lambda = slices.Repeat([]float64{4}, k)
	u = Uploads{Clients: clients, Classes: classes, K: k, Masses: make([]float64, clients*classes),
		Means: make([]float64, clients*classes*k),
		Known: &Known{Masses: make([]float64, classes), Means: make([]float64, classes*k)}}
	for c := range classes {
		mu := make([]float64, k)
		for j := range mu {
			mu[j] = 2 * r.NormFloat64()
			u.Known.Means[c*k+j] = mu[j] + 0.2*r.NormFloat64()
		}
		if known(c) {
			u.Known.Masses[c] = n
		}
		for m := range clients {
			if (m+c)%2 == 0 {
				continue
			}
			u.Masses[m*classes+c] = n
			for j := range mu {
				x := mu[j] + 0.5*r.NormFloat64()
				if m < bad {
					x = -x
				}
				u.Means[(m*classes+c)*k+j] = x
			}
		}
	}
	return u, lambda
}

// TestKnown: where all classes are known, clients are told by them however many collude, exactly
// and by chains; a client that sends what is known is no copy. Without, or where some class is not
// known, fewer than half may be bad.
func TestKnown(t *testing.T) {
	for _, c := range []struct{ clients, bad int }{{10, 4}, {10, 6}, {10, 9}, {16, 12}} {
		for _, partly := range []bool{false, true} {
			u, lambda := knownRound(c.clients, c.bad, 6, func(c int) bool { return !partly || c > 0 })
			u.Copies()
			s := must.Get(Infer(t.Context(), u.Bound(), lambda, 1, 1))(t)
			for _, z := range s.Honest {
				bad := 0
				for _, honest := range z {
					if !honest {
						bad++
					}
				}
				if partly && 2*bad >= c.clients {
					t.Fatalf("%d clients, one class unknown: a state of %d bad ones", c.clients, bad)
				}
			}
			for m, p := range s.Marginal() {
				if !partly && (p > 0.5) != (m >= c.bad) {
					t.Errorf("%d of %d collude: client %d is honest with %.3f", c.bad, c.clients, m, p)
				}
			}
		}
	}
	u, lambda := knownRound(10, 6, 6, func(int) bool { return true })
	u.Known = nil
	s := must.Get(Infer(t.Context(), u, lambda, 1, 1))(t)
	if p := s.Marginal(); p[0] < 0.5 || p[9] > 0.5 {
		t.Errorf("six of ten collude and nothing is known: P(honest) is %.3f", p)
	}
	for _, spoil := range []func(k *Known){
		func(k *Known) { k.Masses = k.Masses[:1] }, func(k *Known) { k.Means[0] = math.NaN() }, func(
			k *Known) {
			k.Masses[0] = -1
		},
	} {
		u, lambda := knownRound(4, 1, 6, func(int) bool { return true })
		spoil(u.Known)
		must.Fail(Infer(t.Context(), u, lambda, 1, 1))(t, "known", "spoilt known means")
	}
}

// TestAgainstKnown: a further client is judged by what is known where those that judge collude.
func TestAgainstKnown(t *testing.T) {
	u, lambda := knownRound(10, 9, 6, func(int) bool { return true })
	of := func(m int) (masses, means []float64) {
		return u.masses(m), u.Means[m*u.Classes*u.K:][:u.Classes*u.K]
	}
	judges := u
	judges.Clients = 8 // all bad
	judges.Masses, judges.Means = u.Masses[:8*u.Classes], u.Means[:8*u.Classes*u.K]
	a := must.Get(NewAgainst(t.Context(), judges, lambda, 1, 1))(t)
	for m, want := range map[int]bool{8: false, 9: true} {
		masses, means := of(m)
		if got, err := a.Honest(masses, means, 0); err != nil || got != want {
			t.Errorf("client %d is honest: %v, %v; want %v", m, got, err, want)
		}
	}
}

// TestContradicted: known class means contradict a round of which more than two thirds of the
// clients differ; copies count together.
func TestContradicted(t *testing.T) {
	for _, c := range []struct {
		bad  int
		copy bool
		want bool
	}{{0, false, false}, {6, false, false}, {7, false, true}, {10, false, true}, {9, true, false}} {
		u, lambda := knownRound(10, c.bad, 6, func(int) bool { return true })
		if c.copy { // the bad ones but the first two, which hold other classes, are copies of these
			u.Copy = []int{0, 1, 0, 1, 0, 1, 0, 1, 0, 9}
		}
		if got, err := u.Contradicted(lambda); err != nil || got != c.want {
			t.Errorf("%d bad of ten, copies %v: contradicted is %v, %v", c.bad, c.copy, got, err)
		}
	}
	u, lambda := knownRound(10, 10, 6, func(int) bool { return true })
	u.Known = nil
	if got, err := u.Contradicted(lambda); err != nil || got {
		t.Errorf("nothing is known: contradicted is %v, %v", got, err)
	}
}
