package docs_test

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"path/filepath"
	"strings"
	"testing"
)

// TestNoTestSleeps: a test waits for what it wants, in a loop that looks again or in the time of
// testing/synctest, and for no fixed time.
func TestNoTestSleeps(t *testing.T) {
	seen := 0
	err := filepath.WalkDir("..", func(path string, _ fs.DirEntry, err error) error {
		if err != nil || !strings.HasSuffix(path, "_test.go") {
			return err
		}
		files := token.NewFileSet()
		f, err := parser.ParseFile(files, path, nil, 0)
		if err != nil {
			return err
		}
		for _, i := range f.Imports {
			if i.Path.Value == `"testing/synctest"` {
				return nil
			}
		}
		var open []ast.Node
		ast.Inspect(f, func(n ast.Node) bool {
			if n == nil {
				open = open[:len(open)-1]
				return true
			}
			open = append(open, n)
			if s, ok := n.(*ast.SelectorExpr); ok && s.Sel.Name == "Sleep" {
				if seen++; !polls(open) {
					t.Errorf("%s: a test sleeps for a fixed time: wait for what it wants",
						files.Position(n.Pos()))
				}
			}
			return true
		})
		return nil
	})
	if err != nil || seen == 0 {
		t.Fatalf("%d sleeps were found, %v", seen, err)
	}
}

// polls reports whether the innermost loop around a node ends by what it looks at.
func polls(open []ast.Node) bool {
	for i := len(open) - 1; i >= 0; i-- {
		switch n := open[i].(type) {
		case *ast.ForStmt:
			return true
		case *ast.RangeStmt: // so many looks
			l, ok := n.X.(*ast.BasicLit)
			return ok && l.Kind == token.INT && len(l.Value) >= 3
		case *ast.FuncDecl, *ast.FuncLit:
			return false
		}
	}
	return false
}
