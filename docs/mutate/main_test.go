package main

import (
	"fmt"
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestList applies each mutation: trying one costs a build, and a list that went stale shows long
// after the change that broke it.
func TestList(t *testing.T) {
	t.Chdir(filepath.Join("..", ".."))
	text, err := os.ReadFile("docs/mutate/mutations.txt")
	if err != nil {
		t.Fatal(err)
	}
	all, err := parse(string(text))
	if err != nil {
		t.Fatal(err)
	}
	for _, m := range all {
		changed, err := m.changed()
		if err == nil && strings.HasSuffix(m.file, ".go") {
			_, err = parser.ParseFile(token.NewFileSet(), m.file, changed, parser.SkipObjectResolution)
		}
		if err != nil {
			t.Errorf("%s: %s: %v", m.file, m.old, err)
		}
	}
}

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
