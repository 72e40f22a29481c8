package main

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"

	"fmp/featurize/imagefile"
	"fmp/models"
	"fmp/onnx"
	"fmp/onnx/engine"
	"fmp/onnx/serde"
	"fmp/onnx/sorting"
	"fmp/pipeline/classify"
	"fmp/pipeline/federate"
	"fmp/pipeline/federate/round"
	"fmp/pipeline/federate/service"
	"fmp/pipeline/federate/store"
	"fmp/pipeline/federate/work"
	"fmp/pipeline/metric"
	"fmp/pipeline/pool"
	"fmp/pipeline/posterior"
	"fmp/pipeline/privacy"
)

// pooling makes classifiers of a round's uploads, as fmp pool does. It is not changed once
// newPooling, openQueue and serveRound have filled it in.
type pooling struct {
	// graph and client are the round's client graph and its manifest.
	graph  *onnx.Model
	client models.Manifest
	// options are those of the round file with the flags over them, and the contents of files that
	// they name.
	options pool.Options
	digest  string // of the options
	eng     engine.Engine
	example *pool.Round // of one upload without points; nil in a private round
	queue   *work.Queue // to workers; nil: sampling is done here
	mergers *work.Queue // to workers that merge uploads; nil: none do
}

// newPooling reads the files of a round's options, and tries these on an example of no images. Its
// errors are of the round file: options that contradict each other or do not fit the client graph.
// The pooling is of no use beside an error.
func newPooling(r *round.Round, eng engine.Engine) (*pooling, error) {
	p := &pooling{eng: eng, client: r.Client, options: r.Options}
	var err error
	if p.graph, err = serde.Closed(r.GraphData); err != nil {
		return nil, err
	}
	if err := p.options.ReadFiles(); err != nil {
		return nil, err
	}
	if p.digest, err = p.options.Digest(); err != nil {
		return nil, err
	}
	p.options.Lenient = true // uploads may still come
	// Contradictory flags are reported before the first client comes.
	if b := r.Privacy; b != nil {
		example := &federate.Release{Round: r.Round, Model: r.Client.Digest, Budget: *b,
			Sums: &privacy.Release{Classes: r.Client.C, K: r.Client.K}}
		_, err := pool.NewPrivate([]pool.Release{{Release: example}}, p.graph, p.client, p.options)
		return p, err
	}
	p.example, err = pool.New(
		[]pool.Upload{{Upload: &federate.Upload{Round: r.Round, Model: r.Client.Digest}}}, p.graph,
		p.client, p.options)
	return p, err
}

// check refuses uploads that no images give. In a private round it accepts all, as messages of
// another kind come there. The service asks it of each upload that comes.
func (p *pooling) check(u *federate.Upload) error {
	if p.example == nil {
		return nil
	}
	if err := p.example.Check(u); err != nil {
		return fmt.Errorf("upload: %w", err)
	}
	return nil
}

// summary is the account of a version. Texts without a value are left out of the JSON.
type summary struct {
	Samples  int    `json:"samples"`
	Suspects int    `json:"suspects"` // clients that are honest with less than one half
	Disputed string `json:"disputed,omitempty"`
	// Scope says whether class means were read as of the corpus's classes (closed) or of new ones
	// (open), or moments were.
	Scope string `json:"scope,omitempty"`
	// Anchor names the images by which clients were judged besides each other.
	Anchor string `json:"anchor,omitempty"`
	// Unlike names the classes whose images of the corpus do not count.
	Unlike string `json:"unlike,omitempty"`
	// Unknown names classes of the round that the corpus lacks.
	Unknown string `json:"unknown,omitempty"`
	// Unmeasured says why nothing told the temperature of a round of moments, and Heavy which
	// feature drowns the others.
	Unmeasured string `json:"temperature_unmeasured,omitempty"`
	Heavy      string `json:"heavy_feature,omitempty"`
	// NoSets says why there are no prediction sets where uploads have calibration points for them.
	NoSets string `json:"sets_missing,omitempty"`
}

