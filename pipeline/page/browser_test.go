//go:build cgo

package page

import (
	"bufio"
	"bytes"
	"compress/gzip"
	"encoding/base64"
	"encoding/json"
	"flag"
	"fmt"
	"image"
	"image/color"
	"image/jpeg"
	"image/png"
	"math"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"fmp/assets/assetstest"
	"fmp/models"
	"fmp/models/rng"
	"fmp/onnx/must"
	"fmp/pipeline/federate"
	"fmp/pipeline/federate/wire"
	"fmp/pipeline/internal/browser"
	"fmp/pipeline/privacy"
)

var shotsFlag = flag.String("shots", "",
	"folder to which TestFromPhotographsToPrediction saves screenshots of the pages")

// place is a folder with programs, photographs and a round.
type place struct {
	t   *testing.T
	dir string
}

func (p *place) path(parts ...string) string {
	return filepath.Join(append([]string{p.dir}, parts...)...)
}

func (p *place) write(name string, data []byte) {
	p.t.Helper()
	must.Do(p.t, os.MkdirAll(filepath.Dir(p.path(name)), 0o755))
	must.Do(p.t, os.WriteFile(p.path(name), data, 0o644))
}

func (p *place) read(name string) []byte {
	p.t.Helper()
	return must.Get(os.ReadFile(p.path(name)))(p.t)
}

// environment is that of programs: settings of whoever runs the test stay out of it.
func (p *place) environment() []string {
	of := slices.DeleteFunc(os.Environ(), func(v string) bool { return strings.HasPrefix(v, "FMP_") })
	return append(of, "XDG_CONFIG_HOME="+p.path("config"))
}

// run runs a program of the place and returns what it prints.
func (p *place) run(program string, args ...string) []byte {
	p.t.Helper()
	cmd := exec.Command(p.path(program), args...)
	cmd.Dir, cmd.Env = p.dir, p.environment()
	var log bytes.Buffer
	cmd.Stderr = &log
	out, err := cmd.Output()
	if err != nil {
		p.t.Fatalf("%s %v: %v\n%s", program, args, err, log.String())
	}
	return out
}

// photograph draws a stroke of a class with some noise.
func photograph(class int, r interface{ IntN(int) int }) image.Image {
	im := image.NewGray(image.Rect(0, 0, 28, 28))
	for k := range 60 {
		im.SetGray(4+k%20, (4+2*class+k/20+r.IntN(2))%28, color.Gray{Y: uint8(200 + r.IntN(55))})
	}
	return im
}

// newPlace builds the programs and the page's folder, and draws two clients' photographs: PNG, and
// JPEG in other sizes.
func newPlace(t *testing.T) *place {
	p := &place{t: t, dir: t.TempDir()}
	for _, name := range []string{"fmp", "fmp-edge", "fmp-page.wasm"} {
		program, web := strings.CutSuffix(name, ".wasm")
		cmd := exec.Command("go", "build", "-buildvcs=false", "-o", p.path(name), "fmp/cmd/"+program)
		if web {
			cmd.Env = append(os.Environ(), "CGO_ENABLED=0", "GOOS=js", "GOARCH=wasm")
		}
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Fatalf("building %s: %v\n%s", name, err, out)
		}
	}
	var packed bytes.Buffer
	z := gzip.NewWriter(&packed)
	if _, err := z.Write(p.read("fmp-page.wasm")); err != nil || z.Close() != nil {
		t.Fatal(err)
	}
	p.write("page/"+Program, packed.Bytes())
	start := must.Get(os.ReadFile(filepath.Join(goroot(t), "lib/wasm", loader)))(t)
	p.write("page/"+loader, start)
	for _, name := range []string{"LICENSE", "THIRD_PARTY.md"} {
		p.write("page/"+name, nil)
	}
	pages := must.Get(embedded())(t)
	for name, data := range pages {
		p.write("page/"+name, data)
	}
	for _, client := range []string{"edge", "page"} {
		r := rng.New(5, client)
		for class := range 10 {
			for i := range 2 + class%5 {
				var b bytes.Buffer
				name := fmt.Sprintf("photos/%s/%d/%d.png", client, class, i)
				if i == 1 {
					name = fmt.Sprintf("photos/%s/%d/b %d.JPG", client, class, i)
					must.Do(t, jpeg.Encode(&b, photograph(class, r), nil))
				} else {
					must.Do(t, png.Encode(&b, photograph(class, r)))
				}
				p.write(name, b.Bytes())
			}
		}
	}
	p.write("photos/page/3/notes.txt", []byte("no image"))
	p.write("client.onnx", assets(t))
	return p
}

