package main

import (
	"crypto/tls"
	"encoding/pem"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"fmp/onnx/must"
	"fmp/pipeline/federate/selfsigned"
)

// TestProxies: a client behind the proxy of its environment, which alone knows the way to the
// server, joins a round of a server behind a proxy of its own that has the certificate.
func TestProxies(t *testing.T) {
	f := newFederation(t, 1, "deadline: 2100-01-01T00:00:00Z\n")
	f.serve("--host", "example.com")
	front := httptest.NewTLSServer(httputil.NewSingleHostReverseProxy(&url.URL{Scheme: "http", Host: f.address}))
	defer front.Close()
	// for example.com
	f.write("front.crt", pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: front.Certificate().Raw}))
	var asked atomic.Int64
	proxy := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method != http.MethodConnect || r.Host != "example.com:443" {
			t.Errorf("the proxy is asked %s %s", r.Method, r.Host)
			w.WriteHeader(http.StatusForbidden)
			return
		}
		asked.Add(1)
		to, err := net.Dial("tcp", front.Listener.Addr().String())
		if err != nil {
			t.Error(err)
			return
		}
		w.WriteHeader(http.StatusOK)
		from, _, err := w.(http.Hijacker).Hijack()
		if err != nil {
			t.Error(err)
			return
		}
		go func() { _, _ = io.Copy(to, from); to.Close() }()
		_, _ = io.Copy(from, to)
		from.Close()
	}))
	defer proxy.Close()
	cmd := exec.Command(filepath.Join(f.bin, "fmp-edge"), "join", "https://example.com", "--ca",
		f.path("front.crt"), "--key", f.path("keys/c000.key"), "--cache", f.path("cache"),
		f.path("images/c000"))
	cmd.Env = append(os.Environ(), "HTTPS_PROXY="+proxy.URL, "NO_PROXY=")
	out, err := cmd.CombinedOutput()
	if err != nil || asked.Load() == 0 || !strings.Contains(string(out), "receipt:") {
		t.Errorf("%v, %d through the proxy: %s", err, asked.Load(), out)
	}
	if st := f.status(); st.In != 1 {
		t.Errorf("%d in", st.In)
	}
}

// TestServeGuards: off loopback nothing listens without a certificate and the readers' token,
// workers come in with a token alone, and no secret stands on the command line.
func TestServeGuards(t *testing.T) {
	token, short := filepath.Join(t.TempDir(), "token"), filepath.Join(t.TempDir(), "short")
	for path, text := range map[string]string{token: "a token of the test's own", short: "guess"} {
		must.Do(t, os.WriteFile(path, []byte(text), 0o600))
	}
	read := filepath.Join(t.TempDir(), "read") // by other users
	must.Do(t, os.WriteFile(read, []byte("a token of the test's own"), 0o644))
	own := []string{"--tls-cert", "a.crt", "--tls-key", token}
	tls := []string{"--tls-cert", "a.crt", "--tls-key", "a.key"}
	for _, c := range []struct {
		want string
		args []string
	}{
		{"is not loopback", []string{"--listen", ":8443"}},
		{"is not loopback", []string{"--listen", "0.0.0.0:8443", "--token-file", token}},
		{"is not loopback", append([]string{"--listen", "[::]:8443"}, tls...)},
		{"is not loopback", []string{"--listen", "192.0.2.1:8443", "--tls-self-signed",
			"--token-file", token}},
		{"want 16 to", append([]string{"--listen", ":8443", "--token-file", short}, own...)},
		{"chmod 600 " + read, append([]string{"--listen", ":8443", "--token-file", read}, own...)},
		{"chmod 600 " + read, []string{"--tls-cert", "a.crt", "--tls-key", read}},
		{"chmod 600 " + read, []string{"--nats-listen", "127.0.0.1:4222", "--nats-token-file", read}},
		{"--tls-cert with --tls-key", []string{"--tls-cert", "a.crt"}},
		{"--tls-cert with --tls-key", append([]string{"--tls-self-signed"}, tls...)},
		{"want an address of loopback", []string{"--nats-listen", ":4222", "--nats-token-file", token}},
		{"want an address of loopback", []string{"--nats-listen", "127.0.0.1:4222"}},
		{"holds a password", []string{"--nats", "nats://user:password@n1:4222"}},
		{"want --nats-listen", []string{"--workers"}},
		{"want --nats-listen", []string{"--merge"}},
		{"allowed are 1 to 5", []string{"--nats-replicas", "3"}},
	} {
		refused(t, exitUsage, c.want, append([]string{"serve", "--round", "round.yaml"},
			c.args...)...)
	}
}

// TestServeExpired: a certificate that has ended is told of at the start, and to a client without advice
// that does not help; a signal ends the server with exit code 0, whatever requests are under way.
func TestServeExpired(t *testing.T) {
	f := newFederation(t, 1, "deadline: 2100-01-01T00:00:00Z\n")
	cert, key := f.path("old.crt"), f.path("old.key")
	must.Do(t, selfsigned.Ensure(cert, key, time.Now().AddDate(-2, 0, 0)))
	f.scheme = "https"
	f.serve("--tls-cert", cert, "--tls-key", key)
	f.logged("it ended at")
	if code, out := f.join(f.address, f.names[0], "--ca", cert); code == 0 ||
		!strings.Contains(out, "expired") || strings.Contains(out, "names its file") {
		t.Errorf("with the certificate: exit code %d: %s", code, out)
	}
	if runtime.GOOS == "windows" { // which has no such signal
		return
	}
	open := must.Get(tls.Dial("tcp", f.address, &tls.Config{InsecureSkipVerify: true}))(t) // a request under way
	defer open.Close()
	must.Do(t, f.server.Process.Signal(syscall.SIGTERM))
	must.Do(t, f.server.Wait())
	f.server = nil
}
