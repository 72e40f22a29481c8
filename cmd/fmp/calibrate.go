package main

import (
	"context"
	"fmt"
	"io"
	"path/filepath"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"fmp/featurize/imagefile"
	"fmp/models"
	"fmp/onnx/serde"
	"fmp/pipeline/classify"
	"fmp/pipeline/conformal"
	"fmp/pipeline/option"
	"fmp/pipeline/scaling"
)

// calibration is the input and the result of fmp calibrate. Fields in JSON are results, but for
// File, Level, Score and ByClass, which flags set. It is used for one run of the command, from one
// goroutine.
//
// Thresholds and Proportions are as in models.OriginSets: a threshold is a score, and proportions
// sum to 1 over the classes.
type calibration struct {
	File   string          `json:"file"`
	Images int             `json:"images"`
	Level  float64         `json:"level"`
	Score  conformal.Score `json:"score"`
	// Thresholds are the scores from which on a class is in a set: one, or with ByClass one a
	// class.
	Thresholds  []float32 `json:"thresholds"`
	ByClass     bool      `json:"by_class,omitempty"`
	Proportions []float64 `json:"proportions,omitempty"`
	// MeanSize is the mean number of classes in a set of the calibration images, by score.
	MeanSize map[conformal.Score]float64 `json:"mean_size"`
	// Always are the classes that are in every set, as their images are too few.
	Always []string `json:"always,omitempty"`
	// Missing are the classes that no image is of.
	Missing []string `json:"missing,omitempty"`
	// Trials are the scalings of probabilities that were tried, Scaling the one that was written;
	// nil where none was.
	Trials  []scaling.Trial       `json:"trials"`
	Scaling *models.OriginScaling `json:"scaling,omitempty"`

	// shares is the text of --proportions and scale that of --scaling.
	shares, scale string
	log           io.Writer // tells how far the fits are
}

// Values of --scaling beside the kinds of scaling.
const (
	// auto tries every kind, and leaves a small set of images without any.
	scaleAuto = "auto"
	scaleNone = scaling.None
)

// calibrateHelp is the long help of fmp calibrate. With n images drawn alike, split conformal
// prediction takes the score of rank floor((n + 1)(1 - level)) from below as its threshold. It asks
// for n/(n + 1) of the level or more.
const calibrateHelp = `Read labelled images of one owner that took no part in making the classifier,
and write a classifier whose probabilities are calibrated on them, in the graph and in its model
card. No image leaves this machine. Copies of an image count once. CLASSIFIER stays as it is.

A temperature is tried, a factor and an offset for each class (vector), and a matrix besides. Each
is fitted to four fifths of the images, in turn, and scored on the last fifth: negative
log-likelihood and calibration error (ECE) before and after. The temperature is written where it
lowers the first, a richer one only where it does by two standard errors of the difference. The
matrix takes most of the time; --scaling temperature is quick.

The classifier has one more output: set, the classes that an image may have. The set of a new image
holds its class with a probability of at least --level (split conformal prediction; Vovk 2005). The
guarantee needs images that are drawn alike: another camera, or other shares of the classes, void
it. Sets are of the probabilities before calibration, so that all images serve both.

With --by-class the level holds for the images of each class. With --proportions it is for images
whose classes have the given shares. Both hold whatever the shares among the calibration images are,
and want more of these (docs/sets.md).

The same images let fmp predict --error R answer only as many images as keep the share of wrong
answers below R.`

