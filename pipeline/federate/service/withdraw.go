package service

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"time"

	"fmp/pipeline/federate/identity"
	"fmp/pipeline/federate/store"
	"fmp/pipeline/federate/wire"
)

// errWithdrawn means that an upload was withdrawn while it was pooled: the result holds it and is
// thrown away.
var errWithdrawn = errors.New("an upload was withdrawn meanwhile")

// maxNamed is the maximum number of clients that one line of the log names.
const maxNamed = 20

// stoppable returns a context that the withdrawal of an upload ends.
// One pooling runs at a time: stop is that of the last. The caller calls it in any case.
func (s *Server) stoppable(ctx context.Context) (context.Context, context.CancelCauseFunc) {
	ctx, stop := context.WithCancelCause(ctx)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.stop = stop
	return ctx, stop
}

// stale reports whether the last version holds an upload that was withdrawn. The caller holds mu.
func (s *Server) stale() bool {
	if len(s.versions) == 0 {
		return false
	}
	_, void := s.void[s.versions[len(s.versions)-1].Number]
	return void
}

// isVoid reports whether a version holds an upload that was withdrawn.
func (s *Server) isVoid(version int) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	_, void := s.void[version]
	return void
}

// enough reports whether as many uploads are in as a classifier takes.
// It and isVoid take mu themselves.
func (s *Server) enough() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.in) >= s.Round.MinUploads
}

// outside returns the clients whose uploads are in and that a roster lacks, sorted.
// It costs O(n log m) for n uploads and m names.
func (s *Server) outside(clients *identity.Roster) (out []string) {
	names := clients.Names()
	s.mu.Lock()
	defer s.mu.Unlock()
	for client := range s.in {
		if _, on := slices.BinarySearch(names, client); !on {
			out = append(out, client)
		}
	}
	slices.Sort(out)
	return out
}

// withdraw deletes a client's upload, or the refused one if none is in, for good: nothing of the
// client is taken in this round again, not even the same upload, which somebody else may have kept.
// The request is signed by the client or by the server's operator, for the upload's digest
// (If-Match) or for any.
// The note is written before anything is deleted: after it the upload is in no new version, whether
// the rest succeeds or not. The receipt is given once all of it is erased. Asked again, it does the
// rest and gives the receipt as things stand.
// publishing keeps a version from being stored between the look at members and the note.
func (s *Server) withdraw(w http.ResponseWriter, r *http.Request) error {
	client, by, signature, err := s.withdrawer(r)
	if err != nil {
		return err
	}
	if s.once() {
		return refusef(wire.NoWithdrawal, "round %d hides single uploads in one noisy "+
			"sum: another sum without one of them would reveal it, and spend the budget again; "+
			"its description said so before anybody joined", s.Round.Round)
	}
	if !s.take(client) {
		return refusef(wire.TooMany, "an upload of %q is being taken", client)
	}
	defer s.release(client)
	r = carried(r)
	s.publishing.Lock()
	defer s.publishing.Unlock()
	if err := s.adopt(r.Context()); err != nil { // a version that holds the upload is told of
		return err
	}
	stored, err := s.Store.Get(r.Context(), client)
	if errors.Is(err, store.ErrNone) {
		if refused := s.quarantined(client); refused != nil {
			stored, err = refused, nil
		}
	}
	digest := strings.Trim(r.Header.Get("If-Match"), `"`)
	switch again := errors.Is(err, store.ErrWithdrawn); {
	case errors.Is(err, store.ErrNone):
		return refusef(wire.NoReceipt, "nothing of %q is in round %d", client, s.Round.Round)
	case err != nil && !again:
		return err
	case digest != wire.Any && digest != stored.Receipt.Upload:
		return refusef(wire.OtherUpload, "the upload of %q has sha256 %s; If-Match says %.80q",
			client, stored.Receipt.Upload, digest)
	case !again:
		err = s.note(r.Context(), stored, by, signature)
	default:
		err = nil
	}
	if err != nil {
		return err
	}
	err = s.takeOut(r.Context(), stored)
	if errors.Is(err, store.ErrFull) {
		return refusef(wire.NoSpace, "the withdrawal of %q is noted and in force; the disk of the "+
			"server's state is full, and what is deleted is erased once there is space: send "+
			"again for the receipt", client)
	}
	if errors.Is(err, errRecord) {
		return refusef(wire.Unavailable, "the withdrawal of %q is noted and in force; the server "+
			"could not write its record of withdrawals: send again for the receipt", client)
	}
	if err != nil {
		return err
	}
	reply(w, http.StatusOK, s.withdrawal(stored))
	return nil
}

