package service

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"fmp/onnx/must"
	"fmp/pipeline/federate"
	"fmp/pipeline/federate/identity"
	"fmp/pipeline/federate/store"
	"fmp/pipeline/federate/wire"
	"fmp/pipeline/pool"
)

// delete asks for the withdrawal of a client's upload, changed before it is sent.
func (f *fixture) delete(client, upload string, key *identity.Key,
	change func(*identity.Statement)) (int, []byte) {
	f.t.Helper()
	s := identity.Statement{Purpose: identity.Withdraw, Server: f.key.PublicText(), Round: 3,
		Client: client, Graph: f.round.Client.Digest, Content: upload}
	if change != nil {
		change(&s)
	}
	return f.request("DELETE", wire.UploadPath(3, client), nil, func(r *http.Request) {
		r.Header.Set("If-Match", `"`+upload+`"`)
		r.Header.Set("Authorization", wire.Authorization(key.Sign(s)))
	})
}

// with gives a request headers.
func with(headers map[string]string) func(*http.Request) {
	return func(r *http.Request) {
		for name, value := range headers {
			r.Header.Set(name, value)
		}
	}
}

// gone withdraws a client's upload and checks the receipt.
func (f *fixture) gone(client string, upload []byte) wire.Withdrawal {
	f.t.Helper()
	w := read[wire.Withdrawal](f.t, http.StatusOK)(
		f.delete(client, digestOf(upload), f.keys[client], nil))
	d := f.srv.description()
	if err := d.Gone(&w, client); err != nil || w.Upload != digestOf(upload) {
		f.t.Error(err)
	}
	for _, change := range []func(*wire.Withdrawal){func(w *wire.Withdrawal) { w.Held = nil },
		func(w *wire.Withdrawal) { w.Remains = nil },
		func(w *wire.Withdrawal) { w.By = wire.ByOperator }, func(w *wire.Withdrawal) {
			w.Time = w.Time.Add(1)
		}} {
		other := w
		if change(&other); len(w.Held) > 0 && d.Gone(&other, client) == nil {
			f.t.Errorf("a receipt that was changed holds: %+v", other)
		}
	}
	return w
}

func (f *fixture) pool() {
	f.t.Helper()
	must.Do(f.t, f.srv.Pool(f.t.Context()))
}

func (f *fixture) classifier(query string) (int, []byte) {
	f.t.Helper()
	return f.request("GET", wire.RoundPath(3)+"/classifier.onnx"+query, nil, reader)
}

func (f *fixture) notices() *wire.Notice {
	f.t.Helper()
	status, data := f.request("GET", wire.NoticePath(3), nil, nil)
	n, err := wire.ReadNotice(data, f.key.PublicText())
	if err != nil || status != 200 {
		f.t.Fatalf("notice: %d %s: %v", status, data, err)
	}
	return n
}

