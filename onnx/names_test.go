package onnx_test

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"fmp/onnx/must"
)

// exported counts the exported names of a folder's files, of all platforms, without methods and
// fields.
func exported(t *testing.T, dir string) int {
	t.Helper()
	files := must.Get(filepath.Glob(filepath.Join(dir, "*.go")))(t)
	names := map[string]bool{}
	for _, file := range files {
		if strings.HasSuffix(file, "_test.go") {
			continue
		}
		f := must.Get(parser.ParseFile(token.NewFileSet(), file, nil, parser.SkipObjectResolution))(t)
		for _, d := range f.Decls {
			switch d := d.(type) {
			case *ast.FuncDecl:
				if d.Recv == nil {
					names[d.Name.Name] = d.Name.IsExported()
				}
			case *ast.GenDecl:
				for _, s := range d.Specs {
					switch s := s.(type) {
					case *ast.TypeSpec:
						names[s.Name.Name] = s.Name.IsExported()
					case *ast.ValueSpec:
						for _, n := range s.Names {
							names[n.Name] = n.IsExported()
						}
					}
				}
			}
		}
	}
	count := 0
	for _, is := range names {
		if is {
			count++
		}
	}
	return count
}

// TestExportedNames: the page says how many names other modules can import. A new one is a promise,
// so the count is raised by hand.
func TestExportedNames(t *testing.T) {
	page := must.Get(os.ReadFile("README.md"))(t)
	names, packages := 0, 0
	for _, line := range goList(t, "-f", "{{.ImportPath}} {{.Name}} {{.Dir}}", "fmp/onnx/...") {
		words := strings.SplitN(line, " ", 3)
		if strings.Contains(words[0], "/internal/") || words[0] == "fmp/onnx/onnxpb" ||
			words[1] == "main" {
			continue
		}
		n := exported(t, words[2])
		t.Logf("%3d %s", n, words[0])
		names, packages = names+n, packages+1
	}
	if want := fmt.Sprintf("**%d in %d packages**", names, packages); !strings.Contains(string(page), want) {
		t.Errorf("README.md does not say %q of the exported names", want)
	}
}