func assets(t *testing.T) []byte {
	return must.Get(os.ReadFile(assetstest.File(t, "digits", models.KindClient)))(t)
}

// serve starts a server of the round and returns its address.
func (p *place) serve(args ...string) string {
	p.t.Helper()
	cmd := exec.Command(p.path("fmp"), args...)
	cmd.Dir, cmd.Env = p.dir, p.environment()
	var log bytes.Buffer
	cmd.Stderr = &log
	out := must.Get(cmd.StdoutPipe())(p.t)
	must.Do(p.t, cmd.Start())
	p.t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
		if p.t.Failed() {
			p.t.Logf("fmp %v: %s", args, log.String())
		}
	})
	line, err := bufio.NewReader(out).ReadString('\n')
	if err != nil {
		p.t.Fatalf("fmp %v: %v", args, err)
	}
	return strings.TrimSpace(line[strings.LastIndex(line, "http"):])
}

// kept returns the last value that a page has kept in the browser under a name that ends so.
func kept(b *browser.Browser, end string) []byte {
	b.T.Helper()
	var text string
	b.Eval(fmt.Sprintf(`new Promise((ok, no) => {
		const open = indexedDB.open('fmp', 1);
		open.onerror = () => no(open.error);
		open.onsuccess = () => {
			const store = open.result.transaction('kept').objectStore('kept'), keys = store.getAllKeys();
			keys.onsuccess = () => {
				const key = keys.result.findLast(k => k.endsWith(%q));
				if (!key) { ok(''); return; }
				const get = store.get(key);
				get.onsuccess = () => {
					open.result.close();
					ok(btoa(typeof get.result === 'string' ? get.result : Array.from(get.result, c => String.fromCharCode(c)).join('')));
				};
			};
		};
	})`, end), &text)
	data := must.Get(base64.StdEncoding.DecodeString(text))(b.T)
	return data
}

// look holds a page to its layout and to axe at every width, in light and dark, and saves
// screenshots where they are wanted.
func look(b *browser.Browser, stage string) {
	b.T.Helper()
	for _, width := range []int{1920, 1280, 768, 390} {
		for _, dark := range []bool{false, true} {
			b.Resize(width, dark)
			var faults []string
			b.Eval(`document.querySelectorAll('.into input').forEach(i => { i.style.left = 0; })`, nil)
			b.Eval(browser.LayoutFaults, &faults)
			faults = append(faults, b.Axe()...)
			for _, f := range faults {
				b.T.Errorf("%s, %d wide, dark %v: %s", stage, width, dark, f)
			}
			if *shotsFlag != "" && (width == 1280 || width == 390 || width == 1920 && !dark) {
				must.Do(b.T, os.MkdirAll(*shotsFlag, 0o755))
				b.Shoot(filepath.Join(*shotsFlag,
					fmt.Sprintf("%s-%d-%v", stage, width,
						map[bool]string{false: "light", true: "dark"}[dark])))
			}
		}
	}
	b.Resize(1280, false)
}

