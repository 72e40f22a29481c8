// Package effect estimates client effects: a shift that all class means of a client have in common,
// as another camera, other light or another scanner makes it. A client's class means are
//
//	x_mc = mu_c + b_m + e_mc,  e_mc ~ N(0, s_m^2 W / a_mc)
//	b_m  = 0, or N(0, t_m^2 W)                             spike and slab
//
// where a = 1/(2.5/n + 0.3) is the precision of a mean of n images, as package honesty's.
//
// W is the covariance within classes. With r_mc the difference of x_mc from the coordinatewise
// median of the other clients' means of the class, in coordinates in which W is I, over the N_m =
// (sum a)^2/sum a^2 classes that others hold too, in k coordinates,
//
//	R0 = sum_c a_mc |r_mc|^2,  b = sum_c a_mc r_mc / sum_c a_mc,  R1 = sum_c a_mc |r_mc - b|^2
//
// a client has an effect where (N q log(R0/R1) - q log(N q))/2 > log 19, the Bayesian information
// criterion (Schwarz 1978) at a prior probability of .05, and where the F statistic ((R0 -
// R1)/q)/s^2 of q and (N-1) q degrees of freedom is beyond the quantile that one of M clients
// without an effect reaches with a probability of .05 (Bonferroni). q = tr(V)^2/tr(V^2) <= k counts
// coordinates as far as they are independent and alike in the residuals' covariance V (Box 1954),
// which is not I where W is known from few images (level.go). Neither has a scale of its own:
// classes that differ from the others' each in its own way, as false names make them, raise R1 as
// much as R0. Its classes must lie apart as the others' do: means that are alike for all classes
// have a shift, and no classes. The effect is b (1 - 1/F) (James and Stein 1961), with s^2 =
// R1/((N-1) q). The median stands while fewer than half of a class's holders are wrong, or from
// another camera.
//
// Where half of the clients differ by the F test and are not found in this way, or the evidence
// tells of effects beyond those found (evident), all have one: e_mc has a variance of its own for
// each client, T is of low rank plus a multiple of I, and all are estimated by evidence
// (shrinkage). Clients whose classes hardly lie apart are no such evidence: one mean for all
// classes differs from the others' by more than its noise, and by no camera.
//
// The covariance of effects over clients is that of those found, of low rank (Effects.ToCome); a
// client to come has an effect of that covariance.
package effect

import (
	"fmt"
	"math"
	"slices"

	"gonum.org/v1/gonum/blas"
	"gonum.org/v1/gonum/floats"
	"gonum.org/v1/gonum/mat"
	"gonum.org/v1/gonum/stat/distuv"

	"fmp/onnx/dense"
	"fmp/pipeline/honesty"
	"fmp/pipeline/point"
)

const (
	// prior is the probability that a client has an effect, or a round has one: the less, the more
	// evidence is wanted.
	prior = 0.05
	// turns is how often effects and medians are computed from each other.
	turns = 3
	// maxHolders bounds the clients whose means of a class the median is taken of.
	maxHolders = 200
	minShared  = 2 // classes
	// minSlope is how far apart a camera leaves classes at least, as a share of their distances in
	// others' images.
	minSlope = 0.5
	// minTelling is that from which on a client is evidence of effects: halfway from one mean for
	// all classes, 0, to minSlope. At minSlope sites of strong noise or blur would hide that all
	// differ.
	minTelling = 0.25
)

// Effects are those of a round's clients.
type Effects struct {
	// Shift is each client's effect, [dx], in the coordinates of its class means; nil for a client
	// without one.
	Shift [][]float64
	// Size is the length of each in standard deviations within classes, 0 where there is none.
	Size []float64
	// Share is, of a client with an effect, how many images without one tell as much of a class as
	// one of its images, 1 at most: its class means differ from the others' each in its own way
	// too.
	Share []float64
	// Near are the clients that differ from the others, in a round where most clients have an
	// effect, and whose classes lie nearer together than another camera leaves them. They take no
	// part in the law, and Shift is nil; nil where most clients have none.
	Near []bool
	// precision is that of each client's class means, taken together, on its effect, in coordinates
	// in which the covariance within classes is I.
	precision []float64
	law       Law
}

