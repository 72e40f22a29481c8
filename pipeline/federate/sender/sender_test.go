package sender

import (
	"bytes"
	"context"
	"encoding/base64"
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"crypto/sha256"
	"crypto/tls"

	"fmp/onnx/must"
	"fmp/pipeline/federate/identity"
	"fmp/pipeline/federate/selfsigned"
	"fmp/pipeline/federate/wire"
	"fmp/pipeline/privacy"
)

// fake is a server that fails as it is told.
type fake struct {
	t        *testing.T
	server   *httptest.Server
	key      *identity.Key
	graph    []byte
	digest   string
	deadline time.Duration // from now
	failures atomic.Int64  // replies to fail before the next good one
	status   int           // of a failure; 0 cuts the connection
	ranges   atomic.Int64
	requests atomic.Int64
	lie      bool // the graph is not what its digest says
}

func newFake(t *testing.T) *fake {
	f := &fake{t: t, key: must.Get(identity.New("server"))(t), graph: bytes.Repeat([]byte("graph"), 10_000),
		deadline: time.Hour, status: 503}
	f.digest = fmt.Sprintf("%x", sha256.Sum256(f.graph))
	f.server = httptest.NewServer(http.HandlerFunc(f.answer))
	t.Cleanup(f.server.Close)
	return f
}

func (f *fake) answer(w http.ResponseWriter, r *http.Request) {
	f.requests.Add(1)
	if f.failures.Add(-1) >= 0 {
		if f.status == 0 {
			panic(http.ErrAbortHandler)
		}
		w.WriteHeader(f.status)
		return
	}
	switch {
	case r.URL.Path == "/v1/rounds":
		now := time.Now().Add(-20 * 365 * 24 * time.Hour) // by a clock of its own
		d := wire.Description{Round: 3, State: wire.Open, Now: now, Deadline: now.Add(f.deadline),
			Graph: f.digest, GraphBytes: int64(len(f.graph)), MaxBytes: 1000,
			ServerKey: base64.StdEncoding.EncodeToString(f.key.Public())}
		_ = json.NewEncoder(w).Encode(map[string]any{"rounds": []wire.Description{d}})
	case strings.HasSuffix(r.URL.Path, "/graph"):
		data := f.graph
		if f.lie {
			data = bytes.Repeat([]byte("grave"), 10_000)
		}
		if r.Header.Get("Range") != "" {
			f.ranges.Add(1)
		} else if f.ranges.Load() == 0 && !f.lie { // the first time half of it comes
			w.Header().Set("Content-Length", fmt.Sprint(len(data)))
			_, _ = w.Write(data[:len(data)/2])
			panic(http.ErrAbortHandler)
		}
		w.Header().Set("ETag", `"`+f.digest+`"`)
		http.ServeContent(w, r, "", time.Time{}, bytes.NewReader(data))
	case r.Method == http.MethodPut:
		var body bytes.Buffer
		_, _ = body.ReadFrom(r.Body)
		receipt := wire.Receipt{Round: 3, Client: "a b", Graph: f.digest,
			Upload: fmt.Sprintf("%x", sha256.Sum256(body.Bytes())), Time: time.Now()}
		receipt.Sign(f.key)
		_ = json.NewEncoder(w).Encode(receipt)
	}
}

func (f *fake) client() *Client {
	f.t.Helper()
	c := must.Get(New(f.server.URL, ""))(f.t)
	c.Wait = 20 * time.Second
	return c
}

// TestSender: failures that pass are waited out, a graph that was cut goes on where it ended, the
// receipt is verified.
func TestSender(t *testing.T) {
	f := newFake(t)
	c := f.client()
	said := 0
	c.Log = func(string, ...any) { said++ }
	f.failures.Store(1)
	d, err := c.Describe(t.Context())
	if err != nil || said != 1 {
		t.Fatalf("%v; %d failures were said", err, said)
	}
	dir := t.TempDir()
	path := must.Get(c.Graph(t.Context(), d, dir))(t)
	if data, err := os.ReadFile(path); err != nil || !bytes.Equal(data, f.graph) ||
		f.ranges.Load() != 1 {
		t.Errorf("graph of %d bytes, %v, %d ranges", len(data), err, f.ranges.Load())
	}
	before := f.requests.Load()
	if again, err := c.Graph(t.Context(), d, dir); err != nil || again != path ||
		f.requests.Load() != before {
		t.Errorf("the graph that is there was fetched again: %v", err)
	}
	if files, _ := filepath.Glob(filepath.Join(dir, "*")); len(files) != 1 {
		t.Errorf("left behind: %v", files)
	}
	k := must.Get(identity.New("a b"))(t)
	f.failures.Store(1)
	f.status = 0 // a cut connection
	if r, err := c.Send(t.Context(), d, k, []byte("upload")); err != nil || r.Client != "a b" {
		t.Errorf("receipt %+v, %v", r, err)
	}
	must.Fail(c.Send(t.Context(), d, k, make([]byte, 1001)))(t, "1001 bytes", "too large")
	f.key = must.Get(identity.New("server"))(t) // somebody else signs the receipt
	must.Fail(c.Send(t.Context(), d, k, []byte("upload")))(t, "not signed", "a receipt of somebody else")
}