// newCalibrateCommand declares fmp calibrate. Flags are checked before the classifier is opened.
// Images are read after the classifier. The new file is written last, and whole: an error leaves
// none. It replaces a file of that name that was there. CLASSIFIER itself cannot be the output, as
// the flags are checked for that (package outputs).
//
// Predictions are asked for with the probabilities of each head (classify.ReadHeads), to which a
// scaling applies. Labels are needed, and copies of an image count once: the guarantee counts
// images that were drawn apart.
func newCalibrateCommand() *cobra.Command {
	var r calibration
	var images imageFlags
	cfg := option.Default[engineSettings]()
	cmd := &cobra.Command{
		Use: "calibrate CLASSIFIER IMAGES",
		Short: "Give a classifier probabilities and prediction sets that are right on labelled " +
			"images of yours",
		Long: calibrateHelp,
		Example: `  fmp calibrate classifier.onnx labelled/ -o calibrated.onnx
  fmp calibrate classifier.onnx labelled/ --scaling temperature -o calibrated.onnx
  fmp calibrate classifier.onnx labelled/ --level 0.95 --score adaptive -o calibrated.onnx
  fmp calibrate classifier.onnx labelled/ --proportions cat=0.9,dog=0.1 -o calibrated.onnx
  fmp predict calibrated.onnx photos/ --error 0.05`,
		Args: exactArgs("a CLASSIFIER", "IMAGES"),
	}
	bindSettings(cmd, &cfg, engineAliases)
	images.bind(cmd)
	fl := cmd.Flags()
	outFlag(cmd, &r.File, "out", "", "classifier to write")
	fl.Float64Var(&r.Level, "level", 0.9,
		"probability with which a set holds the true class, 0.5 to 0.999")
	fl.StringVar((*string)(&r.Score), "score", string(conformal.Probability), "conformity score "+
		"of the sets: probability (small sets) or adaptive (larger sets for hard images)")
	fl.BoolVar(&r.ByClass, "by-class", false,
		"sets that hold the images of each class as often as stated, whatever the shares of the "+
			"classes; a class with too few calibration images is in every set")
	fl.StringVar(&r.shares, "proportions", "", "shares of the classes among new images, "+
		"where they are not those of the calibration images: equal, or `NAME=SHARE,...`, "+
		"divided by their sum; classes without one have none")
	fl.StringVar(&r.scale, "scaling", scaleAuto, "calibration of the probabilities: auto, none "+
		"(as they are), or at most temperature, vector or matrix")
	jsonFlag(cmd, "print JSON")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		// There is no default: a name beside CLASSIFIER could replace another calibration.
		if r.File == "" {
			return usageErrorf("--out is not given; name the classifier to write")
		}
		if !slices.Contains(conformal.Scores, r.Score) {
			return usageErrorf("--score is %q; allowed are %v", r.Score, conformal.Scores)
		}
		// A level that holds within each class holds for any mixture of the classes.
		if r.ByClass && r.shares != "" {
			return usageErrorf("sets --by-class hold for any --proportions: give one of the two")
		}
		if _, err := r.kinds(); err != nil {
			return usageError(err)
		}
		if err := images.notice.heed(args[0]); err != nil {
			return err
		}
		c, closeAll, err := openedBy(cmd, cfg,
			func() (classify.Opener, error) { return classify.ReadHeads(args[0]) })
		if err != nil {
			return err
		}
		defer closeAll()
		from := filepath.Base(filepath.Clean(args[1]))
		r.log = cmd.ErrOrStderr()
		sets, err := r.calibrate(cmd.Context(), c.Manifest, from,
			func(do func([]classify.Prediction) error) error {
				_, err := classifyPath(cmd, c, args[1], images, false, do)
				return err
			})
		if err != nil {
			return usageError(err)
		}
		if err := r.write(args[0], c.Manifest.Digest, sets); err != nil {
			return err
		}
		return tell(cmd, r, r.print)
	}
	return cmd
}

// kinds returns the scalings to try. They go from the simplest to the richest, and a kind by name
// stands for all up to it. nil is none at all. auto and the richest kind try the same kinds, and
// differ where images are few: auto then tries none, and a kind by its name is an error of package
// scaling. The slice is shared with package scaling and must not be changed.
func (r *calibration) kinds() ([]string, error) {
	switch at := slices.Index(scaling.Kinds, r.scale); {
	case r.scale == scaleAuto:
		return scaling.Kinds, nil
	case r.scale == scaleNone:
		return nil, nil
	case at >= 0:
		return scaling.Kinds[:at+1], nil
	}
	return nil, fmt.Errorf("--scaling is %q; allowed are %s, %s, %s", r.scale, scaleAuto, scaleNone,
		strings.Join(scaling.Kinds, ", "))
}

// write makes the calibrated classifier of the one in a file, of the given digest. The graph is
// read once more from the file, without the changes that were made to run it. The scaling goes in
// first, since it drops the prediction sets of the classifier, which WithSets then adds. The digest
// is recorded as that of the classifier that this one descends from, by which notices of withdrawal
// still find it. serde.Save writes atomically.
func (r *calibration) write(classifier, digest string, sets *models.OriginSets) error {
	m, err := serde.Load(classifier)
	if err != nil {
		return usageError(err)
	}
	if r.Scaling != nil {
		if m, err = models.WithScaling(m, *r.Scaling); err != nil {
			return err
		}
	}
	if m, err = models.WithSets(m, *sets, r.Score == conformal.Adaptive); err != nil {
		return err
	}
	if err := models.Descends(m, digest); err != nil {
		return err
	}
	return serde.Save(r.File, m)
}

