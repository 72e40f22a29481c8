package service

import (
	"bufio"
	"bytes"
	"compress/gzip"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"strings"
	"testing"
	"time"

	"fmp/onnx/must"
	"fmp/pipeline/federate/identity"
	"fmp/pipeline/federate/wire"
)

// raw sends bytes on a connection of their own and returns all that comes back within a second.
func raw(t *testing.T, at, text string) string {
	t.Helper()
	c := must.Get(net.Dial("tcp", at))(t)
	defer c.Close()
	if _, err := io.WriteString(c, text); err != nil {
		return ""
	}
	c.SetReadDeadline(time.Now().Add(time.Second))
	data, _ := io.ReadAll(c)
	return string(data)
}

// TestMalformedRequests: what is ambiguous or is none of the interface is refused, and no request
// hides in another's body.
func TestMalformedRequests(t *testing.T) {
	f, _ := serving(t)
	at := listening(t, f.srv.Handler())
	const token = "Authorization: Bearer for readers\r\n"
	head := func(line, more string) string {
		return line + " HTTP/1.1\r\nHost: " + at + "\r\n" + token + more + "\r\n"
	}
	hidden := "GET /v2 HTTP/1.1\r\nHost: " + at + "\r\n" + token + "\r\n"
	for name, c := range map[string]struct {
		text, want, not string
	}{
		"a length and chunks": {head("POST /v1/predict",
			"Content-Length: 4\r\nTransfer-Encoding: chunked\r\n") + "0\r\n\r\n" + hidden,
			"", "fmp serve"},
		"two lengths": {head("POST /v1/predict", "Content-Length: 4\r\nContent-Length: 40\r\n") + hidden,
			"HTTP/1.1 400", "fmp serve"},
		"chunks by another name": {head("POST /v1/predict", "Transfer-Encoding: xchunked\r\n") +
			hidden, "HTTP/1.1 501", "fmp serve"},
		"a line end within a header": {head("GET /v2", "X: a\rTransfer-Encoding: chunked\r\n"),
			"HTTP/1.1 400", "fmp serve"},
		"an address of another host": {"GET http://evil.example/v2 HTTP/1.1\r\nHost: " + at + "\r\n" +
			token + "\r\n", "HTTP/1.1 421", "fmp serve"},
		"two hosts": {"GET /v2 HTTP/1.1\r\nHost: " + at + "\r\nHost: evil.example\r\n" + token + "\r\n",
			"HTTP/1.1 400", "fmp serve"},
		"no host": {"GET /v2 HTTP/1.0\r\n" + token + "\r\n", "HTTP/1.0 421", "fmp serve"},
		"a tunnel": {"CONNECT example.com:80 HTTP/1.1\r\nHost: " + at + "\r\n\r\n",
			"HTTP/1.1 4", "200"},
		"an echo": {head("TRACE /v2", "Secret: 1\r\n"), "HTTP/1.1 405", "Secret: 1"},
		"an upgrade to HTTP/2": {head("GET /v2",
			"Connection: Upgrade, HTTP2-Settings\r\nUpgrade: h2c\r\nHTTP2-Settings: AAMAAABkAAQAAP__\r\n"),
			"HTTP/1.1 200", "101"},
		"an upgrade to a WebSocket": {head("GET /v2",
			"Connection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\n"+
				"Sec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==\r\n"), "HTTP/1.1 200", "101"},
		"a query of a megabyte": {head("GET /v2?"+strings.Repeat("x", 1<<20), ""),
			"HTTP/1.1 431", "fmp serve"},
		"a path out of the interface": {head("GET /v1/rounds/3/../../../etc/passwd", ""), "", "root:"},
		"a null in a client's name": {head("GET /v1/rounds/3/uploads/a%00b/receipt", ""),
			"HTTP/1.1 401", "200 OK"},
	} {
		got := raw(t, at, c.text)
		if !strings.HasPrefix(got, c.want) || strings.Contains(got, c.not) &&
			!strings.HasPrefix(c.want, "HTTP/1.1 200") ||
			strings.HasPrefix(got, "HTTP/1.1 101") {
			t.Errorf("%s: %.300q; want %q and not %q", name, got, c.want, c.not)
		}
	}
}

