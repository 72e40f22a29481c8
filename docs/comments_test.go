package docs

import (
	"regexp"
	"strings"
	"testing"
)

// pronoun matches a line of comment in which a pronoun stands for a noun of the field.
var pronoun = regexp.MustCompile(`(?i)^\s*//.*[^{]\b(what|whoever|so many|of whose)\b`)

// TestComments holds comments to nouns, those of tests and of generated messages left out.
func TestComments(t *testing.T) {
	read := 0
	for path, text := range sources(t, ".go") {
		if strings.HasSuffix(path, "_test.go") || strings.HasSuffix(path, ".pb.go") {
			continue
		}
		read++
		for i, line := range strings.Split(text, "\n") {
			if pronoun.MatchString(line) {
				t.Errorf("%s:%d: a noun for the pronoun: %s", path, i+1, strings.TrimSpace(line))
			}
		}
	}
	if read == 0 {
		t.Error("no source was read")
	}
}
