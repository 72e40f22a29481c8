// Package store stores a round in NATS JetStream: uploads with their receipts, refusals, and the
// versions of the classifier. When a method that writes returns, the data are on disk. The NATS
// server is embedded in the program, or external and reached by URL.
package store

import (
	"bytes"
	"cmp"
	"context"
	"crypto/sha256"
	"crypto/tls"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"iter"
	"log/slog"
	"net"
	"net/url"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"fmp/onnx/sorting"
	"fmp/pipeline/federate/identity"
	"fmp/pipeline/federate/loopback"
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
	largest  int64 // bytes of an upload
	hold     *hold // nil: this process has no hold on the state, or the folder's lock is enough
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

func (s *Store) dial() (err error) {
	if s.js, err = jetstream.New(s.conn, jetstream.WithDefaultTimeout(patience)); err != nil {
		return fmt.Errorf("store: %w", err)
	}
	return nil
}

// open creates the buckets if they do not exist, and ends the deletions that were left midway.
// Servers of a cluster that have no peers for a bucket yet are asked again for half a minute. On a
// full disk it opens the buckets that are there, and leaves erasing for later.
func (s *Store) open(ctx context.Context) error {
	if err := s.dial(); err != nil {
		return err
	}
	err := s.bind(ctx, true)
	for end := time.Now().Add(patience); isUnplaced(err) && time.Now().Before(end); {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(placementWait):
		}
		err = s.bind(ctx, true)
	}
	if err == nil {
		if err = unlessFull(s.discardRest(ctx, s.opened)); err != nil {
			err = fmt.Errorf("store: bucket %s-objects: %w", s.name, err)
		}
	}
	// on a full disk the buckets that are there serve their values
	if full := s.Room(); err != nil && full != nil {
		if s.bind(ctx, false) == nil {
			s.left.Store(true) // nothing was looked for
			err = nil
		} else {
			err = errors.Join(err, full)
		}
	}
	if err == nil && s.inside != nil {
		err = s.inside.holdStream("KV_" + s.uploads.Bucket())
	}
	return err
}

// bind uses the buckets that are there; create makes those that are not.
func (s *Store) bind(ctx context.Context, create bool) (err error) {
	bucketOf, keyValue, objectStore := s.bindBucket, s.js.KeyValue, s.js.ObjectStore
	if create {
		bucketOf = s.openBucket
		keyValue = func(ctx context.Context, name string) (jetstream.KeyValue, error) {
			return s.js.CreateOrUpdateKeyValue(ctx,
				jetstream.KeyValueConfig{Bucket: name, History: 1,
					Storage: jetstream.FileStorage, Replicas: s.replicas})
		}
		objectStore = func(ctx context.Context, name string) (jetstream.ObjectStore, error) {
			return s.js.CreateOrUpdateObjectStore(ctx, jetstream.ObjectStoreConfig{Bucket: name,
				Storage: jetstream.FileStorage, Replicas: s.replicas})
		}
	}
	for _, b := range []struct {
		to   *bucket
		name string
	}{{&s.uploads, "uploads"}, {&s.refused, "refused"}} {
		if *b.to, err = bucketOf(ctx, s.name+"-"+b.name); err != nil {
			return s.unopened(b.name, err)
		}
	}
	if s.versions, err = keyValue(ctx, s.name+"-versions"); err != nil {
		return s.unopened("versions", err)
	}
	if s.objects, err = objectStore(ctx, s.name+"-objects"); err == nil {
		s.parts, err = s.js.Stream(ctx, "OBJ_"+s.name+"-objects")
	}
	if err != nil {
		return s.unopened("objects", err)
	}
	return nil
}

// isUnplaced reports whether the servers of a cluster do not know enough of each other yet to place
// a bucket, as in the first seconds after they started.
func isUnplaced(err error) bool {
	const noPeers = 10005 // "no suitable peers for placement" of the NATS server
	api := (*jetstream.APIError)(nil)
	return errors.As(err, &api) && api.ErrorCode == noPeers
}

