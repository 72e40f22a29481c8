package audit

import (
	"cmp"
	"context"
	"fmt"
	"math"
	"slices"
	"strings"

	"gonum.org/v1/gonum/floats"
	"gonum.org/v1/gonum/mat"

	"fmp/models/rng"
	"fmp/onnx/dense"
	"fmp/pipeline/discriminant"
	"fmp/pipeline/federate"
	"fmp/pipeline/internal/moment"
	"fmp/pipeline/lab/experiment"
	"fmp/pipeline/lab/score"
	"fmp/pipeline/metric"
	"fmp/pipeline/moments"
	"fmp/pipeline/point"
	"fmp/pipeline/task"
)

// Parts is how much those parts of an upload give away that an attacker reads. Sizes are means over
// clients. Success is a mean over images: an image counts alike, whatever client it is of.
type Parts struct {
	// Read names the parts, Coordinates is the number of coordinates of a row, and Points the
	// number of images per client.
	Read        string `json:"read"`
	Coordinates int    `json:"coordinates"`
	Points      int    `json:"points"`
	// Behind is the number of images behind the mean of an image's class, averaged over images,
	// Freedom the degrees of freedom of the scatter, and Calibration the number of calibration
	// points.
	Behind      float64 `json:"behind"`
	Freedom     float64 `json:"freedom,omitempty"`
	Calibration float64 `json:"calibration,omitempty"`
	// Bytes is the size of the encoded upload, and PointBytes the share of each calibration point.
	Bytes      float64 `json:"bytes"`
	PointBytes float64 `json:"point_bytes,omitempty"`
	// Attack is on the images behind these parts. In theory, of N images behind a mean, k
	// coordinates and f degrees of freedom, d'^2 = k/N + k(k+1)/2f.
	Attack
	// Whole is the share of a client's images whose coordinates can be read off, and Error the
	// squared distance of an image to the nearest guess at a client's images, as a share of that to
	// the mean of its class.
	Whole float64 `json:"whole"`
	Error float64 `json:"error"`
}

// space is the coordinates in which clients make uploads. of maps feature rows, [n, dx], to rows of
// k numbers.
type space struct {
	of func(ctx context.Context, features []float32) ([]float32, error)
	// bytes bounds an upload of moments; 0 stands for class means.
	bytes int
}

// budgets of fmp fuse --bytes, with the numbers of directions that they leave of ten classes; 0
// stands for all features. A triangle of k (k+1)/2 numbers is most of an upload, so that bytes grow
// as the square of k.
var budgets = []struct{ bytes, k int }{{2 << 20, 0}, {64 << 10, 325}, {6 << 10, 70}}

// spacesOf returns the coordinates of a run's uploads. A budget that leaves as many directions as
// there are features is left out: it is the first one again. A run with both predictors is audited
// in the coordinates of each.
func spacesOf(p *experiment.Prepared) []space {
	var out []space
	if k := p.Tools.Conjugate; k != nil {
		out = append(out, space{of: k.Map})
	}
	if k := p.Tools.Open; k != nil {
		out = append(out, space{of: k.Map})
	}
	e := p.Tools.Embedded
	if e == nil {
		return out
	}
	for _, b := range budgets {
		if b.k == 0 {
			out = append(out, space{of: e.Map, bytes: b.bytes})
		} else if b.k < e.Dx() {
			basis := moment.Rows(discriminant.RandomBasis(e.Dx(), b.k, p.Config.Seed).F32(), b.k)
			out = append(out, space{bytes: b.bytes,
				of: func(ctx context.Context, features []float32) ([]float32, error) {
					rows, err := e.Map(ctx, features)
					if err != nil {
						return nil, err
					}
					to := moment.Product(moment.Rows(rows, e.Dx()), basis, false)
					return dense.As[float32](to.RawMatrix().Data), nil
				}})
		}
	}
	return out
}

