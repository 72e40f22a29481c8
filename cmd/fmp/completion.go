package main

import (
	"io"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"fmp/featurize/dataset"
	"fmp/pipeline/lab/rival"
	"fmp/pipeline/option"
)

// completer offers completions at the cursor; cobra's type, named.
type completer = func(cmd *cobra.Command, args []string,
	toComplete string) ([]string, cobra.ShellCompDirective)

// completeFirst offers values, as a directive has them taken, for the first count arguments; count 0
// means all.
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

// completeDataset offers the data sets that can be read now, else folders.
func completeDataset(_ *cobra.Command, _ []string, _ string) ([]string, cobra.ShellCompDirective) {
	var names []string
	for _, s := range dataset.List("") {
		names = append(names, s.Name)
	}
	return names, cobra.ShellCompDirectiveDefault
}

// offers has a flag of a command completed by values.
func offers(cmd *cobra.Command, flag string, values ...string) {
	// It fails only for a flag that does not exist or has one already.
	_ = cmd.RegisterFlagCompletionFunc(flag,
		cobra.FixedCompletions(values, cobra.ShellCompDirectiveNoFileComp))
}

// completeList offers names for a list whose values are parted by commas, each once.
func completeList(names ...string) completer {
	return func(_ *cobra.Command, _ []string, toComplete string) ([]string, cobra.ShellCompDirective) {
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

// completeSet offers KEY=VALUE: the keys, then the values of the key where they are few.
func completeSet(fields []option.Setting) completer {
	return func(_ *cobra.Command, _ []string, toComplete string) ([]string, cobra.ShellCompDirective) {
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
// shells' scripts examples.
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
	completion.Short = "Write the script by which a shell completes commands, flags, data sets and methods"
	completion.Example = "  source <(fmp completion bash)"
	completion.Args = unknownCommand
	completion.RunE = func(cmd *cobra.Command, _ []string) error { return cmd.Help() }
	plainly := func(described, plain func(io.Writer) error) func(io.Writer, bool) error {
		return func(w io.Writer, descriptions bool) error {
			if descriptions {
				return described(w)
			}
			return plain(w)
		}
	}
	for shell, s := range map[string]struct {
		example string
		write   func(io.Writer, bool) error
	}{
		"bash": {"  source <(fmp completion bash)", root.GenBashCompletionV2},
		"zsh": {"  source <(fmp completion zsh)",
			plainly(root.GenZshCompletion, root.GenZshCompletionNoDesc)},
		"fish": {"  fmp completion fish | source", root.GenFishCompletion},
		"powershell": {"  fmp completion powershell | Out-String | Invoke-Expression",
			plainly(root.GenPowerShellCompletionWithDesc, root.GenPowerShellCompletion)},
	} {
		c := child(completion, shell)
		c.Example, c.Args = s.example, noArgs
		// Cobra's own command writes to the output that was set when it was made.
		c.RunE = func(cmd *cobra.Command, _ []string) error {
			bare, err := cmd.Flags().GetBool("no-descriptions")
			if err != nil {
				return err
			}
			return s.write(cmd.OutOrStdout(), !bare)
		}
	}
}
