// Package store stores a round in NATS JetStream: uploads with their receipts, refusals, and the
// versions of the classifier. When a method that writes returns, the data are on disk. The NATS
// server is embedded in the program, or external and reached by URL.
package store

import (
	"cmp"
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"iter"
	"log/slog"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
)

const (
	// maxClassifier and maxMembers bound the parts of a version.
	maxClassifier, maxMembers = 2 << 30, 512 << 20
	// headBytes is the room for a record besides its upload: a receipt, a part of a proof of two
	// servers, and the digests of some hundred uploads that were replaced.
	headBytes = 64 << 10
	// patience is the timeout of the servers' answers if the caller sets no deadline: a disk may be
	// busy for long.
	patience = 30 * time.Second
	// Codes of errors of a NATS server without space.
	insufficientResources, storageExceeded jetstream.ErrorCode = 10023, 10047
)

// Options configure a store.
type Options struct {
	// Dir is the folder of the embedded server.
	Dir string
	// Listen is the loopback address on which the embedded server accepts workers, with Token;
	// empty: it accepts none.
	Listen, Token string
	// Sync makes every write wait until the data are on the disk and not only in the system's
	// cache: a receipt then survives a power failure and not just a crash of the program.
	Sync bool
	// Largest is the size of the largest upload: fewer bytes free on the disk, and a little more,
	// and the state is full. External servers must take it in one message. LowSpace is the number
	// of free bytes below which the disk is low on space. Log reports both.
	Largest, LowSpace int64
	Log               *slog.Logger
	// URL, in place of Dir, is the comma-separated URLs of external NATS servers; Credentials is an
	// account's credentials file (.creds), CA a file of certificates to trust. Replicas is the
	// number of servers that store each write: 1 to 5, default 1.
	URL, Credentials, CA string
	Replicas             int
}

// Store is the state of a round. It is safe for concurrent use.
type Store struct {
	conn     *nats.Conn
	js       jetstream.JetStream
	inside   *embedded // nil with external servers
	name     string
	uploads  bucket
	refused  bucket
	versions jetstream.KeyValue
	objects  jetstream.ObjectStore
	parts    jetstream.Stream // the messages of objects
	replicas int
	largest  int64  // bytes of an upload
	hold     *hold  // nil: this process has no hold on the state, or the folder's lock is enough
	release  func() // gives up the record of the hold; nil: there is none
	opened   time.Time
	left     atomic.Bool // an erasure did not get to its end
}

// ErrBusy means that another process works on the state.
var ErrBusy = errors.New("another fmp serve is at work on this state")

// Name returns the name of a round's state: rounds of the same number with different client graphs
// have different states.
func Name(round uint64, graph string) string {
	return fmt.Sprintf("fmp-%d-%.16s", round, graph)
}

// Open starts or connects to the server and creates the round's buckets if they do not exist.
// The embedded server locks its folder: a second process gets ErrBusy. External servers are shared,
// and [Store.Hold] keeps two processes apart.
func Open(ctx context.Context, name string, o Options) (*Store, error) {
	o.Replicas = cmp.Or(o.Replicas, 1)
	s := &Store{name: name, replicas: o.Replicas, largest: o.Largest, opened: time.Now()}
	var err error
	if o.URL == "" {
		err = s.start(o)
	} else if s.conn, err = Connect(o, "fmp serve"); err == nil {
		err = s.fits(o)
	}
	if err != nil {
		err = fmt.Errorf("store: %w", err)
	} else {
		err = s.open(ctx)
	}
	if err != nil {
		return nil, errors.Join(err, s.Close())
	}
	return s, nil
}

// fits returns an error if a record with the largest upload is beyond one message of the servers:
// no retry of its client would ever store it.
func (s *Store) fits(o Options) error {
	if most := s.conn.MaxPayload(); most < o.Largest+headBytes {
		return fmt.Errorf("NATS servers %s: messages have at most %d bytes, and an upload of %d "+
			"takes %d: raise max_payload of the servers (docs/federate.md), or lower "+
			"bounds.bytes of the round", Redact(o.URL), most, o.Largest, o.Largest+headBytes)
	}
	return nil
}

// Attach uses the buckets of a round, which [Open] made, on an existing connection, which Close
// then closes.
func Attach(ctx context.Context, conn *nats.Conn, name string, replicas int) (*Store, error) {
	s := &Store{conn: conn, name: name, replicas: replicas}
	err := s.dial()
	if err == nil {
		err = s.bind(ctx, false)
	}
	return s, err
}

// start runs the embedded NATS server and connects to it.
func (s *Store) start(o Options) (err error) {
	if s.inside, err = newEmbedded(o); err != nil {
		return err
	}
	opts := []nats.Option{nats.InProcessServer(s.inside), nats.Name("fmp serve"),
		nats.MaxReconnects(-1), nats.ReconnectWait(50 * time.Millisecond)}
	if o.Token != "" {
		opts = append(opts, nats.Token(o.Token))
	}
	if s.conn, err = nats.Connect("", opts...); err != nil {
		return fmt.Errorf("NATS: %w", err)
	}
	return nil
}

// listens reports whether processes elsewhere reach the embedded server.
func (s *Store) listens() bool { return s.inside != nil && !s.inside.options.DontListen }

// Close gives up the hold on the state, closes the connection, and stops the embedded server if
// there is one.
func (s *Store) Close() error {
	if s.release != nil {
		s.release()
	}
	if s.conn != nil {
		s.conn.Close()
	}
	if s.inside != nil {
		s.inside.close()
	}
	return nil
}

// Conn returns the connection, for job queues on the same servers ([Attach]).
func (s *Store) Conn() *nats.Conn { return s.conn }

// Name returns the name of the round's state.
func (s *Store) Name() string { return s.name }

