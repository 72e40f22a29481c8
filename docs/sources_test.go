package docs

import (
	"go/ast"
	"go/parser"
	"go/token"
	"regexp"
	"slices"
	"strings"
	"testing"

	"fmp/onnx/must"
)

// pronoun matches a line of comment in which a pronoun stands for a noun of the field.
var pronoun = regexp.MustCompile(`(?i)^\s*//.*[^{]\b(what|whoever|so many|of whose)\b`)

// TestComments holds comments to nouns, those of tests and of generated messages left out.
func TestComments(t *testing.T) {
	read := 0
	for path, text := range sources(t, ".go") {
		if strings.HasSuffix(path, "_test.go") || strings.HasSuffix(path, ".pb.go") {
			continue
		}
		read++
		for i, line := range strings.Split(text, "\n") {
			if pronoun.MatchString(line) {
				t.Errorf("%s:%d: a noun for the pronoun: %s", path, i+1, strings.TrimSpace(line))
			}
		}
	}
	if read == 0 {
		t.Error("no source was read")
	}
}

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

// TestNamedTests: each test that a page names, as the one that holds a claim, is there. The log of
// changes and notes name those of their day.
func TestNamedTests(t *testing.T) {
	declared, named := map[string]bool{}, map[string][]string{}
	declaration := regexp.MustCompile(`(?m)^func ((?:Test|Fuzz|Benchmark)[A-Z]\w*)\(`)
	name := regexp.MustCompile("`((?:Test|Fuzz|Benchmark)[A-Z]\\w*)`")
	for path, text := range sources(t, "_test.go", ".md") {
		for _, m := range declaration.FindAllStringSubmatch(text, -1) {
			declared[m[1]] = true
		}
		if strings.HasSuffix(path, ".md") {
			for _, m := range name.FindAllStringSubmatch(text, -1) {
				named[m[1]] = append(named[m[1]], path)
			}
		}
	}
	for n, pages := range named {
		if !declared[n] {
			t.Errorf("%v: %s is no test", pages, n)
		}
	}
	if len(named) < 50 {
		t.Errorf("%d tests are named", len(named))
	}
}
