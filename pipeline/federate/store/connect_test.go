package store

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	natsserver "github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"

	"fmp/onnx/must"
	"fmp/pipeline/federate/selfsigned"
)

func TestEncrypted(t *testing.T) {
	for urls, want := range map[string]bool{
		"nats://127.0.0.1:4222": false, "127.0.0.1": false, "localhost:4222": false,
		"nats://[::1]:4222,nats://127.0.0.1": false,
		"ws://127.0.0.1:80":                  false,
		"nats://n1:4222":                     true, "n1": true, "nats://127.example.invalid:4222": true,
		"nats://127.0.0.1,nats://n2": true,
		"tls://127.0.0.1":            true,
		"wss://127.0.0.1":            true, "nats://10.0.0.1:4222": true,
		"nats://127.0.0.1:port": true, "": true,
	} {
		if got := encrypted(urls); got != want {
			t.Errorf("%q: %v, want %v", urls, got, want)
		}
	}
}

// natsOn runs a NATS server, with TLS if a certificate is given, and returns its port.
func natsOn(t *testing.T, o natsserver.Options) int {
	t.Helper()
	o.Host, o.Port, o.NoSigs, o.NoLog = "127.0.0.1", -1, true, true
	s := must.Get(natsserver.NewServer(&o))(t)
	s.Start()
	t.Cleanup(func() { s.Shutdown(); s.WaitForShutdown() })
	if !s.ReadyForConnections(10 * time.Second) {
		t.Fatal("the NATS server is not ready")
	}
	return s.Addr().(*net.TCPAddr).Port
}

// TestPlainNATS: a server that has no TLS gets nothing from a client that takes it for another
// machine, nor from one told to use TLS; a server with TLS is spoken to.
func TestPlainNATS(t *testing.T) {
	plain := natsOn(t, natsserver.Options{})
	conn := must.Get(Connect(Options{URL: fmt.Sprintf("nats://127.0.0.1:%d", plain)}, "test"))(t)
	conn.Close()
	// No name of another machine resolves here: an unspecified address is not loopback by its
	// number and reaches this machine.
	for _, url := range []string{"nats://0.0.0.0:%d", "tls://127.0.0.1:%d"} {
		must.Refuse(Connect(Options{URL: fmt.Sprintf(url, plain), Token: "secret"}, "test"))(
			t, url, "must have TLS")
	}
	dir := t.TempDir()
	cert, key := filepath.Join(dir, "a.crt"), filepath.Join(dir, "a.key")
	must.Do(t, selfsigned.Ensure(cert, key, time.Now()))
	pair := must.Get(tls.LoadX509KeyPair(cert, key))(t)
	roots := x509.NewCertPool()
	roots.AddCert(pair.Leaf)
	secure := natsOn(t, natsserver.Options{TLS: true,
		TLSConfig: &tls.Config{Certificates: []tls.Certificate{pair}}})
	conn = must.Get(Connect(Options{URL: fmt.Sprintf("nats://localhost:%d,tls://127.0.0.1:%d", secure,
		secure), CA: cert}, "test"))(t)
	defer conn.Close()
	must.Get(conn.TLSConnectionState())(t)
}

// TestDiscovered: servers that one on loopback names are not connected to without TLS.
func TestDiscovered(t *testing.T) {
	port := natsOn(t, natsserver.Options{ClientAdvertise: "192.0.2.1:4222"})
	conn := must.Get(Connect(Options{URL: fmt.Sprintf("nats://127.0.0.1:%d", port)}, "test"))(t)
	defer conn.Close()
	if found := conn.DiscoveredServers(); len(found) != 0 || len(conn.Servers()) != 1 {
		t.Errorf("servers %v, discovered %v", conn.Servers(), found)
	}
	must.Refuse((dialer{}).Dial("tcp", "192.0.2.1:4222"))(t, "", "not loopback")
}

// TestCredentials: credentials that other users can read are refused before a server is spoken to.
func TestCredentials(t *testing.T) {
	path := filepath.Join(t.TempDir(), "fmp.creds")
	must.Do(t, os.WriteFile(path, []byte("x"), 0o644))
	_, err := Connect(Options{URL: "nats://127.0.0.1:1", Credentials: path}, "test")
	if err == nil || !strings.Contains(err.Error(), "chmod 600 "+path) ||
		strings.Contains(err.Error(), nats.ErrNoServers.Error()) {
		t.Error(err)
	}
}

// TestObjectTime: a read of an object that the servers no longer answer ends by itself, however
// long its context lasts. Objects that are larger than asked for are not read.
func TestObjectTime(t *testing.T) {
	t.Parallel()
	in := must.Get(natsserver.NewServer(&natsserver.Options{Host: "127.0.0.1", Port: -1, NoSigs: true,
		NoLog: true, JetStream: true, StoreDir: t.TempDir()}))(t)
	in.Start()
	t.Cleanup(func() { in.Shutdown(); in.WaitForShutdown() })
	if !in.ReadyForConnections(10 * time.Second) {
		t.Fatal("the NATS server is not ready")
	}
	s := must.Get(Open(t.Context(), "fmp-1", Options{URL: in.ClientURL()}))(t)
	defer s.Close()
	must.Do(t, s.PutObject(t.Context(), "a", make([]byte, 1000)))
	if data, err := s.Object(t.Context(), "a", 1000); err != nil || len(data) != 1000 {
		t.Errorf("%d bytes, %v", len(data), err)
	}
	must.Refuse(s.Object(t.Context(), "a", 999))(
		t, "1,000 bytes where 999 are asked for", "at most 999")
	if testing.Short() {
		return
	}
	in.Shutdown()
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
	defer cancel()
	if _, err := s.Object(ctx, "a", 1000); err == nil || ctx.Err() != nil {
		t.Errorf("of a server that is gone: %v", err)
	}
}