// placementWait is how long a start waits before it asks again for a bucket that was not placed.
const placementWait = 250 * time.Millisecond

// unopened is the error of a bucket that cannot be used. Servers of a cluster that choose a leader,
// or of which too few are there, answer nothing until the time is up.
func (s *Store) unopened(name string, err error) error {
	if s.inside == nil && errors.Is(err, context.DeadlineExceeded) {
		err = fmt.Errorf("the NATS servers did not answer within %v: too few of the cluster are "+
			"there, or they choose a leader; start again once they are ready: %w", patience, err)
	}
	return fmt.Errorf("store: bucket %s-%s: %w", s.name, name, err)
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

// Connect connects to NATS servers by URL, under a client name that they display. It reconnects
// without limit, to whichever server is available. Servers on other machines must have TLS under
// any scheme of their URLs: the connection carries credentials and uploads. Credentials must be
// readable by their owner alone ([identity.ReadSecret]).
func Connect(o Options, name string) (*nats.Conn, error) {
	opts := []nats.Option{nats.Name(name), nats.MaxReconnects(-1),
		nats.ReconnectWait(500 * time.Millisecond),
		nats.ReconnectJitter(250*time.Millisecond, time.Second)}
	if !encrypted(o.URL) {
		// Servers may name further ones, on other machines.
		opts = append(opts, nats.IgnoreDiscoveredServers(), nats.SetCustomDialer(dialer{}))
	} else {
		opts = append(opts, nats.Secure(&tls.Config{MinVersion: tls.VersionTLS12}))
	}
	if o.Credentials != "" {
		if err := identity.CheckSecret(o.Credentials); err != nil {
			return nil, fmt.Errorf("credentials: %w", err)
		}
		opts = append(opts, nats.UserCredentials(o.Credentials))
	}
	if o.CA != "" {
		opts = append(opts, nats.RootCAs(o.CA))
	}
	if o.Token != "" {
		opts = append(opts, nats.Token(o.Token))
	}
	conn, err := nats.Connect(o.URL, opts...)
	if errors.Is(err, nats.ErrSecureConnWanted) {
		err = fmt.Errorf("%w: a server on another machine must have TLS (docs/federate.md); plain "+
			"connections are for loopback", err)
	}
	if err != nil {
		return nil, fmt.Errorf("NATS servers %s: %w", Redact(o.URL), err)
	}
	return conn, nil
}

// encrypted reports whether a connection to servers must have TLS: one of them is not on loopback,
// or its URL says so.
func encrypted(urls string) bool {
	for _, text := range strings.Split(urls, ",") {
		text = strings.TrimSpace(text)
		if !strings.Contains(text, "://") {
			text = "nats://" + text
		}
		u, err := url.Parse(text)
		if err != nil || u.Scheme == "tls" || u.Scheme == "wss" || !loopback.Host(u.Hostname()) {
			return true
		}
	}
	return false
}

// dialer connects to loopback alone.
type dialer struct{}

// Dial is [loopback.Dial] within the time that NATS gives a server by default.
func (dialer) Dial(network, address string) (net.Conn, error) {
	ctx, cancel := context.WithTimeout(context.Background(), nats.DefaultTimeout)
	defer cancel()
	return loopback.Dial(ctx, network, address)
}

// Redact removes passwords and tokens from URLs.
func Redact(urls string) string {
	parts := strings.Split(urls, ",")
	for i, u := range parts {
		if at := strings.LastIndex(u, "@"); at >= 0 {
			scheme := ""
			if k := strings.Index(u, "://"); k >= 0 && k < at {
				scheme = u[:k+3]
			}
			parts[i] = scheme + "***" + u[at:]
		}
	}
	return strings.Join(parts, ",")
}

// splitHostPort parses an address whose port is a number: NATS takes these apart.
func splitHostPort(address string) (string, int, error) {
	host, text, err := net.SplitHostPort(address)
	port, _ := strconv.ParseUint(text, 10, 16)
	if err != nil || port == 0 {
		return "", 0, fmt.Errorf("address %q; want HOST:PORT, with a port of 1 to 65535", address)
	}
	return host, int(port), nil
}

// Close gives up the hold on the state, closes the connection, and stops the embedded server if
// there is one.
func (s *Store) Close() error {
	if s.hold != nil {
		s.hold.release()
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

// PutObject stores bytes under a name and replaces any others there. Bytes that are there already
// are not written again: NATS would leave the first ones in its files.
func (s *Store) PutObject(ctx context.Context, name string, data []byte) error {
	if is, err := s.objects.GetInfo(ctx, name); err == nil && is.Size == uint64(len(data)) &&
		is.Digest == digest(data) && s.hasParts(ctx, is) {
		return nil
	}
	err := s.write(ctx, int64(len(data)), func(ctx context.Context) error {
		chunk := max(1<<10, min(largestChunk, s.conn.MaxPayload()/2))
		_, err := s.objects.Put(ctx, jetstream.ObjectMeta{Name: name,
			Opts: &jetstream.ObjectMetaOptions{ChunkSize: uint32(chunk)}}, bytes.NewReader(data))
		return err
	})
	if err != nil {
		return fmt.Errorf("store: keeping %s: %w", name, err)
	}
	return nil
}

// hasParts reports whether the servers have all parts of an object.
func (s *Store) hasParts(ctx context.Context, o *jetstream.ObjectInfo) bool {
	info, err := s.parts.Info(ctx, jetstream.WithSubjectFilter(s.chunks(o)))
	return err == nil && info.State.Subjects[s.chunks(o)] == uint64(o.Chunks)
}

// digest is a digest as NATS keeps it with an object.
func digest(data []byte) string {
	sum := sha256.Sum256(data)
	return "SHA-256=" + base64.URLEncoding.EncodeToString(sum[:])
}

// ErrNone means that there is nothing under the name.
var ErrNone = errors.New("nothing of that name")

const (
	// answers is the time in which a server answers, and slowest the rate in bytes a second at
	// which objects are read at least.
	answers = 5 * time.Second
	slowest = 1 << 20
)

// Object returns the bytes that PutObject stored, at most most of them. A server that dies loses
// requests without an answer, so that a read has a time of its own, by the object's size: NATS
// would wait as long as the context lasts, or end a large read after 5 seconds.
func (s *Store) Object(ctx context.Context, name string, most int64) ([]byte, error) {
	data, err := s.object(ctx, name, most)
	if errors.Is(err, jetstream.ErrObjectNotFound) {
		return nil, fmt.Errorf("store: %s: %w", name, ErrNone)
	}
	if err != nil {
		return nil, fmt.Errorf("store: reading %s: %w", name, err)
	}
	return data, nil
}

// It takes 5 seconds for the answer, and one more for each MiB. The size is compared before a byte
// is read.
func (s *Store) object(ctx context.Context, name string, most int64) ([]byte, error) {
	short, cancel := context.WithTimeout(ctx, answers)
	defer cancel()
	info, err := s.objects.GetInfo(short, name)
	if err != nil {
		return nil, err
	}
	if info.Size > uint64(most) {
		return nil, fmt.Errorf("it has %d bytes; at most %d are read", info.Size, most)
	}
	ctx, end := context.WithTimeout(ctx, answers+time.Duration(info.Size/slowest)*time.Second)
	defer end()
	r, err := s.objects.Get(ctx, name)
	if err != nil {
		return nil, err
	}
	defer r.Close()
	data, err := io.ReadAll(io.LimitReader(r, most+1))
	if err == nil && int64(len(data)) > most { // it was replaced meanwhile
		err = fmt.Errorf("more than %d bytes", most)
	}
	return data, err
}

// Objects returns the names of all objects.
func (s *Store) Objects(ctx context.Context) (names []string, err error) {
	ctx, cancel := context.WithTimeout(ctx, patience) // NATS waits as long as the context lasts
	defer cancel()
	all, err := s.objects.List(ctx)
	if err != nil && !errors.Is(err, jetstream.ErrNoObjectsFound) {
		return nil, fmt.Errorf("store: listing objects: %w", err)
	}
	for _, o := range all {
		names = append(names, o.Name)
	}
	return names, nil
}

// Version is one classifier of a round.
type Version struct {
	Number int       `json:"version"`
	Time   time.Time `json:"time"`
	// Digest is the SHA-256 of classifier.onnx, and Bytes its size.
	Digest string `json:"digest"`
	Bytes  int    `json:"bytes"`
	// Clients is the number of uploads in the version; Members returns them.
	Clients int `json:"clients"`
	// Points is the number of real points behind the uploads.
	Points int64 `json:"points"`
	// Summary is the summary that pooling returned.
	Summary json.RawMessage `json:"summary,omitempty"`
	// Options is a digest of the options of pooling; "" where they are not known.
	Options string `json:"options,omitempty"`
}

// Member is an upload in a version: the client and the digest of its message.
type Member struct {
	Client string `json:"client"`
	Upload string `json:"upload"`
	// Honest is the probability with which it was weighted; 1 if honesty was not judged.
	Honest float64 `json:"p_honest"`
	// Counted is how many of the images that it claims count if it is honest; absent if honesty was
	// not judged.
	Counted *float64 `json:"counted,omitempty"`
}

// listed is the record of a version.
type listed struct {
	Version
	// Parts is the digest of the parts, which is in their names: a server that comes second with a
	// version of the same number overwrites none of them. States of version 0.1.0 have none.
	Parts string `json:"parts,omitempty"`
}

// parts are the names of a version's objects.
type parts struct{ classifier, rows, members string }

// names are those of the parts. Rows may have no object.
func (l *listed) names() parts {
	of := strconv.Itoa(l.Number)
	if l.Parts != "" {
		of += "-" + l.Parts
	}
	return parts{"classifier-" + of + ".onnx", "classifier-" + of + "-rows.onnx",
		"members-" + of + ".json"}
}

// names returns the names of a version's objects, by its record.
func (s *Store) names(ctx context.Context, version int) (parts, error) {
	var l listed
	e, err := s.versions.Get(ctx, strconv.Itoa(version))
	if errors.Is(err, jetstream.ErrKeyNotFound) {
		err = ErrNone
	}
	if err == nil {
		err = json.Unmarshal(e.Value(), &l)
	}
	if err != nil {
		return parts{}, fmt.Errorf("store: version %d: %w", version, err)
	}
	return l.names(), nil
}

// Publish stores a version. Its parts are written first, so that a listed version is complete.
// Their names hold a digest of all three: an attempt that ended midway leaves parts of other names,
// or the same bytes. A number that is listed already is an error, as the record is created and
// never replaced. rows may be nil.
func (s *Store) Publish(ctx context.Context, v Version, classifier, rows []byte,
	members []Member) error {
	list, err := json.Marshal(members)
	if err != nil {
		return fmt.Errorf("store: %w", err)
	}
	sum := sha256.New()
	for _, part := range [][]byte{classifier, rows, list} {
		one := sha256.Sum256(part)
		sum.Write(one[:])
	}
	l := listed{v, hex.EncodeToString(sum.Sum(nil))}
	names := l.names()
	if err := s.PutObject(ctx, names.classifier, classifier); err != nil {
		return err
	}
	if rows != nil {
		if err := s.PutObject(ctx, names.rows, rows); err != nil {
			return err
		}
	}
	if err := s.PutObject(ctx, names.members, list); err != nil {
		return err
	}
	text, err := json.Marshal(l)
	if err != nil {
		return fmt.Errorf("store: %w", err)
	}
	err = s.write(ctx, int64(len(text)), func(ctx context.Context) error {
		_, err := s.versions.Create(ctx, strconv.Itoa(v.Number), text)
		return err
	})
	if err != nil {
		return fmt.Errorf("store: version %d: %w", v.Number, err)
	}
	return nil
}

// Versions returns the published versions, in order.
func (s *Store) Versions(ctx context.Context) ([]Version, error) {
	all, err := s.listed(ctx)
	var out []Version
	for _, l := range all {
		out = append(out, l.Version)
	}
	return out, err
}

// listed returns the records of all versions, in order.
// It reads the records alone, and no parts.
func (s *Store) listed(ctx context.Context) ([]listed, error) {
	var out []listed
	for e, err := range each(ctx, s.versions) {
		if err != nil {
			return nil, err
		}
		var l listed
		if err := json.Unmarshal(e.Value(), &l); err != nil {
			return nil, fmt.Errorf("store: version %s: %w", e.Key(), err)
		}
		out = append(out, l)
	}
	sorting.By(out, func(a, b listed) int { return a.Number - b.Number })
	return out, nil
}

// File returns a version's classifier file.
func (s *Store) File(ctx context.Context, version int) ([]byte, error) {
	names, err := s.names(ctx, version)
	if err != nil {
		return nil, err
	}
	return s.Object(ctx, names.classifier, maxClassifier)
}

// Classifier returns a version's classifier file, and the one that takes feature rows, nil if there
// is none.
func (s *Store) Classifier(ctx context.Context, version int) (classifier, rows []byte, err error) {
	names, err := s.names(ctx, version)
	if err != nil {
		return nil, nil, err
	}
	if classifier, err = s.Object(ctx, names.classifier, maxClassifier); err != nil {
		return nil, nil, err
	}
	if rows, err = s.Object(ctx, names.rows, maxClassifier); errors.Is(err, ErrNone) {
		err = nil
	}
	return classifier, rows, err
}

// DropClassifier deletes the files of a version, whose record and members stay.
func (s *Store) DropClassifier(ctx context.Context, version int) error {
	names, err := s.names(ctx, version)
	if err != nil {
		return err
	}
	return errors.Join(s.DeleteObject(ctx, names.classifier), s.DeleteObject(ctx, names.rows))
}

// DropUnlisted deletes the parts that are of no listed version: a Publish that did not get to its
// end leaves them.
// Names are listed before versions: a version that is published in between would lose its parts
// else. No publishing may be under way.
func (s *Store) DropUnlisted(ctx context.Context) error {
	names, err := s.Objects(ctx)
	if err != nil {
		return err
	}
	versions, err := s.listed(ctx)
	if err != nil {
		return err
	}
	keep := map[string]bool{}
	for _, l := range versions {
		of := l.names()
		keep[of.classifier], keep[of.rows], keep[of.members] = true, true, true
	}
	for _, name := range names {
		part := strings.HasPrefix(name, "classifier-") || strings.HasPrefix(name, "members-")
		if part && !keep[name] {
			err = errors.Join(err, s.DeleteObject(ctx, name))
		}
	}
	return err
}

// Members returns the uploads in a version, sorted by client name.
func (s *Store) Members(ctx context.Context, version int) ([]Member, error) {
	names, err := s.names(ctx, version)
	if err != nil {
		return nil, err
	}
	data, err := s.Object(ctx, names.members, maxMembers)
	if err != nil {
		return nil, err
	}
	var out []Member
	if err := json.Unmarshal(data, &out); err != nil {
		return nil, fmt.Errorf("store: members of version %d: %w", version, err)
	}
	return out, nil
}

// DeleteObject deletes an object of PutObject, and its bytes from the servers' files.
func (s *Store) DeleteObject(ctx context.Context, name string) error {
	if err := s.discard(ctx, name); err != nil {
		return fmt.Errorf("store: removing %s: %w", name, err)
	}
	return nil
}
