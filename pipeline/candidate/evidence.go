package candidate

import (
	"cmp"
	"math"
	"math/rand/v2"
	"slices"

	"gonum.org/v1/gonum/blas"
	"gonum.org/v1/gonum/blas/blas64"
	"gonum.org/v1/gonum/floats"
	"gonum.org/v1/gonum/lapack/lapack64"

	"fmp/models/rng"
	"fmp/onnx/dense"
	"fmp/pipeline/moments"
)

const (
	// surprises is the number of images of a random class that every round is taken to hold: where
	// no image errs, the temperature is not 0. A larger number makes probabilities more cautious in
	// rounds where few images err.
	surprises = 1
	// drawsPerImage, minDraws and maxDraws give the number of residuals drawn about a class mean of
	// n images, half of them the others' opposites. The error of the evidence grows with n over the
	// root of the draws.
	drawsPerImage = 16
	minDraws      = 48
	maxDraws      = 512
	// tailFreedom is the degrees of freedom of residuals. Of Gaussian draws, 8, 5 and 4 it is the
	// best on CIFAR-100's classes 20 to 39, with an NLL lower by .0001 to .003
	// (docs/notes/moments.md). On Gaussian images it costs .004 nats.
	tailFreedom = 8
)

// residuals are draws of a client's residuals, z F [draws, K]: root is rows F, [rank, K], with F'F
// = S_m/dof_m, the covariance of its scatter, and z has covariance I.
type residuals struct {
	root []float64
	rank int                    // 0 where the client sent no scatter
	z    func(v cell) []float64 // of a class mean, [draws, rank]
}

// drawer returns the draws for each client of a group, at most limit of them about each class mean.
type drawer func(group []int, limit int) []residuals

// residuals returns the drawer of a round's clients.
func (o *Options) residuals(r *Round) drawer {
	return func(group []int, limit int) []residuals { return o.draw(r, group, limit) }
}

// draw draws the residuals of a group. Clients whose scatter is a whole matrix share its sum: a
// decomposition for each would take more time than all else.
func (o *Options) draw(r *Round, group []int, limit int) []residuals {
	out := make([]residuals, len(group))
	var whole []*moments.Within
	for i, client := range group {
		switch w := r.Clients[client].Within; {
		case w == nil || w.Dof == 0:
		case w.Rank > 0:
			out[i] = residuals{root: dense.As[float64](w.Data), rank: w.Rank}
			scale(1/math.Sqrt(float64(w.Dof)), out[i].root)
		default:
			whole = append(whole, w)
		}
	}
	var shared residuals
	if len(whole) > 0 {
		shared = wholeRoot(whole)
	}
	for i, client := range group {
		w, d := r.Clients[client].Within, &out[i]
		if w == nil || w.Dof == 0 {
			continue
		}
		if w.Rank == 0 {
			*d = shared
		}
		rank := d.rank
		d.z = func(v cell) []float64 {
			at := rng.New(o.Seed, "candidate", o.Stream, "residuals", client, v.class)
			half := max(min(max(drawsPerImage*int(v.n), minDraws), maxDraws, limit)/2, 1)
			z := make([]float64, 2*half*rank)
			for i := range half {
				residual(z[i*rank:][:rank], at)
			}
			for i, v := range z[:half*rank] {
				z[half*rank+i] = -v
			}
			return z
		}
	}
	return out
}

// residual draws an image less its class mean: Student's t of covariance I, one for all
// coordinates. With z of N(0, I) and chi of chi squared with tailFreedom degrees of freedom it is
//
//	sqrt((tailFreedom - 2)/chi) z
//
// Beside Gaussian draws kappa would grow with the images that a head was fitted to, and clients
// measure it with heads of few.
func residual(z []float64, at *rand.Rand) {
	var chi float64
	for range tailFreedom {
		v := at.NormFloat64()
		chi += v * v
	}
	size := math.Sqrt((tailFreedom - 2) / chi)
	for i := range z {
		z[i] = size * at.NormFloat64()
	}
}

