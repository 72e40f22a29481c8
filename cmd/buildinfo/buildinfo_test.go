package buildinfo

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime/debug"
	"strings"
	"testing"

	"fmp/onnx/must"
)

func TestVersion(t *testing.T) {
	for recorded, want := range map[string]string{
		"":                                   Next,
		"(devel)":                            Next,
		"v0.0.0-20261122134514-3b6dd08c0ffe": Next,
		"v0.0.0-20261122134514-3b6dd08c0ffe+dirty": Next,
		"v0.1.0":       "0.1.0",
		"v0.1.0+dirty": "0.1.0+dirty",
		"v0.1.1-0.20261122134514-3b6dd08c0ffe+dirty": "0.1.1-0.20261122134514-3b6dd08c0ffe+dirty",
		"v1.2.3-rc.1": "1.2.3-rc.1",
	} {
		if got := Version(&debug.BuildInfo{Main: debug.Module{Version: recorded}}); got != want {
			t.Errorf("%q: %q, want %q", recorded, got, want)
		}
	}
	for want, i := range map[string]Info{
		"1.0.0 (go1.26, linux/amd64)": {Version: "1.0.0", Go: "go1.26", Platform: "linux/amd64"},
		"1.0.0 (commit 0123456789ab, modified, go1.26, linux/amd64)": {Version: "1.0.0",
			Revision: "0123456789abcdef", Modified: true,
			Go: "go1.26", Platform: "linux/amd64"},
		"1.0.0 (commit 01, go1.26, linux/amd64)": {Version: "1.0.0", Revision: "01", Go: "go1.26",
			Platform: "linux/amd64"},
	} {
		if i.String() != want {
			t.Errorf("%q, want %q", i, want)
		}
	}
}

// TestCitation: CITATION.cff names the version of the sources.
func TestCitation(t *testing.T) {
	text := must.Get(os.ReadFile(filepath.Join("..", "..", "CITATION.cff")))(t)
	if !strings.Contains(string(text), "\nversion: "+Next+"\n") {
		t.Errorf("CITATION.cff does not say version: %s", Next)
	}
}

// TestTag: a program that is built from a tagged commit says the tag's version, and one that is
// built later says that it is later.
func TestTag(t *testing.T) {
	if _, err := exec.LookPath("git"); err != nil {
		t.Skip("needs git")
	}
	dir := t.TempDir()
	own := must.Get(filepath.Abs("buildinfo.go"))(t)
	source := must.Get(os.ReadFile(own))(t)
	for name, text := range map[string]string{
		"go.mod": "module fmp\n\ngo 1.26\n",
		"main.go": "package main\n\nimport " +
			"(\n\t\"fmt\"\n\n\t\"fmp/buildinfo\"\n)\n\nfunc main() { fmt.Println(buildinfo.Read()) }\n",
		"buildinfo/buildinfo.go": string(source),
	} {
		must.Do(t, os.MkdirAll(filepath.Dir(filepath.Join(dir, name)), 0o755))
		must.Do(t, os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600))
	}
	run := func(name string, args ...string) string {
		t.Helper()
		cmd := exec.Command(name, args...)
		cmd.Dir = dir
		cmd.Env = append(os.Environ(), "GOFLAGS=", "GOWORK=off", "GIT_CONFIG_GLOBAL=/dev/null",
			"GIT_AUTHOR_NAME=a", "GIT_AUTHOR_EMAIL=a@example.invalid", "GIT_COMMITTER_NAME=a",
			"GIT_COMMITTER_EMAIL=a@example.invalid")
		out, err := cmd.CombinedOutput()
		if err != nil {
			t.Fatalf("%s %v: %v\n%s", name, args, err, out)
		}
		return string(out)
	}
	version := func(want string) {
		t.Helper()
		run("go", "build", "-buildvcs=true", "-o", "program.exe", ".")
		if got := run(filepath.Join(dir, "program.exe")); !regexp.MustCompile(
			"^" + want + ` \(commit [0-9a-f]{12}, go`).MatchString(got) {
			t.Errorf("printed %q; want %s and the commit", strings.TrimSpace(got), want)
		}
	}
	run("git", "init", "-q")
	must.Do(t, os.WriteFile(filepath.Join(dir, ".gitignore"), []byte("*.exe\n"), 0o600))
	run("git", "add", ".")
	run("git", "commit", "-qm", "a")
	version(regexp.QuoteMeta(Next))
	run("git", "tag", "v0.1.0")
	version(`0\.1\.0`)
	run("git", "commit", "-qm", "b", "--allow-empty")
	version(`0\.1\.1-0\.\d{14}-[0-9a-f]{12}`)
}