// withdrawer returns the client in a request's path and who asks for the withdrawal of its upload,
// or the refusal of a request that neither the client nor the operator signed; names on the roster
// and others take the same time.
// The statement has If-Match as its content, so that a signature for one upload withdraws no other.
// Both signatures are verified in any case, which takes the same time for either.
// An operator's statement has a purpose of its own, so that neither signature passes for the
// other.
func (s *Server) withdrawer(r *http.Request) (client, by string, signature []byte, err error) {
	if signature = wire.Signature(r.Header.Get("Authorization")); signature == nil {
		return client, by, nil, refusef(wire.NoKey,
			"give the header Authorization: %s SIGNATURE, as fmp-edge withdraw does with --key",
			wire.Scheme)
	}
	match := r.Header.Get("If-Match")
	digest := strings.Trim(match, `"`)
	if digest == "" {
		return client, by, nil, refusef(wire.BadRequest,
			"give the header If-Match: %q, the sha256 of the upload that is withdrawn", "SHA256")
	}
	client = r.PathValue("client")
	statement := identity.Statement{Purpose: identity.Withdraw, Server: s.Key.PublicText(),
		Round: s.Round.Round, Client: client, Graph: s.Round.Client.Digest, Content: digest}
	own := s.clients.Load().Verify(statement, signature)
	statement.Purpose = identity.WithdrawFor
	operator := identity.Verify(s.Key.Public(), statement, signature)
	switch {
	case operator:
		return client, wire.ByOperator, signature, nil
	case own:
		return client, wire.ByClient, signature, nil
	}
	return client, by, nil, refusef(wire.WrongKey, "neither client %.128q of the roster of round "+
		"%d nor the server's operator made this signature for this server, the round's graph and "+
		"the upload %.80q", client, s.Round.Round, digest)
}

// quarantined returns the record by which a client's refused upload is withdrawn; nil if none was
// refused. Without a note of the withdrawal in its place, a copy that somebody else has could be
// sent again, and be kept again.
// Its Time is that of the refusal, since nothing was taken.
func (s *Server) quarantined(client string) *store.Record {
	s.mu.Lock()
	defer s.mu.Unlock()
	refused, ok := s.refused[client]
	if !ok {
		return nil
	}
	return &store.Record{Receipt: wire.Receipt{Server: s.Key.PublicText(), Round: s.Round.Round,
		Client: client, Graph: s.Round.Client.Digest, Upload: refused.Upload,
		Time: refused.Time.UTC()}}
}

// note puts the note of a withdrawal in place of an upload. The caller holds publishing.
// nil means that the note is stored, and the withdrawal in force.
func (s *Server) note(ctx context.Context, stored *store.Record, by string,
	signature []byte) error {
	held, err := s.holding(ctx, stored.Receipt.Client)
	if err != nil {
		return err
	}
	err = s.Store.Withdraw(ctx, stored, store.Gone{Time: s.Now().UTC(), By: by, Held: held},
		signature)
	if err == nil {
		return nil
	}
	// whether it was stored is unknown
	_, is := s.Store.Get(ctx, stored.Receipt.Client)
	if errors.Is(is, store.ErrWithdrawn) {
		return nil
	}
	says := "is not noted"
	if is != nil && !errors.Is(is, store.ErrNone) { // eraseRest reads the state
		says = "may be noted or not"
		s.mu.Lock()
		s.unerased = true
		s.halt()
		s.mu.Unlock()
		s.rouse()
	}
	if errors.Is(err, store.ErrFull) {
		return refusef(wire.NoSpace, "the withdrawal of %q %s: the disk of the server's state is "+
			"full; send again", stored.Receipt.Client, says)
	}
	return err
}

