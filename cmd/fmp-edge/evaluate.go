package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"time"

	"github.com/spf13/pflag"

	"fmp/cmd/internal/outputs"
	"fmp/featurize/imagefile"
	"fmp/onnx/engine"
	"fmp/onnx/engine/pure"
	"fmp/onnx/npy"
	"fmp/pipeline/classify"
	"fmp/pipeline/client"
	"fmp/pipeline/federate/identity"
	"fmp/pipeline/federate/sender"
	"fmp/pipeline/federate/wire"
	"fmp/pipeline/privacy"
	"fmp/pipeline/tally"
)

// scoring is the flags of evaluate.
type scoring struct {
	model, key, output, to, ca, onBad, labels, notice, server string
	ledger                                                    string
	threads, pixels, least                                    int
	epsilon, delta, maxEpsilon                                float64
	round                                                     uint64
	wait                                                      time.Duration
	asJSON, byNumber, redraw                                  bool
}

var evaluateCommand = command{
	name: "evaluate", args: "--model CLASSIFIER --key FILE IMAGES",
	short: "Score a classifier on this site's labelled images, and sign counts for the report of all sites",
	example: `  fmp-edge evaluate --model classifier.onnx --key shop-17.key --output shop-17.evaluation.json test/
  fmp-edge evaluate --model classifier.onnx --key shop-17.key --report-to https://server:8443 test/
  fmp-edge evaluate --model classifier.onnx --key shop-17.key --output shop-17.evaluation.json \
    --epsilon 1 --max-epsilon 2 test/

IMAGES is a folder with one folder of images a class, or a .csv of path,label: images that were in
no upload. What leaves are counts: of images, of those that are right, and of those whose prediction
set holds their class, by class and by bin of confidence, with the mean confidence of a bin and the
mean size of sets. Counts below --least are told to nobody: classes and bins are merged until no
count, and no difference of two, is below it. With --epsilon every count has noise in place of that,
and means are left out. Such a report wants --output and is spent budget: the ledger of private rounds
adds it up with uploads, image by image, and what is beyond --max-epsilon is neither printed, written
nor sent. The same report again is the one of before, and spends nothing.

The counts are printed, with --json as the signed report, and written or sent only with --output or
--report-to. fmp evaluate --pool pools them (docs/cross-site.md).`,
	flags: func(f *pflag.FlagSet) func(context.Context, []string, io.Writer, io.Writer) error {
		var o scoring
		f.StringVar(&o.model, "model", "", "classifier that fmp pool wrote")
		f.StringVar(&o.key, "key", "", "key file of this client, which signs the counts")
		f.StringVar(&o.output, "output", "", "report to write")
		outputs.Files(f, "output")
		f.StringVar(&o.to, "report-to", "", "address of the server of the round to send it to")
		f.StringVar(&o.ca, "ca", "", "file of certificates to trust in place of the system's")
		f.DurationVar(&o.wait, "wait", time.Hour, "how long to wait for a server that does not answer")
		f.Uint64Var(&o.round, "round", 0, "number of the round; --report-to asks the server")
		f.IntVar(&o.least, "least", tally.Least, "least count that is told, 2 to 1000")
		f.Float64Var(&o.epsilon, "epsilon", 0,
			"privacy of each image: noise on every count in place of --least, 0.01 to 20, with --output; "+
				"0 is none")
		f.Float64Var(&o.delta, "delta", privacy.DefaultDelta, "delta of --epsilon")
		f.Float64Var(&o.maxEpsilon, "max-epsilon", 0, mostSpentHelp)
		f.StringVar(&o.ledger, "ledger", "", ledgerHelp)
		f.BoolVar(&o.redraw, "redraw", false, "draw the noise of a report that was made before a "+
			"second time, and spend its budget a second time")
		f.IntVar(&o.threads, "threads", 0,
			"threads of one operator, and images that are decoded at once; 0 is one a core")
		f.IntVar(&o.pixels, "max-pixels", imagefile.MaxPixels,
			"largest image that is decoded, in pixels; each takes 2 to 8 bytes")
		f.StringVar(&o.onBad, "on-bad", "fail",
			"what to do about images that cannot be read: fail, or skip as with --epsilon; all are named")
		f.StringVar(&o.labels, "labels", "",
			"labels of an IDX file's images (IDX file), or of feature rows (.npy)")
		f.StringVar(&o.notice, "notice", "",
			"notice of the round's superseded versions (default: the classifier's name with .notice)")
		f.StringVar(&o.server, "server-key", "",
			"public key of the round's server (base64), which must have signed the notice")
		f.BoolVar(&o.byNumber, imagefile.ByNumberFlag, false, imagefile.ByNumberHelp)
		f.BoolVar(&o.asJSON, "json", false, "print JSON")
		signerFlags(f)
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

// check reports flags that are missing or out of bounds.
func (o *scoring) check(f *pflag.FlagSet) error {
	switch {
	case o.model == "" || o.key == "":
		return usagef("evaluate: give --model CLASSIFIER and --key FILE; see fmp-edge evaluate --help")
	case o.threads < 0 || o.threads > pure.MaxThreads || o.pixels < 1 ||
		o.pixels > imagefile.MaxPixels:
		return usagef("evaluate: --threads %d and --max-pixels %d; allowed are 0 to %d and 1 to %d",
			o.threads, o.pixels, pure.MaxThreads, imagefile.MaxPixels)
	case o.least < tally.MinLeast || o.least > tally.MaxLeast:
		return usagef("evaluate: --least %d; allowed are %d to %d", o.least,
			tally.MinLeast, tally.MaxLeast)
	case o.onBad != "fail" && o.onBad != "skip":
		return usagef("evaluate: --on-bad is %q; allowed are fail and skip", o.onBad)
	case o.epsilon != 0 && f.Changed("on-bad") && o.onBad == "fail":
		return usagef("evaluate: --on-bad fail: an error would tell of the image that cannot be read; a " +
			"report with noise leaves it out")
	case o.epsilon != 0 && f.Changed("least"):
		return usagef("evaluate: --least is of reports without noise: leave it out")
	case o.wait < time.Second || o.wait > 366*24*time.Hour:
		return usagef("evaluate: --wait %v; allowed are 1s to a year", o.wait)
	case o.to == "" && (o.ca != "" || f.Changed("wait")):
		return usagef("evaluate: --ca and --wait are of --report-to: give it, or leave them out")
	}
	return o.checkNoise()
}

// checkNoise reports flags of noise that are out of bounds, or without noise.
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
	if !(o.maxEpsilon >= 0) || math.IsInf(o.maxEpsilon, 0) {
		return usagef("evaluate: --max-epsilon %v; allowed are numbers above 0, and 0 for any",
			o.maxEpsilon)
	}
	// printed counts can be kept and averaged as well as sent ones
	if o.output == "" {
		return usagef("evaluate: --epsilon without --output: each run would draw other noise about the " +
			"same images, which averages out: give --output FILE, where the report is kept for the next " +
			"run, which draws and spends nothing")
	}
	return nil
}

// run scores the images, prints the counts that would leave, and writes or sends them.
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
		if s, err = sender.New(o.to, o.ca); err != nil {
			return &usageError{fmt.Errorf("evaluate: %w", err)}
		}
		s.Wait = o.wait
		s.Log = func(format string, args ...any) { fmt.Fprintf(log, "fmp-edge: "+format+"\n", args...) }
		if d, err = s.Describe(ctx); err != nil {
			return err
		}
		o.round = d.Round
	}
	server := ""
	if d != nil {
		server = d.ServerKey
	}
	sc := &scored{scoring: o, key: key, server: server, log: log}
	data, err := sc.report(ctx, f, path)
	if err != nil {
		return err
	}
	r := sc.made
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

