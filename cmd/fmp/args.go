package main

import (
	"fmt"
	"path/filepath"
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

// expanding has the commands of uploads and runs take patterns for the files that they match: shells
// of Windows leave that to programs.
func expanding(system string, cmd *cobra.Command) {
	for _, c := range cmd.Commands() {
		expanding(system, c)
	}
	if system != "windows" || !strings.Contains(cmd.Use, " UPLOAD") && !strings.Contains(cmd.Use, " RUN") {
		return
	}
	check, run := cmd.Args, cmd.RunE
	then := func(f func(*cobra.Command, []string) error) func(*cobra.Command, []string) error {
		return func(cmd *cobra.Command, args []string) error {
			args, err := expand(args)
			if err != nil {
				return err
			}
			return f(cmd, args)
		}
	}
	cmd.Args, cmd.RunE = then(check), then(run)
}

// expand puts the files that a pattern matches in its place.
func expand(args []string) (out []string, err error) {
	for _, a := range args {
		names := []string{a}
		if strings.ContainsAny(a, "*?") { // which no name has on Windows
			if names, err = filepath.Glob(a); err != nil || len(names) == 0 {
				return nil, usageErrorf("%s: no file has such a name: mend the pattern, or the folder", a)
			}
		}
		out = append(out, names...)
	}
	return out, nil
}
