package page

import (
	"encoding/json"
	"regexp"
	"slices"
	"strings"
	"testing"

	"fmp/onnx/must"
)

// languages are those of the pages.
var languages = []string{"en", "de", "fr", "es", "zh"}

var placeholder = regexp.MustCompile(`\{\w+\}`)

// placeholders are the {values} of a text, in order.
func placeholders(text string) []string {
	out := placeholder.FindAllString(text, -1)
	slices.Sort(out)
	return out
}

// TestWords: every word that a page asks for is in every language, none is there that no page asks
// for, all languages have the same placeholders, plurals have the forms of their language.
func TestWords(t *testing.T) {
	files := must.Get(load(""))(t)
	catalogues := map[string]map[string]map[string]string{} // language, key, form
	for _, l := range languages {
		var words map[string]json.RawMessage
		if err := json.Unmarshal(files["words."+l+".json"], &words); err != nil {
			t.Fatalf("%s: %v", l, err)
		}
		catalogues[l] = map[string]map[string]string{}
		for key, raw := range words {
			forms := map[string]string{}
			if raw[0] == '"' {
				var text string
				must.Do(t, json.Unmarshal(raw, &text))
				forms[""] = text
			} else {
				must.Do(t, json.Unmarshal(raw, &forms))
			}
			catalogues[l][key] = forms
		}
	}
	asked := map[string]bool{}
	call := regexp.MustCompile(`\bt\(`)
	literal, attribute := regexp.MustCompile(`'(\w+)'`), regexp.MustCompile(`data-(?:t|label)="(\w+)"`)
	for name, data := range files {
		switch {
		case strings.HasSuffix(name, ".js") && name != "vector.js":
			for _, at := range call.FindAllIndex(data, -1) {
				first := string(data[at[1]:])
				for _, key := range literal.FindAllStringSubmatch(first[:strings.IndexAny(first, ",){")], -1) {
					if key[1] != "client" { // of a round's unit
						asked[key[1]] = true
					}
				}
			}
		case strings.HasSuffix(name, ".html"):
			for _, m := range attribute.FindAllStringSubmatch(string(data), -1) {
				asked[m[1]] = true
			}
		}
	}
	en := catalogues["en"]
	for key := range asked {
		if en[key] == nil {
			t.Errorf("a page asks for %q, which no catalogue has", key)
		}
	}
	for _, l := range languages {
		for key := range catalogues[l] {
			if !asked[key] {
				t.Errorf("%s: no page asks for %q", l, key)
			}
		}
		for key, forms := range en {
			theirs := catalogues[l][key]
			if theirs == nil {
				t.Errorf("%s lacks %q", l, key)
				continue
			}
			_, plain := forms[""]
			if _, p := theirs[""]; p != plain || !plain && theirs["other"] == "" ||
				!plain && l != "zh" && theirs["one"] == "" {
				t.Errorf("%s: %q has the forms %v; English %v", l, key, theirs, forms)
			}
			want := placeholders(forms[""] + forms["other"])
			for form, text := range theirs {
				if got := placeholders(text); text == "" || !slices.Equal(got, want) {
					t.Errorf("%s: %q (%s) has the placeholders %v; English %v", l, key, form, got, want)
				}
			}
		}
	}
}
