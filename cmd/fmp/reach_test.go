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
