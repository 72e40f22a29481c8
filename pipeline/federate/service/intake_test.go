package service

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"image"
	"image/jpeg"
	"io"
	"log"
	"log/slog"
	"maps"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"runtime"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"fmp/featurize/imagefile/imagefiletest"
	"fmp/onnx/engine"
	"fmp/onnx/engine/pure"
	"fmp/onnx/must"
	"fmp/pipeline/federate/identity"
	"fmp/pipeline/federate/round"
	"fmp/pipeline/federate/wire"
)

// free reports whether an amount of memory is held by nobody.
func (in *intake) free(bytes int64) bool {
	ok := in.memory.TryAcquire(bytes)
	if ok {
		in.memory.Release(bytes)
	}
	return ok
}

// join makes more clients of the roster.
func (f *fixture) join(n int) (names []string) {
	f.t.Helper()
	for i := range n {
		name := fmt.Sprintf("slow-%03d", i)
		f.keys[name] = must.Get(identity.New(name))(f.t)
		names = append(names, name)
	}
	f.srv.Admit(f.rosterOf(slices.Collect(maps.Keys(f.keys))...))
	return names
}

// begin opens a connection and sends the head of a client's upload and the first bytes of its body.
func (f *fixture) begin(client string, data []byte, first int) net.Conn {
	f.t.Helper()
	req := must.Get(http.NewRequest("PUT", f.http.URL+wire.UploadPath(3, client), nil))(f.t)
	f.signed(f.keys[client], identity.Upload, data, nil)(req)
	c := must.Get(net.Dial("tcp", f.http.Listener.Addr().String()))(f.t)
	f.t.Cleanup(func() { c.Close() })
	fmt.Fprintf(c, "PUT %s HTTP/1.1\r\nHost: x\r\nAuthorization: %s\r\nContent-Digest: "+
		"%s\r\nContent-Length: %d\r\n\r\n", req.URL.EscapedPath(), req.Header.Get("Authorization"),
		req.Header.Get("Content-Digest"), len(data))
	must.Get(c.Write(data[:first]))(f.t)
	return c
}

// TestSlowClients: 128 clients of the roster that send ten bytes each keep nobody out, and are cut.
func TestSlowClients(t *testing.T) {
	f := newFixture(t, "")
	slow := f.join(128)
	f.srv.intake.grace = 4 * time.Second
	var held []net.Conn
	for _, name := range slow {
		held = append(held, f.begin(name, f.made(name, 1, nil), 10))
	}
	for { // until the server has begun to read them all
		f.srv.mu.Lock()
		n := len(f.srv.busy)
		f.srv.mu.Unlock()
		if n == len(slow) {
			break
		}
		time.Sleep(10 * time.Millisecond)
	}
	f.wants("an honest client beside them", 201, "")(f.put("a", f.made("a", 1, nil)))
	if rest := int64(maxInFlight*(f.round.Bounds.Bytes+1) - 129*firstPart); !f.srv.intake.free(rest) {
		t.Error("clients that send ten bytes hold the memory for whole uploads")
	}
	for i, c := range held {
		resp, err := http.ReadResponse(bufio.NewReader(c), nil)
		if err != nil {
			t.Fatalf("%s: %v", slow[i], err)
		}
		var p wire.Problem
		if err := json.NewDecoder(resp.Body).Decode(&p); err != nil || resp.StatusCode != 408 ||
			p.Code != wire.TooSlow {
			t.Fatalf("%s: %d %+v, %v; want 408", slow[i], resp.StatusCode, p, err)
		}
	}
	if st := f.srv.Status(); st.In != 1 || len(st.Refused) != 0 {
		t.Errorf("status %+v", st)
	}
	f.wants("one of them at a better rate", 201, "")(f.put(slow[0], f.made(slow[0], 1, nil)))
}

// TestSteadyClient: an upload that keeps the rate is taken, also when it comes for longer than the
// grace, and the connection lives on.
func TestSteadyClient(t *testing.T) {
	f := newFixture(t, "bounds: {rate: 100}\n")
	f.srv.intake.grace = 10 * time.Millisecond
	data := f.made("a", 1, nil)
	c := f.begin("a", data, 500) // these pay for five seconds
	for begun := time.Now(); time.Since(begun) < 2*f.srv.intake.grace; {
		runtime.Gosched()
	}
	must.Get(c.Write(data[500:]))(t)
	in := bufio.NewReader(c)
	resp, err := http.ReadResponse(in, nil)
	if err != nil || resp.StatusCode != 201 {
		t.Fatalf("%v, %v", resp, err)
	}
}

