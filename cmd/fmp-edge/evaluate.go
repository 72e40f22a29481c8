package main

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"io"
	"path/filepath"
	"time"

	"github.com/spf13/pflag"

	"fmp/cmd/internal/outputs"
	"fmp/featurize/imagefile"
	"fmp/models"
	"fmp/onnx/engine"
	"fmp/onnx/engine/pure"
	"fmp/onnx/regularfile"
	"fmp/pipeline/classify"
	"fmp/pipeline/client"
	"fmp/pipeline/federate/identity"
	"fmp/pipeline/federate/sender"
	"fmp/pipeline/federate/wire"
	"fmp/pipeline/privacy"
	"fmp/pipeline/tally"
)

// scoring is the flags of evaluate. It serves one command, whose run may set round.
type scoring struct {
	reading
	// to is the address that the report is sent to, "" for none. The others are files: the key, the
	// report, certificates, labels and the ledger.
	key, output, to, ca, labels, ledger string
	// least is the smallest count that is told. It stands for noise where epsilon is 0.
	least int
	// maxEpsilon is the most that may be spent on any image in all, 0 for any.
	epsilon, delta, maxEpsilon float64
	// round is the number that the report states; a server's takes its place.
	round          uint64
	wait           time.Duration
	asJSON, redraw bool
}

// evaluateCommand checks flags and loads the key, then asks the server for its round, and reads
// images last. Nothing is sent without --report-to, and nothing written without --output.
var evaluateCommand = command{
	name: "evaluate", args: "--model CLASSIFIER --key FILE IMAGES",
	short: "Score a classifier on this site's labelled images, and sign counts for the " +
		"report of all sites",
	example: `  fmp-edge evaluate --model classifier.onnx --key shop-17.key \
    --output shop-17.evaluation.json test/
  fmp-edge evaluate --model classifier.onnx --key shop-17.key --report-to https://server:8443 test/
  fmp-edge evaluate --model classifier.onnx --key shop-17.key --output shop-17.evaluation.json \
    --epsilon 1 --max-epsilon 2 test/

IMAGES is a folder with one folder of images a class, or a .csv of path,label: images that were in
no upload. What leaves are counts: of images, of those that are right, and of those whose prediction
set holds their class, by class and by bin of confidence, with the mean confidence of a bin and the
mean size of sets. Counts below --least are told to nobody: classes and bins are merged until no
count, and no difference of two, is below it. With --epsilon every count has noise in place of that,
and means are left out. Such a report wants --output and is spent budget: the ledger of private
rounds adds it up with uploads, image by image, and what is beyond --max-epsilon is neither printed,
written nor sent. The same report again is the one of before, and spends nothing.

The counts are printed, with --json as the signed report, and written or sent only with --output or
--report-to. fmp evaluate --pool pools them (docs/cross-site.md).`,
	flags: func(f *pflag.FlagSet) func(context.Context, []string, io.Writer, io.Writer) error {
		var o scoring
		o.bind(f, "evaluate", "fail, or skip as with --epsilon")
		f.StringVar(&o.key, "key", "", "key file of this client, which signs the counts")
		f.StringVar(&o.output, "output", "", "report to write")
		outputs.Files(f, "output")
		f.StringVar(&o.to, "report-to", "", "address of the server of the round to send it to")
		f.StringVar(&o.ca, "ca", "", "file of certificates to trust in place of the system's")
		f.DurationVar(&o.wait, "wait", time.Hour,
			"how long to wait for a server that does not answer")
		f.Uint64Var(&o.round, "round", 0, "number of the round; --report-to asks the server")
		f.IntVar(&o.least, "least", tally.Least, "least count that is told, 2 to 1000")
		f.Float64Var(&o.epsilon, "epsilon", 0, "privacy of each image: noise on every count in "+
			"place of --least, 0.01 to 20, with --output; 0 is none")
		f.Float64Var(&o.delta, "delta", privacy.DefaultDelta, "delta of --epsilon")
		f.Float64Var(&o.maxEpsilon, "max-epsilon", 0, mostSpentHelp)
		f.StringVar(&o.ledger, "ledger", "", ledgerHelp)
		f.BoolVar(&o.redraw, "redraw", false, "draw the noise of a report that was made before a "+
			"second time, and spend its budget a second time")
		f.StringVar(&o.labels, "labels", "",
			"labels of an IDX file's images (IDX file), or of feature rows (.npy)")
		f.BoolVar(&o.asJSON, "json", false, "print JSON")
		return func(ctx context.Context, args []string, out, log io.Writer) error {
			if len(args) != 1 {
				return usagef("evaluate: %d arguments; want one folder, .csv or IDX file of "+
					"labelled images", len(args))
			}
			if err := o.check(f); err != nil {
				return err
			}
			if o.epsilon == 0 && f.Changed("delta") {
				return usagef("evaluate: --delta is of reports with noise: give --epsilon")
			}
			if err := rowsTake("evaluate", isRows(args[0]), f); err != nil {
				return err
			}
			return o.run(ctx, f, args[0], out, log)
		}
	},
}

