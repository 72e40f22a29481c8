package main

import (
	"cmp"
	"errors"
	"fmt"
	"math"
	"os"
	"runtime"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"golang.org/x/sys/cpu"

	"fmp/featurize/imagefile"
	"fmp/models"
	"fmp/onnx"
	"fmp/onnx/cost"
	"fmp/onnx/engine"
	"fmp/onnx/engine/pure"
	"fmp/onnx/npy"
	"fmp/pipeline/classify"
	"fmp/pipeline/conformal"
	"fmp/pipeline/option"
)

// imageFlags say how the images of predict and evaluate are read. skip and count are of IDX files,
// and 0 in count takes all.
type imageFlags struct {
	labels, onBad string
	// limit bounds an image that is decoded, in pixels.
	skip, count, limit int
	notice             noticeFlags
	byNumber           bool
}

// Bounds are checked by classifyPath, after the classifier is open.
func (f *imageFlags) bind(cmd *cobra.Command) {
	f.notice.bind(cmd)
	fl := cmd.Flags()
	fl.StringVar(&f.labels, "labels", "",
		"labels of an IDX file's images (IDX `FILE`), or of a folder's (.csv of path,label)")
	fl.IntVar(&f.skip, "skip", 0, "images of an IDX file to leave out at its beginning")
	fl.IntVar(&f.count, "count", 0, "images of an IDX file to take; 0 takes all")
	fl.IntVar(&f.limit, "max-pixels", imagefile.MaxPixels,
		"largest image that is decoded, in pixels")
	fl.StringVar(&f.onBad, "on-bad", "fail",
		"what to do about images that cannot be used: fail or skip; all are named")
	fl.BoolVar(&f.byNumber, imagefile.ByNumberFlag, false, imagefile.ByNumberHelp)
}

// options are those of the images of a path; with labelsOptional images without a label are taken.
func (f *imageFlags) options(labelsOptional bool) imagefile.Options {
	return imagefile.Options{Labels: f.labels, Skip: f.skip, Count: f.count, MaxPixels: f.limit,
		Optional: labelsOptional,
		Classes:  imagefile.Classes{ByNumber: f.byNumber}}
}

// levelFlag adds --level, of prediction sets. 0 is outside the levels, and so can mean the stored
// one.
func levelFlag(cmd *cobra.Command, level *float64) {
	cmd.Flags().Float64Var(level, "level", 0, "`PROBABILITY` with which a prediction set holds "+
		"the true class, 0.5 to 0.999 (default: as stored)")
}

// openClassifier opens a classifier on the engine of the settings, with prediction sets of a level;
// 0 is the stored one. The returned function closes classifier and engine, and is nil after an
// error.
func openClassifier(cmd *cobra.Command, cfg engineSettings, path string,
	level float64) (*classify.Classifier, func(), error) {
	if err := checkLevel(level); err != nil {
		return nil, nil, err
	}
	return openedBy(cmd, cfg, func() (classify.Opener, error) { return classify.Read(path, level) })
}

// checkLevel refuses a --level that no prediction set has; 0 is the stored one. Levels are
// models.MinLevel to models.MaxLevel, 0.5 to 0.999.
func checkLevel(level float64) error {
	if level != 0 {
		if err := conformal.CheckLevel(level); err != nil {
			return usageError(fmt.Errorf("--level: %w", err))
		}
	}
	return nil
}

// openedBy opens a classifier on the engine of the settings, which starts while the file is read:
// the runtime's library is checked and loaded for as long as a file of some megabytes takes. The
// returned function closes both. A fault of the engine is told before one of the file. A run takes
// 64 images.
func openedBy(cmd *cobra.Command, cfg engineSettings,
	read func() (classify.Opener, error)) (*classify.Classifier, func(), error) {
	var eng engine.Engine
	// eng is written before the send and read after the receive, and so needs no lock.
	failed := make(chan error, 1)
	go func() {
		var err error
		eng, err = openEngine(cmd.Context(), cfg.Engine, cfg.Engine.Threads, cmd.ErrOrStderr())
		failed <- err
	}()
	open, err := read()
	if err := <-failed; err != nil {
		return nil, nil, err
	}
	var c *classify.Classifier
	if err == nil {
		c, err = open(eng)
	}
	if err != nil {
		// An engine that has no classifier is closed here.
		return nil, nil, usageError(errors.Join(err, eng.Close()))
	}
	c.Batch = 64
	return c, func() { c.Close(); eng.Close() }, nil
}

