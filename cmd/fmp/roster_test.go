package main

import (
	"os"
	"path/filepath"
	"testing"
	"time"

	"fmp/onnx/must"
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
