package service

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"runtime"
	"strings"
	"testing"
	"time"

	"fmp/onnx/must"
	"fmp/pipeline/federate/identity"
	"fmp/pipeline/federate/round"
	"fmp/pipeline/federate/wire"
)

// join makes more clients of the roster.
func (f *fixture) join(n int) (names []string) {
	f.t.Helper()
	var text strings.Builder
	for i := range n {
		name := fmt.Sprintf("slow-%03d", i)
		f.keys[name] = must.Get(identity.New(name))(f.t)
		names = append(names, name)
	}
	for _, k := range f.keys {
		fmt.Fprintln(&text, k.Line())
	}
	clients := must.Get(identity.ParseRoster([]byte(text.String())))(f.t)
	must.Do(f.t, f.srv.Admit(clients))
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
	if rest := int64(maxInFlight*(f.round.Bounds.Bytes+1) - 129*firstPart); f.srv.intake.memory.TryAcquire(rest) {
		f.srv.intake.memory.Release(rest)
	} else {
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

// TestMemory: what uploads may hold together is bounded by what has come of them, and what is given
// back may be held again.
func TestMemory(t *testing.T) {
	const all = 1 << 20
	in := newIntake(&round.Bounds{Bytes: 1 << 10, Rate: 1000}, all)
	in.wait = time.Millisecond
	first, second := lease{in: in}, lease{in: in}
	if err := first.take(t.Context(), all); err != nil || in.memory.TryAcquire(1) {
		t.Fatalf("the bound is not %d bytes: %v", all, err)
	}
	if err := second.take(t.Context(), 1); err != errBusy {
		t.Errorf("with nothing left: %v", err)
	}
	var beyond *errBeyond
	if err := first.take(t.Context(), 1); !errors.As(err, &beyond) {
		t.Errorf("more than there is: %v", err)
	}
	first.release()
	first.release()
	must.Do(t, second.take(t.Context(), all))
}
