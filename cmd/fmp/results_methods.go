package main

import (
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"fmp/pipeline/lab/rival"
)

// described is a method as `fmp results methods --json` tells it.
type described struct {
	Name  string `json:"name"`
	Group string `json:"group"`
	Title string `json:"title"`
	Cite  string `json:"cite"`
	// Tuned are the settings that the tuned protocol chooses, with the values that it tries.
	Tuned []tunedSetting `json:"tuned,omitempty"`
	// Corpus is "needs" or "reads" of a method that has to do with the server's own images.
	Corpus string `json:"corpus,omitempty"`
}

type tunedSetting struct {
	Name   string    `json:"name"`
	Values []float64 `json:"values"`
}

func describe(m rival.Method) described {
	i := m.Info()
	d := described{Name: i.Name, Group: string(i.Group), Title: i.Title, Cite: i.Cite}
	if i.Param != "" {
		d.Tuned = append(d.Tuned, tunedSetting{i.Param, i.Grid})
	}
	for _, p := range i.More {
		d.Tuned = append(d.Tuned, tunedSetting{p.Name, p.Grid})
	}
	switch {
	case i.NeedsCorpus:
		d.Corpus = "needs"
	case i.ReadsCorpus:
		d.Corpus = "reads"
	}
	return d
}

func newResultsMethodsCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "methods [METHOD...]",
		Short: "Say what each method does, which settings are tuned, and which paper to cite",
		Long: `Say what each method of the table does and which paper it is from. Tuned settings are those that
the tuned protocol chooses, beside the temperature, on images that are not scored. The values are
those that it tries. Default: all methods, in the order of the table.`,
		Example: `  fmp results methods
  fmp results methods FedCGS GH-LDA --json`,
		Args:              cobra.ArbitraryArgs,
		ValidArgsFunction: cobra.FixedCompletions(rival.Names(), cobra.ShellCompDirectiveNoFileComp),
	}
	jsonFlag(cmd, "print JSON: a list of methods")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		methods := rival.All()
		if len(args) > 0 {
			methods = nil
			for _, name := range args {
				m, err := rival.Lookup(name)
				if err != nil {
					return usageError(err)
				}
				methods = append(methods, m)
			}
		}
		var out []described
		for _, m := range methods {
			out = append(out, describe(m))
		}
		return tell(cmd, out, func(b *strings.Builder) { printMethods(b, out) })
	}
	return cmd
}

// printMethods prints a paragraph for each method.
func printMethods(b *strings.Builder, methods []described) {
	for _, d := range methods {
		fmt.Fprintf(b, "%s (%s): %s\n    %s\n", d.Name, d.Group, d.Title, d.Cite)
		for _, p := range d.Tuned {
			fmt.Fprintf(b, "    tuned: %s, one of %s\n", p.Name,
				strings.ReplaceAll(strings.Trim(fmt.Sprint(p.Values), "[]"), " ", ", "))
		}
		if d.Corpus != "" {
			fmt.Fprintf(b, "    %s a corpus of the server\n", d.Corpus)
		}
	}
}
