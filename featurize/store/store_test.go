package store

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"context"
	"crypto/md5"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"image"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sync/errgroup"

	"fmp/featurize/dataset"
	"fmp/featurize/imagefile/imagefiletest"
	"fmp/onnx/alloctest"
	"fmp/onnx/must"
)

func sum256(b []byte) string { s := sha256.Sum256(b); return hex.EncodeToString(s[:]) }

func sum(b []byte) string { s := md5.Sum(b); return hex.EncodeToString(s[:]) }

// server serves one file on loopback and remembers the Range headers it was sent. behave, where it
// returns true, has answered the request with that number.
func server(t *testing.T, data []byte,
	behave func(i int, w http.ResponseWriter, r *http.Request) bool) (string, *[]string) {
	t.Helper()
	var mu sync.Mutex
	var ranges []string
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		mu.Lock()
		i := len(ranges)
		ranges = append(ranges, r.Header.Get("Range"))
		mu.Unlock()
		if behave != nil && behave(i, w, r) {
			return
		}
		http.ServeContent(w, r, "file", time.Time{}, bytes.NewReader(data))
	}))
	t.Cleanup(s.Close)
	return s.URL + "/file", &ranges
}

// abort sends the first half of the data as if all were to come, and drops the connection.
func abort(data []byte) func(http.ResponseWriter) {
	return func(w http.ResponseWriter) {
		w.Header().Set("Content-Length", fmt.Sprint(len(data)))
		w.Write(data[:len(data)/2])
		w.(http.Flusher).Flush()
		panic(http.ErrAbortHandler)
	}
}

// missing answers that there is no file.
func missing(_ int, w http.ResponseWriter, r *http.Request) bool {
	http.NotFound(w, r)
	return true
}

func payload(n int) []byte {
	b := make([]byte, n)
	for i := range b {
		b[i] = byte(i * i >> 3)
	}
	return b
}

// file is a file of the data at addresses.
func file(data []byte, urls ...string) dataset.File {
	return dataset.File{Name: "a", URLs: urls, MD5: sum(data), SHA256: sum256(data), Max: 1 << 20}
}

func quick() *Downloader { return &Downloader{Pause: time.Millisecond, Stall: 5 * time.Second} }

func TestFetch(t *testing.T) {
	data := payload(300_000)
	url, ranges := server(t, data, nil)
	dir := t.TempDir()
	f := file(data, url)
	var last, total int64
	d := quick()
	d.Progress = func(_ string, done, of int64) { last, total = done, of }
	for range 2 { // the second time nothing is asked of the server
		p := must.Get(d.Fetch(t.Context(), f, dir))(t)
		if got, _ := os.ReadFile(p); !bytes.Equal(got, data) {
			t.Error("another file arrived")
		}
	}
	if len(*ranges) != 1 || last != 300_000 || total != 300_000 {
		t.Errorf("%d requests, progress %d of %d", len(*ranges), last, total)
	}
}

// TestFetchGoesOn: after an interruption, and in a later call, the rest is asked for; a server
// without ranges sends all of it again.
func TestFetchGoesOn(t *testing.T) {
	data := payload(300_000)
	for name, c := range map[string]struct {
		part   []byte // left by an earlier call
		behave func(i int, w http.ResponseWriter, r *http.Request) bool
		want   string // how the last range asked for begins
	}{
		"interruption": {nil, func(i int, w http.ResponseWriter, _ *http.Request) bool {
			if i == 0 {
				abort(data)(w)
			}
			return false
		}, "bytes="},
		"a later call": {data[:40_000], nil, "bytes=40000-"},
		"without ranges": {payload(50)[10:], func(_ int, w http.ResponseWriter, _ *http.Request) bool {
			w.Write(data)
			return true
		}, ""},
	} {
		t.Run(name, func(t *testing.T) {
			url, ranges := server(t, data, c.behave)
			dir := t.TempDir()
			if c.part != nil {
				must.Do(t, os.WriteFile(filepath.Join(dir, "a.part"), c.part, 0o644))
			}
			p := must.Get(quick().Fetch(t.Context(), file(data, url), dir))(t)
			if got, _ := os.ReadFile(p); !bytes.Equal(got, data) {
				t.Error("another file arrived")
			}
			if last := (*ranges)[len(*ranges)-1]; !strings.HasPrefix(last, c.want) || last == "bytes=0-" {
				t.Errorf("ranges asked for: %q; want the last to go on", *ranges)
			}
		})
	}
}

