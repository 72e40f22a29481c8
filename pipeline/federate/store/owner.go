package store

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats.go/jetstream"
)

// owner says whose state it is: uploads of one server's clients are never another server's.
type owner struct {
	Server string `json:"server"` // public key, for good
	// Holder is the process that works on the state, or inFolder; empty: none does, or the state is
	// in a locked folder that nobody else reaches.
	Holder string `json:"holder,omitempty"`
}

const ownerKey = "owner"

// inFolder is the holder of a state in a folder whose server lets others in. Processes elsewhere
// read it while that server runs alone: it needs no renewal, which a full disk would prevent.
const inFolder = "folder"

// errFolder refuses a process that comes to such a state from outside.
var errFolder = fmt.Errorf("%w, in its folder (--nats-listen, which is for workers): end it first; "+
	"one that was killed releases the state once it is started and stopped", ErrBusy)

// renewEvery is the interval at which a hold is renewed, holdFor the time without a renewal after
// which another process may take it. Clocks of two machines are never compared.
var renewEvery, holdFor = 2 * time.Second, 12 * time.Second

// hold is a process's hold on a state that other processes reach: a record of the owner that one
// process alone can renew. NATS takes a write of it only in place of the revision that the writer
// knows. Of two processes that write at once, one thus learns that it has lost.
type hold struct {
	kv       jetstream.KeyValue
	mine     owner
	mu       sync.Mutex // held by writes
	revision uint64
	renewed  atomic.Pointer[time.Time] // before the last write that succeeded
	stored   atomic.Pointer[time.Time] // after it
	every    time.Duration             // renewals
	end      context.CancelFunc
	ended    chan struct{}
}

// Hold claims the state for the server of a public key, for good, and for this process until Close.
// A state of another server is refused, and one on which another process works is ErrBusy. The
// channel tells that another process took the state, as it may while this one cannot renew its
// hold.
func (s *Store) Hold(ctx context.Context, server string, log *slog.Logger) (<-chan error, error) {
	lost := make(chan error, 1)
	h := &hold{mine: owner{Server: server}, every: renewEvery, ended: make(chan struct{})}
	switch {
	case s.inside == nil:
		h.mine.Holder = rand.Text()
	case s.listens():
		h.mine.Holder = inFolder
	}
	if err := s.claim(ctx, h, log); err != nil {
		return nil, fmt.Errorf("store: state %s: %w", s.name, err)
	}
	if s.inside != nil {
		if s.listens() {
			s.release = h.free
		}
		return lost, nil
	}
	var within context.Context
	within, h.end = context.WithCancel(context.WithoutCancel(ctx))
	s.hold, s.release = h, h.release
	go h.renew(within, func(err error) { lost <- fmt.Errorf("store: state %s: %w", s.name, err) })
	return lost, nil
}

// claim writes the owner where none is recorded, and takes the hold.
// On a full disk a state without an owner is served without a record of one, where nobody else
// reaches it.
func (s *Store) claim(ctx context.Context, h *hold, log *slog.Logger) (err error) {
	bucket := s.name + "-owner"
	h.kv, err = s.js.CreateOrUpdateKeyValue(ctx,
		jetstream.KeyValueConfig{Bucket: bucket, History: 1,
			Storage: jetstream.FileStorage, Replicas: s.replicas})
	full := s.Room() != nil // which keeps no server from starting
	if err != nil && full {
		h.kv, err = s.js.KeyValue(ctx, bucket)
	}
	var was owner
	if err == nil {
		was, err = h.read(ctx)
	}
	if errors.Is(err, jetstream.ErrKeyNotFound) || full && h.mine.Holder == "" &&
		errors.Is(err, jetstream.ErrBucketNotFound) {
		err = s.unclaimed(ctx, h.mine.Server)
		if err == nil && (!full || h.mine.Holder != "") {
			err = h.write(ctx, h.mine)
		}
		return err
	}
	if err != nil {
		return errors.Join(err, s.Room())
	}
	if was.Server != h.mine.Server {
		return otherServer(was.Server, h.mine.Server)
	}
	if h.mine.Holder == was.Holder {
		return nil
	}
	if h.mine.Holder == "" { // nobody else reaches the state: one that held it before has lost it
		if err := h.write(ctx, h.mine); err != nil && !full {
			return err
		}
		return nil
	}
	if was.Holder == inFolder {
		return errFolder
	}
	if err := h.wait(ctx, was, log); err != nil {
		return err
	}
	return h.write(ctx, h.mine)
}

