package main

import (
	"context"
	"fmt"
	"io"
	"math"
	"os"
	"strings"

	"github.com/spf13/pflag"

	"fmp/featurize/imagefile"
	"fmp/onnx"
	"fmp/onnx/atomicfile"
	"fmp/onnx/engine/pure"
	"fmp/onnx/npy"
	"fmp/pipeline/classify"
	"fmp/pipeline/federate"
	"fmp/pipeline/federate/identity"
)

// maxRowBytes bounds the .npy files of feature rows and labels: 64 MiB.
const maxRowBytes = 64 << 20

// written is what compress prints.
type written struct {
	Upload string `json:"upload"`
	Bytes  int    `json:"bytes"`
	Client string `json:"client"`
	Round  uint64 `json:"round"`
	Model  string `json:"model"` // sha256
	N      int    `json:"n"`     // images or rows
	Size   int    `json:"size"`  // points
	Dx     int    `json:"dx"`
	C      int    `json:"classes"`
	// Skipped counts files under the folder that are no images.
	Skipped int `json:"skipped,omitempty"`
	// Bad counts images that cannot be read and were left out (--on-bad skip).
	Bad int `json:"bad,omitempty"`
}

var compressCommand = command{
	name: "compress", args: "--model FILE --client NAME -o FILE SOURCE",
	short: "Turn labelled images, or feature rows, into an upload",
	example: `  fmp-edge compress --model client.onnx --client shop-17 -o shop-17.upload photos/
  fmp-edge compress --model client.onnx --client shop-17 -o shop-17.upload list.csv
  fmp-edge compress --model client.onnx --client a -o a.upload train-images-idx3-ubyte --labels train-labels-idx1-ubyte --count 50
  fmp-edge compress --model private-client.onnx --client a -o a.upload --epsilon 4 photos/
  fmp-edge compress --model embedding.onnx --client a -o a.upload --rows features.npy --labels labels.npy

SOURCE is a folder with one folder of images a class, named by the class or its number; a .csv of path,label with paths
relative to it; or an IDX file of images, plain or .gz. Images are ` + imagefile.Formats + `. Images of other
formats, HEIC and AVIF among them, are bad images (--on-bad). Images are turned upright (EXIF) and brought to the model's
size as it says (stretch, crop or pad), by Catmull-Rom interpolation, to grey by ITU-R BT.601.`,
	flags: func(f *pflag.FlagSet) func(context.Context, []string, io.Writer, io.Writer) error {
		model := f.String("model", "", "client graph that fmp fuse wrote; with --rows an embedding")
		name := f.String("client", "", "name of this client, 1 to 128 bytes")
		round := f.Uint64("round", 0, "round of the federation")
		out := f.StringP("output", "o", "", "upload to write, into a folder that is there; there whole or not at all")
		precision := f.String("precision", string(federate.Single), "of the points: float32, float16 or int8")
		labels := f.String("labels", "", "labels of an IDX file's images (IDX) or of --rows (.npy)")
		rows := f.String("rows", "", ".npy of feature rows [n, dx], in place of SOURCE")
		skip := f.Int("skip", 0, "images of an IDX file to leave out at its beginning")
		count := f.Int("count", 0, "images of an IDX file to take; 0 takes all")
		threads := f.Int("threads", 0, "threads of one operator; 0 is one a core")
		pixels := f.Int("max-pixels", imagefile.MaxPixels, "largest image that is decoded, in pixels; each takes 2 to 8 bytes")
		onBad := f.String("on-bad", "fail", "what to do about images that cannot be read: fail or skip; all are named")
		budget := budgetFlags(f)
		signerFlags(f)
		asJSON := f.Bool("json", false, "print JSON")
		return func(ctx context.Context, args []string, stdout, log io.Writer) error {
			if *onBad != "fail" && *onBad != "skip" {
				return usagef("compress: --on-bad is %q; allowed are fail and skip", *onBad)
			}
			for _, r := range []struct{ flag, value string }{{"--model", *model}, {"--client", *name}, {"--output", *out}} {
				if r.value == "" {
					return usagef("compress: %s is missing; see fmp-edge compress --help", r.flag)
				}
			}
			if err := identity.CheckName(*name); err != nil {
				return usagef("compress: --client: %w", err)
			}
			if err := atomicfile.HasFolder(*out); err != nil {
				return &usageError{fmt.Errorf("compress: --output: %w", err)}
			}
			switch federate.Precision(*precision) {
			case federate.Single, federate.Half, federate.Int8:
			default:
				return usagef("compress: --precision %q; allowed are %s, %s and %s", *precision, federate.Single, federate.Half, federate.Int8)
			}
			if *threads < 0 || *threads > pure.MaxThreads {
				return usagef("compress: --threads %d; allowed are 0 (one a core) to %d", *threads, pure.MaxThreads)
			}
			if *pixels < 1 || *pixels > imagefile.MaxPixels {
				return usagef("compress: --max-pixels %d; allowed are 1 to %d", *pixels, imagefile.MaxPixels)
			}
			if *skip < 0 || *count < 0 {
				return usagef("compress: --skip %d and --count %d; allowed are numbers of at least 0", *skip, *count)
			}
			u := federate.Upload{Round: *round, Client: *name, Precision: federate.Precision(*precision)}
			w := written{Upload: *out, Client: *name, Round: *round}
			if *rows != "" {
				if len(args) != 0 || *labels == "" {
					return usagef("compress: --rows wants --labels and no SOURCE; got %q", strings.Join(args, " "))
				}
				x, y, err := readRows(*rows, *labels, math.MaxInt32)
				if err != nil {
					return refused("compress", err)
				}
				for _, name := range budgetNames {
					if f.Changed(name) {
						return usagef("compress: --%s is of private rounds, which take images; --rows has feature rows", name)
					}
				}
				points, m, err := compressRows(*model, *threads, x, y)
				if err != nil {
					return refused("compress", err)
				}
				if err := checkSigned(f, *model, m.Digest, nil); err != nil {
					return err
				}
				u.Points, u.N, u.Model = points, len(y), m.Digest
			} else {
				if len(args) != 1 {
					return usagef("compress: %d sources; want one folder, .csv or IDX file, or --rows", len(args))
				}
				c, err := openClient(*model, *threads)
				if err != nil {
					return refused("compress", err)
				}
				if err := checkSigned(f, *model, c.manifest.Digest, nil); err != nil {
					return err
				}
				src, others, err := imagefile.Open(args[0], imagefile.Options{
					Fit: c.fit, Classes: imagefile.Classes{Names: c.manifest.Classes, N: c.manifest.C},
					Labels: *labels, Skip: *skip, Count: *count, MaxPixels: *pixels, MaxItems: maxItems,
				})
				if err != nil {
					return refused("compress", err)
				}
				defer src.Close()
				if others.N > 0 {
					fmt.Fprintf(log, "fmp-edge: under %s %v\n", args[0], others)
				}
				private := c.manifest.Clip > 0
				if private && !f.Changed("epsilon") {
					return usagef("compress: %s is the client graph of a private round: give --epsilon, and --delta, --unit, --relation, --noise and --points as the round has them", *model)
				}
				for _, name := range budgetNames { // an upload that is taken for a private one is the worst that can happen
					if !private && f.Changed(name) {
						return usagef("compress: --%s is of private rounds, and %s is not the client graph of one (fmp fuse --upload private makes that): its upload would be a plain one", name, *model)
					}
				}
				if private {
					return c.writeRelease(ctx, src, *onBad == "skip", *budget, released{Upload: *out, Client: *name, Round: *round}, stdout, log, *asJSON)
				}
				var bad []error
				if u.Points, u.N, bad, err = c.compress(ctx, src, *onBad == "skip"); err != nil {
					return refused("compress", err)
				}
				for _, err := range bad {
					fmt.Fprintf(log, "fmp-edge: left out: %v\n", err)
				}
				u.Model, w.Skipped, w.Bad = c.manifest.Digest, others.N, len(bad)
			}
			data, err := u.Encode()
			if err != nil {
				return refused("compress", err)
			}
			if err := ctx.Err(); err != nil {
				return err
			}
			if err := atomicfile.WriteBytes(*out, data); err != nil {
				return err
			}
			w.Bytes, w.Model, w.N, w.Size, w.Dx, w.C = len(data), u.Model, u.N, u.Points.N, u.Points.Dx, u.Points.C
			if *asJSON {
				return printJSON(stdout, w)
			}
			_, err = fmt.Fprintf(stdout, "upload: %s (%d bytes; %d points of dx %d and %d classes from n = %d)\n", w.Upload, w.Bytes, w.Size, w.Dx, w.C, w.N)
			return err
		}
	},
}

// readRows reads feature rows (float32 or float64) and labels (integers).
func readRows(rows, labels string, c int) (*onnx.Tensor, []int, error) {
	for _, p := range []string{rows, labels} {
		st, err := os.Stat(p)
		if err != nil {
			return nil, nil, err
		}
		if st.Size() > maxRowBytes {
			return nil, nil, fmt.Errorf("%s has %d bytes; allowed are %d", p, st.Size(), maxRowBytes)
		}
	}
	x, err := npy.Load(rows)
	if err != nil {
		return nil, nil, err
	}
	if x, err = classify.FeatureRows(x); err != nil {
		return nil, nil, fmt.Errorf("%s: %w", rows, err)
	}
	y, err := npy.Load(labels)
	if err != nil {
		return nil, nil, err
	}
	ys, err := classify.Labels(y, c)
	if err != nil {
		return nil, nil, fmt.Errorf("%s: %w", labels, err)
	}
	return x, ys, nil
}
