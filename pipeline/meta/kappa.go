package meta

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"

	"gonum.org/v1/gonum/floats"

	"fmp/models/rng"
	"fmp/pipeline/discriminant"
	"fmp/pipeline/moments"
	"fmp/pipeline/point"
	"fmp/pipeline/task"
)

// Kappa's draws: tasks of at most learnedClasses classes, of learnedClients clients, alternately of
// few and of more images, with all classes alike and skewed (Dirichlet(0.1)). scored bounds the
// images that kappa is chosen on.
const (
	learnedTasks   = 12
	learnedClasses = 10
	learnedClients = 10
	scored         = 500
	fewestImages   = 5 // a client
)

var (
	learnedImages = []int{20, 50}
	learnedAlphas = []float64{0, 0.1}
)

// Bounds on the deviation that Kappa returns: kappa of other images behind one extractor was within
// 2% of its median, and that of single tasks within 15%. The upper one comes of tasks without a
// wrong image.
const minDeviation, maxDeviation = 0.1, 0.5

// Kappa returns kappa (package discriminant) behind an extractor from labelled rows, embedded as
// clients embed theirs: of any classes, but not of images that are scored later. Each task has
// clients and images that none of them holds; kappa is that of the greatest likelihood on these.
// The result has the median over tasks and, as deviation, that of a normal distribution with their
// median absolute deviation. progress, if not nil, is called with the tasks done.
// The grid has 81 values from 1/8 to 8, even in their logarithm. A task whose best value is at an
// end is left out, and fewer than half of the tasks left are an error.
func Kappa(ctx context.Context, bank *task.Bank, seed uint64,
	progress func(done, total int)) (discriminant.Kappa, error) {
	kappas := make([]float64, 81)
	for g := range kappas {
		kappas[g] = math.Exp2(-3 + 6*float64(g)/float64(len(kappas)-1)) // 1/8 to 8
	}
	var logs []float64
	for i := range learnedTasks {
		if err := ctx.Err(); err != nil {
			return discriminant.Kappa{}, err
		}
		if progress != nil {
			progress(i, learnedTasks)
		}
		clients, target, err := simulate(bank, i, seed)
		if err != nil {
			return discriminant.Kappa{}, err
		}
		rows, labels := target.Labelled()
		l, err := discriminant.LogLikelihood(clients, rows, labels, kappas,
			discriminant.Options{Seed: seed, Stream: fmt.Sprintf("kappa/%d", i)})
		if errors.Is(err, discriminant.ErrOneClass) {
			continue
		}
		if err != nil {
			return discriminant.Kappa{}, err
		}
		best := floats.MaxIdx(l)
		// the temperature of Gaussian rows, which no smaller kappa lowers
		for best < len(l)-1 && l[best+1] == l[best] {
			best++
		}
		if best > 0 && best < len(kappas)-1 { // else no kappa is wrong
			logs = append(logs, math.Log(kappas[best]))
		}
	}
	if progress != nil {
		progress(learnedTasks, learnedTasks)
	}
	if 2*len(logs) < learnedTasks {
		return discriminant.Kappa{},
			fmt.Errorf("kappa: %d of %d tasks tell nothing of it: give images of more classes, "+
				"or of classes that are harder to tell apart", learnedTasks-len(logs), learnedTasks)
	}
	return kappaOf(logs), nil
}

// kappaOf returns the median and deviation of logarithms: with m their median, exp(m) and 1.4826
// median |log - m|, which is the standard deviation of a normal, from minDeviation to maxDeviation.
// It sorts and overwrites logs.
func kappaOf(logs []float64) discriminant.Kappa {
	median := func(v []float64) float64 {
		slices.Sort(v)
		return (v[(len(v)-1)/2] + v[len(v)/2]) / 2
	}
	m := median(logs)
	for i, v := range logs {
		logs[i] = math.Abs(v - m)
	}
	const normal = 1.4826 // standard deviations in a median absolute deviation
	return discriminant.Kappa{Median: math.Exp(m),
		Deviation: min(max(normal*median(logs), minDeviation), maxDeviation)}
}

// simulate draws task i of a bank: the uploads of its clients, and rows that none of them holds.
// Tasks alternate in images a client, and pairs of tasks in the skew of classes. A third of the
// images at most is held out. Of N images a client has
//
//	min(learnedImages, (N - held out)/learnedClients), fewestImages at least
//
// Fewer are an error, which says how many images would do.
func simulate(bank *task.Bank, i int, seed uint64) ([]discriminant.Client, *point.Set, error) {
	r := rng.New(seed, "kappa", i)
	some, err := bank.Choose(r.Perm(bank.C)[:min(bank.C, learnedClasses)])
	if err != nil {
		return nil, nil, err
	}
	s := task.Sampler{Bank: some, Target: min(scored, some.Len()/3), FixedLabels: true,
		Alphas: learnedAlphas[i/2%2 : i/2%2+1]}
	s.Points = min(learnedImages[i%2], (some.Len()-s.Target)/learnedClients)
	if s.Points < fewestImages {
		return nil, nil, fmt.Errorf(
			"kappa: %d images of %d classes are too few to learn it from; give %d at least",
			some.Len(), some.C, (3*fewestImages*learnedClients+1)/2)
	}
	t, err := s.Draw(r, learnedClients)
	if err != nil {
		return nil, nil, err
	}
	var cs []discriminant.Client
	for m, set := range t.Clients {
		x, y := set.Labelled()
		var c discriminant.Client
		c.Means, c.Within, err = moments.Compute(x, set.Dx, y, set.C, fmt.Sprint(m))
		if err != nil {
			return nil, nil, err
		}
		cs = append(cs, c)
	}
	return cs, t.Target, nil
}