// wholeRoot returns the root of the sum of scatters.
func wholeRoot(scatters []*moments.Within) residuals {
	k := scatters[0].K
	s := make([]float64, k*k)
	var dof float64
	for _, w := range scatters {
		w.AddTo(s)
		dof += float64(w.Dof)
	}
	return residuals{root: rootOf(s, k, dof), rank: k}
}

// rootOf returns the upper Cholesky factor, [K, K], of a scatter over its degrees of freedom, of
// which the upper triangle is read.
func rootOf(s []float64, k int, dof float64) []float64 {
	var mean float64
	for i := range k {
		mean += s[i*k+i] / float64(k)
	}
	// float32 rounded the scatter, which may not be positive definite
	for add := 1e-7 * mean; ; add *= 10 {
		a := blas64.Symmetric{N: k, Stride: k, Data: slices.Clone(s), Uplo: blas.Upper}
		for i := range k {
			a.Data[i*k+i] += add
		}
		if t, ok := lapack64.Potrf(a); ok || !(mean > 0) {
			for i := range k {
				clear(t.Data[i*k : i*k+i])
				scale(1/math.Sqrt(dof), t.Data[i*k+i:(i+1)*k])
			}
			return t.Data
		}
	}
}

// asked is one client's question to the head of the others: class means of classes that they hold
// too, and draws about them. About a mean m_mc of n images these are
//
//	x = m_mc + sqrt(1 - 1/n) z F
//
// as an image lies so far from a mean that it is part of; a mean of one image is that image.
type asked struct {
	cells []cell
	draws []int // about each cell
	// of all draws, [sum of draws, rank]; nil where the rows beside the class means are the draws
	z    []float64
	rank int
	// class means, then the root or the draws: [cells + rank, K], in the basis in hand
	rows []float64
}

// asked returns a client's question on cells, its rows on features.
func (r *Round) asked(cells []cell, d residuals) *asked {
	a := &asked{cells: cells, draws: make([]int, len(cells)), rank: d.rank}
	var z []float64
	for i, v := range cells {
		a.rows = append(a.rows, dense.As[float64](v.mean)...)
		if size := math.Sqrt(1 - 1/v.n); d.rank > 0 && size > 0 {
			from := len(z)
			z = append(z, d.z(v)...)
			scale(size, z[from:])
			a.draws[i] = (len(z) - from) / d.rank
		}
	}
	root := d.root
	if draws := len(z) / max(d.rank, 1); draws < d.rank { // fewer rows than the root
		root, z, a.rank = times(z, root, draws, d.rank, r.K), nil, draws
	}
	a.z, a.rows = z, append(a.rows, root...)
	return a
}

// maxLogits is about how many logits the evidence of one fold and candidate takes; of more, class
// means are sampled.
const maxLogits = 1 << 19

// maxFoldNumbers bounds the numbers of one fold's class means and draws: 512 MiB.
const maxFoldNumbers = 64 << 20

// room returns how many rows, class means and draws, one fold has room for.
func room(k, classes int) int { return max(min(maxLogits/classes, maxFoldNumbers/k), 2) }

// askedShares returns for each client the share of its images that it is asked about, and their
// number. It is asked about as many as the others have at most, and Round.Most. A client of more
// answers for a head of few, which is not the round's.
func (r *Round) askedShares() (shares, images []float64) {
	shares, images = make([]float64, len(r.Clients)), make([]float64, len(r.Clients))
	for m := range r.Clients {
		images[m] = r.Clients[m].Means.Mass()
	}
	all, most := floats.Sum(images), cmp.Or(r.Most, math.Inf(1))
	for m, n := range images {
		shares[m] = 1
		if len(images) > 1 {
			shares[m] = min(1, most/n, (all-n)/n)
		}
	}
	return shares, images
}

