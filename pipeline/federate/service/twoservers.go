package service

import (
	"cmp"
	"context"
	"crypto/hkdf"
	"crypto/rand"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"time"

	"fmp/onnx/sorting"
	"fmp/pipeline/federate"
	"fmp/pipeline/federate/identity"
	"fmp/pipeline/federate/store"
	"fmp/pipeline/federate/wire"
	"fmp/pipeline/pool"
	"fmp/pipeline/privacy"
	"fmp/pipeline/privacy/prio"
)

// A private round with two servers. A client sends a share of its sums to the helper, then one to
// the leader. The leader accepts its share once the two servers have verified the range proof
// together: the leader posts its part of the proof to the helper's /uploads/{client}/proof, and
// each server stores the other's part. When the round is pooled, the leader fixes the set of
// clients in the sum for good, asks the helper for its share of their sum (/sum), to which the
// helper has added its noise and which it releases for one set of clients only, adds its own noise
// to its own share, and opens the sum of the two.
//
// The leader may lose the last seconds of its state. Before the helper gave a sum, an older copy of
// its state may be put back. Shares that one of them lacks come again from their clients, and their
// proofs are checked again. The helper's state waits for the disk, so that the sum that it gave is
// kept. One that it drew again would have other noise: a leader that knows both has spent the
// budget twice.

// peerToken derives the token by which the leader proves to the helper that it knows their secret.
// It is 32 bytes of HKDF-SHA256 (RFC 5869) in hexadecimal, without a salt. The secret itself is
// never sent.
// The text is HKDF's info, which keeps the token apart from other keys of the same secret.
func peerToken(secret string) string {
	b, err := hkdf.Key(sha256.New, []byte(secret), nil, "fmp leader's token", 32)
	if err != nil { // a length beyond HKDF's limit
		panic(err)
	}
	return hex.EncodeToString(b)
}

// twoServers reports whether the round has a leader and a helper.
func (s *Server) twoServers() bool {
	return s.Round.Privacy != nil && s.Round.Privacy.Noise == privacy.TwoServers
}

// role returns this server's role in a round with two servers; empty in others.
func (s *Server) role() string {
	switch {
	case !s.twoServers():
		return ""
	case s.Helper == nil:
		return wire.Helper
	}
	return wire.Leader
}

// serverOf returns the server that a share must be for.
// In a round of one server it is the leader's number, and not asked for.
func (s *Server) serverOf() int {
	if s.role() == wire.Helper {
		return prio.Helper
	}
	return prio.Leader
}

// Names of objects in the store: the set of clients in the sum, once fixed, and the helper's noisy
// share of the sum.
const (
	batchObject  = "two-servers-clients"
	openedObject = "two-servers-share"
	maxOpened    = 512 << 20 // a million clients and the largest share
)

// recallSum reads from the store whether the set of clients in the sum is fixed: with two servers
// at the leader, or at the helper by the leader; with one by the sum that is kept.
// It is called at the start, before any request.
func (s *Server) recallSum(ctx context.Context) (err error) {
	if !s.twoServers() {
		if s.once() {
			s.settled, err = s.summed(ctx)
		}
		return err
	}
	name := batchObject
	if s.role() == wire.Helper {
		name = openedObject
	}
	_, err = s.Store.Object(ctx, name, maxOpened)
	if err != nil && !errors.Is(err, store.ErrNone) {
		return err
	}
	s.settled = err == nil
	return nil
}

// begin starts the verification of a share.
// It returns the state to finish with the other part, and this part of the proof. The key is of the
// secret, the round and the graph, so that both servers check at the same points.
// A proof shows that the numbers are in range and nothing more.
func (s *Server) begin(r *federate.Release) (*prio.Checking, []byte, error) {
	scheme, err := r.Scheme()
	if err != nil {
		return nil, nil, err
	}
	key, err := prio.KeyOf(s.Secret, r.Round, r.Model)
	if err != nil {
		return nil, nil, err
	}
	c, err := scheme.Begin(key, r.Share)
	if err != nil {
		return nil, nil, err
	}
	own, err := c.Message()
	return c, own, err
}

// ofSecret returns an error if a stored share was proven under another secret than the server has:
// no sum of such shares could ever be opened.
// It is for a start, so that a wrong secret is found before the round's end.
func (s *Server) ofSecret(stored *store.Record) error {
	r, err := s.believePrivate(stored.Receipt.Client, stored.Data, s.kept())
	if err != nil {
		return err
	}
	c, _, err := s.begin(r)
	if err != nil {
		return err
	}
	if _, err = c.Finish(stored.Peer); errors.Is(err, prio.ErrProof) {
		return fmt.Errorf("round %d: the share of %q was proven with another secret of the two "+
			"servers: give --servers-secret-file the file that it had then", s.Round.Round,
			stored.Receipt.Client)
	}
	return err
}

