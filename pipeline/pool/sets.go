package pool

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"math"
	"math/rand/v2"
	"slices"

	"gonum.org/v1/gonum/floats"

	"fmp/models"
	"fmp/models/rng"
	"fmp/onnx/dense"
	"fmp/pipeline/conformal"
	"fmp/pipeline/moments"
	"fmp/pipeline/option"
	"fmp/pipeline/posterior"
)

// Level is the coverage of the prediction sets of a round where none is asked for. It is 1 - alpha:
// a set misses the class of at most one image in ten, on average over calibrations and images.
const Level = 0.9

// FalseShare is the share of clients whose calibration points may be false where none is asked for.
const FalseShare = 0.2

// minCapped is the number of calibration points up to which every client's count.
const minCapped = moments.MaxCalibration

// maxScored bounds the calibration points that a threshold is computed from. Coverage at level q
// has the standard error sqrt(q (1 - q) / n) for points that are drawn alike: 0.003 at q = 0.9.
const maxScored = 10_000

// calibrationPoint is a calibration point that took no part in a round's posterior: its embedded
// row and class. Rows of class means of features become the coordinates of the heads in
// [Sampling.ontoHeads]. The row has the length of the coordinates, class is from 0, and client is
// the place of its upload in the round.
type calibrationPoint struct {
	row    []float32
	class  int
	client int
}

// setDesign checks the options of the prediction sets, and sets the share of false clients: 0 where
// all are trusted or one is served, else FalseShare. It comes before any upload is read for sets,
// as a server makes its settings sure before a round begins. An option that asks for sets asks for
// [Level] where no level is given: sets that cannot be made are an error then.
func (r *Round) setDesign() (d conformal.Design, err error) {
	r.Score = cmp.Or(r.Score, conformal.Probability)
	if err := r.unreadSets(); err != nil {
		return d, err
	}
	switch {
	case r.Trust || r.For != "":
		r.falseShare = 0
	case r.FalseShare != nil:
		r.falseShare = *r.FalseShare
	default:
		r.falseShare = FalseShare
	}
	d = conformal.Design{Clients: r.For == "", ByClass: r.ByClass}
	if !slices.Contains(conformal.Scores, r.Score) {
		return d, fmt.Errorf("the score of sets is %q: allowed are %v", r.Score, conformal.Scores)
	}
	if r.Level > 0 {
		if err := conformal.CheckLevel(r.Level); err != nil {
			return d, err
		}
	}
	switch {
	case r.Proportions == "":
	case r.ByClass:
		return d, errors.New("sets by class hold for any shares of classes: leave the shares " +
			"out, or the sets by class")
	default:
		d.Names = r.Client.Classes
		d.Proportions, err = conformal.Shares(r.Proportions, r.Client.Classes, r.classes())
	}
	if err == nil && r.Groups != "" {
		err = r.setGroups()
	}
	if (r.ByClass || r.Proportions != "" || r.Groups != "") && r.Level == 0 {
		r.Level = Level // asked for
	}
	return d, err
}

// unreadSets returns an error for options of the prediction sets that others leave without effect.
func (r *Round) unreadSets() error {
	if s := r.FalseShare; (r.Trust || r.For != "") && s != nil && *s != 0 && *s != FalseShare {
		return fmt.Errorf("false_share is %v, and no client's points may be false where all are "+
			"taken for honest or the classifier is for one client: take one of the two", *s)
	}
	for _, s := range option.List(&r.Sets) {
		if r.Level < 0 && s.Given() {
			return fmt.Errorf("%s is of prediction sets, and level -1 makes none: "+
				"leave one of the two out", s.Key)
		}
	}
	return nil
}

