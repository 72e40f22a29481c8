package main

import (
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"text/tabwriter"

	"github.com/spf13/cobra"

	"fmp/pipeline/experiment"
)

func newGridCommand() *cobra.Command {
	var out string
	var threads int
	var dry, asJSON bool
	cmd := &cobra.Command{
		Use:   "grid FILE",
		Short: "Run all combinations of some settings, resuming what was stopped",
		Long: `Read a grid (YAML): settings that all runs share, in the form of a settings file, and under vary a list of
values for each key that varies. Every combination gets a run directory of its own under --out. Each run
uses all threads; a grid that was stopped goes on where it was, cell by cell.

  settings:
    seeds: 10
  vary:
    dataset.name: [mnist, cifar10]
    posterior.samples: [5, 20, 80]`,
		Example: `  fmp grid samples.yaml --dry-run
  fmp grid samples.yaml --out grids/samples
  fmp results list grids/samples`,
		Args: exactArgs("FILE"),
	}
	cmd.Flags().StringVar(&out, "out", "", "folder of the run directories (default: grids/ and the file's name)")
	cmd.Flags().IntVar(&threads, "threads", 0, "threads; 0 means one a core")
	cmd.Flags().BoolVar(&dry, "dry-run", false, "list the runs and do none")
	cmd.Flags().BoolVar(&asJSON, "json", false, "print the runs' tables as JSON")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		data, err := readGrid(args[0])
		if err != nil {
			return inputError(err)
		}
		g, err := experiment.ParseGrid(data)
		if err != nil {
			return usageError(fmt.Errorf("%s: %w", args[0], err))
		}
		runs, err := g.Runs()
		if err != nil {
			return usageError(fmt.Errorf("%s: %w", args[0], err))
		}
		if out == "" {
			base := filepath.Base(args[0])
			out = filepath.Join("grids", strings.TrimSuffix(base, filepath.Ext(base)))
		}
		w := tabwriter.NewWriter(cmd.OutOrStdout(), 0, 0, 2, ' ', 0)
		var done []*runOutput
		for i, r := range runs {
			if dry {
				fmt.Fprintf(w, "%s\n", filepath.Join(out, r.Name))
				continue
			}
			c := r.Config
			c.Output.Dir, c.Engine.Threads = filepath.Join(out, r.Name), threads
			fmt.Fprintf(cmd.ErrOrStderr(), "run %d of %d: %s\n", i+1, len(runs), r.Name)
			o, err := runExperiment(cmd, c)
			if err != nil {
				return fmt.Errorf("run %s: %w", r.Name, err)
			}
			done = append(done, o)
		}
		if asJSON && !dry {
			return printJSON(cmd.OutOrStdout(), done)
		}
		for i, o := range done {
			if i == 0 {
				fmt.Fprintln(w, "run\tpartition\tsettings\tmethod\tACC\tECE\tNLL")
			}
			for _, t := range o.Tables {
				for _, row := range t.Rows {
					if !row.Control() {
						fmt.Fprintf(w, "%s\t%s\t%s\t%s\t%.4f\t%.4f\t%.4f\n", o.Directory, t.Partition, t.Protocol, row.Method, row.ACC.Mean, row.ECE.Mean, row.NLL.Mean)
					}
				}
			}
		}
		return w.Flush()
	}
	return cmd
}

// readGrid reads a grid's file, bounded.
func readGrid(path string) ([]byte, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, fmt.Errorf("grid: %w", err)
	}
	defer f.Close()
	data, err := io.ReadAll(io.LimitReader(f, experiment.MaxGridBytes+1))
	if err != nil {
		return nil, fmt.Errorf("grid %s: %w", path, err)
	}
	return data, nil
}
