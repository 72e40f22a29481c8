package main

import (
	"archive/zip"
	"bytes"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"fmp/onnx/must"
)

const path = "example.org/owner/fmp"

// version is another one in each run: the module cache keeps what it once fetched, and the next run
// would be given that.
var version = fmt.Sprintf("v0.1.%d", time.Now().UnixNano())

// clone copies the files of the repository that git knows, or would add, or some of them, to a new
// folder.
func clone(t *testing.T, some ...string) string {
	t.Helper()
	root := filepath.Join("..", "..")
	list := exec.Command("git",
		append([]string{"ls-files", "--cached", "--others", "--exclude-standard", "--"}, some...)...)
	list.Dir = root
	out, err := list.Output()
	if err != nil {
		t.Skipf("git does not list the files here: %v", err)
	}
	to := t.TempDir()
	for file := range strings.Lines(string(out)) {
		file = strings.TrimSuffix(file, "\n")
		data, err := os.ReadFile(filepath.Join(root, file))
		if os.IsNotExist(err) { // removed, and not yet committed
			continue
		}
		if err != nil {
			t.Fatal(err)
		}
		place := filepath.Join(to, file)
		must.Do(t, os.MkdirAll(filepath.Dir(place), 0o755))
		must.Do(t, os.WriteFile(place, data, 0o644))
	}
	return to
}

// TestRename: a renamed repository names its old path nowhere, and is what it was when it gets that
// back.
func TestRename(t *testing.T) {
	if testing.Short() {
		t.Skip("builds a copy of the repository")
	}
	root := clone(t, "go.mod", "Makefile", "docs", "pipeline/pool", "pipeline/*.go", "onnx/*.go")
	read := func(file string) string {
		data := must.Get(os.ReadFile(filepath.Join(root, file)))(t)
		return string(data)
	}
	files := []string{"go.mod", "Makefile", "pipeline/doc.go", "onnx/layers_test.go",
		"docs/architecture_test.go", "docs/contributing/method.diff"}
	before := map[string]string{}
	for _, f := range files {
		before[f] = read(f)
	}
	n, err := Rename(root, path)
	if err != nil || n < 100 {
		t.Fatalf("%d files, %v; want most of the packages", n, err)
	}
	if !strings.Contains(read("go.mod"), "module "+path+"\n") {
		t.Error("go.mod does not say the new path")
	}
	for f, words := range map[string]string{"Makefile": path + "/pipeline/page",
		"docs/architecture_test.go":     `"` + path + `/..."`,
		"docs/contributing/method.diff": `"` + path + `/pipeline/erm"`} {
		if !strings.Contains(read(f), words) {
			t.Errorf("%s does not say %s", f, words)
		}
	}
	if more, err := Rename(root, "fmp"); err != nil || more != n {
		t.Errorf("undone in %d files of %d: %v", more, n, err)
	}
	for _, f := range files {
		if read(f) != before[f] {
			t.Errorf("%s is not what it was", f)
		}
	}
	for _, bad := range []string{"", "fmp2", "example.org", "https://example.org/fmp",
		"example.org/a b", "example.org/../fmp"} {
		if _, err := Rename(root, bad); err == nil {
			t.Errorf("%q is taken for a module path", bad)
		}
	}
}

