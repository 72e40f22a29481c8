package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"

	"github.com/spf13/pflag"

	"fmp/featurize/imagefile"
	"fmp/onnx/engine"
	"fmp/onnx/engine/pure"
	"fmp/onnx/npy"
	"fmp/pipeline/classify"
	"fmp/pipeline/client"
	"fmp/pipeline/federate/wire"
)

var predictCommand = command{
	name: "predict", args: "--model CLASSIFIER IMAGES",
	short: "Classify images with the classifier that fmp pool wrote",
	example: `  fmp-edge predict --model classifier.onnx photo.jpg
  fmp-edge predict --model classifier.onnx photos/ --reject 0.9
  fmp-edge predict --model classifier.onnx photos/ --level 0.95 --csv

IMAGES is one image (` + imagefile.Formats + `), a folder of them, a .csv of paths, an IDX file, plain or .gz,
or, for a classifier of feature rows, a .npy. For each image the most probable class is printed with
its probability, the second, and the disagreement of the classifier's heads (mutual information in nats).`,
	flags: func(f *pflag.FlagSet) func(context.Context, []string, io.Writer, io.Writer) error {
		model := f.String("model", "", "classifier that fmp pool wrote")
		reject := f.Float64("reject", 0,
			"leave images to people whose most probable class has less than this probability")
		skip := f.Int("skip", 0, "images of an IDX file to leave out at its beginning")
		count := f.Int("count", 0, "images of an IDX file to take; 0 takes all")
		threads := f.Int("threads", 0,
			"threads of one operator, and images that are decoded at once; 0 is one a core")
		pixels := f.Int("max-pixels", imagefile.MaxPixels,
			"largest image that is decoded, in pixels; each takes 2 to 8 bytes")
		onBad := f.String("on-bad", "fail",
			"what to do about images that cannot be read: fail or skip; all are named")
		level := f.Float64("level", 0, "probability with which a prediction set holds the true class, "+
			"0.5 to 0.999; 0 is the stored one")
		byNumber := f.Bool(imagefile.ByNumberFlag, false, imagefile.ByNumberHelp)
		camera := f.String("adapt", "",
			"folder of images without labels of the camera that took IMAGES: its shift is left out")
		asJSON := f.Bool("json", false, "print JSON")
		asCSV := f.Bool("csv", false, "print CSV")
		notice := f.String("notice", "", "notice of the round's superseded versions (default: the "+
			"classifier's name with .notice, if it is there)")
		server := f.String("server-key", "",
			"public key of the round's server (base64), which must have signed the notice")
		signerFlags(f)
		return func(ctx context.Context, args []string, out, log io.Writer) error {
			if *model == "" || len(args) != 1 {
				return usagef("predict: give --model and one image, folder, .csv, IDX file or .npy; see " +
					"fmp-edge predict --help")
			}
			if *threads < 0 || *threads > pure.MaxThreads || *pixels < 1 ||
				*pixels > imagefile.MaxPixels || *skip < 0 || *count < 0 ||
				!(*reject >= 0 && *reject <= 1) {
				return usagef("predict: --threads %d, --max-pixels %d, --skip %d, --count %d and --reject "+
					"%v; allowed are 0 to %d, 1 to %d, numbers of at least 0, and 0 to 1",
					*threads, *pixels, *skip, *count, *reject, pure.MaxThreads, imagefile.MaxPixels)
			}
			if *onBad != "fail" && *onBad != "skip" {
				return usagef("predict: --on-bad is %q; allowed are fail and skip", *onBad)
			}
			format := classify.Table
			switch {
			case *asJSON && *asCSV:
				return usagef("predict: --json and --csv are two formats; give one")
			case *asJSON:
				format = classify.JSON
			case *asCSV:
				format = classify.CSV
			}
			if err := rowsTake("predict", isRows(args[0]), f); err != nil {
				return err
			}
			if err := boundedModel(*model); err != nil {
				return refused("predict", err)
			}
			e, err := pure.New(engine.Options{Threads: *threads, Bytes: classify.Limits.Bytes})
			if err != nil {
				return refused("predict", err)
			}
			c, err := classify.OpenAt(engine.Under(ctx, e), *model, *level)
			if err != nil {
				return refused("predict", err)
			}
			if err := checkSigned(f, *model, c.Manifest.Digest, nil); err != nil {
				return err
			}
			if err := client.Heed(*model, *notice, *server); errors.Is(err, wire.ErrSuperseded) {
				return err
			} else if err != nil {
				return refused("predict", err)
			}
			if *camera != "" {
				if err := adapt(ctx, c, *camera, *pixels, *onBad == "skip", log); err != nil {
					return refused("predict", err)
				}
			}
			p, err := classify.NewPrinter(out, c, format, *reject)
			if err != nil {
				return refused("predict", err)
			}
			if isRows(args[0]) {
				if err := predictRows(ctx, c, args[0], p); err != nil {
					return refused("predict", err)
				}
				return p.Close()
			}
			src, others, err := c.Source(args[0], imagefile.Options{
				Optional: true, Skip: *skip, Count: *count, MaxPixels: *pixels, Threads: *threads,
				Classes: imagefile.Classes{ByNumber: *byNumber},
			})
			if err != nil {
				return refused("predict", err)
			}
			defer src.Close()
			if others.N > 0 {
				fmt.Fprintf(log, "fmp-edge: under %s %v\n", args[0], others)
			}
			bad, err := c.Images(ctx, src, *onBad == "skip", p.Print)
			if err == nil && *onBad == "fail" {
				err = imagefile.Unread(bad)
			}
			if err != nil {
				return refused("predict", err)
			}
			for _, err := range bad {
				fmt.Fprintf(log, "fmp-edge: left out: %v\n", err)
			}
			none := slices.DeleteFunc(imagefile.MappingOf(src),
				func(m imagefile.Mapped) bool { return m.Label != imagefile.Unlabelled })
			if err := imagefile.PrintMapping(log, "fmp-edge: ", none); err != nil {
				return err
			}
			return p.Close()
		}
	},
}

func adapt(ctx context.Context, c *classify.Classifier, path string, pixels int, skip bool,
	log io.Writer) error {
	src, others, err := c.Source(path, imagefile.Options{Optional: true, MaxPixels: pixels})
	if err != nil {
		return err
	}
	defer src.Close()
	if others.N > 0 {
		fmt.Fprintf(log, "fmp-edge: under %s %v\n", path, others)
	}
	_, bad, err := c.Adapt(ctx, src, skip)
	if err == nil && !skip {
		err = imagefile.Unread(bad)
	}
	return err
}

// isRows reports whether a path names feature rows.
func isRows(path string) bool { return strings.HasSuffix(strings.ToLower(path), ".npy") }

func predictRows(ctx context.Context, c *classify.Classifier, path string,
	p *classify.Printer) error {
	st, err := os.Stat(path)
	if err != nil {
		return err
	}
	if st.Size() > maxRowBytes {
		return fmt.Errorf("%s has %d bytes; allowed are %d", path, st.Size(), maxRowBytes)
	}
	rows, err := npy.Load(path)
	if err != nil {
		return err
	}
	if rows, err = classify.FeatureRows(rows); err != nil {
		return fmt.Errorf("%s: %w", path, err)
	}
	return c.Rows(ctx, rows, nil, p.Print)
}
