package service

import (
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"fmp/onnx/must"
	"fmp/pipeline/federate/wire"
)

// TestOtherSecret: leader and helper alike refuse another secret than that with which a share that
// they hold was proven; before any was proven they take it.
func TestOtherSecret(t *testing.T) {
	p := newPair(t)
	_, h := p.shares("b", nil)
	p.helper.wants("helper", http.StatusCreated, "")(p.helper.put("b", h)) // not proven
	for _, c := range []struct{ secret, want string }{
		{twoSecret, ""}, {"another secret altogether", "--servers-secret-file"}} {
		for name, f := range map[string]*fixture{"leader": p.leader, "helper": p.helper} {
			start := func() error {
				s, err := New(t.Context(), Config{Round: f.round, Key: f.key, Store: f.store, Helper: f.helper,
					Secret: c.secret, Log: slog.New(slog.DiscardHandler)})
				if err == nil {
					s.Close()
				}
				return err
			}
			if c.want == "" {
				must.Do(t, start())
				continue
			}
			if len(f.srv.in) < 2 {
				must.Do(t, start())
				p.join("a")
			}
			must.Fail(0, start())(t, c.want, name)
		}
	}
}

// TestHelperRefuses: a client is told of a refusal of the helper, and that the helper does not answer
// where it does not.
func TestHelperRefuses(t *testing.T) {
	p := newPair(t)
	l, h := p.shares("a", nil)
	p.helper.wants("helper", http.StatusCreated, "")(p.helper.put("a", h))
	var code string
	stub := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		if code == "" {
			http.Error(w, "nobody is here", http.StatusBadGateway)
			return
		}
		refuse(w, code, "as it says")
	}))
	defer stub.Close()
	p.leader.srv.Helper = must.Get(NewHelper(stub.URL, "", twoSecret))(t)
	for code = range refusals {
		status, data := p.leader.put("a", l)
		if strings.Contains(string(data), "does not answer") ||
			code != wire.NoToken && code != wire.RoundClosed && !strings.Contains(string(data), "as it says") {
			t.Errorf("%s: %d %s", code, status, data)
		}
	}
	code = ""
	p.leader.wants("no answer", 503, wire.Unavailable, "does not answer")(p.leader.put("a", l))
	stranger := must.Get(NewHelper(p.helper.http.URL, "", "another secret altogether"))(t)
	p.leader.srv.Helper = stranger
	p.leader.wants("secrets", 503, wire.Unavailable, "different secrets")(p.leader.put("a", l))
	must.Fail(0, stranger.Knows(t.Context(), 3))(t, "--servers-secret-file", "another secret")
	must.Do(t, p.leader.helper.Knows(t.Context(), 3))
	p.leader.srv.Helper = p.leader.helper
	p.leader.wants("leader", http.StatusCreated, "")(p.leader.put("a", l))
	p.join("b")
	stored := must.Get(p.helper.store.Get(t.Context(), "b"))(t)
	stored.Peer[0] ^= 1
	must.Do(t, p.helper.store.Put(t.Context(), stored, stored.Revision))
	must.Fail(0, p.leader.srv.Pool(t.Context()))(t, "proof was checked", "a share that does not verify")
}
