package main

import (
	"fmt"
	"io"
	"path/filepath"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"fmp/models"
	"fmp/onnx/serde"
	"fmp/pipeline/classify"
	"fmp/pipeline/conformal"
	"fmp/pipeline/settings"
)

// calibration is the input and the result of fmp calibrate.
type calibration struct {
	File      string                      `json:"file"`
	Images    int                         `json:"images"`
	Level     float64                     `json:"level"`
	Score     conformal.Score             `json:"score"`
	Threshold float32                     `json:"threshold"`
	MeanSize  map[conformal.Score]float64 `json:"mean_size"`
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

The same images let fmp predict --error R answer only as many images as keep the share of wrong answers below R.`,
		Example: `  fmp calibrate classifier.onnx labelled/ -o calibrated.onnx
  fmp calibrate classifier.onnx labelled/ --level 0.95 --score adaptive -o calibrated.onnx
  fmp predict calibrated.onnx photos/ --error 0.05`,
		Args: exactArgs("a CLASSIFIER", "IMAGES"),
	}
	s := bindSettings(cmd, &cfg, engineAliases)
	images.bind(cmd)
	fl := cmd.Flags()
	fl.StringVarP(&r.File, "out", "o", "", "classifier to write")
	fl.Float64Var(&r.Level, "level", 0.9, "probability with which a set holds the true class, 0.5 to 0.999")
	fl.StringVar((*string)(&r.Score), "score", string(conformal.Probability), "conformity score: probability (small sets) or adaptive "+
		"(larger sets for hard images)")
	fl.BoolVar(&asJSON, "json", false, "print JSON")
	wantFolders(cmd, "out")
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
		c, closeAll, err := openClassifier(cmd, cfg, args[0])
		if err != nil {
			return err
		}
		defer closeAll()
		sets, err := r.calibrate(func(do func([]classify.Prediction) error) error {
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
		if asJSON {
			return printJSON(cmd.OutOrStdout(), r)
		}
		return r.print(cmd.OutOrStdout())
	}
	return cmd
}

// calibrate computes the thresholds of the predictions that predict hands out, which are of labelled images.
func (r *calibration) calibrate(predict func(func([]classify.Prediction) error) error) (*models.OriginSets, error) {
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
	r.Images, r.MeanSize = len(seen), map[conformal.Score]float64{}
	for _, k := range conformal.Scores {
		threshold, err := conformal.Threshold(points.True[k], r.Level)
		if err != nil {
			return nil, err
		}
		if k == r.Score {
			r.Threshold = threshold
		}
		r.MeanSize[k] = meanSize(seen, k, threshold)
	}
	return &models.OriginSets{Level: r.Level, Score: string(r.Score), Threshold: r.Threshold, Images: r.Images, Top: points.Top,
		Right: points.Right}, nil
}

// meanSize returns the mean number of classes in the sets of images with the given probabilities.
func meanSize(images [][]float32, score conformal.Score, threshold float32) float64 {
	n := 0
	for _, p := range images {
		in := 0
		for _, v := range score.Of(p) {
			if v >= threshold {
				in++
			}
		}
		n += max(in, 1) // the most probable class always is
	}
	return float64(n) / float64(len(images))
}

func (r *calibration) print(w io.Writer) error {
	var sizes []string
	for _, k := range conformal.Scores {
		sizes = append(sizes, fmt.Sprintf("%.2f classes with score %s", r.MeanSize[k], k))
	}
	_, err := fmt.Fprintf(w, `%s: sets of %v%% from %d images, score %s
A set of a new image drawn like these holds its class with a probability of at least %v, over calibrations and images.
Mean size on these images: %s.
Another camera or other shares of the classes void the guarantee.
`, r.File, 100*r.Level, r.Images, r.Score, r.Level, strings.Join(sizes, ", "))
	return err
}
