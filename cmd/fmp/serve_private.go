package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"time"

	"fmp/pipeline/federate/round"
	"fmp/pipeline/federate/service"
	"fmp/pipeline/federate/wire"
	"fmp/pipeline/pool"
	"fmp/pipeline/privacy"
	"fmp/pipeline/privacy/prio"
)

// twoServers is the helper, where the round has two servers and this is the leader, and the secret
// that they have in common. b is the round's budget, nil in a round that is not private. The secret
// authenticates requests of the leader to the helper. Without a helper's address this server is the
// helper itself, or the only one.
func (o *serveFlags) twoServers(b *privacy.Budget) (*service.Helper, string, error) {
	two := b != nil && b.Noise == privacy.TwoServers
	if !two && (o.helper != "" || o.helperCA != "" || o.asHelper || o.secret != "") {
		return nil, "", errors.New("serve: --helper, --helper-ca, --as-helper and " +
			"--servers-secret-file are of rounds whose file says privacy: {noise: two-servers}")
	}
	if two && ((o.helper != "") == o.asHelper || o.secret == "" || o.asHelper && o.helperCA != "") {
		return nil, "", errors.New("serve: a round with noise: two-servers wants --helper URL at " +
			"the leader or --as-helper at the helper, and --servers-secret-file at both")
	}
	secret, err := readToken("servers-secret-file", o.secret)
	if err != nil || o.helper == "" {
		return nil, secret, err
	}
	h, err := service.NewHelper(o.helper, o.helperCA, secret)
	return h, secret, err
}

// meetHelper logs the range of a client's numbers in a round of two servers, and asks the helper,
// where there is one, for its round. as_images is that range in images, rounded up: the largest
// norm of numbers that pass the proof over that of one image. The latter is sqrt(Steps^2 +
// CountSteps^2). A helper that is away is no error, since either server may be started first.
func (s *server) meetHelper(ctx context.Context) error {
	if b := s.round.Privacy; b != nil && b.Noise == privacy.TwoServers {
		scheme, err := prio.New(*b, s.round.Client.C, s.round.Client.K, "")
		if err != nil {
			return err
		}
		s.log.Info("numbers of a client are proved to be in range; one that lies may choose "+
			"any there", "bits", scheme.Bits, "as_images", math.Ceil(scheme.WorstNorm()/math.Hypot(
			privacy.Steps, privacy.CountSteps)), "leader_share_bytes", scheme.LeaderBytes())
	}
	if s.helper == nil {
		return nil
	}
	ask := func(ctx context.Context) (away, err error) {
		return agree(ctx, s.helper, s.round, s.log)
	}
	away, err := ask(ctx)
	if away != nil {
		s.log.Warn("the helper does not answer yet", "error", away)
		go awaitHelper(ctx, helperAgain, ask, s.log)
	}
	return err
}

// helperAgain is how long a leader waits before it asks a helper again that was away at its start.
const helperAgain = 15 * time.Second

// awaitHelper asks a helper that was away until it answers, and logs where it differs. A round may
// be open before its helper is. A disagreement ends the asking, as another answer is not to be
// expected.
func awaitHelper(ctx context.Context, every time.Duration,
	ask func(context.Context) (away, err error), log *slog.Logger) {
	again := time.NewTicker(every)
	defer again.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-again.C:
		}
		away, err := ask(ctx)
		if err != nil {
			log.Error("leader and helper do not agree", "error", err)
		}
		if away == nil {
			return
		}
	}
}

// agree asks the helper for its round, and returns where it differs, or has another secret. away
// says why one does not answer. One of an earlier release cannot tell its secret, which is logged.
// An error that the helper gives ([wire.Problem]) is no absence, and neither is another round. It
// takes five seconds at most for both questions. away and err are never both set.
func agree(ctx context.Context, h *service.Helper, r *round.Round,
	log *slog.Logger) (away, err error) {
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	d, err := h.Describe(ctx, r.Round)
	switch {
	case errors.As(err, new(*wire.Problem)):
		return nil, fmt.Errorf("serve: %w; leader and helper serve the same round file", err)
	case err != nil:
		return err, nil
	case d.Server != wire.Helper || d.Graph != r.Client.Digest || d.Privacy == nil ||
		*d.Privacy != *r.Privacy:
		return nil, fmt.Errorf("serve: --helper is %q of round %d with client graph %s and "+
			"privacy %v; here they are %s and %v: serve the same round file on both, and "+
			"--as-helper there", d.Server, d.Round, d.Graph, d.Privacy, r.Client.Digest, r.Privacy)
	}
	switch err = h.Knows(ctx, r.Round); {
	case errors.Is(err, service.ErrSecret):
		return nil, fmt.Errorf("serve: %w", err)
	case errors.Is(err, service.ErrUnasked):
		log.Warn("the helper cannot tell whether it has the same secret", "error", err)
		return nil, nil
	}
	return err, nil
}

// privateSummary is the account of a version of a private round. Honesty is not part of it, as sums
// show no single client.
type privateSummary struct {
	Samples int             `json:"samples"`
	Spent   privacy.Account `json:"spent"`
}

// private makes the classifier of a private round, as fmp pool does.
func (p *pooling) private(ctx context.Context, releases []pool.Release,
	open func() (*privacy.Release, error), keeper pool.Keeper) (*service.Pooled, error) {
	r, err := pool.NewPrivate(releases, p.graph, p.client, p.options)
	if err != nil {
		return nil, err
	}
	totals, err := r.Totals(keeper, open)
	if err != nil {
		return nil, err
	}
	post, err := r.Posterior(ctx, p.eng, totals)
	if err != nil {
		return nil, err
	}
	made, err := bothForms(ctx, r, post)
	if err != nil {
		return nil, err
	}
	made.Summary = privateSummary{Samples: len(post.Ensembles[0]), Spent: r.Account}
	return made, nil
}
