package main

import (
	"fmt"
	"io"
	"os"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"golang.org/x/term"

	"fmp/featurize/dataset"
	"fmp/pipeline/lab/rival"
	"fmp/pipeline/option"
)

// addHelp adds cobra's command of help, which suggests the nearest command for
// one that is not there.
// An unknown command is a usage error, as where it is called.
func addHelp(root *cobra.Command) {
	root.InitDefaultHelpCmd()
	help := child(root, "help")
	help.Use, help.Short, help.Long = "help [COMMAND]", "Explain a command, with an example", ""
	help.Example = "  fmp help run\n  fmp help onnx bench"
	help.RunE = func(_ *cobra.Command, args []string) error {
		at := root
		for _, name := range args {
			next := child(at, name)
			if next == nil {
				return unknownCommand(at, []string{name})
			}
			at = next
		}
		at.InitDefaultHelpFlag()
		return at.Help()
	}
}

// child is the command of a name or alias below another; nil: there is none. It looks one level
// down.
func child(cmd *cobra.Command, name string) *cobra.Command {
	for _, c := range cmd.Commands() {
		if c.Name() == name || c.HasAlias(name) {
			return c
		}
	}
	return nil
}

// helpFlags lists the flags of a command that are settings, or those that are not, wrapped to the
// width of the terminal. Flags of both kinds come in the order of their names.
func helpFlags(cmd *cobra.Command, settings bool) string {
	set := pflag.NewFlagSet("", pflag.ContinueOnError)
	cmd.LocalFlags().VisitAll(func(f *pflag.Flag) {
		if _, ok := f.Value.(*settingFlag); ok == settings {
			set.AddFlag(f)
		}
	})
	return strings.TrimRight(set.FlagUsagesWrapped(helpWidth()), "\n")
}

// helpWidth is the width of help: that of the terminal from 60 to 120 columns, else 100. A narrower
// terminal gets 100 too.
func helpWidth() int {
	if w, _, err := term.GetSize(int(os.Stdout.Fd())); err == nil && w >= 60 {
		return min(w, 120)
	}
	return 100
}

// usage is cobra's, with settings apart from other flags; in Go, since a program that links
// text/template keeps every exported method. Commands without a group come under a title of their
// own where there are no groups. It is written in one call.
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
		fmt.Fprintf(&b, "\n\nSettings (also in a settings file and the environment; fmp config "+
			"shows where each comes from):\n%s", settings)
	}
	if parent {
		fmt.Fprintf(&b, "\n\n\"%s COMMAND --help\" explains a command.", cmd.CommandPath())
	}
	b.WriteByte('\n')
	_, err := io.WriteString(cmd.OutOrStderr(), b.String())
	return err
}

// completer offers completions at the cursor; cobra's type, named.
type completer = func(cmd *cobra.Command, args []string,
	toComplete string) ([]string, cobra.ShellCompDirective)

// completeFirst offers values, as a directive has them taken, for the first count arguments; count
// 0 means all. Beyond count nothing is offered, not even files.
func completeFirst(count int, values []string, d cobra.ShellCompDirective) completer {
	return func(_ *cobra.Command, args []string, _ string) ([]string, cobra.ShellCompDirective) {
		if count > 0 && len(args) >= count {
			return nil, cobra.ShellCompDirectiveNoFileComp
		}
		return values, d
	}
}

// completeFiles offers files of the given extensions (without dots).
func completeFiles(count int, extensions ...string) completer {
	return completeFirst(count, extensions, cobra.ShellCompDirectiveFilterFileExt)
}

// completeDirs offers folders.
func completeDirs(count int) completer {
	return completeFirst(count, nil, cobra.ShellCompDirectiveFilterDirs)
}

// completeDataset offers the data sets that can be read now, else folders. Files and folders are
// offered beside them, as a data set may be a folder.
func completeDataset(_ *cobra.Command, _ []string, _ string) ([]string, cobra.ShellCompDirective) {
	var names []string
	for _, s := range dataset.List("") {
		names = append(names, s.Name)
	}
	return names, cobra.ShellCompDirectiveDefault
}

// offers has a flag of a command completed by values. Files are not offered beside them.
func offers(cmd *cobra.Command, flag string, values ...string) {
	// It fails only for a flag that does not exist or has one already.
	_ = cmd.RegisterFlagCompletionFunc(flag,
		cobra.FixedCompletions(values, cobra.ShellCompDirectiveNoFileComp))
}

