package sender

import (
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"math"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"fmp/onnx/atomicfile"
	"fmp/onnx/must"
	"fmp/pipeline/federate/identity"
	"fmp/pipeline/federate/wire"
	"fmp/pipeline/privacy"
)

// replies is a server that answers every request alike.
type replies func(*http.Request) (*http.Response, error)

func (f replies) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

// client returns a client of the server.
func (f replies) client() *Client {
	return &Client{base: "https://s.example", http: &http.Client{Transport: f,
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}}
}

func reply(code int, header http.Header, body string) replies {
	return func(*http.Request) (*http.Response, error) {
		return &http.Response{StatusCode: code, Header: header,
			Body: io.NopCloser(strings.NewReader(body))}, nil
	}
}

// TestHostileReplies: a server's text cannot write lines or move the terminal's cursor, and an
// error says whose answer it was.
func TestHostileReplies(t *testing.T) {
	for name, c := range map[string]struct {
		reply replies
		want  []string
	}{
		"control characters": {reply(403, nil,
			`{"code":"x\u0007","title":"\u001b[2Jt","detail":"a\nfmp-edge: receipt: b"}`),
			[]string{"[2Jt", "receipt: b"}},
		"a closed round": {reply(410, nil, `{"code":"round-closed","detail":"\u001b]0;owned\u0007"}`),
			[]string{"is closed", "owned"}},
		"a long text": {reply(403, nil, `{"code":"x","title":"`+strings.Repeat("a", 9000)+`"}`),
			[]string{"aaa…"}},
		"a redirect": {reply(302, http.Header{"Location": {"http://other.example/a"}}, ""),
			[]string{"302 Found", "other.example/a", "not followed"}},
		"a page": {reply(200, nil, "<html>"),
			[]string{"https://s.example/v1/rounds", "not the JSON", "check the address"}},
		"a long reply": {reply(200, nil, strings.Repeat(" ", wire.MaxJSON+1)),
			[]string{"https://s.example/v1/rounds", "more than"}},
	} {
		client := c.reply.client()
		client.Wait = time.Second
		_, err := client.Describe(t.Context())
		if err == nil {
			t.Errorf("%s: no error", name)
			continue
		}
		if s := err.Error(); strings.ContainsAny(s, "\n\x1b\x07") || len(s) > 2000 {
			t.Errorf("%s: %q", name, s)
		}
		for _, want := range c.want {
			if !strings.Contains(err.Error(), want) {
				t.Errorf("%s: %q; want %q", name, err, want)
			}
		}
	}
}

// TestNoEmptyPart: a client graph that is refused leaves no file; one that ended in the middle
// leaves its bytes.
func TestNoEmptyPart(t *testing.T) {
	for name, c := range map[string]struct {
		reply replies
		left  int64
	}{
		"redirect":  {reply(302, http.Header{"Location": {"http://other.example/a"}}, ""), -1},
		"cut short": {reply(200, nil, "abc"), 3},
	} {
		client := c.reply.client()
		client.over = time.Now()
		dir, left := t.TempDir(), int64(-1)
		lock := filepath.Join(dir, strings.Repeat("0", 64)+".onnx.part"+atomicfile.LockFile)
		must.Do(t, os.WriteFile(lock, nil, 0o600)) // which Windows has in any case
		must.Fail(client.Graph(t.Context(), &wire.Description{Graph: strings.Repeat("0", 64), GraphBytes: 100}, dir))(
			t, "", name)
		if info, err := os.Stat(filepath.Join(dir, strings.Repeat("0", 64)+".onnx.part")); err == nil {
			left = info.Size()
		}
		must.Fail(os.Stat(lock))(t, "", name)
		if left != c.left {
			t.Errorf("%s: %d bytes are left, want %d", name, left, c.left)
		}
	}
}

// slow is a body of one byte every thirty seconds.
type slow struct{ r *http.Request }

func (s slow) Read(p []byte) (int, error) {
	select {
	case <-s.r.Context().Done():
		return 0, s.r.Context().Err()
	case <-time.After(30 * time.Second):
		return copy(p, "a"), nil
	}
}

func (slow) Close() error { return nil }

// listed is a server's list of one round.
func listed(t *testing.T, d wire.Description) string {
	d.Round, d.MaxBytes, d.GraphBytes, d.Graph = 1, 9, 1, strings.Repeat("0", 64)
	d.ServerKey = base64.StdEncoding.EncodeToString(make([]byte, 32))
	return string(must.Get(json.Marshal(map[string]any{"rounds": []wire.Description{d}}))(t))
}