// quiet fails where a page has complained, but for paths that it asks for in vain.
func quiet(b *browser.Browser, vain ...string) {
	b.T.Helper()
	for _, e := range b.Events {
		switch e.Method {
		case "Runtime.exceptionThrown", "Log.entryAdded", "Network.loadingFailed":
			expected := strings.Contains(string(e.Params), "net::ERR_ABORTED")
			for _, v := range vain {
				expected = expected || strings.Contains(string(e.Params), v)
			}
			if !expected {
				b.T.Errorf("%s: %s", e.Method, e.Params)
			}
		}
	}
}

func click(b *browser.Browser, selector string) {
	b.T.Helper()
	b.Until(fmt.Sprintf("document.querySelector(%q)", selector))
	b.Eval(fmt.Sprintf("document.querySelector(%q).click()", selector), nil)
}

// named gives the page its name, by the form, and returns the key's line for the roster.
func named(b *browser.Browser, name string) (line string) {
	b.T.Helper()
	b.Until("document.querySelector('#client') && !document.querySelector('#step-name').inert")
	b.Eval(fmt.Sprintf("document.querySelector('#client').value = %q", name), nil)
	click(b, "#name button[type=submit]")
	b.Until("document.querySelector('#line')")
	b.Eval("document.querySelector('#line').textContent", &line)
	return line
}

// computed lets the page make its upload, and returns the digest that it shows.
func computed(b *browser.Browser) (digest string) {
	b.T.Helper()
	click(b, "#compute")
	b.Until("document.querySelector('#digest') || document.querySelector('#leaves .bad')")
	b.Eval("document.querySelector('#digest')?.textContent ?? "+
		"document.querySelector('#leaves').innerText", &digest)
	return digest
}

// same fails unless an upload of a page has the bytes of that of fmp-edge for the same photographs.
func (p *place) same(got []byte, args ...string) {
	p.t.Helper()
	command := []string{"compress", "--model", "client.onnx", "--client", "page", "-o",
		"want.upload", "photos/page"}
	p.run("fmp-edge", append(command, args...)...)
	if want := p.read("want.upload"); !bytes.Equal(got, want) {
		p.t.Errorf("the page's upload has %d bytes, sha256 %s; that of fmp-edge %d, %s", len(got),
			models.DigestBytes(got), len(want), models.DigestBytes(want))
	}
}

func goroot(t *testing.T) string {
	t.Helper()
	return strings.TrimSpace(string(must.Get(exec.Command("go", "env", "GOROOT").Output())(t)))
}

// predicted lets the page classify photographs and holds its answers to those of fmp-edge.
func (p *place) predicted(b *browser.Browser, classifier string) {
	p.t.Helper()
	var paths []string
	for class := range 3 {
		paths = append(paths, p.path("photos", "edge", fmt.Sprint(class), "0.png"))
	}
	b.Until("document.querySelector('#files')")
	b.Choose("#files", paths...)
	b.Until(fmt.Sprintf("document.querySelectorAll('.answer .verdict, .answer .bad').length === %d", len(paths)))
	var got []struct {
		Name          string    `json:"name"`
		Verdict       string    `json:"verdict"`
		Probabilities []float64 `json:"probabilities"`
	}
	b.Eval(`[...document.querySelectorAll('.answer')].reverse().map(a => ({name: a.name, verdict: a.querySelector('.verdict')?.textContent,
		probabilities: [...a.prediction.probabilities]}))`, &got)
	for i, path := range paths {
		var want struct {
			Predictions []struct {
				Probabilities []float64 `json:"probabilities"`
				Probability   float64   `json:"probability"`
			} `json:"predictions"`
		}
		must.Do(p.t, json.Unmarshal(
			p.run("fmp-edge", "predict", "--model", classifier, "--json", path),
			&want))
		w := want.Predictions[0]
		for k, v := range w.Probabilities {
			if i >= len(got) || math.Abs(got[i].Probabilities[k]-v) > 1e-5 {
				p.t.Fatalf("%s: the page says %v; fmp-edge %v", path, got, w.Probabilities)
			}
		}
		if left := w.Probability < .9; strings.HasPrefix(got[i].Verdict, "Left to people") != left {
			p.t.Errorf("%s: verdict %q at probability %v", path, got[i].Verdict, w.Probability)
		}
	}
}