// setGroups finds the group of every client. Clients that no group names are one more group, "no
// group", so that sets hold for them too. A name that no upload has is an error, as a spelling
// mistake would leave its client out of its group.
func (r *Round) setGroups() error {
	if r.For != "" {
		return fmt.Errorf("a classifier for client %q has sets by its own points: "+
			"leave the groups out", r.For)
	}
	names, of, err := conformal.Groups(r.Groups)
	if err != nil {
		return err
	}
	r.groups = names
	rest := false
	for _, u := range r.Uploads {
		g, ok := of[u.Client]
		if !ok {
			g, rest = len(r.groups), true
		}
		r.group = append(r.group, g)
		delete(of, u.Client)
	}
	// a served round waits for its clients
	if absent := slices.Sorted(maps.Keys(of)); len(absent) > 0 && !r.Lenient {
		return fmt.Errorf("groups of clients: none of the %d uploads is from client %q: name "+
			"clients as their uploads do, without spaces", len(r.Uploads), absent[0])
	}
	if rest {
		r.groups = append(r.groups, "no group")
	}
	return nil
}

// classes is the number of classes of the uploads. The client graph's number serves a server that
// has no point yet.
func (r *Round) classes() int {
	if p := r.Uploads[0].Points; p != nil {
		return p.C
	}
	return r.Client.C // before the first upload
}

// proves returns an error where calibration points do not prove sets of a level, for one of the
// groups: the least number is conformal.Design.Enough's, without the points of clients that may be
// false.
func (r *Round) proves(points []calibrationPoint, level float64) error {
	d, of := r.designed(points, points)
	counts := d.Counts(of, r.classes())
	for len(counts) < len(r.groups) { // no client of the last groups sent points
		counts = append(counts, make([]int, r.classes()))
	}
	for g, n := range counts {
		if err := d.Enough(n, level); err != nil && r.groups != nil {
			return fmt.Errorf("clients of %q: %w", r.groups[g], err)
		} else if err != nil && d.Survives() && d.False[g] > 0 {
			return fmt.Errorf("without the points of %d clients that may be false: %w",
				d.False[g], err)
		} else if err != nil {
			return err
		}
	}
	return nil
}

// designed returns the design of the sets by points, with the points' classes. Of the clients that
// sent all of the points a share may be false, of each group; those that are left out are. With
// M_g clients of group g that sent some of all, of whom out_g have none among points,
//
//	False_g = max(floor(share M_g) - out_g, 0)
//
// Those that were left out as dishonest thus count toward the share.
func (r *Round) designed(points, all []calibrationPoint) (d conformal.Design, classes []int) {
	d = r.design
	held := map[int]bool{}
	for _, p := range points {
		classes, d.Client = append(classes, p.class), append(d.Client, p.client)
		if held[p.client] = true; r.group != nil {
			d.Group = append(d.Group, r.group[p.client])
		}
	}
	if r.falseShare == 0 {
		d.Client = nil
		return d, classes
	}
	d.False = make([]int, max(len(r.groups), 1))
	clients, out := make([]int, len(d.False)), make([]int, len(d.False))
	seen := map[int]bool{}
	for _, p := range all {
		if seen[p.client] {
			continue
		}
		g := 0
		if r.group != nil {
			g = r.group[p.client]
		}
		if seen[p.client] = true; !held[p.client] {
			out[g]++
		}
		clients[g]++
	}
	for g, n := range clients {
		// A share that is a whole number of clients stays one in spite of rounding.
		d.False[g] = max(int(r.falseShare*float64(n)+1e-9)-out[g], 0)
	}
	return d, classes
}

// enough reports whether calibration points prove sets of the level. Where these were asked for it
// is an error if they do not; elsewhere the posterior says why it has no sets, if there are points.
// remedy is the end of either text.
func (s *Sampling) enough(points []calibrationPoint, remedy string) (bool, error) {
	r := s.round
	err := r.proves(points, cmp.Or(r.Level, Level))
	if err == nil {
		return true, nil
	}
	if r.Level != 0 && !r.Lenient {
		return false, fmt.Errorf("pool: %w; %s", err, remedy)
	}
	if len(points) > 0 {
		s.noSets = fmt.Sprintf("%v; %s", err, remedy)
	}
	return false, nil
}

