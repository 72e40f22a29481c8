package posterior

import (
	"cmp"
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"
	"testing"

	"fmp/models/rng"
	"fmp/onnx/must"
	"fmp/pipeline/discriminant"
	"fmp/pipeline/moments"
)

// momentsClients returns uploads of moments of clients with images of Gaussian classes.
func momentsClients(t *testing.T, many, images, k, c int) []discriminant.Client {
	t.Helper()
	mean := make([]float32, c*k)
	rng.Normal(rng.New(1, "mean"), mean)
	out := make([]discriminant.Client, many)
	for m := range out {
		r := rng.New(1, "client", m)
		x, y := make([]float32, images*k), make([]int, images)
		rng.Normal(r, x)
		for i := range x {
			if i%k == 0 {
				y[i/k] = r.IntN(c)
			}
			x[i] = (mean[y[i/k]*k+i%k] + x[i]) / 20
		}
		out[m].Means, out[m].Within = must.Get2(moments.Compute(x, k, y, c, fmt.Sprint(m)))(t)
	}
	return out
}

// momentsAttacks are ways to send false moments.
func momentsAttacks(k, c int) map[string]func(u *discriminant.Client, w *moments.Within) {
	turn := func(n int) func(y []int) {
		return func(y []int) {
			for i := range y {
				y[i] = (y[i] + n) % c
			}
		}
	}
	return map[string]func(u *discriminant.Client, w *moments.Within){
		"none": func(*discriminant.Client, *moments.Within) {},
		"means of the next class": func(u *discriminant.Client, _ *moments.Within) {
			means := *u.Means
			means.Z = slices.Clone(means.Z)
			for i := range means.N {
				row := means.Row(i)
				copy(row[:k], u.Means.Row((i + 1) % means.N)[:k])
			}
			u.Means = &means
		},
		"names of calibration points": func(_ *discriminant.Client, w *moments.Within) {
			turn(1)(w.Labels)
		},
		"scatter that hides": func(u *discriminant.Client, w *moments.Within) {
			w.Rank, w.Data = 1, slices.Clone(u.Means.Row(0)[:k])
			for j := range w.Data {
				w.Data[j] *= 100
			}
		},
		"scatter of nothing": func(_ *discriminant.Client, w *moments.Within) { clear(w.Data) },
		"scatter that is no covariance": func(_ *discriminant.Client, w *moments.Within) {
			for i, at := 0, 0; i < k; i++ {
				for j := i; j < k; j++ {
					if w.Data[at] = -100; i == j {
						w.Data[at] = 100
					}
					at++
				}
			}
		},
	}
}

func attacked(u discriminant.Client,
	attack func(u *discriminant.Client, w *moments.Within)) discriminant.Client {
	w := *u.Within
	w.Data, w.Labels = slices.Clone(w.Data), slices.Clone(w.Labels)
	attack(&u, &w)
	u.Within = &w
	return u
}

