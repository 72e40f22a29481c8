// Package domains measures clients that differ: a client's images come from one domain of a family
// (corruptions, rotations or sources of digits), and predictions are for images of a domain of the
// round, or of a kind that no client has.
//
// FMP is compared with methods that read every image's features or statistics of them: as they are,
// with each client's features less their mean, the simple cure, and aligned to the clients'
// barycenter (SLOT-Align). A test image is then less the mean of unlabelled images of its domain,
// or moved as these are. Rivals have the setting, strength and temperature that are best on the
// test images themselves. Without a predictor FMP reads moments, and rivals have the same embedded
// features.
package domains

import (
	"context"
	"fmt"
	"math"
	"slices"

	"fmp/models/rng"
	"fmp/pipeline/discriminant"
	"fmp/pipeline/internal/moment"
	"fmp/pipeline/lab/experiment"
	"fmp/pipeline/lab/rival"
	"fmp/pipeline/lab/score"
	"fmp/pipeline/metric"
	"fmp/pipeline/point"
	"fmp/pipeline/posterior"
	"fmp/pipeline/task"
)

// Family is a set of domains that clients come from. Its domains are the product of kinds and
// severities, kind by kind.
type Family struct {
	Name       string
	Kinds      []string // one is left out in turn
	Severities []int    // of every kind
	Clients    int      // of each domain
}

// Families are those that are measured: corruptions of two severities, turns by 0, 90, 180 and 270
// degrees, of which one is left out in turn, and sources of digits. Twice as many clients of a turn
// as of a corruption, and three of a source, give rounds of 8 to 10 clients.
var Families = []Family{
	{"corruptions", []string{"gaussian-noise", "gaussian-blur", "contrast", "brightness",
		"pixelate"}, []int{2, 4}, 1},
	{"rotation", []string{experiment.Rotation}, []int{0, 1, 2, 3}, 2},
	{"digits", []string{"mnist", "digits", "digits8x8"}, []int{0}, 3},
}

// Domains returns the family's domains.
func (f Family) Domains() []experiment.Domain {
	var out []experiment.Domain
	for _, k := range f.Kinds {
		for _, s := range f.Severities {
			out = append(out, experiment.Domain{Kind: k, Severity: s})
		}
	}
	return out
}

// Rivals are the methods that FMP is compared with: all raw features, three federated ones, and
// each client alone. None of them reads a corpus, so that all see the round alone.
var Rivals = []string{"ANN", "FedCGS", "Fed3R", "FedPFT", "LANN"}

// Aligned are the rivals that are also measured after alignment. A client's own fit knows no other
// client to align to.
var Aligned = []string{"ANN", "FedCGS", "Fed3R", "FedPFT"}

// Images is the number of test images that are corrupted: half are the clients' to draw from, half
// are scored. Fewer are an error only below twice [Unlabelled].
const Images = 1500

// Unlabelled is the number of images of a domain whose mean, and covariance, a rival's centring and
// alignment take at a test, and to which FMP is adapted. A camera's owner has so few at hand
// without labelling any. A covariance of them has rank 49, which is why it is shrunk.
const Unlabelled = 50

// Options are the settings of a measurement.
type Options struct {
	experiment.Rounds // Clients is not read: the family says how many there are of a domain
	Family            Family
	Rivals            []string
	Named             bool // the corpus's images are one more client's (posterior.Input)
}

// Row holds the scores of a method, means over repeats, kinds and severities. A mean over known
// domains and one over unknown ones are of different numbers of scores.
type Row struct {
	Name string `json:"name"`
	// Known are images of a domain of a client of the round, Unknown those of a kind that no client
	// has; nil where a method is for clients of the round alone.
	Known   Scores  `json:"known"`
	Unknown *Scores `json:"unknown,omitempty"`
	// Strength is the mean strength of alignment that was best, where a rival is aligned.
	Strength float64 `json:"strength,omitempty"`
	chosen   int
}

// Scores are accuracy and NLL. The mean is updated in place: m + (x - m)/n after n scores.
type Scores struct {
	ACC float64 `json:"acc"`
	NLL float64 `json:"nll"`
	n   int
}

// add counts one more score into the means.
func (s *Scores) add(acc, nll float64) {
	s.n++
	s.ACC += (acc - s.ACC) / float64(s.n)
	s.NLL += (nll - s.NLL) / float64(s.n)
}

