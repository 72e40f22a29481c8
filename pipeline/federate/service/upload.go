package service

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"time"

	"fmp/models"
	"fmp/pipeline/federate"
	"fmp/pipeline/federate/identity"
	"fmp/pipeline/federate/store"
	"fmp/pipeline/federate/trace"
	"fmp/pipeline/federate/wire"
	"fmp/pipeline/point"
	"fmp/pipeline/pool"
)

// upload accepts a client's upload. Nothing is read before its signature is verified over the
// digest that the request states, so that only clients of the roster, one request at a time each,
// can make the server work.
// In order: signature, patience with refused uploads, one request a client, memory and rate, the
// digest that was signed, and the content.
// An error is a refusal with a code, or the server's own.
func (s *Server) upload(w http.ResponseWriter, r *http.Request) error {
	client, digest, signature, err := s.stated(r, identity.Upload, "upload")
	if err != nil {
		return err
	}
	if !s.patient(client) {
		return refusef(wire.TooMany,
			"too many uploads of %q were refused; mend what the last refusal says, and come again",
			client)
	}
	if !s.take(client) {
		return refusef(wire.TooMany, "another upload of %q is being taken", client)
	}
	defer s.release(client)
	held := lease{in: s.intake}
	defer held.release()
	data, err := held.read(w, r, s.Round.Bounds.Bytes, 1)
	if err != nil {
		return s.unread(err)
	}
	if err := asStated("upload", digest, data); err != nil {
		return err
	}
	return s.accept(w, r, arrival{client, digest, s.Now(), signature, data})
}

// stated returns the client that signed the digest which a request states of its body, a report or
// an upload.
// The digest is not compared here, as no body has been read.
func (s *Server) stated(r *http.Request, purpose identity.Purpose,
	body string) (client, digest string, signature []byte, err error) {
	digest = contentDigest(r)
	if digest == "" && wire.Signature(r.Header.Get("Authorization")) != nil {
		return "", "", nil, refusef(wire.BadRequest,
			"give the header Content-Digest: sha-256=:BASE64: (RFC 9530) of the %s", body)
	}
	client, signature, err = s.signed(r, purpose, digest)
	return client, digest, signature, err
}

// asStated refuses a body whose digest is another than stated.
func asStated(body, digest string, data []byte) error {
	if is := models.DigestBytes(data); is != digest {
		return refusef(wire.BadRequest,
			"the %s's sha256 is %s; Content-Digest and the signature say %s", body, is, digest)
	}
	return nil
}

// unread is the refusal of an upload that could not be read.
// An error of the connection is BadRequest, which nobody is there to read.
// Unavailable has the client send again; the others have it change something.
func (s *Server) unread(err error) error {
	var large *http.MaxBytesError
	switch {
	case errors.As(err, &large):
		return refusef(wire.TooLarge,
			"an upload of more than %d bytes; bounds.bytes of the round allows no more",
			s.Round.Bounds.Bytes)
	case errors.Is(err, errSlow):
		return refusef(wire.TooSlow,
			"fewer than %d bytes a second came; bounds.rate of the round wants as many",
			s.Round.Bounds.Rate)
	case errors.Is(err, errBusy):
		return refusef(wire.Unavailable, "%v", err)
	}
	return refusef(wire.BadRequest, "%v", err)
}

// contentDigest returns the SHA-256 (hexadecimal) that a request states; empty if it states none.
// Digests by other algorithms in the list are passed over.
func contentDigest(r *http.Request) string {
	for _, part := range strings.Split(r.Header.Get("Content-Digest"), ",") {
		text, ok := strings.CutPrefix(strings.TrimSpace(part), "sha-256=:")
		b, err := base64.StdEncoding.DecodeString(strings.TrimSuffix(text, ":"))
		if ok && err == nil && len(b) == sha256.Size {
			return hex.EncodeToString(b)
		}
	}
	return ""
}

// take and release limit a client to one upload at a time: of two at once each would find the
// other's record missing, and the memory of uploads is shared by all clients.
// busy has names of clients, and of keys behind "key ". It never waits: the second request is
// refused.
func (s *Server) take(client string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.busy[client] {
		return false
	}
	s.busy[client] = true
	return true
}

func (s *Server) release(client string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.busy, client)
}

// arrival is an upload whose signature is valid.
type arrival struct {
	client, digest  string
	time            time.Time
	signature, data []byte
}

// refusal returns the refusal of an upload for its content.
func (a *arrival) refusal(err error) store.Refusal {
	return store.Refusal{Client: a.client, Time: a.time, Upload: a.digest, Reason: err.Error()}
}

