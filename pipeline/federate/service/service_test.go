package service

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"fmp/assets/assetstest"
	"fmp/models"
	"fmp/models/rng"
	"fmp/onnx/atomicfile"
	"fmp/onnx/must"
	"fmp/pipeline/federate"
	"fmp/pipeline/federate/identity"
	"fmp/pipeline/federate/round"
	"fmp/pipeline/federate/store"
	"fmp/pipeline/federate/wire"
	"fmp/pipeline/point"
	"fmp/pipeline/pool"
	"fmp/pipeline/privacy"
)

// fixture is a server of a round in a folder of its own, by a clock of its own.
type fixture struct {
	t     testing.TB
	dir   string
	keys  map[string]*identity.Key
	round *round.Round
	key   *identity.Key
	srv   *Server
	http  *httptest.Server
	store *store.Store
	level float64 // of the prediction sets of all classifiers
	pools int     // calls of the pooling
	// of two servers: the leader's helper, and the sums that were opened
	helper *Helper
	opened []*privacy.Release
	sweep  func(context.Context) error

	mu  sync.Mutex
	now time.Time
}

func (f *fixture) clock() time.Time {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.now
}

func (f *fixture) pass(d time.Duration) {
	f.mu.Lock()
	f.now = f.now.Add(d)
	f.mu.Unlock()
}

const deadline = "2030-01-01T12:00:00Z"

// newFixture makes a round of clients a, b, c and "d/e f" behind the digits' client graph; extra is
// appended to the round file.
func newFixture(t testing.TB, extra string) *fixture {
	t.Helper()
	f := &fixture{t: t, dir: t.TempDir(), keys: map[string]*identity.Key{},
		now: time.Date(2030, 1, 1, 10, 0, 0, 0, time.UTC)}
	var roster strings.Builder
	for _, name := range []string{"a", "b", "c", "d/e f"} {
		k := must.Get(identity.New(name))(t)
		f.keys[name] = k
		fmt.Fprintln(&roster, k.Line())
	}
	graph := assetstest.Data(t, "digits", models.KindClient)
	if strings.Contains(extra, "privacy:") {
		graph = assetstest.PrivateClient(t)
	}
	for name, data := range map[string][]byte{"roster.txt": []byte(roster.String()), "client.onnx": graph,
		"round.yaml": []byte("round: 3\nclient_graph: client.onnx\nroster: roster.txt\ndeadline: " +
			deadline + "\n" + extra)} {
		must.Do(t, atomicfile.WriteBytes(filepath.Join(f.dir, name), data))
	}
	f.round = must.Get(round.Load(filepath.Join(f.dir, "round.yaml")))(t)
	f.key = must.Get(identity.New("server"))(t)
	f.start()
	t.Cleanup(f.stop)
	return f
}

func (f *fixture) start() {
	f.t.Helper()
	f.store = must.Get(store.Open(f.t.Context(), store.Name(f.round.Round, f.round.Client.Digest),
		store.Options{Dir: filepath.Join(f.dir, "state")}))(f.t)
	private := func(_ context.Context, releases []pool.Release,
		open func() (*privacy.Release, error)) (*Pooled, error) {
		if open != nil {
			sum, err := open()
			if err != nil {
				return nil, err
			}
			f.opened = append(f.opened, sum)
		}
		return &Pooled{Classifier: fmt.Append(nil, len(releases))}, nil
	}
	f.srv = must.Get(New(f.t.Context(),
		Config{Private: private, Secret: twoSecret, Helper: f.helper, Sweep: f.sweep, Round: f.round,
			Key: f.key, Store: f.store, Withdrawals: filepath.Join(f.dir, "withdrawals"),
			Now: f.clock, Log: slog.New(slog.DiscardHandler), Token: "for readers", Reject: .25,
			Pool: func(_ context.Context, uploads []pool.Upload) (*Pooled, error) {
				f.pools++
				var text strings.Builder
				honest, counted := make([]float64, len(uploads)), make([]float64, len(uploads))
				for i, u := range uploads {
					fmt.Fprintln(&text, u.Client, u.Points.Z)
					honest[i], counted[i] = 1/float64(1+i), 7777
				}
				return &Pooled{Classifier: []byte(text.String()), Honest: honest, Counted: counted,
					Summary: map[string]any{"accuracy": 0.75}}, nil
			}}))(f.t)
	f.srv.sets = func([]byte) (float64, error) { return f.level, nil }
	f.http = httptest.NewServer(f.srv.Handler())
}

