// Package panelstest compares figures that are drawn again with the kept ones.
package panelstest

import (
	"bytes"
	"os"
	"path/filepath"
	"testing"
)

// Same fails the test where a program draws another figure than the kept one. Both files have one
// extension.
func Same(t *testing.T, kept string, draw func(path string) error) {
	t.Helper()
	want, err := os.ReadFile(kept)
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(t.TempDir(), filepath.Base(kept))
	if err := draw(path); err != nil {
		t.Fatal(err)
	}
	if got, err := os.ReadFile(path); err != nil || !bytes.Equal(got, want) {
		t.Errorf("%s is not what the kept results say; run make figures (%v)", kept, err)
	}
}