// calibrate computes scaling and sets by the predictions that predict hands out, which are of
// labelled images. Images are held as probabilities alone: [n, C] twice, and with scalings the
// samples of the heads. from is the name of the images' source for the model card, without its
// folders.
//
// The order is: kinds and proportions are checked, images are classified, sets are made, and then
// scalings are fitted. Sets are cheap, and tell of too few images before the fits begin.
// Probabilities are copied, so that they outlive their batch.
func (r *calibration) calibrate(ctx context.Context, f models.Manifest, from string,
	predict func(func([]classify.Prediction) error) error) (*models.OriginSets, error) {
	d := conformal.Design{ByClass: r.ByClass}
	kinds, err := r.kinds()
	if err != nil {
		return nil, err
	}
	if r.shares != "" {
		d.Names = f.Classes
		if d.Proportions, err = conformal.Shares(r.shares, f.Classes, f.C); err != nil {
			return nil, err
		}
	}
	var points conformal.Points
	var scored, stated [][]float32
	seen := make([]bool, f.C)
	// A classifier whose manifest counts no heads is taken as one of a single head.
	x := &scaling.Images{C: f.C, Heads: max(f.S, 1)}
	if err := predict(func(ps []classify.Prediction) error {
		for i := range ps {
			// The error names the image, as only the caller's folder tells which label is wrong.
			if err := points.Add(ps[i].Scored, ps[i].Label); err != nil {
				return fmt.Errorf("%s: %w", ps[i].Name, err)
			}
			// A class without images has no figure of its own, which the text says.
			seen[ps[i].Label] = true
			// Both are of C numbers: before a calibration, and as the classifier states them.
			scored, stated = append(scored, slices.Clone(ps[i].Scored)),
				append(stated, slices.Clone(ps[i].Probabilities))
			// The samples of the heads are the largest part of the memory, and only scalings need
			// them.
			if kinds == nil {
				continue
			}
			if err := x.Add(ps[i].Samples, ps[i].Probabilities, ps[i].Label); err != nil {
				return fmt.Errorf("%w; or keep the probabilities as they are, with "+
					"--scaling none", err)
			}
		}
		return nil
	}); err != nil {
		return nil, err
	}
	// Sets are of probabilities before the scaling, so that all images serve both.
	sets, err := points.Sets(d, r.Level, r.Score, f.C)
	if err != nil {
		return nil, err
	}
	sets.From, r.Images, r.Missing = from, sets.Images,
		namesOf(f.Classes, f.C, func(c int) bool { return !seen[c] })
	if kinds != nil {
		if err := r.scaled(ctx, x, kinds, from, stated); err != nil {
			return nil, err
		}
	}
	r.Thresholds, r.Proportions, r.MeanSize = sets.Thresholds, sets.Proportions,
		map[conformal.Score]float64{}
	r.Always = always(sets, f.Classes)
	// The mean over images of the number of classes in their sets, for either score.
	for _, k := range conformal.Scores {
		n, at := 0, conformal.Thresholds(sets, k, f.C)
		for i := range scored {
			n += k.Size(scored[i], stated[i], at)
		}
		r.MeanSize[k] = float64(n) / float64(len(scored))
	}
	return sets, nil
}

// scaled chooses the scaling, and makes the stated probabilities those of it. Sets keep the scores
// of before: stated is for their sizes alone. stated is [n, C] and is overwritten where a scaling
// is chosen. Trials are kept also where none is, so that the text can say why. Each of the five
// fits of a kind leaves a fifth out, and the chosen kind is fitted to all images once more.
// Progress goes to r.log, after the first seconds alone.
func (r *calibration) scaled(ctx context.Context, x *scaling.Images, kinds []string, from string,
	stated [][]float32) error {
	// Of too few images auto tries none. A kind that is asked for by its name is tried.
	if r.scale == scaleAuto && len(x.Labels) < scaling.Least {
		return nil
	}
	bar := newLateProgress(r.log)
	defer bar.close()
	trials, s, err := scaling.Choose(ctx, x, kinds, bar.report)
	if err != nil {
		return fmt.Errorf("%w; or keep the probabilities as they are, with --scaling none", err)
	}
	r.Trials = trials
	// The classifier is better as it is, by its NLL on images left out.
	if s == nil {
		return nil
	}
	r.Scaling = &models.OriginScaling{Scaling: *s, Images: r.Images, From: from,
		Folds: scaling.Folds, Before: trials[0].Scores}
	for _, t := range trials {
		if t.Chosen {
			r.Scaling.After = t.Scores
		}
	}
	// One buffer does for all images, as Apply overwrites it.
	p := make([]float64, x.C)
	for i := range stated {
		x.Apply(s, i, p)
		for c, v := range p {
			stated[i][c] = float32(v)
		}
	}
	return nil
}

// always names the classes that are in every set, as their calibration images are too few.
// models.NoThreshold is below every score, so that such a class always passes. Without --by-class
// there is one threshold for all.
func always(s *models.OriginSets, names []string) []string {
	return namesOf(names, len(s.Thresholds),
		func(c int) bool { return s.Thresholds[c] == models.NoThreshold })
}