func (f *fixture) restart() {
	f.t.Helper()
	f.stop()
	f.start()
}

func (f *fixture) stop() {
	f.http.Close()
	f.store.Close()
}

// made is an upload of a client, as large as the digits' graph makes it, other for every seed.
func (f *fixture) made(client string, seed uint64, change func(*federate.Upload)) []byte {
	f.t.Helper()
	m := f.round.Client
	s := point.New(m.S, m.Dx, m.C)
	for i := range m.S {
		rng.Normal(rng.New(seed, client, i), s.Row(i)[:m.Dx])
		s.Row(i)[m.Dx+i%m.C] = 1
		s.W[i] = 2
	}
	u := &federate.Upload{Round: 3, Client: client, Model: m.Digest, N: 2 * m.S, Points: s}
	if change != nil {
		change(u)
	}
	return must.Get(u.Encode())(f.t)
}

// request is one of the interface, changed before it is sent.
func (f *fixture) request(method, path string, body []byte,
	change func(*http.Request)) (int, []byte) {
	f.t.Helper()
	req := must.Get(http.NewRequest(method, f.http.URL+path, bytes.NewReader(body)))(f.t)
	if change != nil {
		change(req)
	}
	resp := must.Get(http.DefaultClient.Do(req))(f.t)
	defer resp.Body.Close()
	return resp.StatusCode, must.Get(io.ReadAll(resp.Body))(f.t)
}

// answer is that of a handler to a request, without a connection; the headers are pairs.
func answer(h http.Handler, method, path string, body []byte, headers ...string) *httptest.ResponseRecorder {
	r := httptest.NewRequest(method, path, bytes.NewReader(body))
	if strings.HasPrefix(path, grpcPath) {
		r.Proto, r.ProtoMajor, r.ProtoMinor = "HTTP/2.0", 2, 0
	}
	reader(r)
	for i := 0; i < len(headers); i += 2 {
		r.Header.Set(headers[i], headers[i+1])
	}
	w := httptest.NewRecorder()
	h.ServeHTTP(w, r)
	return w
}

// read gives the JSON of an answer, whose status is as wanted.
func read[T any](t testing.TB, want int) func(status int, data []byte) T {
	return func(status int, data []byte) (v T) {
		t.Helper()
		if err := json.Unmarshal(data, &v); err != nil || status != want {
			t.Fatalf("%d %s, %v; want %d", status, data, err, want)
		}
		return v
	}
}

var digestOf = models.DigestBytes

// signed signs a request as a client that means it.
func (f *fixture) signed(k *identity.Key, purpose identity.Purpose, data []byte,
	change func(*identity.Statement)) func(*http.Request) {
	s := identity.Statement{Purpose: purpose, Server: f.key.PublicText(), Round: 3, Client: k.Name,
		Graph: f.round.Client.Digest}
	if purpose == identity.Upload {
		s.Content = digestOf(data)
	}
	if change != nil {
		change(&s)
	}
	return func(r *http.Request) {
		sum := sha256.Sum256(data)
		r.Header.Set("Content-Digest", "sha-256=:"+base64.StdEncoding.EncodeToString(sum[:])+":")
		r.Header.Set("Authorization", wire.Authorization(k.Sign(s)))
	}
}

func (f *fixture) put(client string, data []byte) (int, []byte) {
	f.t.Helper()
	return f.request("PUT", wire.UploadPath(3, client), data,
		f.signed(f.keys[client], identity.Upload, data, nil))
}

// in has clients send an upload each, and returns these.
func (f *fixture) in(clients ...string) map[string][]byte {
	f.t.Helper()
	uploads := map[string][]byte{}
	for _, c := range clients {
		uploads[c] = f.made(c, 1, nil)
		f.wants("an upload of "+c, http.StatusCreated, "")(f.put(c, uploads[c]))
	}
	return uploads
}

func reader(r *http.Request) { r.Header.Set("Authorization", "Bearer for readers") }

func code(t testing.TB, data []byte) string {
	t.Helper()
	var p wire.Problem
	if err := json.Unmarshal(data, &p); err != nil {
		t.Fatalf("%v: %s", err, data)
	}
	return p.Code
}

