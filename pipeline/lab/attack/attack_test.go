package attack

import (
	"encoding/json"
	"fmt"
	"math"
	"slices"
	"testing"

	"fmp/models/rng"
	"fmp/onnx/engine"
	"fmp/onnx/engine/pure"
	"fmp/onnx/must"
	"fmp/pipeline/honesty"
	"fmp/pipeline/lab/experiment"
	"fmp/pipeline/metric"
	"fmp/pipeline/posterior"
)

// digits prepares rounds of ten clients of the digits data set, two of them bad, in closed form. In
// open scope the corpus has the classes 0 to 4 and the clients the others.
func digits(t *testing.T, open bool, alpha float64) *bench {
	t.Helper()
	eng := must.Get(pure.New(engine.Options{}))(t)
	c := experiment.Default()
	c.Dataset.Name, c.Methods = "digits", []string{"FMP"}
	if open {
		c.Dataset.Classes, c.Corpus.Classes = "5-9", "0-4"
	}
	p := must.Get(experiment.Prepare(t.Context(), c, eng, nil, nil))(t)
	t.Cleanup(func() { p.Close() })
	b := must.Get(newBench(t.Context(), p,
		Options{Rounds: experiment.Rounds{Clients: 10, Points: 10, Alpha: alpha, Repeats: 1, Samples: 20,
			Seed: 1, Threads: 1}, Bad: 2, ClosedForm: true}))(t)
	return b
}

// round is a round to attack: the honest claims, and the accuracies that an attack is measured
// against.
type round struct {
	*bench
	claims        honesty.Uploads
	lambda        []float64
	peace, oracle metric.Scores
}

func newRound(t *testing.T, b *bench) *round {
	t.Helper()
	good := must.Get(b.uploads(t.Context(), 0))(t)
	r := &round{bench: b}
	r.claims, r.lambda = must.Get2(b.claims(good))(t)
	r.peace, _ = must.Get2(b.score(t.Context(), good, 0, true))(t)
	r.oracle = must.Get(b.without(t.Context(), r.claims, b.Bad, 0))(t)
	return r
}

// attacked returns the scores under attack i, with so many times the images of an honest client
// claimed, and what honesty says.
func (r *round) attacked(t *testing.T, i int,
	multiple float64) (metric.Scores, *posterior.Judgement) {
	t.Helper()
	sets := must.Get(r.sets(Attacks[i].apply(r.claims, r.lambda, r.Bad, multiple*float64(r.Points),
		rng.New(1, "attack", i))))(t)
	s, judged := must.Get2(r.score(t.Context(), sets, 0, false))(t)
	return s, judged
}

// TestBoundedInfluence: with 20% bad clients accuracy and NLL stay within .01 of peace, or of the
// oracle's where the bad clients' images are missed, whatever they say and however many images they
// claim. Under skew, where bad clients may outnumber the honest holders of a class with the images
// they have, accuracy stays within .01 of what they reach by claiming no more than those.
func TestBoundedInfluence(t *testing.T) {
	multiples := Multiples
	if testing.Short() {
		multiples = []float64{1000}
	}
	for _, scope := range []struct {
		open  bool
		alpha float64
	}{{false, 0}, {false, 0.1}, {true, 0}} {
		r := newRound(t, digits(t, scope.open, scope.alpha))
		for i, a := range Attacks {
			t.Run(fmt.Sprintf("open=%v/alpha=%g/%s", scope.open, scope.alpha, a.Name),
				func(t *testing.T) {
					acc, nll := min(r.peace.ACC, r.oracle.ACC)-0.01, max(r.peace.NLL, r.oracle.NLL)+0.01
					if scope.alpha > 0 {
						own, _ := r.attacked(t, i, 1)
						acc, nll = min(acc, own.ACC-0.01), math.Inf(1)
					}
					for _, multiple := range multiples {
						s, j := r.attacked(t, i, multiple)
						if s.ACC < acc || s.NLL > nll {
							t.Errorf("at %g times the mass: accuracy %.3f, NLL %.3f; want %.3f and "+
								"%.3f; P(honest) %.2f, counted %.0f of %.0f", multiple, s.ACC,
								s.NLL, acc, nll, j.Honest[0], j.Counted[0], j.Claimed[0])
						}
					}
				})
		}
	}
}

