package main

import (
	"context"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"fmp/cmd/buildinfo"
	"fmp/cmd/internal/outputs"
	"fmp/onnx/engine"
	"fmp/onnx/engine/ort"
	"fmp/onnx/suggest"
	"fmp/pipeline/lab/experiment"
	"fmp/pipeline/lab/report"
	"fmp/pipeline/lab/rival"
	"fmp/pipeline/settings"
)

// runOutput is the output of `fmp run --json`.
type runOutput struct {
	Directory string `json:"directory"`
	// Identity is the digest of all that decides the figures: settings, models and data.
	Identity string         `json:"identity"`
	Notes    []string       `json:"notes,omitempty"`
	Models   []string       `json:"models,omitempty"` // classifiers that were kept
	Tables   []report.Table `json:"tables"`
	// Costs are the methods' times, where the run directory has them.
	Costs []experiment.Cost `json:"costs,omitempty"`

	resumed bool // all of it was there before
	wide    bool // print every figure
}

// bindWide gives a command that prints figures the choice of all of them.
func bindWide(cmd *cobra.Command, wide *bool) {
	cmd.Flags().BoolVar(wide, "wide", false,
		"print every figure, the tuned settings and the paper's figures, in more than 80 columns")
}

// newRunCommand declares fmp run. --alpha with homogeneous clients is refused as a flag alone:
// files and environment are shared by runs. A settings file may hold federation.alpha beside
// homogeneous clients, for runs of both kinds.
// Settings are resolved before RunE is called, so that it sees those of files and environment too.
func newRunCommand() *cobra.Command {
	var wide, keep bool
	var splits string
	cfg := experiment.Default()
	cmd := &cobra.Command{
		Use:   "run",
		Short: "Raw images in, the table of methods out",
		Long: `Turn a data set's images into features, spread them over clients, run every method and print the
table of accuracy (ACC), expected calibration error (ECE), negative log-likelihood (NLL) of single
test images, and of ten at a time from the neighbourhoods of two (joint NLL), with their intervals
over the repeats. --wide adds the Brier score, joint NLL of random images, the area under the
risk-coverage curve (AURC), class-wise and adaptive ECE and the disagreement of the posterior
samples.

The run directory (--out) gets the resolved settings (config.yaml), versions and digests (run.json),
the figures (results.jsonl, results.csv), tables (table.md, table.tex), plots and report.html, which
holds all of them and needs no network. A run that was stopped resumes when the same command is
given again. The same settings and seed give the same results.jsonl, byte for byte, with any number
of threads.

--export-splits writes the tasks as files, from which any other program may make predictions; fmp
score adds these to the table.

--config takes a settings file, or the name of one that comes with the program (demo; closed and
open: every method in closed and open scope; table1, figure2: the paper's; privacy: private
rounds).`,
		Example: `  fmp run
  fmp run --dataset mnist --extractor extractor.onnx --extractor.mean 0.1307 --extractor.std 0.3081
  fmp run --alpha 0.1,0.5 --partition both --seeds 10 --methods FMP,CANN,FedCGS
  fmp run --config demo --json
  fmp run --methods FMP,NCM,FedCGS --out runs/mine --export-splits splits`,
		Args: noArgs,
	}
	s := bindSettings(cmd, &cfg, runAliases)
	outputs.Made(cmd.Flags(), "output.dir")
	jsonFlag(cmd, "print the tables as JSON")
	cmd.Flags().BoolVar(&keep, "keep-models", false, "leave the classifiers of the first "+
		"repeat's martingale posteriors in the run directory, for fmp predict")
	cmd.Flags().StringVar(&splits, "export-splits",
		"", "write each task's clients, the corpus and the test features, without labels of test "+
			"images, to this new or empty `folder`, for methods of other programs (fmp score)")
	outputs.Made(cmd.Flags(), "export-splits")
	bindWide(cmd, &wide)
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		// The source of a setting tells a flag from a file, which flags.Changed would too but for
		// --set.
		if cfg.Federation.Partition == "homogeneous" &&
			slices.ContainsFunc(s.list, func(x setting) bool {
				return x.Key == "federation.alpha" && strings.HasPrefix(x.Source, "flag")
			}) {
			return usageErrorf("--alpha is for skewed clients, and federation.partition is " +
				"homogeneous: add --partition dirichlet, or both")
		}
		out, err := runExperiment(cmd, cfg, keep, splits)
		if err != nil {
			return err
		}
		// It acts on the text alone: JSON has every figure.
		out.wide = wide
		return show(cmd, out, out.print)
	}
	return cmd
}