// Any reports whether a client has an effect.
func (e *Effects) Any() bool {
	return e != nil && anyOf(e.Shift)
}

// ToCome returns the distribution of the effect of a client to come: where few clients have effects
// its covariance is the mean of b_m b_m' over all.
func (e *Effects) ToCome() Law { return e.law }

// Left returns the distribution of the effect of client m less its estimate. Its variance is
// 1/(p + 1/v) along a direction of variance v, with p the precision of its class means. Where few
// clients have effects it is that of the mean of its class means, 1/p.
func (e *Effects) Left(m int) Law {
	p, l := max(e.precision[m], least), e.law
	if l.rest == 0 { // no distribution over all clients
		l.basis, l.along, l.rest = nil, nil, 1/p
		return l
	}
	l.along = slices.Clone(l.along)
	for j, v := range l.along {
		l.along[j] = 1 / (p + 1/v)
	}
	l.rest = 1 / (p + 1/l.rest)
	return l
}

// least bounds precisions.
const least = 1e-9

// Subtract returns clients' class means less their effects, plus a further shift where that is not
// nil. The sets given stay as they are, and sets that do not move are shared.
func (e *Effects) Subtract(sets []*point.Set, plus []float64) []*point.Set {
	out := slices.Clone(sets)
	for m, set := range sets {
		b := make([]float64, set.Dx)
		if e.Shift[m] != nil {
			floats.Sub(b, e.Shift[m])
		}
		if plus != nil {
			floats.Add(b, plus)
		}
		out[m] = moved(set, b)
	}
	return out
}

// moved returns points with a shift added to their features.
func moved(set *point.Set, by []float64) *point.Set {
	if floats.Norm(by, math.Inf(1)) == 0 {
		return set
	}
	out := *set
	out.Z = slices.Clone(set.Z)
	for i := range out.N {
		row := out.Row(i)
		for j, v := range by {
			row[j] += float32(v)
		}
	}
	return &out
}

// cell is a client's mean of one class.
type cell struct {
	class int
	n, a  float64 // images, and the precision of their mean
	x     []float64
}

// Estimate estimates the effects of clients' class means, with their numbers of images as weights.
// white [dx, k] maps differences of class means to coordinates in which the covariance within
// classes is I, back [k, dx] maps these to differences of class means. It returns nil where no
// client has an effect.
func Estimate(sets []*point.Set, white, back *mat.Dense) (*Effects, error) {
	if len(sets) < 3 { // with two it cannot be told which of them is shifted
		return nil, nil
	}
	dx, k := white.Dims()
	cells := make([][]cell, len(sets))
	packed := dense.Pack(blas.NoTrans, white.RawMatrix(), nil)
	for m, set := range sets {
		if set.Dx != dx || set.C != sets[0].C {
			return nil,
				fmt.Errorf("client effects: the class means of client %d have %d numbers and %d "+
					"classes; want %d and %d", m, set.Dx, set.C, dx, sets[0].C)
		}
		cells[m] = means(set, packed, k)
	}
	found, share := make([][]float64, len(sets)), make([]float64, len(sets))
	for range turns {
		next := make([][]float64, len(sets))
		for m, d := range differences(cells, found, sets[0].C, k) {
			next[m], share[m] = d.effect(prior / float64(len(sets)))
		}
		if found = next; !anyOf(found) {
			break
		}
	}
	if e, err := common(cells, found, sets[0].C, Law{white: white, back: back}); e != nil ||
		err != nil {
		return e, err
	}
	if !anyOf(found) {
		return nil, nil
	}
	l, err := lawOf(found, white, back)
	if err != nil {
		return nil, err
	}
	return effects(found, share, cells, l), nil
}

func anyOf(found [][]float64) bool {
	return slices.ContainsFunc(found, func(b []float64) bool { return b != nil })
}