// classifyPath classifies the images (or the feature rows, .npy) of a path and names unreadable
// files. Where labels are not optional, copies of an image count once. bad are the errors of images
// that were left out. do gets predictions one batch at a time, in the order of the images. After an
// error it may have been called for some images.
func classifyPath(cmd *cobra.Command, c *classify.Classifier, path string, f imageFlags,
	optional bool, do func([]classify.Prediction) error) (bad []error, err error) {
	skip, err := skipBad(f.onBad)
	if err != nil {
		return nil, err
	}
	if f.skip < 0 || f.count < 0 {
		return nil, usageErrorf("--skip is %d and --count %d; allowed are numbers of at least 0",
			f.skip, f.count)
	}
	if f.limit < 1 {
		return nil, usageErrorf("--max-pixels is %d; allowed are numbers of at least 1", f.limit)
	}
	if strings.HasSuffix(strings.ToLower(path), ".npy") {
		if f.skip > 0 || f.count > 0 || f.byNumber {
			return nil, usageErrorf("--skip, --count and --%s do not go with feature rows (%s)",
				imagefile.ByNumberFlag, path)
		}
		// The caller's own files have no bound here; fmp-edge has one of 64 MiB.
		rows, err := classify.LoadRows(path, math.MaxInt64, classify.FeatureRows)
		if err != nil {
			return nil, usageError(err)
		}
		var labels []int
		if f.labels != "" {
			if labels, err = classify.LoadLabels(f.labels, math.MaxInt64,
				c.Manifest.C); err != nil {
				return nil, usageError(err)
			}
		} else if !optional {
			return nil, usageErrorf("%s is feature rows and has no labels; give them with "+
				"--labels FILE.npy", path)
		}
		return nil, usageError(c.Rows(cmd.Context(), rows, labels, do))
	}
	// Predictions are of every file; scores count an image once.
	copies := new(int)
	if !optional {
		do, copies = classify.Distinct(do)
	}
	bad, mapped, err := reading(cmd, skip).Images(cmd.Context(), c, path, f.options(optional), do)
	if err != nil {
		return nil, usageError(err)
	}
	if *copies > 0 {
		fmt.Fprintf(cmd.ErrOrStderr(), "%s: left out: %d copies of other images of their class, "+
			"which count once\n", cmd.CommandPath(), *copies)
	}
	return bad, imagefile.PrintMapping(cmd.ErrOrStderr(), cmd.CommandPath()+": ", mapped)
}

// reading has images that a command leaves out told in its name. skip is the meaning of --on-bad.
// Lines begin with the path of the command.
func reading(cmd *cobra.Command, skip bool) classify.Reading {
	return classify.Reading{Log: cmd.ErrOrStderr(), Prefix: cmd.CommandPath() + ": ", Skip: skip}
}

const predictHelp = `Print, for every image, the most probable class with its probability, the second, and the
disagreement of the classifier's heads (mutual information in nats: the part of the uncertainty that
more data would lower).

IMAGES is one image (` + imagefile.Formats + `; ` + imagefile.HEIFFormats + ` where heif-dec, heif-convert
or magick is on the PATH), a folder of them, a .csv of paths, an IDX file of images, or, for a
classifier of feature rows, a .npy. Images of other formats are bad images (--on-bad). Images are
turned upright (EXIF) and brought to the classifier's size as its file says.

The probabilities are made to be believed: of the images that get 0.9, nine in ten should be right
(fmp evaluate measures it). --reject 0.9 marks those below with a ? and counts them: they are for
people to look at.

One image runs on the pure engine unless --engine, --library or --provider is given: the ONNX
Runtime takes longer to start. Probabilities of the two differ by the rounding of float32, some
1e-6. A quantised network runs on the ONNX Runtime even then: of its numbers engines round some to
neighbouring steps, which moves single probabilities by some hundredths.

A classifier that fmp calibrate wrote prints each image's prediction set; with --csv its classes are
separated by |, and a | or \ in a name has a \ before it. --error 0.05 then takes
the --reject below which too many answers would be wrong: with a probability of 95% over the
calibration images, at most 5% of answers are.

Where fmp pool found clients whose cameras differ, --adapt takes a folder of images of one further
camera, some dozen without labels, and leaves out of IMAGES what sets that camera apart (fmp pool
--for CLIENT is for a client of the round). Sets are then of the same scores, and no longer promise
their level: calibration images were of the clients' cameras.

--listen answers requests on this machine in place of IMAGES: the Open Inference Protocol (/v2),
images as they are (/v1/predict), and a page to drop photographs on, at /. Its /metrics count as
left to people, and its /v1/predict marks as unsure, what --reject says. With --adapt and --level it
serves the classifier of that camera, with sets of that level. It reads the notice every 10 s, and
ends where it names the classifier.`

