package docs

import (
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// kinds are the kinds of page, as the table of README.md lists them.
var kinds = []string{"tutorial", "how-to", "reference", "explanation"}

// pageKinds returns the kinds of each page that a table with a row a kind links to.
func pageKinds(table string) map[string][]string {
	out := map[string][]string{}
	link := regexp.MustCompile(`\]\(([^)#\s]+)\)`)
	for line := range strings.Lines(table) {
		kind, rest, ok := strings.Cut(strings.TrimPrefix(line, "| "), " | ")
		if !ok || !slices.Contains(kinds, kind) {
			continue
		}
		for _, m := range link.FindAllStringSubmatch(rest, -1) {
			out[m[1]] = append(out[m[1]], kind)
		}
	}
	return out
}

// TestPageKinds holds every page to exactly one kind.
func TestPageKinds(t *testing.T) {
	t.Parallel()
	readme, err := os.ReadFile("../README.md")
	if err != nil {
		t.Fatal(err)
	}
	of := pageKinds(string(readme))
	pages, err := filepath.Glob("*.md")
	if err != nil || len(pages) == 0 {
		t.Fatalf("%d pages: %v", len(pages), err)
	}
	for _, p := range pages {
		if got := of["docs/"+p]; len(got) != 1 {
			t.Errorf("docs/%s is in the rows %q of README.md; want one of %q", p, got, kinds)
		}
	}
	found := map[string]bool{}
	for page, ks := range of {
		if len(ks) > 1 {
			t.Errorf("%s is in the rows %q of README.md; want one", page, ks)
		}
		found[ks[0]] = true
	}
	for _, kind := range kinds {
		if !found[kind] {
			t.Errorf("no page is of kind %q", kind)
		}
	}
}
