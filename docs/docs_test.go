// Package docs holds the pages; its tests keep them true.
package docs

import (
	"cmp"
	"errors"
	"flag"
	"fmt"
	"io/fs"
	"iter"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"fmp/assets"
	"fmp/models"
	"fmp/onnx/coverage"
	"fmp/onnx/must"
	"fmp/pipeline/shipped"
)

// TestLibraryShowsTheExamples: the Go code of library.md is that of the examples, which are tests
// themselves.
func TestLibraryShowsTheExamples(t *testing.T) {
	page := must.Get(os.ReadFile("library.md"))(t)
	blocks := regexp.MustCompile("(?s)```go\n(.*?)```").FindAllSubmatch(page, -1)
	sources := []string{"../pipeline/example_test.go", "../onnx/train/example_test.go"}
	if len(blocks) != len(sources) {
		t.Fatalf("library.md has %d blocks of Go, want %d", len(blocks), len(sources))
	}
	for i, path := range sources {
		src := must.Get(os.ReadFile(path))(t)
		if shown := string(blocks[i][1]); !strings.Contains(strings.ReplaceAll(string(src), "\t", "    "), shown) {
			t.Errorf("block %d of library.md is not in %s (its tabs as four spaces); copy the "+
				"function anew", i+1, path)
		}
	}
}

// TestLinks: what the pages point to inside the repository is there.
func TestLinks(t *testing.T) {
	var pages []string
	for _, pattern := range []string{"*.md", "*/*.md", "../README.md", "../assets/models/README.md"} {
		found := must.Get(filepath.Glob(pattern))(t)
		pages = append(pages, found...)
	}
	link := regexp.MustCompile(`\]\(([^)\s]+)\)`)
	checked := 0
	for _, p := range pages {
		text := must.Get(os.ReadFile(p))(t)
		for _, m := range link.FindAllStringSubmatch(string(text), -1) {
			to, _, _ := strings.Cut(m[1], "#")
			if to == "" || strings.Contains(to, "://") || strings.HasPrefix(to, "mailto:") {
				continue
			}
			checked++
			if _, err := os.Stat(filepath.Join(filepath.Dir(p), filepath.FromSlash(to))); err != nil {
				t.Errorf("%s points to %s: %v", p, m[1], err)
			}
		}
	}
	if checked == 0 {
		t.Error("no link was found; the pattern must be wrong")
	}
}

// sources are the texts of the files of the repository whose names end so.
func sources(t *testing.T, ends ...string) iter.Seq2[string, string] {
	return func(yield func(path, text string) bool) {
		err := filepath.WalkDir("..", func(path string, e fs.DirEntry, err error) error {
			if err != nil {
				return err
			}
			if e.IsDir() {
				if slices.Contains([]string{".git", "bin", "notes", "runs"}, e.Name()) {
					return fs.SkipDir
				}
				return nil
			}
			if !slices.ContainsFunc(ends, func(end string) bool { return strings.HasSuffix(path, end) }) {
				return nil
			}
			text, err := os.ReadFile(path)
			if err == nil && !yield(path, string(text)) {
				return fs.SkipAll
			}
			return err
		})
		must.Do(t, err)
	}
}

var update = flag.Bool("update", false, "write the table of models anew")

// between is what stands in a page between the comments <!-- name --> and <!-- /name -->, and
// where.
func between(t *testing.T, page, name string) (text string, from, to int) {
	t.Helper()
	open, end := "<!-- "+name+" -->\n", "<!-- /"+name+" -->"
	i, j := strings.Index(page, open), strings.Index(page, end)
	if i < 0 || j < i {
		t.Fatalf("the page lacks %s … %s", strings.TrimSpace(open), end)
	}
	from = i + len(open)
	return page[from:j], from, j
}

// thousands writes n as 1,234,567.
func thousands(n int64) string {
	s := strconv.FormatInt(n, 10)
	for i := len(s) - 3; i > 0; i -= 3 {
		s = s[:i] + "," + s[i:]
	}
	return s
}

