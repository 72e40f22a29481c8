package main

import (
	"context"
	"io"

	"github.com/spf13/pflag"

	"fmp/featurize/imagefile"
	"fmp/onnx/engine"
	"fmp/onnx/engine/pure"
	"fmp/pipeline/classify"
)

// predictCommand classifies on the pure engine, the only one that is linked. Signature and notice
// are asked once the classifier is open, by the digest of the file that was read. No image is read
// before. Signature and notice come before --adapt, whose images are read too.
// Feature rows of a .npy are loaded whole, within maxRowBytes.
var predictCommand = command{
	name: "predict", args: "--model CLASSIFIER IMAGES",
	short: "Classify images with the classifier that fmp pool wrote",
	example: `  fmp-edge predict --model classifier.onnx photo.jpg
  fmp-edge predict --model classifier.onnx photos/ --reject 0.9
  fmp-edge predict --model classifier.onnx photos/ --level 0.95 --csv

IMAGES is one image (` + imagefile.Formats + `), a folder of them, a .csv of paths, an IDX file, plain or .gz,
or, for a classifier of feature rows, a .npy. For each image the most probable class is printed with
its probability, the second, and the disagreement of the classifier's heads (mutual information in
nats).`,
	flags: func(f *pflag.FlagSet) func(context.Context, []string, io.Writer, io.Writer) error {
		var r reading
		r.bind(f, "predict", "fail or skip")
		reject := f.Float64("reject", 0,
			"leave images to people whose most probable class has less than this probability")
		skip := f.Int("skip", 0, "images of an IDX file to leave out at its beginning")
		count := f.Int("count", 0, "images of an IDX file to take; 0 takes all")
		level := f.Float64("level", 0, "probability with which a prediction set holds the true "+
			"class, 0.5 to 0.999; 0 is the stored one")
		camera := f.String("adapt", "",
			"folder of images without labels of the camera that took IMAGES: its shift is left out")
		asJSON := f.Bool("json", false, "print JSON")
		asCSV := f.Bool("csv", false, "print CSV")
		return func(ctx context.Context, args []string, out, log io.Writer) error {
			if r.model == "" || len(args) != 1 {
				return usagef("predict: give --model and one image, folder, .csv, IDX file or " +
					".npy; see fmp-edge predict --help")
			}
			if err := checkReading("predict", r.threads, r.pixels, r.onBad); err != nil {
				return err
			}
			if *skip < 0 || *count < 0 || !(*reject >= 0 && *reject <= 1) {
				return usagef("predict: --skip %d, --count %d and --reject %v; allowed are "+
					"numbers of at least 0, and 0 to 1", *skip, *count, *reject)
			}
			format, err := classify.FormatOf(*asJSON, *asCSV)
			if err != nil {
				return usagef("predict: %w", err)
			}
			// Flags of images are refused beside rows, as they would be passed over.
			if err := rowsTake("predict", isRows(args[0]), f); err != nil {
				return err
			}
			if err := boundedModel(r.model); err != nil {
				return refused("predict", err)
			}
			// The classifier is from elsewhere: its memory is bounded.
			e, err := pure.New(engine.Options{Threads: r.threads, Bytes: classify.Limits.Bytes})
			if err != nil {
				return refused("predict", err)
			}
			c, err := classify.OpenAt(engine.Under(ctx, e), r.model, *level)
			if err != nil {
				return refused("predict", err)
			}
			if err := r.vouched(f, c.Manifest.Digest); err != nil {
				return err
			}
			if *camera != "" {
				if _, err := r.said(log).Adapt(ctx, c, *camera,
					imagefile.Options{MaxPixels: r.pixels}); err != nil {
					return refused("predict", err)
				}
			}
			// Predictions are printed as they are made, and an error may follow some.
			p, err := classify.NewPrinter(out, c, format, *reject)
			if err != nil {
				return refused("predict", err)
			}
			if isRows(args[0]) {
				rows, err := classify.LoadRows(args[0], maxRowBytes, classify.FeatureRows)
				if err == nil {
					err = c.Rows(ctx, rows, nil, p.Print)
				}
				if err != nil {
					return refused("predict", err)
				}
				return p.Close()
			}
			mapped, err := r.images(ctx, c, args[0],
				imagefile.Options{Optional: true, Skip: *skip, Count: *count}, p.Print, log)
			if err != nil {
				return refused("predict", err)
			}
			if err := imagefile.PrintMapping(log, "fmp-edge: ", mapped); err != nil {
				return err
			}
			return p.Close()
		}
	},
}
