package candidate

import (
	"math"
	"testing"

	"gonum.org/v1/gonum/stat"

	"fmp/models/rng"
	"fmp/onnx/dense"
	"fmp/onnx/must"
	"fmp/pipeline/internal/moment"
	"fmp/pipeline/moments"
	"fmp/pipeline/point"
)

// steep is Gaussian clients with so many images of each of eight classes, in 128 coordinates whose
// variances fall as 1/j^1.5: an image varies in few directions, as features of a network do.
// Of so many in a hundred images the class is another than the label.
func steep(t *testing.T, seed uint64, clients, each, odd int) *Round {
	t.Helper()
	return steepOf(t, seed, clients, each, odd, 8)
}

// steepOf is the same of clients that hold some of the classes, one after the other.
func steepOf(t *testing.T, seed uint64, clients, each, odd, held int) *Round {
	t.Helper()
	const k, c = 128, 8
	at, signal := rng.New(seed, "steep"), 0.5
	if odd > 0 { // hardly any other image errs
		signal = 1
	}
	sd, mean := make([]float64, k), make([]float64, c*k)
	for j := range sd {
		sd[j] = math.Pow(float64(j+1), -0.75)
	}
	for i := range mean {
		mean[i] = signal * sd[i%k] * at.NormFloat64()
	}
	r := &Round{K: k, C: c}
	for m := range clients {
		var x []float32
		var y []int
		for i := range held * each {
			own := (m + i%held) % c
			y = append(y, own)
			from := own
			if at.IntN(100) < odd {
				from = (from + 1) % c
			}
			for j, s := range sd {
				x = append(x, float32(mean[from*k+j]+s*at.NormFloat64()))
			}
		}
		r.Clients = append(r.Clients, upload(t, x, k, y, c))
	}
	return r
}

// apart returns how far the peaks of clients' images and of their twins lie apart, a mean over
// rounds.
func apart(t *testing.T, each, odd int) (mean float64) {
	t.Helper()
	const rounds = 8
	for seed := range uint64(rounds) {
		r := steep(t, seed, 4, each, odd)
		own, twin := must.Get2(r.curves(must.Get(r.sum(1))(t).all, &Options{Seed: seed, Threads: 2}))(t)
		mean += (peak(sumOf(own)) - peak(sumOf(twin))) / rounds
	}
	return mean
}

// TestTwins: Gaussian images lie as their twins do, also where a client has few of a class.
func TestTwins(t *testing.T) {
	for _, each := range []int{3, 4, 12} {
		if got := apart(t, each, 0); !(math.Abs(got) < 0.05) {
			t.Errorf("%d images of a class: %.3f apart; want less than .05", each, got)
		}
	}
}

// TestSurprises: an image of a random class among those of all clients raises the temperature.
func TestSurprises(t *testing.T) {
	r := steep(t, 1, 4, 12, 0)
	all := must.Get(r.sum(1))(t).all
	own, _ := must.Get2(r.curves(all, &Options{Threads: 2}))(t)
	scale(1e9, all.n) // one of so many is none
	without, _ := must.Get2(r.curves(all, &Options{Threads: 2}))(t)
	if !(peak(sumOf(own)) > peak(sumOf(without))+0.003) {
		t.Errorf("log temperature %.4f with an image of a random class, %.4f without", peak(sumOf(own)),
			peak(sumOf(without)))
	}
	near(t, "the curve without", without[1][:], r.Clients[1].Curve.Curve[:], 1e-6)
}

// TestMislabelled: where some images are of another class than their label, they lie further than
// their twins.
func TestMislabelled(t *testing.T) {
	if got := apart(t, 12, 8); !(got > 0.3) {
		t.Errorf("images of which 8%% are of other classes lie %.3f from their twins; want .3 at least", got)
	}
}