// predicting is a call of fmp predict: its flags and settings. reject may be set by answerable,
// from risk.
type predicting struct {
	engine engineSettings
	images imageFlags
	asCSV  bool
	listen listening
	// camera is a path of images of one further camera; "" for none.
	camera string
	// reject is the probability below which an image is left to people, risk the share of wrong
	// answers that it is chosen by, and level that of sets; 0 is none, or the stored one.
	reject, risk, level float64
}

// newPredictCommand declares fmp predict. With --listen it takes one argument, and two without. The
// notice is heeded before the classifier is opened, in both ways.
func newPredictCommand() *cobra.Command {
	o := predicting{engine: option.Default[engineSettings]()}
	cmd := &cobra.Command{
		Use:   "predict CLASSIFIER [IMAGES]",
		Short: "Classify images with the classifier that fmp pool wrote",
		Long:  predictHelp,
		Example: `  fmp predict classifier.onnx photo.jpg
  fmp predict --listen 127.0.0.1:8080 classifier.onnx
  fmp predict classifier.onnx photos/ --reject 0.9
  fmp predict classifier.onnx photos/ --adapt photos/
  fmp predict classifier.onnx photos/ --csv > predictions.csv
  fmp predict classifier.onnx test-images-idx3-ubyte --count 100 --json`,
	}
	cmd.Args = func(cmd *cobra.Command, args []string) error {
		if o.listen.address != "" {
			return exactArgs("a CLASSIFIER")(cmd, args)
		}
		return exactArgs("a CLASSIFIER", "IMAGES")(cmd, args)
	}
	bindSettings(cmd, &o.engine, engineAliases)
	o.images.bind(cmd)
	fl := cmd.Flags()
	fl.Float64Var(&o.reject, "reject", 0,
		"leave to people what has less than this `PROBABILITY` at best")
	fl.Float64Var(&o.risk, "error", 0, "leave as many images to people as keep the share of "+
		"wrong answers at this `SHARE` or below, with a probability of 95%; wants a classifier "+
		"of fmp calibrate")
	levelFlag(cmd, &o.level)
	fl.StringVar(&o.camera, "adapt", "", "`IMAGES` without labels, of the camera that took the "+
		"images to classify: its shift is left out")
	jsonFlag(cmd, "print JSON: the classes, and for each image all probabilities")
	fl.BoolVar(&o.asCSV, "csv", false, "print CSV")
	fl.StringVar(&o.listen.address, "listen", "",
		"answer requests on a loopback `HOST:PORT` (0: a free one), in place of IMAGES")
	bindHosts(fl, &o.listen.hosts)
	fl.StringVar(&o.listen.folder, "page", "", "`FOLDER` that make page wrote, with which the "+
		"page of --listen classifies in the browser; without it the page sends photographs to "+
		"this program")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		if err := o.images.notice.heed(args[0]); err != nil {
			return err
		}
		if o.listen.address != "" {
			return o.serve(cmd, args[0])
		}
		return o.print(cmd, args[0], args[1])
	}
	return cmd
}

// serve answers requests for predictions of the classifier in a file. The bytes are held in memory:
// a file that changes meanwhile is not served.
func (o *predicting) serve(cmd *cobra.Command, classifier string) error {
	data, err := servedClassifier(cmd, o.engine, classifier, o.level, o.camera, o.images)
	if err != nil {
		return err
	}
	o.listen.reject, o.listen.notice, o.listen.every = o.reject, o.images.notice, noticeEvery
	return servePredictions(cmd, o.engine, classifier, data, o.listen)
}

