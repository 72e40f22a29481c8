package main

import (
	"errors"
	"fmt"
	"io"
	"path/filepath"
	"slices"
	"strings"
	"text/tabwriter"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"fmp/cmd/internal/outputs"
	"fmp/onnx/printable"
	"fmp/onnx/suggest"
)

// newRootCommand is the whole program, which prints to stdout: every command is listed here. It may
// be called again, as tests do.
func newRootCommand(stdout io.Writer) *cobra.Command {
	cobra.EnableCommandSorting = false // the list below has an order
	root := &cobra.Command{
		Use:   "fmp",
		Short: "Federated martingale posteriors: calibrated predictions from one upload per client",
		Long: `fmp turns raw images that many clients hold into one calibrated classifier, after a single upload
per client and without showing an image to the server. Every model it uses (extractor, embedding,
predictor) is an ONNX file that runs on the stock ONNX Runtime.

It needs no data to start with: without settings, fmp run draws its own images of digits and prints
the table of all methods on them in a minute or two. The pages under docs say what the words mean.

Exit codes: 0 done; 1 failed; 2 bad usage, settings or input; 3 a file, data set or library is
missing (fmp doctor says what to do); 130 interrupted; 134 out of memory, or a fault of the
program.`,
		Example: `  fmp doctor               # what is installed, what is missing, what to do about it
  fmp run                  # images in, the table of methods out
  fmp results list         # what has been run
  fmp help run             # a command's flags, with examples`,
		// Errors are printed once, by execute; usage is for those who ask.
		SilenceErrors: true,
		SilenceUsage:  true,
		// With a Run of its own, cobra checks the arguments and suggests the nearest command.
		Args: unknownCommand,
		RunE: func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	root.SetOut(stdout) // before commands of cobra's own ask for it
	root.SetFlagErrorFunc(flagError)
	groups := []struct {
		id, title string
		commands  []*cobra.Command
	}{
		{"client", "Client (fmp-edge makes and sends the upload):",
			[]*cobra.Command{newPredictCommand(), newEvaluateCommand(), newVerifyCommand(),
				newReceiptsCommand(), newDataCommand()}},
		{"server",
			"Server:", []*cobra.Command{newFuseCommand(), newAnchorCommand(), newPoolCommand(),
				newServeCommand(), newWorkerCommand(), newMergeCommand(), newWithdrawCommand(),
				newCalibrateCommand(), newKeysCommand(), newSignCommand(), newPackageCommand()}},
		{"researcher", "Researcher:", []*cobra.Command{newRunCommand(), newScoreCommand(),
			newGridCommand(), newResultsCommand(), newLabCommand()}},
		{"models", "Models:", []*cobra.Command{newONNXCommand(), newTrainCommand(),
			newExtractorsCommand(), newFeaturesCommand()}},
		{"setup", "This installation:", []*cobra.Command{newSetupCommand(), newDoctorCommand(),
			newConfigCommand(), newManCommand(), newVersionCommand()}},
	}
	for _, g := range groups {
		root.AddGroup(&cobra.Group{ID: g.id, Title: g.title})
		for _, c := range g.commands {
			c.GroupID = g.id
			root.AddCommand(c)
		}
	}
	// The spellings of before 0.1.0 stay, and help does not list them.
	for _, c := range []*cobra.Command{newBenchCommand(), newAuditCommand()} {
		c.Hidden = true
		root.AddCommand(c)
	}
	addHelp(root)
	addCompletion(root)
	root.SetUsageFunc(usage)
	root.SetHelpCommandGroupID("setup")
	root.SetCompletionCommandGroupID("setup")
	return root
}

// group gives a command that only has subcommands these. Without a subcommand it prints its help
// and succeeds.
func group(cmd *cobra.Command, commands ...*cobra.Command) *cobra.Command {
	cmd.Args = unknownCommand
	cmd.RunE = func(cmd *cobra.Command, _ []string) error { return cmd.Help() }
	cmd.AddCommand(commands...)
	return cmd
}

// newLabCommand groups benchmarks and audits, which no round needs.
func newLabCommand() *cobra.Command {
	return group(&cobra.Command{
		Use:     "lab",
		Short:   "Benchmarks, and audits that attack a run",
		Example: "  fmp lab bench --seconds 2\n  fmp lab audit --help",
	}, newBenchCommand(), newAuditCommand())
}

// newONNXCommand groups the commands on any ONNX file.
func newONNXCommand() *cobra.Command {
	return group(&cobra.Command{
		Use:   "onnx",
		Short: "Run, inspect, test and train any ONNX model",
		Example: `  fmp onnx inspect assets/models/digits/extractor.onnx
  fmp onnx bench assets/models/digits/extractor.onnx --batch 64`,
	}, newONNXBenchCommand(), newONNXCheckCommand(), newONNXGradCommand(), newONNXHalfCommand(),
		newONNXInspectCommand(), newONNXQuantiseCommand(), newONNXRunCommand(),
		newONNXTestCommand(), newONNXTrainCommand())
}

// unknownCommand refuses arguments of a command that only has subcommands, suggesting the nearest.
// Without arguments it accepts: such a command prints its help. The names of hidden commands are
// suggested too.
func unknownCommand(cmd *cobra.Command, args []string) error {
	if len(args) == 0 {
		return nil
	}
	hint := fmt.Sprintf("%s --help lists them", cmd.CommandPath())
	var names []string
	for _, c := range cmd.Commands() {
		names = append(names, c.Name())
	}
	if near := suggest.Nearest(args[0], names); near != "" {
		hint = fmt.Sprintf("did you mean %s?", near)
	}
	return usageErrorf("unknown command %q of %s; %s", args[0], cmd.CommandPath(), hint)
}

// flagError words cobra's complaint about a flag, with the nearest flag where one was mistyped. A
// flag of a setting is known by its key and, where the command reads that, by its short name. Every
// such error is a usage error (exit code 2).
func flagError(cmd *cobra.Command, err error) error {
	msg := err.Error()
	var bad *pflag.InvalidValueError
	if errors.As(err, &bad) {
		want := map[string]string{"bool": "true or false", "int": "a whole number",
			"uint64": "a whole number of at least 0", "float64": "a number",
			"duration": "a time such as 90s, 10m or 2h"}[bad.GetFlag().Value.Type()]
		if want != "" {
			return usageErrorf("--%s is %q; want %s", bad.GetFlag().Name,
				clip(bad.GetValue()), want)
		}
	}
	if name, ok := strings.CutPrefix(msg, "unknown flag: --"); ok {
		if name == "steps" && cmd.Flags().Lookup("epochs") != nil {
			return usageErrorf("unknown flag --steps of %s, which counts passes over the images: "+
				"give --epochs", cmd.CommandPath())
		}
		var names []string
		cmd.Flags().VisitAll(func(f *pflag.Flag) { names = append(names, f.Name) })
		cmd.InheritedFlags().VisitAll(func(f *pflag.Flag) { names = append(names, f.Name) })
		// a flag goes by the name of its setting; commands that know the setting know the short
		// name
		for alias, key := range runAliases {
			if cmd.Flags().Lookup(key) != nil {
				names = append(names, alias)
			}
		}
		near := suggest.Nearest(name, names)
		if near == name { // a short name that this command does not take
			near = runAliases[name]
		}
		if near != "" {
			return usageErrorf("unknown flag --%s of %s; did you mean --%s?", name,
				cmd.CommandPath(), near)
		}
	}
	return usageErrorf("%s; %s --help lists what is allowed", msg, cmd.CommandPath())
}

// outFlag declares the flag of the file that a command writes, whose short name is -o. usual is the
// default, "" for none. The flag is marked as an output, so that outputs.Check guards its file.
func outFlag(cmd *cobra.Command, to *string, name, usual, usage string) {
	cmd.Flags().StringVarP(to, name, "o", usual, usage)
	outputs.Files(cmd.Flags(), name)
}

// jsonFlag declares the flag by which a command prints JSON. Without it output is text for people.
func jsonFlag(cmd *cobra.Command, usage string) { cmd.Flags().Bool("json", false, usage) }

// wantsJSON reports whether a command is to print JSON. A command without the flag never does.
func wantsJSON(cmd *cobra.Command) bool {
	given, _ := cmd.Flags().GetBool("json")
	return given
}

// show prints v as JSON, or by text. Text for people is no interface: scripts read the JSON.
// With --json text is not called.
func show(cmd *cobra.Command, v any, text func(io.Writer) error) error {
	if wantsJSON(cmd) {
		return printable.WriteJSON(cmd.OutOrStdout(), v)
	}
	return text(cmd.OutOrStdout())
}

// tabulate prints v as JSON, or lines whose cells, parted by tabs, stand under each other. Cells
// are parted by two spaces at least.
func tabulate(cmd *cobra.Command, v any, lines func(w io.Writer)) error {
	return show(cmd, v, func(out io.Writer) error {
		w := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
		lines(w)
		return w.Flush()
	})
}

// tell prints v as JSON, or a text that is put together. The text is written in one call, so that
// it is there whole or the error is told.
func tell(cmd *cobra.Command, v any, text func(b *strings.Builder)) error {
	return show(cmd, v, func(w io.Writer) error {
		var b strings.Builder
		text(&b)
		_, err := io.WriteString(w, b.String())
		return err
	})
}

// say prints v as JSON, or the formatted text. v is for programs and the text for people: both tell
// the same.
func say(cmd *cobra.Command, v any, format string, a ...any) error {
	return tell(cmd, v, func(b *strings.Builder) { fmt.Fprintf(b, format, a...) })
}

// line prints formatted text in which names that others chose begin no line of their own: ends of
// lines within texts become U+FFFD. Values that are no texts are printed as they are.
func line(w io.Writer, format string, a ...any) {
	a = slices.Clone(a)
	for i, x := range a {
		if s, ok := x.(string); ok {
			a[i] = printable.Line(s)
		}
	}
	fmt.Fprintf(w, format, a...)
}

// noArgs refuses positional arguments, naming them.
// It is a usage error (exit code 2), as are those of rangeArgs and exactArgs.
func noArgs(cmd *cobra.Command, args []string) error {
	if len(args) > 0 {
		return usageErrorf("%s takes no arguments and was given %q; %s --help shows how to use it",
			cmd.CommandPath(), strings.Join(args, " "), cmd.CommandPath())
	}
	return nil
}

// rangeArgs wants at least lo and at most hi positional arguments of one kind; hi 0 means no bound.
// lo 0 and hi 1 is an optional argument. name is the kind of the arguments, for the error.
func rangeArgs(lo, hi int, name string) cobra.PositionalArgs {
	return func(cmd *cobra.Command, args []string) error {
		if len(args) >= lo && (hi == 0 || len(args) <= hi) {
			return nil
		}
		want := numberOfArgs(hi)
		switch {
		case hi == 0:
			want = "at least " + numberOfArgs(lo)
		case lo == 0:
			want = "at most " + want
		case lo < hi:
			want = fmt.Sprintf("%d to %s", lo, want)
		}
		return usageErrorf("%s wants %s (%s) and was given %d; %s --help shows how to use it",
			cmd.CommandPath(), want, name, len(args), cmd.CommandPath())
	}
}

// numberOfArgs is a number of arguments in words, of which one is singular.
func numberOfArgs(n int) string {
	if n == 1 {
		return "1 argument"
	}
	return fmt.Sprintf("%d arguments", n)
}

// exactArgs wants the named positional arguments, no more and no fewer. Names are printed in the
// error, in their order.
func exactArgs(names ...string) cobra.PositionalArgs {
	return func(cmd *cobra.Command, args []string) error {
		if len(args) == len(names) {
			return nil
		}
		return usageErrorf("%s wants %s and was given %s; %s --help shows how to use it",
			cmd.CommandPath(), strings.Join(names, " "), numberOfArgs(len(args)), cmd.CommandPath())
	}
}

// expanding has the commands of uploads and runs take patterns for the files that they match:
// shells of Windows leave that to programs. Checks of arguments see the files, too. system is a
// GOOS.
func expanding(system string, cmd *cobra.Command) {
	for _, c := range cmd.Commands() {
		expanding(system, c)
	}
	if system != "windows" || !strings.Contains(cmd.Use, " UPLOAD") &&
		!strings.Contains(cmd.Use, " RUN") {
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

// expand puts the files that a pattern matches in its place. A pattern without a match is an error,
// since no name on Windows holds * or ?.
// Files of a pattern come in the order of filepath.Glob, and arguments without one stay as they
// are.
func expand(args []string) (out []string, err error) {
	for _, a := range args {
		names := []string{a}
		if strings.ContainsAny(a, "*?") { // which no name has on Windows
			if names, err = filepath.Glob(a); err != nil || len(names) == 0 {
				return nil, usageErrorf("%s: no file has such a name: mend the "+
					"pattern, or the folder", a)
			}
		}
		out = append(out, names...)
	}
	return out, nil
}
