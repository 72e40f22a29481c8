package main

import (
	"context"
	"crypto/tls"
	"fmt"
	"log/slog"
	"sync/atomic"
	"time"

	"fmp/pipeline/federate/identity"
)

// certificate is a server's certificate with its key, which are read again when their files have
// changed: a round may last longer than the certificate at its start. deadline only adds a warning.
// pair is written by read and read by every handshake, without a lock. It is nil until the first
// read succeeds, and config and watch are for afterwards.
type certificate struct {
	cert, key string
	deadline  time.Time // of the round
	log       *slog.Logger
	pair      atomic.Pointer[tls.Certificate]
}

// read reads the files. The key must be its owner's alone to read. After an error the last pair
// stays. Certificates of intermediates follow the server's in its file, as crypto/tls wants them. A
// key that others can read is refused before it is parsed. The two files may be replaced one after
// the other: a key that does not belong to the certificate is an error, and the next look finds
// both.
func (c *certificate) read() error {
	if err := identity.CheckSecret(c.key); err != nil {
		return err
	}
	pair, err := tls.LoadX509KeyPair(c.cert, c.key)
	// Connections that are being set up keep the pair that they have loaded.
	if err == nil {
		c.pair.Store(&pair)
	}
	return err
}

// config gives each connection the pair that was read last. Connections that are open keep theirs.
// The certificate is the same for every name that a client asks for (SNI), and the error is always
// nil. Versions and ciphers are Go's defaults.
func (c *certificate) config() *tls.Config {
	return &tls.Config{GetCertificate: func(*tls.ClientHelloInfo) (*tls.Certificate, error) {
		return c.pair.Load(), nil
	}}
}

// fault says why clients refuse the certificate, or will before the round's deadline; empty where
// they do not. Times are those of the leaf alone: names and issuers are the client's to check. An
// end that equals the deadline is no fault. The moment is given, so that a test may choose it.
func (c *certificate) fault(now time.Time) string {
	from, to := c.pair.Load().Leaf.NotBefore, c.pair.Load().Leaf.NotAfter
	const another = "put another one in its place, which is read without a restart"
	switch {
	case now.Before(from):
		return fmt.Sprintf("it begins at %s: clients refuse it until then; %s",
			from.Format(time.RFC3339), another)
	case now.After(to):
		return fmt.Sprintf("it ended at %s: clients refuse it; %s", to.Format(time.RFC3339),
			another)
	case to.Before(c.deadline):
		return fmt.Sprintf("it ends at %s, before the round's deadline: clients refuse it from "+
			"then on; %s", to.Format(time.RFC3339), another)
	}
	return ""
}

// watch reads the files again when they have changed, and says each fault of the certificate once.
// Files that are no pair yet leave the last one in place, until they are. Faults depend on the
// clock, so that they are looked for at every look. It ends when ctx does, and is to run in a
// goroutine of its own. No fault ends the server. A fault that is mended and comes again is said
// again.
func (c *certificate) watch(ctx context.Context, every time.Duration) {
	f, said := watchedFiles{paths: []string{c.cert, c.key}}, ""
	f.follow(ctx, every, func() {
		if text := c.fault(time.Now()); text != said {
			if said = text; text != "" {
				c.log.Warn("certificate", "file", c.cert, "warning", text)
			}
		}
	}, func() error {
		was := c.pair.Load().Leaf
		err := c.read()
		if is := c.pair.Load().Leaf; err == nil && !is.Equal(was) { // the first look finds the same
			c.log.Info("certificate read again", "file", c.cert,
				"ends", is.NotAfter.Format(time.RFC3339))
		}
		return err
	}, func(err error) {
		c.log.Error("the certificate could not be read again; the one before it is used",
			"error", err)
	})
}
