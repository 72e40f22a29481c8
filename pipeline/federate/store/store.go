// Package store stores a round in NATS JetStream: uploads with their receipts, refusals, and the versions of the classifier. When a
// method that writes returns, the data are on disk. The NATS server is embedded in the program, or external and reached by URL.
package store

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"iter"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	natsserver "github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"fmp/onnx/atomicfile"
)

const (
	// maxPayload is the maximum size of one message of the embedded server: 8 MiB, twice the largest upload that a round may allow.
	maxPayload = 8 << 20
	// maxClassifier and maxMembers bound the parts of a version.
	maxClassifier, maxMembers = 2 << 30, 512 << 20
	// startTime is the timeout of the embedded server's start, recovery included.
	startTime = 2 * time.Minute
	// patience is the timeout of the servers' answers if the caller sets no deadline: a disk may be busy for long.
	patience = 30 * time.Second
)

// Options configure a store.
type Options struct {
	// Dir is the folder of the embedded server.
	Dir string
	// Listen is the loopback address on which the embedded server accepts workers, with Token; empty: it accepts none.
	Listen, Token string
	// Sync makes every write wait until the data are on the disk and not only in the system's cache: a receipt then survives a power
	// failure and not just a crash of the program.
	Sync bool
	// URL, in place of Dir, is the comma-separated URLs of external NATS servers; Credentials is an account's credentials file
	// (.creds), CA a file of certificates to trust. Replicas is the number of servers that store each write: 1 to 5, default 1.
	URL, Credentials, CA string
	Replicas             int
}

// Store is the state of a round. It is safe for concurrent use.
type Store struct {
	conn     *nats.Conn
	js       jetstream.JetStream
	server   *natsserver.Server
	lock     io.Closer
	name     string
	uploads  jetstream.KeyValue
	refused  jetstream.KeyValue
	versions jetstream.KeyValue
	objects  jetstream.ObjectStore
	replicas int
}

// ErrBusy means that the embedded server's folder is in use by another process.
var ErrBusy = errors.New("another fmp serve is at work in this folder")

// Name returns the name of a round's state: rounds of the same number with different client graphs have different states.
func Name(round uint64, graph string) string {
	return fmt.Sprintf("fmp-%d-%.16s", round, graph)
}