// TestFromPhotographsToPrediction: a browser takes part in a round of fmp serve, from photographs
// to a verified receipt and to predictions of the round's classifier; the same pages from any web
// server save the same upload as a file. Uploads equal those of fmp-edge byte for byte. Look at the
// pages with FMP_AXE=axe.min.js go test ./pipeline/page -run TestFromPhotographsToPrediction -shots
// FOLDER.
func TestFromPhotographsToPrediction(t *testing.T) {
	if testing.Short() {
		t.Skip("builds three programs and starts a browser")
	}
	b := browser.New(t)
	p := newPlace(t)
	t.Run("online", func(t *testing.T) { b.T, p.t = t, t; online(b, p) })
	t.Run("private", func(t *testing.T) { b.T, p.t = t, t; private(b, p) })
	t.Run("offline", func(t *testing.T) { b.T, p.t = t, t; offline(b, p) })
	t.Run("folder", func(t *testing.T) { b.T, p.t = t, t; folder(b, p) })
	t.Run("languages", func(t *testing.T) { b.T, p.t = t, t; speaking(b, p) })
	t.Run("listen", func(t *testing.T) { b.T, p.t = t, t; listening(b, p) })
}

func online(b *browser.Browser, p *place) {
	p.run("fmp", "keys", "--dir", "keys", "--roster", "roster.txt", "edge", "other")
	p.write("round.yaml", []byte("round: 7\ntitle: Pages that can be believed\nclient_graph: "+
		"client.onnx\nroster: roster.txt\nquorum: 2\ndeadline: 2090-01-01T00:00:00Z\n"))
	address := p.serve("serve", "--round", "round.yaml", "--listen", "127.0.0.1:0", "--page", "page")
	b.Open(address+"/join/", 1280, false)
	b.Until("document.querySelector('#client')")
	look(b, "join-1-round")
	var vectors bool // Chromium has the instructions, and the page's policy lets them compile
	b.Eval(`new Promise(ok => {
		const worker = new Worker('worker.js');
		worker.onmessage = e => ok(JSON.parse(e.data.out.json).vectors);
		worker.postMessage({id: 1, method: 'version'});
	})`, &vectors)
	if !vectors {
		b.T.Error("the page computes without vector kernels")
	}
	line := named(b, "page")
	roster := append(p.read("roster.txt"), line+"\n"...)
	p.write("roster.txt", roster)
	// Loose photographs are sorted by clicking; then the folder takes their place.
	b.Until("document.querySelector('#files')")
	b.Choose("#files", p.path("photos", "page", "0", "0.png"), p.path("photos", "page", "1", "0.png"),
		p.path("photos", "page", "1", "b 1.JPG"))
	b.Until("document.querySelectorAll('.tile').length === 3")
	look(b, "join-2-loose")
	click(b, ".into input[value='1']")
	click(b, ".tile:last-child")
	b.Until("document.querySelectorAll('.tile').length === 2 && " +
		"document.querySelectorAll('.class').length === 1")
	click(b, ".class button")
	click(b, ".sorter > button")
	b.Until("document.querySelectorAll('.tile, .class').length === 0")
	b.Choose("#folder", p.path("photos", "page"))
	b.Until("document.querySelector('#counted')?.textContent.includes('in 10 classes') && " +
		"document.querySelector('#counted').textContent.includes('notes.txt')")
	digest := computed(b)
	upload := kept(b, " page")
	if models.DigestBytes(upload) != digest {
		b.T.Fatalf("the page shows %s and keeps an upload of %d bytes", digest, len(upload))
	}
	d := round(b.T, address)
	p.same(upload, "--round", "7", "--precision", d.Precisions[0])
	look(b, "join-3-leaves")
	sent(b)
	r := &wire.Receipt{}
	if err := json.Unmarshal(kept(b, "receipt"), r); err != nil || r.Upload != digest ||
		r.Verify(d.ServerKey) != nil {
		b.T.Errorf("the page keeps the receipt %+v (%v); want that of %s", r, err, digest)
	}
	look(b, "join-4-receipt")
	quiet(b, "403", "404")
	// After a reload the page knows its key, its upload and its receipt.
	b.Open(address+"/join/", 1280, false)
	b.Until("document.querySelector('.receipt')")
	quiet(b)
	p.run("fmp-edge", "join", address, "--key", "keys/edge.key", "photos/edge")
	p.classifier(address)
	b.Open(address+"/join/predict.html", 1280, false)
	p.predicted(b, "classifier.onnx")
	scored(b, p)
	look(b, "predict")
	quiet(b)
	// The upload is withdrawn where its owner says so twice; the page shows the server's receipt,
	// and after a reload that it is so.
	b.Open(address+"/join/", 1280, false)
	click(b, "#withdraw")
	b.Until("document.activeElement.id === 'withdraw-sure'") // the keyboard follows
	click(b, "#withdraw-sure")
	b.Until("document.querySelector('#withdrawn') || document.querySelector('#send .bad')")
	var said string
	b.Eval("document.querySelector('#send').textContent", &said)
	if !strings.Contains(said, "withdrawn: the upload of \"page\" from round 7") ||
		!strings.Contains(said, "remains:") {
		b.T.Errorf("a withdrawal: %s", said)
	}
	look(b, "join-5-withdrawn")
	b.Open(address+"/join/", 1280, false)
	b.Until("document.querySelector('#send .note')?.checkVisibility() && " +
		"document.querySelector('#send .note').textContent.includes('You have withdrawn')")
	quiet(b, "410")
}