func TestFetchErrors(t *testing.T) {
	data := payload(10_000)
	for name, c := range map[string]struct {
		behave      func(int, http.ResponseWriter, *http.Request) bool
		md5, sha256 string
		max         int64
		want        string
		calls       int
	}{
		"wrong checksum": {nil, sum(nil), sum256(data), 1 << 20, "MD5 checksum", 3},
		// MD5 can be forged
		"forged":    {nil, sum(data), sum256(nil), 1 << 20, "SHA-256 checksum", 3},
		"not found": {missing, sum(data), sum256(data), 1 << 20, "404", 1},
		"server error": {func(_ int, w http.ResponseWriter, _ *http.Request) bool {
			w.WriteHeader(503)
			return true
		}, sum(data), sum256(data), 1 << 20, "503", 3},
		"too large": {nil, sum(data), sum256(data), 5_000, "at most 5000", 1},
		"endless": {func(_ int, w http.ResponseWriter, _ *http.Request) bool {
			for range 20 {
				w.Write(data)
				w.(http.Flusher).Flush()
			}
			return true
		}, sum(data), sum256(data), 50_000, "more than 50000", 1},
	} {
		t.Run(name, func(t *testing.T) {
			url, ranges := server(t, data, c.behave)
			dir := t.TempDir()
			f := file(data, url)
			f.MD5, f.SHA256, f.Max = c.md5, c.sha256, c.max
			must.Fail(quick().Fetch(t.Context(), f, dir))(t, c.want)
			if len(*ranges) != c.calls {
				t.Errorf("%d requests; want %d", len(*ranges), c.calls)
			}
			must.Fail(os.Stat(filepath.Join(dir, "a")))(t, "", "a file appeared under its name")
			if strings.Contains(c.want, "checksum") {
				must.Fail(os.Stat(filepath.Join(dir, "a.part")))(t, "", "a file with the wrong checksum is kept")
			}
		})
	}
	t.Run("second address", func(t *testing.T) {
		bad, _ := server(t, data, missing)
		good, _ := server(t, data, nil)
		must.Get(quick().Fetch(t.Context(), file(data, bad, good), t.TempDir()))(t)
	})
	t.Run("stall", func(t *testing.T) {
		release := make(chan struct{})
		url, _ := server(t, data, func(_ int, w http.ResponseWriter, _ *http.Request) bool {
			w.Write(data[:10])
			w.(http.Flusher).Flush()
			<-release
			return true
		})
		defer close(release)
		d := &Downloader{Pause: time.Millisecond, Stall: 50 * time.Millisecond, Tries: 1}
		must.Fail(d.Fetch(t.Context(), file(data, url), t.TempDir()))(t, "nothing came")
	})
	t.Run("cancelled", func(t *testing.T) {
		url, _ := server(t, data, nil)
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		if _, err := quick().Fetch(ctx, file(data, url), t.TempDir()); !errors.Is(err, context.Canceled) {
			t.Error(err)
		}
	})
}

type entry struct {
	name string
	kind byte
	data []byte
}

func archive(t testing.TB, entries ...entry) []byte {
	t.Helper()
	var b bytes.Buffer
	z := gzip.NewWriter(&b)
	w := tar.NewWriter(z)
	for _, e := range entries {
		must.Do(t, w.WriteHeader(&tar.Header{Name: e.name, Typeflag: e.kind, Size: int64(len(e.data)), Mode: 0o644,
			Linkname: "/etc/passwd"}))
		w.Write(e.data)
	}
	w.Close()
	z.Close()
	return b.Bytes()
}