// halt ends the pooling that is under way, which may hold an upload that is withdrawn. The caller
// holds mu.
// Ending a pooling that is over changes nothing.
func (s *Server) halt() {
	if s.stop != nil {
		s.stop(errWithdrawn)
	}
}

// takeOut stops the use of versions that hold an upload whose withdrawal is noted, and deletes all
// that the state holds of its client. A receipt is given only where that is done and recorded. It
// also ends a withdrawal that an earlier request left midway. Deletions that fail are left to
// eraseRest. The caller holds publishing.
func (s *Server) takeOut(ctx context.Context, noted *store.Record) error {
	s.exclude(noted)
	s.later(errors.Join(s.dropEvaluations(ctx), s.dropVoid(ctx))) // the withdrawal stands
	err := errors.Join(s.erase(ctx, noted.Receipt.Client), s.record(noted))
	s.later(err)
	s.rouse()
	return err
}

// exclude takes an upload whose withdrawal is noted out of the index, and ends the use of versions
// that hold it.
// It is safe to repeat: the log tells of a withdrawal once.
func (s *Server) exclude(noted *store.Record) {
	client := noted.Receipt.Client
	s.mu.Lock()
	known := s.gone[client] != nil
	s.forget(noted)
	if !known {
		s.swept = false
	}
	if !s.swept { // a sweep takes what a pooling has for workers
		s.halt()
	}
	left := len(s.in)
	short := s.stale() && left < s.Round.MinUploads
	s.mu.Unlock()
	if !known {
		s.Log.Info("upload withdrawn", "client", client, "upload", noted.Receipt.Upload, "by",
			noted.Gone.By, "versions", noted.Gone.Held, "in", left)
	}
	if short { // no version can take the place of the last
		s.predictions.replace(nil)
	}
}

// erase overwrites the uploads of clients that withdrew, and the copies that poolings left.
// All are tried, and the errors joined.
func (s *Server) erase(ctx context.Context, clients ...string) error {
	err := s.sweep(ctx)
	for _, client := range clients {
		err = errors.Join(err, s.Store.Erase(ctx, client), s.Store.DropRefusal(ctx, client))
	}
	return err
}

// later leaves a deletion or a record that failed to eraseRest: neither a full disk nor a
// store that does not answer keeps a server from starting, or undoes a version that is made.
func (s *Server) later(err error) {
	if err == nil {
		return
	}
	s.Log.Error("not all that was withdrawn is erased from the state and recorded yet", "error", err)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.unerased = true
}

// owes reports whether the state may hold bytes of something that was withdrawn or replaced. The
// caller holds mu.
func (s *Server) owes() bool { return s.unerased || s.Store.Left() }

// eraseDue calls eraseRest where something is left and it is time for another attempt. It returns
// the time until the next one. Run alone calls it.
// Times are of the machine's clock, and not of the server's, which tests set.
func (s *Server) eraseDue(ctx context.Context) time.Duration {
	s.mu.Lock()
	owes := s.owes()
	s.mu.Unlock()
	if !owes {
		return long
	}
	if wait := time.Until(s.eraseAt); wait > 0 {
		return wait
	}
	wait := retry
	switch err := s.eraseRest(ctx); {
	case err == nil:
		s.Log.Info("all that was withdrawn is erased from the state and recorded")
		return long
	case errors.Is(err, store.ErrFull): // which was said
		wait = retryFull
	case ctx.Err() == nil:
		s.Log.Error("erasing or recording failed", "error", err, "again_in", wait)
	}
	s.eraseAt = time.Now().Add(wait)
	return wait
}

