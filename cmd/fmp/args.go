package main

import (
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"fmp/onnx/atomicfile"
)

// noArgs refuses positional arguments, naming them.
func noArgs(cmd *cobra.Command, args []string) error {
	if len(args) > 0 {
		return usageErrorf("%s takes no arguments and was given %q; %s --help shows how to use it", cmd.CommandPath(), strings.Join(args, " "),
			cmd.CommandPath())
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
		return usageErrorf("%s wants %s arguments (%s) and was given %d; %s --help shows how to use it", cmd.CommandPath(), want, name, len(args),
			cmd.CommandPath())
	}
}

// exactArgs wants the named positional arguments, no more and no fewer.
func exactArgs(names ...string) cobra.PositionalArgs {
	return func(cmd *cobra.Command, args []string) error {
		if len(args) == len(names) {
			return nil
		}
		return usageErrorf("%s wants %s and was given %d arguments; %s --help shows how to use it", cmd.CommandPath(), strings.Join(names, " "),
			len(args), cmd.CommandPath())
	}
}

// wantFolders checks, before a command's work, that the folders are there in which the files of these flags are to be written: a folder
// with a mistyped name is not made.
func wantFolders(cmd *cobra.Command, flags ...string) {
	cmd.PreRunE = func(cmd *cobra.Command, _ []string) error {
		for _, name := range flags {
			path := cmd.Flags().Lookup(name).Value.String()
			if path == "" {
				continue
			}
			if err := atomicfile.HasFolder(path); err != nil {
				return usageError(fmt.Errorf("--%s: %w", name, err))
			}
		}
		return nil
	}
}