// print writes the tables for people.
func (o *runOutput) print(w io.Writer) error {
	if err := report.Text(coloured(w), o.Tables, o.wide, wantColor(w)); err != nil {
		return err
	}
	for _, n := range o.Notes {
		fmt.Fprintf(w, "note: %s\n", n)
	}
	for _, m := range o.Models {
		fmt.Fprintf(w, "classifier: %s\n", m)
	}
	_, err := fmt.Fprintf(w, "run directory: %s (report.html shows the figures)\n", o.Directory)
	return err
}

// runExperiment does a whole run: images, features, methods, tables. Settings are checked before an
// engine is opened. Ctrl-C leaves the finished cells in the run directory.
// It is one run by itself, which shares no data with others.
func runExperiment(cmd *cobra.Command, cfg experiment.Config, keep bool,
	splits string) (*runOutput, error) {
	if _, err := experiment.Cells(&cfg); err != nil {
		return nil, usageError(err)
	}
	r, err := newRunner(cmd.Context(), cfg.Engine, cmd.ErrOrStderr())
	if err != nil {
		return nil, err
	}
	defer r.eng.Close()
	bar := newProgress(cmd.ErrOrStderr())
	defer bar.close()
	r.keep, r.splits = keep, splits
	return r.run(cmd.Context(), cfg, nil, bar.work)
}

// runner makes runs with one engine. A grid calls run from several goroutines. All fields are read
// alone once it is made, so that calls of run may go on at once.
type runner struct {
	eng      engine.Engine
	versions map[string]string
	keep     bool               // the classifiers of the first repeat
	splits   string             // folder to which the tasks are written; empty: none
	shared   *experiment.Shared // with runs that go on beside; nil for a run by itself
}

// newRunner opens the engine of the settings, which its caller closes, and notes the versions that
// the manifest of a run states.
// Versions are of the program, Go, platform and engine, and of the ONNX Runtime where that is the
// engine.
func newRunner(ctx context.Context, cfg settings.Engine, stderr io.Writer) (*runner, error) {
	// One thread an operator: more would change the last bits of figures. The run spreads tasks
	// over threads.
	eng, err := openEngine(ctx, cfg, 1, stderr)
	if err != nil {
		return nil, err
	}
	v := buildinfo.Read()
	r := &runner{eng: eng, versions: map[string]string{"fmp": v.Version, "go": v.Go,
		"platform": v.Platform, "engine": eng.Name()}}
	// A build outside of Git has no revision.
	if v.Revision != "" {
		r.versions["revision"] = v.Revision
	}
	if eng.Name() == "ort" {
		r.versions["onnxruntime"] = ort.Version()
	}
	return r, nil
}

// run makes a run, or takes over the files that a worker made of it, if there are any. Cells that
// the run directory has are not done again. The directory is locked from Open to the end. The
// report is written last: a grid that goes on writes it again where its page is missing.
func (r *runner) run(ctx context.Context, cfg experiment.Config, made map[string][]byte,
	progress experiment.Progress) (*runOutput, error) {
	p, err := r.shared.Prepare(ctx, cfg, r.eng, r.versions, progress)
	if err != nil {
		return nil, usageError(err)
	}
	defer p.Close()
	path := p.Config.Output.Dir
	if path == "" {
		// Eight digits of the identity keep runs of other settings apart, and lead the same command
		// to the same folder.
		path = filepath.Join("runs", fmt.Sprintf("%s-%.8s",
			strings.Map(fileRune, p.Config.Dataset.Label()), p.Manifest.Identity))
	}
	// The worker's files are checked against this machine's own identity of the run.
	if made != nil {
		if err := experiment.Deliver(path, made, p.Config, p.Manifest); err != nil {
			return nil, usageError(err)
		}
	}
	dir, err := experiment.Open(path, p.Config, p.Manifest)
	if err != nil {
		return nil, usageError(err)
	}
	defer dir.Close()
	out := &runOutput{Directory: path, Identity: p.Manifest.Identity, Notes: p.Manifest.Notes}
	// Of a grid that goes on, runs with all their files are left as they are.
	_, err = os.Stat(filepath.Join(path, report.PageFile))
	// The page is the last file of a run, so that its presence means all of them.
	out.resumed = err == nil && r.shared != nil && dir.Finished()
	if r.splits != "" {
		if err := experiment.ExportSplits(ctx, p, dir, r.splits); err != nil {
			return nil, usageError(fmt.Errorf("--export-splits: %w", err))
		}
	}
	// Cells that the directory has are read and not computed.
	rs, err := experiment.Run(ctx, p.Config, p.Data, p.Tools, dir, progress)
	if err != nil {
		return nil, err
	}
	tuned, err := experiment.ReadTuned(path)
	if err != nil {
		return nil, err
	}
	out.Notes = slices.Concat(out.Notes, experiment.ScopeNotes(rs), tuned.EdgeNotes())
	if out.Costs, err = experiment.ReadCosts(path); err != nil {
		return nil, err
	}
	// Tables are computed again from the records, and no file is written.
	if out.resumed {
		out.Tables, err = report.Tables(rs, &p.Manifest)
		return out, err
	}
	// It is a file of details, made once.
	if err := experiment.Inspect(ctx, p, dir); err != nil {
		return nil, err
	}
	if r.keep {
		if out.Models, err = experiment.KeepModels(ctx, p, dir); err != nil {
			return nil, fmt.Errorf("--keep-models: %w", err)
		}
	}
	// The report counts as one thread of a grid's.
	return out, r.shared.Do(ctx, 1, func() (err error) {
		out.Tables, err = report.Write(path)
		return err
	})
}