// print prints the predictions of the images of a path. Flags that exclude each other are refused
// before the classifier is opened. Predictions are printed as they come, so that an error may
// follow some.
func (o *predicting) print(cmd *cobra.Command, classifier, path string) error {
	format, err := classify.FormatOf(wantsJSON(cmd), o.asCSV)
	if err := cmp.Or(withoutListen(cmd), usageError(err)); err != nil {
		return err
	}
	// Images of another camera are many, so that --adapt never takes the way of one image.
	open := openClassifier
	if o.camera == "" && runsAlone(cmd, o.engine, path) {
		open = openForOne
	}
	c, closeAll, err := open(cmd, o.engine, classifier, o.level)
	if err != nil {
		return err
	}
	defer closeAll()
	if o.camera != "" {
		if err := adapt(cmd, c, o.camera, o.images); err != nil {
			return err
		}
	}
	if cmd.Flags().Changed("error") {
		if o.reject, err = answerable(cmd, c, o.reject, o.risk); err != nil {
			return usageError(err)
		}
		// Thresholds of --error are of probabilities before their calibration.
		c = c.BeforeCalibration()
	}
	p, err := classify.NewPrinter(cmd.OutOrStdout(), c, format, o.reject)
	if err != nil {
		return usageError(err)
	}
	if _, err := classifyPath(cmd, c, path, o.images, true, p.Print); err != nil {
		return err
	}
	return p.Close()
}

// adapt makes a classifier that of the camera that took the images (or the feature rows, .npy) of a
// path, and says where its sets no longer hold their promise. c is changed. The warning comes after
// the adapting, and only of a classifier with sets.
func adapt(cmd *cobra.Command, c *classify.Classifier, path string, f imageFlags) error {
	err := adaptTo(cmd, c, path, f)
	if err == nil && hasSets(c.Manifest) {
		_, err = fmt.Fprintf(cmd.ErrOrStderr(), "%s: sets do not promise their level for this "+
			"camera: calibration images were of others\n", cmd.CommandPath())
	}
	return err
}

// hasSets reports whether a classifier has prediction sets. A manifest that cannot be read has
// none.
func hasSets(f models.Manifest) bool {
	o, err := models.ReadOrigin(f)
	return err == nil && o.Sets != nil
}

// adaptTo is adapt without a word on sets. The classifier's shift is estimated from these images or
// rows alone. Labels of folders or files are not read, as the shift is of features alone.
func adaptTo(cmd *cobra.Command, c *classify.Classifier, path string, f imageFlags) error {
	if strings.HasSuffix(strings.ToLower(path), ".npy") {
		rows, err := classify.LoadRows(path, math.MaxInt64, classify.FeatureRows)
		if err == nil {
			err = c.AdaptRows(cmd.Context(), rows)
		}
		return usageError(err)
	}
	skip, err := skipBad(f.onBad)
	if err != nil {
		return err
	}
	n, err := reading(cmd, skip).Adapt(cmd.Context(), c, path,
		imagefile.Options{MaxPixels: f.limit})
	if err == nil {
		_, err = fmt.Fprintf(cmd.ErrOrStderr(), "%s: adapted to %d images of %s\n",
			cmd.CommandPath(), n, path)
	}
	return usageError(err)
}

// confidence is the probability, over calibration images, with which --error keeps its promise. It
// is a probability over calibration images, not over images to come.
const confidence = 0.95

// answerable returns the probability below which images are left to people, so that the share of
// wrong answers is at most risk. The promise holds with a probability of 0.95 over the calibration
// images; where they are too few for it, it is an error. reject is the value of --reject, which
// must be 0. The threshold is printed on standard error, so that the output stays a table.
func answerable(cmd *cobra.Command, c *classify.Classifier, reject, risk float64) (float64, error) {
	if reject != 0 {
		return 0, errors.New("--error and --reject both say which images are answered: give one")
	}
	if !(risk > 0 && risk < 1) {
		return 0, fmt.Errorf("--error is %v: allowed are shares between 0 and 1", risk)
	}
	o, err := models.ReadOrigin(c.Manifest)
	if err != nil {
		return 0, err
	}
	if o.Sets == nil || len(o.Sets.Top) != len(o.Sets.Right) || len(o.Sets.Top) == 0 {
		return 0, errors.New("--error: the classifier has no calibration images: pool uploads " +
			"with calibration points, or make one with fmp calibrate")
	}
	points := conformal.Points{Top: o.Sets.Top, Right: o.Sets.Right}
	threshold, answered, ok := points.Answerable(risk, 1-confidence, o.Sets.Clients > 1)
	if !ok {
		return 0, fmt.Errorf("--error %v: %d calibration images prove no such share of wrong "+
			"answers: calibrate with more images, or allow a larger share", risk, len(points.Top))
	}
	before := ""
	if o.Scaling != nil {
		before = "; probabilities are those before their calibration, of which the proof is, " +
			"without intervals and disagreement"
	}
	_, err = fmt.Fprintf(cmd.ErrOrStderr(),
		"%s: images below %.3f are left to people; %d of %d calibration images are answered%s\n",
		cmd.CommandPath(), threshold, answered, len(points.Top), before)
	return threshold, err
}