// TestLateUploads: a sender retries until the deadline, and beyond it where the round takes late
// uploads, which it does not call closed.
func TestLateUploads(t *testing.T) {
	for name, c := range map[string]struct {
		state      string
		late       bool
		left, want time.Duration // to the deadline, and of the retries
	}{
		"open":                  {wire.Open, false, time.Hour, time.Hour},
		"open, then late":       {wire.Open, true, time.Hour, 25 * time.Hour},
		"open long, then late":  {wire.Open, true, 48 * time.Hour, 72 * time.Hour},
		"late":                  {wire.Late, true, -48 * time.Hour, 24 * time.Hour},
		"late, an older server": {wire.Late, false, -time.Hour, 24 * time.Hour},
	} {
		synctest.Test(t, func(t *testing.T) {
			now := time.Now()
			list := listed(t, wire.Description{State: c.state, Now: now, Deadline: now.Add(c.left), AcceptLate: c.late})
			client := &Client{base: "https://s.example", Wait: 24 * time.Hour,
				http: &http.Client{Transport: replies(func(r *http.Request) (*http.Response, error) {
					if r.Method == http.MethodGet {
						return reply(200, nil, list)(r)
					}
					return reply(503, nil, "")(r)
				})}}
			d := must.Get(client.Describe(t.Context()))(t)
			_, err := client.Send(t.Context(), d, must.Get(identity.New("a"))(t), []byte("x"))
			if took := time.Since(now); errors.Is(err, ErrClosed) == (c.late || c.state == wire.Late) ||
				took != c.want {
				t.Errorf("%s: after %v, want %v: %v", name, took, c.want, err)
			}
		})
	}
}

// TestAnswerTravels: a description is as old as its request: no reply is in time that would come after the deadline,
// however long the answer was under way, and after however many attempts.
func TestAnswerTravels(t *testing.T) {
	const left = 30 * time.Second
	for travel := time.Duration(0); travel < requestTime; travel += 7 * time.Second {
		synctest.Test(t, func(t *testing.T) {
			attempts := 0
			client := replies(func(r *http.Request) (*http.Response, error) {
				if attempts++; attempts < 3 {
					return reply(503, nil, "")(r)
				}
				list := listed(t, wire.Description{State: wire.Open, Now: time.Now(), Deadline: time.Now().Add(left),
					Privacy: &privacy.Budget{Epsilon: 4, Delta: 1e-5, Unit: privacy.Example,
						Relation: privacy.AddRemove, Noise: privacy.Local}})
				<-time.After(travel)
				return reply(200, nil, list)(r)
			}).client()
			client.Wait = time.Hour
			d := must.Get(client.Describe(t.Context()))(t)
			for after := time.Duration(0); after < 2*left; after += time.Second {
				if got, want := d.TooLate(after), travel+after > left; got != want {
					t.Errorf("under way for %v, a reply after %v: too late %t", travel, after, got)
				}
			}
			if got := time.Until(client.over); got != left {
				t.Errorf("under way for %v: retries for %v", travel, got)
			}
		})
	}
}

// TestFarDeadline: retries go on where no duration holds the time to the deadline, or with the wait behind it.
func TestFarDeadline(t *testing.T) {
	for _, late := range []bool{false, true} {
		for _, wait := range []time.Duration{time.Hour, math.MaxInt64} {
			c := reply(200, nil, listed(t, wire.Description{State: wire.Open, AcceptLate: late, Now: time.Now(),
				Deadline: time.Date(9999, 1, 1, 0, 0, 0, 0, time.UTC)})).client()
			c.Wait = wait
			must.Get(c.Describe(t.Context()))(t)
			if left := time.Until(c.over); left < 200*365*24*time.Hour {
				t.Errorf("late %t, wait %v: retries for %v", late, wait, left)
			}
		}
	}
}

// TestSlowGraph: a client graph that comes one byte at a time keeps no client beyond the round's
// deadline.
func TestSlowGraph(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := replies(func(r *http.Request) (*http.Response, error) {
			return &http.Response{StatusCode: 200, Body: slow{r}}, nil
		}).client()
		c.over = time.Now().Add(time.Hour)
		start := time.Now()
		_, err := c.Graph(t.Context(),
			&wire.Description{Graph: strings.Repeat("0", 64), GraphBytes: 100_000}, t.TempDir())
		if !errors.Is(err, ErrClosed) || time.Since(start) > 2*time.Hour {
			t.Errorf("after %v: %v", time.Since(start), err)
		}
	})
}

// TestSilent: a server that takes requests and never answers holds a client no longer than it waits.
func TestSilent(t *testing.T) {
	for _, wait := range []time.Duration{2 * time.Second, time.Hour} {
		synctest.Test(t, func(t *testing.T) {
			c := replies(func(r *http.Request) (*http.Response, error) {
				<-r.Context().Done()
				return nil, r.Context().Err()
			}).client()
			c.Wait = wait
			start := time.Now()
			must.Fail(c.Describe(t.Context()))(t, "no answer for ", wait.String())
			must.Fail(c.Withdraw(t.Context(), &wire.Description{}, must.Get(identity.New("a"))(t)))(
				t, "no answer for ", wait.String())
			if took := time.Since(start); took > 2*wait+2*requestTime || wait < requestTime && took > 4*wait {
				t.Errorf("waiting for %v twice took %v", wait, took)
			}
		})
	}
}

