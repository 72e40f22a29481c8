package examples

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"fmp/assets/assetstest"
	"fmp/models"
	"fmp/onnx/must"
)

// TestClonedLines runs the lines of docs/install.md from a clone to a prediction, but for building and
// for the extractor that is pulled, in whose place one of the program's own stands.
func TestClonedLines(t *testing.T) {
	if testing.Short() {
		t.Skip("builds the programs")
	}
	page := must.Get(os.ReadFile(filepath.Join("..", "install.md")))(t)
	_, table, _ := strings.Cut(string(page), "## From a clone to a prediction")
	own := assetstest.File(t, "cifar10", models.KindExtractor)
	dir, env := t.TempDir(), append(environment(programs(t)), "HOME="+t.TempDir(), "XDG_CONFIG_HOME="+t.TempDir(),
		"XDG_CACHE_HOME="+t.TempDir())
	ran := 0
	for row := range strings.Lines(table) {
		_, line, _ := strings.Cut(row, "| `")
		first, rest, _ := strings.Cut(line, "`")
		if !strings.HasPrefix(first, "fmp") || strings.Contains(first, "pull") {
			continue
		}
		line = strings.Replace(first, "efficientnet-lite0", own, 1)
		sites := []string{"1"}
		if strings.Contains(rest, "once a site") {
			sites = []string{"1", "2", "3"}
		}
		for _, site := range sites {
			if len(sites) > 1 {
				line = strings.NewReplacer("site-1", "site-"+site, "--seed 1", "--seed "+site).Replace(first)
			}
			shell(t, dir, env, line)
			ran++
		}
	}
	if ran != 10 {
		t.Errorf("%d commands were run; want 10", ran)
	}
}
