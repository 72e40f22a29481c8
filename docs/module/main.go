// Command module gives the module another path, in every file that names it:
//
//	go run ./docs/module host.tld/owner/fmp
//
// The folders and packages keep their names. Run it again with fmp to undo it.
package main

import (
	"bytes"
	"errors"
	"fmt"
	"go/format"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"fmp/onnx/atomicfile"
)

func main() {
	err := errors.New("give the module's path: host.tld/owner/fmp")
	if len(os.Args) == 2 {
		var n int
		if n, err = Rename(".", os.Args[1]); err == nil {
			fmt.Printf("%d files say %s\n", n, os.Args[1])
		}
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "module:", err)
		os.Exit(1)
	}
}

var (
	// valid is a module path: elements of letters, digits and -._~, the first with a dot, or the
	// path of a module without a home.
	valid = regexp.MustCompile(
		`^(fmp|[a-z0-9-]+(\.[a-z0-9-]+)+(/[A-Za-z0-9_~-][A-Za-z0-9._~-]*)+)$`)
	// directive is the line of go.mod that names the module.
	directive = regexp.MustCompile(`(?m)^module (\S+)$`)
	// kinds are the files that name packages.
	kinds = []string{".go", ".md", ".diff", ".proto", ".yml", ".yaml", ".sh"}
	// rooms are the folders that packages lie in.
	rooms = `(?:onnx|models|pipeline|featurize|assets|cmd|docs|examples)`
)

// Rename gives the module in folder root another path, and returns the number of files that it
// changed. Sources are formatted again, as imports are sorted by path.
func Rename(root, path string) (int, error) {
	if !valid.MatchString(path) {
		return 0, fmt.Errorf("module path %q: want a host with a dot and an owner, "+
			"host.tld/owner/fmp", path)
	}
	mod, err := os.ReadFile(filepath.Join(root, "go.mod"))
	if err != nil {
		return 0, err
	}
	old := directive.FindSubmatch(mod)
	if old == nil {
		return 0, errors.New("go.mod: no line names the module")
	}
	was := regexp.QuoteMeta(string(old[1]))
	// A package of the module, not the end of a longer path; and the bare prefix that tests cut
	// off, a quoted string.
	packages := regexp.MustCompile(`(^|[^\w/.-])` + was + `(/` + rooms + `\b|/\.\.\.|/")`)
	changed := 0
	err = filepath.WalkDir(root, func(file string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		name := d.Name()
		if d.IsDir() {
			if file != root && (strings.HasPrefix(name, ".") && name != ".ci" || name == "bin" ||
				name == "runs" || name == "node_modules") {
				return fs.SkipDir
			}
			return nil
		}
		if !d.Type().IsRegular() || !slices.Contains(kinds, filepath.Ext(name)) &&
			name != "Makefile" && file != filepath.Join(root, "go.mod") {
			return nil
		}
		data, err := os.ReadFile(file)
		if err != nil {
			return err
		}
		to := packages.ReplaceAll(data, []byte("${1}"+path+"${2}"))
		if name == "go.mod" {
			to = directive.ReplaceAll(to, []byte("module "+path))
		}
		if bytes.Equal(to, data) {
			return nil
		}
		if filepath.Ext(name) == ".go" { // imports are in the order of their paths
			if to, err = format.Source(to); err != nil {
				return fmt.Errorf("%s: %w", file, err)
			}
		}
		changed++
		return atomicfile.WriteBytes(file, to)
	})
	return changed, err
}