// warnings are those of a version. They go with the version that they are of.
func (s *summary) warnings() (out []string) {
	if s.Heavy != "" {
		out = append(out, s.Heavy)
	}
	if s.Unmeasured != "" {
		out = append(out, guessed(s.Unmeasured, "calibrate of the round file"))
	}
	if s.NoSets != "" {
		out = append(out, "the classifier has no prediction sets: "+s.NoSets)
	}
	return out
}

// sweep deletes the remainders of jobs of this round. It stops at the first error, and the next
// sweep goes on.
func (p *pooling) sweep(ctx context.Context) error {
	for _, q := range []*work.Queue{p.queue, p.mergers} {
		if q == nil {
			continue
		}
		if err := q.Sweep(ctx); err != nil {
			return err
		}
	}
	return nil
}

// merged pools uploads that workers merge. The members come back by ascending names, with the
// probability that each is honest and, of uploads that stayed whole, the images that count. left
// are those that a merger took for dishonest. members is changed: sorted and filled in.
func (p *pooling) merged(ctx context.Context, members []store.Member) (*service.Pooled, error) {
	part, left, err := p.mergers.Merge(ctx, members)
	if err != nil {
		return nil, err
	}
	uploads, rest, err := pool.Merged(part, p.options.Trust)
	if err != nil {
		return nil, err
	}
	made, err := p.pool(ctx, uploads, rest)
	if err != nil {
		return nil, err
	}
	sorting.By(members, func(a, b store.Member) int { return cmp.Compare(a.Client, b.Client) })
	at := make(map[string]*store.Member, len(members))
	for i := range members {
		// Those in the sums were judged when they were merged, and are taken for honest.
		members[i].Honest, at[members[i].Client] = 1, &members[i]
	}
	for _, client := range left {
		at[client].Honest = 0
	}
	for i, u := range uploads {
		if made.Honest != nil {
			at[u.Client].Honest, at[u.Client].Counted = made.Honest[i], &made.Counted[i]
		}
	}
	made.Members = members
	return made, nil
}

// pool pools uploads, and the sums of others where rest is not nil. With a queue workers draw the
// samples; they are those of this process, sample for sample, on the same release and engine.
// Uploads are in the order of their clients' names in r, whatever order they came in.
func (p *pooling) pool(ctx context.Context, uploads []pool.Upload,
	rest *pool.Rest) (*service.Pooled, error) {
	r, err := pool.New(uploads, p.graph, p.client, p.options)
	if err == nil {
		err = r.Join(rest)
	}
	if err != nil {
		return nil, err
	}
	sampling, err := r.Sampling(p.eng)
	if err != nil {
		return nil, err
	}
	defer sampling.Close()
	var do func(context.Context, []pool.SampleRange) ([]*pool.Piece, error)
	if p.queue != nil {
		do = func(ctx context.Context, parts []pool.SampleRange) ([]*pool.Piece, error) {
			return p.queue.Do(ctx, uploads, parts)
		}
	}
	post, err := sampling.Posterior(ctx, do)
	if err != nil {
		return nil, err
	}
	made, err := bothForms(ctx, r, post)
	if err != nil {
		return nil, err
	}
	var all pooled
	all.describe(r, post)
	s := summary{Samples: len(post.Ensembles[0]), Scope: all.Scope, Anchor: all.Anchor,
		Disputed: strings.Join(all.Disputed, ", "), Unlike: strings.Join(all.Unlike, ", "),
		Unknown:    strings.Join(all.Unknown, ", "),
		Unmeasured: all.Unmeasured, Heavy: r.Heavy(), NoSets: all.NoSets}
	made.Honest, made.Counted = all.Honest, all.Counted
	// One half is where a client is as likely honest as not.
	for _, p := range all.Honest {
		if p < 0.5 {
			s.Suspects++
		}
	}
	made.Summary, made.Warnings = s, s.warnings()
	return made, nil
}

