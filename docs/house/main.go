// Command house measures how a repository of Go is kept, for make house:
//
//	go run ./docs/house . [FOLDER...]
//
// Generated files, vendored modules, testdata and hidden folders do not count. A line is a comment
// if nothing but a comment is on it.
package main

import (
	"bytes"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"unicode/utf8"
)

// wide is the number of columns beyond which a line is wide; a tab counts as four.
const wide = 100

// figures are those of a repository; lines are of Go without tests, but for tests.
type figures struct {
	lines, comments, wide, tests, longest, words int
	longestName                                  string
}

func main() {
	fmt.Println("| folder | Go without tests | tests | comments | lines over 100 columns | " +
		"longest function | words of pages |")
	fmt.Println("| --- | ---: | ---: | ---: | ---: | ---: | ---: |")
	for _, dir := range os.Args[1:] {
		f, err := measure(dir)
		if err != nil {
			fmt.Fprintln(os.Stderr, "house:", err)
			os.Exit(1)
		}
		n := float64(max(f.lines, 1))
		fmt.Printf("| %s | %d | %d | %.1f%% | %.1f%% | %d (%s) | %d |\n", dir, f.lines, f.tests,
			100*float64(f.comments)/n, 100*float64(f.wide)/n, f.longest, f.longestName, f.words)
	}
}

// measure counts the files of a repository. Words of pages are counted between spaces. Links are
// not followed.
func measure(dir string) (f figures, err error) {
	err = filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		name := d.Name()
		if d.IsDir() {
			if path != dir && (name == "vendor" || name == "testdata" || name[0] == '.' ||
				name == "node_modules") {
				return fs.SkipDir
			}
			return nil
		}
		if !d.Type().IsRegular() || filepath.Ext(path) != ".go" && filepath.Ext(path) != ".md" {
			return nil
		}
		text, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		if filepath.Ext(path) == ".md" {
			f.words += len(bytes.Fields(text))
			return nil
		}
		return f.add(path, text)
	})
	return f, err
}

// add counts a file of Go in.
func (f *figures) add(path string, text []byte) error {
	set := token.NewFileSet()
	file, err := parser.ParseFile(set, path, text, parser.ParseComments|parser.SkipObjectResolution)
	if err != nil {
		return fmt.Errorf("%s: %w", path, err)
	}
	if ast.IsGenerated(file) {
		return nil
	}
	lines := bytes.Count(text, []byte("\n"))
	if strings.HasSuffix(path, "_test.go") {
		f.tests += lines
		return nil
	}
	f.lines += lines
	all := strings.Split(string(text), "\n")
	for _, l := range all {
		// Columns are characters, not bytes.
		if utf8.RuneCountInString(strings.ReplaceAll(l, "\t", "    ")) > wide {
			f.wide++
		}
	}
	for _, g := range file.Comments {
		for _, c := range g.List {
			from, to := set.Position(c.Pos()), set.Position(c.End())
			if strings.TrimSpace(all[from.Line-1][:from.Column-1]) == "" {
				f.comments += to.Line - from.Line + 1
			}
		}
	}
	for _, d := range file.Decls {
		if fn, ok := d.(*ast.FuncDecl); ok {
			if n := set.Position(fn.End()).Line - set.Position(fn.Pos()).Line + 1; n > f.longest {
				f.longest, f.longestName = n, fn.Name.Name
			}
		}
	}
	return nil
}
