package main

import (
	"fmt"
	"io"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"fmp/cmd/internal/outputs"
	"fmp/models"
	"fmp/onnx/serde"
	"fmp/pipeline/classify"
	"fmp/pipeline/conformal"
	"fmp/pipeline/settings"
)

// calibration is the input and the result of fmp calibrate.
type calibration struct {
	File   string          `json:"file"`
	Images int             `json:"images"`
	Level  float64         `json:"level"`
	Score  conformal.Score `json:"score"`
	// Thresholds are the scores from which on a class is in a set: one, or with ByClass one a class.
	Thresholds  []float32                   `json:"thresholds"`
	ByClass     bool                        `json:"by_class,omitempty"`
	Proportions []float64                   `json:"proportions,omitempty"`
	MeanSize    map[conformal.Score]float64 `json:"mean_size"`
	// Always are the classes that are in every set, as their images are too few.
	Always []string `json:"always,omitempty"`

	shares string
}

// setFlags adds the flags of prediction sets that fmp calibrate and fmp pool share.
func setFlags(cmd *cobra.Command, score *conformal.Score, byClass *bool, shares *string) {
	fl := cmd.Flags()
	fl.StringVar((*string)(score), "score", string(conformal.Probability), "conformity score of the sets: probability (small sets) or "+
		"adaptive (larger sets for hard images)")
	fl.BoolVar(byClass, "by-class", false, "sets that hold the images of each class as often as stated, whatever the shares of the "+
		"classes; a class with too few calibration images is in every set")
	fl.StringVar(shares, "proportions", "", "shares of the classes among new images, where they are not those of the calibration "+
		"images: equal, or `NAME=SHARE,...`")
}

func newCalibrateCommand() *cobra.Command {
	var r calibration
	var asJSON bool
	var images imageFlags
	cfg := settings.Default[engineSettings]()
	cmd := &cobra.Command{
		Use:   "calibrate CLASSIFIER IMAGES",
		Short: "Give a classifier prediction sets that hold the true class as often as stated",
		Long: `Read labelled images of one owner that took no part in making the classifier, and write a classifier with one more
output: set, the classes that an image may have. The set of a new image holds its class with a probability of at least --level
(split conformal prediction; Vovk 2005). The guarantee needs images that are drawn alike: another camera, or other
shares of the classes, void it. No image leaves this machine.

With --by-class the level holds for the images of each class. With --proportions it is for images whose classes have the given shares.
Both hold whatever the shares among the calibration images are, and want more of these (docs/sets.md).

The same images let fmp predict --error R answer only as many images as keep the share of wrong answers below R.`,
		Example: `  fmp calibrate classifier.onnx labelled/ -o calibrated.onnx
  fmp calibrate classifier.onnx labelled/ --level 0.95 --score adaptive -o calibrated.onnx
  fmp calibrate classifier.onnx labelled/ --proportions cat=0.9,dog=0.1 -o calibrated.onnx
  fmp predict calibrated.onnx photos/ --error 0.05`,
		Args: exactArgs("a CLASSIFIER", "IMAGES"),
	}
	s := bindSettings(cmd, &cfg, engineAliases)
	images.bind(cmd)
	fl := cmd.Flags()
	fl.StringVarP(&r.File, "out", "o", "", "classifier to write")
	fl.Float64Var(&r.Level, "level", 0.9, "probability with which a set holds the true class, 0.5 to 0.999")
	setFlags(cmd, &r.Score, &r.ByClass, &r.shares)
	fl.BoolVar(&asJSON, "json", false, "print JSON")
	outputs.Files(cmd.Flags(), "out")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		if err := s.resolve(); err != nil {
			return err
		}
		if r.File == "" {
			return usageErrorf("--out is not given; name the classifier to write")
		}
		if !slices.Contains(conformal.Scores, r.Score) {
			return usageErrorf("--score is %q; allowed are %v", r.Score, conformal.Scores)
		}
		if r.ByClass && r.shares != "" {
			return usageErrorf("sets --by-class hold for any --proportions: give one of the two")
		}
		if err := images.notice.heed(args[0]); err != nil {
			return err
		}
		c, closeAll, err := openClassifier(cmd, cfg, args[0], 0)
		if err != nil {
			return err
		}
		defer closeAll()
		sets, err := r.calibrate(c.Manifest, func(do func([]classify.Prediction) error) error {
			_, err := classifyPath(cmd, c, args[1], images, false, do)
			return err
		})
		if err != nil {
			return usageError(err)
		}
		sets.From = filepath.Base(filepath.Clean(args[1]))
		m, err := serde.Load(args[0])
		if err != nil {
			return usageError(err)
		}
		if m, err = models.WithSets(m, *sets, r.Score == conformal.Adaptive); err != nil {
			return err
		}
		if err := serde.Save(r.File, m); err != nil {
			return err
		}
		return show(cmd.OutOrStdout(), asJSON, r, r.print)
	}
	return cmd
}