// effects returns effects that are given in coordinates in which the covariance within classes is
// I.
func effects(found [][]float64, share []float64, cells [][]cell, l Law) *Effects {
	e := &Effects{Shift: make([][]float64, len(found)),
		Size: make([]float64, len(found)), Share: share,
		precision: make([]float64, len(found)), law: l}
	for m, b := range found {
		for _, c := range cells[m] {
			e.precision[m] += c.a
		}
		if b == nil {
			continue
		}
		var shift mat.VecDense
		shift.MulVec(l.back.T(), mat.NewVecDense(len(b), b))
		e.Shift[m], e.Size[m] = shift.RawVector().Data, floats.Norm(b, 2)
	}
	return e
}

// common returns the effects of a round in which most clients have one, by shrinkage; nil where
// nothing tells that most have. found are the effects that are large enough to be found one by one.
func common(cells [][]cell, found [][]float64, classes int, l Law) (*Effects, error) {
	k, _ := l.back.Dims()
	in, near, held, differ, of := make([][]cell, len(cells)), make([]bool, len(cells)), 0, 0, 0
	apart, tell := make([][]cell, len(cells)), 0 // cells of the clients that tell of effects
	effective := 1.
	for m, d := range differences(cells, found, classes, k) {
		if d == nil {
			continue
		}
		effective = d.effective
		of++
		alike := !(d.tail < prior/float64(len(cells)))
		if near[m] = !alike && d.slope < minSlope; near[m] {
			continue
		}
		in[m] = cells[m]
		if d.slope >= minTelling {
			apart[m], tell = cells[m], tell+1
		}
		if held++; !alike {
			differ++
		}
	}
	if held < 3 {
		return nil, nil
	}
	if 2*differ <= of {
		if tell < 3 { // as in Estimate
			return nil, nil
		}
		if ok, err := evident(without(apart, found), classes, k, effective); !ok || err != nil {
			return nil, err
		}
	}
	s, err := fitted(in, classes, k, lowRank)
	if err != nil {
		return nil, err
	}
	share := make([]float64, len(cells))
	for m := range share {
		if in[m] == nil {
			s.shift[m], share[m] = nil, 1
			continue
		}
		share[m] = s.share(m)
	}
	l.basis, l.along, l.rest = s.basis, s.along, s.rest
	out := effects(s.shift, share, cells, l)
	out.Near = near
	floats.Div(out.precision, s.noise)
	return out, nil
}

// without returns cells less the effects that are found.
func without(cells [][]cell, found [][]float64) [][]cell {
	out := slices.Clone(cells)
	for m, b := range found {
		if b == nil {
			continue
		}
		out[m] = slices.Clone(cells[m])
		for i := range out[m] {
			x := slices.Clone(out[m][i].x)
			floats.Sub(x, b)
			out[m][i].x = x
		}
	}
	return out
}

// means returns a client's cells, in the k coordinates of white.
func means(set *point.Set, white dense.Packed, k int) []cell {
	mass, sum := make([]float64, set.C), make([]float64, set.C*set.Dx)
	for i := range set.N {
		row := set.Row(i)
		for y, p := range row[set.Dx:] {
			n := float64(p) * float64(set.W[i])
			if n <= 0 {
				continue
			}
			mass[y] += n
			for j, v := range row[:set.Dx] {
				sum[y*set.Dx+j] += n * float64(v)
			}
		}
	}
	var out []cell
	var rows []float64
	for y, n := range mass {
		if n > 0 {
			row := sum[y*set.Dx:][:set.Dx]
			floats.Scale(1/n, row)
			out, rows = append(out, cell{y, n, honesty.Precision(n), nil}), append(rows, row...)
		}
	}
	x := make([]float64, len(out)*k)
	white.Mul(blas.NoTrans, dense.General(len(out), set.Dx, rows), dense.General(len(out), k, x))
	for i := range out {
		out[i].x = x[i*k:][:k:k]
	}
	return out
}

// reference holds the means of one class that medians are taken of, by coordinate in ascending
// order. Sorted once, it gives each client the median of the others in O(log holders) a coordinate.
type reference struct {
	of       map[int]bool // clients
	sorted   [][]float64
	variance float64 // sum over clients of that of their mean, 1/a
}