// domain is the features of the images of one kind and severity. Rows and features are of all
// images, of which the first half is the clients'.
type domain struct {
	shift      *score.Shift
	rows       []float32 // of all images, as rivals have them
	seen       []float32 // Unlabelled images of the part that is not scored, as FMP has them
	unlabelled []float32 // the same, as rivals have them
}

// view is a round as a rival has it: clients' points, and the features of the images of each domain
// that are scored. scored has one slice for each domain that is tested, in their order, [images, d]
// row-major. Alignment may change d, for clients and scored images alike.
type view struct {
	clients  []*point.Set
	scored   [][]float32
	strength float64 // of alignment
}

// bench is a measurement at work. Of each domain's images, the first half are the clients' and the
// unlabelled ones, the second half are scored. It is for one measurement, and for one goroutine.
type bench struct {
	Options
	p       *experiment.Prepared
	dx      int      // features of an image
	domains []domain // kind by kind, severities within
	rows    map[string]*Row
	names   []string // of rows, in the order of their first score
}

// Run measures FMP and its rivals. The run must have been prepared with the family's domains, of
// Images images. Fold -1 has clients of every domain and tests all of them. Each further fold
// leaves a kind out and tests that alone. Predictors and numbers of images are checked before the
// first round; an error later returns no rows.
func Run(ctx context.Context, p *experiment.Prepared, o Options) ([]Row, error) {
	b := &bench{Options: o, p: p, dx: p.Data.Clients.Dx, rows: map[string]*Row{}}
	if p.Tools.Embedded == nil && (p.Tools.Conjugate == nil || p.Tools.Open == nil) {
		return nil, fmt.Errorf("domains: one of the conjugate and the open predictor is " +
			"missing for this data set; fmp train conjugate and fmp train open make them, and " +
			"without both FMP reads moments")
	}
	for i := range p.Data.Shifts {
		s := &p.Data.Shifts[i]
		// The clients' half must hold the unlabelled images.
		if n := len(s.Labels); n < 2*Unlabelled {
			return nil, fmt.Errorf("domains: %s: test images: %d; want %d or more: take more of "+
				"them (dataset.test), or a data set that has them", s.Name, n, 2*Unlabelled)
		}
		rows, err := b.embedded(ctx, s.Features)
		if err != nil {
			return nil, err
		}
		b.domains = append(b.domains, domain{s, rows, nil, nil})
	}
	if want := len(o.Family.Domains()); len(b.domains) != want {
		return nil, fmt.Errorf("domains: %d of %d domains of %s are there", len(b.domains),
			want, o.Family.Name)
	}
	// All severities of a kind are left out in turn, or each domain where there is one kind.
	each := len(o.Family.Severities)
	if len(o.Family.Kinds) == 1 {
		each = 1
	}
	folds := len(b.domains) / each
	for repeat := range o.Repeats {
		for fold := -1; fold < folds; fold++ {
			of, tests := b.domains, b.domains
			if fold >= 0 {
				tests = b.domains[fold*each:][:each]
				of = slices.Concat(b.domains[:fold*each], b.domains[(fold+1)*each:])
			}
			if err := b.fold(ctx, repeat, of, slices.Clone(tests), fold < 0); err != nil {
				return nil, err
			}
			o.Report("rounds", repeat*(1+folds)+fold+2, o.Repeats*(1+folds))
		}
	}
	var out []Row
	for _, n := range b.names {
		out = append(out, *b.rows[n])
	}
	return out, nil
}

// embedded returns features as rivals have them: embedded where FMP reads moments, of variance
// about 1. Embedded rows have length 1, and so a mean square of 1/dx for each number. The factor
// sqrt(dx) gives rivals the scale for which their penalties are tried. The result is new memory
// there, and the argument itself elsewhere.
func (b *bench) embedded(ctx context.Context, features []float32) ([]float32, error) {
	e := b.p.Tools.Embedded
	if e == nil {
		return features, nil
	}
	rows, err := e.Map(ctx, features)
	for i := range rows {
		rows[i] *= float32(math.Sqrt(float64(b.dx)))
	}
	return rows, err
}