// fileRune keeps characters that any file system takes in a name. Others become "_", also letters
// beyond ASCII.
func fileRune(r rune) rune {
	if r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' || r == '-' {
		return r
	}
	return '_'
}

// groupNames are the words of --group.
var groupNames = map[string]rival.Group{"local": rival.Local, "centralised": rival.Centralised,
	"one-shot": rival.OneShot, "baseline": rival.Baseline}

// newScoreCommand declares fmp score. Figures are computed here, from the labels that the run
// keeps.
// The order is: flags, the run's manifest, predictions, figures, report.
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
features, S x (dx+1) x C with the bias last, from which intervals are scored as well. All tasks have
one of these kinds and one S. An array test_sha256 (32 bytes, uint8) holds the digest of test.npz,
without which nothing ties the rows' order to the run. The labels of the test images are in the run
directory alone. The same row stands under each protocol of the run, as its settings are its
author's own.`,
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
		if run == "" {
			return usageErrorf("say with --run which run directory the splits are of")
		}
		if o.Name == "" {
			return usageErrorf("say with --name how the method is called in tables")
		}
		var ok bool
		if o.Group, ok = groupNames[group]; !ok {
			return usageErrorf("--group is %q; allowed are local, centralised, one-shot "+
				"and baseline", clip(group))
		}
		m, err := experiment.ReadManifest(run)
		if err != nil {
			return runError(run, err)
		}
		// The manifest of the run is read first, so that a wrong --run is told before predictions
		// are read.
		o.Path = args[0]
		notes, err := experiment.ScoreOutside(cmd.Context(), run, o)
		if err != nil {
			return usageError(err)
		}
		ts, err := report.Write(run)
		if err != nil {
			return err
		}
		out := &runOutput{Directory: run, Identity: m.Identity,
			Notes: slices.Concat(m.Notes, notes), Tables: ts, wide: wide}
		return show(cmd, out, out.print)
	}
	return cmd
}

// lookupMethod returns the name of a method of the program, or of one that the records have from
// outside. Case is ignored in both. The program's own methods go before those from outside. The
// error of an unknown name lists the methods of the runs; without any it is that of rival.Lookup.
func lookupMethod(name string, runs ...[]experiment.Record) (string, error) {
	m, err := rival.Lookup(name)
	if err == nil {
		return m.Info().Name, nil
	}
	for _, rs := range runs {
		if i := slices.IndexFunc(rs,
			func(r experiment.Record) bool {
				return r.Origin != "" && strings.EqualFold(r.Method, name)
			}); i >= 0 {
			return rs[i].Method, nil
		}
	}
	if has := experiment.MethodsOf(slices.Concat(runs...)); len(has) > 0 {
		err = fmt.Errorf("no method %q; the runs have %s%s", name, strings.Join(has, ", "),
			suggest.DidYouMean(name, has))
	}
	return "", usageError(fmt.Errorf("--method: %w", err))
}