// TestLimit: every byte that has come gives time for more, at the round's rate.
func TestLimit(t *testing.T) {
	in := newIntake(&round.Bounds{Bytes: 1 << 20, Rate: 1000}, 1)
	var at time.Time
	for n, want := range map[int]time.Duration{0: grace, 10: grace + 10*time.Millisecond,
		1 << 20: grace + 1048576*time.Millisecond} {
		if got := in.limit(at, n).Sub(at); got != want {
			t.Errorf("%d bytes: %v, want %v", n, got, want)
		}
	}
	in.total = time.Minute
	if got := in.limit(at, 1<<20).Sub(at); got != time.Minute {
		t.Errorf("a body may come for %v; want a minute at most", got)
	}
}

// TestSlowBodies: bodies that come slowly, by whatever interface, hold no memory but that of the
// bytes that have come; a photograph beside them is answered at once, and each of them is cut.
func TestSlowBodies(t *testing.T) {
	f, _ := serving(t)
	p := f.srv.predictions
	p.arriving.grace = 2 * time.Second
	at := listening(t, f.srv.Handler())
	h2 := overHTTP2(t)
	const stated = 31 << 20
	kinds := []struct{ path, kind, first string }{
		{"/v1/predict", "image/jpeg", "\xff\xd8\xff"},
		{"/v1/predict", "application/json", `{"features": [[`},
		{"/v2/models/classifier/infer", "application/json", `{"inputs": [`},
		{"/v2/models/classifier/infer", "application/octet-stream", `{"inputs": [`},
		{grpcPath + "ModelInfer", "application/grpc", "\x00\x01\xe0\x00\x00"},
	}
	answers := make(chan string, 4*len(kinds))
	ends := make([]*io.PipeWriter, 0, 4*len(kinds))
	for range 4 {
		for _, k := range kinds {
			in, out := io.Pipe()
			ends = append(ends, out)
			req := must.Get(http.NewRequest("POST", "http://"+at+k.path, in))(t)
			req.ContentLength = stated
			req.Header.Set("Content-Type", k.kind)
			if k.kind == "application/octet-stream" {
				req.Header.Set(headerLength, "12")
			}
			reader(req)
			client := http.DefaultClient
			if k.kind == "application/grpc" {
				client = &http.Client{Transport: h2}
			}
			go func() {
				resp, err := client.Do(req)
				if err != nil {
					answers <- err.Error() // the connection was cut
					return
				}
				resp.Body.Close()
				answers <- fmt.Sprint(resp.StatusCode, resp.Header.Get("Grpc-Status"))
			}()
			go func() { _, _ = out.Write([]byte(k.first)); _, _ = out.Write(make([]byte, 5000)) }()
		}
	}
	begun := func() (n int64) {
		for n = 0; p.arriving.memory.TryAcquire(1 << 10); n += 1 << 10 {
		}
		p.arriving.memory.Release(n)
		return maxArriving - n
	}
	for end := time.Now().Add(time.Minute); begun() < int64(len(ends))*firstPart; time.Sleep(
		10 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("%d bodies of 5 KB hold %d bytes after a minute", len(ends), begun())
		}
	}
	if held := begun(); held > int64(len(ends))*4*firstPart {
		t.Errorf("%d bodies of 5 KB hold %d bytes", len(ends), held)
	}
	if !p.intake.free(maxPredicting) {
		t.Error("bodies that have not come hold memory for what would be made of them")
	}
	var photo bytes.Buffer
	must.Do(t, jpeg.Encode(&photo, image.NewGray(image.Rect(0, 0, 300, 300)), nil))
	start := time.Now()
	if w := f.ask("/v1/predict", "image/jpeg", photo.Bytes()); w.Code != http.StatusOK {
		t.Errorf("a photograph beside them: %d %s", w.Code, w.Body)
	}
	if took := time.Since(start); took > time.Second {
		t.Errorf("a photograph beside them took %v", took)
	}
	for range ends {
		select {
		case answer := <-answers:
			if !strings.HasPrefix(answer, "408") && answer != "2004" &&
				!strings.Contains(answer, "EOF") &&
				!strings.Contains(answer, "reset") && !strings.Contains(answer, "broken pipe") {
				t.Errorf("a body that stopped: %s", answer)
			}
		case <-time.After(20 * time.Second):
			t.Fatal("a body that stopped is waited for")
		}
	}
	for _, end := range ends {
		end.Close()
	}
}