// TestLikeness: class means lie apart by what is beyond their noise, and rows have the pooled
// covariance.
func TestLikeness(t *testing.T) {
	r := steep(t, 1, 4, 3, 0)
	p := must.Get(r.sum(1))(t).all
	g := p.likeness()
	var size, want, got float64
	for i := range p.k {
		size += p.scatter[i*p.k+i] / p.dof
		var v float64
		for j := range i + 1 {
			v += g.root[j*p.k+i] * g.root[j*p.k+i]
		}
		near(t, "variance", []float64{v}, []float64{p.scatter[i*p.k+i] / p.dof}, 1e-5)
	}
	for y := range p.c {
		for j := range p.k {
			a, b := p.mean[y*p.k+j]-p.m0[j], g.mean[y*p.k+j]-p.m0[j]
			want, got = want+a*a, got+b*b
		}
		want -= size / p.n[y]
	}
	near(t, "spread of means", []float64{got}, []float64{want}, 1e-9)
	labels := make([]int, 20000)
	x, at := g.rows(labels, rng.New(1, "rows")), 0.0
	var fourth float64
	for i := range labels {
		d := float64(x[i*p.k]) - g.mean[0]
		at += d * d / float64(len(labels))
		fourth += d * d * d * d / float64(len(labels))
	}
	if v := fourth / at / at; math.Abs(v-3-6/(tailFreedom-4.)) > .8 { // of a t: 3 + 6 / (tailFreedom - 4)
		t.Errorf("the first number of rows has kurtosis %.2f; want %.2f", v, 3+6/(tailFreedom-4.))
	}
	if v := p.scatter[0] / p.dof; math.Abs(at/v-1) > 0.1 {
		t.Errorf("the first number of rows has variance %.3f; want %.3f", at, v)
	}
}

// TestWhoseTwins: of many clients some are measured, those that have a curve.
func TestWhoseTwins(t *testing.T) {
	r := steep(t, 1, 35, 3, 0)
	r.Clients[5].Curve = nil
	p := must.Get(r.sum(1))(t).all
	own, twin := must.Get2(r.curves(p, &Options{Threads: 2}))(t)
	if len(own) != 12 || len(twin) != 12 {
		t.Fatalf("%d and %d curves of 34 clients; want every third", len(own), len(twin))
	}
	for i, at := range []int{0, 3, 7, 10, 13, 16, 19, 22, 25, 28, 31, 34} {
		if c := r.Clients[at].Curve.Curve; !(math.Abs(own[i][20]-c[20]) < 0.01*math.Abs(c[20])) {
			t.Errorf("curve %d is not of client %d", i, at)
		}
	}
}

// merged returns the round of sums of so many clients each.
func merged(t *testing.T, r *Round, each int) *Round {
	t.Helper()
	out := &Round{K: r.K, C: r.C}
	for at := 0; at < len(r.Clients); at += each {
		part := &Round{K: r.K, C: r.C, Clients: r.Clients[at : at+each]}
		all := must.Get(part.sum(1))(t).all
		c := Client{Means: &point.Set{Dx: r.K, C: r.C}, Curve: &moments.ClientCurve{Clients: each},
			Within: &moments.Within{K: r.K, Dof: int(all.dof), Data: moment.Triangle(all.scatter, r.K)}}
		square := make([]float64, r.C)
		for _, u := range part.Clients {
			axpy(1, u.Curve.Curve[:], c.Curve.Curve[:])
			for _, v := range u.cells() {
				square[v.class] += v.n * v.n
			}
		}
		for y, n := range all.n {
			if n > 0 {
				c.Means.N, c.Means.Y = c.Means.N+1, append(c.Means.Y, int32(y))
				c.Means.W = append(c.Means.W, float32(n))
				c.Means.Z = append(c.Means.Z, dense.As[float32](all.mean[y*r.K:(y+1)*r.K])...)
				c.Curve.Holders = append(c.Curve.Holders, n*n/square[y])
			}
		}
		out.Clients = append(out.Clients, c)
	}
	return out
}

// TestMergedTwins: sums of clients have the curves of the clients themselves, whether these hold
// all classes or a few each.
func TestMergedTwins(t *testing.T) {
	for what, held := range map[string]int{"all classes": 8, "three classes each": 3} {
		var alone, sums float64
		for seed := range uint64(4) {
			r := steepOf(t, seed, 16, 8, 8, held)
			for i, of := range []*Round{r, merged(t, r, 4)} {
				own, twin, err := of.curves(must.Get(of.sum(1))(t).all, &Options{Seed: seed, Threads: 2})
				must.Do(t, err)
				at := (peak(sumOf(own)) - peak(sumOf(twin))) / 4
				if i == 0 {
					alone += at
				} else {
					sums += at
				}
			}
		}
		if t.Logf("%s: %.3f apart alone, %.3f in sums", what, alone, sums); !(math.Abs(alone-sums) < 0.05) {
			t.Errorf("%s: %.3f apart alone, %.3f in sums; want no .05 between them", what, alone, sums)
		}
	}
}

