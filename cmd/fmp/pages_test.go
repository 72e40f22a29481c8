package main

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"fmp/onnx/engine/ort"
	"fmp/onnx/engine/ort/orttest"
	"fmp/onnx/must"
	"fmp/pipeline/lab/experiment"
)

// shellWords splits a line of a page as a shell would, as far as pages go: quotes, and comments
// after " #".
func shellWords(line string) []string {
	var words []string
	for _, m := range regexp.MustCompile(`"[^"]*"|'[^']*'|#.*|[^\s"'#]+`).FindAllString(line, -1) {
		if strings.HasPrefix(m, "#") {
			break
		}
		words = append(words, strings.Trim(m, `"'`))
	}
	return words
}

// commandLines are the invocations of the program in a page: lines of its blocks of code (those of
// text, which hold output, apart) that begin with fmp, and `fmp …` in its text. A line that the
// next one refuses ("fmp: …") shows a mistake, and is left out.
func commandLines(page string) []string {
	var out []string
	page = strings.ReplaceAll(page, "\\\n", " ")
	inBlock, output := false, false
	lines := strings.Split(page, "\n")
	for i, l := range lines {
		if fence, ok := strings.CutPrefix(strings.TrimSpace(l), "```"); ok {
			inBlock, output = !inBlock, fence == "text"
			continue
		}
		if inBlock && output {
			continue
		}
		if !inBlock {
			for _, m := range regexp.MustCompile("`(fmp [^`]+)`").FindAllStringSubmatch(l, -1) {
				out = append(out, m[1])
			}
			continue
		}
		l = strings.TrimPrefix(strings.TrimPrefix(strings.TrimSpace(l), "$ "), "bin/")
		if strings.HasPrefix(l, "fmp ") &&
			(i+1 == len(lines) || !strings.HasPrefix(lines[i+1], "fmp: ")) {
			out = append(out, l)
		}
	}
	return out
}

// TestPagesNameCommandsThatExist: every command line of README.md and the pages has a command and
// flags that the program knows.
func TestPagesNameCommandsThatExist(t *testing.T) {
	pages, err := filepath.Glob("../../docs/*.md")
	if err != nil || len(pages) == 0 {
		t.Fatalf("no pages: %v", err)
	}
	n := 0
	for _, p := range append(pages, "../../README.md") {
		text := must.Get(os.ReadFile(p))(t)
		for _, line := range commandLines(string(text)) {
			n++
			var args []string
			for _, w := range shellWords(line)[1:] {
				if w == "|" || w == ">" || w == "&&" {
					break
				}
				if w != "…" && w != "..." {
					args = append(args, w)
				}
			}
			cmd, rest, err := newRootCommand().Find(args)
			// What cobra adds when the program runs, and words for the reader to fill in, are let
			// through.
			if err == nil && cmd.HasSubCommands() && len(rest) > 0 && rest[0] != "help" &&
				rest[0] != "completion" &&
				!strings.HasPrefix(rest[0], "-") && rest[0] != strings.ToUpper(rest[0]) {
				t.Errorf("%s: %q: %s has no command %q", p, line, cmd.CommandPath(), rest[0])
				continue
			}
			if err == nil {
				err = cmd.ParseFlags(rest)
			}
			if err != nil && err.Error() != "pflag: help requested" {
				t.Errorf("%s: %q: %v", p, line, err)
			}
		}
	}
	if n < 20 {
		t.Errorf("only %d command lines were found; the pattern must be wrong", n)
	}
}

// TestPagesAreFresh: the pages that the program writes are those that are kept. `make docs` renews
// them.
func TestPagesAreFresh(t *testing.T) {
	clearSettings(t)
	t.Setenv(ort.LibraryEnv, "") // put back afterwards
	os.Unsetenv(ort.LibraryEnv)
	read := func(dir string) map[string]string {
		t.Helper()
		out := map[string]string{}
		files := must.Get(filepath.Glob(filepath.Join(dir, "*.md")))(t)
		for _, f := range files {
			b := must.Get(os.ReadFile(f))(t)
			out[filepath.Base(f)] = string(b)
		}
		return out
	}
	dir := t.TempDir()
	ran(t, "man", "--format", "markdown", dir)
	settings, _ := ran(t, "config", "--markdown")
	want, got := read(dir), read("../../docs/commands")
	want["settings"], got["settings"] = settings, read("../../docs")["settings.md"]
	if d := cmp.Diff(want, got); d != "" {
		t.Errorf("the pages of commands and settings are not what the program writes; run make docs (- "+
			"as it is now, + as it is kept):\n%s", d)
	}
}

// TestPageShowsTheDemo: the run directory that docs/install.md names is that of `make demo` today:
// its name is a digest of settings, models and data. Where one of them has changed, run make demo
// and copy what it prints, and run make figures.
func TestPageShowsTheDemo(t *testing.T) {
	if testing.Short() {
		t.Skip("makes the features of the embedded digits")
	}
	clearSettings(t)
	// The ONNX Runtime makes the features fast enough for a test.
	p := must.Get(experiment.Prepare(context.Background(), experiment.Default(), orttest.New(t), nil, nil))(t)
	defer p.Close()
	page := must.Get(os.ReadFile("../../docs/install.md"))(t)
	if want := fmt.Sprintf("run directory: runs/digits-%.8s ",
		p.Manifest.Identity); !strings.Contains(string(page), want) {
		t.Errorf("docs/install.md lacks %q: what it shows of make demo is another run's", want)
	}
}

// clearSettings takes the settings of whoever runs the tests out of the environment.
func clearSettings(t *testing.T) {
	t.Helper()
	for _, v := range os.Environ() {
		if name, _, _ := strings.Cut(v, "="); strings.HasPrefix(name, "FMP_") {
			t.Setenv(name, "") // put back afterwards
			os.Unsetenv(name)
		}
	}
}
