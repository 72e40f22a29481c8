package main

import (
	"path/filepath"
	"strings"
	"testing"

	"github.com/spf13/cobra"

	"fmp/onnx/printable"
)

// TestHostileArguments: no command lets a terminal obey a name, of a file that is not there, of a
// flag, or of a command.
func TestHostileArguments(t *testing.T) {
	const evil = "\x1b[2J\x1b]0;owned\x07\u202e\u009b31m\rname"
	dir := t.TempDir()
	t.Setenv("XDG_CACHE_HOME", dir)
	t.Chdir(dir) // fmp man writes a folder of its pages
	var walk func(c *cobra.Command, path []string)
	walk = func(c *cobra.Command, path []string) {
		for _, more := range [][]string{{evil}, {"--" + evil},
			{filepath.Join(dir, evil), evil, evil, evil}, {evil, "--json"}} {
			args := append(append([]string(nil), path...), more...)
			var out strings.Builder
			execute(t.Context(), args, strings.NewReader(""), &out, &out)
			for _, line := range strings.Split(strings.ReplaceAll(out.String(), "\t", " "), "\n") {
				if !printable.Is(line) {
					t.Errorf("%q prints %q", args, line)
				}
			}
		}
		for _, sub := range c.Commands() {
			walk(sub, append(append([]string(nil), path...), sub.Name()))
		}
	}
	walk(newRootCommand(), nil)
}
