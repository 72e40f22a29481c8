package main

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"fmp/onnx/must"
	"fmp/pipeline/federate/identity"
	"fmp/pipeline/federate/round"
)

// TestRosterBeingWritten: a roster that changes from look to look is not read; one that two looks
// find the same is, once.
func TestRosterBeingWritten(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "roster.txt")
	f := rosterFile{path: path}
	at := time.Unix(1e9, 0)
	write := func(text string) {
		t.Helper()
		at = at.Add(time.Second)
		must.Do(t, os.WriteFile(path, []byte(text), 0o600))
		must.Do(t, os.Chtimes(path, at, at))
	}
	write("a b c")
	f.last = f.stamp()
	f.taken = f.last
	look := func(want bool, when string) {
		t.Helper()
		if got := f.settled(); got != want {
			t.Errorf("%s: settled %v; want %v", when, got, want)
		}
	}
	look(false, "unchanged")
	write("a") // cut off by an editor that writes it anew
	look(false, "one look after a change")
	write("a b c d")
	look(false, "changed again")
	look(true, "the same at two looks")
	look(false, "taken already")
	must.Do(t, os.Remove(path))
	look(false, "away")
	write("a b c d e")
	look(false, "back")
	look(true, "back for two looks")
}

// TestRosterAtStart: a roster that changed between the reading of the round and the first look is taken;
// one with the same clients is not taken again, and one that is refused leaves the last in place.
func TestRosterAtStart(t *testing.T) {
	t.Parallel()
	a, b := must.Get(identity.New("a"))(t).Line()+"\n", must.Get(identity.New("b"))(t).Line()+"\n"
	other := must.Get(identity.New("b"))(t).Line() + "\n"
	for name, c := range map[string]struct {
		loaded string
		found  []string // one after the other
		want   []string // rosters that are taken
	}{
		"unchanged":        {a + b, []string{a + b}, nil},
		"a line less":      {a + b, []string{a}, []string{"[a]"}},
		"a line more":      {a, []string{a + b}, []string{"[a b]"}},
		"another key":      {a + b, []string{a + other}, []string{"[a b]"}},
		"the same again":   {a, []string{"# note\n" + a, a + b}, []string{"[a b]"}},
		"there and back":   {a, []string{a + b, a}, []string{"[a b]", "[a]"}},
		"refused, then on": {a, []string{"none\n", a + b}, []string{"[a b]"}},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) { atStart(t, c.loaded, c.found, c.want) })
		})
	}
}

// atStart is a case of TestRosterAtStart, in time of its own.
func atStart(t *testing.T, loaded string, found, want []string) {
	path := filepath.Join(t.TempDir(), "roster.txt")
	r := &round.Round{Clients: must.Get(identity.ParseRoster([]byte(loaded)))(t)}
	r.Roster = path
	at := time.Unix(1e9, 0)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	got, ended := make(chan string, 9), make(chan struct{})
	for i, text := range found {
		at = at.Add(time.Second)
		must.Do(t, os.WriteFile(path+".new", []byte(text), 0o600))
		must.Do(t, os.Chtimes(path+".new", at, at))
		must.Do(t, os.Rename(path+".new", path))
		if i == 0 {
			go func() {
				defer close(ended)
				watchRoster(ctx, 50*time.Millisecond, r, func(clients *identity.Roster) error {
					got <- fmt.Sprint(clients.Names())
					return nil
				}, slog.New(slog.DiscardHandler))
			}()
		}
		time.Sleep(500 * time.Millisecond)
	}
	cancel()
	<-ended
	close(got)
	var taken []string
	for one := range got {
		taken = append(taken, one)
	}
	if !slices.Equal(taken, want) {
		t.Errorf("taken: %v; want %v", taken, want)
	}
}
