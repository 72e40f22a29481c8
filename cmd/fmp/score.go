package main

import (
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"fmp/pipeline/lab/experiment"
	"fmp/pipeline/lab/report"
	"fmp/pipeline/lab/rival"
)

// groupNames are the words of --group.
var groupNames = map[string]rival.Group{"local": rival.Local, "centralised": rival.Centralised,
	"one-shot": rival.OneShot, "baseline": rival.Baseline}

func newScoreCommand() *cobra.Command {
	var run, group string
	var wide bool
	o := experiment.Outside{}
	cmd := &cobra.Command{
		Use:   "score PREDICTIONS.npz",
		Short: "Score predictions of a method from outside, as one more row of a run",
		Long: `Score predictions that another program made from the splits of a run (fmp run --export-splits), and
add the method to the run: its tables, its report and fmp results show, compare and export have one
more row then, whose origin they state.

PREDICTIONS.npz has one array for each task, under the task's name in the splits' manifest.json. It
holds probabilities of the N rows of test.npz: N x C, or S x N x C of S posterior samples, whose
mean is the prediction and which joint NLL needs. Or an array NAME-heads holds heads on the
features, S x (dx+1) x C with the bias last, from which intervals are scored as well. An array
test_sha256 (32 bytes, uint8) holds the digest of test.npz, without which nothing ties the rows'
order to the run. The labels of the test images are in the run directory alone. The same row
stands under each protocol of the run, as its settings are its author's own.`,
		Example: `  fmp run --methods FMP,NCM,FedCGS --out runs/mine --export-splits splits
  fmp score mine.npz --run runs/mine --name MINE
  fmp score heads.npz --run runs/mine --name HEADS --upload-bytes 2560
  fmp results compare runs/mine --method MINE`,
		Args: exactArgs("PREDICTIONS.npz"),
	}
	f := cmd.Flags()
	f.StringVar(&run, "run", "", "run `directory` that the splits are of (required)")
	f.StringVar(&o.Name, "name", "",
		"the method's `name` in tables: letters, digits and . _ + - (required)")
	f.StringVar(&group, "group", "one-shot",
		"where its data lie: local, centralised, one-shot or baseline")
	f.Float64Var(&o.UploadBytes, "upload-bytes", 0,
		"size of a client's upload in bytes; 0: not stated")
	f.BoolVar(&o.Replace, "replace", false, "replace the figures that the run has under this name")
	jsonFlag(cmd, "print the tables as JSON")
	bindWide(cmd, &wide)
	offers(cmd, "group", "local", "centralised", "one-shot", "baseline")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		for flag, v := range map[string]string{"run": run, "name": o.Name} {
			if v == "" {
				return usageErrorf("say with --%s %s", flag,
					map[string]string{"run": "which run directory the splits are of",
						"name": "how the method is called in tables"}[flag])
			}
		}
		var ok bool
		if o.Group, ok = groupNames[group]; !ok {
			return usageErrorf("--group is %q; allowed are local, centralised, one-shot and baseline",
				clip(group))
		}
		m, err := experiment.ReadManifest(run)
		if err != nil {
			return runError(run, err)
		}
		o.Path = args[0]
		notes, err := experiment.ScoreOutside(cmd.Context(), run, o)
		if err != nil {
			return usageError(err)
		}
		ts, err := report.Write(run)
		if err != nil {
			return err
		}
		out := &runOutput{Directory: run, Identity: m.Identity, Notes: slices.Concat(m.Notes, notes),
			Tables: ts, wide: wide}
		return show(cmd, out, out.print)
	}
	return cmd
}

// lookupMethod returns the name of a method of the program, or of one that the records have from
// outside.
func lookupMethod(name string, runs ...[]experiment.Record) (string, error) {
	m, err := rival.Lookup(name)
	if err == nil {
		return m.Info().Name, nil
	}
	for _, rs := range runs {
		if i := slices.IndexFunc(rs,
			func(r experiment.Record) bool {
				return r.Origin != "" &&
					strings.EqualFold(r.Method, name)
			}); i >= 0 {
			return rs[i].Method, nil
		}
	}
	return "", usageError(fmt.Errorf("--method: %w", err))
}
