package service

import (
	"errors"
	"log/slog"
	"net/http"
	"strings"
	"testing"
	"time"

	"fmp/onnx/must"
	"fmp/pipeline/federate"
	"fmp/pipeline/federate/identity"
	"fmp/pipeline/federate/round"
	"fmp/pipeline/federate/wire"
	"fmp/pipeline/privacy"
)

// rosterOf is a roster of some of the round's clients.
func (f *fixture) rosterOf(names ...string) *identity.Roster {
	f.t.Helper()
	var text strings.Builder
	for _, name := range names {
		text.WriteString(f.keys[name].Line() + "\n")
	}
	return must.Get(identity.ParseRoster([]byte(text.String())))(f.t)
}

// TestQuorumIsFixed: a roster that is short or long, for a moment or at a restart, changes no
// quorum: it closes no private round, whose classifier is made once. The round file may state
// another, for which the roster must have clients, as it must when the round opens.
func TestQuorumIsFixed(t *testing.T) {
	for _, stated := range []string{"", "quorum: 4\nmin_uploads: 4\n"} {
		quorumIsFixed(t, stated)
	}
}

// quorumIsFixed is a case of TestQuorumIsFixed, with these lines in the round file.
func quorumIsFixed(t *testing.T, stated string) {
	f := newFixture(t, stated+"privacy: {epsilon: 1, noise: trusted}\n")
	f.wants("an upload", http.StatusCreated, "")(f.put("a", f.trusted("a")))
	still := func(when string) {
		t.Helper()
		if f.srv.due() <= 0 || f.srv.state(f.clock()) != wire.Open || f.srv.Status().Quorum != 4 {
			t.Errorf("%s: due in %v, %s, quorum %d; want one open, of 4", when, f.srv.due(),
				f.srv.state(f.clock()), f.srv.Status().Quorum)
		}
	}
	for _, names := range [][]string{{"a"}, {"a", "b"}, {"a", "b", "c", "d/e f"}} {
		f.srv.Admit(f.rosterOf(names...))
		still(strings.Join(names, ", "))
	}
	f.join(3)
	still("three more")
	whole := f.round.Clients
	f.stop()
	f.round.Clients = f.rosterOf("a") // as it was found at a restart
	f.start()
	still("after a restart with a short roster")
	f.srv.Admit(whole)
	for _, client := range []string{"b", "c", "d/e f"} {
		f.wants(client, http.StatusCreated, "")(f.put(client, f.trusted(client)))
	}
	if f.srv.due() > 0 {
		t.Error("with all uploads in, nothing is due")
	}
	f.stop()
	f.round.Clients, f.round.Quorum = whole, 2 // the operator's word
	f.start()
	if f.srv.quorum != 2 {
		t.Errorf("%squorum %d; the round file states 2", stated, f.srv.quorum)
	}
	f.round.Quorum, f.round.MinUploads = 1, 2 // of which the roster lacks one
	f.srv.Admit(f.rosterOf("a"))
	if err := f.srv.fixQuorum(t.Context()); err != nil || f.srv.quorum != 1 {
		t.Errorf("%squorum %d, lowered with the roster: %v", stated, f.srv.quorum, err)
	}
	for _, quorum := range []int{5, 2} { // another than it is, then that of a round that opens
		f.round.Quorum = quorum
		f.srv.Admit(f.rosterOf("a"))
		if err := f.srv.fixQuorum(t.Context()); !errors.Is(err, round.ErrRoster) {
			t.Errorf("quorum %d with a roster of 1: %v", quorum, err)
		}
		must.Do(t, f.store.DeleteObject(t.Context(), quorumObject))
	}
}

// greedy claims a thousand times the images of an upload.
func greedy(u *federate.Upload) {
	u.N *= 1000
	for i := range u.Points.W {
		u.Points.W[i] *= 1000
	}
}