// TestClaimedCounts: counts that no curve has behind it take no memory, and a curve of too few
// images is left out.
func TestClaimedCounts(t *testing.T) {
	r := steep(t, 1, 4, 3, 0)
	for i := range r.Clients[0].Means.W {
		r.Clients[0].Means.W[i] = 1e12
		r.Clients[1].Means.W[i] = 2
	}
	own, twin := must.Get2(r.curves(must.Get(r.sum(1))(t).all, &Options{Threads: 2}))(t)
	if len(own) != 3 || len(twin) != 3 {
		t.Errorf("%d and %d curves; want those of all clients but the second", len(own), len(twin))
	}
}

// TestClaimedCurves: curves that no images have leave a round a factor for tails that is finite, of
// clients and of sums.
func TestClaimedCurves(t *testing.T) {
	const last = moments.Temperatures - 1
	for what, change := range map[string]func(c *moments.Curve){
		"zeros":            func(c *moments.Curve) { *c = moments.Curve{} },
		"0 at the end":     func(c *moments.Curve) { c[last] = 0 },
		"0 but at the end": func(c *moments.Curve) { *c = moments.Curve{last: c[last]} },
		"lowest": func(c *moments.Curve) {
			for i := range c {
				c[i] = moments.MinLikelihood * moments.MaxCurveImages
			}
		},
	} {
		for each := 1; each <= 2; each++ {
			r := steep(t, 1, 8, 4, 0)
			if each > 1 {
				r = merged(t, r, each)
			}
			change(&r.Clients[1].Curve.Curve)
			all := must.Get(r.sum(1))(t).all
			own, twin, err := r.curves(all, &Options{Threads: 2})
			if must.Do(t, err); len(own) != len(twin) {
				t.Fatalf("%s, sums of %d: %d curves and %d twins", what, each, len(own), len(twin))
			}
			if left := len(r.Clients) - len(own); each > 1 && (left == 1) != (r.Clients[1].Curve.Curve[last] == 0) {
				t.Errorf("%s: %d sums are left out; want those that lose nothing at the highest temperature", what, left)
			}
			k := must.Get(r.logKappa(all, &Options{Threads: 2}))(t)
			if !(k.mean >= 0 && k.mean <= 1) || !(k.deviation > 0) || math.IsInf(k.deviation, 0) {
				t.Errorf("%s, sums of %d: log kappa %v", what, each, k)
			}
		}
	}
}

// TestResiduals: draws about a class mean have variance 1 and sizes of their own, and every second
// half is the first's opposite.
func TestResiduals(t *testing.T) {
	r := steep(t, 1, 4, 3, 0)
	d := (&Options{}).residuals(r)([]int{0}, 400)[0]
	z := d.z(cell{class: 1, n: 30})
	const draws = 200
	if len(z) != 2*draws*d.rank {
		t.Fatalf("%d numbers, want %d draws of %d", len(z), 2*draws, d.rank)
	}
	var sizes []float64
	for i := range draws {
		row, opposite := z[i*d.rank:][:d.rank], z[(draws+i)*d.rank:][:d.rank]
		sizes = append(sizes, math.Sqrt(dot(row, row)/float64(d.rank)))
		for j, v := range row {
			if opposite[j] != -v {
				t.Fatalf("draw %d is %v at %d, its opposite %v", i, v, j, opposite[j])
			}
		}
	}
	mean, variance := stat.PopMeanVariance(sizes, nil)
	if v := mean*mean + variance; math.Abs(v-1) > .2 {
		t.Errorf("the variance is %.3f, want 1", v)
	}
	if sd := math.Sqrt(variance); !(sd > .2 && sd < .6) { // of Gaussian draws .06
		t.Errorf("sizes of draws have a deviation of %.3f, want that of a t of %d", sd, tailFreedom)
	}
}
