package main

import (
	"fmt"
	"io"
	"maps"
	"math"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"fmp/assets"
	"fmp/featurize/imagefile"
	"fmp/models"
	"fmp/onnx/dense"
	"fmp/onnx/serde"
	"fmp/onnx/suggest"
	"fmp/pipeline/lab/bench"
	"fmp/pipeline/lab/experiment"
)

// benchedModel is one model of a data set on both engines. Kind is one of the kinds of package
// models, and Work its sizes in words. The embedded report has the results in the order ort, pure,
// so that Ratio is over the ONNX Runtime.
type benchedModel struct {
	Kind string `json:"kind"`
	Work string `json:"work"` // what one call does
	benchReport
}

// newBenchCommand declares fmp bench. Both engines get the same inputs. The setting engine.name is
// not heeded, since both engines are measured. They run one after the other, so that neither takes
// the other's cores.
//
// Either engine that fails ends the command: a ratio needs both. Here fmp onnx bench differs, which
// reports the engine that is left. An engine is opened and closed for each model, and no model is
// written or downloaded.
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
	// hardwareAliases is shared by several commands, so that a copy gets the further name.
	aliases := maps.Clone(hardwareAliases)
	aliases["dataset"] = "dataset.name"
	bindSettings(cmd, &cfg, aliases, "engine.", "dataset.name")
	flags := cmd.Flags()
	flags.Float64Var(&seconds, "seconds", 1,
		"how long to measure each model on each engine, 0.01 to 600")
	jsonFlag(cmd, "print JSON")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		if err := checkSeconds(seconds); err != nil {
			return err
		}
		cfg.FillDefaults()
		var out []benchedModel
		for _, w := range benchWork(cfg) {
			// Data sets without a shipped model are the user's choice, and so their error is of
			// usage.
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
				newBenchReport("models/"+cfg.Dataset.Name+"/"+w.kind+".onnx", w.items,
					cfg.Engine.Threads, feeds)}
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
		return show(cmd, out,
			func(w io.Writer) error { return printBench(w, cfg.Dataset.Name, out) })
	}
	cmd.AddCommand(newBenchDomainsCommand(), newBenchPeersCommand(), newBenchPhotosCommand(),
		newBenchRoundCommand(), newBenchServeCommand(), newBenchSetsCommand(),
		newBenchMartingaleCommand())
	return cmd
}

// workload is the sizes of one call of a model. kind is one of package models, and work is its text
// for people. items is also the number by which throughput is counted. dims are NAME=N for the axes
// that the model names, as fmp onnx bench --dim has them.
type workload struct {
	kind, work string
	items      int // first axis
	dims       []string
}

// benchWork is the work of a run with these settings for its models. A predictor reads the pool of
// all clients' points: clients times n. An extractor gets 256 images. The predictor draws for all
// posterior samples in one call. Times of the four are therefore of different numbers of items, and
// are not to be compared with each other.
func benchWork(c experiment.Config) []workload {
	n, clients, samples, fresh := c.Federation.Points, c.Federation.Clients, c.Posterior.Samples,
		c.Predictor.Fresh
	dim := func(name string, n int) string { return name + "=" + strconv.Itoa(n) }
	return []workload{
		// In the order in which a round uses them up to the predictor, and the client graph as a
		// whole.
		{models.KindExtractor, "256 images to features", 256, nil},
		{models.KindEmbedding, fmt.Sprintf("uploads of %d clients of %d points", clients, n),
			clients, []string{dim("n", n)}},
		{models.KindPredictor,
			fmt.Sprintf("%d draws of %d points from %d", samples, fresh, clients*n), samples,
			[]string{dim("contexts", 1), dim("n", clients*n), dim("fresh", fresh)}},
		{models.KindClient, fmt.Sprintf("%d images to an upload", n), n, nil},
	}
}

// printBench prints a line for each model. least is the fewest calls behind any of the medians.
// Each model must have two results, of ort and of pure in this order. Milliseconds are medians, and
// the last column is their ratio: above 1 the ONNX Runtime is faster.
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

// photosReport is the output of fmp bench photos. Size is the height and width in pixels, and Runs
// the number of measured runs of each photograph. Photos are in the order of --megapixels, each as
// JPEG and then as PNG. Times in them are of the processor.
type photosReport struct {
	Size   int           `json:"size"`
	Resize string        `json:"resize"`
	Runs   int           `json:"runs"`
	Photos []bench.Photo `json:"photos"`
}

