package main

import (
	"fmt"
	"io"
	"os"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"golang.org/x/term"
)

func newHelpCommand() *cobra.Command {
	return &cobra.Command{
		Use:     "help [COMMAND]",
		Short:   "Explain a command, with an example",
		Example: "  fmp help run\n  fmp help onnx bench",
		ValidArgsFunction: func(cmd *cobra.Command, args []string,
			_ string) ([]string, cobra.ShellCompDirective) {
			at, _, err := cmd.Root().Find(args)
			if err != nil {
				return nil, cobra.ShellCompDirectiveNoFileComp
			}
			var names []string
			for _, c := range at.Commands() {
				if c.IsAvailableCommand() {
					names = append(names, c.Name()+"\t"+c.Short)
				}
			}
			return names, cobra.ShellCompDirectiveNoFileComp
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			at := cmd.Root()
			for _, name := range args {
				next := child(at, name)
				if next == nil {
					return unknownCommand(at, []string{name})
				}
				at = next
			}
			at.InitDefaultHelpFlag()
			return at.Help()
		},
	}
}

func child(cmd *cobra.Command, name string) *cobra.Command {
	for _, c := range cmd.Commands() {
		if c.Name() == name || c.HasAlias(name) {
			return c
		}
	}
	return nil
}

// helpFlags lists the flags of a command that are settings, or those that are not, wrapped to the
// width of the terminal.
func helpFlags(cmd *cobra.Command, settings bool) string {
	set := pflag.NewFlagSet("", pflag.ContinueOnError)
	cmd.LocalFlags().VisitAll(func(f *pflag.Flag) {
		if _, ok := f.Value.(*settingFlag); ok == settings {
			set.AddFlag(f)
		}
	})
	return strings.TrimRight(set.FlagUsagesWrapped(helpWidth()), "\n")
}

func helpWidth() int {
	if w, _, err := term.GetSize(int(os.Stdout.Fd())); err == nil && w >= 60 {
		return min(w, 120)
	}
	return 100
}

// usage is cobra's, with settings apart from other flags; in Go, since a program that links
// text/template keeps every exported method.
func usage(cmd *cobra.Command) error {
	var b strings.Builder
	b.WriteString("Usage:")
	parent := cmd.HasAvailableSubCommands()
	if parent {
		fmt.Fprintf(&b, "\n  %s COMMAND", cmd.CommandPath())
	} else if cmd.Runnable() {
		fmt.Fprintf(&b, "\n  %s", cmd.UseLine())
	}
	if cmd.HasExample() {
		fmt.Fprintf(&b, "\n\nExamples:\n%s", cmd.Example)
	}
	commands := func(title, group string) {
		fmt.Fprintf(&b, "\n\n%s", title)
		for _, c := range cmd.Commands() {
			if c.GroupID == group && (c.IsAvailableCommand() || c.Name() == "help") {
				fmt.Fprintf(&b, "\n  %-*s %s", c.NamePadding(), c.Name(), c.Short)
			}
		}
	}
	for _, g := range cmd.Groups() {
		commands(g.Title, g.ID)
	}
	if parent && len(cmd.Groups()) == 0 {
		commands("Commands:", "")
	}
	if flags := helpFlags(cmd, false); flags != "" {
		fmt.Fprintf(&b, "\n\nFlags:\n%s", flags)
	}
	if settings := helpFlags(cmd, true); settings != "" {
		fmt.Fprintf(&b, "\n\nSettings (also in a settings file and the environment; fmp config shows "+
			"where each comes from):\n%s", settings)
	}
	if parent {
		fmt.Fprintf(&b, "\n\n\"%s COMMAND --help\" explains a command.", cmd.CommandPath())
	}
	b.WriteByte('\n')
	_, err := io.WriteString(cmd.OutOrStderr(), b.String())
	return err
}