func cifar(labels ...byte) []byte {
	var out []byte
	for i, y := range labels {
		rec := make([]byte, 3073)
		rec[0] = y
		for k := 1; k < len(rec); k++ {
			rec[k] = byte(i + k)
		}
		out = append(out, rec...)
	}
	return out
}

var all10 = cifar(0, 1, 2, 3, 4, 5, 6, 7, 8, 9)

func source(url string, data []byte) dataset.Known {
	return dataset.Known{Name: "cifar10", Folders: []string{"cifar-10-batches-bin"},
		Files:  []dataset.File{file(data, url)},
		Unpack: map[string]int64{"data_batch_1.bin": 40_000, "test_batch.bin": 40_000}}
}

func TestPull(t *testing.T) {
	data := archive(t, entry{"cifar/", tar.TypeDir, nil},
		entry{"cifar/data_batch_1.bin", tar.TypeReg, all10},
		entry{"cifar/readme.html", tar.TypeReg, []byte("x")},
		entry{"../test_batch.bin", tar.TypeReg, cifar(3, 4)}, entry{"evil", tar.TypeSymlink, nil})
	url, ranges := server(t, data, nil)
	dir := filepath.Join(t.TempDir(), "data")
	for range 2 {
		to := must.Get(Pull(t.Context(), source(url, data), dir, quick()))(t)
		if to != filepath.Join(dir, "cifar-10-batches-bin") {
			t.Errorf("went to %s", to)
		}
	}
	if len(*ranges) != 1 {
		t.Errorf("%d downloads; want 1", len(*ranges))
	}
	ds, err := dataset.Load(t.Context(), dataset.Options{Name: "cifar10", Dir: dir})
	if err != nil || ds.Train.N != 10 || ds.Test.N != 2 {
		t.Errorf("%v", err)
	}
	left, _ := os.ReadDir(dir)
	if len(left) != 1 {
		t.Errorf("left behind: %v", left)
	}
}

// TestNoWayFromHTTPSToHTTP: a server that is asked over https may not send on to plain http.
func TestNoWayFromHTTPSToHTTP(t *testing.T) {
	data := payload(1000)
	plain, ranges := server(t, data, nil)
	s := httptest.NewTLSServer(http.RedirectHandler(plain, http.StatusFound))
	t.Cleanup(s.Close)
	d := quick()
	d.Client, d.Tries = s.Client(), 1
	_, err := d.Fetch(t.Context(), file(data, s.URL), t.TempDir())
	if err == nil || !strings.Contains(err.Error(), "not https") || len(*ranges) != 0 {
		t.Errorf("error %v, %d plain requests", err, len(*ranges))
	}
}

// TestDamagedDataIsRefused: data that was pulled or imported and has changed since is not read.
func TestDamagedDataIsRefused(t *testing.T) {
	data := archive(t, entry{"data_batch_1.bin", tar.TypeReg, all10},
		entry{"test_batch.bin", tar.TypeReg, cifar(3, 4)})
	url, _ := server(t, data, nil)
	dir := t.TempDir()
	to := must.Get(Pull(t.Context(), source(url, data), dir, quick()))(t)
	path := filepath.Join(to, "data_batch_1.bin")
	bad := bytes.Clone(all10)
	bad[5000] ^= 1
	must.Do(t, os.WriteFile(path, bad, 0o644))
	if _, err := dataset.Load(t.Context(), dataset.Options{Name: "cifar10", Dir: dir}); err == nil ||
		!strings.Contains(err.Error(), path) || !strings.Contains(err.Error(), dataset.SumsFile) {
		t.Errorf("one bit of a pixel was turned over: %v", err)
	}
	// To pull again mends it.
	must.Get(Pull(t.Context(), source(url, data), dir, quick()))(t)
	must.Get(dataset.Load(t.Context(), dataset.Options{Name: "cifar10", Dir: dir}))(t)
	for name, c := range map[string]struct{ list, want string }{"text": {"hello\n", "line 1"},
		"a path that leads out": {strings.Repeat("0", 64) + "  ../x\n", "line 1"},
		"short":                 {"12  test_batch.bin\n", "line 1"},
		"nothing":               {"", "it is empty"}} {
		must.Do(t, os.WriteFile(filepath.Join(to, dataset.SumsFile), []byte(c.list), 0o644))
		must.Fail(dataset.Load(t.Context(), dataset.Options{Name: "cifar10", Dir: dir}))(t,
			c.want, name)
	}
}