// carried returns a request that the end of its connection does not stop: after one of which a part
// was done, the state and the server's index would differ. Calls of the store have time limits of
// their own.
func carried(r *http.Request) *http.Request {
	return r.WithContext(context.WithoutCancel(r.Context()))
}

// rouse lets Run look for work that is due.
// The channel holds one token, so that rouse never blocks, and several calls are one look.
func (s *Server) rouse() {
	select {
	case s.wake <- struct{}{}:
	default:
	}
}

// look returns the state's record of a client, nil if there is none, and takes it into the index:
// an earlier request may have stored it whose answer from the store was lost. An upload that it
// replaced is erased then.
// A withdrawn upload is returned with Gone set, and without an error.
// An error of Erase comes with the record: the caller takes nothing new until bytes of the old are
// gone.
func (s *Server) look(ctx context.Context, client string) (*store.Record, error) {
	stored, err := s.Store.Get(ctx, client)
	switch {
	case errors.Is(err, store.ErrNone):
		return nil, nil
	case errors.Is(err, store.ErrWithdrawn):
		return stored, nil
	case err != nil:
		return nil, err
	}
	s.mu.Lock()
	found := s.in[client].revision != stored.Revision
	s.remember(stored)
	s.mu.Unlock()
	if found {
		s.rouse()
	}
	return stored, s.Store.Erase(ctx, client)
}

// byKey returns another client than the one named whose upload is in by a public key; "" if there
// is none.
// It costs O(uploads that are in), under mu. Records of earlier programs have no key, and match
// none.
// Two names of one key would count as two clients.
func (s *Server) byKey(key, client string) string {
	s.mu.Lock()
	defer s.mu.Unlock()
	for other, h := range s.in {
		if key != "" && h.key == key && other != client {
			return other
		}
	}
	return ""
}

// accept decides on an upload whose signature is valid. The state is asked first, and not the
// index: a client that comes again after an answer was lost gets the receipt that it has. An upload
// that was replaced or withdrawn never comes back: a copy of its request has a valid signature
// still. The content is read after that, and the helper of two servers is asked after the content.
// No record is stored before the last check. The key is taken from the roster as it is by then.
func (s *Server) accept(w http.ResponseWriter, r *http.Request, a arrival) error {
	own := r.Context()
	r = carried(r)
	state := s.state(a.time)
	lost := false
	old, err := s.look(r.Context(), a.client)
	if err == nil && old == nil && state == wire.Closed {
		lost, err = s.lost(r.Context(), a)
	}
	switch {
	case err != nil:
		return err
	case old != nil && old.Gone != nil:
		return s.refuseGone(old)
	case old != nil && old.Receipt.Upload == a.digest:
		reply(w, http.StatusOK, old.Receipt)
		return nil
	case old != nil && slices.Contains(old.Replaced, a.digest):
		return refusef(wire.OtherUpload,
			"the upload of %q with sha256 %s was replaced, and is not taken again: a copy "+
				"of the request that brought it would undo that", a.client, a.digest)
	case state == wire.Closed && !lost:
		return s.refuseClosed(a.time)
	case old != nil && (!s.Round.Replace || state != wire.Open):
		return refusef(wire.OtherUpload,
			"an upload of %q with sha256 %s is in since %s, and the round does not replace uploads",
			a.client, old.Receipt.Upload, old.Receipt.Time.Format(time.RFC3339))
	}
	key := s.clients.Load().Key(a.client)
	if key == "" {
		return refusef(wire.WrongKey, "client %.128q is not on the roster of round %d any more",
			a.client, s.Round.Round)
	}
	if !s.take("key " + key) { // of two names at once each would find the other's upload missing
		return refusef(wire.TooMany, "another upload by the key of %q is being taken", a.client)
	}
	defer s.release("key " + key)
	if other := s.byKey(key, a.client); other != "" {
		return refusef(wire.OtherUpload, "an upload of %q by the same key is in, and who holds "+
			"one key is one client: the operator takes it out first (fmp withdraw)", other)
	}
	n, err := s.read(a.client, a.data)
	if err != nil {
		return s.quarantine(r.Context(), a.refusal(err), a.data)
	}
	peer, err := s.proven(own, r, a, lost)
	if err != nil {
		return err
	}
	// an upload with a receipt is in the classifier: the set of clients is fixed either before
	// this, or after the upload is stored
	if s.once() {
		s.opening.RLock()
		defer s.opening.RUnlock()
		if s.closed() {
			if lost, err := s.lost(r.Context(), a); err != nil || !lost {
				return cmp.Or(err, refusef(wire.RoundClosed,
					"who is in the classifier of private round %d is settled", s.Round.Round))
			}
		}
	}
	record := &store.Record{Peer: peer, Signature: a.signature, Key: key, N: n, Data: a.data,
		Receipt: wire.Receipt{
			Round: s.Round.Round, Client: a.client, Graph: s.Round.Client.Digest, Upload: a.digest,
			Bytes: len(a.data), Time: a.time.UTC(),
			Spent: s.Round.Privacy}}
	record.Receipt.Sign(s.Key)
	return s.keep(w, r, record, old)
}

