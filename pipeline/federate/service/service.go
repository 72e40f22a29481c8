// Package service serves a round of a federation over HTTP: it describes the round, accepts one
// signed upload from each client of the roster, stores it, returns a signed receipt, pools the
// uploads at quorum and at the deadline, and serves the classifier.
package service

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"iter"
	"log/slog"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/time/rate"

	"fmp/models"
	"fmp/onnx/engine"
	"fmp/pipeline/federate"
	"fmp/pipeline/federate/identity"
	"fmp/pipeline/federate/round"
	"fmp/pipeline/federate/store"
	"fmp/pipeline/federate/trace"
	"fmp/pipeline/federate/wire"
	"fmp/pipeline/pool"
	"fmp/pipeline/privacy"
)

// Pooled is the result of pooling uploads.
type Pooled struct {
	// Classifier is the contents of classifier.onnx, Rows its smaller form, which takes feature
	// rows.
	Classifier, Rows []byte
	// Honest is the probability that each upload was computed by its client from images of the
	// classes that it names; nil if honesty was not judged.
	Honest []float64
	// Counted is how many of the images that each client claims count if it is honest; nil if
	// honesty was not judged.
	Counted []float64
	// Members are the uploads with their honesty, where they were merged; nil elsewhere.
	Members []store.Member
	// Warnings are logged once the version is served.
	Warnings []string
	// Summary is shown on the status page and stored in the version's record: any value that can be
	// encoded as JSON.
	Summary any
}

// Config configures a server.
type Config struct {
	Round *round.Round
	// Key signs receipts.
	Key   *identity.Key
	Store *store.Store
	// Pool makes the classifier from uploads, which are sorted by client name.
	Pool func(ctx context.Context, uploads []pool.Upload) (*Pooled, error)
	// Merge, if not nil, is Pool for uploads that are merged where they are stored; it sets
	// [Pooled.Members].
	Merge func(ctx context.Context, members []store.Member) (*Pooled, error)
	// Sweep, if not nil, deletes the objects that poolings which ended midway left in the store for
	// workers: they hold uploads.
	Sweep func(ctx context.Context) error
	// Withdrawals is the path of the signed record of withdrawals, outside the store; "": none is
	// kept.
	Withdrawals string
	// Withdrawn, if not nil, returns an error where a file that acts on the classifier, as the
	// anchor, is of an upload that is withdrawn.
	Withdrawn func(client, digest string, round uint64, graph string) error
	// Private is Pool for a private round. With two servers, the releases hold no sums, and open
	// returns the noisy sum; otherwise open is nil.
	Private func(ctx context.Context, releases []pool.Release,
		open func() (*privacy.Release, error)) (*Pooled, error)
	// Options is a digest of the options of pooling: a version of others is replaced. "" stands for
	// options that are not known.
	Options string
	// Secret is the secret that the two servers of a private round share and clients do not know.
	// Helper is, at the leader, the client of the helper; nil at the helper.
	Secret string
	Helper *Helper
	// Check, if not nil, may refuse an upload that Decode and the round's bounds accepted.
	Check func(*federate.Upload) error
	// Engine makes predictions; if nil, the server makes none, and answers as before its first
	// version.
	Engine engine.Engine
	// Reject is the probability below which a prediction counts as left to people, for want of a
	// surer most probable class; default 0.
	Reject float64
	// Token is the password of readers of the status, the classifier and predictions; empty:
	// everybody may read them.
	Token string
	Log   *slog.Logger
	// Tracer records spans; nil: none are recorded.
	Tracer *trace.Tracer
	// Page serves the client for browsers under /join/; nil: there is none.
	Page http.Handler
	// Now returns the current time; default time.Now.
	Now func() time.Time
}