// prove verifies the proof of a client's share together with the helper and returns the helper's
// part of it. Of a share that came before, the helper must know that it was proven.
// The part is stored with the share: [Server.addShares] finishes the proof once more by it. A
// refusal of the helper wraps a *[wire.Problem].
// No lock is held while the helper is waited for.
func (s *Server) prove(ctx context.Context, r *federate.Release, before bool) ([]byte, error) {
	c, own, err := s.begin(r)
	if err != nil {
		return nil, err
	}
	theirs, err := s.Helper.check(ctx, r.Round, r.Client,
		proofCheck{Nonce: r.Share.Nonce[:], Message: own, Before: before})
	if err != nil {
		return nil, err
	}
	_, err = c.Finish(theirs)
	return theirs, err
}

// unproven is the refusal of a share that could not be verified, which is in quarantine if it is at
// fault itself.
// Faults of the two servers are Unavailable, as a client that sends again loses nothing by them.
func (s *Server) unproven(ctx context.Context, a arrival, err error) error {
	var p *wire.Problem
	switch {
	case errors.Is(err, prio.ErrProof), errors.As(err, &p) && p.Code == wire.BadUpload:
		return s.quarantine(ctx, a.refusal(err), nil)
	case errors.As(err, &p) && (p.Code == wire.NoShare || p.Code == wire.RoundClosed):
		return refusef(p.Code, "the helper: %s", p.Detail)
	}
	s.Log.Error("the helper did not check a share", "client", a.client, "error", err)
	switch {
	case p == nil:
		return refusef(wire.Unavailable,
			"the helper of this round does not answer; nothing was lost, send again")
	case p.Code == wire.NoToken:
		return refusef(wire.Unavailable, "the two servers of this round have different secrets, "+
			"which their operators mend (--servers-secret-file); nothing was lost, send again")
	}
	return refusef(wire.Unavailable, "the helper of this round refuses it (%s): %s; nothing was "+
		"lost, send again", p.Code, p.Detail)
}

// peer passes on requests of the leader only.
// The comparison takes constant time in the token's bytes.
func (s *Server) peer(next handler) handler {
	return func(w http.ResponseWriter, r *http.Request) error {
		token, ok := bearer(r)
		if s.role() != wire.Helper || !ok ||
			subtle.ConstantTimeCompare([]byte(token), []byte(peerToken(s.Secret))) != 1 {
			if s.role() == wire.Helper && ok {
				s.suspect()
			}
			return refusef(wire.NoToken,
				"this is for the leader of a round of which this server is the helper")
		}
		return next(w, r)
	}
}

// suspect logs that somebody asked as the leader with another secret: once a minute at most, as
// anybody can ask.
func (s *Server) suspect() {
	s.mu.Lock()
	now := s.Now()
	due := now.Sub(s.suspected).Abs() >= time.Minute // the clock may be put back
	if due {
		s.suspected = now
	}
	s.mu.Unlock()
	if due {
		s.Log.Warn("somebody asked as the leader with another secret; if it is the leader, give " +
			"both the same --servers-secret-file")
	}
}

// body decodes a request's JSON of at most most bytes.
// It is for requests of the leader alone, behind [Server.peer]: their body has no minimum rate.
// most bounds the memory, beside that of the decoded value.
func body(w http.ResponseWriter, r *http.Request, most int64, v any) error {
	data, err := io.ReadAll(http.MaxBytesReader(w, r.Body, most))
	if err == nil {
		err = json.Unmarshal(data, v)
	}
	if err != nil {
		return refusef(wire.BadRequest, "the request cannot be read: %v", err)
	}
	return nil
}

// share reads a client's share from the helper's store.
// The two shares of a client have one nonce, so that one of another nonce goes with another share.
// A name that nobody may have, no share, and another nonce are store.ErrNone.
// Other errors are the store's, or of a stored share that cannot be read.
func (s *Server) share(ctx context.Context, client string,
	nonce []byte) (*store.Record, *federate.Release, error) {
	if err := identity.CheckName(client); err != nil {
		return nil, nil, fmt.Errorf("%w: %w", err, store.ErrNone)
	}
	stored, err := s.Store.Get(ctx, client)
	if err != nil {
		return nil, nil, err
	}
	r, err := s.believePrivate(client, stored.Data, s.kept())
	if err != nil {
		return nil, nil, err
	}
	if !slices.Equal(r.Share.Nonce[:], nonce) {
		return nil, nil, fmt.Errorf("another share of %q is here: %w", client, store.ErrNone)
	}
	return stored, r, nil
}