// serve writes the module as a file-backed proxy has it, and returns the proxy's address. Folders
// with a go.mod of their own are other modules; go.work is of the clone alone.
func serve(t *testing.T, root string) string {
	t.Helper()
	proxy := t.TempDir()
	dir := filepath.Join(proxy, filepath.FromSlash(path), "@v")
	must.Do(t, os.MkdirAll(dir, 0o755))
	var archive bytes.Buffer
	z := zip.NewWriter(&archive)
	must.Do(t, filepath.WalkDir(root, func(file string, d os.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if d.IsDir() {
			if _, err := os.Stat(filepath.Join(file, "go.mod")); err == nil && file != root {
				return filepath.SkipDir
			}
			return nil
		}
		rel, err := filepath.Rel(root, file)
		if err != nil {
			return err
		}
		w, err := z.Create(path + "@" + version + "/" + filepath.ToSlash(rel))
		if err != nil {
			return err
		}
		r, err := os.Open(file)
		if err != nil {
			return err
		}
		defer r.Close()
		_, err = io.Copy(w, r)
		return err
	}))
	must.Do(t, z.Close())
	mod := must.Get(os.ReadFile(filepath.Join(root, "go.mod")))(t)
	for name, data := range map[string][]byte{
		"list":            []byte(version + "\n"),
		version + ".info": []byte(`{"Version":"` + version + `","Time":"2026-01-01T00:00:00Z"}`),
		version + ".mod":  mod, version + ".zip": archive.Bytes(),
	} {
		must.Do(t, os.WriteFile(filepath.Join(dir, name), data, 0o644))
	}
	return "file://" + filepath.ToSlash(proxy)
}

// stranger is a program of somebody who found the module's page.
const stranger = `package main

import (
	"context"
	"fmt"

	"MODULE/onnx"
	"MODULE/onnx/build"
	"MODULE/onnx/run"
)

func main() {
	b := build.New("twice")
	b.Output("y", b.Mul(b.Input("x", onnx.Float32, "n"), b.F32(2)))
	m, err := b.Model()
	if err != nil {
		panic(err)
	}
	s, err := run.New(m)
	if err != nil {
		panic(err)
	}
	out, err := s.Run(context.Background(), map[string]*onnx.Tensor{"x": onnx.Vector[float32](21)})
	if err != nil {
		panic(err)
	}
	fmt.Println(out["y"].F32()[0])
}
`

// TestInstall: under a public path the programs are installed, and the packages used, from a module
// proxy by somebody without the clone.
func TestInstall(t *testing.T) {
	if testing.Short() {
		t.Skip("it compiles both programs from a proxy")
	}
	root := clone(t)
	must.Get(Rename(root, path))(t)
	upstream := must.Get(exec.Command("go", "env", "GOPROXY").Output())(t)
	home, proxy := t.TempDir(), serve(t, root)
	cache := must.Get(exec.Command("go", "env", "GOMODCACHE").Output())(t)
	t.Cleanup(func() {
		for _, kept := range []string{"cache/download/" + path + "/@v", path + "@" + version} {
			if err := os.RemoveAll(filepath.Join(strings.TrimSpace(string(cache)),
				filepath.FromSlash(kept))); err != nil {
				t.Error(err)
			}
		}
	})
	run := func(dir, name string, args ...string) string {
		t.Helper()
		c := exec.Command(name, args...)
		c.Dir = dir
		c.Env = append(os.Environ(), "GOPROXY="+proxy+","+strings.TrimSpace(string(upstream)),
			"GONOSUMDB="+path, "GOWORK=off", "GOFLAGS=-trimpath -modcacherw",
			"GOBIN="+filepath.Join(home, "bin"))
		out, err := c.CombinedOutput()
		if err != nil {
			t.Fatalf("%s %s: %v\n%s", name, strings.Join(args, " "), err, out)
		}
		return string(out)
	}
	for _, program := range []string{"fmp-edge", "fmp"} {
		run(home, "go", "install", path+"/cmd/"+program+"@"+version)
		if out := run(home, filepath.Join(home, "bin", program), "--help"); !strings.Contains(out, program) {
			t.Errorf("%s --help says %q", program, out)
		}
	}
	dir := filepath.Join(home, "stranger")
	must.Do(t, os.Mkdir(dir, 0o755))
	must.Do(t, os.WriteFile(filepath.Join(dir, "main.go"),
		[]byte(strings.ReplaceAll(stranger, "MODULE", path)), 0o644))
	run(dir, "go", "mod", "init", "example.com/stranger")
	run(dir, "go", "get", path+"@"+version)
	run(dir, "go", "mod", "tidy")
	if out := run(dir, "go", "run", "."); out != "42\n" {
		t.Errorf("the stranger's program says %q", out)
	}
}