// oneImage bounds the multiply-adds of one image that runs in Go where the engine is nobody's
// choice: ResNet-50 has 4.1 billion. Beyond, the ONNX Runtime makes up for its start. A variable
// for tests. One multiply-add counts one, so that 2^32 are 4.3 billion.
var oneImage = engine.Limits{Work: 1 << 32}

// openForOne opens a classifier for one image. The ONNX Runtime takes longer to start, and to lay
// out its weights, than the pure engine takes for all of it. A model that is too much work in Go,
// or has an operator that the pure engine lacks, still runs on the runtime, and so does one that
// rounds to bytes.
func openForOne(cmd *cobra.Command, cfg engineSettings, path string,
	level float64) (*classify.Classifier, func(), error) {
	if err := checkLevel(level); err != nil {
		return nil, nil, err
	}
	open, err := classify.Read(path, level)
	if err != nil {
		return nil, nil, usageError(err)
	}
	eng, err := pure.New(engine.Options{Threads: cfg.Engine.Threads})
	if err != nil {
		return nil, nil, usageError(err)
	}
	eng = cost.Bounded(smooth{engine.Under(cmd.Context(), eng)}, oneImage)
	c, err := open(eng)
	if err != nil { // the runtime's own words are the better ones
		if err := eng.Close(); err != nil {
			return nil, nil, err
		}
		return openedBy(cmd, cfg, func() (classify.Opener, error) { return open, nil })
	}
	return c, func() { c.Close(); eng.Close() }, nil
}

// smooth is an engine without models that round to bytes as they run. There engines differ by
// steps, so that an image alone would have another answer than in its folder. Other models run as
// on the engine behind it.
type smooth struct{ engine.Engine }

// Load prepares a model. A classifier's file has neither functions nor graphs within its nodes, and
// weights that are stored as bytes round nothing. DynamicQuantizeLinear, QuantizeLinear and
// QLinearConv are such operators (ONNX).
func (e smooth) Load(m *onnx.Model) (engine.Session, error) {
	if slices.ContainsFunc(m.Graph.Nodes, func(n *onnx.Node) bool {
		return strings.HasPrefix(strings.TrimPrefix(n.Op, "Dynamic"), "Quantize") ||
			strings.HasPrefix(n.Op, "QLinear")
	}) {
		return nil, errors.New("the model rounds to bytes, to which each engine " +
			"comes by its own sums")
	}
	return e.Engine.Load(m)
}

// runsAlone reports whether a path is one image, or one row of features, that runs on the pure
// engine: neither the engine nor the runtime's library or provider is chosen, and this processor
// has vectors that the pure engine multiplies in. Of rows a file of 1 MiB at most is looked at, as
// one row is smaller. It opens no classifier and no engine, and a wrong guess costs only time.
func runsAlone(cmd *cobra.Command, cfg engineSettings, path string) bool {
	if cmd.Flags().Changed("engine") || cfg.Engine.Name != "auto" || libraryIsNeeded(cfg.Engine) ||
		runtime.GOARCH != "arm64" && !(cpu.X86.HasAVX2 && cpu.X86.HasFMA) {
		return false
	}
	st, err := os.Stat(path)
	if err != nil || !st.Mode().IsRegular() {
		return false
	}
	if !strings.HasSuffix(strings.ToLower(path), ".npy") {
		return imagefile.IsImage(path)
	}
	const most = 1 << 20 // bytes of one row
	if st.Size() > most {
		return false
	}
	rows, err := npy.Load(path)
	return err == nil && len(rows.Shape) == 2 && rows.Shape[0] == 1
}
