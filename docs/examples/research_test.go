package examples

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"fmp/onnx/must"
)

// TestResearchPage runs the lines of docs/research.md on CIFAR-10, where it is at hand, and on the
// drawn digits: both within its quarter of an hour.
func TestResearchPage(t *testing.T) {
	if testing.Short() {
		t.Skip("makes two runs")
	}
	must.Have(t, exec.Command("python3", "-c", "import numpy").Run())
	path := programs(t)
	for _, data := range []string{"cifar10", "digits"} {
		t.Run(data, func(t *testing.T) {
			if *update && data != "cifar10" {
				t.Skip("the page shows CIFAR-10")
			}
			show := exec.Command(filepath.Join(path, "fmp"), "data", "show", "--dataset", data)
			if show.Env = environment(path); data != "digits" && show.Run() != nil {
				t.Skipf("%s is not at hand", data)
			}
			dir := t.TempDir()
			examples := must.Get(filepath.Abs("../../examples"))(t)
			if err := os.Symlink(examples, filepath.Join(dir, "examples")); err != nil {
				t.Skip(err)
			}
			start := time.Now()
			if page := filepath.Join("..", "research.md"); data == "cifar10" {
				play(t, page, dir, path, 6)
			} else {
				text := must.Get(os.ReadFile(page))(t)
				for _, command := range regexp.MustCompile(`(?m)^\$ (.*)$`).FindAllStringSubmatch(
					string(text), -1) {
					shell(t, dir, environment(path), strings.ReplaceAll(command[1], "cifar10", data))
				}
			}
			took := time.Since(start)
			t.Logf("took %v", took.Round(time.Second))
			if took > 15*time.Minute {
				t.Errorf("took %v; the page says a quarter of an hour", took)
			}
		})
	}
}