// fold scores a round of a repeat, of clients of some domains, on those or, not known, on others.
// The unlabelled images are drawn from the clients' half of the domain, which is not scored. Their
// stream does not name the fold or domain: a domain has the same unlabelled images each time. tests
// is the caller's copy, which it fills.
func (b *bench) fold(ctx context.Context, repeat int, of, tests []domain, known bool) error {
	for i := range tests {
		tests[i].seen, tests[i].unlabelled = nil, nil
		for _, at := range rng.New(b.Seed, "domains", repeat).Perm(len(tests[i].shift.Labels) /
			2)[:Unlabelled] {
			tests[i].seen = append(tests[i].seen, tests[i].shift.Features[at*b.dx:][:b.dx]...)
			tests[i].unlabelled = append(tests[i].unlabelled, tests[i].rows[at*b.dx:][:b.dx]...)
		}
	}
	clients, err := b.clients(of, repeat, func(d domain) []float32 { return d.shift.Features })
	if err != nil {
		return err
	}
	// FMP reads its own form of the features, and rivals read theirs: both hold the same images.
	fmp := b.posterior
	if b.p.Tools.Embedded != nil {
		fmp = b.moments
	}
	if err := fmp(ctx, clients, tests, repeat, known); err != nil {
		return err
	}
	if clients, err = b.clients(of, repeat,
		func(d domain) []float32 { return d.rows }); err != nil {
		return err
	}
	return b.rivals(ctx, clients, tests, repeat, known)
}

// rivals scores the methods that FMP is compared with, as they are, centred and aligned. A centred
// test image loses the mean of its domain's unlabelled images, as its own client would take it
// away. Labels of the unlabelled images are never read.
func (b *bench) rivals(ctx context.Context, clients []*point.Set, tests []domain, repeat int,
	known bool) error {
	if len(b.Rivals) == 0 {
		return nil
	}
	plain, centred := view{clients: clients}, view{}
	var unlabelled [][]float32
	for _, c := range clients {
		centred.clients = append(centred.clients, centredSet(c))
	}
	for _, d := range tests {
		rows := d.rows[len(d.shift.Labels)/2*b.dx:]
		plain.scored, unlabelled = append(plain.scored, rows), append(unlabelled, d.unlabelled)
		centred.scored = append(centred.scored,
			float32s(less(moment.Rows(rows, b.dx), meanOf(moment.Rows(d.unlabelled, b.dx)))))
	}
	moved, err := aligned(plain, unlabelled)
	if err != nil {
		return err
	}
	for _, k := range []struct {
		name   string
		views  []view
		rivals []string
	}{
		{"%s", []view{plain}, b.Rivals},
		{"%s, each client centred", []view{centred}, b.Rivals},
		{"%s, aligned by SLOT-Align", moved, b.Rivals},
	} {
		for _, method := range k.rivals {
			// Views that are not aligned have strength 0.
			if k.views[0].strength > 0 && !slices.Contains(Aligned, method) {
				continue
			}
			if err := b.rival(ctx, method, fmt.Sprintf(k.name, method), k.views, tests, repeat,
				known); err != nil {
				return err
			}
		}
	}
	return nil
}

// centredSet returns a client's points less their mean. With skewed clients the mean has the
// client's classes in it, which centring then takes away too.
func centredSet(c *point.Set) *point.Set {
	x := features(c)
	return withFeatures(c, less(x, meanOf(x)))
}

// clients draws the images of the clients of each domain from the first half. A domain's clients
// are named by repeat, kind and severity: they are the same in every fold.
func (b *bench) clients(of []domain, repeat int,
	rows func(domain) []float32) ([]*point.Set, error) {
	var out []*point.Set
	for _, d := range of {
		half := len(d.shift.Labels) / 2
		bank, err := task.NewBank(rows(d)[:half*b.dx], b.dx, d.shift.Labels[:half],
			b.p.Data.Clients.C)
		if err != nil {
			return nil, err
		}
		rows, err := bank.Partition(rng.New(b.Seed, "domains", "client", repeat, d.shift.Name,
			d.shift.Severity), b.Family.Clients, b.Points, b.Alpha)
		if err != nil {
			return nil, err
		}
		out = append(out, bank.Clients(rows)...)
	}
	return out, nil
}