// Open starts or connects to the server and creates the round's buckets if they do not exist.
func Open(ctx context.Context, name string, o Options) (*Store, error) {
	if o.Replicas == 0 {
		o.Replicas = 1
	}
	s := &Store{name: name, replicas: o.Replicas}
	var err error
	if o.URL == "" {
		err = s.start(o)
	} else {
		err = s.connect(o)
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

// Attach is like Open on an existing connection, which Close then closes.
func Attach(ctx context.Context, conn *nats.Conn, name string, replicas int) (*Store, error) {
	s := &Store{conn: conn, name: name, replicas: replicas}
	return s, s.open(ctx)
}

// open creates the buckets if they do not exist.
func (s *Store) open(ctx context.Context) (err error) {
	if s.js, err = jetstream.New(s.conn, jetstream.WithDefaultTimeout(patience)); err != nil {
		return fmt.Errorf("store: %w", err)
	}
	for _, b := range []struct {
		to   *jetstream.KeyValue
		name string
	}{{&s.uploads, "uploads"}, {&s.refused, "refused"}, {&s.versions, "versions"}} {
		*b.to, err = s.js.CreateOrUpdateKeyValue(ctx, jetstream.KeyValueConfig{Bucket: s.name + "-" + b.name, History: 1, Storage: jetstream.FileStorage, Replicas: s.replicas})
		if err != nil {
			return fmt.Errorf("store: bucket %s-%s: %w", s.name, b.name, err)
		}
	}
	if s.objects, err = s.js.CreateOrUpdateObjectStore(ctx, jetstream.ObjectStoreConfig{Bucket: s.name + "-objects", Storage: jetstream.FileStorage, Replicas: s.replicas}); err != nil {
		return fmt.Errorf("store: bucket %s-objects: %w", s.name, err)
	}
	return nil
}

// start runs the embedded NATS server.
func (s *Store) start(o Options) error {
	if err := os.MkdirAll(o.Dir, 0o700); err != nil {
		return err
	}
	lock, ok, err := atomicfile.Lock(o.Dir)
	if err != nil {
		return err
	}
	if !ok {
		return fmt.Errorf("%s: %w", o.Dir, ErrBusy)
	}
	s.lock = lock
	so := &natsserver.Options{
		ServerName: "fmp", DontListen: o.Listen == "", NoSigs: true, NoLog: true, MaxPayload: maxPayload, JetStream: true,
		StoreDir: filepath.Join(o.Dir, "nats"), SyncAlways: o.Sync, JetStreamMaxMemory: 64 << 20,
	}
	if o.Listen != "" {
		if o.Token == "" {
			return errors.New("a server that listens wants a token")
		}
		host, port, err := splitHostPort(o.Listen)
		if err != nil {
			return err
		}
		so.Host, so.Port, so.Authorization = host, port, o.Token
	}
	if s.server, err = natsserver.NewServer(so); err != nil {
		return fmt.Errorf("NATS: %w", err)
	}
	s.server.Start()
	if !s.server.ReadyForConnections(startTime) {
		return fmt.Errorf("NATS did not start within %v in %s", startTime, o.Dir)
	}
	opts := []nats.Option{nats.InProcessServer(s.server), nats.Name("fmp serve"), nats.MaxReconnects(-1)}
	if o.Token != "" {
		opts = append(opts, nats.Token(o.Token))
	}
	if s.conn, err = nats.Connect("", opts...); err != nil {
		return fmt.Errorf("NATS: %w", err)
	}
	return nil
}

// connect connects to external servers.
func (s *Store) connect(o Options) (err error) {
	s.conn, err = Connect(o, "fmp serve")
	return err
}

// Connect connects to NATS servers by URL, under a client name that they display. It reconnects without limit, to whichever server is
// available.
func Connect(o Options, name string) (*nats.Conn, error) {
	opts := []nats.Option{nats.Name(name), nats.MaxReconnects(-1), nats.ReconnectWait(500 * time.Millisecond), nats.ReconnectJitter(250*time.Millisecond, time.Second)}
	if o.Credentials != "" {
		opts = append(opts, nats.UserCredentials(o.Credentials))
	}
	if o.CA != "" {
		opts = append(opts, nats.RootCAs(o.CA))
	}
	if o.Token != "" {
		opts = append(opts, nats.Token(o.Token))
	}
	conn, err := nats.Connect(o.URL, opts...)
	if err != nil {
		return nil, fmt.Errorf("NATS servers %s: %w", Redact(o.URL), err)
	}
	return conn, nil
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

func splitHostPort(address string) (string, int, error) {
	i := strings.LastIndex(address, ":")
	if i < 0 {
		return "", 0, fmt.Errorf("address %q; want HOST:PORT", address)
	}
	port, err := strconv.Atoi(address[i+1:])
	if err != nil || port < 1 || port > 65535 {
		return "", 0, fmt.Errorf("address %q; want a port of 1 to 65535", address)
	}
	return strings.Trim(address[:i], "[]"), port, nil
}

// Close closes the connection, and stops the embedded server if there is one.
func (s *Store) Close() error {
	if s.conn != nil {
		s.conn.Close()
	}
	if s.server != nil {
		s.server.Shutdown()
		s.server.WaitForShutdown()
	}
	if s.lock != nil {
		s.lock.Close()
	}
	return nil
}

// Conn, Name and Replicas return what [Attach] takes elsewhere: the connection, for job queues on the same servers, the name
// of the round's state, and the number of servers that store each write.
func (s *Store) Conn() *nats.Conn { return s.conn }
func (s *Store) Name() string     { return s.name }
func (s *Store) Replicas() int    { return s.replicas }

// Ready reports whether the servers answer.
func (s *Store) Ready(ctx context.Context) error {
	if !s.conn.IsConnected() {
		return fmt.Errorf("store: NATS is %v", s.conn.Status())
	}
	_, err := s.uploads.Status(ctx)
	if err != nil {
		return fmt.Errorf("store: %w", err)
	}
	return nil
}

// key encodes a client's name as a valid key.
func key(client string) string { return base64.RawURLEncoding.EncodeToString([]byte(client)) }

// each iterates over the entries of a bucket, in no particular order.
func each(ctx context.Context, kv jetstream.KeyValue) iter.Seq2[jetstream.KeyValueEntry, error] {
	return func(yield func(jetstream.KeyValueEntry, error) bool) {
		w, err := kv.WatchAll(ctx, jetstream.IgnoreDeletes())
		if err != nil {
			yield(nil, fmt.Errorf("store: %w", err))
			return
		}
		defer w.Stop()
		for {
			select {
			case e, open := <-w.Updates():
				if e == nil || !open { // all entries were read
					return
				}
				if !yield(e, nil) {
					return
				}
			case <-ctx.Done():
				yield(nil, ctx.Err())
				return
			}
		}
	}
}

// PutObject stores bytes under a name and replaces what is there.
func (s *Store) PutObject(ctx context.Context, name string, data []byte) error {
	if _, err := s.objects.PutBytes(ctx, name, data); err != nil {
		return fmt.Errorf("store: keeping %s: %w", name, err)
	}
	return nil
}

// ErrNone means that there is nothing under the name.
var ErrNone = errors.New("nothing of that name")

// Object returns the bytes that PutObject stored, at most most of them.
func (s *Store) Object(ctx context.Context, name string, most int64) ([]byte, error) {
	r, err := s.objects.Get(ctx, name)
	if errors.Is(err, jetstream.ErrObjectNotFound) {
		return nil, fmt.Errorf("store: %s: %w", name, ErrNone)
	}
	if err != nil {
		return nil, fmt.Errorf("store: reading %s: %w", name, err)
	}
	defer r.Close()
	data, err := io.ReadAll(io.LimitReader(r, most+1))
	if err == nil && int64(len(data)) > most {
		err = fmt.Errorf("more than %d bytes", most)
	}
	if err != nil {
		return nil, fmt.Errorf("store: reading %s: %w", name, err)
	}
	return data, nil
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
}

// Member is an upload in a version: the client and the digest of its message.
type Member struct {
	Client string `json:"client"`
	Upload string `json:"upload"`
	// Honest is the probability with which it was weighted; 1 if honesty was not judged.
	Honest float64 `json:"p_honest"`
}

func classifierName(n int) string { return fmt.Sprintf("classifier-%d.onnx", n) }
func rowsName(n int) string       { return fmt.Sprintf("classifier-%d-rows.onnx", n) }
func membersName(n int) string    { return fmt.Sprintf("members-%d.json", n) }

// Publish stores a version. Its parts are written first, so that a listed version is complete.
func (s *Store) Publish(ctx context.Context, v Version, classifier, rows []byte, members []Member) error {
	list, err := json.Marshal(members)
	if err != nil {
		return fmt.Errorf("store: %w", err)
	}
	if err := s.PutObject(ctx, classifierName(v.Number), classifier); err != nil {
		return err
	}
	if rows != nil {
		if err := s.PutObject(ctx, rowsName(v.Number), rows); err != nil {
			return err
		}
	}
	if err := s.PutObject(ctx, membersName(v.Number), list); err != nil {
		return err
	}
	text, err := json.Marshal(v)
	if err != nil {
		return fmt.Errorf("store: %w", err)
	}
	if _, err := s.versions.Create(ctx, strconv.Itoa(v.Number), text); err != nil {
		return fmt.Errorf("store: version %d: %w", v.Number, err)
	}
	return nil
}

// Versions returns the published versions, in order.
func (s *Store) Versions(ctx context.Context) ([]Version, error) {
	var out []Version
	for e, err := range each(ctx, s.versions) {
		if err != nil {
			return nil, err
		}
		var v Version
		if err := json.Unmarshal(e.Value(), &v); err != nil {
			return nil, fmt.Errorf("store: version %s: %w", e.Key(), err)
		}
		out = append(out, v)
	}
	slices.SortFunc(out, func(a, b Version) int { return a.Number - b.Number })
	return out, nil
}

// Classifier returns a version's classifier file, and the one that takes feature rows, nil if there is none.
func (s *Store) Classifier(ctx context.Context, version int) (classifier, rows []byte, err error) {
	if classifier, err = s.Object(ctx, classifierName(version), maxClassifier); err != nil {
		return nil, nil, err
	}
	if rows, err = s.Object(ctx, rowsName(version), maxClassifier); errors.Is(err, ErrNone) {
		err = nil
	}
	return classifier, rows, err
}

// Members returns the uploads in a version, sorted by client name.
func (s *Store) Members(ctx context.Context, version int) ([]Member, error) {
	data, err := s.Object(ctx, membersName(version), maxMembers)
	if err != nil {
		return nil, err
	}
	var out []Member
	if err := json.Unmarshal(data, &out); err != nil {
		return nil, fmt.Errorf("store: members of version %d: %w", version, err)
	}
	return out, nil
}

// DeleteObject deletes what PutObject stored.
func (s *Store) DeleteObject(ctx context.Context, name string) error {
	if err := s.objects.Delete(ctx, name); err != nil && !errors.Is(err, jetstream.ErrObjectNotFound) {
		return fmt.Errorf("store: removing %s: %w", name, err)
	}
	return nil
}