// scored lets the page score the classifier on photographs by class, and send the counts, which the
// server then has.
func scored(b *browser.Browser, p *place) {
	b.T.Helper()
	b.Until("document.querySelector('#score-folder')")
	var said string
	b.Choose("#score-folder", p.path("photos")) // of two clients, whose files have the same names
	b.Until("document.querySelector('#score .bad')")
	b.Eval("document.querySelector('#score .bad').textContent", &said)
	if !strings.Contains(said, "is no class of the model") {
		b.T.Errorf("folders of folders of classes: %s", said)
	}
	b.Choose("#score-folder", p.path("photos", "edge"))
	b.Until("document.querySelector('#score-send') || document.querySelector('#score .bad')")
	click(b, "#score-send")
	b.Until("document.querySelector('#score').textContent.includes('The server has your counts') || " +
		"document.querySelector('#score .bad')")
	b.Eval("document.querySelector('#score').textContent", &said)
	if !strings.Contains(said, "The server has your counts") ||
		!strings.Contains(said, "signed by “page”") {
		b.T.Errorf("an evaluation: %s", said)
	}
}

// speaking: in each language the pages say all in it, fit at the widths of a telephone and of a
// desk, and axe finds nothing.
func speaking(b *browser.Browser, p *place) {
	server := httptest.NewServer(http.FileServer(http.Dir(p.path("page"))))
	defer server.Close()
	fits := func(l, stage string) {
		var found struct{ Lang, Title, Heading, Text string }
		b.Eval(`({lang: document.documentElement.lang, title: document.title, heading: document.querySelector('h1').textContent,
			text: document.body.innerText})`, &found)
		if found.Lang != l || found.Title != found.Heading || placeholder.MatchString(found.Text) {
			b.T.Errorf("%s, %s: %+v", l, stage, found)
		}
		if english := "Drop folders of photographs here"; l != "en" &&
			strings.Contains(found.Text, english) {
			b.T.Errorf("%s, %s: %q", l, stage, english)
		}
		for _, width := range []int{390, 1440} {
			b.Resize(width, false)
			var faults []string
			b.Eval(browser.LayoutFaults, &faults)
			for _, f := range append(faults, b.Axe()...) {
				b.T.Errorf("%s, %s, %d wide: %s", l, stage, width, f)
			}
			if *shotsFlag != "" {
				b.Shoot(filepath.Join(*shotsFlag, fmt.Sprintf("%s-%s-%d", stage, l, width)))
			}
		}
	}
	for i, l := range languages {
		b.Open(server.URL+"/index.html?lang="+l, 1440, false)
		b.Until("document.querySelector('#graph-file')")
		b.Choose("#graph-file", p.path("client.onnx"))
		if i == 0 {
			named(b, "page")
		}
		b.Until("document.querySelector('#folder') && document.querySelector('#line')")
		b.Choose("#folder", p.path("photos", "page"))
		b.Until("document.querySelector('#counted')")
		computed(b)
		b.Until("document.querySelector('#save')")
		fits(l, "join")
		quiet(b, "404")
		b.Open(server.URL+"/predict.html?lang="+l, 1440, false)
		b.Until("document.querySelector('#model-file')")
		b.Choose("#model-file", p.path("classifier.onnx"))
		b.Until("document.querySelector('#files')")
		b.Choose("#files", p.path("photos", "edge", "0", "0.png"))
		b.Until("document.querySelector('.answer .verdict, .answer .bad')")
		b.Choose("#score-folder", p.path("photos", "edge"))
		b.Until("document.querySelector('#score table') || document.querySelector('#score .bad')")
		fits(l, "predict")
		quiet(b, "404")
	}
}

