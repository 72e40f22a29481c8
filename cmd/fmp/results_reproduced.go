package main

import (
	"fmt"
	"io"
	"strings"

	"github.com/spf13/cobra"

	"fmp/pipeline/lab/experiment"
)

// newResultsReproducedCommand declares fmp results reproduced. KEPT is the reference: cells that
// MADE lacks are not counted. Changed cells end it with exit code 1 and no further message, as each
// has a line of its own.
func newResultsReproducedCommand() *cobra.Command {
	var all resultsFilter // of no partition and protocol
	cmd := &cobra.Command{
		Use:   "reproduced KEPT MADE",
		Short: "Say whether a run that was made again has the figures of the kept one",
		Long: `Compare two runs of the same settings, cell by cell: a cell is one method on one repeat. MADE may
have fewer repeats and methods than KEPT. A cell is equal where all that results.jsonl holds of it
is, to the last bit. It is close where each figure differs by 1e-6 at most, of figures above 1
relative to them. Other cells are changed: they are listed, and end the command with exit code 1.
Settings, models and data in which the runs differ are named.`,
		Example: `  fmp run --config runs/kept/config.yaml --seeds 1 --out runs/again
  fmp results reproduced runs/kept runs/again`,
		Args: rangeArgs(2, 2, "KEPT and MADE"),
	}
	jsonFlag(cmd, "print JSON")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		runs, err := all.read(args)
		if err != nil {
			return err
		}
		r, err := experiment.Reproduce(args[0], args[1], runs[0], runs[1])
		if err != nil {
			return usageError(err)
		}
		// The report is printed first, and with --json as well, so that exit code 1 explains
		// itself.
		err = show(cmd, r, func(w io.Writer) error { return printReproduced(w, r) })
		if err != nil {
			return err
		}
		if len(r.Changed) > 0 {
			return &silentError{exitFailed}
		}
		return nil
	}
	return cmd
}

// printReproduced writes r for people. A changed cell has a line with both NLLs and the names of
// three figures at most. Runs that differ in settings, models or data end with a line that says in
// which.
func printReproduced(w io.Writer, r *experiment.Reproduced) error {
	var b strings.Builder
	fmt.Fprintf(&b, "%s: of %d cells %d equal, %d close, %d changed\n", r.Kept, r.Cells, r.Equal,
		r.Near, len(r.Changed))
	for _, c := range r.Changed {
		figures := strings.Join(c.Figures, ", ")
		if more := len(c.Figures) - 3; more > 0 {
			figures = fmt.Sprintf("%s and %d more", strings.Join(c.Figures[:3], ", "), more)
		}
		fmt.Fprintf(&b, "  %s: NLL %.6f, was %.6f (%s)\n", c.Cell, c.MadeNLL, c.KeptNLL, figures)
	}
	if r.Reason != "" {
		fmt.Fprintf(&b, "  the runs differ: %s\n", r.Reason)
	}
	_, err := io.WriteString(w, b.String())
	return err
}