// Server serves the requests of one round.
//
// Locks are taken in one order: publishing or opening first, mu last. Nothing that waits for the
// store, for the other server or for a client is done under mu. Under publishing and opening the
// store is written, as the decision and its record must not be parted.
type Server struct {
	Config
	metrics *metrics
	clients atomic.Pointer[identity.Roster]
	quorum  int // uploads at which the first classifier is made; fixed when the round opens
	intake  *intake
	files   *intake       // of versions that are not the latest
	wake    chan struct{} // something arrived

	mu      sync.Mutex
	swept   bool                     // nothing of a withdrawn upload is left for workers
	in      map[string]held          // by client
	gone    map[string]*store.Record // clients that withdrew: their records, without the uploads
	dropped map[int]bool             // of these, those of which the store has no file
	// versions that hold an upload that was withdrawn, and since when
	void     map[int]time.Time
	busy     map[string]bool // clients whose upload is being accepted
	refused  map[string]store.Refusal
	faults   map[string]*rate.Limiter // of refused uploads, by client
	versions []store.Version
	// made is when the latest was stored or found, of a clock that nobody sets
	made     time.Time
	weighed  map[string]store.Member // in the latest version, by client
	failure  string                  // why the last pooling failed; empty if it did not
	unserved string                  // why the latest makes no predictions; empty if it makes some
	// suspected is when the helper logged last that somebody asked with another secret
	suspected time.Time
	unerased  bool   // a deletion or a record failed that eraseRest is to bring to its end
	cause     string // traceparent of the last request that brought an upload
	// in a round of one classifier: the set of clients in it is fixed; no more uploads are accepted
	settled bool
	wanted  sumOf // at the helper: the clients of the sum that the leader asked for last
	opening sync.RWMutex
	// publishing is held while a version is stored, and while an upload is withdrawn: no version
	// that holds it is stored afterwards.
	publishing sync.Mutex
	// unsure is whether the state may have versions that are not in versions, and parts of some
	// that are not listed; publishing guards it.
	unsure bool
	// recorded are the receipts of the record of withdrawals by client; publishing guards it. missing
	// are the versions that it says held an upload and that the state lacks. floor is the highest
	// number of a version that is known; mu guards it.
	recorded map[string]*wire.Withdrawal
	missing  []wire.VersionRef
	floor    int
	stop     context.CancelCauseFunc // ends the pooling that is under way; nil: none is
	// eraseAt is when deletions that failed are tried again, for Run alone
	eraseAt time.Time

	predictions *predictor
	// sets returns the level of the prediction sets of a classifier's file, and levels has those
	// that were read, by sha256.
	sets   func(classifier []byte) (float64, error)
	levels sync.Map
}

// held is the part of an accepted upload that is kept in memory.
type held struct {
	upload   string // digest of the message
	revision uint64
	n        int
	time     time.Time
	key      string // public key of the client
}

// New reads the round's state from the store and returns a server that is ready to serve.
// It reads all records, refusals and the last version: O(uploads). Deletions that a server before
// it left are begun, and one that fails is left to Run.
func New(ctx context.Context, c Config) (*Server, error) {
	if c.Now == nil {
		c.Now = time.Now
	}
	c.Log = quietly(c.Log)
	uploads := newIntake(&c.Round.Bounds, maxInFlight*int64(c.Round.Bounds.Bytes+1))
	files := newPredicting(maxFiles)
	files.shares = newShares(maxFiles / 2)
	s := &Server{Config: c, intake: uploads, files: files, wake: make(chan struct{}, 1),
		in: map[string]held{}, gone: map[string]*store.Record{}, void: map[int]time.Time{},
		dropped: map[int]bool{}, busy: map[string]bool{}, refused: map[string]store.Refusal{},
		faults: map[string]*rate.Limiter{}, recorded: map[string]*wire.Withdrawal{}, sets: setsOf}
	s.clients.Store(c.Round.Clients)
	s.predictions = newPredictor(c.Engine, c.Log, c.Tracer)
	s.predictions.watch.reject = c.Reject
	s.metrics = newMetrics(s)
	s.predictions.refuse, s.predictions.permits, s.predictions.void = s.refuse, s.permits, s.isVoid
	known := false // that the secret is that of the state
	for r, err := range c.Store.All(ctx) {
		if err != nil {
			return nil, fmt.Errorf("reading the round's state: %w", err)
		}
		if r.Gone != nil {
			s.forget(r)
			continue
		}
		if err := s.ofBudget(r); err != nil {
			return nil, err
		}
		if r.Peer != nil && !known {
			if err := s.ofSecret(r); err != nil {
				return nil, err
			}
			known = true
		}
		s.remember(r)
	}
	if err := s.recallSum(ctx); err != nil {
		return nil, fmt.Errorf("reading the round's state: %w", err)
	}
	if err := s.fixQuorum(ctx); err != nil {
		return nil, fmt.Errorf("opening the round: %w", err)
	}
	refusals, err := c.Store.Refusals(ctx)
	if err != nil {
		return nil, fmt.Errorf("reading the round's state: %w", err)
	}
	for _, r := range refusals {
		if s.gone[r.Client] == nil {
			s.refused[r.Client] = r
		} else {
			s.later(c.Store.DropRefusal(ctx, r.Client))
		}
	}
	s.swept = len(s.gone) == 0
	s.later(errors.Join(s.dropEvaluations(ctx), s.sweep(ctx)))
	s.unsure = true
	if err := s.adopt(ctx); err != nil {
		return nil, fmt.Errorf("reading the round's state: %w", err)
	}
	if err := s.heed(ctx); err != nil {
		return nil, err
	}
	if n := len(s.versions); n > 0 && s.otherOptions(s.versions[n-1]) {
		s.warnOptions(s.versions[n-1].Number)
	}
	c.Log.Info("round ready", "round", c.Round.Round, "graph", c.Round.Client.Digest, "clients",
		c.Round.Clients.Len(), "honesty", c.Round.Privacy == nil && !c.Round.Trust, "private",
		c.Round.Privacy != nil, "in", len(s.in), "versions", len(s.versions), "deadline",
		c.Round.Deadline.Time)
	return s, nil
}

