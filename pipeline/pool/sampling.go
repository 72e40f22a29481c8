package pool

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"runtime"

	"fmp/models"
	"fmp/onnx/engine"
	"fmp/pipeline/discriminant"
	"fmp/pipeline/erm"
	"fmp/pipeline/honesty"
	"fmp/pipeline/open"
	"fmp/pipeline/point"
	"fmp/pipeline/posterior"
	"fmp/pipeline/sample"
)

const (
	// block is the number of samples made together, here or by a worker: the fits of one block
	// start from each other.
	block = 10
	// chainParts is the number of parts into which the honesty chains are split for workers.
	chainParts = 4
)

// SampleRange is a piece of a round's sampling that one machine does on its own. A worker gets it
// over the wire, so that [Sampling.Do] checks every field.
// Samples and chains are counted from 0, and To is the first that is not in it.
type SampleRange struct {
	// Chains asks for the proposals of the honesty chains From to To-1; otherwise the part is
	// samples From to To-1.
	Chains   bool
	From, To int
	// States are the candidate sets of honest clients that samples draw from; nil if honesty is not
	// judged.
	States *honesty.States
}

// Piece is the result of a part: one of the two fields. It comes from a worker, and
// [Sampling.Posterior] checks its sizes.
// Proposed has honesty.Proposals states a chain, [clients] each. Heads has one head a sample.
type Piece struct {
	Proposed [][]bool
	Heads    posterior.Ensemble
}

// Sampling is a round that is ready to be sampled, as a whole or in parts. It holds the predictor's
// sessions until [Sampling.Close].
// Exactly one of means, points and clients is set. Parts may be done one after another.
type Sampling struct {
	round  *Round
	means  *posterior.FMP // of class means; nil for compressed points
	points *posterior.Martingale
	sets   []*point.Set // the compressed points
	judges bool         // who is honest is inferred
	close  func()       // returns the predictor's sessions

	clients []discriminant.Client // of moments
	held    []calibrationPoint    // of prediction sets
	noSets  string                // why there are none
}

// Sampling loads the predictor on an engine. Of many points those near each other are merged first,
// where neither honesty nor the open form reads single uploads. After an error nothing is open;
// else the caller closes the sampling.
// It loads the predictor once for all parts. The points of uploads are shared, and not changed.
func (r *Round) Sampling(eng engine.Engine) (*Sampling, error) {
	if r.Moments() {
		return r.openMoments()
	}
	var sets []*point.Set
	points := 0
	for _, u := range r.Uploads {
		sets = append(sets, u.Points)
		points += u.Points.N
	}
	// An embedding's points are no sums: merged class means cannot take their place.
	if !r.closedForm() && r.Rest != nil {
		return nil, errors.New("pool: the uploads were merged as class means, and the predictor " +
			"reads an embedding's points: give a conjugate predictor (fmp train conjugate)")
	}
	s := &Sampling{round: r, close: func() {}}
	s.judges = r.closedForm() && !r.Trust && len(sets) > 1
	// Honesty needs each client's upload, and the open form the scatter between clients.
	if points > MaxPoints && !s.judges && r.open == nil {
		all, err := point.Group(MaxPoints, sets...)
		if err != nil {
			return nil, err
		}
		sets = []*point.Set{all}
	}
	var err error
	if r.closedForm() {
		err = s.openMeans(eng, sets)
	} else {
		err = s.openPoints(eng, sets)
	}
	if err != nil {
		s.Close()
		return nil, err
	}
	return s, nil
}

// openMoments prepares the posterior of moments. It loads no predictor: moments need none. Points
// that are held back for sets leave the clients' moments here, before the posterior reads them.
// A name in For that no upload is from is found here, before any work.
func (r *Round) openMoments() (*Sampling, error) {
	s := &Sampling{round: r, close: func() {}}
	if _, err := r.client(); err != nil {
		return nil, err
	}
	for _, u := range r.Uploads {
		s.clients = append(s.clients, discriminant.Client{Means: u.Points, Within: u.Within,
			Curve: u.Curve})
	}
	return s, s.calibration()
}