// TestWithdraw: after a withdrawal, over a restart between the request and the new version, the
// classifier is the one that the client never took part in; earlier versions are handed out no
// more, and a late client's is the pool of all.
func TestWithdraw(t *testing.T) {
	apart := newFixture(t, "quorum: 2\naccept_late: true\nrebuild_interval: 1h\n")
	f := newFixture(t, "quorum: 3\naccept_late: true\nrebuild_interval: 1h\n")
	uploads := f.in("a", "b", "c")
	apart.put("a", uploads["a"])
	apart.put("c", uploads["c"])
	f.pool()
	apart.pool()
	_, with := f.classifier("")
	_, want := apart.classifier("")
	if bytes.Equal(with, want) {
		t.Fatal("the pools are one")
	}
	if n := f.notices(); len(n.Superseded) != 0 || n.Latest == nil || n.Heed(n.Latest.SHA256) != nil {
		t.Errorf("before the withdrawal: %+v", n)
	}
	w := f.gone("b", uploads["b"])
	if w.Without != nil || w.HeldVersions != 1 ||
		w.Held[0] != (wire.VersionRef{Version: 1, SHA256: digestOf(with)}) || len(w.Remains) < 4 {
		t.Errorf("receipt %+v", w)
	}
	f.wants("the classifier meanwhile", http.StatusServiceUnavailable, "")(f.classifier(""))
	f.wants("version 1", http.StatusGone, wire.Superseded)(f.classifier("?version=1"))
	f.restart()
	if d := f.srv.due(); d > 0 {
		t.Errorf("after a withdrawal the next version is due in %v", d)
	}
	f.pool()
	if status, got := f.classifier(""); status != 200 || !bytes.Equal(got, want) {
		t.Errorf("%d: the classifier is not the one that b never took part in", status)
	}
	if d := f.srv.due(); d < time.Minute {
		t.Errorf("due again in %v", d)
	}
	f.wants("whatever b has sent", http.StatusOK, "")(f.delete("b", wire.Any, f.keys["b"], nil))
	if again := f.gone("b", uploads["b"]); again.Without == nil ||
		*again.Without != (wire.VersionRef{Version: 2, SHA256: digestOf(want)}) {
		t.Errorf("asked again: %+v", again)
	}
	n := f.notices()
	if len(n.Superseded) != 1 || n.Heed(digestOf(with)) == nil ||
		n.Heed(strings.ToUpper(digestOf(with))) == nil ||
		n.Heed(digestOf(want)) != nil || n.Latest.Version != 2 {
		t.Errorf("notice %+v", n)
	}
	if _, _, err := f.store.Classifier(t.Context(), 1); err == nil {
		t.Error("the file of version 1 is still stored")
	}
	for r, err := range f.store.All(t.Context()) {
		if err != nil || r.Receipt.Client == "b" && len(r.Data) > 0 {
			t.Errorf("the upload of b is still stored: %v", err)
		}
	}
	f.wants("b again", http.StatusGone, wire.Withdrawn)(f.put("b", uploads["b"]))
	f.wants("b with another upload", http.StatusGone, "")(f.put("b", f.made("b", 2, nil)))
	late := f.made("d/e f", 1, nil)
	f.pass(3 * time.Hour)
	apart.pass(3 * time.Hour)
	for _, g := range []*fixture{f, apart} {
		g.wants("late", http.StatusCreated, "")(g.put("d/e f", late))
		g.pool()
	}
	_, got := f.classifier("")
	if _, want := apart.classifier(""); !bytes.Equal(got, want) {
		t.Error("with a late client the classifier is not the pool of all")
	}
	listed := read[struct{ Versions []VersionStatus }](t, 200)(
		f.request("GET", wire.RoundPath(3)+"/versions", nil, reader)).Versions
	if len(listed) != 3 || listed[0].Superseded.Reason != "withdrawal" ||
		listed[1].Superseded.Reason != "uploads" || listed[1].Superseded.By != 3 ||
		listed[2].Superseded != nil {
		t.Errorf("versions: %+v", listed)
	}
	f.wants("metrics", 200, "", "\nfmp_withdrawals 1\n", "\nfmp_versions_superseded 1\n",
		"\nfmp_superseded_latest 0\n")(f.request("GET", "/metrics", nil, reader))
	st := f.srv.Status()
	if len(st.Withdrawn) != 1 || st.Withdrawn[0].Client != "b" || slices.Contains(st.Missing, "b") {
		t.Errorf("status %+v", st)
	}
	f.wants("the page", 200, "", "Withdrawn (1)", "1 (withdrawn)")(f.request("GET", "/", nil, reader))
}

// TestWithdrawMeanwhile: an upload that is withdrawn while it is pooled is in no version.
func TestWithdrawMeanwhile(t *testing.T) {
	f := newFixture(t, "quorum: 3\n")
	uploads := f.in("a", "b", "c")
	before := f.srv.Config.Pool
	f.srv.Config.Pool = func(ctx context.Context, uploadsIn []pool.Upload) (*Pooled, error) {
		made, err := before(ctx, uploadsIn)
		if len(uploadsIn) == 3 {
			f.gone("b", uploads["b"])
		}
		return made, err
	}
	if err := f.srv.Pool(t.Context()); err == nil || len(f.srv.versions) != 0 {
		t.Fatalf("a version with the withdrawn upload: %v, %d versions", err, len(f.srv.versions))
	}
	if f.pass(3 * time.Hour); f.srv.due() > 0 {
		t.Error("not due at the deadline")
	}
	f.pool()
	if st := f.srv.Status(); len(st.Versions) != 1 || st.Versions[0].Clients != 2 ||
		st.Versions[0].Superseded != nil {
		t.Errorf("versions %+v", st.Versions)
	}
}

// TestWithdrawnActs: no version is made while a client that withdrew is in a file that acts on it.
func TestWithdrawnActs(t *testing.T) {
	f := newFixture(t, "quorum: 2\n")
	uploads := f.in("a", "b", "c")
	f.srv.Withdrawn = func(client, digest string, round uint64, graph string) error {
		if client == "a" && digest == digestOf(uploads["a"]) && round == 3 && graph == f.round.Client.Digest {
			return errors.New("a is the anchor")
		}
		return nil
	}
	f.gone("b", uploads["b"])
	f.pool()
	f.gone("a", uploads["a"])
	must.Fail(f.srv.Pool(t.Context()))(t, "a is the anchor: change the round file")
	f.srv.Withdrawn = nil
	f.pool()
}