// TestSenderLeaves: the decoding of a picture stops when its sender has gone, and its place is
// free.
func TestSenderLeaves(t *testing.T) {
	f, _ := serving(t)
	p := f.srv.predictions
	at := listening(t, f.srv.Handler())
	ctx, leave := context.WithCancel(t.Context())
	bomb := imagefiletest.Scans(4000, 4000, 64) // seconds
	req := must.Get(http.NewRequestWithContext(ctx, "POST", "http://"+at+"/v1/predict",
		bytes.NewReader(bomb)))(t)
	req.Header.Set("Content-Type", "image/jpeg")
	reader(req)
	go func() {
		if resp, err := http.DefaultClient.Do(req); err == nil {
			resp.Body.Close()
		}
	}()
	for start := time.Now(); p.decoding.free(maxDecoding); {
		if time.Since(start) > 10*time.Second {
			t.Fatal("the decoding does not begin")
		}
	}
	leave()
	start := time.Now()
	for !p.decoding.free(maxDecoding) {
		time.Sleep(time.Millisecond)
	}
	whole := time.Now()
	if w := f.ask("/v1/predict", "image/jpeg", bomb); w.Code != http.StatusOK {
		t.Fatalf("the picture with its sender there: %d %s", w.Code, w.Body)
	}
	if left, all := whole.Sub(start), time.Since(whole); left > all/4 {
		t.Errorf("the place was free %v after the sender had gone; the whole picture takes %v",
			left, all)
	}
}

// TestShares: a caller holds a share of the memory at most, whatever its address within its
// network; loopback has none.
func TestShares(t *testing.T) {
	in := newPredicting(1000)
	in.wait, in.shares = time.Millisecond, newShares(500)
	of := func(address string) string {
		r := httptest.NewRequest("GET", "/", nil)
		r.RemoteAddr = address
		return caller(r)
	}
	first := lease{in: in, of: of("[2001:db8::1]:1")}
	must.Do(t, first.take(t.Context(), 400))
	for address, want := range map[string]error{"[2001:db8::2]:9": errBusy, "[2001:db8:1::1]:9": nil,
		"192.0.2.1:1": nil, "127.0.0.1:4": nil, "[::1]:4": nil, "[::ffff:127.0.0.1]:4": nil} {
		other := lease{in: in, of: of(address)}
		if err := other.take(t.Context(), 200); err != want {
			t.Errorf("%s: %v; want %v", address, err, want)
		}
		other.release()
	}
	first.release()
	if len(in.shares.held) != 0 {
		t.Errorf("%v is kept of callers that hold nothing", in.shares.held)
	}
}

// unread is a connection whose reader takes nothing.
type unread struct {
	*httptest.ResponseRecorder
	limit time.Time
	held  func()
}

func (u *unread) SetWriteDeadline(t time.Time) error { u.limit = t; return nil }

func (u *unread) Write([]byte) (int, error) {
	u.held()
	if u.limit.IsZero() {
		return 0, errors.New("it would wait for ever")
	}
	<-time.After(time.Until(u.limit)) // as a connection does
	return 0, os.ErrDeadlineExceeded
}

// TestUnreadAnswers: an answer that nobody reads holds its own memory, and not that of its request, by
// whatever interface; its reader has a limit, and all is given back.
func TestUnreadAnswers(t *testing.T) {
	f, dx := serving(t)
	p := f.srv.predictions
	p.intake.taking = 50 * time.Millisecond
	const n, padding, most = 64, 1 << 20, 256 << 10
	blank := strings.Repeat(" ", padding) + "}"
	raw := rawRows(n, dx)
	// Of two IDs the last counts: the first is padding.
	for name, c := range map[string]struct {
		path, kind string
		body       []byte
	}{
		"/v1": {"/v1/predict", "application/json", []byte(`{"features": ` + rows(n, dx) + blank)},
		"/v2": {inferPath, "application/json", append(bytes.TrimSuffix(inferRows(n, dx), []byte("}")), blank...)},
		"gRPC": {grpcPath + "ModelInfer", "application/grpc",
			frame(appendBytes(appendBytes(raw, 3, make([]byte, padding)), 3, nil))},
	} {
		r := httptest.NewRequest("POST", c.path, bytes.NewReader(c.body))
		r.Proto, r.ProtoMajor, r.ProtoMinor = "HTTP/2.0", 2, 0
		r.Header.Set("Content-Type", c.kind)
		reader(r)
		written := 0
		w := &unread{ResponseRecorder: httptest.NewRecorder(), held: func() {
			if written++; !p.intake.free(maxPredicting - most) {
				t.Errorf("%s: it holds more than %d bytes", name, most)
			}
		}}
		start := time.Now()
		f.srv.Handler().ServeHTTP(w, r)
		if took := time.Since(start); written == 0 || took < p.intake.taking || took > 20*time.Second {
			t.Errorf("%s: %d writes, %v: %d %s", name, written, took, w.Code, w.Body)
		}
		if !p.intake.free(maxPredicting) {
			t.Fatalf("%s: memory is not given back", name)
		}
	}
}