// proof answers with the helper's part of the proof of a client's share. The same request gets the
// same answer; a different request about the same share is refused.
// A share that fails is refused as an upload is, and noted without its bytes.
func (s *Server) proof(w http.ResponseWriter, r *http.Request) error {
	client := r.PathValue("client")
	var c proofCheck
	if err := body(w, r, maxProof, &c); err != nil {
		return err
	}
	r = carried(r)
	stored, release, err := s.share(r.Context(), client, c.Nonce)
	switch {
	case errors.Is(err, store.ErrNone) && c.Before,
		err == nil && stored.Peer == nil && (c.Before || s.closed()):
		return refusef(wire.RoundClosed, "the sum of round %d is settled without %.128q",
			s.Round.Round, client)
	case errors.Is(err, store.ErrNone):
		return refusef(wire.NoShare,
			"no share of %.128q with this nonce is here; a client sends to the helper "+
				"first", client)
	case err != nil:
		return err
	case stored.Peer != nil && !slices.Equal(stored.Peer, c.Message):
		return refusef(wire.OtherUpload,
			"the share of %.128q was checked against another part of the proof", client)
	}
	check, own, err := s.begin(release)
	if err == nil {
		_, err = check.Finish(c.Message)
	}
	if err != nil {
		return s.quarantine(r.Context(), store.Refusal{Client: client, Time: s.Now(),
			Upload: stored.Receipt.Upload, Reason: err.Error()}, nil)
	}
	if stored.Peer == nil {
		stored.Peer = c.Message
		if err := s.Store.Put(r.Context(), stored, stored.Revision); err != nil {
			return err
		}
		s.mu.Lock()
		s.remember(stored)
		s.mu.Unlock()
	}
	reply(w, http.StatusOK, proofCheck{Message: own})
	return nil
}

// close fixes the set of clients in the sum: those whose uploads are in or being accepted.
// Uploads hold opening for reading while they are stored, so that this waits for those under way.
// It may be called again, and the set stays fixed.
func (s *Server) close() {
	s.opening.Lock()
	defer s.opening.Unlock()
	s.mu.Lock()
	defer s.mu.Unlock()
	s.settled = true
}

// closed reports whether the set of clients is fixed.
// It is for rounds that end with their first classifier.
func (s *Server) closed() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.settled || len(s.versions) > 0
}

// opened is the helper's noisy share as it is stored, with the clients whose sum it is.
type opened struct {
	Of    sumOf      `json:"of"`
	Share noisyShare `json:"share"`
}

// given reads, at the helper, the share of the sum that the leader was given; ErrNone if none was.
func (s *Server) given(ctx context.Context) (was opened, err error) {
	err = s.readObject(ctx, openedObject, maxOpened, &was)
	return was, err
}

// givenSum tells the leader whose sum it was given, nobody's if none.
func (s *Server) givenSum(w http.ResponseWriter, r *http.Request) error {
	was, err := s.given(r.Context())
	if err != nil && !errors.Is(err, store.ErrNone) {
		return err
	}
	reply(w, http.StatusOK, sumOf{append([]shared{}, was.Of.Clients...)})
	return nil
}

// sum sends the leader the helper's share of a sum, with the helper's noise: for one set of clients
// only, the same on every request.
// The share is on the disk before it is sent: a sum that was sent and lost would be drawn again.
func (s *Server) sum(w http.ResponseWriter, r *http.Request) error {
	var of sumOf
	s.mu.Lock() // clients whose lines were taken out of the roster stay in
	most := max(s.clients.Load().Len(), len(s.in))
	s.mu.Unlock()
	if err := body(w, r, maxMember*(1+int64(most)), &of); err != nil {
		return err
	}
	r = carried(r)
	s.opening.Lock() // one at a time, so that only one set is ever stored
	defer s.opening.Unlock()
	was, err := s.given(r.Context())
	switch {
	case err == nil && !slices.EqualFunc(was.Of.Clients, of.Clients, shared.is):
		return refusef(wire.SumOpened,
			"the sum of %d clients of round %d was given; one of other clients would spend the "+
				"budget again", len(was.Of.Clients), s.Round.Round)
	case err == nil:
		reply(w, http.StatusOK, was.Share)
		return nil
	case !errors.Is(err, store.ErrNone):
		return err
	}
	if err := s.sized(of); err != nil {
		return refusef(wire.BadRequest, "%v", err)
	}
	s.mu.Lock()
	s.wanted = of
	s.mu.Unlock()
	sum, err := s.addShares(r.Context(), of)
	switch {
	case errors.Is(err, store.ErrNone):
		return refusef(wire.NoShare, "%v", err)
	case errors.Is(err, prio.ErrProof):
		return refusef(wire.ServerFailed, "%v: it is not the share whose proof was checked, or "+
			"--servers-secret-file is another than then", err)
	case err != nil:
		return err
	}
	was.Of = of
	if was.Share.Share, err = sum.Bytes(); err != nil {
		return err
	}
	if err := s.keepObject(r.Context(), openedObject, was); err != nil {
		return err
	}
	s.mu.Lock()
	s.settled = true
	s.mu.Unlock()
	s.Log.Info("share of the sum given, with this server's noise", "clients", len(of.Clients))
	reply(w, http.StatusOK, was.Share)
	return nil
}