// newBenchPhotosCommand declares fmp bench photos. It opens no engine: decoding and resizing are
// measured alone. All flags are checked before the first photograph is drawn, and nothing is
// written to disk. A photograph takes four bytes a pixel in memory: 192 MB of 48 megapixels.
//
// Bounds of --size and --runs keep a run finite; bench.MinRuns is the fewest of which a spread says
// something. Processor time is reported, and not wall time, since a shared machine stretches the
// latter.
func newBenchPhotosCommand() *cobra.Command {
	var r photosReport
	var megapixels []float64
	cmd := &cobra.Command{
		Use: "photos",
		Short: "Measure photographs on their way from a file to a model's pixels: time against " +
			"megapixels, by stage",
		Long: `Draw photographs of several sizes, write them as JPEG and PNG, decode them and bring them to a
model's height and width. Print the processor time of decoding and of resizing, medians of the runs.
A JPEG that is shrunk far is decoded at a half, a quarter or an eighth of its size: the column of
pixels says how many of the photograph's one decoded pixel covers (docs/edge.md).`,
		Example: `  fmp bench photos
  fmp bench photos --megapixels 12 --size 128 --resize crop
  fmp bench photos --json`,
		Args: noArgs,
	}
	f := cmd.Flags()
	// 640 x 480, and steps of three or four times up to the 48 megapixels of telephones.
	f.Float64SliceVar(&megapixels, "megapixels", []float64{0.3072, 1, 3, 12, 48},
		"`SIZES` of the photographs in millions of pixels")
	f.IntVar(&r.Size, "size", 224, "height and width of the model's images, 1 to 4096")
	f.StringVar(&r.Resize, "resize", "stretch", "`WAY` to resize: stretch, crop, crop:SHARE or pad")
	f.IntVar(&r.Runs, "runs", bench.MinRuns, fmt.Sprintf("runs of each, %d to 1000", bench.MinRuns))
	jsonFlag(cmd, "print JSON")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		resize, err := imagefile.ParseResize(r.Resize)
		if err != nil {
			return usageErrorf("bench photos: %w", err)
		}
		if r.Size < 1 || r.Size > 4096 {
			return usageErrorf("bench photos: --size is %d; allowed are 1 to 4096", r.Size)
		}
		if r.Runs < bench.MinRuns || r.Runs > 1000 {
			return usageErrorf("bench photos: --runs is %d; allowed are %d to 1000",
				r.Runs, bench.MinRuns)
		}
		for _, m := range megapixels {
			// The negation refuses NaN, with which no comparison holds.
			if !(m >= bench.MinMegapixels) || m > bench.MaxMegapixels {
				return usageErrorf("bench photos: --megapixels has %v; allowed are %v to %v", m,
					bench.MinMegapixels, bench.MaxMegapixels)
			}
		}
		bar := newProgress(cmd.ErrOrStderr())
		// Progress counts photographs of each format.
		report := func(done, total int) { bar.report("photographs", done, total) }
		fit := imagefile.Fit{H: r.Size, W: r.Size, Ch: 3, Resize: resize}
		r.Photos, err = bench.Photos(cmd.Context(), fit, megapixels, r.Runs, report)
		bar.close()
		if err != nil {
			return fmt.Errorf("bench photos: %w", err)
		}
		return tell(cmd, r, r.print)
	}
	return cmd
}

// print writes a line for each photograph and format. Columns are the megapixels asked for, the
// size drawn, bytes of the file, pixels that one decoded pixel covers, and milliseconds. The drawn
// size may differ from the megapixels by the rounding of height and width. The column all is
// measured, and is no sum of the two before it.
func (r photosReport) print(b *strings.Builder) {
	fmt.Fprintf(b, "to %d x %d pixels (%s), milliseconds of the processor, medians of %d runs\n",
		r.Size, r.Size, r.Resize, r.Runs)
	fmt.Fprintf(b, "%10s %12s %6s %10s %8s %8s %8s %8s\n", "megapixels", "size", "format", "bytes",
		"pixels", "decode", "resize", "all")
	for _, p := range r.Photos {
		fmt.Fprintf(b, "%10.3g %12s %6s %10d %8s %8.1f %8.1f %8.1f\n", p.Megapixels,
			fmt.Sprintf("%d x %d", p.Width, p.Height), p.Format, p.Bytes, fmt.Sprintf("%g x %g",
				p.Covers[0], p.Covers[1]), p.Decode.Median, p.Resize.Median, p.All.Median)
	}
}

// peersReport is the output of fmp bench peers. Go is version and architecture, as both decide on
// the speed of this program's side. Works are the rows in the order in which they were measured.
type peersReport struct {
	Go           string       `json:"go"`
	Instructions string       `json:"instructions"` // that products are done with
	Runs         int          `json:"runs"`
	Before       int          `json:"before"` // runs before each that is measured
	Works        []peerResult `json:"works"`
}

// peerResult is a row: one work, by this program and by the others. Results begin with this
// program's, to which the ratios of the others relate. Those that are not at hand are there too,
// marked as missing.
type peerResult struct {
	Work    string         `json:"work"`
	Results []bench.Result `json:"results"`
}

