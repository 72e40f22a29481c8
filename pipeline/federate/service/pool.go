package service

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"runtime/debug"
	"time"

	"go.opentelemetry.io/otel/attribute"

	"fmp/models"
	"fmp/onnx/sorting"
	"fmp/pipeline/federate"
	"fmp/pipeline/federate/store"
	"fmp/pipeline/federate/trace"
	"fmp/pipeline/federate/wire"
	"fmp/pipeline/pool"
	"fmp/pipeline/privacy"
)

// poolGC is the garbage collector's target (GOGC) while a round is pooled.
const poolGC = 25

// retry is the delay before another attempt after pooling failed, retryFull the delay if there was
// no room for its result.
const retry, retryFull = 30 * time.Second, 2 * time.Second

// Run pools the uploads at quorum, at the deadline, and again when more have arrived, until the
// context ends.
// It is one goroutine: poolings and deletions that are tried again never run at once. It looks at
// the clock every 15 seconds, and after a pooling that failed in 30, or in 2 where the disk was
// full.
func (s *Server) Run(ctx context.Context) error {
	said := false
	for {
		erase := s.eraseDue(ctx) // first, as it may find a withdrawal
		wait := min(erase, s.due(), look)
		s.mu.Lock()
		why := s.short()
		s.mu.Unlock()
		if why != "" && !said { // once, and not anew for each upload that comes in late
			s.Log.Error("no classifier is made", "why", why)
		}
		said = why != ""
		if wait <= 0 {
			err := s.Pool(ctx)
			if ctx.Err() != nil {
				return nil
			}
			if err == nil || errors.Is(err, errWithdrawn) {
				continue
			}
			s.mu.Lock()
			s.failure = err.Error()
			s.mu.Unlock()
			s.metrics.failed.Inc()
			wait = retry
			if errors.Is(err, store.ErrFull) {
				wait = retryFull
			}
			s.Log.Error("pooling failed", "error", err, "again_in", wait)
		}
		select {
		case <-ctx.Done():
			return nil
		case <-s.wake:
		case <-time.After(wait):
		}
	}
}

// long is how long Run waits if only an upload can make a difference. It looks at the clock before
// that: a timer stands still while the machine sleeps, and a clock that is put right moves the
// deadline.
const long = time.Hour

var look = 15 * time.Second

// due returns the time until the round is to be pooled; 0 or less means now.
// The first version is due at quorum, once all have answered, or at the deadline with min_uploads.
// A later one is due when uploads or options differ from those of the last, an interval after it.
// One that holds a withdrawn upload is replaced at once.
func (s *Server) due() time.Duration {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.role() == wire.Helper {
		return long // the helper acts on the leader's requests alone
	}
	now, n := s.Now(), len(s.in)
	toDeadline := s.Round.Deadline.Sub(now)
	if len(s.versions) == 0 {
		switch {
		case n >= s.quorum || s.settled || s.answered():
			return 0
		case toDeadline > 0:
			return toDeadline
		case n >= s.Round.MinUploads:
			return 0
		}
		return long
	}
	if s.once() {
		return long // the budget pays for one classifier only
	}
	if s.stale() { // a version that holds a withdrawn upload is not kept for an interval
		if n >= s.Round.MinUploads {
			return 0
		}
		return long
	}
	last := s.versions[len(s.versions)-1]
	changed := n != len(s.weighed) || s.otherOptions(last)
	for client, h := range s.in {
		changed = changed || s.weighed[client].Upload != h.upload
	}
	if !changed {
		return long
	}
	// A clock that was put back delays nothing: the interval is the longest wait.
	return time.Duration(s.Round.RebuildInterval) - max(time.Since(s.made), now.Sub(last.Time))
}

// short says that too few uploads for a classifier were in at the deadline; empty where it has not
// passed, or a classifier is made. The caller holds mu.
func (s *Server) short() string {
	n := len(s.in)
	if s.role() == wire.Helper || len(s.versions) > 0 || s.settled ||
		s.Now().Before(s.Round.Deadline.Time) ||
		n >= min(s.quorum, s.Round.MinUploads) {
		return ""
	}
	none := "none is made"
	if s.Round.AcceptLate {
		none = "it is made once as many are in"
	}
	return fmt.Sprintf("the deadline has passed with %d uploads, and min_uploads is %d: %s", n,
		s.Round.MinUploads, none)
}

// otherOptions reports whether a version was made with other options of pooling than the server
// has.
func (s *Server) otherOptions(v store.Version) bool {
	return s.Options != "" && v.Options != "" && v.Options != s.Options
}

