package docs

import (
	"fmt"
	"io/fs"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"fmp/onnx/must"
)

// rooms are the top folders from the highest to the lowest: packages use those of their own room
// and of rooms below it. assets, which are files alone, are used by anybody above models.
var rooms = []string{"cmd", "pipeline", "featurize", "assets", "models", "onnx"}

// imports are the packages of the module that each of its packages imports, tests apart, by their
// path in the module.
func imports(t *testing.T) map[string][]string { return listed(t, ".Imports") }

// listed are the packages of the module in a list that the go tool has of each.
func listed(t *testing.T, list string) map[string][]string {
	t.Helper()
	// seen by the test itself, so that the go tool keeps no result from before a change
	for _, r := range rooms {
		must.Do(t, filepath.WalkDir(filepath.Join("..", r),
			func(path string, _ fs.DirEntry, err error) error {
				if err == nil && strings.HasSuffix(path, ".go") {
					_, err = os.Stat(path)
				}
				return err
			}))
	}
	out := must.Get(exec.Command("go", "list", "-f", `{{.ImportPath}} {{join `+list+` " "}}`,
		"fmp/...").Output())(t)
	all := map[string][]string{}
	for line := range strings.Lines(string(out)) {
		words := strings.Fields(line)
		own := strings.TrimPrefix(words[0], "fmp/")
		all[own] = nil
		for _, w := range words[1:] {
			if p, ok := strings.CutPrefix(w, "fmp/"); ok {
				all[own] = append(all[own], p)
			}
		}
	}
	return all
}

// room is the top folder of a package.
func room(pkg string) string {
	top, _, _ := strings.Cut(pkg, "/")
	return top
}

// TestArrowsPointDown: no package uses one of a room above its own.
func TestArrowsPointDown(t *testing.T) {
	for pkg, used := range imports(t) {
		own := slices.Index(rooms, room(pkg))
		if own < 0 {
			continue // docs and examples
		}
		for _, u := range used {
			if i := slices.Index(rooms, room(u)); i < own {
				t.Errorf("%s uses %s, which lies above it", pkg, u)
			}
		}
	}
}

// laboratory holds the rivals, tasks, scores, reports and attacks. cmd/fmp runs both it and the
// product.
const laboratory = "pipeline/lab"

func isLaboratory(pkg string) bool { return strings.HasPrefix(pkg, laboratory+"/") }

// TestProductWithoutLaboratory: no package of the product uses the laboratory, directly or through
// others, nor do its tests; what runs at a client or a server links nothing that trains either.
func TestProductWithoutLaboratory(t *testing.T) {
	all := imports(t)
	reach := reaching(all)
	inside, outside := listed(t, ".TestImports"), listed(t, ".XTestImports")
	product := 0
	for pkg := range all {
		if slices.Index(rooms, room(pkg)) < 0 || pkg == "cmd/fmp" || isLaboratory(pkg) {
			continue
		}
		product++
		for u := range reach(pkg) {
			if isLaboratory(u) {
				t.Errorf("%s uses %s, which is of the laboratory", pkg, u)
			}
		}
		for _, u := range append(inside[pkg], outside[pkg]...) {
			if isLaboratory(u) {
				t.Errorf("the tests of %s use %s, which is of the laboratory", pkg, u)
			}
		}
	}
	for _, program := range []string{"cmd/fmp-edge", "pipeline/federate/service",
		"pipeline/federate/work", "pipeline/pool"} {
		links := reach(program)
		if len(links) < 5 {
			t.Errorf("%s uses %d packages: it is not where it was", program, len(links))
		}
		for _, training := range []string{"pipeline/corpus", "pipeline/meta", "pipeline/task",
			"pipeline/metric", "featurize/learn",
			"featurize/digits", "onnx/grad", "onnx/train"} {
			if _, ok := all[training]; !ok {
				t.Errorf("there is no package %s", training)
			}
			if links[training] {
				t.Errorf("%s uses %s, which is of training", program, training)
			}
		}
	}
	if product < 60 {
		t.Errorf("%d packages of the product: they are not where they were", product)
	}
}

// reaching returns the packages that a package uses, directly or through others.
func reaching(all map[string][]string) func(pkg string) map[string]bool {
	known := map[string]map[string]bool{}
	var reach func(pkg string) map[string]bool
	reach = func(pkg string) map[string]bool {
		if known[pkg] == nil {
			known[pkg] = map[string]bool{}
			for _, u := range all[pkg] {
				known[pkg][u] = true
				maps.Copy(known[pkg], reach(u))
			}
		}
		return known[pkg]
	}
	return reach
}

// chart draws uses, which make no circle, as a Mermaid flowchart, without those that follow from
// others.
func chart(uses map[string]map[string]bool) string {
	direct := map[string][]string{}
	for p, used := range uses {
		direct[p] = slices.Collect(maps.Keys(used))
	}
	reached := reaching(direct)
	var b strings.Builder
	b.WriteString("```mermaid\nflowchart TD\n")
	id := strings.NewReplacer("/", "_", "-", "_")
	for _, p := range slices.Sorted(maps.Keys(uses)) {
		fmt.Fprintf(&b, "  %s[%q]\n", id.Replace(p), p)
	}
	for _, p := range slices.Sorted(maps.Keys(uses)) {
		for _, u := range slices.Sorted(maps.Keys(uses[p])) {
			follows := false // from others
			for v := range uses[p] {
				follows = follows || reached(v)[u]
			}
			if !follows {
				fmt.Fprintf(&b, "  %s --> %s\n", id.Replace(p), id.Replace(u))
			}
		}
	}
	b.WriteString("```\n")
	return b.String()
}

// TestDrawings: the drawings in architecture.md are those of the packages as they are. With -update
// they are drawn (make docs).
func TestDrawings(t *testing.T) {
	all := imports(t)
	grouped := func(name func(pkg string) string) map[string]map[string]bool {
		uses := map[string]map[string]bool{}
		for pkg, used := range all {
			p := name(pkg)
			if p == "" {
				continue
			}
			if uses[p] == nil {
				uses[p] = map[string]bool{}
			}
			for _, u := range used {
				if u = name(u); u != "" && u != p {
					uses[p][u] = true
				}
			}
		}
		return uses
	}
	inside := func(folder string) func(string) string {
		return func(pkg string) string {
			if room(pkg) == folder {
				return pkg
			}
			return ""
		}
	}
	for mark, name := range map[string]func(string) string{
		"rooms": func(pkg string) string {
			if !slices.Contains(rooms, room(pkg)) {
				return ""
			}
			return room(pkg)
		},
		"pipeline": func(pkg string) string {
			if isLaboratory(pkg) {
				return ""
			}
			return inside("pipeline")(pkg)
		},
		"laboratory": func(pkg string) string {
			if room(pkg) == "pipeline" && !isLaboratory(pkg) {
				return "product"
			}
			return inside("pipeline")(pkg)
		},
		"featurize": inside("featurize"), "onnx": inside("onnx"),
	} {
		write(t, "architecture.md", mark, chart(grouped(name)))
	}
}
