// Package domains measures clients that differ: each client's images come from a domain of its own, a kind and severity of corruption
// (package corrupt), and predictions are for images of a domain of the round, or of a kind that no client has.
//
// FMP is compared with methods that read every image's features or statistics of them, as they are and with each client's features less
// their mean, the simple cure; a test image is then less the mean of unlabelled images of its domain. Rivals have the setting and
// temperature that are best on the test images themselves.
package domains

import (
	"context"
	"fmt"
	"math"
	"slices"

	"fmp/models/rng"
	"fmp/pipeline/lab/experiment"
	"fmp/pipeline/lab/rival"
	"fmp/pipeline/lab/score"
	"fmp/pipeline/metric"
	"fmp/pipeline/point"
	"fmp/pipeline/posterior"
	"fmp/pipeline/task"
)

// Kinds and Severities are those of the domains: a client has one of each.
var (
	Kinds      = []string{"gaussian-noise", "gaussian-blur", "contrast", "brightness", "pixelate"}
	Severities = []int{2, 4}
)

// Rivals are the methods that FMP is compared with: all raw features, three federated ones, and each client alone.
var Rivals = []string{"ANN", "FedCGS", "Fed3R", "FedPFT", "LANN"}

// Images is the number of test images that are corrupted: half are the clients' to draw from, half are scored.
const Images = 1500

// Unlabelled is the number of images of a domain whose mean a rival's centring takes at a test, and to which FMP is adapted.
const Unlabelled = 50

// Options are the settings of a measurement.
type Options struct {
	Points, Repeats, Samples int
	Rivals                   []string
	Alpha                    float64 // of the Dirichlet partition, 0 for homogeneous clients
	Seed                     uint64
	Threads                  int
	Progress                 func(stage string, done, total int)
}

// Row holds the scores of a method, means over repeats, kinds and severities.
type Row struct {
	Name string `json:"name"`
	// Known are images of a domain of a client of the round, Unknown those of a kind that no client has; nil where a method is for clients
	// of the round alone.
	Known   Scores  `json:"known"`
	Unknown *Scores `json:"unknown,omitempty"`
}

// Scores are accuracy and NLL.
type Scores struct {
	ACC float64 `json:"acc"`
	NLL float64 `json:"nll"`
	n   int
}

func (s *Scores) add(acc, nll float64) {
	s.n++
	s.ACC += (acc - s.ACC) / float64(s.n)
	s.NLL += (nll - s.NLL) / float64(s.n)
}

// domain is the features of the images of one kind and severity.
type domain struct {
	kind   string
	shift  *score.Shift
	seen   []float32 // Unlabelled images of the part that is not scored
	centre []float32 // their mean
}

type bench struct {
	Options
	p       *experiment.Prepared
	dx      int
	domains []domain
	rows    map[string]*Row
	names   []string
}

// Run measures FMP and its rivals. The run must have been prepared with scores.corruptions of Images images.
func Run(ctx context.Context, p *experiment.Prepared, o Options) ([]Row, error) {
	b := &bench{Options: o, p: p, dx: p.Data.Clients.Dx, rows: map[string]*Row{}}
	if p.Tools.Conjugate == nil || p.Tools.Open == nil {
		return nil, fmt.Errorf("domains: no conjugate and open predictor for this data set; fmp train conjugate and fmp train open make them")
	}
	for i := range p.Data.Shifts {
		s := &p.Data.Shifts[i]
		if slices.Contains(Kinds, s.Name) && slices.Contains(Severities, s.Severity) {
			b.domains = append(b.domains, domain{s.Name, s, nil, nil})
		}
	}
	if len(b.domains) != len(Kinds)*len(Severities) {
		return nil, fmt.Errorf("domains: %d of %d domains are there; want scores.corruptions", len(b.domains), len(Kinds)*len(Severities))
	}
	total := o.Repeats * (1 + len(Kinds))
	for repeat := range o.Repeats {
		for fold := -1; fold < len(Kinds); fold++ {
			if err := b.fold(ctx, repeat, fold); err != nil {
				return nil, err
			}
			if o.Progress != nil {
				o.Progress("rounds", repeat*(1+len(Kinds))+fold+2, total)
			}
		}
	}
	var out []Row
	for _, n := range b.names {
		out = append(out, *b.rows[n])
	}
	return out, nil
}

// fold scores a round of a repeat, of clients of all domains, or of those of all kinds but one, which is scored.
func (b *bench) fold(ctx context.Context, repeat, without int) error {
	var of, tests []domain
	for _, d := range b.domains {
		if without >= 0 && d.kind == Kinds[without] {
			tests = append(tests, d)
		} else {
			of = append(of, d)
		}
	}
	if without < 0 {
		tests = of
	}
	r := rng.New(b.Seed, "domains", repeat)
	half := len(of[0].shift.Labels) / 2
	order := r.Perm(half)
	for i := range tests {
		tests[i].seen, tests[i].centre = nil, make([]float32, b.dx)
		for _, at := range order[:Unlabelled] {
			row := tests[i].shift.Features[at*b.dx:][:b.dx]
			tests[i].seen = append(tests[i].seen, row...)
			for j, v := range row {
				tests[i].centre[j] += v / Unlabelled
			}
		}
	}
	clients, err := b.clients(of, repeat)
	if err != nil {
		return err
	}
	if err := b.posterior(ctx, clients, tests, repeat, without < 0); err != nil {
		return err
	}
	for _, centred := range []bool{false, true} {
		sets, name := clients, "%s"
		if centred {
			name = "%s, each client centred"
			sets = nil
			for _, c := range clients {
				sets = append(sets, centredSet(c))
			}
		}
		for _, method := range b.Rivals {
			if err := b.rival(ctx, method, fmt.Sprintf(name, method), sets, tests, repeat, without < 0, centred); err != nil {
				return err
			}
		}
	}
	return nil
}

