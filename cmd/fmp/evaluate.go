package main

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"

	"github.com/spf13/cobra"

	"fmp/cmd/internal/outputs"
	"fmp/featurize/imagefile"
	"fmp/models"
	"fmp/onnx/atomicfile"
	"fmp/onnx/printable"
	"fmp/onnx/regularfile"
	"fmp/pipeline/classify"
	"fmp/pipeline/evaluate"
	"fmp/pipeline/federate/identity"
	"fmp/pipeline/federate/wire"
	"fmp/pipeline/lab/report"
	"fmp/pipeline/option"
	"fmp/pipeline/tally"
	sites "fmp/pipeline/tally/pooled"
)

// evaluateHelp is the long help of fmp evaluate. The interval of Clopper and Pearson is exact: it
// holds at least 95% whatever the share and the number of images are.
const evaluateHelp = `Print what the classifier is worth on images that no client had: accuracy with its interval,
calibration error (ECE), negative log-likelihood, Brier score, recall and precision by class, the
confusion matrix, the error rate where only the surest images are answered, and the images that it
is surest and least sure of.

IMAGES is a folder with one folder of images a class, named by the class (by its number with
--class-numbers), a .csv of path,label, an IDX file with --labels, or, for a classifier of feature
rows, a .npy with --labels. --report writes a page with diagrams and the images, which needs no
network; --card a model card in Markdown.

Of a classifier with prediction sets it says how many hold the true class, with the exact 95%
interval of that share (Clopper and Pearson 1934): in all, by class, and with --by-client by client.
The mean size of the sets is told for both scores.

--pool takes the reports of sites that scored the classifier on their own images (fmp-edge
evaluate), signed by clients of --roster, in place of IMAGES or beside them: accuracy and coverage
at each site, over all, and for a further site, and how much they differ. --pooled takes what fmp
serve made of such reports (/v1/rounds/N/evaluation). A model card has them too.`

// newEvaluateCommand declares fmp evaluate. Reports of sites may take the place of IMAGES. The
// steps are: the notice that may name the classifier, the images, the reports of sites, the pages,
// and the text or JSON. Pages are written before anything is printed, each atomically, and the
// first error ends the command. A report that is refused therefore leaves neither page nor text.
//
// The card and the page show the classifier by the base name of its file: a path may tell of this
// machine. That name is made printable for the terminal and for JSON, as a file's name may hold
// control characters.
func newEvaluateCommand() *cobra.Command {
	var page, card string
	var clients bool
	var level float64
	var images imageFlags
	var sites siteFlags
	cfg := option.Default[engineSettings]()
	cmd := &cobra.Command{
		Use:   "evaluate CLASSIFIER [IMAGES]",
		Short: "Score a classifier on labelled images: is it right, are its probabilities true?",
		Long:  evaluateHelp,
		Example: `  fmp evaluate classifier.onnx test/
  fmp evaluate classifier.onnx test/ --report evaluation.html --card card.md
  fmp evaluate classifier.onnx clients/ --by-client --level 0.95
  fmp evaluate classifier.onnx t10k-images-idx3-ubyte --labels t10k-labels-idx1-ubyte --json
  fmp evaluate classifier.onnx --pool site-1.evaluation.json --pool site-2.evaluation.json \
    --roster roster.txt --card card.md`,
	}
	cmd.Args = func(cmd *cobra.Command, args []string) error {
		// Without reports of sites IMAGES is needed, and the usual error names it.
		if sites.given() && len(args) == 1 {
			return nil
		}
		return exactArgs("a CLASSIFIER", "IMAGES")(cmd, args)
	}
	bindSettings(cmd, &cfg, engineAliases)
	images.bind(cmd)
	sites.bind(cmd)
	fl := cmd.Flags()
	fl.StringVar(&page, "report", "", "write a self-contained page to this `FILE` (.html)")
	fl.StringVar(&card, "card", "", "write a model card to this `FILE` (.md)")
	levelFlag(cmd, &level)
	fl.BoolVar(&clients, "by-client", false, "IMAGES has one folder a client, each with one a "+
		"class: score prediction sets by client as well")
	jsonFlag(cmd, "print JSON")
	outputs.Files(cmd.Flags(), "report", "card")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		if err := images.notice.heed(args[0]); err != nil {
			return err
		}
		r, err := evaluated(cmd, cfg, args, level, images, clients)
		if err != nil {
			return err
		}
		if r.Pooled, err = sites.pool(r); err != nil {
			return usageError(err)
		}
		title := filepath.Base(args[0])
		r.File = printable.Line(title)
		if err := writePages(page, card, title, args, r); err != nil {
			return err
		}
		// JSON has images and sites in one value, and its strings are made printable.
		if wantsJSON(cmd) {
			return printable.WriteJSON(cmd.OutOrStdout(), r)
		}
		// Without images of one's own, only the sites' figures are printed.
		if r.Images > 0 {
			if err := report.EvaluationText(cmd.OutOrStdout(), r); err != nil || r.Pooled == nil {
				return err
			}
		}
		return report.Sites(cmd.OutOrStdout(), r.Pooled, r.Classes)
	}
	return cmd
}