func TestPullErrorsLeaveNothing(t *testing.T) {
	for name, c := range map[string]struct {
		data []byte
		want string
	}{
		"not an archive": {[]byte("hello"), "gzip"},
		"nothing wanted": {archive(t, entry{"x", tar.TypeReg, []byte("y")}), "none of the files"},
		"too large": {archive(t, entry{"data_batch_1.bin", tar.TypeReg, make([]byte, 50_000)}),
			"at most 40000"},
		"twice": {archive(t, entry{"a/test_batch.bin", tar.TypeReg, all10},
			entry{"b/test_batch.bin", tar.TypeReg, all10}), "twice"},
		"truncated data": {archive(t, entry{"data_batch_1.bin", tar.TypeReg, all10[:500]},
			entry{"test_batch.bin", tar.TypeReg, all10}), "truncated"},
		"only a link": {archive(t, entry{"data_batch_1.bin", tar.TypeSymlink, nil}), "none of the files"},
	} {
		t.Run(name, func(t *testing.T) {
			url, _ := server(t, c.data, nil)
			dir := t.TempDir()
			must.Fail(Pull(t.Context(), source(url, c.data), dir, quick()))(t, c.want)
			left, _ := os.ReadDir(dir)
			for _, e := range left {
				if e.Name() != ".downloads" {
					t.Errorf("left behind: %s", e.Name())
				}
			}
		})
	}
}

func TestImport(t *testing.T) {
	from := filepath.Join(t.TempDir(), "mine")
	for n, b := range map[string][]byte{"data_batch_3.bin": all10, "test_batch.bin": all10, ".hidden": nil} {
		imagefiletest.Write(t, filepath.Join(from, n), b)
	}
	dir := t.TempDir()
	name, to, _, err := Import(t.Context(), from, "", dir, false, false)
	if err != nil || name != "cifar10" || filepath.Base(to) != "cifar-10-batches-bin" {
		t.Fatalf("%s %s %v", name, to, err)
	}
	must.Get(dataset.Load(t.Context(), dataset.Options{Name: "cifar10", Dir: dir}))(t)
	must.Fail(os.Stat(filepath.Join(to, ".hidden")))(t, "", "a hidden file is copied")
	must.Fail(Import(t.Context(), from, "", dir, false, false))(t, "--replace",
		"a second time")
	if _, _, _, err := Import(t.Context(), from, "", dir, true, false); err != nil {
		t.Errorf("replacing: %v", err)
	}
	if name, _, _, err := Import(t.Context(), from, "other", dir, false, false); err != nil ||
		name != "other" {
		t.Errorf("%s %v", name, err)
	}
	must.Get(dataset.Load(t.Context(), dataset.Options{Name: "other", Dir: dir}))(t)
	// A damaged set does not replace the good one.
	must.Do(t, os.WriteFile(filepath.Join(from, "test_batch.bin"), all10[:100], 0o644))
	must.Fail(Import(t.Context(), from, "", dir, true, false))(t, "",
		"a truncated set is taken")
	if _, err := dataset.Load(t.Context(), dataset.Options{Name: "cifar10", Dir: dir}); err != nil {
		t.Errorf("the good set is gone: %v", err)
	}
	for _, bad := range []string{"../up", ".dot", "digits"} {
		must.Fail(Import(t.Context(), from, bad, dir, false, false))(t, "", bad)
	}
	must.Fail(Import(t.Context(), filepath.Join(from, "test_batch.bin"), "", dir, false,
		false))(t, "", "a single file is taken")
}