// newBenchPeersCommand declares fmp bench peers. Rows are printed as they are measured, but for
// --json. The whole takes minutes, and a command that is stopped has shown the rows before. JSON is
// one value and comes at the end.
//
// The engine has one thread, as the others have. Without the other programs the command goes on
// with the rows that this process can measure, and says so on stderr. Numbers of runs and the text
// of --only are checked before the engine is opened. An error of one row ends the command, with the
// rows before it printed.
func newBenchPeersCommand() *cobra.Command {
	var folder, only string
	var runs, before int
	cfg := experiment.Default()
	cmd := &cobra.Command{
		Use:   "peers",
		Short: "Measure fits, predictions, networks and training beside other programs",
		Long: `Do the work of a task (fits, heads on shared points, predictions, networks on the pure engine in
float32 and in bytes, features, steps of training, Table I) and the same with other programs, in
turns on one thread, and print the processor time that it takes, medians, least and most, and how
many times as long the others take. With --before a program runs several times in its turn, and the
last is measured: its code and numbers are in the caches, as in a service. A product of matrices
says how fast the machine is. The last rows are scaling limits, without a baseline. All takes ten
minutes.

scikit-learn, scipy, numpy, tract, OpenVINO and Python's onnxruntime are run by the script in the
source tree's bench/peers, in a virtual environment that make bench-peers makes; PyTorch where
somebody has installed it there. What is not at hand is said to be. ort is the ONNX Runtime in this
process, with a graph of the same; networks have it where there is no such environment. Table I is
of CIFAR-10's images, where fmp data has them.`,
		Example: `  fmp bench peers
  fmp bench peers --only ResNet
  fmp bench peers --runs 15 --json`,
		Args: noArgs,
	}
	bindSettings(cmd, &cfg, nil, "engine.library", "dataset.dir")
	flags := cmd.Flags()
	flags.StringVar(&folder, "peers", "bench/peers",
		"`FOLDER` of the other programs' scripts and virtual environment")
	flags.StringVar(&only, "only", "", "measure the rows with this `TEXT` in their names alone")
	flags.IntVar(&runs, "runs", bench.MinRuns,
		fmt.Sprintf("runs of each, %d to 1000", bench.MinRuns))
	flags.IntVar(&before, "before", 0, fmt.Sprintf("runs of a program, one after the other, "+
		"before each that is measured, 0 to %d", bench.MaxBefore))
	jsonFlag(cmd, "print JSON")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		if err := bench.CheckRuns(runs, before); err != nil {
			return usageError(fmt.Errorf("--runs and --before: %w", err))
		}
		// Without --only every name has the empty text in it.
		works := slices.DeleteFunc(bench.Works(),
			func(w bench.Work) bool { return !strings.Contains(w.Name, only) })
		if len(works) == 0 {
			return usageErrorf("--only %q: no row has it in its name; fmp bench peers without it "+
				"prints them all", only)
		}
		b := &bench.Bench{Peers: bench.Peers(folder), Data: cfg.Dataset.Dir}
		if !b.Peers.Ready() {
			fmt.Fprintf(cmd.ErrOrStderr(), "%s has no peer.py and venv: other programs but the "+
				"ONNX Runtime are left out (make bench-peers makes it)\n", folder)
		}
		eng, err := openEngine(cmd.Context(), cfg.Engine, 1, cmd.ErrOrStderr())
		if err != nil {
			return err
		}
		defer eng.Close()
		b.Engine = eng
		out := peersReport{Go: runtime.Version() + " " + runtime.GOARCH,
			Instructions: dense.Instructions(), Runs: runs, Before: before}
		wide := 0
		for _, w := range works {
			wide = max(wide, len(w.Name))
		}
		for i, w := range works {
			r, err := b.Measure(cmd.Context(), w, runs, before)
			out.Works = append(out.Works, peerResult{w.Name, r})
			if err == nil && !wantsJSON(cmd) {
				err = out.Works[i].print(cmd.OutOrStdout(), wide, i == 0)
			}
			if err != nil {
				return err
			}
		}
		return say(cmd, out, "\nProcessor time: medians of %d runs in turns (least to most), one "+
			"thread; %s; %s.\n", out.Runs, out.Go, out.Instructions)
	}
	return cmd
}

// print writes the lines of a row, its name in a column that is wide enough for all. The name
// stands on the first line alone. wide is the length of the longest name in bytes. Times are
// milliseconds: the median, and in brackets the least and the most. The last column is the median
// of ratios run by run, and not the ratio of the medians: neighbouring runs share the speed of the
// machine.
func (p *peerResult) print(out io.Writer, wide int, heading bool) error {
	var b strings.Builder
	line := func(work, with, ms, times string) {
		fmt.Fprintf(&b, "%-*s  %-36s %-28s %s\n", wide, work, with, ms, times)
	}
	if heading {
		line("work", "with", "ms", "times as long as fmp")
	}
	name := p.Work
	for _, r := range p.Results {
		// A program that is missing has a line, so that tables of two machines compare.
		ms, times := "not at hand", ""
		if !r.Missing {
			ms = fmt.Sprintf("%.4g (%.4g to %.4g)", 1e3*r.Seconds.Median, 1e3*r.Seconds.Least,
				1e3*r.Seconds.Most)
			times = fmt.Sprintf("%.2f (%.2f to %.2f)", r.Ratio.Median, r.Ratio.Least, r.Ratio.Most)
		}
		line(name, r.Name, ms, times)
		// The name stands on the first line of its row.
		name = ""
	}
	if _, err := io.WriteString(out, b.String()); err != nil {
		return fmt.Errorf("printing the measurements: %w", err)
	}
	return nil
}