// wants checks the answer to a request: its status, the code of a refusal, if one is wanted, and words
// in it, as they are or as JSON has them.
func (f *fixture) wants(name string, status int, refusal string, words ...string) func(int, []byte) {
	return func(got int, data []byte) {
		f.t.Helper()
		if got != status || refusal != "" && code(f.t, data) != refusal {
			f.t.Errorf("%s: %d %s; want %d %s", name, got, data, status, refusal)
		}
		for _, w := range words {
			if !strings.Contains(string(data), w) &&
				!strings.Contains(string(data), strings.ReplaceAll(w, `"`, `\"`)) {
				f.t.Errorf("%s: %s; want %s", name, data, w)
			}
		}
	}
}

// wantsOne checks that the round has one version, of a number of clients.
func (f *fixture) wantsOne(clients int) {
	f.t.Helper()
	if v := f.srv.Status().Versions; len(v) != 1 || v[0].Clients != clients {
		f.t.Errorf("versions %+v; want one of %d clients", v, clients)
	}
}

// TestAcceptLateTold: clients are told whether uploads count after the deadline, and the round is late
// or closed then.
func TestAcceptLateTold(t *testing.T) {
	for lines, want := range map[string]bool{
		"":                    false,
		"accept_late: true\n": true,
		"accept_late: true\nprivacy: {epsilon: 1, noise: local}\n":   true,
		"accept_late: true\nprivacy: {epsilon: 1, noise: trusted}\n": true,
		"privacy: {epsilon: 1, noise: trusted}\n":                    false,
	} {
		f := newFixture(t, lines)
		_, list := f.request("GET", "/v1/rounds", nil, nil)
		if d := must.Get(wire.One(list, time.Now()))(t); d.AcceptLate != want {
			t.Errorf("%q: accept_late is %v", lines, d.AcceptLate)
		}
		f.pass(3 * time.Hour)
		if d := f.srv.description(); d.AcceptLate != want || (d.State == wire.Late) != want {
			t.Errorf("%q: %s after the deadline, accept_late is %v", lines, d.State, d.AcceptLate)
		}
	}
}

// TestRound: uploads are taken once, their receipts hold, a restart loses nothing, the classifier
// does not depend on the order of arrival, and each version names what is in it.
func TestRound(t *testing.T) {
	f := newFixture(t, "quorum: 3\naccept_late: true\nrebuild_interval: 10s\n")
	uploads := map[string][]byte{}
	for i, c := range []string{"c", "d/e f", "a"} {
		uploads[c] = f.made(c, 1, nil)
		status, data := f.put(c, uploads[c])
		r := read[wire.Receipt](t, http.StatusCreated)(status, data)
		if err := r.Verify(base64.StdEncoding.EncodeToString(f.key.Public())); err != nil ||
			r.Upload != digestOf(uploads[c]) || r.Client != c {
			t.Errorf("receipt %+v: %v", r, err)
		}
		if again, same := f.put(c, uploads[c]); again != http.StatusOK || !bytes.Equal(same, data) {
			t.Errorf("%s again: %d %s; want the receipt %s", c, again, same, data)
		}
		if got := f.srv.due() <= 0; got != (i == 2) {
			t.Errorf("with %d of a quorum of 3, due: %v", i+1, got)
		}
		if i == 1 { // what is in survives the server
			f.restart()
		}
		if own, same := f.request("GET", wire.ReceiptPath(3, c), nil,
			f.signed(f.keys[c], identity.Ask, nil, nil)); own != http.StatusOK ||
			!bytes.Equal(same, data) {
			t.Errorf("%s's receipt: %d %s", c, own, same)
		}
	}
	f.wants("before the quorum", 404, wire.NotYet)(f.classifier(""))
	must.Do(t, f.srv.Pool(t.Context()))
	_, first := f.classifier("")
	if !strings.HasPrefix(string(first), "a ") || strings.Count(string(first), "\n") != 3 {
		t.Errorf("classifier of %.100s", first)
	}
	if f.srv.due() < time.Minute {
		t.Error("due again with nothing new")
	}
	f.pass(3 * time.Hour) // late now, and taken
	f.wants("late", http.StatusCreated, "")(f.put("b", f.made("b", 1, nil)))
	if d := f.srv.due(); d > 0 {
		t.Errorf("a late upload is pooled in %v", d)
	}
	must.Do(t, f.srv.Pool(t.Context()))
	f.restart()
	if d := f.srv.due(); d < time.Minute {
		t.Errorf("after a restart due in %v", d)
	}
	v := read[struct {
		store.Version
		Members []store.Member
	}](t, 200)(f.request("GET", wire.RoundPath(3)+"/versions/2", nil, reader))
	if v.Clients != 4 || len(v.Members) != 4 ||
		v.Members[3].Upload != digestOf(uploads["d/e f"]) || *v.Members[3].Counted != 7777 {
		t.Errorf("version 2: %+v", v)
	}
	if _, old := f.classifier("?version=1"); !bytes.Equal(old, first) {
		t.Error("version 1 is not what it was")
	}
	f.wants("version 3", 404, wire.NoVersion)(f.classifier("?version=3"))
	for query, want := range map[string]int{"": 200, "?version=2": 200, "?version=": 400,
		"?version=1&version=2": 400, "?version=%2B1": 404, "?version=01": 404} {
		f.wants("classifier.onnx"+query, want, "")(f.classifier(query))
	}
	for _, p := range []string{"/", "/metrics", wire.RoundPath(3) + "/status"} {
		if status, data := f.request("GET", p, nil, reader); status != 200 || len(data) < 100 ||
			bytes.Contains(data, []byte("%!")) {
			t.Errorf("%s: %d %s", p, status, data)
		}
	}
	f.wants("the page", 200, "", "4<small> of 4", "accuracy</th><td>0.75", `<span class="bad">0.25</span>`,
		"<span>0.50</span>", ">7777<", "d/e f")(f.request("GET", "/", nil, reader))
}

