package main

import (
	"fmt"
	"strings"

	"github.com/spf13/cobra"
)

// noArgs refuses positional arguments, naming them.
func noArgs(cmd *cobra.Command, args []string) error {
	if len(args) > 0 {
		return usageErrorf("%s takes no arguments and was given %q; %s --help shows how to use it",
			cmd.CommandPath(), strings.Join(args, " "), cmd.CommandPath())
	}
	return nil
}

// rangeArgs wants at least lo and at most hi positional arguments of one kind; hi 0 means no bound.
func rangeArgs(lo, hi int, name string) cobra.PositionalArgs {
	return func(cmd *cobra.Command, args []string) error {
		if len(args) >= lo && (hi == 0 || len(args) <= hi) {
			return nil
		}
		want := fmt.Sprintf("%d to %d", lo, hi)
		switch {
		case hi == 0:
			want = fmt.Sprintf("at least %d", lo)
		case lo == 0:
			want = fmt.Sprintf("at most %d", hi)
		}
		return usageErrorf("%s wants %s arguments (%s) and was given %d; %s --help shows how to use it",
			cmd.CommandPath(), want, name, len(args), cmd.CommandPath())
	}
}

// exactArgs wants the named positional arguments, no more and no fewer.
func exactArgs(names ...string) cobra.PositionalArgs {
	return func(cmd *cobra.Command, args []string) error {
		if len(args) == len(names) {
			return nil
		}
		return usageErrorf("%s wants %s and was given %d arguments; %s --help shows how to use it",
			cmd.CommandPath(), strings.Join(names, " "), len(args), cmd.CommandPath())
	}
}