// namesOf returns the names of the chosen ones of n classes. A class without a name has its number.
// Order is that of the classes.
func namesOf(names []string, n int, chosen func(class int) bool) (out []string) {
	for c := range n {
		if chosen(c) {
			out = append(out, imagefile.Classes{Names: names}.Name(c))
		}
	}
	return out
}

// held describes the images whose class sets hold as stated. The three are the conditions under
// which the level holds (docs/sets.md). byClass comes before proportions, which the command refuses
// together.
func held(byClass bool, proportions []float64) string {
	switch {
	case byClass:
		return "of each class, whatever the shares of the classes,"
	case proportions != nil:
		return "with the given shares of the classes"
	}
	return "drawn like these"
}

// print describes the result for people, with the promise of the sets and the conditions that void
// it. The promise is over calibrations and images: for one calibration the probability may be below
// the level. Sizes are of the calibration images themselves. Lists of classes are cut, as there may
// be thousands.
func (r *calibration) print(b *strings.Builder) {
	var sizes []string
	for _, k := range conformal.Scores {
		sizes = append(sizes, fmt.Sprintf("%.2f classes with score %s", r.MeanSize[k], k))
	}
	r.printScaling(b)
	fmt.Fprintf(b, "%s: sets of %v%% from %d images, score %s\n", r.File, 100*r.Level,
		r.Images, r.Score)
	fmt.Fprintf(b, "A set of a new image %s holds its class with a probability of at least %v, "+
		"over calibrations and images.\n", held(r.ByClass, r.Proportions), r.Level)
	if len(r.Missing) > 0 {
		fmt.Fprintf(b, "No image is of %s: whether probabilities and sets are right for these "+
			"classes is not measured.\n", clip(strings.Join(r.Missing, ", ")))
	}
	if len(r.Always) > 0 {
		fmt.Fprintf(b, "In every set, as their images are too few: %s.\n",
			clip(strings.Join(r.Always, ", ")))
	}
	fmt.Fprintf(b, "Mean size on these images: %s.\n", strings.Join(sizes, ", "))
	voids := "Another camera or other shares of the classes void"
	if r.ByClass || r.Proportions != nil {
		voids = "Another camera, or classes whose images change, void"
	}
	fmt.Fprintf(b, "%s the guarantee.\n", voids)
}

// printScaling prints the trials of scalings and the chosen one. Columns are NLL in nats and ECE,
// and the ECE that a perfectly calibrated classifier has by chance. The gap is the mean confidence
// less the accuracy, in percentage points. Gain and its standard error are in nats an image. The
// temperature is 1 over the factor of the log-probabilities.
func (r *calibration) printScaling(b *strings.Builder) {
	if len(r.Trials) == 0 {
		if r.scale == scaleAuto {
			fmt.Fprintf(b, "The probabilities stay as they were: %d images are too few to "+
				"calibrate them, and %d are enough.\n", r.Images, scaling.Least)
		}
		return
	}
	fmt.Fprintf(b, "probabilities on %d images, each scored by a fit that left its fifth out\n",
		r.Images)
	fmt.Fprintf(b, "  %-11s  %6s  %6s  %14s  %s\n", "", "NLL", "ECE", "ECE by chance", "")
	for _, t := range r.Trials {
		name := t.Kind
		if name == scaling.None {
			name = "as it was"
		}
		if t.Skipped != "" {
			fmt.Fprintf(b, "  %-11s  not tried: %s\n", name, t.Skipped)
			continue
		}
		// A gap of 0 reads as too cautious by 0.0 points.
		gap := fmt.Sprintf("too cautious by %.1f points", -100*t.Scores.Gap)
		if t.Scores.Gap > 0 {
			gap = fmt.Sprintf("too confident by %.1f points", 100*t.Scores.Gap)
		}
		if t.Kind != scaling.None {
			gap += fmt.Sprintf(", gains %.4f (standard error %.4f)", t.Gain, t.GainError)
		}
		if t.Chosen {
			gap += ", chosen"
		}
		fmt.Fprintf(b, "  %-11s  %6.4f  %6.4f  %14.4f  %s\n", name, t.Scores.NLL, t.Scores.ECE,
			t.Scores.Perfect, gap)
	}
	switch {
	case r.Scaling == nil:
		fmt.Fprintf(b,
			"The probabilities stay as they were: no scaling helps on images left out.\n\n")
	case r.Scaling.Kind == models.Temperature:
		fmt.Fprintf(b, "Temperature %.3f is in the graph and in the model card.\n\n",
			1/r.Scaling.Factor[0])
	default:
		fmt.Fprintf(b, "A %s of the classes is in the graph and in the model card.\n\n",
			r.Scaling.Kind)
	}
}