// keep stores the record of an upload in place of the old one, nil if there is none, and answers
// with its receipt.
// After an error of the store the state is read again: where it has this upload the client gets its
// receipt, else the error. Put compares revisions, so that of two writers one fails.
// The answer is 201 with the receipt, also where the store failed after it had stored the record.
func (s *Server) keep(w http.ResponseWriter, r *http.Request, record, old *store.Record) error {
	var revision uint64
	if old != nil {
		revision, record.Replaced = old.Revision, append(old.Replaced, old.Receipt.Upload)
	}
	client, digest := record.Receipt.Client, record.Receipt.Upload
	if err := s.Store.Put(r.Context(), record, revision); err != nil {
		// whether it was stored is unknown
		now, e := s.look(r.Context(), client)
		if e != nil || now == nil || now.Gone != nil || now.Receipt.Upload != digest {
			return err // the client will send it again
		}
		record = now
	}
	s.mu.Lock()
	s.remember(record)
	s.cause = trace.Parent(r.Context())
	count := len(s.in)
	s.mu.Unlock()
	s.metrics.taken.Inc()
	s.Log.Info("upload taken", "client", client, "upload", digest, "bytes", record.Receipt.Bytes,
		"n", record.N, "in", count, "replaced", old != nil)
	s.rouse()
	reply(w, http.StatusCreated, record.Receipt)
	return nil
}

// refuseClosed says why the round takes no more uploads.
func (s *Server) refuseClosed(now time.Time) error {
	if s.Round.Now(now) != wire.Closed {
		return refusef(wire.RoundClosed, "the classifier of private round %d is made, "+
			"or being made; another, of more uploads, would spend its budget again", s.Round.Round)
	}
	return refusef(wire.RoundClosed, "the deadline of round %d was %s", s.Round.Round,
		s.Round.Deadline.Format(time.RFC3339))
}

// proven verifies, at the leader of two servers, the proof that an upload's numbers are in range,
// and returns the helper's part of the record. The helper is waited for while ctx lasts, that of
// the request's connection: a client that comes again is not kept out by a request that it gave up.
func (s *Server) proven(ctx context.Context, r *http.Request, a arrival,
	before bool) (peer []byte, err error) {
	if s.role() != wire.Leader {
		return nil, nil
	}
	release, err := s.believePrivate(a.client, a.data, s.expect())
	if err == nil {
		peer, err = s.prove(ctx, release, before)
	}
	// it is no share that was lost, and comes too late
	if before && codeOf(err) == wire.RoundClosed {
		return nil, s.refuseClosed(a.time)
	}
	if err != nil {
		return nil, s.unproven(r.Context(), a, err)
	}
	return peer, nil
}

// read checks a message of the kind that the round asks for and returns the number of images that
// it claims, 0 in a private round. Two clients may send the same points: whether a message is
// accepted never depends on the other clients' uploads, whose contents the answer would reveal.
// The budget is compared without points that have no effect. Of two servers each takes the share
// that is made for it, as the two shares together open the numbers.
// The error is the reason that goes to the client and into quarantine.
func (s *Server) read(client string, data []byte) (n int, err error) {
	private := federate.IsRelease(data)
	switch budget := s.Round.Privacy; {
	case budget != nil && !private:
		return 0, fmt.Errorf("upload: it is a plain one, and round %d is private (%v): "+
			"make one with the noise and budget that the round states (fmp-edge join)",
			s.Round.Round, budget)
	case budget == nil && private:
		return 0, fmt.Errorf("upload: it is of a private round, and round %d is not private",
			s.Round.Round)
	case private:
		r, err := s.believePrivate(client, data, s.expect())
		switch {
		case err == nil && r.Budget.Effective() != budget.Effective():
			err = fmt.Errorf("upload: its budget is %v; that of round %d is %v", r.Budget,
				s.Round.Round, budget)
		case err == nil && s.twoServers() && r.Share.Server != s.serverOf():
			err = fmt.Errorf("upload: it is the share for server %d of two; this one is the "+
				"%s, server %d", r.Share.Server, s.role(), s.serverOf())
		}
		return 0, err
	}
	u, err := s.believe(client, data)
	if err != nil {
		return 0, err
	}
	return u.Images(), nil
}