// TestUnreadLimits: the reader of any answer has two minutes, and more by its length, unless the answer has a
// limit of its own.
func TestUnreadLimits(t *testing.T) {
	for name, c := range map[string]struct {
		want   time.Duration
		handle http.HandlerFunc
	}{
		"short": {2 * time.Minute, func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "short") }},
		"a file": {4 * time.Minute, func(w http.ResponseWriter, r *http.Request) {
			serveModel(w, r, "", make([]byte, 120*predictRate))
		}},
		"JSON": {3 * time.Minute, func(w http.ResponseWriter, _ *http.Request) {
			reply(w, http.StatusOK, strings.Repeat("x", 60*predictRate-3)) // of quotes and a line's end
		}},
		"refused": {2 * time.Minute, func(w http.ResponseWriter, _ *http.Request) { refuse(w, wire.NotYet, "no") }},
		"of its own": {time.Second, func(w http.ResponseWriter, _ *http.Request) {
			l := lease{in: newPredicting(9)}
			l.in.taking = time.Second
			l.send(w, []byte("one"))
		}},
	} {
		synctest.Test(t, func(t *testing.T) {
			start := time.Now()
			w := &unread{ResponseRecorder: httptest.NewRecorder(), held: func() {}}
			guard(c.handle, nil).ServeHTTP(&watched{ResponseWriter: w}, httptest.NewRequest("GET", "/", nil))
			if took := time.Since(start); took != c.want {
				t.Errorf("%s: its reader had %v; want %v", name, took, c.want)
			}
		})
	}
}

// piped listens to one end of a pipe, which is closed with the listener.
type piped struct {
	net.Conn
	once chan net.Conn
}

func (p *piped) Addr() net.Addr { return p.LocalAddr() }

func (p *piped) Accept() (net.Conn, error) {
	if c, ok := <-p.once; ok {
		return c, nil
	}
	return nil, net.ErrClosed
}

func (p *piped) Close() error { close(p.once); return p.Conn.Close() }

// TestUnreadConnections: an answer ends on a connection of which nothing more is read, by
// whatever version of HTTP, and the connection with it.
func TestUnreadConnections(t *testing.T) {
	window := "\x7f\xfe\x00\x00"
	for name, request := range map[string]string{
		"HTTP/1.1": "GET / HTTP/1.1\r\nHost: x\r\n\r\n",
		"HTTP/2, windows of 2 GiB": "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" +
			"\x00\x00\x06\x04\x00\x00\x00\x00\x00\x00\x04" + window + "\x00\x00\x04\x08\x00\x00\x00\x00\x00" + window +
			"\x00\x00\x06\x01\x05\x00\x00\x00\x01\x82\x86\x84\x01\x01x",
	} {
		synctest.Test(t, func(t *testing.T) {
			ended := make(chan error, 1)
			srv := HTTPServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
				_, err := w.Write(make([]byte, 1<<20))
				ended <- err
			}), log.New(io.Discard, "", 0))
			in, out := net.Pipe()
			l := &piped{in, make(chan net.Conn, 1)}
			l.once <- in
			go func() { _ = srv.Serve(l) }()
			defer out.Close()
			start := time.Now()
			go func() { _, _ = io.WriteString(out, request) }()
			_ = must.Get(io.CopyN(io.Discard, out, 64<<10))(t)
			select {
			case err := <-ended: // twice the time where part of a frame was read
				if took := time.Since(start); err == nil || took < predictTime || took > 2*predictTime {
					t.Errorf("%s: it ended after %v: %v", name, took, err)
				}
			case <-time.After(time.Hour):
				t.Errorf("%s: it has not ended after an hour", name)
			}
			<-time.After(time.Minute)
			if _, err := io.Copy(io.Discard, out); err != nil || time.Since(start) > time.Hour {
				t.Errorf("%s: the connection after %v: %v", name, time.Since(start), err)
			}
			_ = srv.Close()
		})
	}
}