// eraseRest brings all deletions to their end that failed or had no room, also those of withdrawals
// that the state has noted and the server does not know of. No pooling runs meanwhile, as Run does
// both.
// Each step is safe to repeat. It holds publishing throughout, so that no upload is withdrawn and
// no version stored meanwhile.
func (s *Server) eraseRest(ctx context.Context) error {
	s.publishing.Lock()
	defer s.publishing.Unlock()
	s.mu.Lock()
	s.unerased = true // until all of it is done: the store forgets its part before the rest
	s.mu.Unlock()
	if err := s.Store.EraseRest(ctx); err != nil { // first: it says whether there is room
		return err
	}
	if err := s.adopt(ctx); err != nil { // a version may hold one of the uploads
		return err
	}
	var clients []string
	var gone []*store.Record
	for r, err := range s.Store.All(ctx) {
		if err != nil {
			return err
		}
		if r.Gone != nil {
			s.exclude(r)
			clients, gone = append(clients, r.Receipt.Client), append(gone, r)
		}
	}
	err := errors.Join(s.dropEvaluations(ctx), s.dropUnlisted(ctx), s.dropVoid(ctx),
		s.erase(ctx, clients...), s.record(gone...))
	if err == nil {
		s.mu.Lock()
		s.unerased = false
		s.mu.Unlock()
	}
	return err
}

// sweep deletes the objects that poolings left for workers: they may hold an upload that is
// withdrawn since. No pooling runs meanwhile: takeOut ends it, and the next waits for publishing,
// which takeOut holds. Pool itself sweeps once its pooling has ended.
func (s *Server) sweep(ctx context.Context) error {
	s.mu.Lock()
	swept := s.swept
	s.swept = true
	s.mu.Unlock()
	if swept || s.Sweep == nil {
		return nil
	}
	err := s.Sweep(ctx)
	if err != nil {
		s.mu.Lock()
		s.swept = false
		s.mu.Unlock()
	}
	return err
}

// apart returns an error where an upload that was withdrawn is in a file that acts on the
// classifier.
func (s *Server) apart() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.Withdrawn == nil {
		return nil
	}
	for client, r := range s.gone {
		err := s.Withdrawn(client, r.Receipt.Upload, s.Round.Round, r.Receipt.Graph)
		if err != nil {
			return fmt.Errorf("%w: change the round file, and start the server again", err)
		}
	}
	return nil
}

// holding returns the numbers of the versions that hold an upload of a client.
// It reads the members of each version from the store, O(versions) objects.
// An older version may hold a client's upload that was replaced since, and counts too.
func (s *Server) holding(ctx context.Context, client string) (held []int, err error) {
	s.mu.Lock()
	versions := s.versions
	s.mu.Unlock()
	for _, v := range versions {
		members, err := s.Store.Members(ctx, v.Number)
		if err != nil {
			return nil, err
		}
		if slices.ContainsFunc(members, func(m store.Member) bool { return m.Client == client }) {
			held = append(held, v.Number)
		}
	}
	return held, nil
}

// dropVoid deletes the files of versions that hold a withdrawn upload, but of the last while the
// next is made.
// Records and members stay: they say which versions held the upload. It stops at the first error,
// and may be repeated.
func (s *Server) dropVoid(ctx context.Context) error {
	keep := 0
	s.mu.Lock()
	if s.stale() && len(s.in) >= s.Round.MinUploads {
		keep = s.versions[len(s.versions)-1].Number
	}
	var drop []int
	for v := range s.void {
		if v != keep && !s.dropped[v] {
			drop = append(drop, v)
		}
	}
	s.mu.Unlock()
	for _, v := range drop {
		if err := s.Store.DropClassifier(ctx, v); err != nil {
			return fmt.Errorf("version %d, which is superseded: %w", v, err)
		}
		s.mu.Lock()
		s.dropped[v] = true
		s.mu.Unlock()
	}
	return nil
}

// latest returns the last version if it holds no withdrawn upload; nil if there is none. The caller
// holds mu.
func (s *Server) latest() *wire.VersionRef {
	if len(s.versions) == 0 || s.stale() {
		return nil
	}
	v := s.versions[len(s.versions)-1]
	return &wire.VersionRef{Version: v.Number, SHA256: v.Digest}
}

// refs returns the versions of the given numbers.
// The caller holds mu. The list is in the order of the versions, and is never nil, so that JSON
// has [].
func (s *Server) refs(numbers []int) []wire.VersionRef {
	out := []wire.VersionRef{}
	for _, v := range s.versions {
		if slices.Contains(numbers, v.Number) {
			out = append(out, wire.VersionRef{Version: v.Number, SHA256: v.Digest})
		}
	}
	return out
}