// askedImages returns the number of images that some clients are asked about.
func (r *Round) askedImages(of []int) (sum float64) {
	shares, images := r.askedShares()
	for _, m := range of {
		sum += shares[m] * images[m]
	}
	return sum
}

// ask returns the questions of a group to the head of the others: on classes that they hold too.
// Where there are too many class means, systematic sampling takes some by their images, which then
// stand for all.
func (r *Round) ask(group []int, rest *pool, draw drawer) []*asked {
	cells, total, images := make([][]cell, len(group)), 0, 0.0
	for i, client := range group {
		for _, v := range r.Clients[client].cells() {
			if rest.held(v.class) {
				cells[i], total, images = append(cells[i], v), total+1, images+v.n
			}
		}
	}
	most := room(r.K, r.C) / 2 // of two rows
	if total > most {
		step := images / float64(most)
		at := step / 2
		for i, own := range cells {
			cells[i] = nil
			for _, v := range own {
				times := 0.0
				for ; at < v.n; at += step {
					times++
				}
				if at -= v.n; times > 0 {
					v.share = times * step
					cells[i] = append(cells[i], v)
				}
			}
		}
		total = most
	}
	var out []*asked
	if total == 0 {
		return nil
	}
	shares, _ := r.askedShares()
	for i, client := range group {
		for j := range cells[i] {
			cells[i][j].share *= shares[client]
		}
	}
	for i, d := range draw(group, room(r.K, r.C)/total) {
		if len(cells[i]) > 0 {
			out = append(out, r.asked(cells[i], d))
		}
	}
	return joined(out, r.K)
}

// joined returns questions with those whose rows are their draws as one, so that a head is
// multiplied by all at once.
func joined(all []*asked, k int) []*asked {
	one := &asked{}
	var draws []float64
	var out []*asked
	for _, a := range all {
		if a.z != nil {
			out = append(out, a)
			continue
		}
		n := len(a.cells) * k
		one.cells, one.draws, one.rank = append(one.cells, a.cells...),
			append(one.draws, a.draws...), one.rank+a.rank
		one.rows, draws = append(one.rows, a.rows[:n]...), append(draws, a.rows[n:]...)
	}
	if len(one.cells) > 0 {
		one.rows = append(one.rows, draws...)
		out = append(out, one)
	}
	return out
}

// asked returns questions with their rows in the basis.
func (b *basis) asked(all []*asked) []*asked {
	out := make([]*asked, 0, len(all))
	for some := range slices.Chunk(all, perProduct) {
		total := 0
		for _, a := range some {
			total += len(a.rows)
		}
		rows := make([]float64, 0, total)
		for _, a := range some {
			from := len(rows)
			rows = append(rows, a.rows...)
			for i := range a.cells {
				axpy(-1, b.m0, rows[from+i*b.k:from+(i+1)*b.k])
			}
		}
		rows = b.turned(rows)
		for _, a := range some {
			here := *a
			here.rows, rows = rows[:len(a.rows):len(a.rows)], rows[len(a.rows):]
			out = append(out, &here)
		}
	}
	return out
}

// perProduct is how many questions have their rows multiplied by the basis at a time. It is read
// once for all of them.
const perProduct = 16