// expect returns the fields that uploads of the round have.
// The result is a copy, of which the caller may change fields.
func (s *Server) expect() federate.Expect {
	want := pool.Expect(s.Round.Client)
	want.Round = &s.Round.Round
	return want
}

// kept is expect of a message that has a receipt: the program that gave it may have asked for no
// salt.
func (s *Server) kept() federate.Expect {
	want := s.expect()
	want.Unsalted = true
	return want
}

// believePrivate decodes a message of a private round and checks it against the fields that are
// expected.
func (s *Server) believePrivate(client string, data []byte,
	want federate.Expect) (*federate.Release, error) {
	r, err := federate.DecodeRelease(data, want)
	if err == nil && r.Client != client {
		err = fmt.Errorf("upload: client is %q; it was sent as %q", r.Client, client)
	}
	return r, err
}

// believe decodes an upload and checks it against the round and its bounds.
// Norms cost O(points k), and are looked at only where the round bounds them.
func (s *Server) believe(client string, data []byte) (*federate.Upload, error) {
	u, err := federate.Decode(data, s.expect())
	if err != nil {
		return nil, err
	}
	b := s.Round.Bounds
	switch {
	case u.Client != client:
		return nil, fmt.Errorf("upload: client is %q; it was sent as %q", u.Client, client)
	case u.N > b.Points:
		return nil, fmt.Errorf("upload: n is %d; bounds.points of the round allows %d",
			u.N, b.Points)
	case !slices.Contains(s.Round.Precisions, u.Precision):
		return nil, fmt.Errorf("upload: precision is %s; the round allows %v", u.Precision,
			s.Round.Precisions)
	}
	singles := 0
	if c := u.Calibration; c != nil {
		singles = c.N
	} else if w := u.Within; w != nil {
		singles = len(w.Labels)
	}
	if singles > s.Round.Calibrate {
		return nil, fmt.Errorf("upload: it has %d calibration points; calibrate of the "+
			"round allows %d", singles, s.Round.Calibrate)
	}
	if b.Norm > 0 {
		for i := range u.Points.N {
			if norm := point.Norm(u.Points.Features(i)); !(norm <= b.Norm) {
				return nil, fmt.Errorf("upload: points[%d] has norm %.4g; bounds.norm of the "+
					"round allows %.4g", i, norm, b.Norm)
			}
		}
	}
	if s.Check != nil {
		if err := s.Check(u); err != nil {
			return nil, err
		}
	}
	return u, nil
}

// quarantine stores an upload that is refused for its contents, with the reason for the server's
// operators, and returns the refusal.
// Only the last refused upload of a client is kept. A failure to store it is logged, and the
// refusal stands.
// Its error is the refusal itself, BadUpload, and never nil.
func (s *Server) quarantine(ctx context.Context, refusal store.Refusal, data []byte) error {
	s.mu.Lock()
	refusal.Count = s.refused[refusal.Client].Count + 1
	s.refused[refusal.Client] = refusal
	s.fault(refusal.Client)
	s.mu.Unlock()
	if s.Round.Privacy != nil {
		data = nil // do not keep what it may reveal about its client
	}
	if err := s.Store.Refuse(ctx, refusal, data); err != nil {
		s.Log.Error("quarantine failed", "client", refusal.Client, "error", err)
	}
	s.Log.Warn("upload refused", "client", refusal.Client, "upload", refusal.Upload, "reason",
		refusal.Reason, "count", refusal.Count)
	s.rouse() // it may have been the last that the round waited for
	return refusef(wire.BadUpload, "%s", refusal.Reason)
}

// receipt sends a client its own receipt.
// It is read from the state, and not from the index, so that it is the one that is on disk.
// The statement has no content, and its purpose is Ask alone: it can be used for nothing else.
func (s *Server) receipt(w http.ResponseWriter, r *http.Request) error {
	client, _, err := s.signed(r, identity.Ask, "")
	if err != nil {
		return err
	}
	stored, err := s.Store.Get(r.Context(), client)
	switch {
	case errors.Is(err, store.ErrNone):
		return refusef(wire.NoReceipt, "nothing of %q is in round %d", client, s.Round.Round)
	case errors.Is(err, store.ErrWithdrawn):
		return s.refuseGone(stored)
	case err != nil:
		return err
	}
	reply(w, http.StatusOK, stored.Receipt)
	return nil
}
