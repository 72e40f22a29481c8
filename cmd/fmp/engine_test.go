package main

import (
	"path/filepath"
	"strings"
	"testing"

	"fmp/onnx/engine/ort"
	"fmp/pipeline/lab/experiment"
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
		cfg      experiment.Engine
		env      string
		engine   string
		code     int
		contains string // of what is said
	}{
		{"pure by name", experiment.Engine{Name: "pure"}, "", "pure", exitOK, ""},
		{"pure in the runtime's place", experiment.Engine{Name: "auto", Provider: "cpu"}, "", "pure", exitOK, "pure-Go engine"},
		{"ort by name", experiment.Engine{Name: "ort"}, "", "", exitMissing, "make setup"},
		{"library by name", experiment.Engine{Name: "auto", Library: gone}, "", "", exitMissing, gone},
		{"library of the environment", experiment.Engine{Name: "auto"}, gone, "", exitMissing, gone},
		{"provider by name", experiment.Engine{Name: "auto", Provider: "cuda"}, "", "", exitMissing, "make setup"},
		{"unknown engine", experiment.Engine{Name: "tf"}, "", "", exitUsage, "allowed are auto, ort, pure"},
		{"pure on another provider", experiment.Engine{Name: "pure", Provider: "cuda"}, "", "", exitUsage, "cuda"},
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
			if exitCode(err) != c.code || !strings.Contains(said.String(), c.contains) || c.contains == "" && said.String() != "" {
				t.Errorf("exit code %d, said %q; want %d and %q", exitCode(err), said.String(), c.code, c.contains)
			}
		})
	}
}
