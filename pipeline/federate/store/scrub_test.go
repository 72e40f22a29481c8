package store

import (
	"bytes"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	natsserver "github.com/nats-io/nats-server/v2/server"

	"fmp/onnx/must"
)

// blocks returns the files of messages of a state, by their paths.
func blocks(t *testing.T, dir string) map[string][]byte {
	t.Helper()
	of := map[string][]byte{}
	for _, path := range must.Get(filepath.Glob(filepath.Join(dir, "nats/jetstream/*/streams/*/msgs/*.blk")))(t) {
		of[path] = must.Get(os.ReadFile(path))(t)
	}
	return of
}

// killed makes a copy of a state as a kill leaves it: what was written since is there, and what was
// overwritten since is not.
func killed(t *testing.T, dir string, before map[string][]byte) string {
	t.Helper()
	to := t.TempDir()
	must.Do(t, os.CopyFS(to, os.DirFS(dir)))
	for path, data := range before {
		now := must.Get(os.ReadFile(path))(t)
		if len(now) < len(data) {
			t.Fatalf("%s was cut", path)
		}
		copy(now, data)
		must.Do(t, os.WriteFile(filepath.Join(to, strings.TrimPrefix(path, dir)), now, 0o600))
	}
	return to
}

// changed applies a function to the block of a state that has the text.
func changed(t *testing.T, dir string, text []byte, do func(path string, data []byte, at int)) {
	t.Helper()
	for path, data := range blocks(t, dir) {
		if at := bytes.Index(data, text); at >= 0 {
			do(path, data, at)
			return
		}
	}
	t.Fatal("no block has the text")
}

// TestErasedAfterKill: of each kind of deletion that a kill ended after NATS had written that the message
// is deleted, and before its bytes were overwritten, the next start leaves none; all else is there.
func TestErasedAfterKill(t *testing.T) {
	natsStop := func(t *testing.T, dir string, _ []byte) {
		s := must.Get(natsserver.NewServer(&natsserver.Options{ServerName: "fmp", DontListen: true, NoSigs: true,
			NoLog: true, JetStream: true, StoreDir: filepath.Join(dir, "nats"), JetStreamMaxStore: maxStore}))(t)
		s.Start()
		if !s.ReadyForConnections(time.Minute) {
			t.Fatal("NATS does not start")
		}
		s.Shutdown()
		s.WaitForShutdown()
	}
	states := []struct {
		name string
		as   func(t *testing.T, dir string, text []byte)
	}{
		{"killed", func(*testing.T, string, []byte) {}},
		{"started and stopped by NATS alone", natsStop},
		{"killed while it was marked", func(t *testing.T, dir string, text []byte) {
			changed(t, dir, text[:step], func(path string, data []byte, at int) {
				start := bytes.LastIndex(data[:at], []byte("$")) - recordHead
				data[start+11] |= 0x80
				must.Do(t, os.WriteFile(path, data, 0o600))
			})
		}},
		{"killed while it was overwritten", func(t *testing.T, dir string, text []byte) {
			changed(t, dir, text[:step], func(path string, data []byte, at int) {
				start := bytes.LastIndex(data[:at], []byte("$")) - recordHead
				data[start+3] &^= 0x80
				data[start+11] |= 0x80
				clear(data[start+12 : at+2*step])
				must.Do(t, os.WriteFile(path, data, 0o600))
			})
		}},
		{"with a block that was being written again", func(t *testing.T, dir string, text []byte) {
			changed(t, dir, text[:step], func(path string, data []byte, _ int) {
				must.Do(t, os.WriteFile(path+".tmp", data, 0o600))
				must.Do(t, os.WriteFile(strings.TrimSuffix(path, ".blk")+".new", data, 0o600))
			})
		}},
	}
	for _, c := range erasures() {
		dir := t.TempDir()
		s := opened(t, Options{Dir: dir})
		text, other := secret("gone", 300_000), record("z", "1")
		other.Data = secret("stays", 3000)
		must.Do(t, s.Put(t.Context(), other, 0))
		must.Do(t, c.put(t, s, text))
		must.Do(t, s.PutObject(t.Context(), "kept", other.Data))
		must.Do(t, s.Put(t.Context(), record("y", "1"), 0))
		before := blocks(t, dir)
		must.Do(t, c.gone(t, s, text))
		for _, as := range states {
			t.Run(c.name+", "+as.name, func(t *testing.T) {
				dir := killed(t, dir, before)
				as.as(t, dir, text)
				if n := pieces(t, dir, text); n < len(text)/step-3 {
					t.Fatalf("%d pieces are there after the kill", n)
				}
				for range 2 {
					s := opened(t, Options{Dir: dir})
					if n := pieces(t, dir, text); n > 0 {
						t.Errorf("%d pieces are in the files after a start", n)
					}
					kept, failed := s.Object(t.Context(), "kept", 1<<20)
					if r, err := s.Get(t.Context(), "z"); err != nil || failed != nil ||
						!bytes.Equal(r.Data, other.Data) || !bytes.Equal(kept, other.Data) {
						t.Errorf("what is not deleted: %v, %v", err, failed)
					}
					s.Close()
				}
			})
		}
		s.Close()
	}
}