// calibration holds points for prediction sets back: every second one of each client, at random,
// ceil(n/2) of n.
// The others choose the temperature and count as images; those held back do neither, so that the
// sets' guarantee is exact. A classifier for one client has the sets of that client's points alone.
// Where they are too few for the level none are, and a level that was asked for is an error. The
// random order is of the seed and the client's name, so that a client's points are held back
// whichever others are in.
func (s *Sampling) calibration() error {
	r := s.round
	if r.Level < 0 {
		return nil
	}
	var points []calibrationPoint
	out := make([][]int, len(s.clients))
	random := make([]*rand.Rand, len(s.clients))
	for m, c := range s.clients {
		random[m] = rng.New(r.Seed, stream, "sets", r.Uploads[m].Client)
		n := len(c.Within.Labels)
		if r.For != "" && r.For != r.Uploads[m].Client {
			continue
		}
		out[m] = random[m].Perm(n)[:(n+1)/2] // one point alone is for sets
		for _, i := range out[m] {
			points = append(points, calibrationPoint{class: c.Within.Labels[i], client: m})
		}
	}
	if ok, err := s.enough(points, "one in two of those in the uploads is for sets: pool "+
		"more uploads"); !ok {
		return err
	}
	// Of too many points those of some clients serve; points of the others stay in their moments.
	share := min(1, float64(maxScored)/float64(len(points)))
	for m := range s.clients {
		if len(out[m]) > 0 && random[m].Float64() < share {
			s.clients[m].Within = s.holdBack(m, out[m])
		}
	}
	return nil
}

// calibrate takes the calibration points of uploads of class means. In open scope every second one
// of each client, at random, is for prediction sets, and the others choose temperature and penalty
// (posterior.Calibration); all are for sets where half of them would not prove the level, and none
// where all would not. In closed scope nothing is chosen. A classifier for one client has that
// client's points alone.
func (s *Sampling) calibrate() error {
	r := s.round
	all, half, rest := r.points()
	if len(all) > 0 && r.open != nil {
		f, err := s.means.Form()
		if err != nil {
			return err
		}
		if f.Open {
			level := cmp.Or(r.Level, Level)
			switch {
			case r.Level < 0 || (r.Level == 0 || r.Lenient) && r.proves(all, level) != nil:
				half, rest = nil, all // no sets, or none that all points would prove
			case r.proves(half, level) != nil:
				half, rest = all, nil // half would prove none
			}
			if err := s.choose(rest); err != nil {
				return err
			}
			if half != nil { // nil: all choose, and there are no sets
				all = half
			}
		}
	}
	if r.Level < 0 {
		return nil
	}
	if ok, err := s.enough(all, "make uploads with more (fmp-edge compress --calibrate)"); !ok {
		return err
	}
	s.hold(all)
	return nil
}

// points returns the calibration points of uploads of class means, and both halves, of every second
// one of each client. Each is in the order of clients and their uploads. half has ceil(n/2) of a
// client's n, drawn from the seed and the client's name.
func (r *Round) points() (all, half, rest []calibrationPoint) {
	for m, u := range r.Uploads {
		if u.Calibration == nil || r.For != "" && r.For != u.Client {
			continue
		}
		for i, at := range rng.New(r.Seed, stream, "choice", u.Client).Perm(u.Calibration.N) {
			p := calibrationPoint{u.Calibration.Features(i), int(u.Calibration.Y[i]), m}
			if all = append(all, p); at%2 == 0 {
				half = append(half, p)
			} else {
				rest = append(rest, p)
			}
		}
	}
	return all, half, rest
}

// hold keeps points for sets, of maxScored at most those of some clients, and of a client as many
// as half of the clients have at least, so that no client has much influence on the sets. Of more,
// some are drawn. A client is drawn as a whole, with all of its points, so that points of one
// client stay together.
func (s *Sampling) hold(points []calibrationPoint) {
	if s.round.falseShare > 0 {
		points = s.round.even(points)
	}
	share := min(1, float64(maxScored)/float64(len(points)))
	held := map[int]bool{}
	for m, u := range s.round.Uploads {
		held[m] = rng.New(s.round.Seed, stream, "sets", u.Client).Float64() < share
	}
	for _, p := range points {
		if held[p.client] {
			s.held = append(s.held, p)
		}
	}
}

