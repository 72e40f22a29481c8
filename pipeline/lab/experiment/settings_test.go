package experiment

import (
	"fmp/pipeline/option"
	"slices"
	"strings"
	"testing"
)

// Every setting has a key of its own, a meaning without gaps, and a default that is allowed, and
// text and check of what is allowed agree.
func TestSettingsAreStated(t *testing.T) {
	c := Default()
	seen := map[string]bool{}
	for _, s := range option.List(&c) {
		if seen[s.Key] || strings.HasSuffix(s.Key, ".") || s.Doc == "" ||
			strings.ContainsAny(s.Doc, "{}") {
			t.Errorf("%s: %q", s.Key, s.Doc)
		}
		seen[s.Key] = true
		if errs := s.Check(); len(errs) > 0 {
			t.Errorf("a default is not allowed: %v", errs)
		}
		for _, name := range s.Choices() {
			if !strings.Contains(s.Allowed(), name) {
				t.Errorf("%s may be %s, and says %s", s.Key, name, s.Allowed())
			}
		}
	}
	if len(seen) < 40 {
		t.Errorf("%d settings", len(seen))
	}
}

func TestAllowed(t *testing.T) {
	c := Default()
	for _, s := range option.List(&c) {
		want, ok := map[string]string{
			"seeds": "1 to 1000", "erm.l2": "0 or 1e-06 to 1000000", "engine.name": "auto, ort or pure",
			"extractor.scale": "0-1 or 0-255",
			"predictor.model": "default, untrained or a file", "seed": "",
		}[s.Key]
		if ok && s.Allowed() != want {
			t.Errorf("%s: %q; want %q", s.Key, s.Allowed(), want)
		}
		if s.Key == "extractor.scale" && !slices.Equal(s.Choices(), []string{"0-1", "0-255"}) {
			t.Errorf("%v", s.Choices())
		}
	}
}