// references returns those of every class, of means less the effects found so far.
func references(cells [][]cell, shift [][]float64, classes, k int) []reference {
	holders := make([][]int, classes)
	for m := range cells {
		for _, l := range cells[m] {
			holders[l.class] = append(holders[l.class], m)
		}
	}
	out := make([]reference, classes)
	for y, all := range holders {
		r := &out[y]
		r.of, r.sorted = map[int]bool{}, make([][]float64, k)
		step := (len(all) + maxHolders - 1) / maxHolders
		for i := 0; i < len(all); i += step {
			m := all[i]
			r.of[m] = true
			at := slices.IndexFunc(cells[m], func(l cell) bool { return l.class == y })
			r.variance += 1 / cells[m][at].a
			for j, v := range cells[m][at].x {
				if shift[m] != nil {
					v -= shift[m][j]
				}
				r.sorted[j] = append(r.sorted[j], v)
			}
		}
		for _, v := range r.sorted {
			slices.Sort(v)
		}
	}
	return out
}

// median returns the median of coordinate j, leaving out one value, own, where it is among them.
func (r *reference) median(j int, own float64, among bool) float64 {
	s, at := r.sorted[j], len(r.sorted[j])
	n := at
	if among {
		at, _ = slices.BinarySearch(s, own)
		n--
	}
	value := func(i int) float64 {
		if i >= at {
			i++
		}
		return s[min(i, len(s)-1)]
	}
	if n%2 == 1 {
		return value(n / 2)
	}
	return (value(n/2-1) + value(n/2)) / 2
}

// spread returns the variance of the median of one client's others, in units of the variance of a
// mean at precision 1. own is 1/a of the client's mean where that is among them. The median of n
// normal numbers has pi/(2n + 1) times their variance where n is odd, and pi/(2n + 2.6) times where
// it is even, within a twentieth. The mean of the holders' variances stands for that of each.
func (r *reference) spread(own float64) float64 {
	n, sum := len(r.of), r.variance
	if own > 0 {
		n, sum = n-1, sum-own
	}
	more := 1.
	if n%2 == 0 {
		more = 2.6
	}
	return sum / float64(n) * math.Pi / (2*float64(n) + more)
}

// difference is that of a client's class means from the others'.
type difference struct {
	mean          []float64 // b
	r0, r1, noise float64
	shared, free  float64 // N and (N-1) k
	effective     float64 // q
	statistic     float64 // F = ((R0 - R1)/k) / (R1/free)
	tail          float64 // probability of F or more without an effect
	slope         float64
	// with is the sum over classes of a times the product of the client's means and the others',
	// each about its mean over classes; of is the sum of their own squares, and blur the part of it
	// by noise of variance 1 in a mean at precision 1. scale is that variance by R1.
	with, of, blur, scale float64
	// the differences of class means about their mean, and the precisions of these
	rows    [][]float64
	weights []float64
}

// differences returns those of all clients; nil where too few classes are held by others too. shift
// are the effects found so far.
func differences(cells [][]cell, shift [][]float64, classes, k int) []*difference {
	ref := references(cells, shift, classes, k)
	out := make([]*difference, len(cells))
	var scales []float64
	for m := range cells {
		if out[m] = compare(m, shift[m], cells[m], ref); out[m] != nil {
			scales = append(scales, out[m].scale)
		}
	}
	if len(scales) == 0 {
		return out
	}
	slices.Sort(scales)
	noise, effective := scales[len(scales)/2], effectiveNumber(out, k)
	for _, d := range out {
		if d == nil {
			continue
		}
		d.test(effective)
		// The others' means are noisy too, which would make the slope less than it is.
		if of := d.of - noise*d.blur; of > 0 {
			d.slope = d.with / of
		}
	}
	return out
}

