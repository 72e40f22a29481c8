package store

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"fmp/pipeline/federate/identity"
	"fmp/pipeline/federate/loopback"
)

// dial speaks JetStream on the store's connection. A call without a deadline waits for patience.
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
// Versions keep one revision a key. Replicas is on how many servers of a cluster a bucket lies.
// The parts of objects lie in the stream that JetStream names OBJ_ and the bucket.
// A bucket with other settings than these is updated where create is set.
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
// Other errors are not waited for.
func isUnplaced(err error) bool {
	const noPeers = 10005 // "no suitable peers for placement" of the NATS server
	api := (*jetstream.APIError)(nil)
	return errors.As(err, &api) && api.ErrorCode == noPeers
}

// placementWait is how long a start waits before it asks again for a bucket that was not placed.
// Peers of a cluster find each other within seconds.
const placementWait = 250 * time.Millisecond

// unopened is the error of a bucket that cannot be used. Servers of a cluster that choose a leader,
// or of which too few are there, answer nothing until the time is up.
// The name of the bucket is in each error, so that its stream can be found.
func (s *Store) unopened(name string, err error) error {
	if s.inside == nil && errors.Is(err, context.DeadlineExceeded) {
		err = fmt.Errorf("the NATS servers did not answer within %v: too few of the cluster are "+
			"there, or they choose a leader; start again once they are ready: %w", patience, err)
	}
	return fmt.Errorf("store: bucket %s-%s: %w", s.name, name, err)
}

// Connect connects to NATS servers by URL, under a client name that they display. It reconnects
// without limit, to whichever server is available. A server is asked again after half a second and
// a jitter of up to a quarter of a second, with TLS of up to a second. Servers on other machines
// must have TLS under any scheme of their URLs: the connection carries credentials and uploads.
// Credentials must be readable by their owner alone ([identity.ReadSecret]).
// The caller closes the connection. URLs are separated by commas, and errors show them redacted.
func Connect(o Options, name string) (*nats.Conn, error) {
	opts := []nats.Option{nats.Name(name), nats.MaxReconnects(-1),
		nats.ReconnectWait(500 * time.Millisecond),
		nats.ReconnectJitter(250*time.Millisecond, time.Second)}
	if !encrypted(o.URL) {
		// Servers may name further ones, on other machines.
		// The dialer looks at the address itself, as localhost may resolve to another.
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
// or its URL says so. A URL that cannot be parsed is one of these.
// One list has one rule, since NATS may go over to any of its servers.
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
// All before the last @ of a URL goes, since a password may hold an @ itself.
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
// Port 0, by which a system chooses one, is refused.
func splitHostPort(address string) (string, int, error) {
	host, text, err := net.SplitHostPort(address)
	port, _ := strconv.ParseUint(text, 10, 16)
	if err != nil || port == 0 {
		return "", 0, fmt.Errorf("address %q; want HOST:PORT, with a port of 1 to 65535", address)
	}
	return host, int(port), nil
}