// bothForms are the classifier of images and the one of feature rows. The first takes images of any
// size. Both are of one posterior, and hold the same heads.
func bothForms(ctx context.Context, r sampledRound,
	post *posterior.Result) (*service.Pooled, error) {
	made := &service.Pooled{}
	for _, form := range []struct {
		rows bool
		to   *[]byte
	}{{false, &made.Classifier}, {true, &made.Rows}} {
		m, err := r.Classifier(ctx, post, form.rows, false, "fmp serve")
		if err == nil && !form.rows {
			m, err = models.AnySize(m)
		}
		if err != nil {
			return nil, err
		}
		if *form.to, err = serde.Marshal(m); err != nil {
			return nil, err
		}
	}
	return made, nil
}

// checkLabelled returns a fault of the folder of the server's own images. A helper, whose round
// file is the leader's, scores no classifier and needs no such folder. Its images are read when a
// classifier is scored.
func (o *serveFlags) checkLabelled(r *round.Round) error {
	if r.Labelled == "" || o.asHelper {
		return nil
	}
	src, _, err := imagefile.Open(r.Labelled, scoredOn(r))
	if err != nil {
		return fmt.Errorf("serve: labelled: %w", err)
	}
	return src.Close()
}

// scoredOn are the options with which [measure] will open that folder. A folder that passes here
// could otherwise fail later.
func scoredOn(r *round.Round) imagefile.Options {
	return classify.Bounded(imagefile.Options{}, r.Client)
}

// measured adds the classifier's scores to the summary that a sampling returned, on a folder of the
// server's own images where the round has one. A classifier that cannot be scored is served
// without. The summary becomes a map, of its own fields and the three of the score. An interrupt
// ends it without a version.
func (s *server) measured(ctx context.Context, made *service.Pooled,
	err error) (*service.Pooled, error) {
	if err != nil || s.round.Labelled == "" {
		return made, err
	}
	score, err := measure(ctx, s.eng, made.Classifier, s.round.Labelled)
	if ctx.Err() != nil {
		return nil, context.Cause(ctx)
	}
	if err != nil {
		s.log.Error("the classifier is not scored on the server's own images", "labelled",
			s.round.Labelled, "error", err)
		return made, nil
	}
	all := map[string]any{"labelled": score.N, "accuracy": score.ACC, "nll": score.NLL}
	text, err := json.Marshal(made.Summary)
	if err == nil {
		err = json.Unmarshal(text, &all)
	}
	made.Summary = all
	return made, err
}

// onImages is how a classifier does.
type onImages struct {
	N int
	metric.Scores
}

// measure scores a classifier on a folder of images by class. An image that cannot be read is an
// error. N is the number of images. ACC is the share that is right, and NLL the mean negative
// log-likelihood in nats. Memory is N x C float64 for the probabilities of N images and C classes.
func measure(ctx context.Context, eng engine.Engine, classifier []byte,
	folder string) (s onImages, err error) {
	c, err := classify.Parse(eng, classifier)
	if err != nil {
		return s, err
	}
	defer c.Close()
	src, _, err := c.Source(folder, imagefile.Options{})
	if err != nil {
		return s, err
	}
	defer src.Close()
	p, labels := &metric.Probabilities{C: c.Manifest.C}, []int(nil)
	bad, err := c.Images(ctx, src, false, func(ps []classify.Prediction) error {
		for i := range ps {
			labels = append(labels, ps[i].Label)
			for _, v := range ps[i].Probabilities {
				p.P = append(p.P, float64(v))
			}
		}
		return nil
	})
	if err = errors.Join(append(bad, err)...); err != nil {
		return s, err
	}
	p.N = len(labels)
	s.N = p.N
	s.Scores, err = metric.Score(p, labels)
	return s, err
}
