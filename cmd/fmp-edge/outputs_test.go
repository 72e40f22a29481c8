package main

import (
	"bytes"
	"testing"

	"github.com/spf13/pflag"

	"fmp/cmd/internal/outputs/outputstest"
)

// TestNoOutputIsAnInput walks every command.
func TestNoOutputIsAnInput(t *testing.T) {
	var list []outputstest.Command
	for _, c := range commands() {
		f := pflag.NewFlagSet(c.name, pflag.ContinueOnError)
		c.flags(f)
		list = append(list, outputstest.Command{Name: "fmp-edge " + c.name, Flags: f, Args: 1,
			Run: func(args ...string) (int, string) {
				var said bytes.Buffer
				code := execute(t.Context(), args, &said, &said)
				return code, said.String()
			}})
	}
	outputstest.Check(t, list)
}