// TestUnauthorised: every action that is not allowed is refused, and leaves nothing behind.
func TestUnauthorised(t *testing.T) {
	f := newFixture(t, "quorum: 4\n")
	good := f.made("a", 1, nil)
	stranger := must.Get(identity.New("a"))(t)
	unknown := must.Get(identity.New("z"))(t)
	f.in("b")
	sign := func(k *identity.Key, change func(*identity.Statement)) func(*http.Request) {
		return f.signed(k, identity.Upload, good, change)
	}
	other := strings.Repeat("ab", 32)
	for _, c := range []struct {
		name, method, path string
		body               []byte
		change             func(*http.Request)
		status             int
		code               string
	}{
		{"no key", "PUT", wire.UploadPath(3, "a"), good, nil, 401, wire.NoKey},
		{"another's key", "PUT", wire.UploadPath(3, "a"), good,
			sign(f.keys["b"], func(s *identity.Statement) { s.Client = "a" }), 403, wire.WrongKey},
		{"own key for another's upload", "PUT", wire.UploadPath(3, "c"), good, sign(f.keys["a"], nil),
			403, wire.WrongKey},
		{"a stranger's key under a's name", "PUT", wire.UploadPath(3, "a"), good, sign(stranger, nil),
			403, wire.WrongKey},
		{"a name that the roster lacks", "PUT", wire.UploadPath(3, "z"), good, sign(unknown, nil),
			403, wire.WrongKey},
		{"a receipt by a statement for another server", "GET", wire.ReceiptPath(3, "b"), nil,
			f.signed(f.keys["b"], identity.Ask, nil,
				func(s *identity.Statement) { s.Server = unknown.PublicText() }), 403, wire.WrongKey},
		{"another content than signed", "PUT", wire.UploadPath(3, "a"), f.made("a", 2, nil),
			sign(f.keys["a"], nil), 400, wire.BadRequest},
		{"another round", "PUT", wire.UploadPath(4, "a"), good, sign(f.keys["a"], nil),
			404, wire.NoRound},
		{"another's receipt", "GET", wire.ReceiptPath(3, "b"), nil,
			f.signed(f.keys["a"], identity.Ask, nil, nil), 403, wire.WrongKey},
		{"a receipt without a key", "GET", wire.ReceiptPath(3, "b"), nil, nil, 401, wire.NoKey},
		{"a receipt by a signature of an upload", "GET", wire.ReceiptPath(3, "b"), nil,
			f.signed(f.keys["b"], identity.Upload, good, nil), 403, wire.WrongKey},
		{"a receipt of nothing", "GET", wire.ReceiptPath(3, "a"), nil,
			f.signed(f.keys["a"], identity.Ask, nil, nil), 404, wire.NoReceipt},
		{"the status", "GET", wire.RoundPath(3) + "/status", nil, nil, 401, wire.NoToken},
		{"the page with another token", "GET", "/", nil,
			func(r *http.Request) { r.SetBasicAuth("x", "guess") }, 401, wire.NoToken},
		{"the classifier with a client's key", "GET", wire.RoundPath(3) + "/classifier.onnx", nil,
			sign(f.keys["a"], nil), 401, wire.NoToken},
		{"the metrics", "GET", "/metrics", nil, nil, 401, wire.NoToken},
		{"the versions", "GET", wire.RoundPath(3) + "/versions", nil, nil, 401, wire.NoToken},
	} {
		f.wants(c.name, c.status, c.code)(f.request(c.method, c.path, c.body, c.change))
	}
	for name, change := range map[string]func(*identity.Statement){
		"of another round":        func(s *identity.Statement) { s.Round = 2 },
		"for another graph":       func(s *identity.Statement) { s.Graph = other },
		"of another upload":       func(s *identity.Statement) { s.Content = other },
		"that asks for a receipt": func(s *identity.Statement) { s.Purpose = identity.Ask },
		"of a part":               func(s *identity.Statement) { s.Purpose = identity.Merged },
		"with a time":             func(s *identity.Statement) { s.Time = 1 },
		"for another server":      func(s *identity.Statement) { s.Server = unknown.PublicText() },
		"for any server":          func(s *identity.Statement) { s.Server = "" },
	} {
		f.wants("a signature "+name, 403, wire.WrongKey)(
			f.request("PUT", wire.UploadPath(3, "a"), good, sign(f.keys["a"], change)))
	}
	for _, scheme := range []string{"Bearer", "bearer", "BEARER"} {
		f.wants(scheme, 200, "")(f.request("GET", wire.RoundPath(3)+"/status", nil,
			func(r *http.Request) { r.Header.Set("Authorization", scheme+" for readers") }))
	}
	// what only readers may, nobody else may, a client's signature included
	for _, r := range f.srv.routes() {
		if method, path, _ := strings.Cut(r.pattern, " "); r.readers {
			path = strings.NewReplacer("{round}", "3", "{version}", "1", "{$}", "").Replace(path)
			for _, change := range []func(*http.Request){nil, sign(f.keys["a"], nil),
				func(r *http.Request) { r.Header.Set("Authorization", "Bearer ") }} {
				f.wants(r.pattern, 401, wire.NoToken)(f.request(method, path, nil, change))
			}
		}
	}
	// A message of another round, graph or client inside a signature that holds is refused for what
	// it is.
	for name, change := range map[string]func(*federate.Upload){
		"round is 2":    func(u *federate.Upload) { u.Round = 2 },
		"model is":      func(u *federate.Upload) { u.Model = other },
		`client is "b"`: func(u *federate.Upload) { u.Client = "b" },
		"dx is 2": func(u *federate.Upload) {
			u.Points = point.New(1, 2, u.Points.C)
			u.Points.Z[2], u.Points.W[0] = 1, float32(u.N)
		},
		"n is 1000000000": func(u *federate.Upload) {
			u.N, u.Points.W = 1e9, heavy(len(u.Points.W), 1e9)
		},
	} {
		f.wants(name, 422, "", name)(f.put("a", f.made("a", 1, change)))
	}
	st := f.srv.Status()
	if len(st.Refused) != 1 || st.Refused[0].Client != "a" || st.Refused[0].Count != 5 || st.In != 1 {
		t.Errorf("status %+v", st)
	}
	// The round goes on: a itself may still send, then no other bytes, and nothing new after the
	// deadline.
	f.wants("a after its refusals", 201, "")(f.put("a", good))
	f.wants("other bytes", 409, wire.OtherUpload)(f.put("a", f.made("a", 2, nil)))
	f.pass(3 * time.Hour)
	f.wants("after the deadline", 410, wire.RoundClosed)(f.put("c", f.made("c", 1, nil)))
	f.wants("the same bytes after the deadline", 200, "")(f.put("a", good))
	must.Do(t, f.srv.Pool(t.Context()))
	f.restart()
	if st := f.srv.Status(); st.In != 2 || len(st.Refused) != 1 || st.State != wire.Closed ||
		len(st.Missing) != 2 {
		t.Errorf("after a restart: %+v", st)
	}
}