// completeList offers names for a list whose values are parted by commas, each once. Each offer has
// the whole list that is typed so far, as shells replace the word.
func completeList(names ...string) completer {
	return func(_ *cobra.Command, _ []string,
		toComplete string) ([]string, cobra.ShellCompDirective) {
		given := toComplete[:strings.LastIndex(toComplete, ",")+1]
		var out []string
		for _, n := range names {
			if !slices.Contains(strings.Split(given, ","), n) {
				out = append(out, given+n)
			}
		}
		return out, cobra.ShellCompDirectiveNoFileComp | cobra.ShellCompDirectiveNoSpace
	}
}

// completeSet offers KEY=VALUE: the keys, then the values of the key where they are few. fields are
// those that the command reads.
// Files are offered beside values, as a setting may name one.
func completeSet(fields []option.Setting) completer {
	return func(_ *cobra.Command, _ []string,
		toComplete string) ([]string, cobra.ShellCompDirective) {
		var out []string
		if key, _, ok := strings.Cut(toComplete, "="); ok {
			for _, f := range fields {
				if f.Key == key {
					for _, v := range f.Choices() {
						out = append(out, key+"="+v)
					}
				}
			}
			return out, cobra.ShellCompDirectiveDefault
		}
		for _, f := range fields {
			out = append(out, f.Key+"=")
		}
		return out, cobra.ShellCompDirectiveNoFileComp | cobra.ShellCompDirectiveNoSpace
	}
}

// completionOf holds the completions of the arguments of commands, by their path.
var completionOf = map[string]completer{
	"fmp data import":    completeDirs(1),
	"fmp data pull":      completeFirst(1, dataset.Published(), cobra.ShellCompDirectiveNoFileComp),
	"fmp grid":           completeFiles(1, "yaml", "yml"),
	"fmp man":            completeDirs(1),
	"fmp onnx bench":     completeFiles(1, "onnx"),
	"fmp onnx check":     completeFiles(1, "onnx"),
	"fmp onnx grad":      completeFiles(1, "onnx"),
	"fmp onnx half":      completeFiles(1, "onnx"),
	"fmp onnx inspect":   completeFiles(1, "onnx"),
	"fmp onnx run":       completeFiles(1, "onnx"),
	"fmp onnx test":      completeDirs(1),
	"fmp pool":           completeFiles(0, "upload"),
	"fmp results list":   completeDirs(1),
	"fmp results show":   completeDirs(1),
	"fmp results export": completeDirs(0),
	// One run, or two.
	"fmp results compare": completeDirs(2),
}

// flagCompletion holds the completions of flags that are no settings, by their name; settings have
// choices.
var flagCompletion = map[string]completer{
	"dataset":     completeDataset,
	"aux":         completeDataset,
	"dataset.dir": completeDirs(0),
	"method":      cobra.FixedCompletions(rival.Names(), cobra.ShellCompDirectiveNoFileComp),
	"part": cobra.FixedCompletions([]string{"train", "test"},
		cobra.ShellCompDirectiveNoFileComp),
	"variant": cobra.FixedCompletions([]string{"digits", "digits-color"},
		cobra.ShellCompDirectiveNoFileComp),
	"predictor":    completeFiles(0, "onnx"),
	"client-graph": completeFiles(0, "onnx"),
	"from":         completeFiles(0, "onnx"),
	"start":        completeFiles(0, "onnx"),
}

// addCompletion gives every command and flag its completion, and the command that prints the
// shells' scripts examples. It walks the whole tree, and comes after all commands are in it.
// A command without an entry, and without subcommands, is offered no files.
func addCompletion(root *cobra.Command) {
	var walk func(c *cobra.Command)
	walk = func(c *cobra.Command) {
		if f, ok := completionOf[c.CommandPath()]; ok {
			c.ValidArgsFunction = f
		} else if c.Runnable() && !c.HasSubCommands() && c.ValidArgsFunction == nil {
			c.ValidArgsFunction = cobra.NoFileCompletions
		}
		for name, f := range flagCompletion {
			if l := c.Flags().Lookup(name); l != nil && l.Name == name {
				// It fails only where the flag has a completion already.
				_ = c.RegisterFlagCompletionFunc(name, f)
			}
		}
		for _, s := range c.Commands() {
			walk(s)
		}
	}
	walk(root)

	root.InitDefaultCompletionCmd()
	completion := child(root, "completion")
	completion.Short = "Write the script by which a shell completes commands, flags, " +
		"data sets and methods"
	completion.Example = "  source <(fmp completion bash)"
	completion.Args = unknownCommand
	completion.RunE = func(cmd *cobra.Command, _ []string) error { return cmd.Help() }
	for shell, example := range map[string]string{"bash": "source <(fmp completion bash)",
		"zsh": "source <(fmp completion zsh)", "fish": "fmp completion fish | source",
		"powershell": "fmp completion powershell | Out-String | Invoke-Expression"} {
		c := child(completion, shell)
		c.Example, c.Args = "  "+example, noArgs
	}
}
