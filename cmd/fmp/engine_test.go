package main

import (
	"path/filepath"
	"strings"
	"testing"

	"fmp/onnx/engine/ort"
	"fmp/pipeline/settings"
)

func TestOpenEngine(t *testing.T) {
	t.Setenv("XDG_CACHE_HOME", t.TempDir())
	t.Setenv(ort.LibraryEnv, "")
	if lib, _, err := ort.FindLibrary(""); err == nil {
		t.Skipf("this system has a library of its own: %s", lib)
	}
	gone := filepath.Join(t.TempDir(), "gone.so")
	for _, c := range []struct {
		name     string
		cfg      settings.Engine
		env      string
		engine   string
		code     int
		contains string // of what is said
	}{
		{"pure by name", settings.Engine{Name: "pure"}, "", "pure", exitOK, ""},
		{"pure in the runtime's place", settings.Engine{Name: "auto", Provider: "cpu"}, "", "pure",
			exitOK, "pure-Go engine"},
		{"ort by name", settings.Engine{Name: "ort"}, "", "", exitMissing, "make setup"},
		{"library by name", settings.Engine{Name: "auto", Library: gone}, "", "", exitMissing, gone},
		{"library of the environment", settings.Engine{Name: "auto"}, gone, "", exitMissing, gone},
		{"provider by name", settings.Engine{Name: "auto", Provider: "cuda"}, "", "",
			exitMissing, "make setup"},
		{"unknown engine", settings.Engine{Name: "tf"}, "", "", exitUsage,
			"allowed are auto, ort, pure"},
		{"pure on another provider", settings.Engine{Name: "pure", Provider: "cuda"}, "", "",
			exitUsage, "cuda"},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Setenv(ort.LibraryEnv, c.env)
			var said strings.Builder
			e, err := openEngine(t.Context(), c.cfg, 1, &said)
			if err != nil {
				said.WriteString(err.Error())
			} else if e.Name() != c.engine {
				t.Errorf("engine %s, want %s", e.Name(), c.engine)
			}
			if exitCode(err) != c.code || !strings.Contains(said.String(), c.contains) ||
				c.contains == "" &&
					said.String() != "" {
				t.Errorf("exit code %d, said %q; want %d and %q", exitCode(err), said.String(),
					c.code, c.contains)
			}
		})
	}
	_, said := ran(t, "onnx", "test", backendTest(t, 2), "--engine", "auto")
	if strings.Count(said, "pure-Go engine") != 1 {
		t.Errorf("two models in the runtime's place: said %q; want it once", said)
	}
}
