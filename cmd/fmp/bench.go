package main

import (
	"fmt"
	"io"
	"maps"
	"math"
	"strconv"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"fmp/assets"
	"fmp/models"
	"fmp/onnx/serde"
	"fmp/onnx/suggest"
	"fmp/pipeline/lab/experiment"
)

// benchedModel is one model of a data set on both engines.
type benchedModel struct {
	Kind string `json:"kind"`
	Work string `json:"work"` // what one call does
	benchReport
}

func newBenchCommand() *cobra.Command {
	var seconds float64
	cfg := experiment.Default()
	cmd := &cobra.Command{
		Use:   "bench",
		Short: "Measure a data set's shipped models on both engines, side by side",
		Long: `Run extractor, embedding, predictor (of attention blocks) and client graph of a data set, as they
come with the program, with the sizes of a run's defaults, on the ONNX Runtime and on the pure Go
engine, and print how long one call takes and the ratio of the two. Times depend on what else the
machine does; the ratio does so less. fmp onnx bench measures any other model.`,
		Example: `  fmp bench
  fmp bench --dataset cifar10 --threads 1 --seconds 5`,
		Args: noArgs,
	}
	aliases := maps.Clone(hardwareAliases)
	aliases["dataset"] = "dataset.name"
	bindSettings(cmd, &cfg, aliases, "engine.", "dataset.name")
	flags := cmd.Flags()
	flags.Float64Var(&seconds, "seconds", 1,
		"how long to measure each model on each engine, 0.01 to 600")
	jsonFlag(cmd, "print JSON")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		if !(seconds >= 0.01 && seconds <= 600) {
			return usageErrorf("--seconds is %v; allowed are 0.01 to 600", seconds)
		}
		cfg.FillDefaults()
		var out []benchedModel
		for _, w := range benchWork(cfg) {
			data, err := assets.Model(cfg.Dataset.Name, w.kind)
			if err != nil {
				return usageError(fmt.Errorf("%w; give --dataset %s, or measure a model of your "+
					"own with fmp onnx bench", err, suggest.Or(assets.Datasets()...)))
			}
			m, err := serde.Unmarshal(data)
			if err != nil {
				return fmt.Errorf("the shipped %s for %s: %w", w.kind, cfg.Dataset.Name, err)
			}
			feeds, err := benchFeeds(m, nil, w.dims, w.items)
			if err != nil {
				return fmt.Errorf("the shipped %s for %s: %w", w.kind, cfg.Dataset.Name, err)
			}
			b := benchedModel{w.kind, w.work,
				benchReport{Model: "models/" + cfg.Dataset.Name + "/" + w.kind + ".onnx",
					Batch:   w.items,
					Threads: cfg.Engine.Threads, Inputs: map[string]string{}}}
			for name, t := range feeds {
				b.Inputs[name] = t.String()
			}
			for _, name := range []string{"ort", "pure"} {
				ec := cfg.Engine
				ec.Name = name
				r, err := benchEngine(cmd, ec, m, feeds, w.items,
					time.Duration(seconds*float64(time.Second)))
				if err != nil {
					return err
				}
				b.Results = append(b.Results, r)
			}
			b.compare()
			out = append(out, b)
		}
		return show(cmd, out, func(w io.Writer) error { return printBench(w, cfg.Dataset.Name, out) })
	}
	cmd.AddCommand(newBenchDomainsCommand(), newBenchPeersCommand(), newBenchPhotosCommand(),
		newBenchRoundCommand(), newBenchServeCommand(), newBenchSetsCommand(),
		newBenchMartingaleCommand())
	return cmd
}

// workload is the sizes of one call of a model.
type workload struct {
	kind, work string
	items      int // first axis
	dims       []string
}

// benchWork is the work of a run with these settings for its models.
func benchWork(c experiment.Config) []workload {
	n, clients, samples, fresh := c.Federation.Points, c.Federation.Clients, c.Posterior.Samples,
		c.Predictor.Fresh
	dim := func(name string, n int) string { return name + "=" + strconv.Itoa(n) }
	return []workload{
		{models.KindExtractor, "256 images to features", 256, nil},
		{models.KindEmbedding, fmt.Sprintf("uploads of %d clients of %d points", clients, n), clients,
			[]string{dim("n", n)}},
		{models.KindPredictor, fmt.Sprintf("%d draws of %d points from %d", samples, fresh, clients*n),
			samples, []string{dim("contexts", 1), dim("n", clients*n), dim("fresh", fresh)}},
		{models.KindClient, fmt.Sprintf("%d images to an upload", n), n, nil},
	}
}

func printBench(out io.Writer, dataset string, ms []benchedModel) error {
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	fmt.Fprintf(w, "%s\tone call\tort ms\tpure ms\tpure / ort\n", dataset)
	least := math.MaxInt
	for _, m := range ms {
		fmt.Fprintf(w, "%s\t%s\t%.2f\t%.2f\t%.1f\n", m.Kind, m.Work, m.Results[0].Median,
			m.Results[1].Median, m.Ratio["pure"])
		least = min(least, m.Results[0].Runs, m.Results[1].Runs)
	}
	fmt.Fprintf(w, "\nMedians of %d calls or more.\n", least)
	if err := w.Flush(); err != nil {
		return fmt.Errorf("printing the measurements: %w", err)
	}
	return nil
}