// adopt takes versions from the state that the server does not know of, where that may be: at the
// start, and where the answer to the record of a version was lost. The caller holds publishing or
// has exclusive access.
// A file whose digest is not that of its record is an error. A version whose file is missing is one
// too, unless a withdrawn upload is in it.
func (s *Server) adopt(ctx context.Context) error {
	if !s.unsure {
		return nil
	}
	versions, err := s.Store.Versions(ctx)
	if err != nil {
		return err
	}
	if n := len(versions); n > len(s.versions) {
		last := versions[n-1]
		members, err := s.Store.Members(ctx, last.Number)
		if err != nil {
			return err
		}
		data, rows, err := s.Store.Classifier(ctx, last.Number)
		gone := errors.Is(err, store.ErrNone)
		if err == nil && models.DigestBytes(data) != last.Digest {
			err = fmt.Errorf("version %d: its file has another digest than its record: bring "+
				"back a copy of the state, and not of the record of withdrawals beside it",
				last.Number)
		}
		if err != nil && !gone {
			return err
		}
		s.mu.Lock()
		void := s.admit(versions, members)
		s.mu.Unlock()
		if !void || !gone && s.enough() {
			if err == nil {
				err = s.predictions.serve(last, data, rows)
			}
			s.tell(err)
			if gone { // the file is missing; one that the engine does not run is told of alone
				return err
			}
		}
	}
	s.later(errors.Join(s.dropUnlisted(ctx), s.dropVoid(ctx)))
	return nil
}

// dropUnlisted deletes parts of versions that are not listed, where there may be some. The caller
// holds publishing or has exclusive access.
func (s *Server) dropUnlisted(ctx context.Context) error {
	if !s.unsure {
		return nil
	}
	err := s.Store.DropUnlisted(ctx)
	s.unsure = err != nil
	return err
}

// warnOptions says that the latest version was made with other options.
func (s *Server) warnOptions(version int) {
	next := "another one is made"
	if s.once() {
		next = "the budget pays for one classifier, so that it stays as it is"
	}
	s.Log.Warn("the options of pooling are not those of the latest version: "+next,
		"version", version)
}

// admit adds versions of the state to those that are known, of which members are in the last, and
// reports whether it holds an upload that was withdrawn. The caller holds mu.
func (s *Server) admit(versions []store.Version, members []store.Member) (void bool) {
	s.versions, s.made, s.failure = versions, time.Now(), ""
	s.recall(members)
	last := versions[len(versions)-1].Number
	for _, m := range members {
		if gone := s.gone[m.Client]; gone != nil {
			s.supersede(last, gone.Gone.Time)
		}
	}
	_, void = s.void[last]
	return void
}

// ofBudget returns an error if an upload was taken under another budget than the round file states
// by now: a sum of two budgets would have too little noise for one of them.
func (s *Server) ofBudget(r *store.Record) error {
	was, now := r.Receipt.Spent, s.Round.Privacy
	if (was == nil) == (now == nil) && (was == nil || *was == *now) {
		return nil
	}
	say := func(b *privacy.Budget) string {
		if b == nil {
			return "none"
		}
		return b.String()
	}
	return fmt.Errorf("round %d: its privacy budget is %s; that of the upload of %q, by its "+
		"receipt, is %s: put the round file back as it was, or make a round of another number",
		s.Round.Round, say(now), r.Receipt.Client, say(was))
}

