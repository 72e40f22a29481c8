package page

import (
	"encoding/json"
	"maps"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"fmp/models"
	"fmp/onnx/must"
)

func get(h http.Handler, path string) *httptest.ResponseRecorder {
	w := httptest.NewRecorder()
	h.ServeHTTP(w, httptest.NewRequest(http.MethodGet, path, nil))
	return w
}

// TestHandler: every page comes with its type and the policy, the pages state the same policy
// themselves, have no inline script or style, and name files that are there; a folder that lacks
// one is refused.
func TestHandler(t *testing.T) {
	h := must.Get(Handler(""))(t)
	files := must.Get(embedded())(t)
	if d := cmp.Diff(pages, slices.Sorted(maps.Keys(files))); d != "" {
		t.Errorf("the names of the pages: want - and got +\n%s", d)
	}
	folder := t.TempDir()
	for name, data := range files {
		w := get(h, "/join/"+name)
		if w.Code != http.StatusOK || w.Header().Get("Content-Type") == "" ||
			w.Header().Get("Content-Security-Policy") != policy ||
			w.Body.String() != string(data) {
			t.Errorf("%s: %d %v", name, w.Code, w.Header())
		}
		must.Do(t, os.WriteFile(filepath.Join(folder, name), data, 0o644))
		if !strings.HasSuffix(name, ".html") {
			continue
		}
		text := string(data)
		// which a page cannot state of itself
		if stated := strings.TrimSuffix(policy, "; frame-ancestors 'none'"); !strings.Contains(text,
			`content="`+stated+`"`) {
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
	must.Fail(Handler(folder))(t, "make page", "a folder without the program")
	for _, name := range []string{Program, loader, "LICENSE"} {
		must.Do(t, os.WriteFile(filepath.Join(folder, name), []byte(name), 0o644))
	}
	must.Fail(Handler(folder))(t, "make page", "a folder without the licences of what is in it")
	must.Do(t, os.WriteFile(filepath.Join(folder, "THIRD_PARTY.md"), nil, 0o644))
	h = must.Get(Handler(folder))(t)
	if w := get(h, "/join/"+Program); w.Body.String() != Program ||
		w.Header().Get("Content-Encoding") != "" {
		t.Errorf("the program: %v %s", w.Header(), w.Body)
	}
}

// TestWriteFolder: a folder has all files of the pages, the program, the graph and its round, and
// the digests of all; a program that lacks a file leaves nothing.
func TestWriteFolder(t *testing.T) {
	program, out := t.TempDir(), filepath.Join(t.TempDir(), "site")
	if _, _, err := WriteFolder(out, program, []byte("graph"), 7); err == nil ||
		!strings.Contains(err.Error(), "make page") {
		t.Errorf("a program that is not there: %v", err)
	}
	if _, err := os.Stat(out); !os.IsNotExist(err) {
		t.Errorf("a folder without its program: %v", err)
	}
	all := must.Get(embedded())(t)
	all[Program], all[loader] = []byte("program"), []byte("loader")
	all["LICENSE"], all["THIRD_PARTY.md"] = []byte("ours"), []byte("others'")
	for name, data := range all {
		must.Do(t, os.WriteFile(filepath.Join(program, name), data, 0o644))
	}
	const graph = `,"graph":"eef93e1d14482804277fca0172464032d1a4fdbcc338524059fa1e861454ad4d"}`
	for round, want := range map[uint64]string{1<<53 - 1: "9007199254740991", 1 << 53: `"9007199254740992"`,
		1<<64 - 1: `"18446744073709551615"`} {
		_, _, err := WriteFolder(out, program, []byte("graph"), round)
		must.Do(t, err)
		got := must.Get(os.ReadFile(filepath.Join(out, roundFile)))(t)
		if string(got) != `{"round":`+want+graph {
			t.Errorf("round %d: %s", round, got)
		}
	}
	n, size, err := WriteFolder(out, program, []byte("graph"), 7)
	if err != nil || n != len(all)+3 {
		t.Fatalf("%d files, %v; want %d", n, err, len(all)+3)
	}
	all[graphFile] = []byte("graph")
	all[roundFile] = []byte(`{"round":7` + graph)
	sums := must.Get(os.ReadFile(filepath.Join(out, sumsFile)))(t)
	total := len(sums)
	for name, want := range all {
		got, err := os.ReadFile(filepath.Join(out, name))
		if err != nil || string(got) != string(want) {
			t.Errorf("%s: %q, %v; want %q", name, got, err, want)
		}
		if total += len(got); !strings.Contains(string(sums), models.DigestBytes(want)+"  "+name+"\n") {
			t.Errorf("%s lacks the digest of %s", sumsFile, name)
		}
	}
	if size != total {
		t.Errorf("%d bytes; want %d", size, total)
	}
}

// TestFixed: a page's private upload, and an error in its place, come at one time after the start,
// by a clock that the test turns; work that goes on then is ended.
func TestFixed(t *testing.T) {
	out := script(t, "fixed.js", `
let now = 0, timers = [];
globalThis.setTimeout = (f, ms) => { timers.push({ f, at: now + ms }); return timers.at(-1); };
globalThis.clearTimeout = t => { timers = timers.filter(o => o !== t); };
const idle = async () => { for (let i = 0; i < 50; i++) await null; };
async function turn(to) {
  await idle();
  for (;;) {
    const next = timers.filter(t => t.at <= to).sort((a, b) => a.at - b.at)[0];
    if (!next) break;
    now = next.at;
    timers = timers.filter(t => t !== next);
    next.f();
    await idle();
  }
  now = to;
}
const wait = ms => new Promise(r => setTimeout(r, ms));
for (const [name, work] of [['fast', async () => 'made'], ['slow', async () => { await wait(59000); return 'made'; }],
  ['bad', async () => { throw new Error('unread'); }], ['late', () => new Promise((_, reject) => { globalThis.stop = reject; })]]) {
  const start = now;
  let says;
  const say = what => { says = what + ' ' + (now - start); };
  fixed(60, work, () => globalThis.stop(new Error('late'))).then(say, e => say(e.message));
  await turn(start + 59999);
  const early = says;
  await turn(start + 60000);
  console.log(name, early, says);
}
`)
	const want = "fast undefined made 60000\nslow undefined made 60000\nbad undefined unread " +
		"60000\nlate undefined late 60000\n"
	if out != want {
		t.Errorf("%s; want %s", out, want)
	}
}

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
	files := must.Get(embedded())(t)
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
