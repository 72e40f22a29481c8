package main

import (
	"fmt"
	"io"
	"strings"

	"github.com/spf13/cobra"

	"fmp/pipeline/lab/experiment"
	"fmp/pipeline/option"
	"fmp/pipeline/pool"
)

// runAliases are short flags for the settings that are typed most. Keys are flags without their
// dashes, and values keys of settings. Commands share them, so that a flag means the same
// everywhere. A command has those whose setting it reads. No command changes the map.
var runAliases = map[string]string{
	"classes": "dataset.classes",
	"dataset": "dataset.name", "data-dir": "dataset.dir", "on-bad": "dataset.bad",
	"extractor": "extractor.model",
	"predictor": "predictor.model",
	"embedding": "embedding.model", "preset": "extractor.preset", "layer": "extractor.output",
	"kappa":  "extractor.kappa",
	"resize": "extractor.resize", "clients": "federation.clients", "points": "federation.points",
	"partition": "federation.partition", "alpha": "federation.alpha",
	"samples": "posterior.samples",
	"fresh":   "predictor.fresh",
	"l2":      "erm.l2", "scope": "posterior.scope", "engine": "engine.name",
	"threads":  "engine.threads",
	"provider": "engine.provider",
	"out":      "output.dir",
}

// engineAliases are those of commands that only choose an engine.
var engineAliases = map[string]string{
	"engine": "engine.name", "threads": "engine.threads", "provider": "engine.provider",
	"library": "engine.library",
}

// hardwareAliases are those of commands with an --engine of their own.
var hardwareAliases = map[string]string{"threads": "engine.threads", "provider": "engine.provider",
	"library": "engine.library"}

// newConfigCommand declares fmp config, which shows the settings of fmp run. It reads no data and
// opens no engine: settings are resolved and checked, and printed. The text is YAML with the source
// as a comment, so that it can be given back with --config.
func newConfigCommand() *cobra.Command {
	var markdown bool
	cfg := experiment.Default()
	cmd := &cobra.Command{
		Use:   "config",
		Short: "Print the settings of a run and where each came from",
		Long: `Print every setting as ` + "`fmp run`" + ` would use it, and what gave it its value: the default, a settings
file, an FMP_* environment variable or a flag, each stronger than the one before. What is printed is
itself a settings file (YAML).

The environment variable of a key is FMP_ and the key in capitals, dots as underscores:
erm.l2 is FMP_ERM_L2.`,
		Example: `  fmp config
  fmp config --dataset cifar10 --set erm.l2=0.1
  FMP_ERM_L2=1 fmp config --json
  fmp config > mine.yaml && fmp run --config mine.yaml`,
		Args: noArgs,
	}
	s := bindSettings(cmd, &cfg, runAliases)
	jsonFlag(cmd, "print JSON: a list of key, value, source and meaning")
	cmd.Flags().BoolVar(&markdown, "markdown", false,
		"print a page in Markdown: keys, values, variables, short flags and meanings")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		// Of --json and --markdown together the JSON wins.
		if markdown && !wantsJSON(cmd) {
			return settingsPage(cmd.OutOrStdout(), s)
		}
		// Sources stand under each other, which is legible, and YAML skips the comments.
		return tabulate(cmd, s.list, func(w io.Writer) {
			for _, x := range s.list {
				fmt.Fprintf(w, "%s: %s\t# %s\n", x.Key, showValue(x.Value), x.Source)
			}
		})
	}
	return cmd
}

// settingsPage writes the settings as a table in Markdown. A setting without a default of its own
// has that of the data set, and the page says so. Bars in the text are escaped, as a cell of a
// table ends at one. The page goes out in one write.
func settingsPage(w io.Writer, s *resolver) error {
	short := map[string]string{}
	// Each key has one alias at most, so that the order of the map does not show.
	for a, key := range s.aliases {
		short[key] = "`--" + a + "`"
	}
	var b strings.Builder
	b.WriteString("# Settings\n\nEach is a key of a settings file (`--config FILE`), a variable " +
		"of the environment, and a flag `--KEY VALUE`\n(some have a short one). Flags win over " +
		"the environment, that over the file, that over the default.\n`fmp config` prints what " +
		"holds and where it comes from. An unknown key is an error.\n\n| key | default | allowed " +
		"| variable | short flag | meaning |\n| --- | --- | --- | --- | --- | --- |\n")
	for _, x := range s.list {
		value := "`" + showValue(x.Value) + "`"
		// The value at hand is that of one data set, while the page is for all.
		if x.Source == sourceDataset {
			value = "by data set"
		}
		fmt.Fprintf(&b, "| `%s` | %s | %s | `%s` | %s | %s |\n", x.Key, value, x.Allowed,
			envName(x.Key), short[x.Key], strings.ReplaceAll(x.Doc, "|", "\\|"))
	}
	optionsTable(&b)
	_, err := io.WriteString(w, b.String())
	return err
}

// optionsTable writes the options of a round, which fmp pool, fmp merge and fmp serve read. The
// table is made of the tags of pool.Options, which package option reads. The tag rounds has the
// kinds of uploads in whose rounds an option is read.
func optionsTable(b *strings.Builder) {
	b.WriteString("\n## Options of a round\n\n`fmp pool` reads them as settings, and `fmp " +
		"serve` from the [round file](federate.md#the-round-file), by the name there; flags and\n" +
		"variables of `fmp serve` take the place of the file's. Given " +
		"in a round whose uploads do not read it, an option is an error.\n\n| in a round file " +
		"| default | allowed | setting | variable | short flag | read by rounds of | meaning |\n" +
		"| --- | --- | --- | --- | --- | --- | --- | --- |\n")
	o := option.Default[pool.Options]()
	for _, s := range option.List(&o) {
		short := ""
		if s.Flag != "" {
			short = "`--" + s.Flag + "`"
		}
		fmt.Fprintf(b, "| `%s` | `%s` | %s | `%s` | `%s` | %s | %s | %s |\n", s.Name,
			showValue(s.Value.Interface()), s.Allowed(), s.Key, envName(s.Key), short, strings.Join(
				strings.Fields(s.Tag.Get("rounds")), ", "), strings.ReplaceAll(s.Doc, "|", "\\|"))
	}
}