// even returns points, of each client no more than the lower median of the clients' numbers, and
// [minCapped] at least. A client with many points would else set the threshold for all. Of n_m
// points of client m there stay
//
//	min(n_m, max(median, minCapped))
//
// drawn from a stream of the seed and the client's name, so that another client moves none of them.
func (r *Round) even(points []calibrationPoint) []calibrationPoint {
	of := map[int]int{}
	for _, p := range points {
		of[p.client]++
	}
	if len(of) == 0 {
		return points
	}
	numbers := slices.Sorted(maps.Values(of))
	most := max(numbers[(len(numbers)-1)/2], minCapped)
	kept := map[int][]int{} // by client, which of its points in turn, in random order
	for m, n := range of {
		kept[m] = rng.New(r.Seed, stream, "even", r.Uploads[m].Client).Perm(n)
	}
	at := map[int]int{}
	return slices.DeleteFunc(slices.Clone(points), func(p calibrationPoint) bool {
		at[p.client]++
		return kept[p.client][at[p.client]-1] >= most
	})
}

// choose gives the posterior the points that choose temperature and penalty. Without points the
// posterior keeps its own choice. Rows become features first: posterior.Calibration takes those.
func (s *Sampling) choose(points []calibrationPoint) error {
	if len(points) == 0 {
		return nil
	}
	h, err := s.round.softened(points)
	if err != nil {
		return err
	}
	c := &posterior.Calibration{Features: h}
	for _, p := range points {
		c.Labels, c.Client = append(c.Labels, p.class), append(c.Client, p.client)
	}
	return s.means.Calibrate(c)
}

// softened returns the feature rows behind calibration points of softened features. The result is
// [n, dx] in row-major order, in the order of points.
func (r *Round) softened(points []calibrationPoint) ([]float32, error) {
	v, err := models.SofteningOf(r.Graph, r.Client.Dx, 0)
	if err != nil {
		return nil, fmt.Errorf("pool: calibration points: the client graph: %w: give the graph of "+
			"fmp fuse", err)
	}
	var h []float32
	for _, c := range points {
		h = append(h, features(c.row, v[models.ConjCentre].F32(),
			float64(v[models.ConjRadius].F32()[0]))...)
	}
	return h, nil
}

// features returns feature rows that have softened features z, of centre c and radius r: z = (h -
// c)/sqrt(1 + |h - c|²/r²) is solved for h. With |h - c| = d and |z| = s it holds that s =
// d/sqrt(1 + d²/r²), and so d = s/sqrt(1 - s²/r²). A row at the radius or beyond has no solution,
// and is scaled as one just within it.
func features(z, c []float32, r float64) []float32 {
	var square float64
	for _, v := range z {
		square += float64(v) * float64(v)
	}
	// |z| < r but for the rounding of an upload: at the bound d is 100 |z|.
	scale := 1 / math.Sqrt(max(1-square/(r*r), 1e-4))
	h := make([]float32, len(z))
	for j, v := range z {
		h[j] = float32(float64(c[j]) + scale*float64(v))
	}
	return h
}

// ontoHeads maps calibration points from the coordinates of class means to those of the heads, by
// the same graph that maps an image's features. Rows are [n, k] in one slice, which the points
// share. Of uploads of k coordinates nothing is to be done.
func (s *Sampling) ontoHeads(ctx context.Context, p *posterior.Result) error {
	r := s.round
	if len(s.held) == 0 || r.Client.K > 0 { // the heads' own coordinates
		return nil
	}
	h, err := r.softened(s.held)
	if err != nil {
		return err
	}
	rows, err := p.Rows(ctx, h)
	if err != nil {
		return fmt.Errorf("pool: calibration points: %w", err)
	}
	k := len(rows) / len(s.held)
	for i := range s.held {
		s.held[i].row = rows[i*k : (i+1)*k]
	}
	return nil
}

