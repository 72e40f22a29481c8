package main

import (
	"context"
	"errors"
	"io"
	"strings"

	"github.com/spf13/pflag"

	"fmp/featurize/imagefile"
	"fmp/onnx/engine/pure"
	"fmp/pipeline/classify"
	"fmp/pipeline/client"
	"fmp/pipeline/federate/wire"
)

// reading is the flags of the commands that classify images: the classifier, and how images are
// read. predict and evaluate embed or hold one.
type reading struct {
	// onBad is fail or skip. pixels bounds an image that is decoded, and notice and server are the
	// file and the key of a notice.
	command, model, notice, server, onBad string
	threads, pixels                       int
	byNumber                              bool
}

// bind declares the flags; skipping says which images are left out. command is the name in errors.
func (r *reading) bind(f *pflag.FlagSet, command, skipping string) {
	r.command = command
	f.StringVar(&r.model, "model", "", "classifier that fmp pool wrote")
	f.StringVar(&r.notice, "notice", "", "notice of the round's superseded versions (default: the "+
		"classifier's name with .notice, if it is there)")
	f.StringVar(&r.server, "server-key", "",
		"public key of the round's server (base64), which must have signed the notice")
	f.IntVar(&r.threads, "threads", 0,
		"threads of one operator, and images that are decoded at once; 0 is one a core")
	f.IntVar(&r.pixels, "max-pixels", imagefile.MaxPixels,
		"largest image that is decoded, in pixels; each takes 2 to 8 bytes")
	f.StringVar(&r.onBad, "on-bad", "fail",
		"what to do about images that cannot be used: "+skipping+"; all are named")
	f.BoolVar(&r.byNumber, imagefile.ByNumberFlag, false, imagefile.ByNumberHelp)
	signerFlags(f)
}

// checkReading returns an error for flags of reading images that are out of bounds. No file is
// looked at.
func checkReading(command string, threads, pixels int, onBad string) error {
	switch {
	case threads < 0 || threads > pure.MaxThreads:
		return usagef("%s: --threads %d; allowed are 0 (one a core) to %d", command,
			threads, pure.MaxThreads)
	case pixels < 1 || pixels > imagefile.MaxPixels:
		return usagef("%s: --max-pixels %d; allowed are 1 to %d", command, pixels,
			imagefile.MaxPixels)
	case onBad != "fail" && onBad != "skip":
		return usagef("%s: --on-bad is %q; allowed are fail and skip", command, onBad)
	}
	return nil
}

// vouched returns an error unless the classifier of a SHA-256 is signed as the flags require, and
// no notice names it. It comes before any image is read.
func (r *reading) vouched(f *pflag.FlagSet, digest string) error {
	if err := checkSigned(f, r.model, digest, nil); err != nil {
		return err
	}
	err := client.Heed(r.model, r.notice, r.server)
	if errors.Is(err, wire.ErrSuperseded) {
		return err
	}
	return refused(r.command, err)
}

// said has images that are left out told, and unreadable ones skipped where the flags say so. Lines
// go to log, one for each image.
func (r *reading) said(log io.Writer) classify.Reading {
	return classify.Reading{Log: log, Prefix: "fmp-edge: ", Skip: r.onBad == "skip"}
}

// images classifies the images of a path, and says which are left out and of which classes they
// are. each gets predictions one batch at a time, in the order of the images.
func (r *reading) images(ctx context.Context, c *classify.Classifier,
	path string, o imagefile.Options, each func([]classify.Prediction) error,
	log io.Writer) ([]imagefile.Mapped, error) {
	o.MaxPixels, o.Threads, o.Classes = r.pixels, r.threads, imagefile.Classes{ByNumber: r.byNumber}
	_, mapped, err := r.said(log).Images(ctx, c, path, o, each)
	return mapped, err
}

// isRows reports whether a path names feature rows. The name alone decides.
func isRows(path string) bool { return strings.HasSuffix(strings.ToLower(path), ".npy") }

// maxRowBytes bounds the .npy files of feature rows and labels: 64 MiB. A row of 512 float32 has 2
// KiB, so that they hold 32768 of those.
const maxRowBytes = 64 << 20
