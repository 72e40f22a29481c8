package ort

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"io"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"fmp/onnx/alloctest"
	"fmp/onnx/must"
)

// fakeNPM puts an npm into $PATH that leaves the given archive where `npm pack` would, or fails.
func fakeNPM(t *testing.T, archive []byte, script string) {
	t.Helper()
	if runtime.GOOS == "windows" {
		t.Skip("stands in for npm with a shell script")
	}
	dir := t.TempDir()
	tgz := filepath.Join(dir, "the.tgz")
	must.Do(t, os.WriteFile(tgz, archive, 0o644))
	if script == "" {
		script = "cp '" + tgz + "' \"$5\"/onnxruntime-node.tgz"
	}
	must.Do(t, os.WriteFile(filepath.Join(dir, "npm"), []byte("#!/bin/sh\n"+script+"\n"), 0o755))
	t.Setenv("PATH", dir+":"+os.Getenv("PATH"))
}

func archive(t testing.TB, members map[string]string) []byte {
	t.Helper()
	var buf bytes.Buffer
	z := gzip.NewWriter(&buf)
	w := tar.NewWriter(z)
	for name, content := range members {
		must.Do(t, w.WriteHeader(&tar.Header{Name: name, Mode: 0o644, Size: int64(len(content)),
			Typeflag: tar.TypeReg}))
		must.Get(w.Write([]byte(content)))(t)
	}
	must.Do(t, w.Close())
	must.Do(t, z.Close())
	return buf.Bytes()
}

func wantedFile(content string) []libraryFile {
	sum := sha256.Sum256([]byte(content))
	return []libraryFile{{"package/lib.so", "lib.so", hex.EncodeToString(sum[:])}}
}

func TestFetch(t *testing.T) {
	fakeNPM(t, archive(t, map[string]string{"package/lib.so": "the library", "package/../../evil": "x",
		"package/other": "y"}), "")
	t.Chdir(t.TempDir())
	dir := filepath.Join("cache", "v") // as make release gives it
	var said []string
	say := func(s string) { said = append(said, s) }
	for range 2 {
		path := must.Get(fetch(t.Context(), dir, wantedFile("the library"), say))(t)
		if b, err := os.ReadFile(path); err != nil || string(b) != "the library" {
			t.Fatalf("%s holds %q (%v)", path, b, err)
		}
	}
	if last := said[len(said)-1]; !strings.Contains(last, "is there") {
		t.Errorf("the second time it said %q", last)
	}
	// A damaged library is replaced.
	must.Do(t, os.WriteFile(filepath.Join(dir, "lib.so"), []byte("damaged"), 0o644))
	path := must.Get(fetch(t.Context(), dir, wantedFile("the library"), say))(t)
	if b, _ := os.ReadFile(path); string(b) != "the library" {
		t.Errorf("a damaged library stayed: %q", b)
	}
	onlyEntries(t, filepath.Dir(dir), "v")
	onlyEntries(t, dir, "lib.so")
}

func TestFetchErrorsLeaveNothing(t *testing.T) {
	good := archive(t, map[string]string{"package/lib.so": "the library"})
	for _, c := range []struct {
		name, script string
		archive      []byte
		want         string
	}{
		{"another library", "", archive(t, map[string]string{"package/lib.so": "tampered"}),
			"not the published library"},
		{"library missing", "", archive(t, map[string]string{"package/README": "x"}),
			"holds no package/lib.so"},
		{"archive cut short", "", good[:len(good)/2], "reading onnxruntime-node.tgz"},
		{"not an archive", "", []byte("<html>"), "reading onnxruntime-node.tgz"},
		{"npm fails", "echo ENETUNREACH >&2; exit 1", nil, "ENETUNREACH"},
		{"npm leaves nothing", "true", nil, "left 0 archives"},
	} {
		t.Run(c.name, func(t *testing.T) {
			fakeNPM(t, c.archive, c.script)
			dir := filepath.Join(t.TempDir(), "cache", "v")
			_, err := fetch(t.Context(), dir, wantedFile("the library"), func(string) {})
			must.Fail(err)(t, c.want)
			onlyEntries(t, filepath.Dir(dir))
		})
	}
	t.Run("no npm", func(t *testing.T) {
		t.Setenv("PATH", t.TempDir())
		_, err := fetch(t.Context(), filepath.Join(t.TempDir(), "c", "v"), wantedFile("x"),
			func(string) {})
		must.Fail(err)(t, "install Node.js")
	})
	t.Run("cancelled", func(t *testing.T) {
		fakeNPM(t, good, "")
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		dir := filepath.Join(t.TempDir(), "c", "v")
		if _, err := fetch(ctx, dir, wantedFile("the library"), func(string) {}); !errors.Is(err,
			context.Canceled) {
			t.Errorf("got %v, want context.Canceled", err)
		}
		onlyEntries(t, filepath.Dir(dir))
	})
	t.Run("cache cannot be written", func(t *testing.T) {
		fakeNPM(t, good, "")
		file := touch(t, filepath.Join(t.TempDir(), "file"))
		must.Fail(fetch(t.Context(), filepath.Join(file, "v"), wantedFile("the library"),
			func(string) {}))(t, file)
	})
}

// onlyEntries fails unless dir holds just the given names.
func onlyEntries(t *testing.T, dir string, want ...string) {
	t.Helper()
	es := must.Get(os.ReadDir(dir))(t)
	var got []string
	for _, e := range es {
		got = append(got, e.Name())
	}
	if strings.Join(got, " ") != strings.Join(want, " ") {
		t.Errorf("%s holds %v, want %v", dir, got, want)
	}
}

func TestEveryPlatformEndsWithALibrary(t *testing.T) {
	for platform, files := range libraryFiles {
		for _, f := range files {
			if len(f.sha256) != 64 {
				t.Errorf("%s: %s has no digest", platform, f.name)
			}
		}
		if last := files[len(files)-1].name; !strings.Contains(last, "onnxruntime") {
			t.Errorf("%s: the last file is %s", platform, last)
		}
	}
	if files, ok := libraryFiles[runtime.GOOS+"/"+runtime.GOARCH]; ok &&
		files[len(files)-1].name != libraryNames()[0] {
		t.Errorf("fetched as %s and looked for as %s", files[len(files)-1].name, libraryNames()[0])
	}
}

// FuzzUnpack: of an archive only the wanted file is ever made, and where no error comes it is the
// published one; at most 8 bytes of memory for each byte of the archive besides what the format's
// extended headers may hold (2 MiB, archive/tar's bound).
func FuzzUnpack(f *testing.F) {
	good := archive(f, map[string]string{"package/lib.so": "the library", "../x": "y"})
	z := must.Get(gzip.NewReader(bytes.NewReader(good)))(f)
	raw := must.Get(io.ReadAll(z))(f)
	f.Add(good, false)
	f.Add(raw, true)
	f.Add(raw[:600], true)
	outside := f.TempDir()
	path := filepath.Join(outside, "a.tgz")
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
		var err error
		alloctest.AtMost(t, 8*len(data)+2<<20,
			func() { err = unpack(t.Context(), path, to, wantedFile("the library")) })
		content, rerr := os.ReadFile(filepath.Join(to, "lib.so"))
		if err == nil && string(content) != "the library" {
			t.Errorf("%q was installed (%v)", content, rerr)
		}
		os.Remove(filepath.Join(to, "lib.so"))
		for dir, want := range map[string]int{to: 0, outside: 2} {
			if left, err := os.ReadDir(dir); err != nil || len(left) != want {
				t.Errorf("%s holds %v (%v)", dir, left, err)
			}
		}
	})
}