// TestPageListsTheModels: the table of models is that of the files, each says how it was made, and
// all together stay below 25 MB. With -update the table is written (make docs).
func TestPageListsTheModels(t *testing.T) {
	kinds := []string{models.KindExtractor, models.KindConjugate, models.KindPrivate,
		models.KindPredictor, models.KindEmbedding, models.KindClient}
	order := []string{"digits", "digits-color", "mnist", "cifar10", "cifar100"}
	entries := must.Get(os.ReadDir("../assets/models"))(t)
	var dirs []string
	for _, e := range entries {
		if e.IsDir() {
			dirs = append(dirs, e.Name())
		}
	}
	rank := func(dir string) int {
		if i := slices.Index(order, dir); i >= 0 {
			return i
		}
		return len(order)
	}
	slices.SortStableFunc(dirs, func(a, b string) int { return cmp.Compare(rank(a), rank(b)) })
	var b strings.Builder
	heading(&b, "data set | >classes | >features | >extractor | >conjugate | >private | "+
		">predictor | >embedding | >client graph")
	var all int64
	for _, dir := range dirs {
		sizes, classes, features := "", "-", "-"
		for _, kind := range kinds {
			data, err := assets.Model(dir, kind)
			if errors.Is(err, fs.ErrNotExist) {
				sizes += " - |"
				continue
			}
			must.Do(t, err)
			path := filepath.Join("assets/models", dir, kind+".onnx")
			_, f := must.Get2(shipped.Load(dir, kind))(t)
			if f.Kind != kind {
				t.Errorf("%s is %q by its manifest", path, f.Kind)
			}
			if f.Command == "" || f.TrainingData == "" {
				t.Errorf("the manifest of %s does not say how (%q) and from what (%q) it was made",
					path, f.Command, f.TrainingData)
			}
			if f.C > 0 {
				classes = strconv.Itoa(f.C)
			}
			if f.Dx > 0 {
				features = strconv.Itoa(f.Dx)
			}
			if kind != models.KindClient {
				all += int64(len(data))
			}
			sizes += " " + thousands(int64(len(data))) + " |"
		}
		fmt.Fprintf(&b, "| %s | %s | %s |%s\n", dir, classes, features, sizes)
	}
	kept := int64(0)
	must.Do(t, filepath.WalkDir("../assets/models", func(path string, e fs.DirEntry, err error) error {
		if err != nil || e.IsDir() || filepath.Ext(path) == ".md" {
			return err
		}
		info, err := e.Info()
		kept += info.Size()
		return err
	}))
	fmt.Fprintf(&b, "\nAll together, without the client graphs: %s bytes. Those are kept as what they add"+
		" to the extractor, 3 KB each, and the larger ones packed "+
		"(`FILE.planes`; `go run ./assets/pack FILE.planes` unpacks), so that all take %.1f MB.\n",
		thousands(all), float64(kept)/1e6)
	if all > 25_000_000 {
		t.Errorf("the models have %s bytes; 25,000,000 are allowed", thousands(all))
	}
	write(t, "../assets/models/README.md", "models", b.String())
}

// TestTargets: every "make TARGET" of the pages is a target of the Makefile.
func TestTargets(t *testing.T) {
	makefile := must.Get(os.ReadFile("../Makefile"))(t)
	targets := map[string]bool{}
	for _, m := range regexp.MustCompile(`(?m)^([a-z-]+):`).FindAllSubmatch(makefile, -1) {
		targets[string(m[1])] = true
	}
	said := regexp.MustCompile("(?m)(?:`|^)make ([a-z-]+)")
	n := 0
	for p, text := range sources(t, ".md") {
		for _, m := range said.FindAllStringSubmatch(text, -1) {
			n++
			if !targets[m[1]] {
				t.Errorf("%s says make %s, which the Makefile has not", p, m[1])
			}
		}
	}
	if n == 0 {
		t.Error("no target was found; the pattern must be wrong")
	}
}

// TestOperatorsPage: the page has what the packages make of every operator, and the reasons for
// what is missing.
func TestOperatorsPage(t *testing.T) {
	page := must.Get(os.ReadFile("operators.md"))(t)
	lines := coverage.Reasons()
	for _, op := range coverage.Standard() {
		lines = append(lines, fmt.Sprintf("| %s | %s | %s | %s |", op, coverage.Cell(op, coverage.Shape),
			coverage.Cell(op, coverage.Kernel), coverage.Cell(op, coverage.Gradient)))
	}
	for _, line := range lines {
		if !strings.Contains(string(page), "\n"+line) {
			t.Errorf("operators.md lacks %q; run make conformance", line)
		}
	}
}

// readsRuns skips a test that reads hundreds of kept runs, where tests are to be short.
func readsRuns(t *testing.T) {
	t.Helper()
	if testing.Short() {
		t.Skip("reads many kept runs")
	}
}