// TestUntilTheEnd: a server that is back within the last moments before the deadline gets the upload, whatever
// wait it asked for before.
func TestUntilTheEnd(t *testing.T) {
	for name, c := range map[string]struct{ back, asked time.Duration }{
		"a growing wait": {59*time.Minute + 55*time.Second, 0},
		"a long one":     {59*time.Minute + 55*time.Second, Top},
		"an hour":        {time.Second, time.Hour},
	} {
		synctest.Test(t, func(t *testing.T) {
			start, last := time.Now(), time.Duration(0)
			client := replies(func(r *http.Request) (*http.Response, error) {
				if last = time.Since(start); last >= c.back {
					return reply(200, nil, "{}")(r)
				}
				return reply(503, http.Header{"Retry-After": {strconv.Itoa(int(c.asked.Seconds()))}}, "")(r)
			}).client()
			client.over = start.Add(time.Hour)
			err := client.send(t.Context(), request{method: http.MethodPut}, func(time.Time, []byte) error { return nil })
			if err != nil || last < c.back || last > time.Hour {
				t.Errorf("%s: the last attempt began after %v: %v", name, last, err)
			}
		})
	}
}

// TestPartOfBefore: bytes of a client graph that an earlier process left are used where they are the graph's, and
// fetched anew where they are not, once.
func TestPartOfBefore(t *testing.T) {
	graph := strings.Repeat("graph", 100)
	for name, c := range map[string]struct {
		part, serves string
		requests     int
		want         string
	}{
		"its beginning":     {graph[:50], graph, 1, ""},
		"damaged":           {strings.Repeat("0", 50), graph, 2, ""},
		"whole and damaged": {strings.Repeat("0", len(graph)), graph, 1, ""},
		"another graph":     {graph[:50], strings.Repeat("grave", 100), 2, "not used"},
		"nothing":           {"", strings.Repeat("grave", 100), 1, "not used"},
	} {
		requests, digest := 0, fmt.Sprintf("%x", sha256.Sum256([]byte(graph)))
		client := replies(func(r *http.Request) (*http.Response, error) {
			requests++
			w := httptest.NewRecorder()
			w.Header().Set("ETag", `"`+digest+`"`)
			http.ServeContent(w, r, "", time.Time{}, strings.NewReader(c.serves))
			return w.Result(), nil
		}).client()
		dir := t.TempDir()
		must.Do(t, os.WriteFile(filepath.Join(dir, digest+".onnx.part"), []byte(c.part), 0o600))
		_, err := client.Graph(t.Context(), &wire.Description{Graph: digest, GraphBytes: int64(len(graph))}, dir)
		if requests != c.requests || (err == nil) != (c.want == "") || err != nil && !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %d requests, want %d: %v", name, requests, c.requests, err)
		}
	}
}

// TestPartElsewhere: the partial file of a graph is a regular one in its folder. What stands there instead is
// neither followed nor opened, and stays as it was.
func TestPartElsewhere(t *testing.T) {
	for name, put := range map[string]func(victim, part string) error{
		"a link":            func(victim, part string) error { return os.Symlink(victim, part) },
		"a link to no file": func(victim, part string) error { return os.Symlink(victim+".new", part) },
		"a folder":          func(_, part string) error { return os.Mkdir(part, 0o700) },
	} {
		t.Run(name, func(t *testing.T) {
			dir, digest := t.TempDir(), strings.Repeat("0", 64)
			victim := filepath.Join(t.TempDir(), "victim")
			must.Do(t, os.WriteFile(victim, []byte("kept"), 0o600))
			if err := put(victim, filepath.Join(dir, digest+".onnx.part")); err != nil {
				t.Skipf("this system makes none: %v", err)
			}
			c := reply(200, nil, "graph").client()
			must.Fail(c.Graph(t.Context(), &wire.Description{Graph: digest, GraphBytes: 5}, dir))(t,
				digest+".onnx.part: not a regular file; remove it", name)
			if got := must.Get(os.ReadFile(victim))(t); string(got) != "kept" {
				t.Errorf("the file elsewhere holds %q", got)
			}
			_, err := os.Lstat(victim + ".new")
			if !errors.Is(err, fs.ErrNotExist) {
				t.Errorf("a file was made elsewhere: %v", err)
			}
		})
	}
}

// TestNoPlaceForGraph: a client graph that cannot be kept is a failure that no later attempt mends; one that
// ends too early is.
func TestNoPlaceForGraph(t *testing.T) {
	path := filepath.Join(t.TempDir(), "part")
	must.Do(t, os.WriteFile(path, nil, 0o600))
	for _, c := range []struct {
		flags   int
		body    string
		want    string
		retried bool
	}{
		{os.O_RDONLY, "graph", "client graph: 0 of 5 bytes were kept", false},
		{os.O_RDWR, "gra", "3 of 5 bytes came", true},
	} {
		f := must.Get(os.OpenFile(path, c.flags, 0))(t)
		err := keep(f, strings.NewReader(c.body), 0, 5)
		if err == nil || !strings.Contains(err.Error(), c.want) || errors.As(err, new(*transient)) != c.retried {
			t.Errorf("%v; want %q, again %t", err, c.want, c.retried)
		}
		must.Do(t, f.Close())
	}
}
