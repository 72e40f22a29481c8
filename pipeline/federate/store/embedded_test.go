package store

import (
	"context"
	"fmt"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"

	"fmp/onnx/must"
)

// TestStartGivenUp: where the embedded server cannot start, the program ends at once, with the cause.
func TestStartGivenUp(t *testing.T) {
	taken := must.Get(net.Listen("tcp", "127.0.0.1:0"))(t)
	defer taken.Close()
	for _, c := range []struct {
		name   string
		change func(t *testing.T, o *Options)
		says   string
	}{
		{"the folder of its files is a file", func(t *testing.T, o *Options) {
			must.Do(t, os.Mkdir(filepath.Join(o.Dir, "nats"), 0o700))
			must.Do(t, os.WriteFile(filepath.Join(o.Dir, "nats", "jetstream"), nil, 0o600))
		}, "not a directory"},
		{"its address is taken", func(_ *testing.T, o *Options) {
			o.Listen, o.Token = fmt.Sprint(taken.Addr()), "secret"
		}, "listening on port"},
	} {
		t.Run(c.name, func(t *testing.T) {
			o := Options{Dir: t.TempDir()}
			c.change(t, &o)
			start := time.Now()
			must.Fail(Open(t.Context(), "fmp-1", o))(t, c.says, c.name)
			if took := time.Since(start); took > 20*time.Second {
				t.Errorf("it took %v", took)
			}
		})
	}
}

// TestFolderRemoved: where the folder of the state is no longer the one that the server opened, nothing
// is taken, and the log says so once; once it is back, uploads are taken.
func TestFolderRemoved(t *testing.T) {
	if runtime.GOOS == "windows" {
		t.Skip("Windows keeps files that are open")
	}
	const uploads = "nats/jetstream/$G/streams/KV_fmp-1-uploads"
	for _, c := range []struct {
		name   string
		remove func(t *testing.T, dir string)
		back   bool
	}{
		{"moved", func(t *testing.T, dir string) { must.Do(t, os.Rename(dir, dir+".aside")) }, true},
		{"removed", func(t *testing.T, dir string) { must.Do(t, os.RemoveAll(dir)) }, false},
		{"its files removed", func(t *testing.T, dir string) {
			must.Do(t, os.RemoveAll(filepath.Join(dir, "nats", "jetstream")))
		}, false},
		{"the folders in it removed", func(t *testing.T, dir string) {
			for _, path := range must.Get(filepath.Glob(filepath.Join(dir, "nats", "jetstream", "*")))(t) {
				must.Do(t, os.RemoveAll(path))
			}
		}, false},
		{"the uploads' folder removed", func(t *testing.T, dir string) {
			must.Do(t, os.RemoveAll(filepath.Join(dir, uploads)))
		}, false},
		{"replaced", func(t *testing.T, dir string) {
			must.Do(t, os.RemoveAll(dir))
			must.Do(t, os.MkdirAll(filepath.Join(dir, uploads, "msgs"), 0o700))
		}, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			dir, log := filepath.Join(t.TempDir(), "state"), &lines{}
			s := opened(t, Options{Dir: dir, Log: slog.New(slog.NewTextHandler(log, nil))})
			must.Do(t, s.Put(t.Context(), record("a", "1"), 0))
			must.Do(t, s.Ready(t.Context()))
			c.remove(t, dir)
			must.Fail(0, s.Put(t.Context(), record("b", "1"), 0))(t, "removed or replaced", "an upload")
			must.Fail(0, s.Ready(t.Context()))(t, "removed or replaced", "ready")
			log.has(t, "uploads are refused")
			for end := time.Now().Add(3 * watchEvery); time.Now().Before(end); time.Sleep(watchEvery / 10) {
				if n := strings.Count(log.text(), "uploads are refused"); n != 1 {
					t.Fatalf("the log says so %d times", n)
				}
			}
			if !c.back {
				return
			}
			must.Do(t, os.Rename(dir+".aside", dir))
			log.has(t, "is back")
			must.Do(t, s.Put(t.Context(), record("b", "1"), 0))
			must.Do(t, s.Ready(t.Context()))
		})
	}
	// removed while a write is under way
	dir := filepath.Join(t.TempDir(), "state")
	s := opened(t, Options{Dir: dir})
	must.Fail(0, s.write(t.Context(), 0, func(context.Context) error { return os.RemoveAll(dir) }))(
		t, "removed or replaced", "a write under way")
}
