// Package service is a round of a federation over HTTP: it says what to compute, takes one signed upload of each client of the
// roster, keeps it, gives a signed receipt, pools what is in at quorum and at the deadline, and serves the classifier.
package service

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	"fmp/onnx/engine"
	"fmp/pipeline/federate"
	"fmp/pipeline/federate/identity"
	"fmp/pipeline/federate/round"
	"fmp/pipeline/federate/store"
	"fmp/pipeline/federate/wire"
	"fmp/pipeline/pool"
	"fmp/pipeline/privacy"
)

// Pooled is what pooling makes of uploads.
type Pooled struct {
	// Classifier is classifier.onnx, Rows its smaller form, which takes feature rows.
	Classifier, Rows []byte
	// Honest is the probability that each upload is what its client computed from images of the classes that it names; nil
	// where it was not asked.
	Honest []float64
	// Summary is for the status page and the version's record: whatever can be written as JSON.
	Summary any
}

// Config is what a server is made of.
type Config struct {
	Round *round.Round
	// Key signs receipts.
	Key   *identity.Key
	Store *store.Store
	// Pool makes the classifier of uploads, which are in the order of their clients' names.
	Pool func(ctx context.Context, uploads []pool.Upload) (*Pooled, error)
	// Private is Pool of a private round. Where that has two servers the releases hold no sums, and open, which is nil elsewhere, returns the noisy one.
	Private func(ctx context.Context, releases []pool.Release, open func() (*privacy.Release, error)) (*Pooled, error)
	// Secret is what the two servers of a private round both know, and clients do not. Helper is the other one, at the leader; nil at the helper.
	Secret string
	Helper *Helper
	// Check, where there is one, refuses an upload that Decode and the round's bounds let through.
	Check func(*federate.Upload) error
	// Engine makes predictions; nil: there are none.
	Engine engine.Engine
	// Token lets readers see the status, the classifier and predictions; empty: everybody may.
	Token string
	Log   *slog.Logger
	// Now is the time; default time.Now.
	Now func() time.Time
}

// maxInFlight bounds the uploads that are read at once, and with the round's bound on their bytes the memory they take.
const maxInFlight = 128

// Server answers the requests of one round.
type Server struct {
	Config
	metrics *metrics
	clients atomic.Pointer[identity.Roster]
	slots   chan struct{}
	wake    chan struct{} // something came in

	mu       sync.Mutex
	in       map[string]held   // by client
	payloads map[string]string // digest of the payload: client
	busy     map[string]bool   // clients whose upload is being taken
	refused  map[string]store.Refusal
	versions []store.Version
	pooled   map[string]string // client: upload, in the last version
	honest   map[string]float64
	failure  string // why the last pooling failed; empty where it did not
	settled  bool   // in a round of one classifier: who is in it; nothing more is taken
	opening  sync.RWMutex

	serving *served // the classifier of the last version
}

// held is what is remembered of an upload that is in.
type held struct {
	upload   string // digest of the message
	payload  string
	revision uint64
	n        int
	time     time.Time
}