// TestSameImages: two clients with the same images are both in. A refusal of the second would tell
// it what the first one sent.
func TestSameImages(t *testing.T) {
	f := newFixture(t, "")
	var replies []string
	for _, c := range []string{"a", "b"} {
		data := f.made("a", 1, func(u *federate.Upload) { u.Client = c })
		r := read[wire.Receipt](t, 201)(f.put(c, data))
		r.Client, r.Upload, r.Signature = "", "", ""
		replies = append(replies, fmt.Sprintf("%+v", r))
	}
	if st := f.srv.Status(); st.In != 2 || len(st.Refused) != 0 {
		t.Errorf("status %+v", st)
	}
	if replies[0] != replies[1] {
		t.Errorf("the second client's reply %s tells it from the first one's %s",
			replies[1], replies[0])
	}
}

// TestAdmit: with another roster in place of the first a new client may send, one that is gone may
// not, and uploads stay in; the quorum stays as it was at the opening. One that is too small for the
// round file, or lacks a client that it names, keeps the others out too.
func TestAdmit(t *testing.T) {
	f := newFixture(t, "min_uploads: 2\nsets: {groups: \"x=a;y=b\"}\n")
	f.in("a", "b")
	f.keys["new"] = must.Get(identity.New("new"))(t)
	f.wants("before it is in the roster", 403, "")(f.put("new", f.made("new", 1, nil)))
	f.srv.Admit(f.rosterOf("a"))
	f.wants("who is not on a short roster", 403, "")(f.put("c", f.made("c", 1, nil)))
	f.srv.Admit(f.rosterOf("b", "c", "new"))
	f.wants("the new client", 201, "")(f.put("new", f.made("new", 1, nil)))
	f.wants("who is gone", 403, "")(f.put("a", f.made("a", 2, nil)))
	if st := f.srv.Status(); st.In != 3 || st.Clients != 3 || st.Quorum != 4 || len(st.Missing) != 1 ||
		f.srv.due() <= 0 { // fixed at the opening
		t.Errorf("%+v", st)
	}
}