// RunParts attacks rounds without noise, part by part of each client's upload as its server decodes
// it: class means, then with calibration points or, of moments, with the scatter and then with
// both. The attacker knows mean and covariance of the classes from half of the clients' part of the
// data set, from the other half of which clients draw; test images are those that took no part.
// Rows are in the order of spaces, and of parts within each. Test images and clients' images are
// taken to have one distribution.
func RunParts(ctx context.Context, p *experiment.Prepared, alpha float64,
	o Options) ([]Parts, error) {
	var out []Parts
	for _, at := range spacesOf(p) {
		bank := p.Data.Clients
		own, err := at.of(ctx, bank.Features)
		if err != nil {
			return nil, err
		}
		test, err := at.of(ctx, p.Data.Test)
		if err != nil {
			return nil, err
		}
		k := len(own) / len(bank.Labels)
		a, err := newAttacked(&labelled{own, k, bank.Labels}, &labelled{test, k, p.Data.TestLabels},
			bank.C, at.bytes)
		if err != nil {
			return nil, err
		}
		parts, err := a.rounds(ctx, p.Config.Federation.Clients,
			cmp.Or(o.Points, p.Config.Federation.Points), alpha, o)
		if err != nil {
			return nil, err
		}
		out = append(out, parts...)
	}
	return out, nil
}

// rounds draws rounds of clients, each with the given number of images, and attacks their uploads.
// Clients of a round share no image, and rounds do.
func (a *attacked) rounds(ctx context.Context, clients, points int, alpha float64,
	o Options) ([]Parts, error) {
	var found tally
	for round := range o.Rounds {
		drawn, err := a.bank.Partition(rng.New(o.Seed, "audit", "clients", round),
			clients, points, alpha)
		if err != nil {
			return nil, fmt.Errorf("audit: half of the images are the attacker's: %w", err)
		}
		for m, rows := range drawn {
			if err := ctx.Err(); err != nil {
				return nil, err
			}
			if err := a.client(rows, fmt.Sprintf("audit %d, client %d", round, m), o.Calibrate,
				&found); err != nil {
				return nil, err
			}
		}
	}
	return found.parts(a.k, points)
}

// attacked is the knowledge of an attacker, in the coordinates of uploads. Nothing writes to it
// once it is made.
type attacked struct {
	k, c, bytes int
	bank        *task.Bank // clients' rows
	means       *mat.Dense // of the classes, C x k
	chol        mat.Cholesky
	others      *mat.Dense // rows of images that took no part
	labels      []int
	white       *mat.Dense // others less their class means, whitened
}

// newAttacked parts rows into those of clients and of the attacker, class by class in turn; test
// rows took no part. Of n images in c classes the covariance has the rank n - c at most. With n <=
// k + c it is an error. Neither half shares an image with the other, so that the attacker's
// knowledge holds nothing of a member. A class of fewer than two images in its half is an error.
func newAttacked(rows, test *labelled, c, bytes int) (*attacked, error) {
	a := &attacked{k: rows.k, c: c, bytes: bytes, labels: test.labels}
	var halves [2]labelled
	turn := make([]int, c)
	for i, y := range rows.labels {
		h := &halves[turn[y]%2]
		turn[y]++
		h.rows, h.labels = append(h.rows, rows.rows[i*a.k:(i+1)*a.k]...), append(h.labels, y)
	}
	var err error
	if a.bank, err = task.NewBank(halves[0].rows, a.k, halves[0].labels, c); err != nil {
		return nil, err
	}
	known, err := moment.Compute(moment.Rows(halves[1].rows, a.k), halves[1].labels, c, 2)
	if err != nil {
		return nil, fmt.Errorf("audit: the attacker's half of the images: %w", err)
	}
	a.means = known.Means
	if n := len(halves[1].labels); n <= a.k+c || !a.chol.Factorize(known.Within) {
		return nil, fmt.Errorf("audit: the attacker's %d images are too few for a covariance of "+
			"%d coordinates; raise dataset.splits.clients", n, a.k)
	}
	a.others = moment.Rows(test.rows, a.k)
	a.white, err = a.whiten(a.others, a.labels)
	return a, err
}

// labelled are rows of k coordinates.
type labelled struct {
	rows   []float32
	k      int
	labels []int
}

// whiten returns W^-1/2 (x - mu_y) of rows. Distances in these coordinates are in standard
// deviations within classes. rows stay as they are.
func (a *attacked) whiten(rows *mat.Dense, labels []int) (*mat.Dense, error) {
	return score.Whitened(&a.chol, less(rows, a.means, labels))
}