// compare returns a client's difference, nil where too few classes are held by others too. own is
// the effect that its means in ref are without. With a_c the precisions, r_c the differences from
// medians and b their mean it sets
//
//	R0 = sum_c a_c |r_c|^2,   R1 = sum_c a_c |r_c - b|^2,   F = ((R0 - R1)/k)/(R1/((N - 1) k))
//
// noise is as R1, with images in place of precisions.
func compare(m int, own []float64, cells []cell, ref []reference) *difference {
	var weights, images, spread []float64
	var rows, refs [][]float64
	for _, l := range cells {
		r := &ref[l.class]
		among := r.of[m]
		if others := len(r.sorted[0]); others == 0 || among && others == 1 {
			continue
		}
		row, ref := make([]float64, len(l.x)), make([]float64, len(l.x))
		for j, v := range l.x {
			at := v
			if own != nil {
				at -= own[j]
			}
			ref[j] = r.median(j, at, among)
			row[j] = v - ref[j]
		}
		noise := 0.
		if among {
			noise = 1 / l.a
		}
		spread = append(spread, r.spread(noise))
		weights, images, rows, refs = append(weights, l.a), append(images, l.n), append(rows, row),
			append(refs, ref)
	}
	if len(weights) < minShared {
		return nil
	}
	k, total := float64(len(rows[0])), floats.Sum(weights)
	d := &difference{mean: make([]float64, len(rows[0])),
		shared: total * total / floats.Dot(weights, weights)}
	for i, a := range weights {
		floats.AddScaled(d.mean, a/total, rows[i])
		d.r0 += a * floats.Dot(rows[i], rows[i])
	}
	for i, a := range weights {
		floats.Sub(rows[i], d.mean)
		v := floats.Dot(rows[i], rows[i])
		d.r1, d.noise = d.r1+a*v, d.noise+images[i]*v
	}
	d.free = (d.shared - 1) * k
	d.statistic = (d.r0 - d.r1) / k / (d.r1 / d.free)
	d.separate(rows, refs, weights, spread)
	d.rows, d.weights = rows, weights
	return d
}

// test sets the probability of the statistic without an effect, given the effective number of
// coordinates.
func (d *difference) test(effective float64) {
	d.effective, d.tail = effective, 1
	if d.r1 > 0 {
		d.tail = distuv.F{D1: effective, D2: (d.shared - 1) * effective}.Survival(d.statistic)
	}
}

// effect returns a client's effect, nil where there is none, and its share. tail is the probability
// with which a client without an effect may be taken to have one.
func (d *difference) effect(tail float64) (b []float64, share float64) {
	if d == nil {
		return nil, 1
	}
	k := d.effective
	gain := d.shared*k*math.Log(d.r0/d.r1) - k*math.Log(d.shared*k)
	if !(d.r1 > 0) || gain <= 2*math.Log(1/prior-1) || !(d.tail < tail) || d.slope < minSlope {
		return nil, 1
	}
	floats.Scale(1-1/d.statistic, d.mean)
	return d.mean, 1 / max(1, d.noise/d.free)
}

// separate sets the sums that tell how far apart the client's classes lie, given their differences
// d_c about their mean, the others' means f_c, and the variances v_c of these at precision 1. With
// f_c about their mean and a = sum a_c
//
//	of   = sum a_c |f_c|^2,   with = sum a_c f_c'(f_c + d_c)
//	blur = k sum a_c (1 - a_c/a) v_c,   scale = R1 / (k sum (1 - a_c/a)(1 + a_c v_c))
//
// so that with/(of - scale blur) is the slope of the client's means on the others' without noise.
func (d *difference) separate(off, refs [][]float64, weights, spread []float64) {
	k, total := float64(len(refs[0])), floats.Sum(weights)
	centre := make([]float64, len(refs[0]))
	for i, a := range weights {
		floats.AddScaled(centre, a/total, refs[i])
	}
	var units float64
	for i, a := range weights {
		floats.Sub(refs[i], centre)
		square := floats.Dot(refs[i], refs[i])
		d.of += a * square
		d.with += a * (square + floats.Dot(off[i], refs[i]))
		d.blur += a * (1 - a/total) * spread[i] * k
		units += (1 - a/total) * (1 + a*spread[i]) * k
	}
	d.scale = d.r1 / units
}
