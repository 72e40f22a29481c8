package main

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"
)

func TestStale(t *testing.T) {
	file := filepath.Join(t.TempDir(), "a.go")
	if err := os.WriteFile(file, []byte("one\ntwo\ntwo\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	for old, want := range map[string]string{"one\n": "<nil>", "two\n": "NOT APPLIED: the lines stand in the file 2 times",
		"three\n": "NOT APPLIED: the lines stand in the file 0 times"} {
		if _, err := (mutation{file: file, old: old}).changed(); fmt.Sprint(err) != want {
			t.Errorf("%q: %v; want %s", old, err, want)
		}
	}
}
