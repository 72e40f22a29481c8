package run_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"

	"fmp/onnx/must"
	"fmp/onnx/run"
	"fmp/onnx/serde"
)

// Bounds of the program that a page begins with.
const (
	maxLines = 25
	maxBytes = 9_650_000 // of its file as go build writes it, with tables for debuggers
)

// linked are the modules that such a program links and downloads, beside the standard library and
// this one.
var linked = []string{"github.com/gofrs/flock", "golang.org/x/sys", "gonum.org/v1/gonum",
	"google.golang.org/protobuf"}

// programs returns the first three blocks of the page: a whole program, the lines of a shell that
// run it, and a function.
func programs(t *testing.T) (first, lines, second string) {
	t.Helper()
	page := must.Get(os.ReadFile(filepath.Join("..", "README.md")))(t)
	blocks := regexp.MustCompile("(?s)```(\\w*)\n(.*?)```").FindAllSubmatch(page, 3)
	for i, language := range []string{"go", "sh", "go"} {
		if len(blocks) < 3 || string(blocks[i][1]) != language {
			t.Fatalf("block %d of onnx/README.md is not in %s", i+1, language)
		}
	}
	return string(blocks[0][2]), string(blocks[1][2]), string(blocks[2][2])
}

// elsewhere returns the folder of a module of its own that holds a program, the path of this
// module, and what runs commands there.
func elsewhere(t *testing.T,
	src string) (dir, module string, command func(name string, args ...string) string) {
	t.Helper()
	root := must.Get(filepath.Abs(filepath.Join("..", "..")))(t)
	dir = t.TempDir()
	// make module changes it
	module = strings.TrimSuffix(reflect.TypeFor[run.Session]().PkgPath(), "/onnx/run")
	mod := "module example.com/stranger\n\ngo 1.26.0\n\nrequire " + module + " v0.0.0\n\nreplace " +
		module + " => " + root + "\n"
	for name, text := range map[string]string{"main.go": src, "go.mod": mod} {
		must.Do(t, os.WriteFile(filepath.Join(dir, name), []byte(text), 0o644))
	}
	return dir, module, func(name string, args ...string) string {
		t.Helper()
		c := exec.Command(name, args...)
		c.Dir = dir
		c.Env = append(os.Environ(), "GOWORK=off", "GOFLAGS=-mod=mod", "CGO_ENABLED=0")
		var errs strings.Builder
		c.Stderr = &errs
		out, err := c.Output()
		if err != nil {
			t.Fatalf("%s %v: %v\n%s%s", name, args, err, out, errs.String())
		}
		return string(out)
	}
}

// printed is what the first program says of classifier.
const printed = "[image float32[batch,3,224,224]] [scores float32[batch,3]]\n[1 3] [0 0 0]\n"

// TestTaken: the lines below the first program take this module from a folder beside a stranger's,
// and run the program.
func TestTaken(t *testing.T) {
	if testing.Short() {
		t.Skip("it compiles a program")
	}
	src, lines, _ := programs(t)
	dir, module, command := elsewhere(t, src)
	if module != "fmp" {
		t.Skip("the module has a public path")
	}
	root := must.Get(filepath.Abs(filepath.Join("..", "..")))(t)
	if err := os.Symlink(root, filepath.Join(filepath.Dir(dir), "fmp")); err != nil {
		t.Skip(err) // Windows lets few people make links
	}
	must.Do(t, os.Remove(filepath.Join(dir, "go.mod")))
	must.Do(t, serde.Save(filepath.Join(dir, "model.onnx"), classifier()))
	if got := command("sh", "-ec", lines); got != printed {
		t.Errorf("the program says %q, want %q", got, printed)
	}
}

// TestStranger: the first program of onnx/README.md is short, and does what it says in a module of
// its own, without cgo. It links and downloads nothing of the project's other dependencies.
func TestStranger(t *testing.T) {
	src, _, label := programs(t)
	if own, err := os.ReadFile("example_test.go"); err != nil ||
		!strings.Contains(string(own), label) {
		t.Errorf("example_test.go lacks the second block of onnx/README.md (%v); copy the function anew",
			err)
	}
	if n := strings.Count(src, "\n"); n > maxLines {
		t.Errorf("the program has %d lines of at most %d", n, maxLines)
	}
	if testing.Short() {
		t.Skip("it compiles a program")
	}
	dir, module, command := elsewhere(t, src)
	must.Do(t, serde.Save(filepath.Join(dir, "model.onnx"), classifier()))
	command("go", "build", "-o", "stranger", ".")
	if got, want := command(filepath.Join(dir, "stranger")), printed; got != want {
		t.Errorf("the program says %q, want %q", got, want)
	}
	st := must.Get(os.Stat(filepath.Join(dir, "stranger")))(t)
	if t.Logf("the program has %d bytes of at most %d", st.Size(), maxBytes); st.Size() > maxBytes {
		t.Errorf("the program has %d bytes, of at most %d", st.Size(), maxBytes)
	}
	// What was downloaded to be compiled has a sum in go.sum, beside sums of go.mod files alone.
	sums := must.Get(os.ReadFile(filepath.Join(dir, "go.sum")))(t)
	for line := range strings.Lines(string(sums)) {
		f := strings.Fields(line)
		if !strings.HasSuffix(f[1], "/go.mod") && !slices.Contains(linked, f[0]) {
			t.Errorf("module %s is downloaded", f[0])
		}
	}
	packages := command("go", "list", "-deps", "-f", "{{if .Standard}}std {{end}}{{.ImportPath}}", ".")
	for p := range strings.Lines(packages) {
		p = strings.TrimSpace(p)
		own := strings.HasPrefix(p, module+"/onnx") || p == "example.com/stranger"
		other := slices.ContainsFunc(linked, func(m string) bool { return strings.HasPrefix(p, m) })
		std, isStd := strings.CutPrefix(p, "std ")
		switch {
		case isStd && regexp.MustCompile(`^(net|image)(/|$)|^runtime/cgo$`).MatchString(std):
			t.Errorf("the program links %s", std)
		case !isStd && !own && !other:
			t.Errorf("the program links %s", p)
		}
	}
}
