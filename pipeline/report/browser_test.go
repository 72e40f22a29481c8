package report

import (
	"bufio"
	"encoding/base64"
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

var (
	pagesFlag = flag.String("pages", "", "run directories, separated by commas, whose pages TestPageInABrowser looks at too")
	shotsFlag = flag.String("shots", "", "folder to which TestPageInABrowser saves screenshots of every page")
)

// browser is a headless Chromium that is spoken to by the DevTools protocol over a pipe
// (https://chromedevtools.github.io/devtools-protocol; --remote-debugging-pipe).
type browser struct {
	t       *testing.T
	to      *os.File
	replies chan reply
	id      int
	session string
	events  []event
}

type reply struct {
	ID     int             `json:"id"`
	Result json.RawMessage `json:"result"`
	Error  *struct {
		Message string `json:"message"`
	} `json:"error"`
	event
}

type event struct {
	Method string          `json:"method"`
	Params json.RawMessage `json:"params"`
}

// newBrowser starts $CHROMIUM or what the system calls chromium; it skips where there is none.
func newBrowser(t *testing.T) *browser {
	t.Helper()
	var path string
	for _, name := range []string{os.Getenv("CHROMIUM"), "chromium", "chromium-browser", "google-chrome"} {
		if p, err := exec.LookPath(name); name != "" && err == nil {
			path = p
			break
		}
	}
	if path == "" {
		t.Skip("no chromium here (Debian: apt-get install chromium; or set CHROMIUM)")
	}
	fromUs, to, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	from, toUs, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	profile, err := os.MkdirTemp("", "fmp-browser")
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(path, "--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking",
		"--disable-component-update", "--disable-sync", "--disable-dev-shm-usage", "--hide-scrollbars", "--remote-debugging-pipe", "--user-data-dir="+profile, "about:blank")
	cmd.ExtraFiles = []*os.File{fromUs, toUs} // descriptors 3 and 4
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	fromUs.Close()
	toUs.Close()
	b := &browser{t: t, to: to, replies: make(chan reply, 100)}
	go func() {
		defer close(b.replies)
		r := bufio.NewReader(from)
		for {
			m, err := r.ReadBytes(0)
			if err != nil {
				if err != io.EOF {
					b.replies <- reply{event: event{Method: "broken: " + err.Error()}}
				}
				return
			}
			var x reply
			if json.Unmarshal(m[:len(m)-1], &x) == nil {
				b.replies <- x
			}
		}
	}()
	t.Cleanup(func() {
		to.Close() // the browser ends with its pipe
		ended := make(chan struct{})
		go func() { _ = cmd.Wait(); close(ended) }()
		select {
		case <-ended:
		case <-time.After(10 * time.Second):
			_ = cmd.Process.Kill()
			<-ended
		}
		from.Close()
		_ = os.RemoveAll(profile) // its helpers may still write there
	})
	var target struct {
		TargetID string `json:"targetId"`
	}
	b.call("Target.createTarget", map[string]any{"url": "about:blank"}, &target)
	var attached struct {
		SessionID string `json:"sessionId"`
	}
	b.call("Target.attachToTarget", map[string]any{"targetId": target.TargetID, "flatten": true}, &attached)
	b.session = attached.SessionID
	for _, domain := range []string{"Page", "Runtime", "Log", "Network"} {
		b.call(domain+".enable", nil, nil)
	}
	return b
}

// call sends a command and waits for its answer.
func (b *browser) call(method string, params, result any) {
	b.t.Helper()
	b.id++
	m := map[string]any{"id": b.id, "method": method}
	if params != nil {
		m["params"] = params
	}
	if b.session != "" {
		m["sessionId"] = b.session
	}
	data, err := json.Marshal(m)
	if err != nil {
		b.t.Fatal(err)
	}
	if _, err := b.to.Write(append(data, 0)); err != nil {
		b.t.Fatalf("%s: the browser is gone: %v", method, err)
	}
	x := b.wait(method, func(x reply) bool { return x.ID == b.id })
	if x.Error != nil {
		b.t.Fatalf("%s: %s", method, x.Error.Message)
	}
	if result != nil {
		if err := json.Unmarshal(x.Result, result); err != nil {
			b.t.Fatalf("%s: %v", method, err)
		}
	}
}

// wait reads until a message for which is holds, and keeps the events before it.
func (b *browser) wait(what string, is func(reply) bool) reply {
	b.t.Helper()
	limit := time.After(2 * time.Minute)
	for {
		select {
		case x, ok := <-b.replies:
			if !ok {
				b.t.Fatalf("%s: the browser ended", what)
			}
			if x.Method != "" {
				b.events = append(b.events, x.event)
			}
			if is(x) {
				return x
			}
		case <-limit:
			b.t.Fatalf("%s: no answer within two minutes", what)
		}
	}
}

// open shows a file at a width, in the light or in the dark.
func (b *browser) open(path string, width int, dark bool) {
	b.t.Helper()
	scheme := "light"
	if dark {
		scheme = "dark"
	}
	b.call("Emulation.setDeviceMetricsOverride", map[string]any{"width": width, "height": 900, "deviceScaleFactor": 1, "mobile": width < 600}, nil)
	b.call("Emulation.setEmulatedMedia", map[string]any{"features": []map[string]string{{"name": "prefers-color-scheme", "value": scheme}}}, nil)
	b.events = nil
	abs, err := filepath.Abs(path)
	if err != nil {
		b.t.Fatal(err)
	}
	b.call("Page.navigate", map[string]any{"url": (&url.URL{Scheme: "file", Path: filepath.ToSlash(abs)}).String()}, nil)
	for _, e := range b.events {
		if e.Method == "Page.loadEventFired" {
			return
		}
	}
	b.wait("load", func(x reply) bool { return x.Method == "Page.loadEventFired" })
}

// eval runs an expression and reads its value.
func (b *browser) eval(expression string, result any) {
	b.t.Helper()
	var x struct {
		Result struct {
			Value json.RawMessage `json:"value"`
		} `json:"result"`
		ExceptionDetails json.RawMessage `json:"exceptionDetails"`
	}
	b.call("Runtime.evaluate", map[string]any{"expression": expression, "returnByValue": true}, &x)
	if x.ExceptionDetails != nil {
		b.t.Fatalf("%s: %s", expression, x.ExceptionDetails)
	}
	if result != nil {
		if err := json.Unmarshal(x.Result.Value, result); err != nil {
			b.t.Fatalf("%s: %v", expression, err)
		}
	}
}

// shoot saves the whole page as PNGs of at most 1,800 pixels' height: path with 1, 2 and so on and .png.
func (b *browser) shoot(path string) {
	b.t.Helper()
	var size struct {
		Content struct {
			Width  float64 `json:"width"`
			Height float64 `json:"height"`
		} `json:"cssContentSize"`
	}
	b.call("Page.getLayoutMetrics", nil, &size)
	const most = 1800
	for i, y := 1, 0.0; y < size.Content.Height; i, y = i+1, y+most {
		var shot struct {
			Data string `json:"data"`
		}
		b.call("Page.captureScreenshot", map[string]any{"captureBeyondViewport": true,
			"clip": map[string]any{"x": 0, "y": y, "width": size.Content.Width, "height": min(most, size.Content.Height-y), "scale": 1}}, &shot)
		data, err := base64.StdEncoding.DecodeString(shot.Data)
		if err != nil {
			b.t.Fatal(err)
		}
		if err := os.WriteFile(fmt.Sprintf("%s-%d.png", path, i), data, 0o644); err != nil {
			b.t.Fatal(err)
		}
	}
}

// layoutFaults is what a reader would stumble over: a page wider than its window, a picture's words outside the picture, on
// top of each other, or too small to read.
const layoutFaults = `(() => {
	document.querySelectorAll('details').forEach(d => d.open = true);
	const out = [], wide = document.documentElement.clientWidth;
	if (document.documentElement.scrollWidth > wide) out.push('the page is ' + document.documentElement.scrollWidth + ' wide, the window ' + wide);
	for (const e of document.querySelectorAll('body *')) {
		if (e.closest('.scroll, pre, svg')) continue;
		const r = e.getBoundingClientRect();
		if (r.width > 0 && (r.right > wide + 1 || r.left < -1)) out.push(e.tagName + ' reaches from ' + r.left + ' to ' + r.right + ': ' + e.textContent.trim().slice(0, 40));
	}
	for (const s of document.querySelectorAll('svg')) {
		const box = s.getBoundingClientRect(), name = s.getAttribute('aria-label'), words = [];
		for (const t of s.querySelectorAll('text')) {
			const r = t.getBoundingClientRect(), m = t.getScreenCTM();
			const size = parseFloat(getComputedStyle(t).fontSize) * Math.hypot(m.a, m.b);
			if (size < 7.5) out.push(name + ': ' + t.textContent + ' is ' + size.toFixed(1) + ' pixels high');
			if (r.left < box.left - 3 || r.right > box.right + 3 || r.top < box.top - 4 || r.bottom > box.bottom + 4)
				out.push(name + ': ' + t.textContent + ' lies outside the picture');
			// Letters fill the middle of their line.
			const w = {text: t.textContent, left: r.left, right: r.right, top: r.top + r.height * .22, bottom: r.bottom - r.height * .22};
			for (const o of words)
				if (Math.min(w.right, o.right) - Math.max(w.left, o.left) > 2 && Math.min(w.bottom, o.bottom) - Math.max(w.top, o.top) > 1)
					out.push(name + ': ' + o.text + ' and ' + w.text + ' overlap');
			words.push(w);
		}
	}
	return out;
})()`

// TestPageInABrowser: pages load without an error in the console and without the network, and nothing in them is cut
// off, overlaps or is too small, at the widths of a desk and of a telephone, in the light and in the dark. Look at them with
// go test ./pipeline/report -run TestPageInABrowser -pages RUN,RUN -shots FOLDER.
func TestPageInABrowser(t *testing.T) {
	if testing.Short() {
		t.Skip("starts a browser")
	}
	b := newBrowser(t)
	made := filepath.Join(t.TempDir(), "made-up")
	madeUp(t, made)
	pages := []string{made}
	if *pagesFlag != "" {
		pages = append(pages, strings.Split(*pagesFlag, ",")...)
	}
	for _, page := range pages {
		for _, width := range []int{1280, 375} {
			for _, dark := range []bool{false, true} {
				name := fmt.Sprintf("%s-%d", filepath.Base(page), width)
				if dark {
					name += "-dark"
				}
				t.Run(name, func(t *testing.T) {
					b.t = t
					b.open(filepath.Join(page, PageFile), width, dark)
					var faults []string
					b.eval(layoutFaults, &faults)
					for i, f := range faults {
						if i == 30 {
							t.Errorf("and %d more", len(faults)-i)
							break
						}
						t.Error(f)
					}
					var paper string
					b.eval(`getComputedStyle(document.body).backgroundColor`, &paper)
					if want := map[bool]string{false: "rgb(255, 255, 255)", true: "rgb(23, 23, 26)"}[dark]; paper != want {
						t.Errorf("the page is %s; want %s", paper, want)
					}
					for _, e := range b.events {
						switch e.Method {
						case "Runtime.exceptionThrown", "Log.entryAdded", "Runtime.consoleAPICalled", "Network.loadingFailed":
							t.Errorf("%s: %s", e.Method, e.Params)
						case "Network.requestWillBeSent":
							var r struct {
								Request struct {
									URL string `json:"url"`
								} `json:"request"`
							}
							if err := json.Unmarshal(e.Params, &r); err != nil {
								t.Fatal(err)
							}
							if !strings.HasPrefix(r.Request.URL, "file:") && !strings.HasPrefix(r.Request.URL, "data:") {
								t.Errorf("the page asks for %s", r.Request.URL)
							}
						}
					}
					if *shotsFlag != "" {
						if err := os.MkdirAll(*shotsFlag, 0o755); err != nil {
							t.Fatal(err)
						}
						b.shoot(filepath.Join(*shotsFlag, name))
					}
				})
			}
		}
	}
}