// private: a page takes part in a private round with noise of its own, up to a receipt that states
// the spent budget; a reload and the same photographs give the same upload, other photographs of
// the round none, and a second round is refused where it would spend more than its owner allows,
// and taken where not. Both rounds are at one address, as a browser counts by address.
func private(b *browser.Browser, p *place) {
	p.write("private/client.onnx", assetstest.PrivateClient(p.t))
	p.run("fmp", "keys", "--dir", "private/keys", "--roster", "private/roster.txt", "edge", "other")
	var rounds []*httputil.ReverseProxy
	for i, text := range []string{"round: 1\nprivacy: {epsilon: 4}\n", "round: 2\nprivacy: {epsilon: 2}\n"} {
		name := fmt.Sprintf("private/round%d.yaml", i+1)
		p.write(name, []byte(text+
			"client_graph: client.onnx\nroster: roster.txt\nquorum: 2\ndeadline: 2090-01-01T00:00:00Z\n"))
		to := must.Get(url.Parse(p.serve("serve", "--round", name, "--state",
			fmt.Sprintf("private/state%d", i+1), "--listen", "127.0.0.1:0", "--page", "page")))(p.t)
		rounds = append(rounds, httputil.NewSingleHostReverseProxy(to))
	}
	var now atomic.Pointer[httputil.ReverseProxy]
	now.Store(rounds[0])
	server := httptest.NewServer(
		http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { now.Load().ServeHTTP(w, r) }))
	defer server.Close()
	page := func(limit string) {
		b.Until("document.querySelector('#folder')")
		b.Choose("#folder", p.path("photos", "page"))
		b.Until("document.querySelector('#limit') && document.querySelector('#counted')")
		b.Eval(
			fmt.Sprintf(
				"document.querySelector('#limit').value = %q; document.querySelector('#reply').value = 2",
				limit), nil)
	}
	b.Open(server.URL+"/join/", 1280, false)
	p.write("private/roster.txt", append(p.read("private/roster.txt"), named(b, "page")+"\n"...))
	page("3")
	if said := computed(b); !strings.Contains(said, "epsilon 4, and you allow 3") {
		b.T.Errorf("a round above the limit: %s", said)
	}
	b.Eval("document.querySelector('#limit').value = 4.5", nil)
	click(b, "#compute")
	b.Until("document.querySelector('#digest')")
	look(b, "private-1-leaves")
	first := kept(b, " page")
	r, err := federate.DecodeRelease(first, federate.Expect{})
	if err != nil || r.Budget.Epsilon != 4 || r.Budget.Noise != privacy.Local {
		b.T.Fatalf("the page keeps %+v (%v)", r, err)
	}
	digest := sent(b)
	receipt := &wire.Receipt{}
	if err := json.Unmarshal(kept(b, "receipt"), receipt); err != nil || receipt.Upload != digest ||
		digest != models.DigestBytes(first) || receipt.Spent == nil || receipt.Spent.Epsilon != 4 {
		b.T.Errorf("the page keeps the receipt %+v (%v)", receipt, err)
	}
	look(b, "private-2-receipt")
	// After a reload the upload is there; the same photographs give it again, others none.
	b.Open(server.URL+"/join/", 1280, false)
	b.Until("document.querySelector('.receipt')")
	page("4.5")
	if again := computed(b); again != digest || !bytes.Equal(kept(b, " page"), first) {
		b.T.Errorf("the same photographs gave %s after %s", again, digest)
	}
	b.Choose("#files", p.path("photos", "page", "1", "0.png"))
	b.Until("document.querySelectorAll('.tile').length === 1")
	click(b, ".tile")
	b.Until("document.querySelector('#limit')")
	if said := computed(b); !strings.Contains(said, "was made in this browser, of other photographs") {
		b.T.Errorf("other photographs for the same round: %s", said)
	}
	// A page that decided by an older ledger keeps nothing.
	was := kept(b, "ledger")
	var refused bool
	b.Eval(
		`import('./common.js').then(m => m.spend('', 'line', 'late', 1)).then(() => false, () => true)`, &refused)
	if !refused || !bytes.Equal(kept(b, "ledger"), was) || bytes.Count(was, []byte("\n")) != 1 ||
		len(kept(b, "late")) > 0 {
		b.T.Errorf("an older ledger: refused %v, the ledger is %q after %q", refused,
			kept(b, "ledger"), was)
	}
	// An upload that was made and is gone is not made again: that would be a second draw.
	b.Eval(fmt.Sprintf(`import('./common.js').then(m => m.keep('upload %s 1 page', undefined))`, r.Model), nil)
	b.Open(server.URL+"/join/", 1280, false)
	page("9")
	if said := computed(b); !strings.Contains(said, "is not in this browser any more") {
		b.T.Errorf("an upload that is gone: %s", said)
	}
	// Another round: epsilon 4 and 2 on the same photographs are more than 4.5.
	now.Store(rounds[1])
	b.Open(server.URL+"/join/", 1280, false)
	page("4.5")
	if said := computed(b); !strings.Contains(said, "would be spent on one of the photographs") {
		b.T.Errorf("a second round beyond the limit: %s", said)
	}
	look(b, "private-3-refused")
	b.Eval("document.querySelector('#limit').value = 6", nil)
	click(b, "#compute")
	b.Until("document.querySelector('#spent')")
	if second := sent(b); second == digest {
		b.T.Error("the second round has the upload of the first")
	}
	quiet(b, "403", "404", "beforeunload") // a page that is left with photographs asks
}

