package main

import (
	"bytes"
	"os"
	"path/filepath"
	"testing"
)

// TestNoticesAreCurrent: THIRD_PARTY.md names what the programs are made of today, each with a licence that is known.
func TestNoticesAreCurrent(t *testing.T) {
	root := filepath.Join("..", "..")
	want, err := Notices(root)
	if err != nil {
		t.Fatal(err)
	}
	got, err := os.ReadFile(filepath.Join(root, "THIRD_PARTY.md"))
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(got, want) {
		t.Error("THIRD_PARTY.md is not what the programs are made of: go run ./docs/notices THIRD_PARTY.md, or make docs")
	}
	for _, line := range bytes.Split(want, []byte("\n")) {
		if cells := bytes.Split(line, []byte("|")); len(cells) == 6 && len(bytes.TrimSpace(cells[3])) == 0 {
			t.Errorf("no known licence: %s", line)
		}
	}
}