// check reports flags that are missing or out of bounds. They are reported before a file is read. f
// tells flags that were given from defaults.
func (o *scoring) check(f *pflag.FlagSet) error {
	switch {
	case o.model == "" || o.key == "":
		return usagef("evaluate: give --model CLASSIFIER and --key FILE; see " +
			"fmp-edge evaluate --help")
	case o.least < tally.MinLeast || o.least > tally.MaxLeast:
		return usagef("evaluate: --least %d; allowed are %d to %d", o.least,
			tally.MinLeast, tally.MaxLeast)
	// An error that depends on one image is a release that no noise covers.
	case o.epsilon != 0 && f.Changed("on-bad") && o.onBad == "fail":
		return usagef("evaluate: --on-bad fail: an error would tell of the image that cannot be " +
			"read; a report with noise leaves it out")
	case o.epsilon != 0 && f.Changed("least"):
		return usagef("evaluate: --least is of reports without noise: leave it out")
	case o.to == "" && (o.ca != "" || f.Changed("wait")):
		return usagef("evaluate: --ca and --wait are of --report-to: give it, or leave them out")
	}
	if err := checkWait("evaluate", o.wait); err != nil {
		return err
	}
	if err := checkReading("evaluate", o.threads, o.pixels, o.onBad); err != nil {
		return err
	}
	return o.checkNoise()
}

// checkNoise reports flags of noise that are out of bounds, or without noise. Noise wants an
// output: a report that is kept is given again, where a new one would add a draw. The average of k
// draws of noise of deviation s has s/sqrt(k), which is why draws are kept.
func (o *scoring) checkNoise() error {
	if o.epsilon == 0 {
		if o.maxEpsilon != 0 || o.ledger != "" || o.redraw {
			return usagef("evaluate: --max-epsilon, --ledger and --redraw are of reports with " +
				"noise: give --epsilon")
		}
		return nil
	}
	if _, err := privacy.CountsNoise(o.epsilon, o.delta); err != nil {
		return usagef("evaluate: %w", err)
	}
	if err := checkMaxEpsilon("evaluate", o.maxEpsilon); err != nil {
		return err
	}
	// printed counts can be kept and averaged as well as sent ones
	if o.output == "" {
		return usagef("evaluate: --epsilon without --output: each run would draw other noise " +
			"about the same images, which averages out: give --output FILE, where the report is " +
			"kept for the next run, which draws and spends nothing")
	}
	return nil
}

// run scores the images, prints the counts that would leave, and writes or sends them. The server
// is asked for its round before an image is read, as the report names both. An error of sending
// leaves the written report.
func (o *scoring) run(ctx context.Context, f *pflag.FlagSet, path string, out,
	log io.Writer) error {
	key, err := identity.Load(o.key)
	if err != nil {
		return refused("evaluate", err)
	}
	if err := boundedModel(o.model); err != nil {
		return refused("evaluate", err)
	}
	var s *sender.Client
	var d *wire.Description
	if o.to != "" {
		if s, d, err = dial(ctx, "evaluate", o.to, o.ca, o.wait, log); err != nil {
			return err
		}
		o.round = d.Round
	}
	sc := &scored{scoring: o, key: key, log: log}
	if d != nil {
		sc.server = d.ServerKey
	}
	data, err := sc.report(ctx, f, path)
	if err != nil {
		return err
	}
	r := sc.made
	// The counts are printed before they are sent, so that the owner sees them where sending fails.
	if o.asJSON {
		_, err = out.Write(data)
	} else {
		err = r.Print(out)
	}
	if err != nil || d == nil {
		return err
	}
	if err := s.Evaluate(ctx, d, key, data); err != nil {
		return err
	}
	_, err = fmt.Fprintf(log, "fmp-edge: round %d has these counts of %q\n", d.Round, key.Name)
	return err
}