// sent sends the page's upload until it has a receipt, and returns the digest that is shown. A
// server reads its roster again in its own time; until then it knows no such client.
func sent(b *browser.Browser) (digest string) {
	b.T.Helper()
	for done := false; !done; {
		click(b, "#send-upload")
		b.Until("document.querySelector('.receipt') || document.querySelector('#send .bad')")
		b.Eval("document.querySelector('.receipt') !== null", &done)
		if !done {
			time.Sleep(200 * time.Millisecond)
		}
	}
	b.Eval("document.querySelector('#digest').textContent", &digest)
	return digest
}

// round returns the description of a server's round.
func round(t *testing.T, address string) *wire.Description {
	t.Helper()
	reply := must.Get(http.Get(address + "/v1/rounds"))(t)
	defer reply.Body.Close()
	var text bytes.Buffer
	must.Get(text.ReadFrom(reply.Body))(t)
	return must.Get(wire.One(text.Bytes(), time.Now()))(t)
}

// classifier waits for the classifier of the round and keeps it.
func (p *place) classifier(address string) {
	p.t.Helper()
	for start := time.Now(); ; time.Sleep(100 * time.Millisecond) {
		reply := must.Get(http.Get(address + "/v1/rounds/7/classifier.onnx"))(p.t)
		var data bytes.Buffer
		_, err := data.ReadFrom(reply.Body)
		reply.Body.Close()
		if err == nil && reply.StatusCode == http.StatusOK {
			p.write("classifier.onnx", data.Bytes())
			return
		}
		if time.Since(start) > 5*time.Minute {
			p.t.Fatalf("no classifier: %d, %v", reply.StatusCode, err)
		}
	}
}

