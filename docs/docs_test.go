// Package docs holds the pages; its tests keep them true.
package docs

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// TestLibraryShowsTheExamples: the Go code of library.md is that of the examples, which are tests themselves.
func TestLibraryShowsTheExamples(t *testing.T) {
	page, err := os.ReadFile("library.md")
	if err != nil {
		t.Fatal(err)
	}
	blocks := regexp.MustCompile("(?s)```go\n(.*?)```").FindAllSubmatch(page, -1)
	sources := []string{"../pipeline/example_test.go", "../onnx/train/example_test.go"}
	if len(blocks) != len(sources) {
		t.Fatalf("library.md has %d blocks of Go, want %d", len(blocks), len(sources))
	}
	for i, path := range sources {
		src, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		if shown := string(blocks[i][1]); !strings.Contains(strings.ReplaceAll(string(src), "\t", "    "), shown) {
			t.Errorf("block %d of library.md is not in %s (its tabs as four spaces); copy the function anew", i+1, path)
		}
	}
}

// TestLinks: what the pages point to inside the repository is there.
func TestLinks(t *testing.T) {
	var pages []string
	for _, pattern := range []string{"*.md", "*/*.md", "../README.md"} {
		found, err := filepath.Glob(pattern)
		if err != nil {
			t.Fatal(err)
		}
		pages = append(pages, found...)
	}
	link := regexp.MustCompile(`\]\(([^)\s]+)\)`)
	checked := 0
	for _, p := range pages {
		text, err := os.ReadFile(p)
		if err != nil {
			t.Fatal(err)
		}
		for _, m := range link.FindAllStringSubmatch(string(text), -1) {
			to, _, _ := strings.Cut(m[1], "#")
			if to == "" || strings.Contains(to, "://") || strings.HasPrefix(to, "mailto:") {
				continue
			}
			checked++
			if _, err := os.Stat(filepath.Join(filepath.Dir(p), filepath.FromSlash(to))); err != nil {
				t.Errorf("%s points to %s: %v", p, m[1], err)
			}
		}
	}
	if checked == 0 {
		t.Error("no link was found; the pattern must be wrong")
	}
}
