// Package browser lets tests look at pages in a real browser.
package browser

import (
	"bufio"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"testing"
	"time"

	"fmp/onnx/must"
)

// Browser is a headless Chromium that is spoken to by the DevTools protocol over a pipe
// (https://chromedevtools.github.io/devtools-protocol; --remote-debugging-pipe).
// One goroutine uses it: calls are numbered, and each waits for its own answer.
type Browser struct {
	// T is the test that fails where the browser does, Events the page's events since Open.
	T      *testing.T
	Events []Event

	to      *os.File
	replies chan reply
	id      int
	session string
}

// reply is an answer by its ID, or an event by its method.
type reply struct {
	ID     int             `json:"id"`
	Result json.RawMessage `json:"result"`
	Error  *struct {
		Message string `json:"message"`
	} `json:"error"`
	Event
}

// Event of the protocol.
type Event struct {
	Method string          `json:"method"`
	Params json.RawMessage `json:"params"`
}

// New starts $CHROMIUM or the system's chromium; it skips where there is none. Messages end with a
// zero byte on both pipes. The browser ends with the test, and its profile is removed.
func New(t *testing.T) *Browser {
	t.Helper()
	var path string
	for _, name := range []string{os.Getenv("CHROMIUM"), "chromium", "chromium-browser",
		"google-chrome"} {
		if p, err := exec.LookPath(name); name != "" && err == nil {
			path = p
			break
		}
	}
	if path == "" {
		t.Skip("no chromium here (Debian: apt-get install chromium; or set CHROMIUM)")
	}
	fromUs, to := must.Get2(os.Pipe())(t)
	from, toUs := must.Get2(os.Pipe())(t)
	profile := must.Get(os.MkdirTemp("", "fmp-browser"))(t)
	cmd := exec.Command(path, "--headless", "--no-sandbox", "--disable-gpu", "--disable-quic",
		"--no-first-run", "--disable-background-networking",
		"--disable-component-update", "--disable-sync", "--disable-dev-shm-usage",
		"--hide-scrollbars", "--remote-debugging-pipe", "--user-data-dir="+profile, "about:blank")
	// The browser reads commands from descriptor 3 and writes answers to 4.
	cmd.ExtraFiles = []*os.File{fromUs, toUs}
	must.Do(t, cmd.Start())
	// The browser has ends of its own. Its pipe ends with it only where these are closed.
	fromUs.Close()
	toUs.Close()
	b := &Browser{T: t, to: to, replies: make(chan reply, 100)}
	go func() {
		defer close(b.replies)
		r := bufio.NewReader(from)
		for {
			m, err := r.ReadBytes(0)
			if err != nil {
				if err != io.EOF {
					b.replies <- reply{Event: Event{Method: "broken: " + err.Error()}}
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
	b.call("Target.attachToTarget", map[string]any{"targetId": target.TargetID, "flatten": true},
		&attached)
	b.session = attached.SessionID
	for _, domain := range []string{"Page", "Runtime", "Log", "Network"} {
		b.call(domain+".enable", nil, nil)
	}
	return b
}

// call sends a command and waits for its answer, which has the command's number. Events that come
// before the answer are kept in Events. A command is of the browser until New has attached to its
// page, and of that page from there on.
func (b *Browser) call(method string, params, result any) {
	b.T.Helper()
	b.id++
	m := map[string]any{"id": b.id, "method": method}
	if params != nil {
		m["params"] = params
	}
	if b.session != "" {
		m["sessionId"] = b.session
	}
	data := must.Get(json.Marshal(m))(b.T)
	if _, err := b.to.Write(append(data, 0)); err != nil {
		b.T.Fatalf("%s: the browser is gone: %v", method, err)
	}
	x := b.wait(method, func(x reply) bool { return x.ID == b.id })
	if x.Error != nil {
		b.T.Fatalf("%s: %s", method, x.Error.Message)
	}
	if result != nil {
		if err := json.Unmarshal(x.Result, result); err != nil {
			b.T.Fatalf("%s: %v", method, err)
		}
	}
}

// wait reads until a message for which is holds, and keeps the events before it.
func (b *Browser) wait(what string, is func(reply) bool) reply {
	b.T.Helper()
	limit := time.After(2 * time.Minute)
	for {
		select {
		case x, ok := <-b.replies:
			if !ok {
				b.T.Fatalf("%s: the browser ended", what)
			}
			if x.Method != "" {
				b.Events = append(b.Events, x.Event)
			}
			if is(x) {
				return x
			}
		case <-limit:
			b.T.Fatalf("%s: no answer within two minutes", what)
		}
	}
}

// Open shows a page at a width, in the light or in the dark. It waits for the load event, which may
// come before the answer to the command. Events of pages before it are dropped.
func (b *Browser) Open(address string, width int, dark bool) {
	b.T.Helper()
	b.Resize(width, dark)
	b.Events = nil
	b.call("Page.navigate", map[string]any{"url": address}, nil)
	for _, e := range b.Events {
		if e.Method == "Page.loadEventFired" {
			return
		}
	}
	b.wait("load", func(x reply) bool { return x.Method == "Page.loadEventFired" })
}

// Eval runs an expression and reads its value, that of a promise once it has one. An exception is
// the end of the test.
// The value is copied as JSON, so that an element of the page cannot be one.
func (b *Browser) Eval(expression string, result any) {
	b.T.Helper()
	var x struct {
		Result struct {
			Value json.RawMessage `json:"value"`
		} `json:"result"`
		ExceptionDetails json.RawMessage `json:"exceptionDetails"`
	}
	b.call("Runtime.evaluate",
		map[string]any{"expression": expression, "returnByValue": true, "awaitPromise": true}, &x)
	if x.ExceptionDetails != nil {
		b.T.Fatalf("%s: %s", expression, x.ExceptionDetails)
	}
	if result != nil {
		if err := json.Unmarshal(x.Result.Value, result); err != nil {
			b.T.Fatalf("%s: %v", expression, err)
		}
	}
}

// Shoot saves the whole page as PNGs of at most 1,800 pixels' height: path with 1, 2 and so on and
// .png.
// Parts below the window are in it. The last picture may be lower than the others.
func (b *Browser) Shoot(path string) {
	b.T.Helper()
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
			"clip": map[string]any{"x": 0, "y": y, "width": size.Content.Width,
				"height": min(most, size.Content.Height-y), "scale": 1}}, &shot)
		data := must.Get(base64.StdEncoding.DecodeString(shot.Data))(b.T)
		must.Do(b.T, os.WriteFile(fmt.Sprintf("%s-%d.png", path, i), data, 0o644))
	}
}

// LayoutFaults is an expression whose value lists the faults of a page's layout: a page wider than
// its window, a picture's words outside the picture, on top of each other, or too small to read.
// Folded details are opened first. Elements that scroll by themselves (.scroll, pre, svg) may be
// wider than the window. Words of a picture are at least 7.5 pixels high.
const LayoutFaults = `(() => {
	document.querySelectorAll('details').forEach(d => d.open = true);
	const out = [], wide = document.documentElement.clientWidth;
	if (document.documentElement.scrollWidth > wide)
		out.push('the page is ' + document.documentElement.scrollWidth +
			' wide, the window ' + wide);
	for (const e of document.querySelectorAll('body *')) {
		if (e.closest('.scroll, pre, svg')) continue;
		const r = e.getBoundingClientRect();
		if (r.width > 0 && (r.right > wide + 1 || r.left < -1))
			out.push(e.tagName + ' reaches from ' + r.left + ' to ' + r.right + ': ' +
				e.textContent.trim().slice(0, 40));
	}
	for (const s of document.querySelectorAll('svg')) {
		const box = s.getBoundingClientRect(), name = s.getAttribute('aria-label'), words = [];
		for (const t of s.querySelectorAll('text')) {
			const r = t.getBoundingClientRect(), m = t.getScreenCTM();
			const size = parseFloat(getComputedStyle(t).fontSize) * Math.hypot(m.a, m.b);
			if (size < 7.5)
				out.push(name + ': ' + t.textContent + ' is ' + size.toFixed(1) + ' pixels high');
			if (r.left < box.left - 3 || r.right > box.right + 3 ||
				r.top < box.top - 4 || r.bottom > box.bottom + 4)
				out.push(name + ': ' + t.textContent + ' lies outside the picture');
			// Letters fill the middle of their line.
			const w = {text: t.textContent, left: r.left, right: r.right,
				top: r.top + r.height * .22, bottom: r.bottom - r.height * .22};
			for (const o of words)
				if (Math.min(w.right, o.right) - Math.max(w.left, o.left) > 2 &&
					Math.min(w.bottom, o.bottom) - Math.max(w.top, o.top) > 1)
					out.push(name + ': ' + o.text + ' and ' + w.text + ' overlap');
			words.push(w);
		}
	}
	return out;
})()`

// Resize changes the window's width, and light to dark, of the page that is shown.
// The window is 900 pixels high, and a phone's below a width of 600.
func (b *Browser) Resize(width int, dark bool) {
	b.T.Helper()
	scheme := "light"
	if dark {
		scheme = "dark"
	}
	b.call("Emulation.setDeviceMetricsOverride",
		map[string]any{"width": width, "height": 900, "deviceScaleFactor": 1,
			"mobile": width < 600}, nil)
	b.call("Emulation.setEmulatedMedia",
		map[string]any{"features": []map[string]string{
			{"name": "prefers-color-scheme", "value": scheme}}}, nil)
}

// Choose sets the files of a file input, or the folder of one that takes folders. A page's own code
// may not, so that the protocol does it.
func (b *Browser) Choose(selector string, paths ...string) {
	b.T.Helper()
	var object struct {
		Result struct {
			ObjectID string `json:"objectId"`
		} `json:"result"`
	}
	b.call("Runtime.evaluate",
		map[string]any{"expression": fmt.Sprintf("document.querySelector(%q)", selector)}, &object)
	if object.Result.ObjectID == "" {
		b.T.Fatalf("the page has no %s", selector)
	}
	b.call("DOM.setFileInputFiles", map[string]any{"files": paths,
		"objectId": object.Result.ObjectID},
		nil)
}

// Download lets the page save files, into a folder.
func (b *Browser) Download(folder string) {
	b.T.Helper()
	b.call("Page.setDownloadBehavior", map[string]any{"behavior": "allow", "downloadPath": folder},
		nil)
}

// patience is how long Until waits; machines that do much else are slow.
const patience = 5 * time.Minute

// Until evaluates an expression until it is true, and fails where it never is, with the page's
// text.
// It looks every 50 ms, so that the expression should change nothing.
func (b *Browser) Until(expression string) {
	b.T.Helper()
	for start := time.Now(); ; time.Sleep(50 * time.Millisecond) {
		var ok bool
		b.Eval("Boolean("+expression+")", &ok)
		if ok {
			return
		}
		if time.Since(start) > patience {
			var text string
			b.Eval("document.body.innerText", &text)
			b.T.Fatalf("%s: it is not so within %v; the page says\n%s", expression, patience, text)
		}
	}
}

// Axe returns the faults of accessibility (WCAG 2.2) that axe-core finds in the page; none, with a
// line in the log, where FMP_AXE does not name axe.min.js (npm install axe-core).
// There is one entry for each rule that is broken, with its places cut to 600 characters.
func (b *Browser) Axe() (found []string) {
	b.T.Helper()
	path := os.Getenv("FMP_AXE")
	if path == "" {
		b.T.Log("FMP_AXE names no axe.min.js (npm install axe-core): accessibility is not " +
			"looked at")
		return nil
	}
	axe := must.Get(os.ReadFile(path))(b.T)
	b.Eval(string(axe)+"; 0", nil)
	b.Eval(`axe.run().then(r => r.violations.map(v => v.id + ": " + 
		v.nodes.map(n => n.html.slice(0, 200) + " " + n.failureSummary)
			.join(" | ").slice(0, 600)))`, &found)
	return found
}