// TestOneKeyOnce: by a key that the roster gives another name nothing more comes in, over a restart too, while
// the upload of the first name is in.
func TestOneKeyOnce(t *testing.T) {
	f := newFixture(t, "quorum: 3\n")
	f.in("a", "b")
	renamed := *f.keys["b"]
	renamed.Name = "b2"
	f.keys["b2"] = &renamed
	for _, when := range []string{"renamed", "after a restart"} {
		f.srv.Admit(f.rosterOf("a", "b2", "c"))
		f.wants(when, 409, wire.OtherUpload, `an upload of "b" by the same key is in`)(f.put("b2", f.made("b2", 1, nil)))
		f.restart()
	}
	f.srv.Admit(f.rosterOf("a", "b", "c"))
	f.in("c")
}

func heavy(n int, total float64) []float32 {
	w := make([]float32, n)
	w[0] = float32(total)
	return w
}

// TestBounds: what a round file bounds is refused above its bound and taken at it.
func TestBounds(t *testing.T) {
	f := newFixture(t, "replace: true\nprecisions: [float32]\ncalibrate: 2\nbounds: {points: 20, "+
		"bytes: 4096, norm: 30}\n")
	beside := func(n int) func(*federate.Upload) {
		return func(u *federate.Upload) {
			dx := u.Points.Dx
			u.Calibration = &point.Set{N: n, Dx: dx, C: u.Points.C, Z: make([]float32, n*dx),
				Y: make([]int32, n), W: make([]float32, n)}
		}
	}
	f.round.Bounds.Bytes = len(f.made("a", 1, beside(2)))
	for _, c := range []struct {
		name   string
		status int
		change func(*federate.Upload)
	}{
		{"at the bounds", 201, nil},
		{"float16", 422, func(u *federate.Upload) { u.Precision = federate.Half }},
		{"points", 422, func(u *federate.Upload) { u.N, u.Points.W = 21, heavy(len(u.Points.W), 21) }},
		{"norm", 422, func(u *federate.Upload) { u.Points.Z[0] = 31 }},
		{"calibration points", 201, beside(2)},
		{"replaced", 201, func(u *federate.Upload) { u.Points.Z[0] = 2 }},
	} {
		f.wants(c.name, c.status, "")(f.put("a", f.made("a", 1, c.change)))
	}
	f.round.Calibrate = 1
	f.wants("a calibration point more", 422, "", "calibrate of the round allows 1")(
		f.put("a", f.made("a", 2, beside(2))))
	f.round.Bounds.Bytes--
	f.wants("one byte more", 413, wire.TooLarge)(f.put("b", f.made("b", 1, beside(2))))
	if st := f.srv.Status(); st.In != 1 || st.Members[0].Client != "a" {
		t.Errorf("%+v", st)
	}
}