// TestScrubUnread: what cannot be read is said, and left alone; a start does not fail on it.
func TestScrubUnread(t *testing.T) {
	for _, c := range []struct {
		name string
		tail []byte
	}{
		{"cut short", started(200, 5, 60)},
		{"zeros", make([]byte, 100)},
		{"another checksum", started(60, 5, 60)},
		{"overwritten, too short", append(started(5, 5, 11), bytes.Repeat([]byte{0x80}, 50)...)},
	} {
		t.Run(c.name, func(t *testing.T) {
			dir, log := t.TempDir(), &lines{}
			s := opened(t, Options{Dir: dir})
			must.Do(t, s.Put(t.Context(), record("a", "1"), 0))
			s.Close()
			changed(t, dir, record("a", "1").Data, func(path string, data []byte, _ int) {
				must.Do(t, os.WriteFile(path, append(data, c.tail...), 0o600))
			})
			s = opened(t, Options{Dir: dir,
				Log: slog.New(slog.NewTextHandler(log, nil))})
			log.has(t, "cannot be read to its end")
			r, err := s.Get(t.Context(), "a")
			if err != nil || fmt.Sprint(r.Receipt.Upload) != "1" {
				t.Errorf("the upload: %v", err)
			}
		})
	}
}

// TestScrubMany: the deleted messages of a block wait for the disk together, and those whose overwriting a
// kill ended between the two times are overwritten by the next start. A file that is no block's is left alone.
func TestScrubMany(t *testing.T) {
	dir := t.TempDir()
	s := opened(t, Options{Dir: dir})
	text := secret("gone", 50*step)
	for i := range 50 {
		must.Get(s.refused.Put(t.Context(), key(fmt.Sprint(i)), text[i*step:(i+1)*step]))(t)
	}
	must.Do(t, s.Put(t.Context(), record("a", "1"), 0))
	before := blocks(t, dir)
	for i := range 50 {
		must.Do(t, s.DropRefusal(t.Context(), fmt.Sprint(i)))
	}
	s.Close()
	dir = killed(t, dir, before)
	for path := range blocks(t, dir) {
		must.Do(t, os.WriteFile(filepath.Join(filepath.Dir(path), "7"), nil, 0o600))
	}
	waits, marked := 0, ""
	toDisk = func(f *os.File) error {
		if waits++; waits == 1 {
			marked = killed(t, dir, nil)
		}
		return f.Sync()
	}
	defer func() { toDisk = (*os.File).Sync }()
	must.Do(t, scrub(filepath.Join(dir, "nats"), slog.Default()))
	if n := pieces(t, dir, text); waits == 0 || waits > 4 || n > 0 {
		t.Errorf("%d times it was waited for the disk, %d pieces are left", waits, n)
	}
	if n := pieces(t, marked, text); n < 50 {
		t.Fatalf("%d pieces are there after the kill", n)
	}
	for i := range 50 {
		changed(t, marked, text[i*step:i*step+16], func(_ string, data []byte, at int) {
			if data[bytes.LastIndex(data[:at], []byte("$"))-recordHead+11]&0x80 == 0 {
				t.Errorf("message %d has no mark at the first wait", i)
			}
		})
	}
	s = opened(t, Options{Dir: marked})
	if n := pieces(t, marked, text); n > 0 {
		t.Errorf("%d pieces are there after a start", n)
	}
	must.Get(s.Get(t.Context(), "a"))(t)
}

// started is the start of a record that states its length.
func started(length byte, sequence byte, n int) []byte {
	b := make([]byte, n)
	b[0], b[4] = length, sequence
	return b
}

// lines is a log that may be written and read at once.
type lines struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (l *lines) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(p)
}

func (l *lines) text() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.String()
}

func (l *lines) has(t *testing.T, want string) {
	t.Helper()
	for range 1000 {
		if strings.Contains(l.text(), want) {
			return
		}
		time.Sleep(20 * time.Millisecond)
	}
	t.Errorf("the log lacks %q:\n%s", want, l.text())
}