// posterior scores FMP, in the scope that the uploads show and in closed scope: with all clients
// alike, for a client to come and, on known domains, for each client. The stream does not name the
// scope: both draw from the same numbers.
func (b *bench) posterior(ctx context.Context, clients []*point.Set, tests []domain, repeat int,
	known bool) error {
	k, open := b.p.Tools.Conjugate, b.p.Tools.Open
	means, err := k.Compress(ctx, clients)
	if err != nil {
		return err
	}
	var soft []*point.Set
	for _, c := range clients {
		s, err := open.Soften(c)
		if err != nil {
			return err
		}
		soft = append(soft, s)
	}
	stream := fmt.Sprint("domains/", repeat)
	for _, scope := range []string{posterior.ScopeAuto, posterior.ScopeClosed} {
		name := "FMP"
		if scope != posterior.ScopeAuto {
			name += ", " + scope + " scope"
		}
		in := posterior.Input{Conjugate: k, ClassMeans: means, Named: b.Named, Open: open,
			Soft: soft, Scope: scope, Samples: b.Samples, Honesty: true, Seed: b.Seed,
			Stream: stream, Threads: b.Threads}
		if err := b.views(ctx, name, func(client int, alike bool) (*posterior.Result, error) {
			// in is shared by the calls of one scope, which follow each other.
			in.For, in.Alike = client, alike
			t, err := posterior.New(in)
			if err != nil {
				return nil, err
			}
			return t.Sample(ctx)
		}, tests, known); err != nil {
			return err
		}
	}
	return nil
}

// moments scores FMP of uploads of moments. There is one scope alone: moments need no predictor
// that could be of other classes.
func (b *bench) moments(ctx context.Context, clients []*point.Set, tests []domain, repeat int,
	known bool) error {
	stream := fmt.Sprint("domains/", repeat)
	uploads, err := b.p.Tools.Moments(ctx, clients, stream)
	if err != nil {
		return err
	}
	o := posterior.MomentsOptions{Options: discriminant.Options{Kappa: b.p.Config.Kappa(),
		Samples: b.Samples, Seed: b.Seed, Stream: stream}, Honesty: true, Threads: b.Threads}
	return b.views(ctx, "FMP", func(client int, alike bool) (*posterior.Result, error) {
		o.For, o.Alike = client, alike
		return posterior.Moments(ctx, uploads, b.p.Tools.Embedded, o)
	}, tests, known)
}

// views scores FMP with all clients alike, for a client to come and, on known domains, for each
// client (its number, from 1). of samples the posterior for a client, 0 for one to come. Client m +
// 1 is of domain m / Clients, as [bench.clients] lays them out. A fold costs one posterior for all
// alike, one to come and, where known, one for each client.
func (b *bench) views(ctx context.Context, name string,
	of func(client int, alike bool) (*posterior.Result, error), tests []domain, known bool) error {
	alike, err := of(0, true)
	if err != nil {
		return err
	}
	if err := b.scored(ctx, name+", all clients alike", alike, tests, known, false); err != nil {
		return err
	}
	come, err := of(0, false)
	if err != nil {
		return err
	}
	if err := b.scored(ctx, name+", a client to come", come, tests, known, true); err != nil ||
		!known {
		return err
	}
	for m := range len(tests) * b.Family.Clients {
		own, err := of(m+1, false)
		if err != nil {
			return err
		}
		if err := b.scored(ctx, name+", for its client", own, tests[m/b.Family.Clients:][:1], known,
			true); err != nil {
			return err
		}
	}
	return nil
}

// scored notes the scores of a result, and of the result adapted to each domain's unlabelled
// images. With adapts each domain has two rows. A result in which no client has an effect is noted
// unchanged as adapted.
func (b *bench) scored(ctx context.Context, name string, r *posterior.Result, tests []domain, known,
	adapts bool) error {
	for _, d := range tests {
		features := d.shift.Features[len(d.shift.Labels)/2*b.dx:]
		acc, nll, err := b.score(ctx, r, features, d)
		if err != nil {
			return err
		}
		b.note(name, known, acc, nll)
		if !adapts {
			continue
		}
		adapted := r
		if r.Shift != nil {
			if adapted, err = r.Adapt(d.seen); err != nil {
				return err
			}
		}
		if acc, nll, err = b.score(ctx, adapted, features, d); err != nil {
			return err
		}
		b.note(name+", adapted", known, acc, nll)
	}
	return nil
}