// Admit replaces the round's roster. Uploads that are in stay in; clients that the new roster lacks
// can send no more. The quorum stays as it was when the round opened: a roster that is short, by a
// fault or for a moment, closes no round.
func (s *Server) Admit(clients *identity.Roster) {
	s.clients.Store(clients)
	s.Log.Info("roster read again", "clients", clients.Len(), "quorum", s.quorum)
	s.warnRoster(s.Round.CheckRoster(clients))
	if out := s.outside(clients); len(out) > 0 {
		s.Log.Warn("clients whose uploads are in are no longer on the roster: their uploads stay "+
			"in; fmp withdraw takes them out", "clients", len(out), "names",
			out[:min(len(out), maxNamed)])
	}
}

// remember adds a record to the index, unless a newer one of its client is known. The caller holds
// mu or has exclusive access.
func (s *Server) remember(r *store.Record) {
	if s.gone[r.Receipt.Client] != nil || r.Revision < s.in[r.Receipt.Client].revision {
		return
	}
	s.in[r.Receipt.Client] = held{r.Receipt.Upload, r.Revision, r.N, r.Receipt.Time, r.Key}
}

// forget takes a client that withdrew out of the index. The caller holds mu or has exclusive
// access.
func (s *Server) forget(r *store.Record) {
	delete(s.in, r.Receipt.Client)
	delete(s.refused, r.Receipt.Client)
	s.gone[r.Receipt.Client] = r
	for _, v := range r.Gone.Held {
		s.supersede(v, r.Gone.Time)
	}
}

// supersede notes since when a version holds an upload that was withdrawn. The caller holds mu or
// has exclusive access.
func (s *Server) supersede(version int, at time.Time) {
	if since, known := s.void[version]; !known || at.Before(since) {
		s.void[version] = at
	}
}

// records iterates over the uploads that are in, and brings the index to the state: a client
// whose request failed midway may not come again.
func (s *Server) records(ctx context.Context) iter.Seq2[*store.Record, error] {
	return func(yield func(*store.Record, error) bool) {
		for r, err := range s.Store.All(ctx) {
			if err == nil {
				s.mu.Lock()
				switch {
				case r.Gone == nil:
					s.remember(r)
				case s.gone[r.Receipt.Client] == nil: // one that came before may be of it
					s.forget(r)
					s.unerased = true
					s.halt()
				}
				s.mu.Unlock()
			}
			if (err != nil || r.Gone == nil) && !yield(r, err) {
				return
			}
		}
	}
}

// recall records which uploads are in the latest version.
func (s *Server) recall(members []store.Member) {
	s.weighed = map[string]store.Member{}
	for _, m := range members {
		s.weighed[m.Client] = m
	}
}

// Close closes the classifier that makes predictions.
func (s *Server) Close() {
	s.predictions.close()
}

// Handler returns the server's HTTP interface, which openapi.yaml specifies.
// Middleware is, from outside: headers, spans and metrics, the readers' token, the round's number,
// and the query.
func (s *Server) Handler() http.Handler {
	mux := http.NewServeMux()
	for _, r := range s.routes() {
		h := s.predictions.stated(r)
		if strings.Contains(r.pattern, "/{round}") {
			h = s.ofRound(h)
		}
		if r.readers {
			h = s.readers(h)
		}
		mux.Handle(r.pattern, s.observe(r.pattern, h))
	}
	if s.Page != nil {
		mux.Handle("GET /join/", s.observe("GET /join/", s.Page.ServeHTTP))
	}
	return headers(mux)
}

// route is one path of the interface.
type route struct {
	pattern string // method and path
	readers bool   // requires the readers' token
	handle  http.HandlerFunc
}

// queries are the parameters of a route's query. All other routes have none.
var queries = map[string][]string{
	"GET /v1/rounds/{round}/evaluation":      {"version"},
	"GET /v1/rounds/{round}/classifier.onnx": {"version"},
	"GET /metrics":                           {"name[]"}, // of package promhttp
}

// stated passes on requests whose parameters the route states: an answer that passes over one is
// not to the question.
func (p *predictor) stated(of route) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		no := func(detail string, args ...any) {
			if strings.Contains(of.pattern, " /v2") {
				inferError(w, http.StatusBadRequest, detail, args...)
			} else {
				p.refuse(w, wire.BadRequest, detail, args...)
			}
		}
		given, err := url.ParseQuery(r.URL.RawQuery)
		if err != nil {
			no("the query %.80q of the address cannot be read: %v", r.URL.RawQuery, err)
			return
		}
		has := queries[of.pattern]
		for _, name := range slices.Sorted(maps.Keys(given)) {
			if !slices.Contains(has, name) {
				no("%.80q is no parameter of this address, which has %s; leave it out", name,
					cmp.Or(strings.Join(has, ", "), "none"))
				return
			}
		}
		of.handle(w, r)
	}
}