// less returns rows less the means of their classes.
func less(rows, means *mat.Dense, labels []int) *mat.Dense {
	rest := mat.DenseCopyOf(rows)
	for i, y := range labels {
		floats.Sub(rest.RawRowView(i), means.RawRowView(y))
	}
	return rest
}

// client makes the upload of a client's rows, and attacks it part by part. Uploads are coded and
// decoded before they are attacked, so that the attacker reads rounded numbers. key chooses
// calibration points, as a client's secret does. It costs O(n k^2), and O(k^3) where there is a
// scatter.
func (a *attacked) client(of []int, key string, calibrate int, found *tally) error {
	x, labels := a.bank.Points(of, nil).Labelled()
	uploads, err := a.uploads(x, labels, key, calibrate)
	if err != nil {
		return err
	}
	rows := moment.Rows(x, a.k)
	white, err := a.whiten(rows, labels)
	if err != nil {
		return err
	}
	for i, u := range uploads {
		data, err := u.EncodeWithin(a.bytes)
		if err != nil {
			return err
		}
		if u.Upload, err = federate.Decode(data, federate.Expect{}); err != nil {
			return err
		}
		v, err := a.read(u.Upload)
		if err != nil {
			return err
		}
		t := found.at(i, u.parts)
		t.bytes += float64(len(data))
		if bare, n := u.withoutPoints(); n > 0 {
			without, err := bare.Encode()
			if err != nil {
				return err
			}
			t.pointBytes += float64(len(data)-len(without)) / float64(n)
		}
		if err := v.attack(rows, white, labels, u.members, t); err != nil {
			return err
		}
	}
	return nil
}

// part is an upload of some of the parts of one.
type part struct {
	*federate.Upload
	parts   string
	members []bool // rows that these parts are of
}

// withoutPoints returns the upload without its calibration points, and how many these are. The copy
// is shallow but for the fields that it clears; the upload stays whole.
func (p *part) withoutPoints() (*federate.Upload, int) {
	u, n := *p.Upload, 0
	if u.Calibration != nil {
		n, u.Calibration = u.Calibration.N, nil
	}
	if w := u.Within; w != nil {
		bare := *w
		n, bare.Calibration, bare.Labels = len(w.Labels), nil, nil
		u.Within = &bare
	}
	return &u, n
}

// uploads returns the upload of a client, after those of its parts alone. Each has the parts of the
// one before and more. members marks the rows that enter its parts. Of moments the parts are one
// upload's. Of class means the first upload has none of the points set aside, and its means are of
// all images.
func (a *attacked) uploads(x []float32, labels []int, key string,
	calibrate int) (out []part, err error) {
	all := slices.Repeat([]bool{true}, len(labels))
	add := func(parts string, members []bool, means *point.Set, w *moments.Within,
		points *point.Set) {
		out = append(out, part{&federate.Upload{Client: "client", Model: strings.Repeat("0", 64),
			N: int(math.Round(means.Mass())), Points: means,
			Within: w, Calibration: points}, parts, members})
	}
	if a.bytes > 0 {
		means, within, err := moments.Compute(x, a.k, labels, a.c, key)
		if err != nil {
			return nil, err
		}
		behind := moments.Calibration(x, a.k, key, moments.MaxCalibration)
		for i, chosen := range behind {
			// Calibration points are in neither means nor scatter.
			behind[i] = !chosen
		}
		scatter := *within
		scatter.Calibration, scatter.Labels = nil, nil
		add("class means", behind, means, &moments.Within{K: a.k}, nil)
		add("means, scatter", behind, means, &scatter, nil)
		add("means, scatter, points", all, means, within, nil)
		return out, nil
	}
	means, _, err := moments.Parted(x, a.k, labels, a.c, nil)
	if err != nil {
		return nil, err
	}
	if add("class means", all, means, nil, nil); calibrate == 0 {
		return out, nil
	}
	means, w, err := moments.Parted(x, a.k, labels, a.c,
		moments.Calibration(x, a.k, key, calibrate))
	if err != nil {
		return nil, err
	}
	points := &point.Set{N: len(w.Labels), Dx: a.k, C: a.c, Z: w.Calibration}
	for _, y := range w.Labels {
		points.Y = append(points.Y, int32(y))
	}
	add("means, points", all, means, nil, points)
	return out, nil
}

