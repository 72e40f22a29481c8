package main

import (
	"fmt"
	"os"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/cobra/doc"

	"fmp/cmd/buildinfo"
)

func newManCommand() *cobra.Command {
	var format string
	cmd := &cobra.Command{
		Use:   "man DIR",
		Short: "Write the manual pages of all commands",
		Long: `Write one page for every command to DIR, which is made where it is missing: manual pages for man(1),
or Markdown. Point $MANPATH at the folder above DIR, if DIR is called man1, to read them with man.`,
		Example: "  fmp man ~/.local/share/man/man1\n  fmp man --format markdown docs/commands",
		Args:    exactArgs("DIR"),
		RunE: func(cmd *cobra.Command, args []string) error {
			if format != "man" && format != "markdown" {
				return usageErrorf("--format is %q; allowed are man, markdown", format)
			}
			dir := args[0]
			if err := os.MkdirAll(dir, 0o755); err != nil {
				return fmt.Errorf("writing manual pages: %w", err)
			}
			root := cmd.Root()
			root.DisableAutoGenTag = true // the same program gives the same pages
			var err error
			if format == "markdown" {
				err = doc.GenMarkdownTree(root, dir)
			} else {
				// The day of the source, so that the same program gives the same pages.
				day, terr := time.Parse(time.RFC3339, buildinfo.Read().Time)
				if terr != nil {
					day = time.Unix(0, 0).UTC()
				}
				err = doc.GenManTree(root,
					&doc.GenManHeader{Title: "FMP", Section: "1", Source: "fmp",
						Manual: "Federated martingale posteriors",
						Date:   &day}, dir)
			}
			if err != nil {
				return fmt.Errorf("writing manual pages to %s: %w", dir, err)
			}
			return nil
		},
	}
	cmd.Flags().StringVar(&format, "format", "man", "man or markdown")
	return cmd
}