// TestUnreadVersions: files of earlier versions that nobody reads hold a bounded memory, which is given back.
// The latest is served without it, also before it makes predictions: that the engine does not run it
// is in status, page and metrics until a version is run.
func TestUnreadVersions(t *testing.T) {
	f := newFixture(t, "quorum: 2\nrebuild_interval: 1s\n")
	f.in("a", "b")
	must.Do(t, f.srv.Pool(t.Context()))
	f.in("c")
	engineOf := f.srv.predictions.engine
	f.srv.predictions.engine = must.Get(pure.New(engine.Options{Threads: 1}))(t) // which cannot open it
	told := func(want bool) {
		t.Helper()
		f.wants("metrics", 200, "", fmt.Sprintf("\nfmp_version_unserved %d\n", one(want)))(
			f.request("GET", "/metrics", nil, reader))
		_, page := f.request("GET", "/", nil, reader)
		if st := f.srv.Status(); (st.Unserved != "") != want || st.Failure != "" ||
			strings.Contains(string(page), "makes no predictions here") != want {
			t.Errorf("want it told: %v; unserved %q, failure %q", want, st.Unserved, st.Failure)
		}
	}
	told(false)
	var log strings.Builder
	f.srv.Log = slog.New(slog.NewTextHandler(&log, nil))
	must.Do(t, f.srv.Pool(t.Context()))
	if text := log.String(); !strings.Contains(text, noPredictions) || !strings.Contains(text, "classifier made") {
		t.Errorf("the log: %s", text)
	}
	told(true)
	of := int64(f.srv.versions[0].Bytes)
	f.srv.files.wait = time.Millisecond
	for name, c := range map[string]struct {
		query string
		free  int64
		want  int
	}{"room": {"?version=1", of, 200}, "no room": {"?version=1", of - 1, 503}, "the latest, not open yet": {"", 0, 200}} {
		must.Do(t, f.srv.files.memory.Acquire(t.Context(), maxFiles-c.free))
		if status, _ := f.classifier(c.query); status != c.want {
			t.Errorf("%s: %d; want %d", name, status, c.want)
		}
		f.srv.files.memory.Release(maxFiles - c.free)
	}
	if !f.srv.files.free(maxFiles) {
		t.Error("memory is not given back")
	}
	unable := f.srv.predictions.engine
	f.srv.predictions.engine = engineOf
	f.in("d/e f")
	must.Do(t, f.srv.Pool(t.Context()))
	told(false)
	for _, found := range []engine.Engine{unable, engineOf} { // by a server that did not know of it
		f.srv.predictions.engine = found
		f.srv.versions, f.srv.unsure = f.srv.versions[:2], true
		must.Do(t, f.srv.Pool(t.Context()))
		told(found == unable)
	}
}

// TestUnreadSmall: the limit holds for an answer that fits a buffer, and ends with it: the connection is
// used again after it.
func TestUnreadSmall(t *testing.T) {
	in := newPredicting(1 << 20)
	in.taking = 200 * time.Millisecond
	for _, size := range []int{900, 3000} {
		closed := make(chan struct{}, 2)
		s := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if r.URL.Path == "/other" { // an answer that has no limit of its own
				_, _ = w.Write(make([]byte, size))
				return
			}
			l := lease{in: in}
			defer l.release()
			l.send(w, make([]byte, size))
		}))
		s.Config.ConnState = func(c net.Conn, state http.ConnState) {
			switch state {
			case http.StateNew:
				_ = c.(*net.TCPConn).SetWriteBuffer(4 << 10)
			case http.StateClosed:
				closed <- struct{}{}
			}
		}
		s.Start()
		defer s.Close()
		c := must.Get(net.Dial("tcp", s.Listener.Addr().String()))(t)
		defer c.Close()
		must.Do(t, c.(*net.TCPConn).SetReadBuffer(4<<10))
		from := bufio.NewReader(c)
		for _, path := range []string{"/", "/other"} {
			must.Get(fmt.Fprintf(c, "GET %s HTTP/1.1\r\nHost: x\r\n\r\n", path))(t)
			r := must.Get(http.ReadResponse(from, nil))(t)
			if n := must.Get(io.Copy(io.Discard, r.Body))(t); n != int64(size) {
				t.Errorf("%s: %d bytes of %d", path, n, size)
			}
			<-time.After(2 * in.taking) // a pause of the reader
		}
		go func() { // requests whose answers nobody reads
			for {
				if _, err := c.Write([]byte("GET / HTTP/1.1\r\nHost: x\r\n\r\n")); err != nil {
					return
				}
			}
		}()
		select {
		case <-closed:
		case <-time.After(10 * time.Second):
			t.Errorf("%d bytes: a connection that nobody reads is kept", size)
		}
		c.Close()
		s.CloseClientConnections()
	}
}