// evidence returns the log-likelihood [folds, candidates], in nats, at each temperature by leaving
// each of the first folds of clients out at a time. It is the sum over the group's cells of
//
//	share_mc mean_x (log p(c|x) + surprises/N mean_y log p(y|x) + unheld log p0(c|x))
//
// where p is of the head of all but the group, and x are the draws about the class mean m_mc. N are
// the images that clients are asked about, and share_mc those that the mean stands for
// (cell.share). unheld is the number of classes that nobody holds for one that somebody does. p0 is
// of the same head with a logit of 0 for c.
func (r *Round) evidence(s *sums, folds int, cands []candidate, draw drawer,
	o *Options) ([][]moments.Curve, error) {
	out := make([][]moments.Curve, folds)
	err := each(folds, o.Threads, func(g int) error {
		if o.Stop != nil && o.Stop() != nil {
			return o.Stop()
		}
		out[g] = make([]moments.Curve, len(cands))
		if len(s.folds) == 1 {
			return nil
		}
		p := s.without(g)
		all := r.ask(s.folds[g], &p.pool, draw)
		var f *fold
		var here []*asked
		for j := range cands {
			c := &cands[j]
			if j == 0 || c.target != cands[j-1].target {
				f = s.fold(p, c.target)
				here = f.basis.asked(all)
			}
			head := f.at(c.strength, c.prior)
			for _, a := range here {
				a.add(&out[g][j], head, s.images)
				a.addUnheld(&out[g][j], head, s.all.unheld())
			}
		}
		return nil
	})
	return out, err
}

// add adds the log-likelihood of the client's images under a head in the basis.
func (a *asked) add(to *moments.Curve, h linear, images float64) {
	a.each(h, func(v cell, rows []float64) { addRows(to, rows, len(h.bias), v, surprises/images) })
}

// addUnheld adds the log-likelihood of images of classes that nobody holds, with a weight beside
// one image of the client's. Each of its images stands for one, as if nobody held its class: the
// logit is then that of the grand mean, 0.
func (a *asked) addUnheld(to *moments.Curve, h linear, weight float64) {
	if weight == 0 {
		return
	}
	c := len(h.bias)
	a.each(h, func(v cell, rows []float64) {
		for at := v.class; at < len(rows); at += c {
			rows[at] = 0
		}
		v.share *= weight
		addRows(to, rows, c, v, 0)
	})
}

// each calls do with the logits of each cell's images under a head in the basis, [N, C], which it
// may overwrite.
func (a *asked) each(h linear, do func(v cell, rows []float64)) {
	c := len(h.bias)
	k := len(h.w) / c
	l := timesT(a.rows, h.w, len(a.rows)/k, k, c)
	drawn := l[len(a.cells)*c:]
	if a.z != nil {
		drawn = times(a.z, drawn, len(a.z)/a.rank, a.rank, c)
	}
	for i, v := range a.cells {
		own := l[i*c : (i+1)*c]
		axpy(1, h.bias, own)
		rows := own
		if n := a.draws[i] * c; n > 0 {
			rows, drawn = drawn[:n], drawn[n:]
			for at := 0; at < len(rows); at += c {
				axpy(1, own, rows[at:at+c])
			}
		}
		do(v, rows)
	}
}

// inverseTemperatures are the inverses of those of curves.
var inverseTemperatures = func() (by [moments.Temperatures]float64) {
	for t := range by {
		by[t] = 1 / moments.Temperature(t)
	}
	return by
}()

// addRows adds the mean log-likelihood of rows of c logits, times the images of their cell, at
// every temperature, and a share of that of a random class. Of a row of logits l less their
// largest,
//
//	log p(y) + random mean_c log p(c)
//	    = (l_y + random mean_c l_c)/T - (1 + random) log sum_c exp(l_c/T)
func addRows(to *moments.Curve, logits []float64, c int, v cell, random float64) {
	n := len(logits) / c
	weight, padded := v.share/float64(n), dense.Padded(n)
	// less each row's largest, a class a row
	below, sum := make([]float32, c*padded), make([]float64, padded)
	var linear float64
	for i := range n {
		row := logits[i*c : (i+1)*c]
		top, mean := slices.Max(row), 0.0
		for y, x := range row {
			below[y*padded+i] = float32(x - top)
			mean += (x - top) / float64(c)
		}
		linear += row[v.class] - top + random*mean
	}
	for t, by := range inverseTemperatures {
		dense.ExpSum(c, padded, below, by, sum)
		var logs float64
		for _, x := range sum[:n] {
			logs += math.Log(x)
		}
		to[t] += weight * (by*linear - (1+random)*logs)
	}
}
