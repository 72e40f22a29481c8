package service

import (
	"context"
	"encoding/base64"
	"errors"
	"net/http"
	"testing"

	"fmp/onnx/must"
	"fmp/pipeline/federate"
	"fmp/pipeline/federate/wire"
	"fmp/pipeline/pool"
	"fmp/pipeline/privacy"
)

// released is a message of a private round with nothing in it.
func (f *fixture) released(client string, change func(*federate.Release)) []byte {
	f.t.Helper()
	m := f.round.Client
	k := max(m.K, 1)
	r := &federate.Release{Round: 3, Client: client, Model: m.Digest, Sums: privacy.NewRelease(m.C, k),
		Budget: privacy.Budget{Epsilon: 1, Delta: 1e-5, Unit: privacy.Example,
			Relation: privacy.AddRemove, Noise: privacy.Local}}
	if change != nil {
		change(r)
	}
	return must.Get(r.Encode())(f.t)
}

// trusted is such a message of a round in which the server adds the noise.
func (f *fixture) trusted(client string) []byte {
	f.t.Helper()
	return f.released(client, func(r *federate.Release) { r.Budget.Noise, r.Salt[0] = privacy.Trusted, 1 })
}

// TestPrivate: a private round says what it is everywhere, takes uploads of its own budget alone,
// signs what was spent, and keeps nothing of what it refuses.
func TestPrivate(t *testing.T) {
	f := newFixture(t, "quorum: 2\nprivacy: {epsilon: 1}\n")
	for want, data := range map[string][]byte{
		"it is a plain one": f.made("a", 1,
			func(u *federate.Upload) { u.Model = f.round.Client.Digest }),
		"its budget is epsilon": f.released("a", func(r *federate.Release) { r.Budget.Epsilon = 2 }),
		"noise: trusted; that":  f.trusted("a"),
		"round is 4":            f.released("a", func(r *federate.Release) { r.Round = 4 }),
		`client is "b"`:         f.released("b", nil),
		"dx is": f.released("a",
			func(r *federate.Release) { r.Sums = privacy.NewRelease(r.Sums.Classes, r.Sums.K+1) }),
		"classes": f.released("a",
			func(r *federate.Release) { r.Sums = privacy.NewRelease(r.Sums.Classes-1, r.Sums.K) }),
	} {
		f.wants(want, http.StatusUnprocessableEntity, wire.BadUpload, want)(f.put("a", data))
	}
	plain := newFixture(t, "")
	plain.wants("a private upload to a plain round", http.StatusUnprocessableEntity, "", "is not private")(
		plain.put("a", plain.released("a", nil)))
	stray := f.released("a", func(r *federate.Release) { r.Budget.Points = 9 }) // has no effect
	r := read[wire.Receipt](t, http.StatusCreated)(f.put("a", stray))
	if r.Spent == nil || *r.Spent != *f.round.Privacy {
		t.Fatalf("%+v", r)
	}
	server := base64.StdEncoding.EncodeToString(f.key.Public())
	must.Do(t, r.Verify(server))
	r.Spent.Epsilon = 0.5
	must.Fail(r.Verify(server))(t, "", "a receipt with another epsilon verifies")
	if r.Spent = nil; r.Verify(server) == nil {
		t.Error("a receipt without what was spent verifies")
	}
	for path, want := range map[string]string{
		"/":        "This round is private: epsilon 1, delta 1e-05",
		"/metrics": `fmp_round_epsilon{delta="1e-05",noise="local",relation="add-remove",unit="example"} 1`,
		wire.RoundPath(
			3): `"privacy":{"epsilon":1,"delta":0.00001,"unit":"example","relation":"add-remove","noise":"local"}`,
	} {
		f.wants(path, 200, "", want)(f.request("GET", path, nil, reader))
	}
}

// TestTrusted: where the server adds the noise a round has one classifier, and takes nothing after
// it.
func TestTrusted(t *testing.T) {
	f := newFixture(t, "quorum: 2\naccept_late: true\nprivacy: {epsilon: 1, noise: trusted}\n")
	send := func(client string) (int, []byte) { return f.put(client, f.trusted(client)) }
	for _, c := range []string{"a", "b"} {
		f.wants(c, http.StatusCreated, "")(send(c))
	}
	must.Do(t, f.srv.Pool(t.Context()))
	for range 2 { // a restart changes nothing
		f.wants("after the classifier", http.StatusGone, "", "is made")(send("c"))
		f.wants("the same again", http.StatusOK, "")(send("a"))
		if f.srv.due() < long || f.srv.Status().State != wire.Closed || f.srv.description().AcceptLate ||
			f.srv.Status().Versions[0].Clients != 2 {
			t.Errorf("due in %v, %+v", f.srv.due(), f.srv.Status())
		}
		f.restart()
	}
}

