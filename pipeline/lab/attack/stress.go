package attack

import (
	"context"
	"fmt"

	"fmp/models/rng"
	"fmp/pipeline/federate"
	"fmp/pipeline/honesty"
	"fmp/pipeline/lab/experiment"
	"fmp/pipeline/lab/rival"
	"fmp/pipeline/metric"
	"fmp/pipeline/open"
	"fmp/pipeline/point"
	"fmp/pipeline/posterior"
)

// Options are the settings of a measurement. The embedded rounds give repeats, clients, points,
// alpha, samples, seed and threads.
type Options struct {
	experiment.Rounds
	// ClosedForm leaves the corpus's images out, which else are one more client's.
	ClosedForm bool
	// Bad is the number of attacking clients, and Test the maximum number of test images. Test of 0
	// or below leaves all of them. Files may hold images by class, and the first are taken: the
	// caller chooses a number that has every class.
	Bad, Test int
}

// bench is a prepared run with its test rows in the heads' coordinates. Nothing writes to it once
// it is made; labels are a slice of the prepared run's.
type bench struct {
	Options
	p      *experiment.Prepared
	k      experiment.ConjugateModel // nil in open scope
	white  *open.Whitening           // nil in closed scope
	rows   []float32                 // [test images, coordinates]
	labels []int
}

// begin returns a bench of the test images that the options leave, without their rows.
func begin(p *experiment.Prepared, o Options) bench {
	b := bench{Options: o, p: p, labels: p.Data.TestLabels}
	// The first test images are scored: features follow in the same order.
	if o.Test > 0 && o.Test < len(b.labels) {
		b.labels = b.labels[:o.Test]
	}
	return b
}

// test returns the features of the test images.
func (b *bench) test() []float32 { return b.p.Data.Test[:len(b.labels)*b.p.Data.Clients.Dx] }

// newBench returns a bench in the scope of the run. A run without that scope's predictor is an
// error. The test rows are mapped once, and serve every round of closed scope.
func newBench(ctx context.Context, p *experiment.Prepared, o Options) (*bench, error) {
	start := begin(p, o)
	b := &start
	var err error
	if p.Config.OpenScope() {
		if p.Tools.Open == nil {
			return nil, fmt.Errorf("no open predictor for this extractor; fmp train open " +
				"makes one, and open.model names it")
		}
		if b.white, err = p.Tools.Open.Whitening(); err != nil {
			return nil, err
		}
	} else if b.k = p.Tools.Conjugate; b.k == nil {
		return nil, fmt.Errorf("no conjugate predictor for this data set; fmp train " +
			"conjugate makes one")
	}
	b.rows, err = b.of(ctx, b.test())
	return b, err
}

// of maps feature rows to the coordinates of heads and uploads.
func (b *bench) of(ctx context.Context, features []float32) ([]float32, error) {
	if b.white != nil {
		return b.p.Tools.Open.Map(ctx, features)
	}
	return b.k.Map(ctx, features)
}

// partition returns the images that each client of a repeat holds. Its stream is named by alpha and
// repeat, so that all tables of a run draw the same clients.
func (b *bench) partition(repeat int) ([][]int, error) {
	return b.p.Data.Clients.Partition(rng.New(b.Seed, "clients",
		fmt.Sprintf("%v/%d", b.Alpha, repeat)), b.Clients, b.Points, b.Alpha)
}

// uploads returns the class means of a repeat's clients.
func (b *bench) uploads(ctx context.Context, repeat int) ([]*point.Set, error) {
	rows, err := b.partition(repeat)
	if err != nil {
		return nil, err
	}
	return b.compress(ctx, rows)
}

// compress returns the class means of clients that hold the given images. In open scope these are
// of features as the open predictor maps them, in its K coordinates.
func (b *bench) compress(ctx context.Context, rows [][]int) ([]*point.Set, error) {
	out := b.p.Data.Clients.Clients(rows)
	if b.white == nil {
		return b.k.Compress(ctx, out)
	}
	for i, own := range out {
		features, labels := own.Labelled()
		features, err := b.of(ctx, features)
		if err != nil {
			return nil, err
		}
		if own, err = point.FromLabelled(features, b.p.Tools.Open.K(), labels, own.C); err != nil {
			return nil, err
		}
		out[i] = open.Means(own).Set()
	}
	return out, nil
}