// moments computes the posterior of a round of moments, in one piece. Kappa of the client
// graph, where it has one, is known.
// Options of the round are read, and the round stays as it is.
func (s *Sampling) moments(ctx context.Context) (*posterior.Result, error) {
	r := s.round
	basis, err := models.BasisOf(r.Graph, r.Client)
	if err != nil {
		return nil, fmt.Errorf("pool: %w", err)
	}
	o := posterior.MomentsOptions{Options: discriminant.Options{Samples: r.Samples,
		Seed: r.Seed, Stream: stream,
		Corpus: r.CorpusMoments}, Honesty: !r.Trust, Threads: r.Threads, Progress: r.Progress}
	if r.Rest != nil {
		o.Rest = &discriminant.Client{Means: r.Rest.Means, Within: r.Rest.Within}
	}
	if o.Known, err = r.knownMoments(); err != nil {
		return nil, err
	}
	if r.Client.Kappa > 0 {
		o.Kappa = discriminant.Kappa{Median: r.Client.Kappa, Deviation: r.Client.KappaDeviation}
	}
	if o.For, err = r.client(); err != nil {
		return nil, err
	}
	at, err := posterior.NewEmbedded(r.Client.Dx, basis, nil, nil)
	if err != nil {
		return nil, fmt.Errorf("pool: %w", err)
	}
	p, err := posterior.Moments(ctx, s.clients, at, o)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", r.Method(), err)
	}
	p.Sets, err = s.calibrated(p)
	return p, err
}

// stream names the random numbers of a round among those of its seed.
const stream = "pool"

// openMeans prepares the posterior of class means. Closed and open form may both be there: the
// posterior chooses between them by the scope.
// Yields tells that the anchor came with the program, and gives way where it contradicts too many
// clients.
func (s *Sampling) openMeans(eng engine.Engine, sets []*point.Set) (err error) {
	r := s.round
	in := posterior.Input{Scope: r.Scope, Samples: r.Samples, Honesty: s.judges, Alike: r.alike,
		Seed: r.Seed, Stream: stream, Threads: r.Threads}
	if in.For, err = r.client(); err != nil {
		return err
	}
	if r.Rest != nil {
		in.Rest = r.Rest.Means
	}
	if r.AnchorUpload != nil {
		in.Known, in.Yields = r.AnchorUpload.Points, r.anchored == anchoredShipped
	}
	if r.open != nil {
		if in.Open, err = open.FromModel(r.open); err != nil {
			return err
		}
		in.Soft = sets
	}
	if r.predictor != nil {
		k, err := sample.NewConjugate(eng, r.predictor)
		if err != nil {
			return err
		}
		s.close = func() { k.Close() }
		in.Conjugate, in.ClassMeans = k, sets
		in.Named = r.named
	}
	if s.means, err = posterior.New(in); err != nil {
		return err
	}
	return s.calibrate()
}

// openPoints prepares the posterior of compressed points. Each set is checked before the predictor
// runs, so that an error names its upload.
// Threads of 0 are all of this machine's processors.
func (s *Sampling) openPoints(eng engine.Engine, sets []*point.Set) error {
	r := s.round
	for m, set := range sets {
		if err := erm.CheckSet(set); err != nil {
			return fmt.Errorf("pool: upload %d: %w", m, err)
		}
	}
	drawer, err := sample.New(eng, r.predictor)
	if err != nil {
		return err
	}
	s.close, s.sets = func() { drawer.Close() }, sets
	s.points = &posterior.Martingale{Drawer: drawer, Samples: r.Samples, Fresh: r.Fresh,
		Seed: r.Seed, Stream: stream, Threads: cmp.Or(r.Threads, runtime.GOMAXPROCS(0))}
	return s.points.Check()
}

// sample computes a part of the posterior. Heads that were computed in parts are taken as they are,
// and the result is assembled around them. Parts share the memo of the whole: the
// claims, the form and its coordinates are found once.
// The range may name samples, states, or heads that are made already.
func (s *Sampling) sample(ctx context.Context, p posterior.SampleRange) (*posterior.Result, error) {
	var r *posterior.Result
	var err error
	if s.means != nil {
		r, err = s.means.Limit(p).Sample(ctx)
	} else {
		r, err = s.points.Uploads(ctx, s.sets,
			posterior.Fit{L2: s.round.L2, Tolerance: s.round.Tolerance}, p)
	}
	if err != nil {
		return nil, fmt.Errorf("%s: %w", s.round.Method(), err)
	}
	return r, nil
}

// Close returns the predictor to the engine.
// The sampling must not be used afterwards.
func (s *Sampling) Close() { s.close() }