// New reads what the store holds of the round and is ready to serve.
func New(ctx context.Context, c Config) (*Server, error) {
	if c.Now == nil {
		c.Now = time.Now
	}
	s := &Server{Config: c, slots: make(chan struct{}, maxInFlight), wake: make(chan struct{}, 1), in: map[string]held{}, payloads: map[string]string{},
		busy: map[string]bool{}, refused: map[string]store.Refusal{}}
	s.clients.Store(c.Round.Clients)
	s.metrics = newMetrics(s)
	for r, err := range c.Store.Records(ctx) {
		if err != nil {
			return nil, fmt.Errorf("reading the round's state: %w", err)
		}
		s.remember(r)
	}
	if err := s.recallSum(ctx); err != nil {
		return nil, fmt.Errorf("reading the round's state: %w", err)
	}
	refusals, err := c.Store.Refusals(ctx)
	if err != nil {
		return nil, fmt.Errorf("reading the round's state: %w", err)
	}
	for _, r := range refusals {
		s.refused[r.Client] = r
	}
	if s.versions, err = c.Store.Versions(ctx); err != nil {
		return nil, fmt.Errorf("reading the round's state: %w", err)
	}
	if n := len(s.versions); n > 0 {
		members, err := c.Store.Members(ctx, s.versions[n-1].Number)
		if err != nil {
			return nil, fmt.Errorf("reading the round's state: %w", err)
		}
		s.recall(members)
		data, rows, err := c.Store.Classifier(ctx, s.versions[n-1].Number)
		if err != nil {
			return nil, fmt.Errorf("reading the round's state: %w", err)
		}
		if err := s.serve(s.versions[n-1], data, rows); err != nil {
			return nil, err
		}
	}
	c.Log.Info("round ready", "round", c.Round.Round, "graph", c.Round.Client.Digest, "clients", c.Round.Clients.Len(), "honesty", *c.Round.Honesty, "private", c.Round.Privacy != nil, "in", len(s.in), "versions", len(s.versions), "deadline", c.Round.Deadline)
	return s, nil
}

// Admit puts another roster in place of the round's. What is in stays in, whoever sent it; who is not in the new one can send no more.
func (s *Server) Admit(clients *identity.Roster) error {
	if err := s.Round.Suits(clients); err != nil {
		return err
	}
	s.clients.Store(clients)
	s.Log.Info("roster read again", "clients", clients.Len())
	select {
	case s.wake <- struct{}{}: // the quorum may be another
	default:
	}
	return nil
}

// quorum is how many uploads the first classifier is made of.
func (s *Server) quorum() int { return s.Round.Enough(s.clients.Load().Len()) }

// remember puts a record into the index. The caller holds mu, or is alone.
func (s *Server) remember(r *store.Record) {
	if old, ok := s.in[r.Receipt.Client]; ok {
		delete(s.payloads, old.payload)
	}
	s.in[r.Receipt.Client] = held{r.Receipt.Upload, r.Payload, r.Revision, r.N, r.Receipt.Time}
	s.payloads[r.Payload] = r.Receipt.Client
}

// recall notes who is in the last version.
func (s *Server) recall(members []store.Member) {
	s.pooled, s.honest = map[string]string{}, map[string]float64{}
	for _, m := range members {
		s.pooled[m.Client], s.honest[m.Client] = m.Upload, m.Honest
	}
}

// Close releases the classifier that predictions are made with.
func (s *Server) Close() {
	s.mu.Lock()
	last := s.serving
	s.serving = nil
	s.mu.Unlock()
	if last != nil {
		last.close()
	}
}

// Handler is the server's HTTP interface; openapi.yaml states it.
func (s *Server) Handler() http.Handler {
	mux := http.NewServeMux()
	for _, r := range s.routes() {
		h := r.handle
		if r.readers {
			h = s.readers(h)
		}
		mux.Handle(r.pattern, s.observe(r.pattern, h))
	}
	return headers(mux)
}

// route is one path of the interface.
type route struct {
	pattern string // method and path
	readers bool   // wants the readers' token
	handle  http.HandlerFunc
}

