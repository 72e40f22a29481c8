package main

import (
	"github.com/spf13/cobra"

	"fmp/cmd/buildinfo"
)

func newVersionCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:     "version",
		Short:   "Print the version of this program, and the commit that it was built from",
		Example: "  fmp version --json",
		Args:    noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			v := buildinfo.Read()
			return say(cmd, v, "fmp %v\n", v)
		},
	}
	jsonFlag(cmd, "print JSON")
	return cmd
}