// view is an upload as an attacker reads it. count, mean and sum have a row for each class, of
// which those without images have the attacker's mean and 0.
type view struct {
	*attacked
	count []float64  // of the images behind a mean
	mean  *mat.Dense // C x k
	sum   *mat.Dense // count times the whitened mean
	// within is the scatter's decomposition, and freedom its degrees of freedom; 0 where there is
	// none.
	within  mat.Cholesky
	freedom float64
	// of a scatter of one degree of freedom: half of the difference of the two images
	pair    []float64
	points  *mat.Dense // calibration points, whitened
	classes []int
}

// read returns the view of an upload. sum of class c is n W^-1/2 (m - mu_c), zero for a class that
// the upload lacks.
func (a *attacked) read(u *federate.Upload) (*view, error) {
	v := &view{attacked: a, count: make([]float64, a.c), mean: mat.DenseCopyOf(a.means)}
	h, labels := u.Points.Labelled()
	for i, y := range labels {
		v.count[y] = float64(u.Points.W[i])
		for j, x := range h[i*a.k : (i+1)*a.k] {
			v.mean.Set(y, j, float64(x))
		}
	}
	all := make([]int, a.c)
	for y := range all {
		all[y] = y
	}
	var err error
	if v.sum, err = a.whiten(v.mean, all); err != nil {
		return nil, err
	}
	for y, n := range v.count {
		floats.Scale(n, v.sum.RawRowView(y))
	}
	points := []float32(nil)
	if u.Calibration != nil {
		points, v.classes = u.Calibration.Labelled()
	}
	if w := u.Within; w != nil {
		points, v.classes = w.Calibration, w.Labels
		if w.Dof > 0 {
			if err := v.scatter(w); err != nil {
				return nil, err
			}
		}
	}
	if len(v.classes) > 0 {
		v.points, err = a.whiten(moment.Rows(points, a.k), v.classes)
	}
	return v, err
}

// negligible is the share of the mean variance that is added to the scatter, so that it can be
// inverted; it grows until it can.
const negligible = 1e-6

// scatter reads the scatter. That of one class of two images x and y, and of nothing else, is
// (x - y)(x - y)'/2: its factor is their difference by sqrt 2, but for the sign. The diagonal grows
// by a share that starts at [negligible] and is ten times as large at each attempt. A scatter of
// zeros is an error, as no share of it helps.
func (v *view) scatter(w *moments.Within) error {
	v.freedom = float64(w.Dof)
	if w.Rank == 1 {
		for _, x := range w.Data {
			v.pair = append(v.pair, float64(x)/math.Sqrt2)
		}
	}
	// The upper triangle of S, summed from the form that the upload has.
	upper := make([]float64, v.k*v.k)
	w.AddTo(upper)
	s := mat.NewSymDense(v.k, upper)
	for more := negligible * w.Trace() / float64(v.k); more > 0 &&
		!math.IsInf(more, 0); more *= 10 {
		for i := range v.k {
			s.SetSym(i, i, s.At(i, i)+more)
		}
		if v.within.Factorize(s) {
			return nil
		}
	}
	return fmt.Errorf("audit: the scatter is singular")
}

