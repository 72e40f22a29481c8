//go:build unix

package main

import (
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"fmp/models"
)

// TestNamedPipesAreRefused: a named pipe in the place of any file that is read is an error that
// says so, at once.
func TestNamedPipesAreRefused(t *testing.T) {
	dir := t.TempDir()
	pipe := func(name string) string {
		path := filepath.Join(dir, name)
		if err := syscall.Mkfifo(path, 0o600); err != nil {
			t.Skipf("needs named pipes: %v", err)
		}
		return path
	}
	client, embedding := model(t, models.KindClient), model(t, models.KindEmbedding)
	list, labels := filepath.Join(dir, "list.csv"), filepath.Join(dir, "labels")
	write(t, list, []byte(pipe("image.png")+",1\n"))
	write(t, labels, []byte{0, 0, 8, 1, 0, 0, 0, 1, 3})
	out := filepath.Join(dir, "upload")
	for name, args := range map[string][]string{
		"a model":  {"compress", list, "--model", pipe("m.onnx"), "--client", "a", "-o", out},
		"an index": {"compress", pipe("index.csv"), "--model", client, "--client", "a", "-o", out},
		"an image": {"compress", list, "--model", client, "--client", "a", "-o", out},
		"IDX images": {"compress", pipe("images"), "--labels", labels, "--model", client, "--client",
			"a", "-o", out},
		"IDX labels": {"compress", labels, "--labels", pipe("labels.gz"), "--model", client, "--client",
			"a", "-o", out},
		"feature rows": {"compress", "--rows", pipe("rows.npy"), "--labels", pipe("labels.npy"),
			"--model", embedding, "--client", "a", "-o", out},
		"an upload":          {"inspect", pipe("got.upload")},
		"a measured model":   {"bench", "--model", pipe("bench.onnx")},
		"an inspected model": {"inspect", pipe("inspect.onnx")},
		"an upload to send":  {"send", "http://127.0.0.1:1", pipe("sent.upload"), "--key", list},
		"a key":              {"join", "http://127.0.0.1:1", dir, "--key", pipe("a.key")},
	} {
		t.Run(name, func(t *testing.T) {
			var code int
			var log string
			done := make(chan struct{})
			go func() {
				defer close(done)
				code, log = said(t, args...)
			}()
			select {
			case <-done:
			case <-time.After(20 * time.Second):
				t.Fatalf("fmp-edge %v waits for a named pipe", args)
			}
			if code == exitOK || !strings.Contains(log, "want a regular file") {
				t.Errorf("fmp-edge %v: exit code %d, said %q; want that a regular file is wanted", args, code, log)
			}
			if _, err := os.Stat(out); err == nil {
				t.Errorf("fmp-edge %v wrote an upload", args)
			}
		})
	}
}
