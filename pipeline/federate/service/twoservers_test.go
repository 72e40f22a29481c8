package service

import (
	"bytes"
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"fmp/onnx/must"
	"fmp/pipeline/federate"
	"fmp/pipeline/federate/identity"
	"fmp/pipeline/federate/store"
	"fmp/pipeline/federate/wire"
	"fmp/pipeline/privacy"
)

const (
	twoSecret  = "known to the servers alone"
	twoServers = "quorum: 3\nmin_uploads: 2\nprivacy: {epsilon: 1, noise: two-servers, points: 10}\n"
)

// pair is leader and helper of one round. The helper is reached through a proxy, so that it may go
// and come back.
type pair struct {
	leader, helper *fixture
	up             bool // whether the helper is reached
	lose           bool // whether its answers are lost
}

func newPair(t testing.TB) *pair { return newPairOf(t, twoServers) }

// newPairOf makes leader and helper of a round file with these lines.
func newPairOf(t testing.TB, lines string) *pair {
	p := &pair{helper: newFixture(t, lines), up: true}
	proxy := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch {
		case !p.up:
			http.Error(w, "nobody is here", http.StatusBadGateway)
		case p.lose:
			p.helper.srv.Handler().ServeHTTP(httptest.NewRecorder(), r)
			http.Error(w, "lost", http.StatusBadGateway)
		default:
			p.helper.srv.Handler().ServeHTTP(w, r)
		}
	}))
	t.Cleanup(proxy.Close)
	p.leader = newFixture(t, lines)
	p.leader.stop()
	p.leader.keys, p.leader.round.Clients = p.helper.keys, p.helper.round.Clients
	p.leader.helper = must.Get(NewHelper(proxy.URL, "", twoSecret))(t)
	p.leader.start()
	return p
}

// sums are a client's, other for every client.
func (p *pair) sums(client string) *privacy.Release {
	f := p.leader.round.Client
	r := privacy.NewRelease(f.C, f.K)
	for i := range r.Values {
		r.Values[i] = int64((i*37+int(client[0])*101)%20_000) - 10_000
	}
	return r
}

// shares are a client's messages for leader and helper.
func (p *pair) shares(client string,
	change func(leader, helper *federate.Release)) (leader, helper []byte) {
	t := p.leader.t
	f := p.leader.round
	r := &federate.Release{Round: 3, Client: client, Model: f.Client.Digest, Sums: p.sums(client),
		Budget: *f.Privacy}
	out := must.Get(r.Split(rand.Reader))(t)
	out[1].Share.Public = bytes.Clone(out[1].Share.Public)
	if change != nil {
		change(out[0], out[1])
	}
	var data [2][]byte
	for i := range out {
		data[i] = must.Get(out[i].Encode())(t)
	}
	return data[0], data[1]
}

// join sends both.
func (p *pair) join(client string) {
	t := p.leader.t
	t.Helper()
	l, h := p.shares(client, nil)
	p.helper.wants("helper", http.StatusCreated, "")(p.helper.put(client, h))
	p.leader.wants("leader", http.StatusCreated, "")(p.leader.put(client, l))
}

// isSum reports whether a sum is that of the clients and noise of two servers.
func (p *pair) isSum(t *testing.T, got *privacy.Release, clients ...string) {
	t.Helper()
	if square := p.noise(t, got, clients...); square < 1.2 || square > 3.2 { // of a hundred numbers
		t.Errorf("mean square of the noise %.2f in one server's variance; want 2", square)
	}
}

// noise returns the mean square of a sum less that of the clients, in one server's variance: 2 is
// expected of two servers.
func (p *pair) noise(t *testing.T, got *privacy.Release, clients ...string) (square float64) {
	t.Helper()
	want := privacy.NewRelease(got.Classes, got.K)
	for _, c := range clients {
		must.Do(t, want.Add(p.sums(c)))
	}
	sigma := float64(p.leader.round.Privacy.NoiseSteps(got.Classes))
	for i, v := range got.Values {
		square += math.Pow(float64(v-want.Values[i])/sigma, 2) / float64(len(got.Values))
	}
	return square
}

