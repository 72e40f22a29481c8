package main

import (
	"fmt"
	"path/filepath"
	"sync"
	"testing"

	"fmp/onnx/must"
	"fmp/pipeline/federate/identity"
)

// TestKeysAtOnce: of processes that make keys at once each finds its clients in the roster.
func TestKeysAtOnce(t *testing.T) {
	dir := t.TempDir()
	roster := filepath.Join(dir, "rosters", "roster.txt")
	var all sync.WaitGroup
	const n = 8
	for i := range n {
		all.Go(func() {
			if code, _, stderr := runFMP(t, "keys", "--dir", filepath.Join(dir, "keys"), "--roster", roster,
				fmt.Sprint("ward-", i)); code != exitOK {
				t.Errorf("exit code %d: %s", code, stderr)
			}
		})
	}
	all.Wait()
	if got := must.Get(identity.LoadRoster(roster))(t); got.Len() != n {
		t.Errorf("the roster has %d clients; want %d", got.Len(), n)
	}
}