// TestImportOfBadImages: the error names all of them as the user does, and what is skipped is not
// copied.
func TestImportOfBadImages(t *testing.T) {
	t.Chdir(t.TempDir())
	good := imagefiletest.PNG(t, image.NewGray(image.Rect(0, 0, 3, 3)))
	for _, name := range []string{"a/1.png", "a/2.png", "a/3.png", "b/1.png", "b/2.png", "b/3.png",
		"a/bad.png", "b/worse.png"} {
		data := good
		if strings.Contains(name, "bad") || strings.Contains(name, "worse") {
			data = data[:20]
		}
		imagefiletest.WriteApart(t, filepath.Join("photos", name), data)
	}
	_, _, _, err := Import(t.Context(), "photos", "", "data", false, false)
	for _, want := range []string{filepath.Join("photos", "a", "bad.png"),
		filepath.Join("photos", "b", "worse.png")} {
		must.Fail(err)(t, "\n"+want+": ", want)
	}
	if left, _ := os.ReadDir("data"); len(left) > 0 {
		t.Errorf("left behind: %v", left)
	}
	_, to, bad, err := Import(t.Context(), "photos", "", "data", false, true)
	if err != nil || len(bad) != 2 {
		t.Fatalf("%d images were left out (%v); want 2", len(bad), err)
	}
	ds, err := dataset.Load(t.Context(), dataset.Options{Name: "photos", Dir: "data"})
	if err != nil || ds.Train.N+ds.Test.N != 6 {
		t.Errorf("what was imported: %v", err)
	}
	must.Fail(os.Stat(filepath.Join(to, "a", "bad.png")))(t, "", "a bad image was copied")
}

// TestLeftoversOfAKilledImportAreRemoved: hundreds of megabytes, perhaps, that nothing else would
// ever remove.
func TestLeftoversOfAKilledImportAreRemoved(t *testing.T) {
	from, dir := filepath.Join(t.TempDir(), "mine"), t.TempDir()
	for _, path := range []string{filepath.Join(from, "data_batch_1.bin"),
		filepath.Join(from, "test_batch.bin"),
		filepath.Join(dir, ".cifar-10-batches-bin.123", "new", "data_batch_1.bin"),
		filepath.Join(dir, ".cifar-10-batches-bin.tmp", "new", "data_batch_2.bin"),
		filepath.Join(dir, ".cifar-10-batches-bin.tmp", ".lock"), // which Windows has in any case
		filepath.Join(dir, ".other.123", "new", "data_batch_1.bin")} {
		imagefiletest.Write(t, path, all10)
	}
	_, to, _, err := Import(t.Context(), from, "", dir, false, false)
	if err != nil {
		t.Fatal(err)
	}
	must.Fail(os.Stat(filepath.Join(to, "data_batch_2.bin")))(t, "",
		"a file of the killed import is in the new one")
	entries := must.Get(os.ReadDir(dir))(t)
	var names []string
	for _, e := range entries {
		names = append(names, e.Name())
	}
	if want := []string{".other.123", "cifar-10-batches-bin"}; !slices.Equal(names, want) {
		t.Errorf("there are %v, want %v", names, want)
	}
}

// TestKilledReplacement: the data set of a name is its old folder until another stands in its
// place, wherever a program was killed and whatever becomes of the next call.
func TestKilledReplacement(t *testing.T) {
	for name, c := range map[string]struct {
		there []string // folders before, each with a file of its path
		fill  error
		want  string
	}{
		"between, then no data":  {[]string{".set.tmp/old"}, io.ErrUnexpectedEOF, ".set.tmp/old"},
		"between, then data":     {[]string{".set.tmp/old"}, nil, "new"},
		"after, then no data":    {[]string{".set.tmp/old", "set"}, io.ErrUnexpectedEOF, "set"},
		"before, then no data":   {[]string{".set.tmp/new", "set"}, io.ErrUnexpectedEOF, "set"},
		"nothing, then new data": {nil, nil, "new"},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			for _, folder := range c.there {
				imagefiletest.Write(t, filepath.Join(dir, folder, "a"), []byte(folder))
			}
			to := filepath.Join(dir, "set")
			err := place(t.Context(), to, func(tmp string) error {
				return errors.Join(c.fill, os.WriteFile(filepath.Join(tmp, "a"), []byte("new"), 0o600))
			})
			if !errors.Is(err, c.fill) {
				t.Errorf("%v, want %v", err, c.fill)
			}
			if got := string(must.Get(os.ReadFile(filepath.Join(to, "a")))(t)); got != c.want {
				t.Errorf("the folder is that of %s, want %s", got, c.want)
			}
			if all := must.Get(os.ReadDir(dir))(t); len(all) != 1 {
				t.Errorf("there are %v", all)
			}
		})
	}
}

