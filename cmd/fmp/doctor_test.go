package main

import (
	"encoding/json"
	"path/filepath"
	"strings"
	"testing"

	"fmp/onnx/engine/ort"
)

func doctor(t *testing.T, args ...string) (int, diagnosis) {
	t.Helper()
	code, out, errs := runFMP(t, append([]string{"doctor", "--json"}, args...)...)
	var d diagnosis
	if err := json.Unmarshal([]byte(out), &d); err != nil {
		t.Fatalf("exit code %d, %v: %s%s", code, err, out, errs)
	}
	return code, d
}

func (d *diagnosis) find(name string) finding {
	for _, f := range d.Findings {
		if f.Name == name {
			return f
		}
	}
	return finding{}
}

func TestDoctorFindsTheRuntime(t *testing.T) {
	needRuntime(t)
	code, d := doctor(t)
	if code != exitOK || !d.Healthy || d.Version == "" || d.find("ONNX Runtime").State != stateOK ||
		d.find("provider cpu").State != stateOK {
		t.Errorf("exit code %d: %+v", code, d)
	}
	if out, _ := ran(t, "doctor"); strings.Contains(out, "\x1b") || !strings.Contains(out, d.Library) {
		t.Errorf("printed:\n%s", out)
	}
}

func TestDoctorSaysWhatIsMissing(t *testing.T) {
	gone := filepath.Join(t.TempDir(), "gone.so")
	for _, c := range []struct {
		name    string
		args    []string
		finding string
		state   string
		code    int
	}{
		{"library", []string{"--engine.library", gone}, "ONNX Runtime", stateMissing, exitMissing},
		{"library that is not needed", []string{"--engine.library", gone, "--engine", "pure"},
			"ONNX Runtime", stateAbsent, exitOK},
		{"library that was not asked for", []string{"--engine", "auto"}, "pure engine",
			stateOK, exitOK},
		{"data set", []string{"--dataset", "cifar10", "--data-dir", t.TempDir(), "--engine", "pure"},
			"data cifar10", stateMissing, exitMissing},
		{"data set that is not needed", []string{"--data-dir", t.TempDir(), "--engine", "pure"},
			"data cifar10", stateAbsent, exitOK},
		{"folder of images", []string{"--dataset", "./nowhere", "--engine", "pure"}, "data ./nowhere",
			stateMissing, exitMissing},
	} {
		t.Run(c.name, func(t *testing.T) {
			if c.state == stateOK {
				t.Setenv(ort.LibraryEnv, "")
				t.Setenv("XDG_CACHE_HOME", t.TempDir())
			}
			code, d := doctor(t, c.args...)
			f := d.find(c.finding)
			if code != c.code || f.State != c.state || f.Detail+f.Advice == "" ||
				d.Healthy != (c.code == exitOK) {
				t.Errorf("exit code %d, finding %+v; want %d and %s with advice", code, f,
					c.code, c.state)
			}
		})
	}
	t.Run("cache that cannot be written", func(t *testing.T) {
		t.Setenv("XDG_CACHE_HOME", writeFile(t, "file", ""))
		t.Setenv(ort.LibraryEnv, "")
		code, d := doctor(t, "--engine", "pure")
		if f := d.find("cache folder"); code != exitMissing || f.State != stateMissing ||
			f.Advice == "" {
			t.Errorf("exit code %d, finding %+v", code, f)
		}
	})
}
