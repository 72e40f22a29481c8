package examples

import (
	"flag"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"fmp/onnx/must"
)

var update = flag.Bool("update", false, "write what the commands print into docs/federation.md")

// figures differ from machine to machine in their last digits, and so do the widths of columns and
// the photographs of a list. With a figure go its sign, and the star of one whose interval has no
// zero.
var figures = regexp.MustCompile(`[0-9a-f]{12,}|[-+]?[0-9]+(\.[0-9]+)?\*?|\?`)

// places are what moves where two photographs change their places in a list.
var places = regexp.MustCompile(`, is 0|\.(jpg|png)`)

// alike is a line without its figures.
func alike(line string) string {
	line = places.ReplaceAllString(figures.ReplaceAllString(line, "0"), "")
	return strings.Join(strings.Fields(line), " ")
}

// TestFederationPage runs the lines of docs/federation.md one after another and compares what they
// print, but for figures.
func TestFederationPage(t *testing.T) {
	if testing.Short() {
		t.Skip("runs a whole federation")
	}
	play(t, filepath.Join("..", "federation.md"), t.TempDir(), programs(t), 10)
}

// play runs the lines of a page's consoles in a folder, with the programs in the folder path, and
// compares their output with the page, but for figures. There must be a least number of commands.
func play(t *testing.T, page, dir, path string, least int) {
	t.Helper()
	text := must.Get(os.ReadFile(page))(t)
	var out []string
	inside, commands := false, 0
	var left []string // printed by the command before, which the page has yet to show
	for _, line := range strings.Split(string(text), "\n") {
		end := inside && strings.HasPrefix(line, "```")
		command, isCommand := strings.CutPrefix(line, "$ ")
		if inside && !isCommand && !end {
			if *update {
				continue
			}
			if len(left) == 0 || alike(left[0]) != alike(line) {
				t.Fatalf("the page shows %q, and printed is %q", line, left)
			}
			left = left[1:]
			continue
		}
		if len(left) > 0 && !*update {
			t.Fatalf("%q is printed and the page does not show it; go test ./docs/examples -run %s -update",
				left, t.Name())
		}
		if inside && isCommand {
			commands++
			left = printed(shell(t, dir, environment(path), command))
			out = append(append(out, line), left...)
			continue
		}
		inside = strings.HasPrefix(line, "```console") || inside && !end
		out = append(out, line)
	}
	if commands < least {
		t.Errorf("%d commands were found; want the page's", commands)
	}
	if *update {
		must.Do(t, os.WriteFile(page, []byte(strings.Join(out, "\n")), 0o644))
	}
}