// Pool makes the next version of the classifier from the uploads that are in.
// Steps are: space, a version that the state has already, inputs, the pooling itself, and
// publishing. No version is stored before the last. A withdrawal meanwhile ends it with
// errWithdrawn, and Run begins anew.
func (s *Server) Pool(ctx context.Context) (err error) {
	s.mu.Lock()
	ctx, span := s.Tracer.Start(trace.From(ctx, s.cause), "pool", trace.Internal,
		attribute.Int("fmp.uploads", len(s.in)))
	s.mu.Unlock()
	defer func() { trace.End(span, err != nil) }()
	if err := s.Store.Room(); err != nil { // before the work whose result could not be stored
		return fmt.Errorf("pooling: %w", err)
	}
	if found, err := s.found(ctx); found || err != nil {
		return err
	}
	start := time.Now()
	ctx, end := s.stoppable(ctx)
	defer end(nil)
	defer func() {
		if errors.Is(context.Cause(ctx), errWithdrawn) && err != nil {
			err = errWithdrawn
			s.mu.Lock()
			s.swept = false // it may have left something after the withdrawal looked
			s.mu.Unlock()
			s.later(s.sweep(context.WithoutCancel(ctx)))
		}
	}()
	// Pooling a round of many clients takes much more memory than the server does before and after:
	// collect it early, and return it to the system.
	defer debug.FreeOSMemory()
	defer debug.SetGCPercent(debug.SetGCPercent(poolGC))
	if s.once() && !s.twoServers() {
		s.close()
		defer s.reopen(context.WithoutCancel(ctx))
	}
	in, err := s.inputs(ctx)
	if err != nil {
		return fmt.Errorf("pooling: %w", err)
	}
	if in.clients() == 0 {
		return fmt.Errorf("pooling: no uploads are in")
	}
	if err := s.apart(); err != nil {
		return fmt.Errorf("pooling: %w", err)
	}
	var made *Pooled
	if in.merged != nil {
		made, err = s.merge(ctx, in.merged)
	} else if s.Round.Privacy != nil {
		made, err = s.Private(ctx, in.releases, in.open)
	} else {
		made, err = s.Config.Pool(ctx, in.uploads)
	}
	if err != nil {
		return fmt.Errorf("pooling %d uploads: %w", in.clients(), err)
	}
	v, err := s.publish(ctx, in, made)
	if err != nil {
		return fmt.Errorf("pooling: %w", err)
	}
	s.metrics.pooled.Observe(time.Since(start).Seconds())
	s.Log.Info("classifier made", "version", v.Number, "clients", v.Clients, "points", v.Points,
		"digest", v.Digest, "seconds", time.Since(start).Seconds())
	for _, text := range made.Warnings {
		s.Log.Warn(text, "version", v.Number)
	}
	return nil
}

// noPredictions is logged of a version that is made, and that the engine does not run.
const noPredictions = "no predictions are made by the new version"

// tell logs why the latest version makes no predictions, and keeps it for the status, until a
// version does, for which err is nil.
func (s *Server) tell(err error) {
	text := ""
	if err != nil {
		text = err.Error()
		s.Log.Error(noPredictions, "error", err)
	}
	s.mu.Lock()
	s.unserved = text
	s.mu.Unlock()
}

// found reports whether the state has a version of which the server did not know, which is now
// served.
func (s *Server) found(ctx context.Context) (bool, error) {
	s.publishing.Lock()
	defer s.publishing.Unlock()
	known := len(s.versions)
	err := s.adopt(ctx)
	if len(s.versions) > known {
		return true, nil
	}
	if err != nil {
		err = fmt.Errorf("pooling: %w", err)
	}
	return false, err
}

// reopen lets a private round of one server take uploads again whose classifier could not be made.
// It stays closed where its noisy sum is kept, or may be: with a further upload it would be
// another, which spends the budget again. It stays so where the state may have a classifier: a
// further upload would be in none.
func (s *Server) reopen(ctx context.Context) {
	summed, err := s.summed(ctx)
	s.publishing.Lock()
	defer s.publishing.Unlock()
	s.mu.Lock()
	defer s.mu.Unlock()
	s.settled = summed || err != nil || len(s.versions) > 0 || s.unsure
}

// merge merges uploads where they are stored. Where that fails, the index may have an upload that
// the state has no longer, or of which it has another: the next attempt would fail alike, so that
// the index is brought to the state. It is not read before each merge, as workers are there to
// spare the server the reading of all uploads.
// The error of the merging is returned even where the index was mended.
func (s *Server) merge(ctx context.Context, members []store.Member) (*Pooled, error) {
	made, err := s.Merge(ctx, members)
	if err == nil {
		return made, nil
	}
	for _, failed := range s.records(ctx) {
		if failed != nil {
			return nil, errors.Join(err, failed)
		}
	}
	return nil, err
}