// FuzzUnpack takes an archive apart, gzipped here unless the input is to be that itself: files of
// the wanted names alone, none longer than it may be, nothing outside the folder, and at most 8
// bytes of memory for each byte of the archive besides what the format's extended headers may hold
// (2 MiB, archive/tar's bound).
func FuzzUnpack(f *testing.F) {
	raw := func(data []byte) []byte {
		z := must.Get(gzip.NewReader(bytes.NewReader(data)))(f)
		return must.Get(io.ReadAll(z))(f)
	}
	good := archive(f, entry{"d/", tar.TypeDir, nil}, entry{"d/a.bin", tar.TypeReg, []byte("hello")},
		entry{"../b.bin", tar.TypeReg, []byte("you")}, entry{"a.bin", tar.TypeSymlink, nil})
	f.Add(good, false)
	f.Add(raw(good), true)
	f.Add(raw(archive(f, entry{"a.bin", tar.TypeReg, make([]byte, 2000)})), true)
	f.Add([]byte("no archive"), false)
	outside := f.TempDir()
	path := filepath.Join(outside, "a.tar.gz")
	f.Fuzz(func(t *testing.T, data []byte, pack bool) {
		if pack {
			var b bytes.Buffer
			z := must.Get(gzip.NewWriterLevel(&b, gzip.NoCompression))(t)
			z.Write(data)
			z.Close()
			data = b.Bytes()
		}
		must.Do(t, os.WriteFile(path, data, 0o644))
		to := filepath.Join(outside, "to")
		must.Do(t, os.Mkdir(to, 0o755))
		defer os.RemoveAll(to)
		alloctest.AtMost(t, 8*len(data)+2<<20, func() {
			_ = unpack(t.Context(), path, to, map[string]int64{"a.bin": 1000, "b.bin": 10})
		})
		for dir, allowed := range map[string]map[string]int64{to: {"a.bin": 1000, "b.bin": 10},
			outside: {"a.tar.gz": 1 << 40, "to": 1 << 40}} {
			entries := must.Get(os.ReadDir(dir))(t)
			for _, e := range entries {
				st, err := os.Lstat(filepath.Join(dir, e.Name()))
				if limit, ok := allowed[e.Name()]; err != nil || !ok || st.Size() > limit ||
					st.Mode()&os.ModeSymlink != 0 {
					t.Errorf("%s of %d bytes was made, %v", e.Name(), st.Size(), err)
				}
			}
		}
	})
}

// TestPlaceAtOnce: of many that place a folder at once each has it alone, or is told so.
func TestPlaceAtOnce(t *testing.T) {
	to := filepath.Join(t.TempDir(), "set")
	var g errgroup.Group
	for range 6 {
		g.Go(func() error {
			for range 1000 {
				err := place(t.Context(), to, func(tmp string) error {
					return os.WriteFile(filepath.Join(tmp, dataset.SumsFile), nil, 0o600)
				})
				if err != nil && !strings.Contains(err.Error(), "another fmp is at work") {
					return err
				}
			}
			return nil
		})
	}
	must.Do(t, g.Wait())
	must.Get(os.Stat(filepath.Join(to, dataset.SumsFile)))(t)
	if left := must.Get(filepath.Glob(filepath.Join(filepath.Dir(to), ".*")))(t); len(left) > 0 {
		t.Errorf("left behind: %v", left)
	}
}