// claims returns uploads in coordinates in which a class has covariance I and class means have
// variances lambda, where attacks are made. The claims are dense, [clients, classes, k], since
// attacks index them by client and class.
func (b *bench) claims(uploads []*point.Set) (u honesty.Uploads, lambda []float64, err error) {
	if b.white == nil {
		u, lambda, err = b.k.Claims(uploads)
		return u.Dense(), lambda, err
	}
	u, err = b.white.Claims(len(uploads), open.Each(uploads), len(b.white.Lambda))
	return u.Dense(), b.white.Lambda, err
}

// sets returns claims as uploads. Classes of mass 0 have no point in a set.
func (b *bench) sets(u honesty.Uploads) ([]*point.Set, error) {
	if b.white != nil {
		return b.white.Sets(u)
	}
	out := make([]*point.Set, u.Clients)
	for m := range out {
		out[m] = u.Pool(func(client int) bool { return client == m })
	}
	return out, nil
}

// score returns the scores of the FMP posterior given uploads. The judgement is nil where clients
// are trusted.
func (b *bench) score(ctx context.Context, sets []*point.Set, repeat int,
	trust bool) (metric.Scores, *posterior.Judgement, error) {
	return b.anchored(ctx, sets, nil, false, repeat, trust)
}

// anchored is score for clients that are judged by known class means, which may yield. Where trust
// is set every image counts as claimed. The repeat names the stream of the heads, so that defences
// share it.
func (b *bench) anchored(ctx context.Context, sets []*point.Set, known *point.Set, yields bool,
	repeat int, trust bool) (metric.Scores, *posterior.Judgement, error) {
	in := posterior.Input{Known: known, Yields: yields, Samples: b.Samples,
		Honesty: !trust, Seed: b.Seed, Stream: fmt.Sprint("stress/", repeat), Threads: b.Threads}
	if b.white != nil {
		in.Open, in.Soft, in.Scope = b.p.Tools.Open, sets, posterior.ScopeOpen
	} else {
		in.Conjugate, in.ClassMeans, in.Named = b.k, sets, !b.ClosedForm
	}
	t, err := posterior.New(in)
	if err != nil {
		return metric.Scores{}, nil, err
	}
	r, err := t.Sample(ctx)
	if err != nil {
		return metric.Scores{}, nil, err
	}
	rows := b.rows
	if b.white != nil { // the open form's heads use coordinates of the round
		if rows, err = r.Rows(ctx, b.test()); err != nil {
			return metric.Scores{}, nil, err
		}
	}
	s, err := b.judge(ctx, r, rows)
	return s, r.Judgement, err
}

// judge scores a posterior's predictions on test rows.
func (b *bench) judge(ctx context.Context, r *posterior.Result,
	rows []float32) (metric.Scores, error) {
	p, err := metric.Predict(ctx, r.Ensembles[0], rows, b.Threads)
	if err != nil {
		return metric.Scores{}, err
	}
	return metric.Score(p, b.labels)
}

// addTrust adds the P(honest) of bad clients, which are the first, and of the others to their means
// over repeats. Both are means over clients and repeats: a client's P has the weight 1/(clients of
// its kind x Repeats).
func (o *Options) addTrust(found, kept *float64, honest []float64, bad int) {
	for m, p := range honest {
		if m < bad {
			*found += p / float64(bad*o.Repeats)
		} else {
			*kept += p / float64((o.Clients-bad)*o.Repeats)
		}
	}
}

// ScoreRow holds the scores of a round, mean over repeats.
type ScoreRow struct {
	Name  string  `json:"name"`
	Bytes float64 `json:"bytes,omitempty"` // mean size of one client's message
	ACC   float64 `json:"acc"`
	NLL   float64 `json:"nll"`
	ECE   float64 `json:"ece"`
}

// add adds the scores of one of n repeats to the means.
func (r *ScoreRow) add(s metric.Scores, n int) {
	r.ACC, r.NLL, r.ECE = r.ACC+s.ACC/float64(n), r.NLL+s.NLL/float64(n), r.ECE+s.ECE/float64(n)
}