// unclaimed returns an error if receipts of a state without a record of its owner are another
// server's: version 0.1.0 recorded none.
func (s *Store) unclaimed(ctx context.Context, server string) error {
	for r, err := range s.All(ctx) {
		if err != nil {
			return err
		}
		// the note of a withdrawn refusal had no server in 0.1.0
		if r.Receipt.Server != "" && r.Receipt.Server != server {
			return otherServer(r.Receipt.Server, server)
		}
	}
	return nil
}

// otherServer is the refusal of a state whose receipts another key signed.
func otherServer(was, is string) error {
	return fmt.Errorf("it is of the server with the key %s, and this one's is %s: bring "+
		"back that one's server.key, or give the round another number", was, is)
}

// ErrGraph means that the round has uploads of another client graph.
var ErrGraph = errors.New("a round keeps its client graph")

// Alone returns an error of [ErrGraph] where the round has uploads of another client graph that
// this server took, or keeps in quarantine. Nobody could withdraw them, as clients speak to the
// graph that is served. It lists the streams of the servers, and reads the uploads of such a graph.
func (s *Store) Alone(ctx context.Context, round uint64, server string) error {
	var graphs []string // all of them before one is read: one deadline bounds the listing
	names := s.js.StreamNames(ctx)
	for name := range names.Name() {
		graph, is := strings.CutPrefix(name, fmt.Sprintf("KV_fmp-%d-", round))
		graph, of := strings.CutSuffix(graph, "-uploads")
		if is && of && Name(round, graph) != s.name {
			graphs = append(graphs, graph)
		}
	}
	if err := names.Err(); err != nil {
		return fmt.Errorf("store: listing the rounds: %w", err)
	}
	for _, graph := range graphs {
		other := &Store{conn: s.conn, js: s.js, name: Name(round, graph)}
		n, err := other.taken(ctx, server)
		if err != nil {
			return fmt.Errorf("store: state %s: %w", other.name, err)
		}
		if n > 0 {
			return fmt.Errorf("store: %w: round %d has uploads of the client graph %s, %d in all: put "+
				"that graph back, or give this one a round of another number", ErrGraph, round, graph, n)
		}
	}
	return nil
}

// taken counts the uploads that are in and of which a server gave the receipts, and those in
// quarantine where the state is recorded as the server's.
func (s *Store) taken(ctx context.Context, server string) (n int, err error) {
	if s.uploads, err = s.bindBucket(ctx, s.name+"-uploads"); err != nil {
		return 0, err
	}
	for r, err := range s.All(ctx) {
		if err != nil {
			return 0, err
		}
		if r.Gone == nil && r.Receipt.Server == server {
			n++
		}
	}
	refused, err := s.quarantined(ctx, server)
	return n + refused, err
}

// quarantined counts the refused uploads that are kept, where the state is recorded as a server's.
func (s *Store) quarantined(ctx context.Context, server string) (int, error) {
	var h hold
	var of owner
	var all []Refusal
	var err error
	if h.kv, err = s.js.KeyValue(ctx, s.name+"-owner"); err == nil {
		of, err = h.read(ctx)
	}
	if err == nil && of.Server == server {
		if s.refused, err = s.bindBucket(ctx, s.name+"-refused"); err == nil {
			all, err = s.Refusals(ctx)
		}
	}
	if errors.Is(err, jetstream.ErrBucketNotFound) || errors.Is(err, jetstream.ErrKeyNotFound) {
		return 0, nil // a start that ended before it made them
	}
	return len(all), err
}