// sized returns an error unless a sum is of enough clients, each once, in the order of their names.
// Fewer clients would each stand out more in the sum.
func (s *Server) sized(of sumOf) error {
	// a quorum below min_uploads is enough before the deadline
	least := min(s.Round.MinUploads, s.quorum)
	if len(of.Clients) < least || !slices.IsSortedFunc(of.Clients,
		func(a, b shared) int { return cmp.Or(cmp.Compare(a.Client, b.Client), -1) }) {
		return fmt.Errorf("a sum of %d clients; want %d or more, each once, in the order of "+
			"their names", len(of.Clients), least)
	}
	return nil
}

// addShares returns this server's share of the sum of the clients whose shares were verified, with
// its noise. It verifies each again, by the other's part of the proof that is stored with it, as
// the verified numbers themselves are not stored. That is O(M C K) for M clients. A share that is
// missing, or was not checked, is store.ErrNone.
// Noise is added once to the sum, and is new at each call.
func (s *Server) addShares(ctx context.Context, of sumOf) (*prio.Sum, error) {
	var sum *prio.Sum
	for _, m := range of.Clients {
		stored, r, err := s.share(ctx, m.Client, m.Nonce)
		if err != nil {
			return nil, err
		}
		if stored.Peer == nil {
			return nil, fmt.Errorf("the share of %q was not checked: %w", m.Client, store.ErrNone)
		}
		c, _, err := s.begin(r)
		if err != nil {
			return nil, fmt.Errorf("the share of %q: %w", m.Client, err)
		}
		out, err := c.Finish(stored.Peer)
		if err != nil {
			return nil, fmt.Errorf("the share of %q: %w", m.Client, err)
		}
		if sum == nil {
			scheme, err := r.Scheme()
			if err != nil {
				return nil, err
			}
			sum = scheme.NewSum()
		}
		sum.Add(out)
	}
	return sum, sum.AddNoise(s.Round.Privacy.NoiseSteps(s.Round.Client.C), rand.Reader)
}

// settle returns, at the leader, the clients in the sum: those whose uploads are in at the first
// call, and the same ever after.
// The set is stored before anything is asked of the helper.
func (s *Server) settle(ctx context.Context) (of sumOf, err error) {
	s.close()
	if of, err = s.readBatch(ctx); !errors.Is(err, store.ErrNone) {
		return of, err
	}
	for stored, err := range s.records(ctx) {
		if err != nil {
			return of, err
		}
		r, err := s.believePrivate(stored.Receipt.Client, stored.Data, s.kept())
		if err != nil {
			return of, fmt.Errorf("the share of %q as it is kept: %w", stored.Receipt.Client, err)
		}
		of.Clients = append(of.Clients, shared{r.Client, r.Share.Nonce[:]})
	}
	sorting.By(of.Clients, func(a, b shared) int { return cmp.Compare(a.Client, b.Client) })
	return of, s.keepObject(ctx, batchObject, of)
}

// readBatch reads, at the leader, the set of clients in the sum; ErrNone before it is fixed.
func (s *Server) readBatch(ctx context.Context) (of sumOf, err error) {
	err = s.readObject(ctx, batchObject, maxOpened, &of)
	return of, err
}

// readObject reads an object of the store that is JSON of most bytes at most; ErrNone if there is
// none.
func (s *Server) readObject(ctx context.Context, object string, most int64, v any) error {
	data, err := s.Store.Object(ctx, object, most)
	if err != nil {
		return err
	}
	return json.Unmarshal(data, v)
}

// keepObject stores JSON as an object, in place of one that it had.
func (s *Server) keepObject(ctx context.Context, object string, v any) error {
	data, err := json.Marshal(v)
	if err != nil {
		return err
	}
	return s.Store.PutObject(ctx, object, data)
}