// TestBombs: bodies that are small and want much work are refused in little time.
func TestBombs(t *testing.T) {
	f, _ := serving(t)
	var zipped bytes.Buffer
	z := gzip.NewWriter(&zipped)
	z.Write(bytes.Repeat([]byte("0,"), 16<<20))
	z.Close()
	form := strings.Repeat("--b\r\nContent-Disposition: form-data; name=a; filename=a\r\n\r\nx\r\n",
		100_000) + "--b--\r\n"
	start := time.Now()
	for name, c := range map[string]struct {
		path, kind string
		body       []byte
	}{
		"deep rows": {"/v1/predict", "application/json",
			[]byte(`{"features": ` + strings.Repeat("[", 5<<20))},
		"deep tensors": {inferPath, "application/json",
			[]byte(`{"inputs": [{"name": "images", "shape": [1], "datatype": "UINT8", "data": ` +
				strings.Repeat("[", 5<<20))},
		"deep unknown keys": {inferPath, "application/json",
			[]byte(`{"a": ` + strings.Repeat(`{"a":`, 1<<20))},
		"many parts": {"/v1/predict", "multipart/form-data; boundary=b", []byte(form)},
		"zipped":     {"/v1/predict", "application/json", zipped.Bytes()},
		"a shape beyond": {inferPath, "application/json",
			[]byte(
				`{"inputs": [{"name": "images", "shape": [9223372036854775807, 9223372036854775807, 2], "datatype": "UINT8", "data": [1]}]}`)},
	} {
		if w := f.ask(c.path, c.kind, c.body); w.Code != http.StatusBadRequest {
			t.Errorf("%s: %d %.200s", name, w.Code, w.Body)
		}
	}
	if took := time.Since(start); took > 30*time.Second {
		t.Errorf("they took %v", took)
	}
}

// TestSlowHeads: connections that send their head byte by byte keep nobody out, and are cut.
func TestSlowHeads(t *testing.T) {
	if testing.Short() {
		t.Skip("waits for the time that a head may take")
	}
	t.Parallel()
	f := newFixture(t, "")
	at := listening(t, f.srv.Handler())
	var slow []net.Conn
	for range 300 {
		c := must.Get(net.Dial("tcp", at))(t)
		defer c.Close()
		io.WriteString(c, "GET / HTTP/1.1\r\nX: ")
		slow = append(slow, c)
	}
	start := time.Now()
	resp, err := http.Get("http://" + at + "/healthz")
	if err != nil || resp.StatusCode != http.StatusOK || time.Since(start) > 2*time.Second {
		t.Fatalf("beside them: %v after %v", err, time.Since(start))
	}
	resp.Body.Close()
	for _, c := range slow {
		c.SetReadDeadline(start.Add(15 * time.Second))
		if _, err := http.ReadResponse(bufio.NewReader(c), nil); err != nil {
			if e, ok := err.(net.Error); ok && e.Timeout() {
				t.Fatal("a head that does not end is waited for")
			}
		}
	}
}

// TestStatementsOverRounds: a receipt of one round, server or client is none of another's.
func TestStatementsOverRounds(t *testing.T) {
	f := newFixture(t, "")
	data := f.made("a", 1, nil)
	r := wire.Receipt{Round: 3, Client: "a", Graph: f.round.Client.Digest, Upload: digestOf(data),
		Time: f.clock()}
	r.Sign(f.key)
	for name, change := range map[string]func(*wire.Receipt){
		"the next round":  func(r *wire.Receipt) { r.Round++ },
		"another server":  func(r *wire.Receipt) { r.Server = f.keys["a"].PublicText() },
		"another client":  func(r *wire.Receipt) { r.Client = "b" },
		"the same server": nil,
	} {
		other := r
		if change != nil {
			change(&other)
		}
		if err := other.Verify(f.key.PublicText()); (err == nil) != (change == nil) {
			t.Errorf("%s: %v", name, err)
		}
	}
	name := url.PathEscape("a\u0301") // not a client, however it looks
	f.wants("a name that looks alike", 403, "")(f.request("PUT", "/v1/rounds/3/uploads/"+name, data,
		f.signed(f.keys["a"], identity.Upload, data, nil)))
	if text := fmt.Sprint(f.key); strings.Contains(text, "PRIVATE") {
		t.Error("a key prints its private half")
	}
}