// calibrate computes the thresholds of the predictions that predict hands out, which are of labelled images.
func (r *calibration) calibrate(f models.Manifest, predict func(func([]classify.Prediction) error) error) (*models.OriginSets, error) {
	d := conformal.Design{ByClass: r.ByClass}
	var err error
	if r.shares != "" {
		if d.Proportions, err = conformal.Shares(r.shares, f.Classes, f.C); err != nil {
			return nil, err
		}
	}
	var points conformal.Points
	var seen [][]float32
	if err := predict(func(ps []classify.Prediction) error {
		for i := range ps {
			if err := points.Add(ps[i].Probabilities, ps[i].Label); err != nil {
				return fmt.Errorf("%s: %w", ps[i].Name, err)
			}
			seen = append(seen, slices.Clone(ps[i].Probabilities))
		}
		return nil
	}); err != nil {
		return nil, err
	}
	sets, err := points.Sets(d, r.Level, r.Score, f.C)
	if err != nil {
		return nil, err
	}
	r.Images, r.Thresholds, r.Proportions, r.MeanSize = sets.Images, sets.Thresholds, sets.Proportions, map[conformal.Score]float64{}
	r.Always = always(sets, f.Classes)
	for _, k := range conformal.Scores {
		n, at := 0, conformal.Thresholds(sets, k, f.C)
		for _, p := range seen {
			n += k.Size(p, at)
		}
		r.MeanSize[k] = float64(n) / float64(len(seen))
	}
	return sets, nil
}

// always names the classes that are in every set, as their calibration images are too few.
func always(s *models.OriginSets, names []string) (out []string) {
	for c, t := range s.Thresholds {
		if t == models.NoThreshold && c < len(names) {
			out = append(out, names[c])
		} else if t == models.NoThreshold {
			out = append(out, strconv.Itoa(c))
		}
	}
	return out
}

// held describes the images whose class sets hold as stated.
func held(byClass bool, proportions []float64) string {
	switch {
	case byClass:
		return "of each class, whatever the shares of the classes,"
	case proportions != nil:
		return "with the given shares of the classes"
	}
	return "drawn like these"
}

func (r *calibration) print(w io.Writer) error {
	var sizes []string
	for _, k := range conformal.Scores {
		sizes = append(sizes, fmt.Sprintf("%.2f classes with score %s", r.MeanSize[k], k))
	}
	var b strings.Builder
	fmt.Fprintf(&b, "%s: sets of %v%% from %d images, score %s\n", r.File, 100*r.Level, r.Images, r.Score)
	fmt.Fprintf(&b, "A set of a new image %s holds its class with a probability of at least %v, over calibrations and images.\n",
		held(r.ByClass, r.Proportions), r.Level)
	if len(r.Always) > 0 {
		fmt.Fprintf(&b, "In every set, as their images are too few: %s.\n", clip(strings.Join(r.Always, ", ")))
	}
	fmt.Fprintf(&b, "Mean size on these images: %s.\n", strings.Join(sizes, ", "))
	voids := "Another camera or other shares of the classes void"
	if r.ByClass || r.Proportions != nil {
		voids = "Another camera, or classes whose images change, void"
	}
	fmt.Fprintf(&b, "%s the guarantee.\n", voids)
	_, err := io.WriteString(w, b.String())
	return err
}