// clients draws the images of a client of each domain from the first half.
func (b *bench) clients(of []domain, repeat int) ([]*point.Set, error) {
	classes := b.p.Data.Clients.C
	names := make([]int, classes)
	for y := range names {
		names[y] = y
	}
	var out []*point.Set
	for _, d := range of {
		half := len(d.shift.Labels) / 2
		bank, err := task.NewBank(d.shift.Features[:half*b.dx], b.dx, d.shift.Labels[:half], classes)
		if err != nil {
			return nil, err
		}
		rows, err := bank.Partition(rng.New(b.Seed, "domains", "client", repeat, d.kind, d.shift.Severity), 1, b.Points, b.Alpha)
		if err != nil {
			return nil, err
		}
		out = append(out, bank.Points(rows[0], names))
	}
	return out, nil
}

// centredSet returns a client's points less their mean.
func centredSet(c *point.Set) *point.Set {
	out := *c
	out.Z = slices.Clone(c.Z)
	mean := make([]float32, c.Dx)
	for i := range c.N {
		for j, v := range c.Row(i)[:c.Dx] {
			mean[j] += v / float32(c.N)
		}
	}
	for i := range out.N {
		row := out.Row(i)
		for j, v := range mean {
			row[j] -= v
		}
	}
	return &out
}

// posterior scores FMP, in the scope that the uploads show and in closed scope: with all clients alike, for a client to come and, on known
// domains, for each client.
func (b *bench) posterior(ctx context.Context, clients []*point.Set, tests []domain, repeat int, known bool) error {
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
		in := posterior.Input{Conjugate: k, ClassMeans: means, Open: open, Soft: soft, Scope: scope, Samples: b.Samples, Honesty: true,
			Seed: b.Seed, Stream: stream, Threads: b.Threads}
		to := in
		to.Alike = true
		if err := b.sampled(ctx, name+", all clients alike", to, tests, known); err != nil {
			return err
		}
		if err := b.sampled(ctx, name+", a client to come", in, tests, known); err != nil {
			return err
		}
		if !known {
			continue
		}
		for m := range tests {
			in.For = m + 1
			if err := b.sampled(ctx, name+", for its client", in, tests[m:m+1], known); err != nil {
				return err
			}
		}
	}
	return nil
}

func (b *bench) sampled(ctx context.Context, name string, in posterior.Input, tests []domain, known bool) error {
	t, err := posterior.New(in)
	if err != nil {
		return err
	}
	r, err := t.Sample(ctx)
	if err != nil {
		return err
	}
	for _, d := range tests {
		acc, nll, err := b.score(ctx, r, d, false)
		if err != nil {
			return err
		}
		b.note(name, known, acc, nll)
		if in.For > 0 || in.Alike {
			continue
		}
		adapted := r
		if r.Shift != nil {
			if adapted, err = r.Adapt(d.seen); err != nil {
				return err
			}
		}
		if acc, nll, err = b.score(ctx, adapted, d, false); err != nil {
			return err
		}
		b.note(name+", adapted", known, acc, nll)
	}
	return nil
}

// rival scores a method at the setting and temperature that are best on the test images.
func (b *bench) rival(ctx context.Context, method, name string, clients []*point.Set, tests []domain, repeat int, known,
	centred bool) error {
	m, err := rival.Lookup(method)
	if err != nil {
		return err
	}
	t, err := rival.NewTask(rival.Input{Clients: clients, Seed: b.Seed, Stream: fmt.Sprint("domains/", name, repeat), Threads: b.Threads})
	if err != nil {
		return err
	}
	best, of := math.Inf(1), []float64(nil)
	for _, l2 := range []float64{0.3, 3, 30} {
		for _, shrinkage := range []float64{0.1, 0.5, 0.9} {
			if (method == "ANN" || method == "LANN" || method == "Fed3R") && shrinkage != 0.5 || method == "FedCGS" && l2 != 3 {
				continue
			}
			for _, temperature := range []float64{0.5, 1, 1.5, 2.5, 4, 7} {
				s := rival.DefaultSettings()
				s.L2, s.Shrinkage, s.Temperature = l2, shrinkage, temperature
				r, err := m.Run(ctx, t, s)
				if err != nil {
					return fmt.Errorf("%s: %w", name, err)
				}
				var got []float64
				var sum float64
				for _, d := range tests {
					acc, nll, err := b.score(ctx, r, d, centred)
					if err != nil {
						return err
					}
					got, sum = append(got, acc, nll), sum+nll
				}
				if sum < best {
					best, of = sum, got
				}
			}
		}
	}
	for i := 0; i < len(of); i += 2 {
		b.note(name, known, of[i], of[i+1])
	}
	return nil
}

// score returns accuracy and NLL on the second half of a domain's images, means over the result's ensembles.
func (b *bench) score(ctx context.Context, r *posterior.Result, d domain, centred bool) (acc, nll float64, err error) {
	half := len(d.shift.Labels) / 2
	features, labels := slices.Clone(d.shift.Features[half*b.dx:]), d.shift.Labels[half:]
	if centred {
		for i := range features {
			features[i] -= d.centre[i%b.dx]
		}
	}
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