// score scores the images, each of which it passes on as well. With noise each is classified by
// itself, and one that cannot be read is left out.
// Prediction sets are those of the stored level. Signature and notice are asked before an image is
// read.
func (o *scoring) score(ctx context.Context, f *pflag.FlagSet, path string, log io.Writer,
	also func([]classify.Prediction)) (*classify.Scores, error) {
	e, err := pure.New(engine.Options{Threads: o.threads})
	if err != nil {
		return nil, refused("evaluate", err)
	}
	c, err := classify.OpenAt(e, o.model, 0)
	if err != nil {
		return nil, refused("evaluate", err)
	}
	if err := o.vouched(f, c.Manifest.Digest); err != nil {
		return nil, err
	}
	if o.epsilon != 0 {
		c, o.onBad = c.Alone(), "skip"
	}
	scores, err := c.Scores()
	if err != nil {
		return nil, refused("evaluate", err)
	}
	// also sees copies and images without finite numbers, which the scores treat in their own way.
	each := func(ps []classify.Prediction) error {
		also(ps)
		return scores.Add(ps)
	}
	if err := o.add(ctx, c, each, path, log); err != nil {
		return nil, refused("evaluate", err)
	}
	if scores.Failed > 0 {
		fmt.Fprintf(log, "fmp-edge: of %d images the classifier made no probabilities; they "+
			"count as wrong\n", scores.Failed)
	}
	if *scores.Copies > 0 {
		fmt.Fprintf(log, "fmp-edge: left out: %d copies of other images of their class, which "+
			"count once\n", *scores.Copies)
	}
	return scores, nil
}

// add scores the images, or the feature rows (.npy), of a path. Rows are [n, dx]; with noise rows
// that are not finite are taken, as an error would tell of one.
func (o *scoring) add(ctx context.Context, c *classify.Classifier,
	each func([]classify.Prediction) error, path string, log io.Writer) error {
	if !isRows(path) {
		_, err := o.images(ctx, c, path,
			imagefile.Options{Labels: o.labels, Repeats: o.epsilon != 0}, each, log)
		return err
	}
	labels, err := classify.LoadLabels(o.labels, maxRowBytes, c.Manifest.C)
	if err != nil {
		return err
	}
	of := classify.FeatureRows
	if o.epsilon != 0 {
		of = classify.AnyRows // an error would tell of a row
	}
	rows, err := classify.LoadRows(path, maxRowBytes, of)
	if err != nil {
		return err
	}
	return c.Rows(ctx, rows, labels, each)
}

// scored is the report of a site on its way out. digests and labels are of the images that were
// scored, in one order, for the ledger.
type scored struct {
	*scoring
	key    *identity.Key
	server string // its public key, where the report is sent
	log    io.Writer

	digests [][sha256.Size]byte
	labels  []int
	made    *tally.Report
}

// report scores the images and returns the signed report, which it writes where that is asked for.
// Noise is spent before, wherever the report goes then.
func (s *scored) report(ctx context.Context, f *pflag.FlagSet, path string) ([]byte, error) {
	scores, err := s.score(ctx, f, path, s.log, func(ps []classify.Prediction) {
		for i := range ps {
			s.digests, s.labels = append(s.digests, ps[i].Digest), append(s.labels, ps[i].Label)
		}
	})
	if err != nil {
		return nil, err
	}
	if s.made, err = scores.Report(s.least, s.epsilon, s.delta); err != nil {
		return nil, refused("evaluate", err)
	}
	s.made.Round, s.made.Server = s.round, s.server
	// The noise has been drawn by then, in memory, and is in nobody's hands before the ledger has
	// its line.
	if s.epsilon > 0 {
		return s.spent()
	}
	data, err := s.made.Sign(s.key)
	if err == nil && s.output != "" {
		err = put("evaluate", []content{{s.output, data, aReport}})
	}
	return data, err
}

