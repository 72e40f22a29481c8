package page

import (
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

func get(h http.Handler, path string) *httptest.ResponseRecorder {
	w := httptest.NewRecorder()
	h.ServeHTTP(w, httptest.NewRequest(http.MethodGet, path, nil))
	return w
}

// TestHandler: every page comes with its type and the policy, the pages state the same policy themselves, have no inline script or style,
// and name files that are there; a folder that lacks one is refused.
func TestHandler(t *testing.T) {
	h, err := Handler("")
	if err != nil {
		t.Fatal(err)
	}
	files, err := load("")
	if err != nil {
		t.Fatal(err)
	}
	folder := t.TempDir()
	for name, data := range files {
		w := get(h, "/join/"+name)
		if w.Code != http.StatusOK || w.Header().Get("Content-Type") == "" || w.Header().Get("Content-Security-Policy") != policy ||
			w.Body.String() != string(data) {
			t.Errorf("%s: %d %v", name, w.Code, w.Header())
		}
		if err := os.WriteFile(filepath.Join(folder, name), data, 0o644); err != nil {
			t.Fatal(err)
		}
		if !strings.HasSuffix(name, ".html") {
			continue
		}
		text := string(data)
		// which a page cannot state of itself
		if stated := strings.TrimSuffix(policy, "; frame-ancestors 'none'"); !strings.Contains(text, `content="`+stated+`"`) {
			t.Errorf("%s does not state the policy %s", name, stated)
		}
		if regexp.MustCompile(`<style|style="|<script>| on[a-z]+=`).MatchString(text) {
			t.Errorf("%s has an inline script or style", name)
		}
		for _, m := range regexp.MustCompile(`(?:src|href)="([^"]+)"`).FindAllStringSubmatch(text, -1) {
			if _, ok := files[m[1]]; !ok {
				t.Errorf("%s names %s, which is not there", name, m[1])
			}
		}
	}
	if w := get(h, "/join/"); w.Body.String() != string(files["index.html"]) {
		t.Error("/join/ is not the page of the client")
	}
	if w := get(h, "/join/"+Program); w.Code != http.StatusNotFound {
		t.Errorf("a program that is not there: %d", w.Code)
	}
	if _, err := Handler(folder); err == nil || !strings.Contains(err.Error(), "make page") {
		t.Errorf("a folder without the program: %v", err)
	}
	for _, name := range []string{Program, loader} {
		if err := os.WriteFile(filepath.Join(folder, name), []byte(name), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	if h, err = Handler(folder); err != nil {
		t.Fatal(err)
	}
	if w := get(h, "/join/"+Program); w.Body.String() != Program || w.Header().Get("Content-Encoding") != "" {
		t.Errorf("the program: %v %s", w.Header(), w.Body)
	}
}