// TestTwoServers: neither server takes what is the other's or cannot be proved; the sum is that of
// the clients whose shares both have, with the noise of both; it is of one set of clients,
// whichever server is restarted when, and whatever gets lost.
func TestTwoServers(t *testing.T) {
	p := newPair(t)
	for f, want := range map[*fixture]string{p.leader: `"server":"leader"`, p.helper: `"server":"helper"`} {
		f.wants("the round", 200, "", want, `"honesty":false`)(f.request("GET", wire.RoundPath(3), nil, nil))
		f.wants("the page", 200, "", "shares of class sums")(f.request("GET", "/", nil, reader))
	}
	refused := func(f *fixture, client string, data []byte, status int, c, want string) {
		t.Helper()
		f.wants(client, status, c, want)(f.put(client, data))
	}
	l, h := p.shares("a", nil)
	refused(p.leader, "a", h, 422, wire.BadUpload, "this one is the leader")
	refused(p.helper, "a", l, 422, wire.BadUpload, "this one is the helper")
	refused(p.leader, "a", l, 409, wire.NoShare, "sends to the helper first")
	refused(p.leader, "a", p.leader.released("a", func(r *federate.Release) { r.Budget.Points = 10 }),
		422, wire.BadUpload, "its budget")

	// A number that is not the client's, as a client would forge it: the leader's share,
	// checksummed again.
	forged, h := p.shares("a", func(l, _ *federate.Release) { l.Share.Input[0] ^= 1 })
	p.helper.wants("an upload", 201, "")(p.helper.put("a", h))
	refused(p.leader, "a", forged, 422, wire.BadUpload, "in range")
	again, _ := p.shares("a", nil) // another nonce than the helper's
	refused(p.leader, "a", again, 409, wire.NoShare, "with this nonce")
	if n := len(p.leader.srv.Status().Members) + len(p.leader.opened); n != 0 {
		t.Errorf("%d of what was refused is in", n)
	}

	// The helper is away, and its answer lost: the client is to come again, and is in then, after
	// restarts of both.
	p.join("b")
	l, h = p.shares("c", nil)
	p.helper.wants("an upload", 201, "")(p.helper.put("c", h))
	p.up = false
	refused(p.leader, "c", l, 503, wire.Unavailable, "send again")
	p.up, p.lose = true, true
	refused(p.leader, "c", l, 503, wire.Unavailable, "send again")
	p.lose = false
	for _, f := range []*fixture{p.helper, p.leader} {
		f.restart()
	}
	p.leader.wants("an upload", 201, "")(p.leader.put("c", l))

	// "a" has a share at the helper alone: its absence needs nothing of anybody.
	p.up = false
	must.Fail(p.leader.srv.Pool(t.Context()))(t, "", "a sum was opened without the helper")
	refused(p.leader, "d/e f", func() []byte { l, _ := p.shares("d/e f", nil); return l }(), 410,
		wire.RoundClosed, "being made")
	p.up, p.lose = true, true // the helper gives its share, and the answer is lost
	if err := p.leader.srv.Pool(t.Context()); err == nil || len(p.leader.opened) != 0 {
		t.Fatalf("%v, %v", err, p.leader.opened)
	}
	p.lose = false
	kept := must.Get(p.helper.store.Object(t.Context(), openedObject, maxOpened))(t)
	for _, f := range []*fixture{p.helper, p.leader} {
		f.restart()
	}
	if p.leader.srv.due() > 0 {
		t.Error("a leader that was stopped while it opened a sum does not go on")
	}
	must.Do(t, p.leader.srv.Pool(t.Context()))
	if len(p.leader.opened) != 1 {
		t.Fatalf("%d sums were opened", len(p.leader.opened))
	}
	p.isSum(t, p.leader.opened[0], "b", "c")
	if v := p.leader.srv.Status().Versions; len(v) != 1 || v[0].Clients != 2 || v[0].Points != 0 {
		t.Errorf("versions %+v", v)
	}
	now, err := p.helper.store.Object(t.Context(), openedObject, maxOpened)
	if err != nil || !bytes.Equal(now, kept) {
		t.Error("the helper's share changed")
	}
	if p.leader.srv.due() < long || p.helper.srv.due() < long {
		t.Error("another classifier is due")
	}
	for _, f := range []*fixture{p.leader, p.helper} {
		if f.srv.Status().State != wire.Closed {
			t.Error("the round is not closed")
		}
	}
}