// spent charges a report with noise to the ledger and writes it, unless it was made before: then
// that one is given, as noise that is drawn again over the same counts averages out. The ledger is
// asked after the images are scored, by their digests and labels.
func (s *scored) spent() ([]byte, error) {
	ledger, err := ledgerOf(s.ledger)
	if err != nil {
		return nil, err
	}
	spending, err := privacy.NewCountsSpending(s.epsilon, s.delta, s.made.Classes,
		s.digests, s.labels)
	if err != nil {
		return nil, refused("evaluate", err)
	}
	spending.Time, spending.Client, spending.Round, spending.Graph = time.Now().UTC(), s.key.Name,
		s.round, s.made.Classifier
	earlier, err := ledger.FindAll(spending)
	if err != nil {
		return nil, refused("evaluate", err)
	}
	if kept := keeps(earlier, s.redraw, s.output, tally.MaxBytes); kept != nil {
		return s.again(kept, spending, digestsOf(earlier))
	}
	data, output, err := s.signed()
	if err != nil {
		return nil, err
	}
	// The ledger knows the file by place and digest, by which a later run finds it again.
	spending.Files = []privacy.Written{{Path: output, Sha256: models.DigestBytes(data)}}
	p := payment{ledger, spending, s.maxEpsilon, s.redraw, s.log}
	files, err := p.pay("evaluate", []content{{output, data, aReport}}, earlier)
	if err != nil {
		return nil, err
	}
	return data, files.paid(files.place())
}

// signed is the report as it leaves, and the whole path of its file, as ledgers have it.
func (s *scored) signed() (data []byte, output string, err error) {
	if data, err = s.made.Sign(s.key); err == nil {
		output, err = filepath.Abs(s.output)
	}
	return data, output, err
}

// again gives the counts of before, for the server of now. They may replace files with digests of
// mine. The report is signed for that server, with the same counts and noise.
func (s *scored) again(kept *privacy.Spending, asked privacy.Spending,
	mine []string) ([]byte, error) {
	gone := func() ([]byte, error) {
		return nil, usagef("evaluate: the report with noise about "+
			"these images was made on %s, and it is not there any more as it was (%v): noise "+
			"that is drawn again spends epsilon %g again; bring the file back, or give --redraw",
			kept.Time.Format(time.RFC3339), kept.Files, kept.Budget.Epsilon)
	}
	if len(kept.Files) != 1 {
		return gone()
	}
	paid := paidFor(kept.Files[0], tally.MaxBytes)
	if paid == nil {
		return gone()
	}
	// Names of classes are no part of the signed report, and come from the classifier.
	names := s.made.Names
	s.made = &tally.Report{}
	if err := json.Unmarshal(paid, s.made); err != nil {
		return gone()
	}
	givenAgain(s.log, "the report with noise about these images", kept, asked)
	s.made.Server, s.made.Names = s.server, names
	data, output, err := s.signed()
	if err != nil {
		return nil, err
	}
	out := data
	if output == kept.Files[0].Path {
		out = paid // the ledger's own stays as the ledger knows it
	}
	return data, put("evaluate", []content{{output, out, aReport}}, append(mine, s.copied(data))...)
}

// copied is the digest of the file in the report's place where it has the report's counts, for any
// server. It is compared as if it were for this one. Signatures are deterministic (Ed25519), so
// that equal reports have equal bytes.
// It is "" where no report is there, and where its counts are others.
func (s *scored) copied(report []byte) string {
	var there tally.Report
	data, err := regularfile.ReadOutput(s.output, tally.MaxBytes)
	if err != nil || json.Unmarshal(data, &there) != nil {
		return ""
	}
	there.Server = s.server
	if again, err := there.Sign(s.key); err != nil || !bytes.Equal(again, report) {
		return ""
	}
	return models.DigestBytes(data)
}

// ledgerOf returns the ledger at a path, or the default one. The default is in the user's folder
// for configuration, so that all rounds are counted in one.
func ledgerOf(path string) (l privacy.Ledger, err error) {
	if path == "" {
		path, err = client.DefaultFile("spent.jsonl", "--ledger")
	}
	return privacy.Ledger{Path: path}, err
}