// scores returns the log-likelihood ratios of rows, less a number for each class, as members of the
// upload. For Gaussian classes, of a mean m of n rows less mu_c and a scatter S of f degrees of
// freedom,
//
//	m ~ N(x/n, (n-1)/n^2 W),  S - aa' ~ Wishart(f - 1, W)  with a row at mu_c + x,
//	m ~ N(0, W/n),            S ~ Wishart(f, W)            without,
//
// where a = sqrt(n/(n-1)) (x - m).
// The second ratio is (1 - a'S^-1 a)^((f-k-2)/2) exp(a'W^-1 a/2): no member has a'S^-1 a above 1,
// and others do where S is singular.
func (v *view) scores(rows, white *mat.Dense, labels []int) ([]float64, error) {
	// leverage is a'S^-1 a of each row, 0 without a scatter.
	leverage := make([]float64, len(labels))
	if v.freedom > 0 {
		solved, err := score.Whitened(&v.within, less(rows, v.mean, labels))
		if err != nil {
			return nil, err
		}
		for i, y := range labels {
			leverage[i] = squared(solved.RawRowView(i), nil) * weight(v.count[y])
		}
	}
	out := make([]float64, len(labels))
	mean := make([]float64, v.k)
	for i, y := range labels {
		n := v.count[y]
		x := white.RawRowView(i)
		if n > 0 {
			// n m ~ N(x, (n-1) W) with the row; without, the density does not depend on x.
			out[i] = -squared(v.sum.RawRowView(y), x) / (2 * max(n-1, 1e-9))
		}
		if v.freedom > 0 && n > 0 {
			for j, m := range v.sum.RawRowView(y) {
				mean[j] = m / n
			}
			// a'W^-1 a / 2, and the power of 1 - a'S^-1 a, which is 1/2 at least
			out[i] += squared(x, mean)*weight(n)/2 + max(v.freedom-float64(v.k)-2,
				1)/2*logRest(leverage[i])
		}
		if v.nearest(x, y) <= same*float64(v.k) {
			out[i] = math.MaxFloat64
		}
	}
	return out, nil
}

// weight returns n/(n-1), and 1 of single images. It is |a|^2 / |x - m|^2 for the row x, with a as
// [view.scores] has it.
func weight(n float64) float64 {
	if n < 2 {
		return 1
	}
	return n / (n - 1)
}

// logRest returns log(1 - x), continued by its tangent from .999 on. A leverage of 1 or more would
// give -Inf, of which two rows could not be told apart. The tangent keeps their order.
func logRest(x float64) float64 {
	const end = 0.999
	if x < end {
		return math.Log1p(-x)
	}
	return math.Log1p(-end) - (x-end)/(1-end)
}

// same is the squared distance of a coordinate, in variances within classes, up to which two rows
// are of one image: two images of a class are 2 apart, and rounding to int8 moves a row by some
// 1e-4.
const same = 1e-3

// nearest returns the squared distance of a whitened row to the nearest calibration point of its
// class. It is infinite without such points.
func (v *view) nearest(x []float64, y int) float64 {
	least := math.Inf(1)
	for i, c := range v.classes {
		if c == y {
			least = min(least, squared(x, v.points.RawRowView(i)))
		}
	}
	return least
}

// squared returns |a - b|^2, and |a|^2 without b. It adds in order, as kept audits have it.
func squared(a, b []float64) (sum float64) {
	for j, v := range a {
		if b != nil {
			v -= b[j]
		}
		sum += v * v
	}
	return sum
}

// attack scores the rows of a client, and those that took no part, by a view of its upload. The
// area is averaged over the images that the view tells of. Other images of a class count where the
// upload says anything of that class. The rate of true positives, at 1% false ones, is averaged
// alike. Scores leave out a number that depends on the class, and are therefore compared within
// classes alone.
func (v *view) attack(rows, white *mat.Dense, labels []int, members []bool, t *sums) error {
	own, err := v.scores(rows, white, labels)
	if err != nil {
		return err
	}
	var held []int
	for i, y := range v.labels {
		if v.count[y] > 0 || slices.Contains(v.classes, y) {
			held = append(held, i)
		}
	}
	others, otherWhite, of := pick(v.others, held), pick(v.white, held), make([]int, len(held))
	for i, r := range held {
		of[i] = v.labels[r]
	}
	theirs, err := v.scores(others, otherWhite, of)
	if err != nil {
		return err
	}
	for y := range v.c {
		var in, not []float64
		for i, c := range labels {
			if c == y && members[i] {
				in = append(in, own[i])
			}
		}
		for i, c := range of {
			if c == y {
				not = append(not, theirs[i])
			}
		}
		if len(in) == 0 || len(not) == 0 {
			continue
		}
		area, err := metric.AUROC(in, not)
		if err != nil {
			return fmt.Errorf("audit: %w", err)
		}
		n := float64(len(in))
		t.members, t.auc, t.tpr = t.members+n, t.auc+n*area,
			t.tpr+n*score.TruePositives(in, not, 0.01)
	}
	if err := v.reconstruct(white, labels, t); err != nil {
		return err
	}
	t.clients++
	t.freedom, t.calibration = t.freedom+v.freedom, t.calibration+float64(len(v.classes))
	for _, n := range v.count {
		if n == 0 {
			continue
		}
		t.behind, t.images = t.behind+n*n, t.images+n
		d := float64(v.k) / n
		if v.freedom > 0 {
			d += float64(v.k*(v.k+1)) / (2 * v.freedom)
		}
		t.d += n * math.Sqrt(d)
	}
	return nil
}

