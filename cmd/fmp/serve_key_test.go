package main

import (
	"path/filepath"
	"sync"
	"testing"

	"fmp/onnx/must"
	"fmp/pipeline/federate/identity"
)

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