// routes are those of predictions and of the round. Readers' ones need the token. Clients sign
// theirs, and the leader has a token of its own.
func (s *Server) routes() []route {
	return append(s.predictions.routes(), []route{
		{"GET /healthz", false, s.health},
		{"GET /readyz", false, s.ready},
		{"GET /v1/rounds", false, s.rounds},
		{"GET /v1/rounds/{round}", false, s.describe},
		{"GET /v1/rounds/{round}/graph", false, s.graph},
		{"PUT /v1/rounds/{round}/uploads/{client}", false, s.answer(s.upload)},
		{"DELETE /v1/rounds/{round}/uploads/{client}", false, s.answer(s.withdraw)},
		{"GET /v1/rounds/{round}/uploads/{client}/receipt", false, s.answer(s.receipt)},
		{"POST /v1/rounds/{round}/uploads/{client}/proof", false, s.answer(s.peer(s.proof))},
		{"GET /v1/rounds/{round}/sum", false, s.answer(s.peer(s.givenSum))},
		{"POST /v1/rounds/{round}/sum", false, s.answer(s.peer(s.sum))},
		{"GET /v1/rounds/{round}/notice", false, s.notice},
		{"PUT /v1/rounds/{round}/evaluations/{client}", false, s.answer(s.evaluation)},
		{"GET /v1/rounds/{round}/evaluation", true, s.answer(s.evaluations)},
		{"GET /v1/rounds/{round}/status", true, s.status},
		{"GET /v1/rounds/{round}/versions", true, s.listVersions},
		{"GET /v1/rounds/{round}/versions/{version}", true, s.answer(s.version)},
		{"GET /v1/rounds/{round}/classifier.onnx", true, s.answer(s.classifier)},
		{"GET /v1/openapi.yaml", false, s.openAPI},
		{"GET /metrics", true, s.metrics.handler.ServeHTTP},
		{"GET /{$}", true, s.page},
	}...)
}

// headers adds headers that forbid browsers to guess types, to frame the page and to load other
// resources.
func headers(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		h := w.Header()
		h.Set("X-Content-Type-Options", "nosniff")
		h.Set("Content-Security-Policy", "default-src 'none'; style-src 'unsafe-inline'; img-src "+
			"data:; frame-ancestors 'none'; base-uri 'none'; form-action 'none'")
		h.Set("Referrer-Policy", "no-referrer")
		h.Set("Cache-Control", "no-store")
		next.ServeHTTP(w, r)
	})
}

// reply writes a JSON reply.
func reply(w http.ResponseWriter, status int, v any) {
	var body bytes.Buffer
	e := json.NewEncoder(&body)
	e.SetEscapeHTML(false)
	if err := e.Encode(v); err != nil {
		refuse(w, wire.ServerFailed, "the reply is no JSON: %v", err)
		return
	}
	whole(w, status, "application/json", &body)
}

// whole writes an answer with its length, by which its reader has time.
func whole(w http.ResponseWriter, status int, kind string, body *bytes.Buffer) {
	w.Header().Set("Content-Type", kind)
	w.Header().Set("Content-Length", strconv.Itoa(body.Len()))
	w.WriteHeader(status)
	_, _ = body.WriteTo(w) // it fails if the client has gone
}