// lost reports whether an upload that comes when the round is closed may be a share of the sum that
// this server had, and lost with the last seconds of its state. The helper takes those that the
// leader asked for. The leader takes those of its set, or, before it has one, those that the helper
// knows to be proven.
// false has the upload refused as one that came late.
func (s *Server) lost(ctx context.Context, a arrival) (bool, error) {
	if !s.twoServers() {
		return false, nil
	}
	r, err := federate.DecodeRelease(a.data, s.expect())
	if err != nil || r.Share == nil {
		return false, nil
	}
	s.mu.Lock()
	of, settled, made := s.wanted, s.settled, len(s.versions) > 0
	s.mu.Unlock()
	if s.role() == wire.Leader && !made {
		if of, err = s.readBatch(ctx); errors.Is(err, store.ErrNone) {
			return !settled, nil
		}
	} else if made || settled {
		return false, nil
	}
	return slices.ContainsFunc(of.Clients, shared{a.client, r.Share.Nonce[:]}.is), err
}

// members returns the clients of the sum for pooling, and a function that adds this server's noise
// to its share of their sum and opens it with the helper's.
// The releases have sizes and no numbers, as a single share is random. A client whose share is not
// there is an error: the set of clients does not change.
// Each call of the function draws this server's noise anew: one result alone may be published.
func (s *Server) members(ctx context.Context) ([]pool.Release, func() (*privacy.Release, error),
	error) {
	of, err := s.settle(ctx)
	if err != nil {
		return nil, nil, err
	}
	f := s.Round
	var out []pool.Release
	var lost []string
	for _, m := range of.Clients {
		stored, err := s.Store.Get(ctx, m.Client)
		if errors.Is(err, store.ErrNone) {
			lost = append(lost, m.Client)
			continue
		}
		if err != nil {
			return nil, nil, err
		}
		out = append(out, pool.Release{Path: m.Client, Digest: stored.Receipt.Upload,
			Release: &federate.Release{Round: f.Round, Client: m.Client, Model: f.Client.Digest,
				Budget: *f.Privacy, Sums: &privacy.Release{Classes: f.Client.C, K: f.Client.K}}})
	}
	if err := lacking("this server", lost); err != nil {
		return nil, nil, err
	}
	return out, func() (*privacy.Release, error) {
		theirs, err := s.helperSum(ctx, of)
		if err != nil {
			return nil, err
		}
		own, err := s.addShares(ctx, of)
		if err != nil {
			return nil, err
		}
		return own.Open(theirs)
	}, nil
}

// lacking is the error of a server that lost shares; nil if it lost none.
func lacking(server string, lost []string) error {
	if len(lost) == 0 {
		return nil
	}
	return fmt.Errorf("%s lost shares of the sum, %d in all: have their clients come again with "+
		"fmp-edge join, which sends the same: %q", server, len(lost),
		lost[:min(len(lost), maxNamed)])
}

// helperSum returns the helper's share of a sum. A helper that lost shares, or that they were
// proven, is told again of each. Where it gave a sum of other clients that this server lost, these
// are the clients of the sum from then on.
// The error is returned even so, and the next attempt of Run asks for the sum of those clients.
// SumOpened means that the helper gave a sum: another is never asked for.
func (s *Server) helperSum(ctx context.Context, of sumOf) ([]byte, error) {
	theirs, err := s.Helper.sum(ctx, s.Round.Round, of)
	switch codeOf(err) {
	case wire.NoShare:
		if err := s.proveAgain(ctx, of); err != nil {
			return nil, err
		}
		return s.Helper.sum(ctx, s.Round.Round, of)
	case wire.SumOpened:
		was, e := s.Helper.given(ctx, s.Round.Round)
		if e == nil {
			e = s.sized(was)
		}
		if e == nil {
			e = s.keepObject(ctx, batchObject, was)
		}
		if e == nil {
			s.rouse()
		}
		return nil, errors.Join(err, e)
	}
	return theirs, err
}

// proveAgain proves the shares of a sum to a helper that lost some, or that they were proven.
// It costs a request for each client, one after another.
func (s *Server) proveAgain(ctx context.Context, of sumOf) error {
	var lost []string
	for _, m := range of.Clients {
		_, r, err := s.share(ctx, m.Client, m.Nonce)
		if err == nil {
			_, err = s.prove(ctx, r, false)
		}
		if codeOf(err) == wire.NoShare {
			lost, err = append(lost, m.Client), nil
		}
		if err != nil {
			return fmt.Errorf("the share of %q: %w", m.Client, err)
		}
	}
	return lacking("the helper", lost)
}
