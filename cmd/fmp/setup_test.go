package main

import (
	"os"
	"path/filepath"
	"testing"

	"fmp/onnx/engine/ort"
	"fmp/onnx/must"
)

func TestSetupErrors(t *testing.T) {
	t.Run("no npm", func(t *testing.T) {
		cache := t.TempDir()
		t.Setenv("XDG_CACHE_HOME", cache)
		t.Setenv(ort.LibraryEnv, "")
		if lib, _, err := ort.FindLibrary(""); err == nil {
			t.Skipf("this system has a library of its own: %s", lib)
		}
		t.Setenv("PATH", t.TempDir())
		refused(t, exitMissing, "install Node.js", "setup")
		if es, _ := os.ReadDir(cache); len(es) != 0 {
			t.Errorf("something was left behind: %v", es)
		}
	})
	t.Run("library of one's own that is not there", func(t *testing.T) {
		t.Setenv(ort.LibraryEnv, filepath.Join(t.TempDir(), "gone.so"))
		refused(t, exitMissing, "$"+ort.LibraryEnv, "setup")
	})
}

func TestSetupLeavesAWorkingLibraryAlone(t *testing.T) {
	needRuntime(t)
	lib, _ := must.Get2(ort.FindLibrary(""))(t)
	t.Setenv(ort.LibraryEnv, lib)
	t.Setenv("XDG_CACHE_HOME", t.TempDir())
	t.Setenv("PATH", t.TempDir())
	refused(t, exitOK, "nothing to fetch", "setup")
}