// TestConcurrent: of many requests of one client with other bytes each, one is taken, and all of
// many clients are.
func TestConcurrent(t *testing.T) {
	f := newFixture(t, "")
	var wg sync.WaitGroup
	var mu sync.Mutex
	got := map[int]int{}
	for i := range 16 {
		data := f.made("a", uint64(i), nil)
		wg.Go(func() {
			status, _ := f.put("a", data)
			mu.Lock()
			got[status]++
			mu.Unlock()
		})
	}
	for _, c := range []string{"b", "c", "d/e f"} {
		data := f.made(c, 1, nil)
		wg.Go(func() { f.wants(c, 201, "")(f.put(c, data)) })
	}
	wg.Wait()
	if got[201] != 1 || got[201]+got[409]+got[429] != 16 || f.srv.Status().In != 4 {
		t.Errorf("replies %v, %d in", got, f.srv.Status().In)
	}
}

// TestGraph: the client graph comes whole, from where a client that lost its connection left off,
// or not at all to one that has it.
func TestGraph(t *testing.T) {
	f := newFixture(t, "")
	whole := f.round.GraphData
	tag := `"` + f.round.Client.Digest + `"`
	for _, c := range []struct {
		headers map[string]string
		status  int
		want    []byte
	}{
		{nil, 200, whole},
		{map[string]string{"Range": "bytes=1000-"}, 206, whole[1000:]},
		{map[string]string{"Range": "bytes=10-19", "If-Range": tag}, 206, whole[10:20]},
		{map[string]string{"Range": "bytes=10-19", "If-Range": `"another"`}, 200, whole},
		// each byte again and again costs no more than the whole
		{map[string]string{"Range": "bytes=" + strings.Repeat("0-,", 4000) + "0-"}, 200, whole},
		{map[string]string{"If-None-Match": tag}, 304, nil},
		{map[string]string{"If-None-Match": `"another"`}, 200, whole},
		{map[string]string{"Range": fmt.Sprintf("bytes=%d-", len(whole))}, 416, nil},
	} {
		status, data := f.request("GET", wire.GraphPath(3), nil, func(r *http.Request) {
			for k, v := range c.headers {
				r.Header.Set(k, v)
			}
		})
		if status != c.status || c.status != 416 && !bytes.Equal(data, c.want) {
			t.Errorf("%v: %d and %d bytes; want %d and %d", c.headers, status, len(data),
				c.status, len(c.want))
		}
	}
}

// FuzzUploadRequest: whatever a client of the roster signs and sends, the server answers with one
// of its replies. Signatures and the store take most of a request's time: of messages that are not
// taken one in 64 goes the whole way, the others to where they are read.
func FuzzUploadRequest(f *testing.F) {
	x := newFixture(f, "replace: true\n")
	handler := x.srv.Handler()
	f.Add(x.made("a", 1, nil), "sha-256=:AAAA:")
	f.Add([]byte("\x08\x01"), "")
	f.Fuzz(func(t *testing.T, data []byte, header string) {
		sum := sha256.Sum256(data)
		r := httptest.NewRequest("PUT", wire.UploadPath(3, "a"), bytes.NewReader(data))
		if header != "" {
			r.Header.Set("Content-Digest", header)
			if d := contentDigest(r); d != "" && len(d) != 2*sha256.Size {
				t.Errorf("%q states the digest %q", header, d)
			}
		}
		if _, err := x.srv.read("a", data); err != nil && sum[0] >= 4 {
			return
		}
		x.signed(x.keys["a"], identity.Upload, data, nil)(r)
		if header != "" {
			r.Header.Set("Content-Digest", header) // in place of the one that was signed
		}
		w := httptest.NewRecorder()
		handler.ServeHTTP(w, r)
		switch w.Code {
		case 200, 201:
		case 400, 403, 413, 422:
			if code(t, w.Body.Bytes()) == "" {
				t.Errorf("%d without a code", w.Code)
			}
		default:
			t.Errorf("status %d: %s", w.Code, w.Body)
		}
	})
}