// evaluated scores a classifier on the images of the second argument; without one the result tells
// of the classifier alone. Without images no engine is opened: the model's manifest is read, and
// its kind must be a classifier. Flags that say how images are read are then refused, as they would
// be without effect. The engine and the classifier are closed before it returns. Images that cannot
// be read count in the result, where --on-bad skip lets them through.
func evaluated(cmd *cobra.Command, cfg engineSettings, args []string, level float64,
	images imageFlags, clients bool) (*evaluate.Result, error) {
	if len(args) == 1 {
		for _, name := range []string{"level", "by-client", "labels", "skip", "count", "max-pixels",
			"on-bad", imagefile.ByNumberFlag} {
			// A flag that is given with its default value is refused too, as it would have no
			// effect.
			if cmd.Flags().Changed(name) {
				return nil, usageErrorf("--%s goes with IMAGES, and there are none: give them, "+
					"or leave it out", name)
			}
		}
		_, f, err := models.Load(args[0])
		if err != nil {
			return nil, usageError(err)
		}
		o, err := models.ReadOrigin(f)
		if err == nil && f.Kind != models.KindClassifier {
			err = fmt.Errorf("%s is of kind %q; want a classifier", args[0], f.Kind)
		}
		return &evaluate.Result{Model: f.Digest, Classes: f.Classes, Origin: o, Manifest: f},
			usageError(err)
	}
	c, closeAll, err := openClassifier(cmd, cfg, args[0], level)
	if err != nil {
		return nil, err
	}
	defer closeAll()
	e, err := evaluate.New(c)
	if err != nil {
		return nil, usageError(err)
	}
	// bad is the number of images left out, which the result states beside its scores.
	bad, err := evaluatePath(cmd, c, e, args[1], images, clients)
	if err != nil {
		return nil, err
	}
	r, err := e.Result(bad)
	return r, usageError(err)
}

// writePages writes the page and the model card of an evaluation. A page shows images: for reports
// of sites alone it is refused. An empty path is no page. The refusal comes before either file is
// written. Each file replaces its older version only once it is whole (package atomicfile); if the
// card fails, the page is there. r is read alone.
func writePages(page, card, title string, args []string, r *evaluate.Result) error {
	// The name goes into titles: of the images it has no folders, which may tell of this machine.
	on := "its sites' own images"
	if len(args) > 1 {
		on = filepath.Base(args[1])
	} else if page != "" {
		return usageErrorf("--report shows images, and there are none: give IMAGES, or --card")
	}
	for _, f := range []struct {
		path  string
		write func(io.Writer) error
	}{
		{page, func(w io.Writer) error { return report.EvaluationPage(w, title+" on "+on, r) }},
		{card, func(w io.Writer) error {
			return report.Card(w, title, fmt.Sprintf("%d images of %s", r.Images, on), r)
		}},
	} {
		if f.path != "" {
			if err := atomicfile.Write(f.path, f.write); err != nil {
				return err
			}
		}
	}
	return nil
}

// evaluatePath adds the images of a path to an evaluation, with byClient those of each folder in it
// as a client's. It returns the number of those that were left out. Copies of an image count once
// in each client's folder. Files beside the clients' folders are named on stderr and not read.
// --by-client is refused for a classifier without prediction sets before any image is decoded: it
// scores these alone. The evaluation keeps the scores of all images, and pixels of the few that a
// page shows.
func evaluatePath(cmd *cobra.Command, c *classify.Classifier, e *evaluate.Evaluation, path string,
	f imageFlags, byClient bool) (int, error) {
	clients := []string{""}
	if byClient {
		o, err := models.ReadOrigin(c.Manifest)
		if err != nil {
			return 0, usageError(err)
		}
		if o.Sets == nil {
			return 0, usageErrorf("--by-client scores prediction sets, and the classifier has " +
				"none: leave it out, or add sets (fmp calibrate)")
		}
		var others imagefile.LeftOut
		if clients, others, err = clientFolders(path); err != nil {
			return 0, err
		}
		if others.N > 0 {
			fmt.Fprintf(cmd.ErrOrStderr(), "%s: under %s %v\n", cmd.CommandPath(), path, others)
		}
	}
	total := 0
	// The loop sets the client under which e.Add counts; an empty name is no client.
	for _, e.Client = range clients {
		bad, err := classifyPath(cmd, c, filepath.Join(path, e.Client), f, false, e.Add)
		if err != nil {
			return 0, err
		}
		total += len(bad)
	}
	return total, nil
}

