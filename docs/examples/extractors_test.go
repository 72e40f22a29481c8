package examples

import (
	"encoding/json"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"fmp/onnx/must"
)

// TestExtractorsPage runs the lines of docs/extractors.md for a pretrained network and no corpus,
// with EfficientNet-Lite0 for 128 x 128 pixels (its file in FMP_LITE0) and drawn photographs of
// three sites: the classifier knows much more than the classes' number.
func TestExtractorsPage(t *testing.T) {
	const model = "efficientnet_lite0_features_128.onnx"
	lite := os.Getenv("FMP_LITE0")
	if testing.Short() || lite == "" {
		t.Skip("runs a whole round behind EfficientNet-Lite0: name its file, " + model + ", in FMP_LITE0")
	}
	text := must.Get(os.ReadFile(filepath.Join("..", "extractors.md")))(t)
	_, lines, found := strings.Cut(string(text),
		"`docs/examples/moments.sh` is these lines:\n\n```console\n")
	lines, _, ended := strings.Cut(lines, "```")
	if !found || !ended || strings.Count(lines, "\n") > 10 {
		t.Fatalf("the page has no ten lines: %q", lines)
	}
	dir, run := place(t)
	absolute := must.Get(filepath.Abs(lite))(t)
	must.Do(t, os.Symlink(absolute, filepath.Join(dir, model)))
	for i, place := range []string{"site-1", "site-2", "site-3", "test"} {
		run("fmp data synth -o drawn --photos --seed " + string(rune('1'+i)) + " --train 300 --test 10")
		must.Do(t, os.Mkdir(filepath.Join(dir, place), 0o755))
		for digit, name := range map[string]string{"1": "larch", "4": "spruce", "8": "fir"} {
			must.Do(t, os.Rename(filepath.Join(dir, "drawn", "train", digit),
				filepath.Join(dir, place, name)))
		}
		must.Do(t, os.RemoveAll(filepath.Join(dir, "drawn")))
	}
	commands := 0
	for line := range strings.Lines(lines) {
		command, ok := strings.CutPrefix(strings.TrimSpace(line), "$ ")
		if !ok {
			t.Fatalf("%q is no command", line)
		}
		commands++
		command, _, _ = strings.Cut(command, "# at each site")
		switch {
		case strings.Contains(line, "# at each site"):
			for _, site := range []string{"site-1", "site-2", "site-3"} {
				run(strings.ReplaceAll(command, "site-1", site))
			}
		case strings.HasPrefix(command, "fmp evaluate"):
			var got struct{ NLL float64 }
			must.Do(t, json.Unmarshal(run(command+" --json"), &got))
			if !(got.NLL > 0) || got.NLL > 0.7*math.Log(3) {
				t.Errorf("NLL %v of three classes; chance is %.3f", got.NLL, math.Log(3))
			}
		default:
			run(command)
		}
	}
	if commands < 4 {
		t.Errorf("%d commands", commands)
	}
}
