package main

import (
	"strings"

	"github.com/spf13/cobra"
)

// noArgs refuses positional arguments, naming them.
func noArgs(cmd *cobra.Command, args []string) error {
	if len(args) > 0 {
		return usageErrorf("%s takes no arguments and was given %q; %s --help shows how to use it", cmd.CommandPath(), strings.Join(args, " "), cmd.CommandPath())
	}
	return nil
}

// exactArgs wants the named positional arguments, no more and no fewer.
func exactArgs(names ...string) cobra.PositionalArgs {
	return func(cmd *cobra.Command, args []string) error {
		if len(args) == len(names) {
			return nil
		}
		return usageErrorf("%s wants %s and was given %d arguments; %s --help shows how to use it", cmd.CommandPath(), strings.Join(names, " "), len(args), cmd.CommandPath())
	}
}