// TestUnsalted: a message without a salt is refused; one that an earlier program took is in the
// classifier, after a restart too, and its client gets the receipt again.
func TestUnsalted(t *testing.T) {
	f := newFixture(t, "quorum: 2\nprivacy: {epsilon: 1, noise: trusted}\n")
	old := f.released("a", func(r *federate.Release) { r.Budget.Noise = privacy.Trusted })
	f.wants("a new one", http.StatusUnprocessableEntity, wire.BadUpload)(f.put("a", old))
	for _, c := range []string{"a", "b"} {
		f.wants(c, http.StatusCreated, "")(f.put(c, f.trusted(c)))
	}
	kept := must.Get(f.store.Get(t.Context(), "a"))(t)
	kept.Data, kept.Receipt.Upload = old, digestOf(old)
	must.Do(t, f.store.Put(t.Context(), kept, kept.Revision))
	f.restart()
	f.wants("the same again", http.StatusOK, "")(f.put("a", old))
	must.Do(t, f.srv.Pool(t.Context()))
	f.wantsOne(2)
}

// TestSettledBySum: once a noisy sum is kept, no upload is taken, also where its classifier could not
// be made, and after a restart: another sum would spend the budget again.
func TestSettledBySum(t *testing.T) {
	f := newFixture(t, "quorum: 2\naccept_late: true\nprivacy: {epsilon: 1, noise: trusted}\n")
	send := func(client string, want int) { f.wants(client, want, "")(f.put(client, f.trusted(client))) }
	send("a", http.StatusCreated)
	send("b", http.StatusCreated)
	f.srv.Private = func(ctx context.Context, _ []pool.Release,
		_ func() (*privacy.Release, error)) (*Pooled, error) {
		_, err := Sums{ctx, f.srv.Store}.Keep("a-b", nil,
			func(int) ([]byte, error) { return []byte("sum"), nil })
		return nil, errors.Join(err, errors.New("no classifier"))
	}
	must.Fail(f.srv.Pool(t.Context()))(t, "no classifier")
	for range 2 {
		send("c", http.StatusGone) // after the sum
		f.restart()
	}
	must.Do(t, f.srv.Pool(t.Context()))
	f.wantsOne(2)
}

// TestReceiptAndNoise: whoever gets a receipt while the one classifier of a round is made is in it,
// and a round whose pooling fails stays open.
func TestReceiptAndNoise(t *testing.T) {
	f := newFixture(t, "quorum: 2\naccept_late: true\nprivacy: {epsilon: 1, noise: trusted}\n")
	send := func(client string) int {
		status, data := f.put(client, f.trusted(client))
		if status != http.StatusCreated && status != http.StatusGone {
			t.Errorf("%d %s", status, data)
		}
		return status
	}
	must.Fail(f.srv.Pool(t.Context()))(t, "", "a classifier was made of nothing")
	for _, c := range []string{"a", "b"} {
		if status := send(c); status != http.StatusCreated {
			t.Fatal(status)
		}
	}
	in := 2
	sent := make(chan int)
	go func() { sent <- send("c") }()
	must.Do(t, f.srv.Pool(t.Context()))
	if <-sent == http.StatusCreated {
		in++
	}
	f.wantsOne(in)
}

// TestOneBudget: a server, and each of two servers, does not start with a round file of another budget
// than that of an upload that is in; with that of before it goes on.
func TestOneBudget(t *testing.T) {
	for name, c := range map[string]struct {
		was    string
		change func(*privacy.Budget) *privacy.Budget
	}{
		"epsilon":   {"epsilon: 1", func(b *privacy.Budget) *privacy.Budget { b.Epsilon = 20; return b }},
		"noise":     {"epsilon: 1", func(b *privacy.Budget) *privacy.Budget { b.Noise = "trusted"; return b }},
		"points":    {"epsilon: 1, points: 9", func(b *privacy.Budget) *privacy.Budget { b.Points = 8; return b }},
		"no budget": {"epsilon: 1", func(*privacy.Budget) *privacy.Budget { return nil }},
		"helper": {"epsilon: 1, noise: two-servers, points: 10",
			func(b *privacy.Budget) *privacy.Budget { b.Epsilon = 20; return b }},
		"a budget": {"", func(*privacy.Budget) *privacy.Budget { return &privacy.Budget{Epsilon: 1} }},
	} {
		t.Run(name, func(t *testing.T) {
			var f *fixture
			var data []byte
			switch name {
			case "a budget":
				f = newFixture(t, "")
				data = f.made("a", 1, nil)
			case "helper":
				p := newPair(t)
				f = p.helper
				_, data = p.shares("a", nil)
			default:
				f = newFixture(t, "privacy: {"+c.was+"}\n")
				data = f.released("a", func(r *federate.Release) { r.Budget = *f.round.Privacy })
			}
			f.wants("upload", http.StatusCreated, "")(f.put("a", data))
			before := f.round.Privacy
			var b privacy.Budget
			if before != nil {
				b = *before
			}
			f.round.Privacy = c.change(&b)
			must.Fail(New(t.Context(), f.srv.Config))(t, "put the round file back", name)
			f.round.Privacy = before
			f.restart()
			f.wants("again", http.StatusOK, "")(f.put("a", data))
		})
	}
}