// RunLost measures rounds in which a share of the clients, 0 to 50%, never reports. Clients are
// lost from the end of the list; one at least reports. A client's images are drawn alike, so that
// those at the end stand for any others. The number that reports is rounded down.
func RunLost(ctx context.Context, p *experiment.Prepared, o Options) ([]ScoreRow, error) {
	b, err := newBench(ctx, p, o)
	if err != nil {
		return nil, err
	}
	var out []ScoreRow
	for lost := 0; lost <= 50; lost += 10 {
		row := ScoreRow{Name: fmt.Sprintf("%d%% lost", lost)}
		for repeat := range o.Repeats {
			all, err := b.uploads(ctx, repeat)
			if err != nil {
				return nil, err
			}
			s, _, err := b.score(ctx, all[:max(1, len(all)*(100-lost)/100)], repeat, false)
			if err != nil {
				return nil, err
			}
			row.add(s, o.Repeats)
		}
		out = append(out, row)
	}
	return out, nil
}

// Rivals are the other methods in the table of uploads: they send posterior samples, moments of
// features or of classes, or feature rows. Their order is that of the rows.
var Rivals = []string{"CFMP", "FedCGS", "FedPFT", "ANN"}

// RunRivals measures the Rivals with the shared settings; Bytes counts their numbers as float32.
// Sizes are computed from the numbers that a method sends, without the overhead of a message.
func RunRivals(ctx context.Context, p *experiment.Prepared, o Options) ([]ScoreRow, error) {
	b, err := newBench(ctx, p, o)
	if err != nil {
		return nil, err
	}
	// The rivals' clients are those of the other tables: all draw from one stream.
	settings := rival.DefaultSettings()
	settings.L2 = p.Config.ERM.L2
	out := make([]ScoreRow, len(Rivals))
	for repeat := range o.Repeats {
		rows, err := b.partition(repeat)
		if err != nil {
			return nil, err
		}
		t, err := p.Task(ctx, rows, fmt.Sprint("stress/", repeat))
		if err != nil {
			return nil, err
		}
		for i, name := range Rivals {
			method, err := rival.Lookup(name)
			if err != nil {
				return nil, fmt.Errorf("%s: %w", name, err)
			}
			r, err := method.Run(ctx, t, settings)
			if err != nil {
				return nil, fmt.Errorf("%s: %w", name, err)
			}
			test, err := r.Rows(ctx, b.test())
			if err != nil {
				return nil, err
			}
			s, err := b.judge(ctx, r, test)
			if err != nil {
				return nil, err
			}
			out[i].Name, out[i].Bytes = name, out[i].Bytes+r.UploadBytes/float64(o.Repeats)
			out[i].add(s, o.Repeats)
		}
	}
	return out, nil
}

// RunPrecisions measures uploads of each element type; Bytes is the size of the whole message.
// Uploads are coded and read again as a server reads them, so that the rounding is in the scores.
// The same clients are sent in every type, as the partition's stream does not name it.
func RunPrecisions(ctx context.Context, p *experiment.Prepared, o Options) ([]ScoreRow, error) {
	b, err := newBench(ctx, p, o)
	if err != nil {
		return nil, err
	}
	// An upload names a client graph by its digest; here there is none to be checked against.
	digest := fmt.Sprintf("%064x", 0xff)
	var out []ScoreRow
	for _, precision := range []federate.Precision{federate.Single, federate.Half, federate.Int8} {
		row := ScoreRow{Name: string(precision)}
		for repeat := range o.Repeats {
			all, err := b.uploads(ctx, repeat)
			if err != nil {
				return nil, err
			}
			for m, set := range all {
				u := federate.Upload{Client: fmt.Sprintf("client-%03d", m), Model: digest,
					N: o.Points, Points: set, Precision: precision}
				data, err := u.Encode()
				if err != nil {
					return nil, err
				}
				row.Bytes += float64(len(data)) / float64(len(all)*o.Repeats)
				read, err := federate.Decode(data, federate.Expect{})
				if err != nil {
					return nil, err
				}
				all[m] = read.Points
			}
			s, _, err := b.score(ctx, all, repeat, false)
			if err != nil {
				return nil, err
			}
			row.add(s, o.Repeats)
		}
		out = append(out, row)
	}
	return out, nil
}