// rival scores a method at the view, setting and temperature that are best on the test images: of
// least sum of the domains' NLL. FedCGS has a shrinkage in place of a penalty. That choice favours
// rivals. A view costs three fits of the method, each of which is scored at six temperatures. One
// choice serves all test domains of a fold. LANN on unknown domains is the mean over all clients'
// fits.
func (b *bench) rival(ctx context.Context, method, name string, views []view, tests []domain,
	repeat int, known bool) error {
	m, err := rival.Lookup(method)
	if err != nil {
		return err
	}
	// of holds accuracy and NLL of each test domain in turn, at the least sum of NLL so far.
	best, of, strength := math.Inf(1), []float64(nil), 0.0
	for _, v := range views {
		t, err := rival.NewTask(rival.Input{Clients: v.clients, Seed: b.Seed,
			Stream: fmt.Sprint("domains/", name, repeat), Threads: b.Threads})
		if err != nil {
			return err
		}
		for _, l2 := range []float64{0.3, 3, 30} {
			for _, shrinkage := range []float64{0.1, 0.5, 0.9} {
				if method == "FedCGS" && l2 != 3 || method != "FedCGS" && shrinkage != 0.5 {
					continue
				}
				s := rival.DefaultSettings()
				s.L2, s.Shrinkage = l2, shrinkage
				r, err := m.Run(ctx, t, s)
				if err != nil {
					return fmt.Errorf("%s: %w", name, err)
				}
				for _, temperature := range []float64{0.5, 1, 1.5, 2.5, 4, 7} {
					got, sum, err := b.cooled(ctx, rival.Cooled(r, temperature), v, tests,
						method == "LANN" && known)
					if err != nil {
						return err
					}
					if sum < best {
						best, of, strength = sum, got, v.strength
					}
				}
			}
		}
	}
	for i := 0; i < len(of); i += 2 {
		b.note(name, known, of[i], of[i+1])
	}
	if row := b.rows[name]; strength > 0 {
		row.chosen++
		row.Strength += (strength - row.Strength) / float64(row.chosen)
	}
	return nil
}

// cooled returns accuracy and NLL of each domain, and the sum of the NLLs. With own, a domain's
// images are for the fits of its clients. got holds pairs, accuracy and NLL, in the order of tests.
// With own, tests must be all domains of the round, in the order of its clients.
func (b *bench) cooled(ctx context.Context, r *posterior.Result, v view, tests []domain,
	own bool) (got []float64, sum float64, err error) {
	for i, d := range tests {
		of := *r
		if own {
			of.Ensembles = r.Ensembles[i*b.Family.Clients:][:b.Family.Clients]
		}
		acc, nll, err := b.score(ctx, &of, v.scored[i], d)
		if err != nil {
			return nil, 0, err
		}
		got, sum = append(got, acc, nll), sum+nll
	}
	return got, sum, nil
}

// score returns accuracy and NLL on the second half of a domain's images, given the features of
// these, means over the result's ensembles. NLL is in nats an image.
func (b *bench) score(ctx context.Context, r *posterior.Result, features []float32,
	d domain) (acc, nll float64, err error) {
	labels := d.shift.Labels[len(d.shift.Labels)/2:]
	rows, err := r.Rows(ctx, features)
	if err != nil {
		return 0, 0, err
	}
	for _, e := range r.Ensembles {
		p, err := metric.Predict(ctx, e, rows, b.Threads)
		if err != nil {
			return 0, 0, err
		}
		s, err := metric.Score(p, labels)
		if err != nil {
			return 0, 0, err
		}
		acc, nll = acc+s.ACC/float64(len(r.Ensembles)), nll+s.NLL/float64(len(r.Ensembles))
	}
	return acc, nll, nil
}

// note adds scores to the row of that name, which it makes where there is none. The order of first
// notes is that of the table.
func (b *bench) note(name string, known bool, acc, nll float64) {
	row := b.rows[name]
	if row == nil {
		row = &Row{Name: name}
		b.rows[name], b.names = row, append(b.names, name)
	}
	if known {
		row.Known.add(acc, nll)
		return
	}
	if row.Unknown == nil {
		row.Unknown = &Scores{}
	}
	row.Unknown.add(acc, nll)
}
