package service

import (
	"fmt"
	"math/rand/v2"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"gonum.org/v1/gonum/stat"

	"fmp/onnx/must"
	"fmp/pipeline/federate/wire"
)

// keep copies a server's state to a folder.
func (f *fixture) keep(to string) {
	f.t.Helper()
	f.stop()
	must.Do(f.t, os.RemoveAll(to))
	must.Do(f.t, os.CopyFS(to, os.DirFS(filepath.Join(f.dir, "state"))))
	f.start()
}

// putBack starts a server with a copy of its state, as after a power cut.
func (f *fixture) putBack(from string) {
	f.t.Helper()
	f.stop()
	state := filepath.Join(f.dir, "state")
	must.Do(f.t, os.RemoveAll(state))
	must.Do(f.t, os.CopyFS(state, os.DirFS(from)))
	f.start()
}

// due pools a round where that is due, as Run does, and returns the error.
func (p *pair) due() error {
	if p.leader.srv.due() > 0 {
		return nil
	}
	return p.leader.srv.Pool(p.leader.t.Context())
}

// schedule is a round of two servers, of which one loses the last seconds of its state again and
// again, and what came of it.
type schedule struct {
	*pair
	t      *testing.T
	random *rand.Rand
	lossy  *fixture
	copied string
	shares map[string][2][]byte // leader's and helper's, as clients keep them
	given  []string             // by the helper since its own state was put back
	did    []string
}

// comes sends a client's shares, as fmp-edge join does: to the leader where the helper took its own.
func (s *schedule) comes(client string) {
	s.did = append(s.did, client)
	if s.shares[client][0] == nil {
		l, h := s.pair.shares(client, nil)
		s.shares[client] = [2][]byte{l, h}
	}
	if status, _ := s.helper.put(client, s.shares[client][1]); status < 300 {
		s.leader.put(client, s.shares[client][0])
	}
}

// step does one thing.
func (s *schedule) step() {
	servers := []*fixture{s.leader, s.helper}
	switch n := s.random.IntN(6); n {
	case 0:
		s.did = append(s.did, "restart")
		servers[s.random.IntN(2)].restart()
	case 1:
		s.did = append(s.did, "keep")
		s.lossy.keep(s.copied)
	case 2:
		s.did = append(s.did, "put back")
		if s.lossy.putBack(s.copied); s.lossy == s.helper {
			s.given = nil
		}
	case 3:
		s.did = append(s.did, "deadline")
		s.leader.pass(time.Hour)
		s.helper.pass(time.Hour)
	case 4:
		s.comes([]string{"a", "b", "c"}[s.random.IntN(3)])
	case 5:
		s.did = append(s.did, fmt.Sprintf("pool: %v", s.due()))
	}
	if was, err := s.helper.srv.given(s.t.Context()); err == nil {
		s.given = append(s.given, fmt.Sprint(was))
	}
}

// TestNewcomers: after the deadline neither server takes a share that it had not before, and the leader
// none that was not proven then.
func TestNewcomers(t *testing.T) {
	p := newPair(t)
	l, h := p.shares("a", nil)
	p.helper.wants("helper", http.StatusCreated, "")(p.helper.put("a", h))
	p.leader.pass(3 * time.Hour)
	p.helper.pass(3 * time.Hour)
	p.leader.wants("not proven", 410, wire.RoundClosed, "deadline")(p.leader.put("a", l))
	l, h = p.shares("b", nil)
	p.helper.wants("helper, late", 410, wire.RoundClosed, "deadline")(p.helper.put("b", h))
	p.leader.wants("leader, late", 410, wire.RoundClosed, "deadline")(p.leader.put("b", l))
}

// TestLostSeconds: whichever server loses the last seconds of its state whenever, the round ends in
// one sum once the clients came again, after the deadline too, and the helper gives one sum, with the
// same noise. Of one that the leader makes again its own noise alone is new. A helper whose own state
// is put back, which a power cut does not do to it, may give another: the leader's version holds still.
func TestLostSeconds(t *testing.T) {
	seeds := uint64(16)
	if testing.Short() {
		seeds = 8
	}
	var squares []float64 // of the noise of each sum, 2 expected
	for seed := range seeds {
		p := newPairOf(t, strings.Replace(twoServers, "quorum: 3", fmt.Sprint("quorum: ", 2+seed/2%2), 1))
		s := &schedule{pair: p, t: t, random: rand.New(rand.NewPCG(seed, 0)), lossy: p.leader,
			copied: filepath.Join(t.TempDir(), "copy"), shares: map[string][2][]byte{}}
		if seed%2 == 1 {
			s.lossy = p.helper
		}
		s.lossy.keep(s.copied)
		s.comes("a")
		s.comes("b")
		for range 10 {
			s.step()
		}
		if s.lossy.putBack(s.copied); seed/4%2 == 1 {
			s.leader.pass(3 * time.Hour)
			s.helper.pass(3 * time.Hour)
		}
		for i := 0; i < 6 && len(p.leader.srv.Status().Versions) == 0; i++ {
			s.comes("a")
			s.comes("b")
			if s.leader.srv.quorum == 3 || slices.Contains(s.did, "c") {
				s.comes("c")
			}
			s.did = append(s.did, fmt.Sprintf("pool: %v", s.due()))
		}
		var members []string
		for _, m := range p.leader.srv.Status().Members {
			members = append(members, m.Client)
		}
		if len(members) < 2 || len(p.leader.opened) == 0 {
			t.Errorf("seed %d: in %q after %q: %+v", seed, members, s.did, p.leader.srv.Status().Versions)
			continue
		}
		for _, sum := range p.leader.opened {
			squares = append(squares, p.noise(t, sum, members...))
		}
		if len(slices.Compact(s.given)) > 1 {
			t.Errorf("seed %d: sums of more than one kind after %q", seed, s.did)
		}
		p.leader.stop()
		p.helper.stop()
	}
	// The mean square of a hundred numbers deviates by .28: one in some thousand lies below 1.2. Of
	// all sums it deviates by .1 at most. That of one server is 1, of other clients far above 4.
	if mean := stat.Mean(squares, nil); mean < 1.5 || mean > 2.5 || slices.Max(squares) > 4 ||
		slices.Min(squares) < .8 {
		t.Errorf("mean squares of the noise %.2f in one server's variance; want 2", squares)
	}
}