// TestLeaderAsks: the helper answers the leader alone, of shares that were checked, and of one set
// of them.
func TestLeaderAsks(t *testing.T) {
	p := newPair(t)
	for _, c := range []string{"a", "b", "c"} {
		p.join(c)
	}
	nonce := func(client string) []byte {
		stored := must.Get(p.helper.store.Get(t.Context(), client))(t)
		r := must.Get(federate.DecodeRelease(stored.Data, federate.Expect{}))(t)
		return r.Share.Nonce[:]
	}
	of := func(clients ...string) (s sumOf) {
		for _, c := range clients {
			s.Clients = append(s.Clients, shared{c, nonce(c)})
		}
		return s
	}
	problem := func(want string) func(_ []byte, err error) {
		return func(_ []byte, err error) {
			t.Helper()
			var p *wire.Problem
			if !errors.As(err, &p) || p.Code != want {
				t.Errorf("error %v; want %s", err, want)
			}
		}
	}
	ask := p.leader.helper
	stranger := must.Get(NewHelper(p.helper.http.URL, "", "another secret altogether"))(t)
	problem(wire.NoToken)(stranger.sum(t.Context(), 3, of("a", "b")))
	problem(wire.NoToken)(stranger.check(t.Context(), 3, "a", proofCheck{Nonce: nonce("a"), Message: []byte("x")}))
	self := must.Get(NewHelper(p.leader.http.URL, "", twoSecret))(t)
	problem(wire.NoToken)(self.sum(t.Context(), 3, of("a", "b"))) // a leader is nobody's helper
	problem(wire.NoRound)(ask.sum(t.Context(), 4, of("a", "b")))
	problem(wire.OtherUpload)(ask.check(t.Context(), 3, "a",
		proofCheck{Nonce: nonce("a"), Message: []byte("another part")}))
	problem(wire.BadRequest)(ask.sum(t.Context(), 3, of("a"))) // fewer than least
	problem(wire.BadRequest)(ask.sum(t.Context(), 3, of("b", "a")))
	problem(wire.BadRequest)(ask.sum(t.Context(), 3, of("a", "a")))
	wrong := of("a", "b")
	wrong.Clients[1].Nonce = nonce("a")
	problem(wire.NoShare)(ask.sum(t.Context(), 3, wrong))
	_, h := p.shares("d/e f", nil)
	p.helper.wants("an upload", 201, "")(p.helper.put("d/e f", h))
	problem(wire.NoShare)(ask.sum(t.Context(), 3, of("a", "d/e f"))) // not checked
	one := must.Get(ask.sum(t.Context(), 3, of("a", "b")))(t)
	same, err := ask.sum(t.Context(), 3, of("a", "b"))
	if err != nil || !bytes.Equal(one, same) {
		t.Errorf("asked again it is another share, %v", err)
	}
	problem(wire.SumOpened)(ask.sum(t.Context(), 3, of("a", "b", "c")))
	problem(wire.RoundClosed)(ask.check(t.Context(), 3, "d/e f", proofCheck{Nonce: nonce("d/e f"), Message: []byte("x")}))
}

// TestSuspectsLogged: of requests with another secret, which anybody can send, the helper logs one a minute.
func TestSuspectsLogged(t *testing.T) {
	p := newPair(t)
	var log strings.Builder
	p.helper.srv.Log = slog.New(slog.NewTextHandler(&log, nil))
	stranger := must.Get(NewHelper(p.helper.http.URL, "", "another secret altogether"))(t)
	for i, after := range []time.Duration{0, 0, 59 * time.Second, time.Second, 0, -time.Hour, 0} {
		p.helper.pass(after)
		must.Fail(stranger.sum(t.Context(), 3, sumOf{}))(t, wire.NoToken)
		want := []int{1, 1, 1, 2, 2, 3, 3}[i]
		if n := strings.Count(log.String(), "asked as the leader with another secret"); n != want {
			t.Errorf("%d lines after request %d; want %d: %s", n, i, want, &log)
		}
	}
}

// TestLeastOfSum: the helper gives its share of a sum wherever the round file has the leader make one:
// at the quorum, or of min_uploads at the deadline, and of no fewer clients.
func TestLeastOfSum(t *testing.T) {
	for _, c := range []struct {
		quorum, least, in int
		want              string
	}{{2, 3, 2, ""}, {2, 3, 1, "want 2 or more"}, {3, 2, 2, ""}, {3, 2, 1, "want 2 or more"}, {2, 2, 2, ""}} {
		p := newPairOf(t, fmt.Sprintf("quorum: %d\nmin_uploads: %d\n"+
			"privacy: {epsilon: 1, noise: two-servers, points: 10}\n", c.quorum, c.least))
		for _, client := range []string{"a", "b"}[:c.in] {
			p.join(client)
		}
		if err := p.leader.srv.Pool(t.Context()); (err == nil) != (c.want == "") || err != nil &&
			!strings.Contains(err.Error(), c.want) {
			t.Errorf("%+v: %v", c, err)
		}
	}
}

// TestShortRosterOfHelper: a sum is given of clients whose uploads are in, however short a roster of the
// helper is by then.
func TestShortRosterOfHelper(t *testing.T) {
	for _, left := range []int{1, 4} {
		p := newPairOf(t, "privacy: {epsilon: 1, noise: two-servers, points: 10}\n")
		var names, lines []string
		for _, first := range "abcd" {
			name := string(first) + strings.Repeat("<", identity.MaxName-1) // long in JSON
			k := must.Get(identity.New(name))(t)
			p.helper.keys[name], names, lines = k, append(names, name), append(lines, k.Line())
		}
		admit := func(f *fixture, n int) {
			f.srv.Admit(must.Get(identity.ParseRoster([]byte(strings.Join(lines[:n], "\n"))))(t))
		}
		admit(p.helper, 4)
		admit(p.leader, 4)
		for _, name := range names {
			p.join(name)
		}
		admit(p.helper, left)
		if err := p.leader.srv.Pool(t.Context()); err != nil {
			t.Errorf("%d lines are left: %v", left, err)
		}
	}
}