// TestWithdrawRefused: who may not withdraw an upload does not, whatever the request says.
func TestWithdrawRefused(t *testing.T) {
	type statement = identity.Statement
	f := newFixture(t, "quorum: 2\n")
	a := f.in("a", "b")["a"]
	f.pool()
	for name, c := range map[string]struct {
		client, upload string
		key            *identity.Key
		change         func(*identity.Statement)
		status         int
		code           string
	}{
		"another client": {"a", digestOf(a), f.keys["b"], nil, 403, wire.WrongKey},
		"another purpose": {"a", digestOf(a), f.keys["a"],
			func(s *statement) { s.Purpose = identity.Upload }, 403, wire.WrongKey},
		"as operator": {"a", digestOf(a), f.keys["a"],
			func(s *statement) { s.Purpose = identity.WithdrawFor }, 403, wire.WrongKey},
		"operator as client": {"a", digestOf(a), f.key, nil, 403, wire.WrongKey},
		"another server": {"a", digestOf(a), f.keys["a"],
			func(s *statement) { s.Server = f.keys["b"].PublicText() }, 403, wire.WrongKey},
		"another round": {"a", digestOf(a), f.keys["a"], func(s *statement) { s.Round = 4 },
			403, wire.WrongKey},
		"another graph": {"a", digestOf(a), f.keys["a"],
			func(s *statement) { s.Graph = digestOf(a) }, 403, wire.WrongKey},
		"another upload": {"a", digestOf([]byte("x")), f.keys["a"], nil, 409, wire.OtherUpload},
		"signed for another": {"a", digestOf([]byte("x")), f.keys["a"],
			func(s *statement) { s.Content = digestOf(a) }, 403, wire.WrongKey},
		"no digest":            {"a", "", f.keys["a"], nil, 400, wire.BadRequest},
		"one who sent nothing": {"c", digestOf(a), f.keys["c"], nil, 404, wire.NoReceipt},
		"a stranger":           {"z", digestOf(a), f.keys["c"], nil, 403, wire.WrongKey},
	} {
		f.wants(name, c.status, c.code)(f.delete(c.client, c.upload, c.key, c.change))
	}
	f.wants("with the readers' token", 401, wire.NoKey)(
		f.request("DELETE", wire.UploadPath(3, "a"), nil, reader))
	if st := f.srv.Status(); st.In != 2 || len(st.Withdrawn) != 0 || st.Versions[0].Superseded != nil {
		t.Errorf("something was taken out: %+v", st)
	}
}

// holds reports whether a file of the server's state has the middle of an upload.
func (f *fixture) holds(upload []byte) (found bool) {
	f.t.Helper()
	must.Do(f.t, filepath.WalkDir(f.dir, func(path string, d fs.DirEntry, err error) error {
		if errors.Is(err, fs.ErrNotExist) { // NATS makes and renames files meanwhile
			return nil
		}
		if err != nil || !d.Type().IsRegular() {
			return err
		}
		data, err := os.ReadFile(path)
		if errors.Is(err, fs.ErrNotExist) {
			return nil
		}
		found = found || bytes.Contains(data, upload[len(upload)/2:len(upload)/2+64])
		return err
	}))
	return found
}

// TestWithdrawQuarantined: a client whose upload was refused takes it back, as does the operator; its
// bytes leave the state, a request that ended midway is ended by the next, and nothing of the client is
// taken again.
func TestWithdrawQuarantined(t *testing.T) {
	for name, c := range map[string]struct {
		operator bool
		before   func(t *testing.T, f *fixture) // the request
	}{
		"by the client":   {false, func(*testing.T, *fixture) {}},
		"by the operator": {true, func(*testing.T, *fixture) {}},
		"after a start":   {false, func(_ *testing.T, f *fixture) { f.restart() }},
		"noted before": {false, func(t *testing.T, f *fixture) {
			r := f.srv.quarantined("a")
			must.Do(t, f.store.Withdraw(t.Context(), r, store.Gone{Time: f.clock(), By: wire.ByClient}, nil))
		}},
		"noted before a start": {false, func(t *testing.T, f *fixture) {
			r := f.srv.quarantined("a")
			must.Do(t, f.store.Withdraw(t.Context(), r, store.Gone{Time: f.clock(), By: wire.ByClient}, nil))
			f.restart()
			if len(f.srv.refused) != 0 {
				t.Error("a start keeps the refused upload")
			}
		}},
	} {
		t.Run(name, func(t *testing.T) {
			f := newFixture(t, "")
			bad := f.made("a", 1, func(u *federate.Upload) { u.Round = 4 })
			f.in("b")
			if status, data := f.put("a", bad); status != http.StatusUnprocessableEntity || !f.holds(bad) {
				t.Fatalf("%d %s, in quarantine %v", status, data, f.holds(bad))
			}
			f.wants("another upload's digest", 409, wire.OtherUpload)(
				f.delete("a", digestOf(nil), f.keys["a"], nil))
			c.before(t, f)
			d := f.srv.description()
			if r := f.srv.quarantined("a"); r != nil && r.Receipt.Server != f.key.PublicText() {
				t.Errorf("of the server %q", r.Receipt.Server)
			}
			var receipts []string
			for range 2 {
				headers := d.Withdraw(f.keys["a"])
				if c.operator {
					headers = d.WithdrawFor(f.key, "a")
				}
				status, data := f.request("DELETE", wire.UploadPath(3, "a"), nil, with(headers))
				w := read[wire.Withdrawal](t, 200)(status, data)
				if d.Gone(&w, "a") != nil || w.Upload != digestOf(bad) || w.HeldVersions != 0 {
					t.Fatalf("%d %s", status, data)
				}
				receipts = append(receipts, string(data))
				if st := f.srv.Status(); f.holds(bad) || len(st.Refused) != 0 || len(st.Withdrawn) != 1 ||
					st.In != 1 {
					t.Errorf("in the state's files %v; status %+v", f.holds(bad), st)
				}
				if status, _ := f.put("a", bad); status != http.StatusGone || f.holds(bad) {
					t.Errorf("sent again: %d, in the state %v", status, f.holds(bad))
				}
				f.restart()
			}
			if receipts[0] != receipts[1] {
				t.Errorf("the receipts differ: %s", receipts)
			}
			must.Get(f.store.Get(t.Context(), "b"))(t)
		})
	}
}