// TestEnds: a sender gives up at the deadline, on what no attempt mends, and when it is told to.
func TestEnds(t *testing.T) {
	f := newFake(t)
	f.deadline = 700 * time.Millisecond
	c := f.client()
	d := must.Get(c.Describe(t.Context()))(t)
	k := must.Get(identity.New("a b"))(t)
	f.failures.Store(1 << 40)
	start := time.Now()
	if _, err := c.Send(t.Context(), d, k, []byte("x")); !errors.Is(err, ErrClosed) ||
		time.Since(start) > 30*time.Second {
		t.Errorf("at the deadline, after %v: %v", time.Since(start), err)
	}
	f.status = 403
	must.Fail(c.Send(t.Context(), d, k, []byte("x")))(t, "403", "a refusal")
	f.status = 503
	ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	c.over = time.Now().Add(time.Hour)
	if _, err := c.Send(ctx, d, k, []byte("x")); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("told to end: %v", err)
	}
	f.failures.Store(0)
	f.lie = true
	c = f.client()
	dir := t.TempDir()
	must.Fail(c.Graph(t.Context(), d, dir))(t, "not used", "a graph of another digest")
	if files, _ := filepath.Glob(filepath.Join(dir, "*")); len(files) != 0 {
		t.Errorf("left behind: %v", files)
	}
	for address, want := range map[string]string{"server": "want https", "http://example.org": "loopback alone",
		"https://a:b@example.org": "password", "ftp://x": "want https"} {
		must.Fail(New(address, ""))(t, want, address)
	}
}

// TestCertificates: advice about a certificate is given where it helps.
func TestCertificates(t *testing.T) {
	s := httptest.NewTLSServer(http.NotFoundHandler())
	s.Config.ErrorLog = log.New(io.Discard, "", 0)
	defer s.Close()
	ca := filepath.Join(t.TempDir(), "ca.crt")
	must.Do(t, os.WriteFile(ca, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE",
		Bytes: s.Certificate().Raw}), 0o644))
	_, port, _ := net.SplitHostPort(s.Listener.Addr().String())
	for _, c := range []struct {
		host, ca, want string
		advice         bool
	}{{"127.0.0.1", "", "unknown authority", true}, {"localhost", ca, "not localhost", false}} {
		client := must.Get(New("https://"+net.JoinHostPort(c.host, port), c.ca))(t)
		_, err := client.Describe(t.Context())
		if err == nil || !strings.Contains(err.Error(), c.want) ||
			strings.Contains(err.Error(), "--ca names its file") != c.advice {
			t.Errorf("%s: %v; want one with %q, advice %v", c.host, err, c.want, c.advice)
		}
	}
}

// TestCertificateRenewed: a sender that waits comes again where the server's certificate has ended, or has
// not begun, until it is renewed.
func TestCertificateRenewed(t *testing.T) {
	pair := func(name string, made time.Time) (string, tls.Certificate) {
		cert := filepath.Join(t.TempDir(), name)
		must.Do(t, selfsigned.Ensure(cert, cert+".key", made))
		return cert, must.Get(tls.LoadX509KeyPair(cert, cert+".key"))(t)
	}
	path, good := pair("good.crt", time.Now())
	trusted := must.Get(os.ReadFile(path))(t)
	for name, years := range map[string]int{"ended": -2, "not begun": 2} {
		path, bad := pair("bad.crt", time.Now().AddDate(years, 0, 0))
		ca := filepath.Join(t.TempDir(), "ca.crt")
		must.Do(t, os.WriteFile(ca, append(must.Get(os.ReadFile(path))(t), trusted...), 0o600))
		var shown atomic.Int32
		s := httptest.NewUnstartedServer(http.NotFoundHandler())
		s.Config.ErrorLog = log.New(io.Discard, "", 0)
		s.TLS = &tls.Config{GetCertificate: func(*tls.ClientHelloInfo) (*tls.Certificate, error) {
			if shown.Add(1) == 1 {
				return &bad, nil
			}
			return &good, nil
		}}
		s.StartTLS()
		s.TLS.Certificates = nil
		client := must.Get(New(s.URL, ca))(t)
		client.Wait = time.Minute
		must.Fail(client.Describe(t.Context()))(t, "404", name)
		if shown.Load() < 2 {
			t.Errorf("%s: one attempt", name)
		}
		s.Close()
	}
}

