package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"go/ast"
	"go/importer"
	"go/parser"
	"go/token"
	"go/types"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"fmp/onnx/must"
)

// TestList applies each mutation and checks the types of the changed file: one that is stale, or does
// not compile, shows long after the change that broke it, on the day of its turn. Bodies of the
// package's other files are left out, which makes it milliseconds each.
func TestList(t *testing.T) {
	t.Chdir(filepath.Join("..", ".."))
	all := must.Get(parse(string(must.Get(os.ReadFile("docs/mutate/mutations.txt"))(t))))(t)
	b := must.Get(readBuild())(t)
	for _, m := range all {
		if err := b.check(m); err != nil {
			t.Errorf("%s: %s -> %s: %v", m.file, strings.TrimSpace(m.old), strings.TrimSpace(m.new), err)
		}
	}
	broken := mutation{file: "docs/mutate/main.go", old: "\tall = some\n", new: "\tunused := some\n"}
	must.Fail(b.check(broken))(t, "declared and not used", "a variable that nothing reads")
}

// build is what the compiler knows of this repository's packages, by folder.
type build struct {
	fset     *token.FileSet
	imports  types.Importer
	packages map[string]builtPackage
	outlines map[string]*ast.File // files without their bodies
}

type builtPackage struct {
	Dir, ImportPath, Export string
	GoFiles, CgoFiles       []string
}

// readBuild compiles what is not yet compiled.
func readBuild() (*build, error) {
	out, err := exec.Command("go", "list", "-tags=grpcnotrace", "-export", "-deps",
		"-json=Dir,ImportPath,Export,GoFiles,CgoFiles", "./...").Output()
	var failed *exec.ExitError
	if errors.As(err, &failed) {
		return nil, fmt.Errorf("go list: %w: %s", err, failed.Stderr)
	}
	if err != nil {
		return nil, err
	}
	b := &build{fset: token.NewFileSet(), packages: map[string]builtPackage{},
		outlines: map[string]*ast.File{}}
	exports := map[string]string{}
	for d := json.NewDecoder(strings.NewReader(string(out))); ; {
		var p builtPackage
		if err := d.Decode(&p); errors.Is(err, io.EOF) {
			break
		} else if err != nil {
			return nil, err
		}
		exports[p.ImportPath] = p.Export
		b.packages[p.Dir] = p
	}
	b.imports = importer.ForCompiler(b.fset, "gc", func(path string) (io.ReadCloser, error) {
		return os.Open(exports[path])
	})
	return b, nil
}

// check applies a mutation and returns the first error in the changed file. Files of other systems
// are read without their types.
func (b *build) check(m mutation) error {
	file, err := filepath.Abs(m.file)
	if err != nil {
		return err
	}
	changed, err := m.changed()
	if err != nil || filepath.Ext(file) != ".go" {
		return err
	}
	one, err := parser.ParseFile(b.fset, file, changed, parser.SkipObjectResolution)
	if err != nil {
		return err
	}
	p := b.packages[filepath.Dir(file)]
	names := slices.Concat(p.GoFiles, p.CgoFiles)
	if !slices.Contains(names, filepath.Base(file)) {
		return nil
	}
	files := []*ast.File{one}
	for _, name := range names {
		if name = filepath.Join(p.Dir, name); name != file {
			f, err := b.outline(name)
			if err != nil {
				return err
			}
			files = append(files, f)
		}
	}
	var first error
	config := types.Config{Importer: b.imports, FakeImportC: true, Error: func(err error) {
		var e types.Error
		if errors.As(err, &e) && first == nil && b.fset.Position(e.Pos).Filename == file {
			first = fmt.Errorf("%v", e.Msg)
		}
	}}
	_, _ = config.Check(p.ImportPath, b.fset, files, nil)
	return first
}

// outline returns the declarations of a file.
func (b *build) outline(name string) (*ast.File, error) {
	if f := b.outlines[name]; f != nil {
		return f, nil
	}
	f, err := parser.ParseFile(b.fset, name, nil, parser.SkipObjectResolution)
	if err != nil {
		return nil, err
	}
	for _, d := range f.Decls {
		if f, is := d.(*ast.FuncDecl); is {
			f.Body = &ast.BlockStmt{}
		}
	}
	b.outlines[name] = f
	return f, nil
}