// clientFolders returns the names of the clients' folders in a folder, and the files beside them. A
// link is an error, as of folders of classes: a client could count twice, or be missed.
// imagefile.ClassFolders lists links among the folders, so that they are met here. No folder at all
// is an error: the path was probably one of classes. Nothing is decoded.
func clientFolders(path string) ([]string, imagefile.LeftOut, error) {
	var others imagefile.LeftOut
	names, err := imagefile.ClassFolders(path, &others)
	if err != nil {
		return nil, others, usageError(fmt.Errorf("--by-client: %w", err))
	}
	for _, name := range names {
		at := filepath.Join(path, name)
		st, err := os.Lstat(at)
		// A name that cannot be looked at may be a link.
		if err != nil {
			return nil, others, usageError(fmt.Errorf("--by-client: %w", err))
		}
		if st.Mode()&os.ModeSymlink != 0 {
			return nil, others, usageErrorf("--by-client: %s is a link: copy the folder "+
				"that it leads to", at)
		}
	}
	if len(names) == 0 {
		return nil, others, usageErrorf("--by-client: %s has no folders: want one a client, each "+
			"with one a class", path)
	}
	return names, others, nil
}

// maxPooled is the maximum size of a pooled report: 64 MiB, of ten thousand sites. It is read whole
// into memory. A site takes some 6 KiB at this number of them.
const maxPooled = 64 << 20

// siteFlags are the flags of fmp evaluate for the reports of sites. reports and roster go together,
// and pooled stands alone. All three are paths of files.
type siteFlags struct {
	reports        []string
	roster, pooled string
}

// bind declares the flags.
func (f *siteFlags) bind(cmd *cobra.Command) {
	cmd.Flags().StringArrayVar(&f.reports, "pool", nil,
		"`REPORT` of a site (fmp-edge evaluate), to be pooled with others (repeatable)")
	cmd.Flags().StringVar(&f.roster, "roster", "",
		"`FILE` of the clients that may have signed the reports of --pool")
	cmd.Flags().StringVar(&f.pooled, "pooled", "",
		"`FILE` of the report that fmp serve pooled (/v1/rounds/N/evaluation)")
}

// given reports whether reports of sites are asked for. The command then takes CLASSIFIER without
// IMAGES. A roster alone asks for none.
func (f *siteFlags) given() bool { return len(f.reports) > 0 || f.pooled != "" }

// pool reads the reports of sites about a classifier; nil if the flags name none. Reports must be
// signed by clients of the roster, and be of this classifier. Reports are bounded by tally.MaxBytes
// each. Wrong combinations of flags are refused before a file is opened. The first report that
// cannot be read, or that no client of the roster signed, ends the command. A signed report that is
// about another classifier is left out and named in the result (package pooled). Two reports of one
// site are an error. The level is that of the classifier's prediction sets, and 0 where it has
// none.
func (f *siteFlags) pool(of *evaluate.Result) (*sites.Result, error) {
	switch {
	case len(f.reports) > 0 && f.pooled != "":
		return nil, errors.New("--pool and --pooled both say how the sites scored: give one")
	case (len(f.reports) > 0) != (f.roster != ""):
		return nil, errors.New("--pool REPORT and --roster FILE go together: the clients of the " +
			"roster signed the reports")
	case f.pooled != "":
		return f.read(of)
	case len(f.reports) == 0:
		return nil, nil
	}
	roster, err := identity.LoadRoster(f.roster)
	if err != nil {
		return nil, err
	}
	var reports []*tally.Report
	for _, path := range f.reports {
		data, err := regularfile.ReadFile(path, tally.MaxBytes)
		if err != nil {
			return nil, fmt.Errorf("reading report: %w", err)
		}
		r, err := tally.Read(data, roster)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", path, err)
		}
		reports = append(reports, r)
	}
	origin, err := models.ReadOrigin(of.Manifest)
	if err != nil {
		return nil, err
	}
	// The digest, the classes and the level together tell that reports are of the same output.
	about := sites.Of{Classifier: of.Model, Classes: of.Manifest.C}
	if origin.Sets != nil {
		about.Level = origin.Sets.Level
	}
	r, err := sites.Pool(about, reports)
	if err != nil {
		return nil, err
	}
	// The result is checked as a stranger's is, which costs little.
	return r, isFor(of, r)
}

// read reads a pooled report. No signature covers a pooled report, so that its numbers are checked
// as any stranger's. Fields that this program does not know are refused: they would be shown as if
// they were checked.
func (f *siteFlags) read(of *evaluate.Result) (*sites.Result, error) {
	data, err := regularfile.ReadFile(f.pooled, maxPooled)
	if err != nil {
		return nil, fmt.Errorf("reading report: %w", err)
	}
	r := &sites.Result{}
	if err := wire.Only(data, r); err != nil {
		return nil, fmt.Errorf("%s is no pooled report of fmp serve: %w", f.pooled, err)
	}
	return r, isFor(of, r)
}

// isFor returns an error if a pooled report is of another classifier, or none of its reports give
// it. The digest of the report may be any text, and is cut to the 64 digits of a SHA-256 in the
// error.
func isFor(of *evaluate.Result, r *sites.Result) error {
	if r.Classifier != of.Model {
		return fmt.Errorf("the sites scored classifier %.64s, and this one is %s",
			r.Classifier, of.Model)
	}
	return r.Check(of.Manifest.C)
}