// wait returns once no process has the hold: it was given up, or was not renewed for a while. A
// revision that grows meanwhile is a renewal, and ErrBusy. Time is this process's own, from its
// first look on, so that two machines need no common clock.
func (h *hold) wait(ctx context.Context, was owner, log *slog.Logger) (err error) {
	since, first := time.Now(), h.revision
	if was.Holder != "" {
		log.Info("the state's last server did not end by itself, or is at work: waiting", "seconds",
			holdFor.Seconds())
	}
	for was.Holder != "" && time.Since(since) < holdFor {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(h.every / 2):
		}
		if was, err = h.read(ctx); err != nil {
			return err
		}
		if was.Holder != "" && h.revision > first {
			return ErrBusy
		}
	}
	return nil
}

// read reads the owner, and its revision.
func (h *hold) read(ctx context.Context) (o owner, err error) {
	e, err := h.kv.Get(ctx, ownerKey)
	if err != nil {
		return o, err
	}
	h.revision = e.Revision()
	return o, json.Unmarshal(e.Value(), &o)
}

// write writes the owner in place of the revision that was read or written last. A second attempt
// is for a write of this process whose answer was lost.
func (h *hold) write(ctx context.Context, o owner) error {
	text, err := json.Marshal(o)
	if err != nil {
		return err
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	for range 2 {
		start := time.Now()
		var revision uint64
		if h.revision == 0 { // also in place of one that was removed
			revision, err = h.kv.Create(ctx, ownerKey, text)
		} else {
			revision, err = h.kv.Update(ctx, ownerKey, text, h.revision)
		}
		if err == nil {
			h.revision = revision
			end := time.Now()
			h.renewed.Store(&start)
			h.stored.Store(&end)
			return nil
		}
		if !conflict(err) {
			return err
		}
		before := h.revision
		now, failed := h.read(ctx)
		if errors.Is(failed, jetstream.ErrKeyNotFound) {
			return errRemoved
		}
		if failed != nil {
			return failed
		}
		if now.Holder != h.mine.Holder || now.Server != h.mine.Server {
			h.revision = before // a later write of this process is no better
			return ErrBusy
		}
	}
	return err
}

// errRemoved means that somebody removed the record of the owner from the NATS servers.
var errRemoved = errors.New("the record of its owner was removed: start fmp serve again")

// check returns an error unless this process has the hold. A process that stood still has it
// renewed first: another one may have taken it.
func (h *hold) check(ctx context.Context) error {
	if h == nil || !h.late() {
		return nil
	}
	return h.write(ctx, h.mine)
}

// late reports whether the hold was not renewed for so long that it may soon be another's: half of
// holdFor leaves the other half to a write that is under way. The
// monotonic clock stands still while the machine sleeps, and the other one may be put back.
func (h *hold) late() bool {
	then, now := *h.renewed.Load(), time.Now()
	return max(now.Sub(then), now.Round(0).Sub(then.Round(0))) > holdFor/2
}

// silence is the longest time between two renewals that a slow disk may take.
func (h *hold) silence() time.Duration { return h.every + holdFor/2 }

// silent reports whether no renewal was stored for longer than that.
func (h *hold) silent() bool { return time.Since(*h.stored.Load()) > h.silence() }

// renew renews the hold until the context ends, or another process has it.
// A renewal that fails otherwise is tried again at the next interval; [hold.check] holds writes
// back meanwhile.
func (h *hold) renew(ctx context.Context, lost func(error)) {
	defer close(h.ended)
	for {
		select {
		case <-ctx.Done():
			return
		case <-time.After(h.every):
		}
		within, cancel := context.WithTimeout(ctx, holdFor/2)
		err := h.write(within, h.mine)
		cancel()
		if errors.Is(err, ErrBusy) || errors.Is(err, errRemoved) {
			lost(err)
			return
		}
	}
}

// release gives up the hold, so that the next server need not wait.
func (h *hold) release() {
	h.end()
	<-h.ended
	h.free()
}

// free writes that nobody has the hold.
func (h *hold) free() {
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Second)
	defer cancel()
	_ = h.write(ctx, owner{Server: h.mine.Server}) // otherwise the next one waits
}