// TestShareOfAnother: a share is its client's: another that signs it is refused, as is one of
// another round.
func TestShareOfAnother(t *testing.T) {
	p := newPair(t)
	l, h := p.shares("a", nil)
	steal := func(data []byte) []byte {
		r := must.Get(federate.DecodeRelease(data, federate.Expect{}))(t)
		r.Client = "b"
		data = must.Get(r.Encode())(t)
		return data
	}
	// one share alone does not show it
	p.helper.wants("an upload", 201, "")(p.helper.put("b", steal(h)))
	p.leader.wants("stolen", 422, "", "in range")(p.leader.put("b", steal(l)))
	if _, err := p.leader.store.Get(t.Context(), "b"); !errors.Is(err, store.ErrNone) {
		t.Errorf("it is in: %v", err)
	}
}

// FuzzLeaderAsks: whatever comes from who knows the secret is answered, refused or found wrong, and
// opens nothing that was not checked.
func FuzzLeaderAsks(f *testing.F) {
	p := newPair(f)
	_, h := p.shares("a", nil)
	p.helper.wants("an upload", 201, "")(p.helper.put("a", h))
	token := peerToken(twoSecret)
	handler := p.helper.srv.Handler()
	good, _ := json.Marshal(sumOf{Clients: []shared{{"a", make([]byte, 16)}, {"b", nil}}})
	f.Add(true, good)
	f.Add(true, []byte(`{"clients":[{},{"client":"0"}]}`))
	check, _ := json.Marshal(proofCheck{Nonce: make([]byte, 16), Message: []byte{1, 2}})
	f.Add(false, check)
	f.Fuzz(func(t *testing.T, sum bool, body []byte) {
		path := wire.UploadPath(3, "a") + "/proof"
		if sum {
			path = wire.RoundPath(3) + "/sum"
		}
		w := answer(handler, "POST", path, body, "Authorization", "Bearer "+token)
		if w.Code < 400 || w.Code >= 500 {
			t.Errorf("%d %s", w.Code, w.Body)
		}
	})
}

// TestReceiptAndSum: whoever gets a receipt of the leader while the sum is being settled is in the
// sum.
func TestReceiptAndSum(t *testing.T) {
	p := newPair(t)
	p.join("a")
	p.join("b")
	var group sync.WaitGroup
	var in atomic.Int64
	in.Store(2)
	for _, c := range []string{"c", "d/e f"} {
		l, h := p.shares(c, nil)
		p.helper.wants("an upload", 201, "")(p.helper.put(c, h))
		group.Go(func() {
			switch status, reply := p.leader.put(c, l); status {
			case http.StatusCreated:
				in.Add(1)
			case http.StatusGone:
			default:
				t.Errorf("%d %s", status, reply)
			}
		})
	}
	group.Go(func() {
		if err := p.leader.srv.Pool(t.Context()); err != nil {
			t.Error(err)
		}
	})
	group.Wait()
	p.leader.wantsOne(int(in.Load()))
}

// TestHelperHangs: a client that gave up waiting for a helper that hangs is taken when it comes again.
func TestHelperHangs(t *testing.T) {
	p := newPair(t)
	own, theirs := p.shares("a", nil)
	p.helper.wants("helper", http.StatusCreated, "")(p.helper.put("a", theirs))
	asked, hung := make(chan struct{}), make(chan struct{})
	s := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {
		close(asked)
		<-hung
	}))
	defer s.Close()
	defer close(hung)
	healthy := p.leader.srv.Helper
	p.leader.srv.Helper = must.Get(NewHelper(s.URL, "", twoSecret))(t)
	ctx, leave := context.WithCancel(t.Context())
	go func() { <-asked; leave() }()
	r := must.Get(http.NewRequestWithContext(ctx, "PUT", p.leader.http.URL+wire.UploadPath(3, "a"),
		bytes.NewReader(own)))(t)
	p.leader.signed(p.leader.keys["a"], identity.Upload, own, nil)(r)
	must.Fail(http.DefaultClient.Do(r))(t, "canceled", "the first")
	for start := time.Now(); !p.leader.srv.take("a"); time.Sleep(time.Millisecond) {
		if time.Since(start) > 20*time.Second {
			t.Fatal("a request that its client gave up keeps the client out")
		}
	}
	p.leader.srv.release("a")
	p.leader.srv.Helper = healthy
	p.leader.wants("again", http.StatusCreated, "")(p.leader.put("a", own))
}
