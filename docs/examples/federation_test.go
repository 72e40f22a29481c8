package examples

import (
	"bytes"
	"flag"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

var update = flag.Bool("update", false, "write what the commands print into docs/federation.md")

// figures differ from machine to machine in their last digits, and so do the widths of columns and the photographs of a list.
var figures = regexp.MustCompile(`[0-9a-f]{12,}|[0-9]+(\.[0-9]+)?|\?`)

// places are what moves where two photographs change their places in a list.
var places = regexp.MustCompile(`, is 0|\.(jpg|png)`)

// alike is a line without its figures.
func alike(line string) string {
	line = places.ReplaceAllString(figures.ReplaceAllString(line, "0"), "")
	return strings.Join(strings.Fields(line), " ")
}

// TestFederationPage runs the lines of docs/federation.md one after another and compares what they print, but for figures.
func TestFederationPage(t *testing.T) {
	if testing.Short() {
		t.Skip("runs a whole federation")
	}
	path := programs(t)
	page := filepath.Join("..", "federation.md")
	text, err := os.ReadFile(page)
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	var out []string
	in, commands := false, 0
	var printed []string // by the command before that the page has yet to show
	for _, line := range strings.Split(string(text), "\n") {
		end := in && strings.HasPrefix(line, "```")
		command, isCommand := strings.CutPrefix(line, "$ ")
		if in && !isCommand && !end {
			if *update {
				continue
			}
			if len(printed) == 0 || alike(printed[0]) != alike(line) {
				t.Fatalf("the page shows %q, and printed is %q", line, printed)
			}
			printed = printed[1:]
			continue
		}
		if len(printed) > 0 && !*update {
			t.Fatalf("%q is printed and the page does not show it; go test ./docs/examples -run Federation -update", printed)
		}
		if in && isCommand {
			commands++
			cmd := exec.Command("sh", "-c", command)
			cmd.Dir, cmd.Env = dir, environment(path)
			var stdout, stderr bytes.Buffer
			cmd.Stdout, cmd.Stderr = &stdout, &stderr
			if err := cmd.Run(); err != nil {
				t.Fatalf("%s: %v\n%s", command, err, stderr.String())
			}
			printed = strings.Split(strings.TrimRight(stdout.String(), "\n"), "\n")
			for i := range printed {
				printed[i] = strings.TrimRight(printed[i], " ")
			}
			out = append(append(out, line), printed...)
			continue
		}
		in = strings.HasPrefix(line, "```console") || in && !end
		out = append(out, line)
	}
	if commands < 10 {
		t.Errorf("%d commands were found; want the page's", commands)
	}
	if *update {
		if err := os.WriteFile(page, []byte(strings.Join(out, "\n")), 0o644); err != nil {
			t.Fatal(err)
		}
	}
}
