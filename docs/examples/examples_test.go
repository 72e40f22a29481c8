// Package examples runs the shell examples beside it, as they stand.
package examples

import (
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
	sh, err := exec.LookPath("sh")
	if err != nil {
		t.Skipf("needs a shell: %v", err)
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
			path := must.Get(filepath.Abs(s))(t)
			cmd := exec.Command(sh, path)
			cmd.Dir = t.TempDir()
			// of what clients approve and spend
			cmd.Env = append(environment(bin), "XDG_CONFIG_HOME="+t.TempDir())
			out, err := cmd.CombinedOutput()
			if err != nil {
				t.Fatalf("%v\n%s", err, out)
			}
			if testing.Verbose() {
				t.Logf("%s", out)
			}
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
