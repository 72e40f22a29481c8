// Package examples runs the shell examples beside it, as they stand.
package examples

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"fmp/onnx/must"
)

// TestExamples builds the programs and runs every script in an empty folder, with the programs on
// its path.
func TestExamples(t *testing.T) {
	if testing.Short() {
		t.Skip("runs whole experiments")
	}
	bin := programs(t)
	scripts, err := filepath.Glob("*.sh")
	if err != nil || len(scripts) == 0 {
		t.Fatalf("no examples found: %v", err)
	}
	for _, s := range scripts {
		if s == played { // has a test of its own
			continue
		}
		t.Run(strings.TrimSuffix(s, ".sh"), func(t *testing.T) {
			// of what clients approve and spend
			env := append(environment(bin), "XDG_CONFIG_HOME="+t.TempDir())
			t.Logf("%s", shell(t, t.TempDir(), env, "sh "+must.Get(filepath.Abs(s))(t)))
		})
	}
}

// programs builds the programs into a folder.
func programs(t *testing.T) string {
	t.Helper()
	bin := t.TempDir()
	for _, p := range []string{"fmp", "fmp-edge"} {
		if out, err := exec.Command("go", "build", "-buildvcs=false", "-o", filepath.Join(bin, p),
			"fmp/cmd/"+p).CombinedOutput(); err != nil {
			t.Fatalf("building %s: %v\n%s", p, err, out)
		}
	}
	return bin
}

// place builds the programs and returns an empty folder and a function that runs commands there, with
// the programs on their path and the folder for what clients approve and spend.
func place(t *testing.T) (dir string, run func(command string) []byte) {
	t.Helper()
	dir = t.TempDir()
	env := append(environment(programs(t)), "XDG_CONFIG_HOME="+dir)
	return dir, func(command string) []byte {
		t.Helper()
		return shell(t, dir, env, command)
	}
}

// shell runs commands in a folder with an environment, and returns what they print.
func shell(t *testing.T, dir string, env []string, command string) []byte {
	t.Helper()
	cmd := exec.Command("sh", "-c", command)
	cmd.Dir, cmd.Env = dir, env
	var stdout, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	if err := cmd.Run(); err != nil {
		t.Fatalf("%s: %v\n%s\n%s", command, err, stdout.String(), stderr.String())
	}
	return stdout.Bytes()
}

// printed are the lines of a text, without spaces at their ends and empty lines at its end.
func printed(text []byte) (lines []string) {
	for line := range strings.Lines(strings.TrimRight(string(text), "\n")) {
		lines = append(lines, strings.TrimRight(line, " \n"))
	}
	return lines
}

// environment is that of a command with the programs on its path. Settings of whoever runs the
// tests must not reach the examples; where data and library lie may.
func environment(bin string) []string {
	var out []string
	for _, v := range os.Environ() {
		if name, _, _ := strings.Cut(v, "="); strings.HasPrefix(name, "FMP_") && name != "FMP_DATA" &&
			name != "FMP_ENGINE_LIBRARY" {
			continue
		}
		out = append(out, v)
	}
	return append(out, "PATH="+bin+string(os.PathListSeparator)+os.Getenv("PATH"))
}