// withdrawal returns the signed receipt of a withdrawal, as things stand now.
// It is signed anew each time, as Without is the version of the moment. Versions that the recorded
// receipt names stay in it: an older state lacks them. The caller holds publishing or has exclusive
// access.
// Held names the last wire.MaxHeld versions, and HeldVersions counts all.
func (s *Server) withdrawal(r *store.Record) *wire.Withdrawal {
	s.mu.Lock()
	defer s.mu.Unlock()
	held := r.Gone.Held
	out := &wire.Withdrawal{Round: s.Round.Round, Client: r.Receipt.Client, Graph: r.Receipt.Graph,
		Upload: r.Receipt.Upload, Time: r.Gone.Time, By: r.Gone.By, HeldVersions: len(held),
		Held:    s.refs(held[max(0, len(held)-wire.MaxHeld):]),
		Without: s.latest()}
	if was := s.recorded[r.Receipt.Client]; was != nil {
		for _, v := range was.Held {
			if !slices.Contains(out.Held, v) {
				out.Held = append(out.Held, v)
			}
		}
		slices.SortFunc(out.Held, func(a, b wire.VersionRef) int { return a.Version - b.Version })
		out.HeldVersions = max(out.HeldVersions, was.HeldVersions, len(out.Held))
		out.Held = out.Held[max(0, len(out.Held)-wire.MaxHeld):]
	}
	out.Remains = wire.Remains(out.HeldVersions)
	out.Sign(s.Key)
	return out
}

// refuseGone says that nothing more of a client is taken.
func (s *Server) refuseGone(r *store.Record) error {
	return refusef(wire.Withdrawn,
		"%q withdrew its upload at %s: nothing of it is taken in round %d again", r.Receipt.Client,
		r.Gone.Time.Format(time.RFC3339), s.Round.Round)
}

// notice serves the signed list of the versions that nobody should use any more.
func (s *Server) notice(w http.ResponseWriter, r *http.Request) {
	s.mu.Lock()
	n := &wire.Notice{Round: s.Round.Round, Graph: s.Round.Client.Digest, Time: s.Now().UTC(),
		Superseded: append([]wire.VersionRef{}, s.missing...), Latest: s.latest()}
	for _, v := range s.versions {
		if _, void := s.void[v.Number]; void {
			n.Superseded = append(n.Superseded, wire.VersionRef{Version: v.Number,
				SHA256: v.Digest})
		}
	}
	s.mu.Unlock()
	n.Sign(s.Key)
	reply(w, http.StatusOK, n)
}

// withdrawn is the reason of a version that holds an upload that was withdrawn.
const withdrawn = "withdrawal"

// Superseded says why a version is not the one to use, since when, and which one is; By is 0 while
// there is none.
type Superseded struct {
	// Reason is "withdrawal": it holds an upload that was withdrawn, and nobody should use it; or
	// "uploads": a later one holds more.
	Reason string    `json:"reason"`
	Time   time.Time `json:"time"`
	By     int       `json:"by"`
}

// VersionStatus is a version as it is listed.
type VersionStatus struct {
	store.Version
	Superseded *Superseded `json:"superseded,omitempty"`
}

// listed returns the versions as they are listed. The caller holds mu.
// By is the last version, or 0 while that holds a withdrawn upload, and the same for all.
func (s *Server) listed() []VersionStatus {
	out := make([]VersionStatus, len(s.versions))
	by := 0
	if v := s.latest(); v != nil {
		by = v.Version
	}
	for i, v := range s.versions {
		out[i].Version = v
		if since, void := s.void[v.Number]; void {
			out[i].Superseded = &Superseded{withdrawn, since, by}
		} else if i+1 < len(s.versions) {
			out[i].Superseded = &Superseded{"uploads", s.versions[i+1].Time, by}
		}
	}
	return out
}

// WithdrawnStatus is a client that withdrew.
type WithdrawnStatus struct {
	Client string    `json:"client"`
	Time   time.Time `json:"time"`
	By     string    `json:"by"`
}
