package ort

import (
	"errors"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"fmp/onnx/must"
)

func touch(t *testing.T, path string) string {
	t.Helper()
	must.Do(t, os.MkdirAll(filepath.Dir(path), 0o755))
	must.Do(t, os.WriteFile(path, []byte("not really a library"), 0o644))
	return path
}

func TestFindLibraryOrder(t *testing.T) {
	if runtime.GOOS != "linux" {
		t.Skip("the search path is set up as on Linux")
	}
	dir := t.TempDir()
	set := touch(t, filepath.Join(dir, "set.so"))
	env := touch(t, filepath.Join(dir, "env.so"))
	sys := touch(t, filepath.Join(dir, "sys", "libonnxruntime.so.1"))
	cached := touch(t, filepath.Join(dir, "cache", "fmp", "onnxruntime", PinnedVersion,
		libraryNames()[0]))
	t.Setenv("XDG_CACHE_HOME", filepath.Join(dir, "cache"))
	for _, c := range []struct{ name, setting, env, ld, want string }{
		{"setting first", set, env, filepath.Dir(sys), set},
		{"then environment", "", env, filepath.Dir(sys), env},
		{"then system", "", "", filepath.Dir(sys), sys},
		{"then cache", "", "", "", cached},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Setenv(LibraryEnv, c.env)
			t.Setenv("LD_LIBRARY_PATH", c.ld)
			got, tried := must.Get2(FindLibrary(c.setting))(t)
			if got != c.want && !(c.want == cached && strings.HasPrefix(got, "/usr")) {
				t.Errorf("found %s, want %s", got, c.want)
			}
			if len(tried) == 0 || tried[len(tried)-1] != got {
				t.Errorf("tried %v does not end with what was found", tried)
			}
		})
	}
}

func TestFindLibraryErrors(t *testing.T) {
	dir := t.TempDir()
	t.Setenv("XDG_CACHE_HOME", dir)
	t.Setenv(LibraryEnv, "")
	for _, c := range []struct{ name, setting, want string }{
		{"setting leads nowhere", filepath.Join(dir, "gone.so"), "engine.library"},
		{"setting is a folder", dir, "is a folder"},
	} {
		t.Run(c.name, func(t *testing.T) {
			_, _, err := FindLibrary(c.setting)
			if !errors.Is(err, ErrNoLibrary) || !strings.Contains(err.Error(), c.want) {
				t.Errorf("got %v, want one with %q", err, c.want)
			}
		})
	}
	t.Run("nothing anywhere", func(t *testing.T) {
		t.Setenv("LD_LIBRARY_PATH", "")
		p, _, err := FindLibrary("")
		if err == nil {
			t.Skipf("this system has a library of its own: %s", p)
		}
		if !errors.Is(err, ErrNoLibrary) || !strings.Contains(err.Error(), "make setup") {
			t.Errorf("got %v, want one that says what to do", err)
		}
	})
}

func TestFindLibrarySkipsOldOnes(t *testing.T) {
	if runtime.GOOS != "linux" {
		t.Skip("the names are those of Linux")
	}
	dir := t.TempDir()
	old := touch(t, filepath.Join(dir, "a", "libonnxruntime.so.1.14.1"))
	must.Do(t, os.Symlink(old, filepath.Join(dir, "a", "libonnxruntime.so.1")))
	want := touch(t, filepath.Join(dir, "b", "libonnxruntime.so.1"))
	t.Setenv(LibraryEnv, "")
	t.Setenv("LD_LIBRARY_PATH", filepath.Join(dir, "a")+":"+filepath.Join(dir, "b"))
	got, tried, err := FindLibrary("")
	if err != nil || got != want {
		t.Errorf("found %s (%v), want %s; tried %v", got, err, want, tried)
	}
	if !strings.Contains(strings.Join(tried, " "), "too old") {
		t.Errorf("tried %v does not say that one was too old", tried)
	}
}

func TestOlder(t *testing.T) {
	for _, c := range []struct {
		a, b string
		want bool
	}{{"1.14.1", "1.24", true}, {"1.24.0", "1.24", false}, {"1.27.0", "1.24", false},
		{"1.3", "1.24", true}, {"2.0", "1.24", false}} {
		if got := older(c.a, c.b); got != c.want {
			t.Errorf("older(%s, %s) = %v", c.a, c.b, got)
		}
	}
}

// TestBesideProgram: a release's library lies beside its program, which links may lead to.
func TestBesideProgram(t *testing.T) {
	dir, link := t.TempDir(), filepath.Join(t.TempDir(), "fmp")
	t.Cleanup(func(was func() (string, error)) func() { return func() { program = was } }(program))
	exe := filepath.Join(dir, "fmp")
	must.Do(t, os.WriteFile(exe, nil, 0o600))
	if err := os.Symlink(exe, link); err != nil {
		t.Skip(err)
	}
	program = func() (string, error) { return link, nil }
	t.Setenv(LibraryEnv, "")
	if p := besideProgram(); p != "" {
		t.Errorf("found %s in an empty folder", p)
	}
	want := filepath.Join(dir, libraryNames()[0])
	must.Do(t, os.WriteFile(want, []byte("not the published library"), 0o600))
	resolved := must.Get(filepath.EvalSymlinks(want))(t)
	if got, _, err := FindLibrary(""); err != nil || got != resolved {
		t.Errorf("found %s, %v; want %s", got, err, resolved)
	}
	if _, known := libraryFiles[runtime.GOOS+"/"+runtime.GOARCH]; known {
		must.Fail(checkCached(resolved, resolved))(t, "not the published",
			"a library that is not the published one")
	}
}
