package main

import (
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"testing"

	"fmp/onnx/must"
	"fmp/pipeline/federate/identity"
)

// TestKeysTwice: what cannot be made whole leaves nothing in the way of the same command, and a
// roster without clients gets some.
func TestKeysTwice(t *testing.T) {
	path := newFolder(t)
	must.Do(t, os.WriteFile(path("b.key"), []byte("x"), 0o600))
	must.Do(t, os.WriteFile(path("roster.txt"), []byte("# nobody yet\n"), 0o600))
	args := []string{"keys", "a", "b", "--dir", path(""), "--roster", path("roster.txt")}
	refused(t, exitUsage, "b.key is there already", args...)
	must.Do(t, os.Remove(path("b.key")))
	ran(t, args...)
	if got := must.Get(identity.LoadRoster(path("roster.txt")))(t); got.Len() != 2 {
		t.Errorf("the roster has %d clients; want 2", got.Len())
	}
}

// TestRosterOverKey: a roster in the place of one of the new keys is refused before any is saved.
func TestRosterOverKey(t *testing.T) {
	dir := t.TempDir()
	must.Do(t, os.Mkdir(filepath.Join(dir, "keys"), 0o700))
	must.Do(t, os.Symlink("keys", filepath.Join(dir, "link")))
	for _, c := range []struct{ keys, roster string }{{"keys", "keys/b.key"}, {"keys", "link/b.key"},
		{"link", "keys/b.key"}, {"new", "new/b.key"}, {"new/keys", "new/keys/b.key"}} {
		refused(t, exitUsage, "is the key file of b too", "keys", "a", "b", "--dir", filepath.Join(dir, c.keys),
			"--roster", filepath.Join(dir, c.roster))
		if made, err := filepath.Glob(filepath.Join(dir, c.keys, "*")); err != nil || len(made) > 0 {
			t.Errorf("%v: %v is made, %v", c, made, err)
		}
	}
}

// TestKeysAtOnce: of processes that make keys at once each finds its clients in the roster.
func TestKeysAtOnce(t *testing.T) {
	dir := t.TempDir()
	roster := filepath.Join(dir, "rosters", "roster.txt")
	var all sync.WaitGroup
	const n = 8
	for i := range n {
		all.Go(func() {
			refused(t, exitOK, "", "keys", "--dir", filepath.Join(dir, "keys"), "--roster", roster,
				fmt.Sprint("ward-", i))
		})
	}
	all.Wait()
	if got := must.Get(identity.LoadRoster(roster))(t); got.Len() != n {
		t.Errorf("the roster has %d clients; want %d", got.Len(), n)
	}
}

// TestServerKeyOnce: servers that start first at once have one key.
func TestServerKeyOnce(t *testing.T) {
	for range 5 {
		path := filepath.Join(t.TempDir(), "server.key")
		var keys [8]*identity.Key
		var faults [len(keys)]error
		var wg sync.WaitGroup
		for i := range keys {
			wg.Go(func() { keys[i], faults[i] = serverKey(path) })
		}
		wg.Wait()
		for i, err := range faults {
			must.Do(t, err)
			if keys[i].PublicText() != keys[0].PublicText() {
				t.Error("two keys")
			}
		}
	}
}