// TestOnePosteriorUnderAttack: beside the corpus's images no attack leaves less accuracy than in
// closed form, nor more NLL, by more than .01, whatever bad clients say and claim. In peace there is
// less.
func TestOnePosteriorUnderAttack(t *testing.T) {
	multiples := []float64{1, 1000}
	if testing.Short() {
		multiples = multiples[1:]
	}
	for _, alpha := range []float64{0, 0.1} {
		closed := newRound(t, digits(t, false, alpha))
		one := *closed.bench
		one.ClosedForm = false
		r := newRound(t, &one)
		if !(r.peace.NLL < closed.peace.NLL) {
			t.Errorf("alpha %g: NLL in peace %.3f; in closed form %.3f", alpha, r.peace.NLL, closed.peace.NLL)
		}
		for i, a := range Attacks {
			for _, multiple := range multiples {
				was, _ := closed.attacked(t, i, multiple)
				is, _ := r.attacked(t, i, multiple)
				if is.ACC < was.ACC-0.01 || is.NLL > was.NLL+0.01 {
					t.Errorf("alpha %g, %s at %g times the mass: accuracy %.3f, NLL %.3f; in closed form "+
						"%.3f and %.3f", alpha, a.Name, multiple, is.ACC, is.NLL, was.ACC, was.NLL)
				}
			}
		}
	}
}

// TestSizes: a few large honest clients beside many small ones count as they claim, as far as
// accuracy shows it.
func TestSizes(t *testing.T) {
	b := digits(t, false, 0)
	s := must.Get(RunSizes(t.Context(), b.p, b.Options))(t)
	if s.Counted.ACC < s.Claimed.ACC-0.002 || s.Counted.NLL > s.Claimed.NLL+0.002 ||
		s.Large <= s.Small {
		t.Errorf("counted %+v, claimed %+v, of %d and %d images", s.Counted, s.Claimed,
			s.Large, s.Small)
	}
	few := *b.p.Data.Clients
	few.Labels = few.Labels[:1899]
	b.p.Data.Clients = &few
	must.Fail(RunSizes(t.Context(), b.p, b.Options))(t, "1899 images, and 1900 are the fewest; enlarge dataset.splits")
}

// TestTargetOfFewClasses: of any number of classes the attack tells of one what is true of another.
func TestTargetOfFewClasses(t *testing.T) {
	i := slices.IndexFunc(Attacks, func(a Attack) bool { return a.Name == "target" })
	for classes := 2; classes <= 10; classes++ {
		u := honesty.Uploads{Clients: 2, Classes: classes, K: 1}
		for c := range u.Clients * classes {
			u.Masses, u.Means = append(u.Masses, 1), append(u.Means, float64(c))
		}
		for seed := range uint64(20) {
			got := Attacks[i].apply(u, []float64{1}, 1, 10, rng.New(seed, "attack"))
			shift := rng.New(seed, "attack").IntN(classes)
			if got.Means[shift] == u.Means[shift] {
				t.Errorf("of %d classes, number %d keeps its mean", classes, shift)
			}
			// The rows of results are of the third class behind.
			if want := float64((shift + 3) % classes); classes > 3 && got.Means[shift] != want {
				t.Errorf("of %d classes, number %d has the mean %g, want %g", classes, shift, got.Means[shift], want)
			}
		}
	}
}

// TestScores: a round without a classifier has no score, which JSON writes as null.
func TestScores(t *testing.T) {
	got, err := json.Marshal(MomentsRow{Attack: "scatter", ACC: Scores{0.5, math.NaN()},
		NLL: Scores{math.NaN(), 1}})
	if want :=
		`{"attack":"scatter","acc":[0.5,null],"nll":[null,1],"p_honest_bad":0,"p_honest_others":0}`; err != nil || string(got) != want {
		t.Errorf("%s, %v; want %s", got, err, want)
	}
}
