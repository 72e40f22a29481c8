package docs

import (
	"go/ast"
	"go/parser"
	"go/token"
	"slices"
	"testing"

	"fmp/onnx/must"
)

// TestNoTestSleeps: a test waits for what it wants, in a loop that looks again or in the time of
// testing/synctest, and for no fixed time.
func TestNoTestSleeps(t *testing.T) {
	seen := 0
	for path, text := range sources(t, "_test.go") {
		files := token.NewFileSet()
		f := must.Get(parser.ParseFile(files, path, text, 0))(t)
		if slices.ContainsFunc(f.Imports,
			func(i *ast.ImportSpec) bool { return i.Path.Value == `"testing/synctest"` }) {
			continue
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
	}
	if seen == 0 {
		t.Error("no sleep was found")
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