// TestMomentsAgainst: false moments are found in clients that others judge alone, of whom some lie
// too, no less often than all at once, and honest clients are kept; of a large claim the median
// counts.
func TestMomentsAgainst(t *testing.T) {
	const k, c, judges, honest = 12, 4, 30, 10
	clients := momentsClients(t, judges+honest, 60, k, c)
	attacks := momentsAttacks(k, c)
	for i, name := range slices.Sorted(maps.Keys(attacks)) {
		clients[i] = attacked(clients[i], attacks[name])
	}
	by := must.Get(NewMomentsAgainst(t.Context(), clients[:judges], nil, 1, 1))(t)
	o := MomentsOptions{Options: discriminant.Options{Samples: 1, Seed: 1, Stream: "test"},
		Honesty: true, Threads: 1}
	missed, atOnce := 0, 0
	for name, attack := range attacks {
		for i, u := range clients[judges:] {
			u := attacked(u, attack)
			share := must.Get(by.Share(u))(t)
			if name == "none" {
				if share != 1 {
					t.Errorf("%v of honest client %d counts", share, i)
				}
				continue
			}
			p := must.Get(Moments(t.Context(), append(slices.Clone(clients[:judges]), u), nil, o))(t)
			if share > 0 {
				missed++
			}
			if p.Judgement.Honest[judges] >= 0.5 {
				atOnce++
			}
			if share > 0 && strings.HasPrefix(name, "means") {
				t.Errorf("%s: client %d counts", name, i)
			}
		}
	}
	if t.Logf("of %d false clients %d are missed, and %d all at once", honest*(len(attacks)-1), missed,
		atOnce); missed > atOnce {
		t.Error("judged alone more are missed")
	}
	large := clients[judges]
	means := *large.Means
	means.W = slices.Clone(means.W)
	for i := range means.W {
		means.W[i] *= 10
	}
	large.Means = &means
	if share, err := by.Share(large); err != nil || share < 0.1 || share > 0.12 {
		t.Errorf("%v of a claim ten times as large counts, %v", share, err)
	}
	few := momentsClients(t, 1, 60, k+1, c)
	must.Refuse(by.Share(few[0]))(t, "a client of other coordinates is judged")
}

// TestMomentsHonesty: each way to send false moments is found, in means, scatter or calibration
// points alone, honest clients are kept, and the samples are those of a round without the bad
// client.
func TestMomentsHonesty(t *testing.T) {
	const k, c, bad = 12, 4, 2
	for name, attack := range momentsAttacks(k, c) {
		t.Run(name, func(t *testing.T) {
			clients := momentsClients(t, 7, 60, k, c)
			clients[bad] = attacked(clients[bad], attack)
			o := MomentsOptions{Options: discriminant.Options{Samples: 20, Seed: 1, Stream: "test"},
				Honesty: true, Threads: 1}
			p := must.Get(Moments(t.Context(), clients, nil, o))(t)
			for m, honest := range p.Judgement.Honest {
				if want := m != bad || name == "none"; (honest > 0.9) != want || !want && honest > 0.2 {
					t.Errorf("P(honest) of client %d is %.3f", m, honest)
				}
			}
			o.Honesty = false
			if name != "none" {
				clients = slices.Delete(clients, bad, bad+1)
			}
			var limit []float64
			for _, u := range clients {
				limit = append(limit, u.Means.Mass()+float64(len(u.Within.Labels)))
			}
			for m := range clients { // all have as many images
				if limit[m] != limit[0] {
					t.Fatalf("clients of %v images", limit)
				}
			}
			want := must.Get(Moments(t.Context(), clients, nil, o))(t)
			if got := p.Diagnostics["spread"]; len(p.Ensembles[0]) != 20 ||
				got != want.Diagnostics["spread"] {
				t.Errorf("%d heads, spread %v; want that of the honest clients, %v",
					len(p.Ensembles[0]), got, want.Diagnostics["spread"])
			}
		})
	}
}

// TestStatesOfSamples: samples of one set of honest clients are counted together, and those of rare
// sets go to the most frequent one.
func TestStatesOfSamples(t *testing.T) {
	a, b, c := []bool{true, true, true}, []bool{true, false, true}, []bool{false, true, true}
	var drawn [][]bool
	for i := range 40 {
		switch {
		case i == 0:
			drawn = append(drawn, c)
		case i%4 == 1:
			drawn = append(drawn, a)
		default:
			drawn = append(drawn, slices.Clone(b))
		}
	}
	got := count(drawn)
	if fmt.Sprint(got) != "[{[0 2] 30} {[0 1 2] 10}]" {
		t.Error(got)
	}
}