// TestRefusedKeepNobodyWaiting: a client that claims a thousand times its images is refused, and a
// round that waits for everybody is pooled without it; a round with a stated quorum, or of one
// classifier, waits.
func TestRefusedKeepNobodyWaiting(t *testing.T) {
	for extra, want := range map[string]bool{"": true, "quorum: 4\n": false, "min_uploads: 4\n": false} {
		f := newFixture(t, extra)
		f.wants("a thousand times the images", 422, wire.BadUpload)(f.put("d/e f", f.made("d/e f", 1, greedy)))
		for _, client := range []string{"a", "b", "c"} {
			if f.srv.due() <= 0 {
				t.Errorf("%q: due before %s has answered", extra, client)
			}
			f.in(client)
		}
		if got := f.srv.due() <= 0; got != want {
			t.Errorf("%q: due %v with three in and one refused; want %v", extra, got, want)
		}
		f.restart()
		if got := f.srv.due() <= 0; got != want {
			t.Errorf("%q: due %v after a restart; want %v", extra, got, want)
		}
		if !want {
			continue
		}
		must.Do(t, f.srv.Pool(t.Context()))
		f.pass(2 * time.Minute)
		if f.in("d/e f"); f.srv.due() > 0 {
			t.Errorf("mended, it is not in the next version, due in %v", f.srv.due())
		}
	}
	f := newFixture(t, "privacy: {epsilon: 1, noise: trusted}\n")
	for _, client := range []string{"a", "b", "c", "d/e f"} {
		f.put(client, f.released(client, func(r *federate.Release) {
			r.Budget.Noise, r.Salt[0] = privacy.Trusted, 1
			if client == "c" {
				r.Budget.Epsilon = 2
			}
		}))
	}
	if f.srv.due() <= 0 {
		t.Error("a private round is closed for good by a client that was refused")
	}
}

// TestFloodOfRefusals: a client that sends upload after upload that is refused writes few lines and
// is put off, and others are not.
func TestFloodOfRefusals(t *testing.T) {
	f := newFixture(t, "")
	var log strings.Builder
	f.restart()
	f.srv.Log = quietly(slog.New(slog.NewTextHandler(&log, nil)))
	bad, off := f.made("a", 1, greedy), 0
	for range 300 {
		if status, _ := f.put("a", bad); status == http.StatusTooManyRequests {
			off++
		}
	}
	if n := strings.Count(log.String(), "\n"); n > logBurst || n == 0 {
		t.Errorf("%d lines for 300 uploads that were refused; want 1 to %d", n, logBurst)
	}
	if off < 300-faultBurst-60 {
		t.Errorf("%d of 300 were put off", off)
	}
	f.in("b") // beside it
	if !strings.Contains(log.String(), "client=b") {
		t.Error("the other client's line is left out")
	}
}

// TestQuietLog: every kind of lines has its burst, and then a line an interval; how many were left
// out is said; many kinds take bounded memory.
func TestQuietLog(t *testing.T) {
	var log strings.Builder
	now := time.Unix(0, 0)
	k := &kinds{of: map[kind]*pace{}, now: func() time.Time { return now }}
	l := slog.New(&quiet{slog.NewTextHandler(&log, nil), k}).With("round", 3)
	count := func(text string) (n int) { n = strings.Count(log.String(), text); log.Reset(); return n }
	for range 1000 {
		l.Warn("refused", "client", "a")
	}
	l.Warn("refused", "client", "b")
	l.Error("refused", "client", "a")
	if n := strings.Count(log.String(), "client=a"); n != logBurst+1 ||
		strings.Count(log.String(), "client=b") != 1 {
		t.Errorf("%d lines of a; want %d and the error: %s", n, logBurst, log.String())
	}
	log.Reset()
	k.of[kind{slog.LevelWarn, "refused", "a"}].out = 992
	(&quiet{slog.NewTextHandler(&log, nil), k}).sum(kind{slog.LevelWarn, "refused", "a"})
	if text := log.String(); !strings.Contains(text, "lines=992") ||
		!strings.Contains(text, "client=a") || !strings.Contains(text, "of=refused") {
		t.Errorf("the sum is %q", text)
	}
	log.Reset()
	now = now.Add(logEvery)
	for range 1000 {
		l.Warn("refused", "client", "a")
	}
	if n := count("client=a"); n != 1 {
		t.Errorf("%d lines in the next interval; want 1", n)
	}
	now = now.Add(-time.Hour) // a clock that is put back frees nothing
	for range 1000 {
		l.Warn("refused", "client", "a")
	}
	if n := count("client=a"); n != 0 {
		t.Errorf("%d lines after the clock went back", n)
	}
	for i := range 3 * maxKinds {
		l.Warn("refused", "client", string(rune('A'+i)))
	}
	if len(k.of) > maxKinds+1 {
		t.Errorf("%d kinds are kept; want at most %d", len(k.of), maxKinds+1)
	}
}
