package main

import (
	"bytes"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"unicode/utf8"

	"fmp/onnx/must"
)

// ours are the modules of the programs; listing them takes seconds.
var ours = sync.OnceValues(func() (map[string]*module, error) { return modules(filepath.Join("..", "..")) })

// TestNoticesAreCurrent: THIRD_PARTY.md names what the programs are made of today, each with a
// licence that is known.
func TestNoticesAreCurrent(t *testing.T) {
	root := filepath.Join("..", "..")
	mods := must.Get(ours())(t)
	want := must.Get(noticesOf(mods))(t)
	got := must.Get(os.ReadFile(filepath.Join(root, "THIRD_PARTY.md")))(t)
	if !bytes.Equal(got, want) {
		t.Error("THIRD_PARTY.md is not what the programs are made of: go run ./docs/notices " +
			"THIRD_PARTY.md, or make docs")
	}
	if !utf8.Valid(want) || !bytes.Contains(want, []byte("copyright © <year> The FreeType")) {
		t.Error("the notices are not all in UTF-8")
	}
	for _, line := range bytes.Split(want, []byte("\n")) {
		if cells := bytes.Split(line, []byte("|")); len(cells) == 6 &&
			len(bytes.TrimSpace(cells[3])) == 0 {
			t.Errorf("no known licence: %s", line)
		}
	}
}