// TestMomentsOutside: class means that are false in all directions but those in which the classes
// lie apart are found, among more coordinates than are principal, and a client whose images all
// differ by one vector is kept.
func TestMomentsOutside(t *testing.T) {
	const many, images, k, c, bad = 7, 60, 192, 4, 2
	// in standard deviations of an image
	for name, of := range map[string]struct{ shift, lie float32 }{
		"none":                     {},
		"one shift of all images":  {shift: 1},
		"one lie for each of them": {lie: 2},
	} {
		t.Run(name, func(t *testing.T) {
			// of images of a class; the classes lie apart in the first of them
			deviation := func(j int) float32 {
				if j < c {
					return 1
				}
				return 0.3
			}
			shift := make([]float32, k)
			rng.Normal(rng.New(1, "shift"), shift)
			clients := make([]discriminant.Client, many)
			for m := range clients {
				r := rng.New(1, "client", m)
				x, y := make([]float32, images*k), make([]int, images)
				rng.Normal(r, x)
				for i := range x {
					j := i % k
					if y[i/k] = i / k % c; m == bad && j >= c {
						x[i] += of.shift * shift[j]
					}
					if x[i] *= deviation(j); j == y[i/k] {
						x[i] += 4
					}
				}
				clients[m].Means, clients[m].Within =
					must.Get2(moments.Compute(x, k, y, c, fmt.Sprint(m)))(t)
			}
			r := rng.New(1, "lies")
			for i := range clients[bad].Means.N {
				row := clients[bad].Means.Row(i)
				for j := c; j < k; j++ {
					row[j] += of.lie * deviation(j) * float32(r.NormFloat64())
				}
			}
			p := must.Get(Moments(t.Context(), clients, nil,
				MomentsOptions{Options: discriminant.Options{Samples: 20, Seed: 1, Stream: "test"},
					Honesty: true, Threads: 1}))(t)
			for m, honest := range p.Judgement.Honest {
				if want := m != bad || of.lie == 0; (honest > 0.9) != want || !want && honest > 0.2 {
					t.Errorf("P(honest) of client %d is %.3f", m, honest)
				}
			}
			by := must.Get(NewMomentsAgainst(t.Context(),
				slices.Concat(clients[:bad], clients[bad+1:]), nil, 1, 1))(t)
			if share, err := by.Share(clients[bad]); err != nil || (share == 1) != (of.lie == 0) {
				t.Errorf("judged alone, %v of its images count, %v", share, err)
			}
		})
	}
}

// TestMomentsCopies: a client under two names counts as one, and one that claims three times as
// many images as the others as one of these.
func TestMomentsCopies(t *testing.T) {
	const k, c = 12, 4
	clients := momentsClients(t, 6, 60, k, c)
	clients[1] = clients[0]
	large := *clients[5].Means
	large.W = slices.Clone(large.W)
	for i := range large.W {
		large.W[i] *= 3
	}
	clients[5].Means = &large
	o := MomentsOptions{Options: discriminant.Options{Samples: 20, Seed: 1, Stream: "test"},
		Honesty: true, Threads: 1}
	got, _, _, err := judgeMoments(t.Context(), clients, nil, o)
	must.Do(t, err)
	claimed := large.Mass() + float64(len(clients[5].Within.Labels))
	for m, want := range []float64{0.5, 0.5, 1, 1, 1, 60 / claimed} {
		if math.Abs(got[m].Share-want) > 1e-9 {
			t.Errorf("of client %d the share %v counts, want %v", m, got[m].Share, want)
		}
	}
}

// TestCapped: of three clients the largest counts as the median one; of two each as it claims.
func TestCapped(t *testing.T) {
	clients := slices.Concat(momentsClients(t, 1, 200, 6, 3), momentsClients(t, 2, 20, 6, 3))
	for n, want := range map[int]float64{2: 1, 3: 0.1} {
		if got := cmp.Or(capped(clients[:n])[0].Share, 1); math.Abs(got-want) > 0.02 {
			t.Errorf("of %d clients the largest counts for %v of its images, want %v", n, got, want)
		}
	}
}