// Do does one part. Its errors name ranges out of bounds, states that are none of the round's
// clients, and parts that the round does not have. All randomness comes from the round's seed and
// the numbers of chains and samples, so that any machine makes the same piece.
func (s *Sampling) Do(ctx context.Context, p SampleRange) (*Piece, error) {
	if p.Chains {
		if !s.judges {
			return nil, errors.New("pool: a part of the chains of who is honest; this round does " +
				"not judge its clients")
		}
		u, lambda, err := s.means.Claims()
		if err != nil {
			return nil, err
		}
		u.Progress = s.round.Progress
		proposed, err := u.Propose(ctx, lambda, s.round.Seed, p.From, p.To, s.round.Threads)
		return &Piece{Proposed: proposed}, err
	}
	if p.From < 0 || p.From >= p.To || p.To > s.round.Samples {
		return nil, fmt.Errorf("pool: samples %d to %d; there are %d", p.From, p.To,
			s.round.Samples)
	}
	if s.judges != (p.States != nil) {
		return nil, fmt.Errorf("pool: a part with states of who is honest: %v; in this round: %v",
			p.States != nil, s.judges)
	}
	if p.States != nil {
		if err := p.States.Check(len(s.round.Uploads)); err != nil {
			return nil, fmt.Errorf("pool: %w", err)
		}
	}
	r, err := s.sample(ctx, posterior.SampleRange{From: p.From, To: p.To, States: p.States})
	if err != nil {
		return nil, err
	}
	return &Piece{Heads: r.Ensembles[0]}, nil
}

// Posterior samples the posterior in parts, which do executes in any order and on any machine; if
// do is nil, they are executed here. The samples do not depend on who executes them. First come the
// proposals of who is honest, then their weights here, and then the samples given these.
// do must return one piece a part, in the order of the parts.
func (s *Sampling) Posterior(ctx context.Context,
	do func(ctx context.Context, parts []SampleRange) ([]*Piece,
		error)) (*posterior.Result, error) {
	if s.clients != nil {
		return s.moments(ctx)
	}
	pieces := chainParts
	if do == nil {
		pieces = 1 // chains run in parallel on this machine's processors
		do = func(ctx context.Context, parts []SampleRange) ([]*Piece, error) {
			out := make([]*Piece, len(parts))
			for i, p := range parts {
				var err error
				if out[i], err = s.Do(ctx, p); err != nil {
					return nil, err
				}
				if report := s.round.Progress; report != nil && !p.Chains {
					report("samples", p.To, s.round.Samples)
				}
			}
			return out, nil
		}
	}
	whole := posterior.SampleRange{Heads: posterior.Ensemble{}}
	if s.judges {
		u, lambda, err := s.means.Claims()
		if err != nil {
			return nil, err
		}
		// Of few clients all sets of honest ones are weighed, and n is 0. A chain of more proposes
		// honesty.Proposals sets.
		n := u.Chains()
		var proposed [][]bool
		if n > 0 {
			made, err := do(ctx, split(n, (n+pieces-1)/pieces, SampleRange{Chains: true}))
			if err != nil {
				return nil, err
			}
			for _, m := range made {
				proposed = append(proposed, m.Proposed...)
			}
			if len(proposed) != honesty.Proposals*n {
				return nil, fmt.Errorf("pool: the parts hold %d proposals of %d chains; "+
					"want %d a chain", len(proposed), n, honesty.Proposals)
			}
		}
		u.Progress = s.round.Progress
		whole.States, err = honesty.Weigh(ctx, u, lambda, proposed, s.round.Threads)
		if err != nil {
			return nil, err
		}
	}
	if err := s.samples(ctx, &whole, do); err != nil {
		return nil, err
	}
	p, err := s.sample(ctx, whole)
	if err != nil || s.means == nil {
		return p, err
	}
	if err := s.ontoHeads(ctx, p); err != nil {
		return nil, err
	}
	p.Sets, err = s.calibrated(p)
	return p, err
}

// samples computes the heads of a posterior in parts; none of a round of named classes, whose
// posterior is computed in one piece. Heads of all parts are put together in the order of the
// parts.
// whole.Heads has round.Samples heads then. Fewer or more are an error, as workers may err.
func (s *Sampling) samples(ctx context.Context, whole *posterior.SampleRange,
	do func(ctx context.Context, parts []SampleRange) ([]*Piece, error)) error {
	if s.means != nil {
		if named, err := s.means.Named(); named || err != nil {
			return err
		}
	}
	made, err := do(ctx, split(s.round.Samples, block, SampleRange{States: whole.States}))
	if err != nil {
		return err
	}
	for _, m := range made {
		whole.Heads = append(whole.Heads, m.Heads...)
	}
	if len(whole.Heads) != s.round.Samples {
		return fmt.Errorf("pool: the parts hold %d samples of %d", len(whole.Heads),
			s.round.Samples)
	}
	return nil
}

// split returns copies of like that cover 0 to n-1, of at most each items:
// ceil(n/each) of them. Parts are the same for any number of workers, since fits of a part start
// from each other.
// each must be above 0. The last part may be shorter.
func split(n, each int, like SampleRange) []SampleRange {
	var out []SampleRange
	for from := 0; from < n; from += each {
		p := like
		p.From, p.To = from, min(from+each, n)
		out = append(out, p)
	}
	return out
}
