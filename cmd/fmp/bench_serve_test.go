package main

import (
	"context"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"fmp/onnx/must"
	"fmp/pipeline/federate/wire"
)

// answering is a server that answers each path with a status and a text.
func answering(t *testing.T, replies map[string]string) string {
	t.Helper()
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		text, ok := replies[strings.TrimPrefix(r.URL.Path, wire.RoundPath(benchRound))]
		if !ok {
			w.WriteHeader(http.StatusNotFound)
		}
		_, _ = w.Write([]byte(text))
	}))
	t.Cleanup(s.Close)
	return s.URL
}

// TestWaitPooled: the wait for a classifier ends with it, with a pooling that failed, with the
// context and with a server that says nothing of its round.
func TestWaitPooled(t *testing.T) {
	const none = "none"
	for _, c := range []struct {
		name, status, classifier string
		ended                    bool
		want                     string // "": no error
	}{
		{"there", `{"failure": "an older one"}`, "model", false, ""},
		{"failed", `{"failure": "no room"}`, none, false, "made no classifier: no room"},
		{"no status", none, none, false, "404 Not Found to /status"},
		{"no JSON", `{"in`, none, false, "unexpected end"},
		{"interrupted", "{}", none, true, context.Canceled.Error()},
	} {
		replies := map[string]string{"/status": c.status, "/classifier.onnx": c.classifier}
		for path, text := range replies {
			if text == none {
				delete(replies, path)
			}
		}
		ctx, cancel := context.WithCancel(t.Context())
		if c.ended {
			cancel()
		}
		err := waitPooled(ctx, http.DefaultClient, answering(t, replies))
		cancel()
		if c.want != "" {
			must.Fail(err)(t, c.want, c.name)
		} else if err != nil {
			t.Errorf("%s: %v", c.name, err)
		}
	}
}

// TestCheckRestart: a server that was killed must be ready, tell of its round, and have all uploads.
func TestCheckRestart(t *testing.T) {
	for _, c := range []struct {
		name    string
		replies map[string]string
		want    string // "": no error
	}{
		{"whole", map[string]string{"/readyz": "", "/status": `{"in": 2}`}, ""},
		{"lost", map[string]string{"/readyz": "", "/status": `{"in": 1}`}, "1 of 2 uploads with a receipt are in"},
		{"not ready", map[string]string{"/status": `{"in": 2}`}, "404 Not Found to /readyz"},
		{"no status", map[string]string{"/readyz": ""}, "404 Not Found to /status"},
	} {
		res := servedLoad{Clients: 2}
		err := res.checkRestart(t.Context(), answering(t, c.replies), time.Now())
		if c.want != "" {
			must.Fail(err)(t, c.want, c.name)
		} else if err != nil {
			t.Errorf("%s: %v", c.name, err)
		}
	}
}

// TestServerThatDoesNotStart: the log of a server that does not start again is the error, and a
// process without its file of the id does not stay.
func TestServerThatDoesNotStart(t *testing.T) {
	t.Setenv(programEnv, "1")
	res := servedLoad{Clients: 1}
	must.Fail(res.restart(t.Context(), t.TempDir(), []string{"--none"}))(t, "unknown flag: --none")

	needRuntime(t)
	args, out := endlessRun(t)
	dir := t.TempDir()
	must.Do(t, os.Mkdir(filepath.Join(dir, "pid"), 0o700))
	must.Fail(launch(t.Context(), dir, args))(t, "is a directory")
	for _, file := range must.Get(filepath.Glob("/proc/[0-9]*/cmdline"))(t) {
		// A process that has ended meanwhile has no file.
		if line, err := os.ReadFile(file); err == nil && strings.Contains(string(line), out) {
			t.Errorf("the process is still there: %q", line)
		}
	}
}