// refusals are the titles and statuses of refusals, by code.
var refusals = map[string]struct {
	status int
	title  string
}{
	wire.NoKey:        {http.StatusUnauthorized, "The request is not signed"},
	wire.WrongKey:     {http.StatusForbidden, "The signature does not hold"},
	wire.NoToken:      {http.StatusUnauthorized, "Readers alone may read this"},
	wire.NoRound:      {http.StatusNotFound, "No such round"},
	wire.NoReceipt:    {http.StatusNotFound, "No upload of this client is in"},
	wire.NotYet:       {http.StatusNotFound, "No classifier yet"},
	wire.NoVersion:    {http.StatusNotFound, "No such version"},
	wire.OtherUpload:  {http.StatusConflict, "Another upload of this client is in"},
	wire.Withdrawn:    {http.StatusGone, "The client withdrew"},
	wire.NoWithdrawal: {http.StatusConflict, "Nothing can be withdrawn"},
	wire.Superseded:   {http.StatusGone, "The version is superseded"},
	wire.NoShare:      {http.StatusConflict, "No share of this client is there"},
	wire.SumOpened:    {http.StatusConflict, "Another sum was opened"},
	wire.RoundClosed:  {http.StatusGone, "The round is closed"},
	wire.TooLarge:     {http.StatusRequestEntityTooLarge, "Too large"},
	wire.BadUpload:    {http.StatusUnprocessableEntity, "The upload is refused"},
	wire.BadRequest:   {http.StatusBadRequest, "The request cannot be read"},
	wire.Unavailable:  {http.StatusServiceUnavailable, "Come again later"},
	wire.TooSlow:      {http.StatusRequestTimeout, "Too slow"},
	wire.NoSpace:      {http.StatusServiceUnavailable, "The server's disk is full"},
	wire.TooMany:      {http.StatusTooManyRequests, "One at a time"},
	wire.WrongHost:    {http.StatusMisdirectedRequest, "Another server's name"},
	wire.CrossSite:    {http.StatusForbidden, "A page of another site asks"},
	wire.ServerFailed: {http.StatusInternalServerError, "The server failed"},
}

// refuse writes a refusal, and counts it.
func (s *Server) refuse(w http.ResponseWriter, code, detail string, args ...any) {
	s.metrics.refused.WithLabelValues(code).Inc()
	refuse(w, code, detail, args...)
}

// refuse writes a refusal, with Retry-After if the client may try again.
// The status is that of the code, and the detail is for people.
func refuse(w http.ResponseWriter, code, detail string, args ...any) {
	k := refusals[code]
	switch k.status {
	case http.StatusServiceUnavailable, http.StatusTooManyRequests:
		w.Header().Set("Retry-After", "2")
	case http.StatusUnauthorized:
		if code == wire.NoToken {
			w.Header().Set("WWW-Authenticate", `Basic realm="fmp", charset="UTF-8"`)
		} else {
			w.Header().Set("WWW-Authenticate", wire.Scheme)
		}
	}
	w.Header().Set("Content-Type", wire.TypeProblem)
	w.WriteHeader(k.status)
	_ = json.NewEncoder(w).Encode(wire.Problem{Code: code, Title: k.title, Status: k.status,
		Detail: fmt.Sprintf(detail, args...)})
}

// errRefused is the refusal of a request, with its code.
type errRefused struct{ code, detail string }

func (e *errRefused) Error() string { return e.detail }

// refusef returns an errRefused. The detail is one line or more for people.
func refusef(code, detail string, args ...any) error {
	return &errRefused{code, fmt.Sprintf(detail, args...)}
}

// handler answers a request, or returns why it does not: an errRefused, or an error of the store.
type handler func(w http.ResponseWriter, r *http.Request) error

// answer refuses the requests that a handler does not answer, and logs why the store could not
// serve one.
func (s *Server) answer(next handler) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		var no *errRefused
		switch err := next(w, r); {
		case err == nil:
		case errors.As(err, &no):
			s.refuse(w, no.code, "%s", no.detail)
		case errors.Is(err, context.Canceled) && r.Context().Err() != nil: // the client has gone
		default:
			s.Log.Error("request failed", "path", r.URL.Path, "error", err)
			s.unavailable(w, err)
		}
	}
}

// unavailable refuses a request that the store could not serve.
func (s *Server) unavailable(w http.ResponseWriter, err error) {
	if errors.Is(err, store.ErrFull) {
		s.refuse(w, wire.NoSpace,
			"the disk of the server's state is full; nothing that has a receipt is "+
				"lost: send again")
		return
	}
	s.refuse(w, wire.Unavailable, "the store did not answer: send again")
}

// health answers while the program runs, whether or not the store does.
func (s *Server) health(w http.ResponseWriter, _ *http.Request) {
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	fmt.Fprintln(w, "ok")
}

// ready is 503 while uploads cannot be stored. It asks the store for two seconds at most.
func (s *Server) ready(w http.ResponseWriter, r *http.Request) {
	ctx, cancel := context.WithTimeout(r.Context(), 2*time.Second)
	defer cancel()
	if err := s.Store.Ready(ctx); err != nil {
		if !errors.Is(err, store.ErrFull) { // which the store has reported, once
			s.Log.Warn("not ready", "error", err)
		}
		s.unavailable(w, err)
		return
	}
	s.health(w, r)
}