// Replicas returns the number of servers that store each write.
func (s *Store) Replicas() int { return s.replicas }

// Space returns the space on the disk of the state, as it was last looked at; with external servers
// it is not known.
func (s *Store) Space() Space {
	if s.inside == nil {
		return Space{Free: -1}
	}
	s.inside.mu.Lock()
	defer s.inside.mu.Unlock()
	space := s.inside.space
	space.Full = space.Full || errors.Is(s.inside.fault, ErrFull) // a quota leaves space free
	return space
}

// Room returns an error if an upload of the largest size cannot be stored now: ErrFull if the disk
// is full.
func (s *Store) Room() error {
	if s.inside == nil {
		return nil
	}
	if err := s.inside.room(s.inside.largest); err != nil {
		return fmt.Errorf("store: %w", err)
	}
	return nil
}

// write calls a function that stores that number of bytes. It returns at once if there is no room,
// and if the embedded server stops writing meanwhile; in that case it is not known whether the
// bytes were stored. With external servers it fails where another process has the state. A caller
// must treat an error as either outcome: it reads the state, or writes the same once more.
func (s *Store) write(ctx context.Context, bytes int64, do func(ctx context.Context) error) error {
	if s.inside == nil {
		if err := s.hold.check(ctx); err != nil {
			return err
		}
		if err := full(do(ctx)); err != nil {
			return err
		}
		return s.hold.check(ctx) // it may have stood still meanwhile
	}
	if err := s.inside.room(bytes); err != nil {
		return err
	}
	ctx, cancel := s.inside.during(ctx)
	defer cancel()
	err := do(ctx)
	if err == nil {
		return s.inside.kept() // it may have been removed meanwhile
	}
	if errors.Is(context.Cause(ctx), errStopped) {
		err = errStopped
	}
	return full(err)
}

// full adds ErrFull to the answer of a NATS server without space.
func full(err error) error {
	var api *jetstream.APIError
	if errors.As(err, &api) &&
		(api.ErrorCode == insufficientResources || api.ErrorCode == storageExceeded) {
		return fmt.Errorf("%w: %w", ErrFull, err)
	}
	return err
}

// Ready returns an error if uploads cannot be stored: the servers do not answer or do not store, or
// the disk is full.
func (s *Store) Ready(ctx context.Context) error {
	if err := s.Room(); err != nil {
		return err
	}
	if !s.conn.IsConnected() {
		return fmt.Errorf("store: NATS is %v", s.conn.Status())
	}
	// a server that has lost the others of its cluster still answers
	if s.hold != nil && s.hold.silent() {
		return fmt.Errorf("store: the NATS servers have stored nothing for %v", s.hold.silence())
	}
	_, err := s.uploads.Status(ctx)
	if err != nil {
		return fmt.Errorf("store: %w", err)
	}
	return nil
}

// key encodes a client's name as a valid key: NATS takes neither spaces nor most other characters
// in one. Its Base64 is of the form for URLs, and reversible.
func key(client string) string { return base64.RawURLEncoding.EncodeToString([]byte(client)) }

// silences is the number of times in a row that each asks in vain; quiet is the time that it waits
// for an entry.
const silences = 6

var quiet = 10 * time.Second

// each iterates over the entries of a bucket, in no particular order. A cluster that loses a server
// may let a watch wait for ever: the entries after the last one that arrived are then asked for
// again.
func each(ctx context.Context, kv jetstream.KeyValue) iter.Seq2[jetstream.KeyValueEntry, error] {
	return func(yield func(jetstream.KeyValueEntry, error) bool) {
		var last uint64 // revision
		for silent := 0; silent < silences; {
			before := last
			done, err := watch(ctx, kv, &last, yield)
			if done {
				return
			}
			if err = cmp.Or(ctx.Err(), err); err != nil {
				yield(nil, fmt.Errorf("store: reading %s: %w", kv.Bucket(), err))
				return
			}
			silent++
			if last > before {
				silent = 0
			}
		}
		yield(nil, fmt.Errorf("store: reading %s: the servers sent nothing for %v", kv.Bucket(),
			silences*quiet))
	}
}

// watch yields the entries after a revision, which it keeps at the last one it yielded. It reports
// whether there are no more, or the caller wants no more; false without an error is a silence.
func watch(ctx context.Context, kv jetstream.KeyValue, last *uint64,
	yield func(jetstream.KeyValueEntry, error) bool) (done bool, err error) {
	within, cancel := context.WithCancel(ctx)
	defer cancel()
	silence := time.AfterFunc(quiet, cancel)
	defer silence.Stop()
	opts := []jetstream.WatchOpt{jetstream.IgnoreDeletes()}
	again := *last > 0
	if again {
		opts = append(opts, jetstream.ResumeFromRevision(*last+1))
	}
	w, err := kv.WatchAll(within, opts...)
	if within.Err() != nil && err != nil {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	defer w.Stop()
	for {
		select {
		case e, open := <-w.Updates():
			if open && e == nil { // all entries were read
				return true, nil
			}
			if !open { // the connection ended
				return false, nil
			}
			silence.Stop()
			// a start by revision also gives values that were replaced and are not erased yet
			if again {
				newest, err := kv.Get(within, e.Key())
				if within.Err() != nil {
					return false, nil
				}
				if err != nil && !errors.Is(err, jetstream.ErrKeyNotFound) {
					return false, err
				}
				if err != nil || newest.Revision() != e.Revision() {
					*last = e.Revision()
					silence.Reset(quiet)
					continue
				}
			}
			if !yield(e, nil) {
				return true, nil
			}
			*last = e.Revision()
			silence.Reset(quiet)
		case <-within.Done():
			return false, nil
		}
	}
}
