package docs

import (
	"regexp"
	"strings"
	"testing"
)

// TestNamedTests: each test that a page names, as the one that holds a claim, is there. The log of
// changes and notes name those of their day.
func TestNamedTests(t *testing.T) {
	declared, named := map[string]bool{}, map[string][]string{}
	declaration := regexp.MustCompile(`(?m)^func ((?:Test|Fuzz|Benchmark)[A-Z]\w*)\(`)
	name := regexp.MustCompile("`((?:Test|Fuzz|Benchmark)[A-Z]\\w*)`")
	for path, text := range sources(t, "_test.go", ".md") {
		for _, m := range declaration.FindAllStringSubmatch(text, -1) {
			declared[m[1]] = true
		}
		if strings.HasSuffix(path, ".md") {
			for _, m := range name.FindAllStringSubmatch(text, -1) {
				named[m[1]] = append(named[m[1]], path)
			}
		}
	}
	for n, pages := range named {
		if !declared[n] {
			t.Errorf("%v: %s is no test", pages, n)
		}
	}
	if len(named) < 50 {
		t.Errorf("%d tests are named", len(named))
	}
}