// holdBack returns a client's upload without some of its calibration points, which it keeps for
// sets. The upload itself stays as it is. Rows that are held share memory with the upload, and
// those that are kept are copied. It costs O(n k).
func (s *Sampling) holdBack(client int, out []int) *moments.Within {
	w := s.clients[client].Within
	kept := *w
	kept.Calibration, kept.Labels = nil, nil
	held := make([]bool, len(w.Labels))
	for _, i := range out {
		held[i] = true
	}
	for i, y := range w.Labels {
		row := w.Calibration[i*w.K : (i+1)*w.K]
		if held[i] {
			s.held = append(s.held, calibrationPoint{row, y, client})
			continue
		}
		kept.Calibration, kept.Labels = append(kept.Calibration, row...), append(kept.Labels, y)
	}
	return &kept
}

// calibrated returns the calibration of prediction sets by the points that were taken for them; nil
// where there were none or too few. Thresholds are of the classifier's own probabilities, so that
// it needs the heads. Lenient rounds, and those that did not ask for a level, have no sets in place
// of an error. Sets are those of split conformal prediction (Papadopoulos et al. 2002; Vovk,
// Gammerman and Shafer 2005).
func (s *Sampling) calibrated(p *posterior.Result) (*models.OriginSets, error) {
	if len(s.held) == 0 {
		p.NoSets = s.noSets
		return nil, nil
	}
	r := s.round
	var points conformal.Points
	var counting []calibrationPoint
	trusted := map[int]bool{}
	// Points count whose client is more likely honest than not. Those left must prove the level,
	// for each group.
	for _, c := range s.held {
		if j := p.Judgement; j == nil || r.For != "" || j.Honest[c.client] >= 0.5 {
			counting = append(counting, c)
		}
	}
	if ok, err := s.enough(counting,
		"points of clients that are likely not honest do not count: pool more uploads"); !ok {
		p.NoSets = s.noSets
		return nil, err
	}
	for _, c := range counting {
		if err := points.Add(probabilities(p.Ensembles[0], c.row), c.class); err != nil {
			return nil, fmt.Errorf("pool: %w", err)
		}
		trusted[c.client] = true
	}
	// Clients that contradict the others are left out, and count among those that may be false.
	level := cmp.Or(r.Level, Level)
	d, _ := r.designed(counting, s.held)
	kept, d, left := points.Without(d, level, r.Score)
	var names []string
	for _, m := range left {
		delete(trusted, m)
		names = append(names, r.Uploads[m].Client)
	}
	from := fmt.Sprintf("%d clients", len(trusted))
	if r.For != "" {
		from = fmt.Sprintf("client %q", r.For)
	}
	d.Clients = len(trusted) > 1
	sets, err := kept.Sets(d, level, r.Score, p.Ensembles[0][0].C)
	if err != nil && (r.Lenient || r.Level == 0) {
		p.NoSets = err.Error()
		return nil, nil
	} else if err != nil {
		return nil, fmt.Errorf("pool: %w", err)
	}
	sets.Clients, sets.From, sets.Groups, sets.LeftOut = len(trusted), from, r.groups, names
	return sets, nil
}

// probabilities returns those of a point's classes: the mean over heads, as the classifier computes
// it. With head h_s, [k+1, C], it is mean_s softmax([row, 1] h_s). It costs O(S k C). Sums are in
// float64, and exp is of logits less their log-sum-exp, which cannot overflow.
func probabilities(heads posterior.Ensemble, row []float32) []float32 {
	p, logit := make([]float64, heads[0].C), make([]float64, heads[0].C)
	for _, h := range heads {
		h.Logits(row, logit)
		sum := floats.LogSumExp(logit)
		for c, v := range logit {
			p[c] += math.Exp(v-sum) / float64(len(heads))
		}
	}
	return dense.As[float32](p)
}
