package main

import (
	"fmt"
	"io"

	"github.com/spf13/cobra"

	"fmp/featurize/dataset"
)

func newDataListCommand() *cobra.Command {
	var dir string
	cmd := &cobra.Command{
		Use:   "list",
		Short: "List the data sets: which are there, where, and how to get the others",
		Example: `  fmp data list
  fmp data list --json`,
		Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			list := dataset.List(dir)
			return tabulate(cmd, list, func(w io.Writer) {
				for _, s := range list {
					where := s.Where
					if !s.Present {
						where = "missing: fmp data pull " + s.Name
					}
					fmt.Fprintf(w, "%s\t%s\t%s\n", s.Name, s.Kind, where)
				}
			})
		},
	}
	dirFlag(cmd, &dir)
	jsonFlag(cmd, "print JSON")
	return cmd
}
