package main

import (
	"bytes"
	"strings"
	"testing"

	"github.com/spf13/cobra"

	"fmp/cmd/internal/outputs/outputstest"
)

// TestNoOutputIsAnInput walks every command.
func TestNoOutputIsAnInput(t *testing.T) {
	var commands []outputstest.Command
	var walk func(c *cobra.Command)
	walk = func(c *cobra.Command) {
		want := 0
		for want < 3 && c.Args != nil && c.Args(c, make([]string, want)) != nil {
			want++
		}
		commands = append(commands,
			outputstest.Command{Name: c.CommandPath(), Flags: c.Flags(), Args: want,
				Run: func(args ...string) (int, string) {
					var said bytes.Buffer
					code := execute(t.Context(), args, strings.NewReader(""), &said, &said)
					return code, said.String()
				}})
		for _, s := range c.Commands() {
			walk(s)
		}
	}
	walk(newRootCommand())
	outputstest.Check(t, commands)
}