// score scores the images, each of which it passes on as well.
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
	if err := checkSigned(f, o.model, c.Manifest.Digest, nil); err != nil {
		return nil, err
	}
	if err := client.Heed(o.model, o.notice, o.server); errors.Is(err, wire.ErrSuperseded) {
		return nil, err
	} else if err != nil {
		return nil, refused("evaluate", err)
	}
	if o.epsilon != 0 {
		c, o.onBad = c.Alone(), "skip"
	}
	scores, err := c.Scores()
	if err != nil {
		return nil, refused("evaluate", err)
	}
	each := func(ps []classify.Prediction) error {
		also(ps)
		return scores.Add(ps)
	}
	if err := o.add(ctx, c, each, path, log); err != nil {
		return nil, refused("evaluate", err)
	}
	if scores.Failed > 0 {
		fmt.Fprintf(log, "fmp-edge: of %d images the classifier made no probabilities; they count as wrong\n",
			scores.Failed)
	}
	return scores, nil
}

// add scores the images, or the feature rows (.npy), of a path.
func (o *scoring) add(ctx context.Context, c *classify.Classifier,
	each func([]classify.Prediction) error, path string,
	log io.Writer) error {
	if isRows(path) {
		rows, err := npy.Load(path)
		if err != nil {
			return err
		}
		y, err := npy.Load(o.labels)
		if err != nil {
			return fmt.Errorf("--labels of feature rows: %w", err)
		}
		labels, err := classify.Labels(y, c.Manifest.C)
		if err != nil {
			return fmt.Errorf("%s: %w", o.labels, err)
		}
		of := classify.FeatureRows
		if o.epsilon != 0 {
			of = classify.AnyRows // an error would tell of a row
		}
		if rows, err = of(rows); err != nil {
			return fmt.Errorf("%s: %w", path, err)
		}
		return c.Rows(ctx, rows, labels, each)
	}
	src, others, err := c.Source(path,
		imagefile.Options{Labels: o.labels, MaxPixels: o.pixels, Threads: o.threads, Repeats: o.epsilon != 0,
			Classes: imagefile.Classes{ByNumber: o.byNumber}})
	if err != nil {
		return err
	}
	defer src.Close()
	if others.N > 0 {
		fmt.Fprintf(log, "fmp-edge: under %s %v\n", path, others)
	}
	bad, err := c.Images(ctx, src, o.onBad == "skip", each)
	if err == nil && o.onBad == "fail" {
		err = imagefile.Unread(bad)
	}
	for _, b := range bad {
		fmt.Fprintf(log, "fmp-edge: left out: %v\n", b)
	}
	return err
}