// FuzzReplies: whatever a server answers, a sender ends with a description that can be used, a
// receipt that is signed, or an error.
func FuzzReplies(f *testing.F) {
	f.Add([]byte(`{"rounds":[{"round":1}]}`))
	f.Add([]byte(`{"code":"wrong-key","title":"t","status":403}`))
	f.Fuzz(func(t *testing.T, data []byte) {
		var list struct{ Rounds []wire.Description }
		if wire.Unmarshal(data, &list) == nil {
			for _, d := range list.Rounds {
				if d.Check() == nil && (len(d.Graph) != 64 || d.GraphBytes < 1 || d.Deadline.IsZero()) {
					t.Fatalf("believed %+v", d)
				}
			}
		}
		var r wire.Receipt
		if wire.Unmarshal(data, &r) == nil && r.Verify(r.Server) == nil {
			t.Fatalf("believed %+v", r)
		}
	})
}

// TestPlainHTTP: a name that begins like an address of loopback is not resolved, and localhost is
// what it resolves to.
func TestPlainHTTP(t *testing.T) {
	for address, want := range map[string]bool{"http://127.0.0.1:1": true, "http://[::1]:1": true,
		"http://localhost:1":           true,
		"http://127.example.invalid:1": false, "http://127.0.0.1.example.invalid": false,
		"http://10.0.0.1": false} {
		c, _, err := HTTP(address, "")
		if (err == nil) != want {
			t.Errorf("%s: %v", address, err)
		}
		if err != nil {
			continue
		}
		dial := c.Transport.(*http.Transport).DialContext
		must.Fail(dial(t.Context(), "tcp", "192.0.2.1:9"))(t, "not loopback", address)
	}
}

// TestAddresses: an address that is refused is quoted without its password or token, whatever else is wrong with it;
// one with more than is sent is refused.
func TestAddresses(t *testing.T) {
	for address, says := range map[string]string{
		"https://127.0.0.1:1/prefix/":       "",
		"https://127.0.0.1:1/a@b":           "",
		"ftp://u:s3cret@h":                  `server "h"; want https://HOST:PORT`,
		"https://u:s3cret@h:port":           `server "h:port"; want https`,
		"https://u:s3@s3cret@h:port":        `server "h:port"; want https`,
		"https://u:s3cret#s3cret@h":         `server "h"; want https`,
		"u:s3cret@h":                        "want https",
		"https://s3cret@h":                  "holds a password",
		"http://u:s3cret@server.example":    "holds a password",
		"https://h:1?token=s3cret":          "server https://h:1: its address has a ? or #",
		"https://h:1/prefix#s3cret":         "server https://h:1/prefix: its address has a ? or #",
		"https://h:port?token=s3cret":       `server "https://h:port"; want https`,
		"http://server.example?key=s3cret":  "has a ? or #",
		"http://server.example/a":           "server http://server.example/a: plain HTTP",
		"http://server.example/a@b":         "server http://server.example/a@b: plain HTTP",
		"https://h/a@b?token=s3cret":        "server https://h/a@b: its address has a ? or #",
		"https://u:53#s3cret@h":             "server h: its address has a ? or #",
		"http://u:53/s3cret@server.example": "server server.example: plain HTTP",
	} {
		_, _, err := HTTP(address, "")
		if says == "" {
			must.Do(t, err)
			continue
		}
		must.Fail(0, err)(t, says, address)
		if strings.Contains(err.Error(), "s3") {
			t.Errorf("%s: its secret is in %v", address, err)
		}
	}
}

// TestTooLarge: an upload beyond the round's bytes is not sent, and the advice can be followed: messages of
// private rounds have one size.
func TestTooLarge(t *testing.T) {
	for budget, precision := range map[*privacy.Budget]bool{nil: true, {}: false} {
		_, err := new(Client).Send(t.Context(), &wire.Description{MaxBytes: 1, Privacy: budget}, nil, []byte("two"))
		if err == nil || !strings.Contains(err.Error(), "the round allows 1 (") ||
			strings.Contains(err.Error(), "--precision") != precision {
			t.Errorf("privacy %v: %v", budget, err)
		}
	}
}