// inputs are the uploads of a version, in the order of their clients' names.
type inputs struct {
	uploads  []pool.Upload
	releases []pool.Release                   // of a private round
	open     func() (*privacy.Release, error) // opens the sum of two servers; nil in other rounds
	// of a round whose uploads are merged where they are stored
	merged []store.Member
	points int64 // behind these
}

func (in *inputs) clients() int { return len(in.uploads) + len(in.releases) + len(in.merged) }

// inputs reads the uploads that are in.
// Uploads that are merged are listed by their digests alone, in any order: merging reads and sorts
// them.
func (s *Server) inputs(ctx context.Context) (in inputs, err error) {
	if s.twoServers() {
		in.releases, in.open, err = s.members(ctx)
	} else if s.Merge != nil {
		s.mu.Lock()
		for client, h := range s.in {
			in.merged = append(in.merged, store.Member{Client: client, Upload: h.upload})
			in.points += int64(h.n)
		}
		s.mu.Unlock()
	} else {
		err = s.stored(ctx, &in)
	}
	// The order of arrival makes no difference.
	sorting.By(in.uploads, func(a, b pool.Upload) int { return cmp.Compare(a.Client, b.Client) })
	sorting.By(in.releases, func(a, b pool.Release) int { return cmp.Compare(a.Client, b.Client) })
	return in, err
}

// stored reads the uploads of a round of one server.
// Memory is that of all decoded uploads at once. One that cannot be decoded any more is an error,
// and no reason to leave its client out.
func (s *Server) stored(ctx context.Context, in *inputs) error {
	for r, err := range s.records(ctx) {
		if err != nil {
			return err
		}
		if s.Round.Privacy != nil {
			u, err := s.believePrivate(r.Receipt.Client, r.Data, s.kept())
			if err != nil {
				return fmt.Errorf("the upload of %q as it is kept: %w", r.Receipt.Client, err)
			}
			in.releases = append(in.releases,
				pool.Release{Release: u, Path: r.Receipt.Client, Digest: r.Receipt.Upload})
			continue
		}
		u, err := federate.Decode(r.Data, s.expect())
		if err != nil {
			return fmt.Errorf("the upload of %q as it is kept: %w", r.Receipt.Client, err)
		}
		in.uploads = append(in.uploads, pool.Upload{Upload: u, Digest: r.Receipt.Upload})
	}
	return nil
}

// publish stores a version and serves it. Under publishing it looks once more whether the pooling
// was ended: a withdrawal that came before has ended it, and one that comes later finds the
// version. unsure is set while it is not known whether the record was stored.
// Numbers of versions begin at 1. Each is one more than the highest that the state or the record of
// withdrawals knows. A version whose file the engine cannot open is published all the same, and
// said to make no predictions.
func (s *Server) publish(ctx context.Context, in inputs,
	made *Pooled) (v store.Version, err error) {
	summary, err := json.Marshal(made.Summary)
	if err != nil {
		return v, err
	}
	s.mu.Lock()
	if n := len(s.versions); n > 0 {
		s.floor = max(s.floor, s.versions[n-1].Number)
	}
	v = store.Version{Number: s.floor + 1, Time: s.Now().UTC(),
		Digest: models.DigestBytes(made.Classifier),
		Bytes:  len(made.Classifier), Clients: in.clients(), Summary: summary, Options: s.Options}
	s.mu.Unlock()
	members := made.Members
	if in.merged == nil {
		members = make([]store.Member, len(in.uploads), in.clients())
	}
	v.Points = in.points
	for _, r := range in.releases {
		members = append(members, store.Member{Client: r.Client, Upload: r.Digest, Honest: 1})
	}
	for i, u := range in.uploads {
		v.Points += int64(u.Images())
		members[i] = store.Member{Client: u.Client, Upload: u.Digest, Honest: 1}
		if made.Honest != nil {
			members[i].Honest = made.Honest[i]
		}
		if made.Counted != nil {
			members[i].Counted = &made.Counted[i]
		}
	}
	s.publishing.Lock()
	defer s.publishing.Unlock()
	if err := context.Cause(ctx); err != nil {
		return v, err
	}
	s.unsure = true
	if err := s.Store.Publish(ctx, v, made.Classifier, made.Rows, members); err != nil {
		return v, err
	}
	s.unsure = false
	s.mu.Lock()
	s.versions, s.made = append(s.versions, v), time.Now()
	s.recall(members)
	s.failure = ""
	s.mu.Unlock()
	s.tell(s.predictions.serve(v, made.Classifier, made.Rows))
	s.later(s.dropVoid(ctx))
	return v, nil
}