func (s *Server) routes() []route {
	return []route{
		{"GET /healthz", false, s.health},
		{"GET /readyz", false, s.ready},
		{"GET /v1/rounds", false, s.rounds},
		{"GET /v1/rounds/{round}", false, s.describe},
		{"GET /v1/rounds/{round}/graph", false, s.graph},
		{"PUT /v1/rounds/{round}/uploads/{client}", false, s.upload},
		{"GET /v1/rounds/{round}/uploads/{client}/receipt", false, s.receipt},
		{"POST /v1/rounds/{round}/uploads/{client}/proof", false, s.peer(s.proof)},
		{"POST /v1/rounds/{round}/sum", false, s.peer(s.sum)},
		{"GET /v1/rounds/{round}/status", true, s.status},
		{"GET /v1/rounds/{round}/versions", true, s.listVersions},
		{"GET /v1/rounds/{round}/versions/{version}", true, s.version},
		{"GET /v1/rounds/{round}/classifier.onnx", true, s.classifier},
		{"POST /v1/predict", true, s.predict},
		{"GET /v2", true, s.inferServer},
		{"GET /v2/health/live", false, s.inferLive},
		{"GET /v2/health/ready", false, s.inferReady},
		{"GET /v2/models/classifier", true, s.inferModel},
		{"GET /v2/models/classifier/ready", false, s.inferReady},
		{"POST /v2/models/classifier/infer", true, s.infer},
		{"GET /v1/openapi.yaml", false, s.openAPI},
		{"GET /metrics", true, s.metrics.handler.ServeHTTP},
		{"GET /{$}", true, s.page},
	}
}

// headers keep browsers from guessing, framing and fetching.
func headers(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		h := w.Header()
		h.Set("X-Content-Type-Options", "nosniff")
		h.Set("Content-Security-Policy", "default-src 'none'; style-src 'unsafe-inline'; frame-ancestors 'none'; base-uri 'none'; form-action 'none'")
		h.Set("Referrer-Policy", "no-referrer")
		h.Set("Cache-Control", "no-store")
		next.ServeHTTP(w, r)
	})
}

// reply writes JSON.
func reply(w http.ResponseWriter, status int, v any) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	e := json.NewEncoder(w)
	e.SetEscapeHTML(false)
	_ = e.Encode(v) // the client has gone where it fails
}

// titles of refusals, and their statuses.
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
	wire.NoShare:      {http.StatusConflict, "No share of this client is there"},
	wire.SumOpened:    {http.StatusConflict, "Another sum was opened"},
	wire.RoundClosed:  {http.StatusGone, "The round is closed"},
	wire.TooLarge:     {http.StatusRequestEntityTooLarge, "Too large"},
	wire.BadUpload:    {http.StatusUnprocessableEntity, "The upload is refused"},
	wire.BadRequest:   {http.StatusBadRequest, "The request cannot be read"},
	wire.Unavailable:  {http.StatusServiceUnavailable, "Come again later"},
	wire.TooMany:      {http.StatusTooManyRequests, "One at a time"},
	wire.ServerFailed: {http.StatusInternalServerError, "The server failed"},
}

// refuse writes a refusal, after at most so many seconds of which a client may come again.
func (s *Server) refuse(w http.ResponseWriter, code, detail string, args ...any) {
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
	s.metrics.refused.WithLabelValues(code).Inc()
	w.Header().Set("Content-Type", wire.TypeProblem)
	w.WriteHeader(k.status)
	_ = json.NewEncoder(w).Encode(wire.Problem{Code: code, Title: k.title, Status: k.status, Detail: fmt.Sprintf(detail, args...)})
}

// fail writes that the server could not do it, and logs why.
func (s *Server) fail(w http.ResponseWriter, r *http.Request, err error) {
	if errors.Is(err, context.Canceled) && r.Context().Err() != nil {
		return // the client has gone
	}
	s.Log.Error("request failed", "path", r.URL.Path, "error", err)
	s.refuse(w, wire.Unavailable, "the store did not answer; nothing was lost, send again")
}

func (s *Server) health(w http.ResponseWriter, _ *http.Request) {
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	fmt.Fprintln(w, "ok")
}

func (s *Server) ready(w http.ResponseWriter, r *http.Request) {
	ctx, cancel := context.WithTimeout(r.Context(), 2*time.Second)
	defer cancel()
	if err := s.Store.Ready(ctx); err != nil {
		s.Log.Warn("not ready", "error", err)
		s.refuse(w, wire.Unavailable, "the store does not answer")
		return
	}
	s.health(w, r)
}