func offline(b *browser.Browser, p *place) {
	server := httptest.NewServer(http.FileServer(http.Dir(p.path("page"))))
	defer server.Close()
	b.Open(server.URL+"/index.html", 1280, false)
	b.Until("document.querySelector('#graph-file')")
	b.Choose("#graph-file", p.path("client.onnx"))
	named(b, "page")
	p.same(saved(b, p, "page.upload"))
	look(b, "offline")
	quiet(b, "404")
	b.Open(server.URL+"/predict.html", 1280, false)
	b.Until("document.querySelector('#model-file')")
	b.Choose("#model-file", p.path("classifier.onnx"))
	p.predicted(b, "classifier.onnx")
	quiet(b, "404")
}

// saved chooses the photographs of the page's client and returns the upload that is saved under a
// name.
func saved(b *browser.Browser, p *place, name string) (data []byte) {
	b.Until("document.querySelector('#folder')")
	b.Choose("#folder", p.path("photos", "page"))
	b.Until("document.querySelector('#counted')")
	computed(b)
	folder := filepath.Join(b.T.TempDir(), "saved")
	b.Download(folder)
	click(b, "#save")
	// it is moved to its name when it is whole
	for start := time.Now(); ; time.Sleep(50 * time.Millisecond) {
		var err error
		if data, err = os.ReadFile(filepath.Join(folder, name)); err == nil {
			return data
		}
		if time.Since(start) > 5*time.Minute {
			b.T.Fatal(err)
		}
	}
}

// folder: what fmp-edge page writes is shown by any web server, and its uploads are those of
// fmp-edge in the folder's round.
func folder(b *browser.Browser, p *place) {
	p.run("fmp-edge", "page", "--model", "client.onnx", "--round", "7", "-o", "site")
	server := httptest.NewServer(http.StripPrefix("/some/where", http.FileServer(http.Dir(p.path("site")))))
	defer server.Close()
	b.Open(server.URL+"/some/where/", 1280, false)
	b.Until("document.querySelector('#client')")
	named(b, "page")
	p.same(saved(b, p, "page.7.upload"), "--round", "7")
	var send bool
	b.Eval("document.querySelector('#send-upload') !== null", &send)
	if send {
		b.T.Error("a page without a server offers to send")
	}
	look(b, "folder")
	quiet(b, "404")
}

// listening: fmp predict --listen shows the page, which classifies in the browser where the program
// is beside it, and by the server elsewhere.
func listening(b *browser.Browser, p *place) {
	for name, args := range map[string][]string{"here": {"--page", "page"}, "by the server": nil} {
		b.Open(p.serve(append([]string{"predict", "--listen", "127.0.0.1:0", "classifier.onnx"},
			args...)...), 1280, false)
		p.predicted(b, "classifier.onnx")
		var where string
		b.Eval("document.querySelector('#where').textContent", &where)
		if sent := strings.Contains(where, "photographs are sent"); sent != (args == nil) {
			b.T.Errorf("%s: the page says %q", name, where)
		}
	}
}