// pick returns the given rows. None given is one row of zeros, since a matrix has one row at least;
// its caller has no labels then.
func pick(x *mat.Dense, rows []int) *mat.Dense {
	_, k := x.Dims()
	out := mat.NewDense(max(len(rows), 1), k, nil)
	for i, r := range rows {
		out.SetRow(i, x.RawRowView(r))
	}
	return out
}

// reconstruct guesses a client's images of each class: their mean, which is the image of a class of
// one, calibration points, and both images of a class of two where the scatter is theirs alone. The
// distance to the attacker's class mean is the most that an image may be missed by. Images of
// calibration points count as any other.
func (v *view) reconstruct(white *mat.Dense, labels []int, t *sums) error {
	guesses := make([][][]float64, v.c)
	for y, n := range v.count {
		if n == 0 {
			continue
		}
		mean := make([]float64, v.k)
		for j, s := range v.sum.RawRowView(y) {
			mean[j] = s / n
		}
		guesses[y] = append(guesses[y], mean)
		if n != 2 || v.pair == nil {
			continue
		}
		apart, err := score.Whitened(&v.chol, mat.NewDense(1, v.k, v.pair))
		if err != nil {
			return err
		}
		for _, sign := range []float64{1, -1} {
			guesses[y] = append(guesses[y], floats.AddScaledTo(make([]float64, v.k), mean, sign,
				apart.RawRowView(0)))
		}
	}
	for i, y := range v.classes {
		guesses[y] = append(guesses[y], v.points.RawRowView(i))
	}
	for i, y := range labels {
		x := white.RawRowView(i)
		least := squared(x, nil)
		t.apart += least
		for _, g := range guesses[y] {
			least = min(least, squared(x, g))
		}
		if t.missed += least; least <= same*float64(v.k) {
			t.whole++
		}
		t.rows++
	}
	return nil
}

// tally holds the sums of attacks on the parts of uploads.
type tally []*sums

// sums are sums over clients: of members' areas and rates, of images behind means, of all images,
// and of clients.
type sums struct {
	read                                 string
	members, auc, tpr                    float64
	images, behind, d                    float64
	rows, whole, missed, apart           float64
	clients, freedom, calibration, bytes float64
	pointBytes                           float64
}

// at returns the sums of a client's i-th parts. The name is the one given at the first call for i.
func (t *tally) at(i int, read string) *sums {
	for len(*t) <= i {
		*t = append(*t, &sums{read: read})
	}
	return (*t)[i]
}

// parts returns the means. Behind is sum n^2/sum n: a class of many images counts by each of them.
func (t tally) parts(k, points int) ([]Parts, error) {
	var out []Parts
	for _, s := range t {
		if s.members == 0 {
			return nil, fmt.Errorf("audit: the test images have no class of the clients'")
		}
		p := Parts{Read: s.read, Coordinates: k, Points: points, Behind: s.behind / s.images,
			Freedom:     s.freedom / s.clients,
			Calibration: s.calibration / s.clients, Bytes: s.bytes / s.clients,
			PointBytes: s.pointBytes / s.clients,
			Whole:      s.whole / s.rows, Error: s.missed / s.apart,
			Attack: Attack{AUC: s.auc / s.members, TPR: s.tpr / s.members}}
		p.theory(s.d / s.images)
		out = append(out, p)
	}
	return out, nil
}