// TestWithdrawByOperator: the server's key takes out the upload of a client that the roster lacks
// by now; where too few are left, the last version is handed out no more and makes no predictions,
// over a restart too, until enough have come.
func TestWithdrawByOperator(t *testing.T) {
	f := newFixture(t, "quorum: 2\nmin_uploads: 2\naccept_late: true\n")
	f.in("a", "b")
	f.pool()
	d := f.srv.description()
	w := read[wire.Withdrawal](t, 200)(
		f.request("DELETE", wire.UploadPath(3, "b"), nil, with(d.WithdrawFor(f.key, "b"))))
	if w.By != wire.ByOperator || d.Gone(&w, "b") != nil {
		t.Fatalf("%+v", w)
	}
	for range 2 {
		f.wants("with one upload left", 404, wire.NotYet)(f.classifier(""))
		if p := f.srv.predictions; p.version() != nil || p.latest != nil || f.srv.due() <= 0 {
			t.Error("a version with a withdrawn upload is held, or another is due of one upload")
		}
		f.restart()
	}
	f.in("c")
	f.restart()
	if f.srv.due() > 0 {
		t.Error("not due with two uploads")
	}
	f.pool()
	f.wants("the classifier", 200, "")(f.classifier(""))
	if n := f.notices(); len(n.Superseded) != 1 || n.Latest == nil || n.Latest.Version != 2 {
		t.Errorf("notice %+v", n)
	}
}

// TestNoWithdrawal: a round whose sums hide single uploads says so before anybody joins, and takes
// nothing out.
func TestNoWithdrawal(t *testing.T) {
	for noise, possible := range map[string]bool{"local": true, "trusted": false} {
		f := newFixture(t, fmt.Sprintf("privacy: {epsilon: 2, noise: %s}\n", noise))
		d := f.srv.description()
		if d.Withdrawal != possible || d.Check() != nil {
			t.Errorf("noise %s: withdrawal %v, %v", noise, d.Withdrawal, d.Check())
		}
		if d.Withdrawal = true; (d.Check() == nil) != possible {
			t.Errorf("noise %s: a description that promises withdrawal is taken: %v", noise, d.Check())
		}
		_, page := f.request("GET", "/", nil, reader)
		if got := !bytes.Contains(page, []byte("cannot be withdrawn")); got != possible {
			t.Errorf("noise %s: the page says that uploads can be withdrawn: %v", noise, got)
		}
		if !possible {
			f.wants(noise, 409, wire.NoWithdrawal)(f.delete("a", digestOf(nil), f.keys["a"], nil))
		}
	}
}

// TestWarningsLogged: warnings of a version are in the log, by its number.
func TestWarningsLogged(t *testing.T) {
	f := newFixture(t, "quorum: 1\n")
	var log strings.Builder
	f.srv.Log = slog.New(slog.NewTextHandler(&log, nil))
	f.in("a")
	f.srv.Config.Pool = func(context.Context, []pool.Upload) (*Pooled, error) {
		return &Pooled{Classifier: []byte("made"), Warnings: []string{"kappa-is-a-guess"}}, nil
	}
	f.pool()
	if want := "level=WARN msg=kappa-is-a-guess version=1"; !strings.Contains(log.String(), want) {
		t.Errorf("want %q in %s", want, log.String())
	}
}
