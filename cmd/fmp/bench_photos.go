package main

import (
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"fmp/featurize/imagefile"
	"fmp/pipeline/lab/bench"
)

// photosReport is the output of fmp bench photos.
type photosReport struct {
	Size   int           `json:"size"`
	Resize string        `json:"resize"`
	Runs   int           `json:"runs"`
	Photos []bench.Photo `json:"photos"`
}

func newBenchPhotosCommand() *cobra.Command {
	var r photosReport
	var megapixels []float64
	cmd := &cobra.Command{
		Use: "photos",
		Short: "Measure photographs on their way from a file to a model's pixels: time against " +
			"megapixels, by stage",
		Long: `Draw photographs of several sizes, write them as JPEG and PNG, decode them and bring them to a
model's height and width. Print the processor time of decoding and of resizing, medians of the runs.
A JPEG that is shrunk far is decoded at a half, a quarter or an eighth of its size: the column of
pixels says how many of the photograph's one decoded pixel covers (docs/edge.md).`,
		Example: `  fmp bench photos
  fmp bench photos --megapixels 12 --size 128 --resize crop
  fmp bench photos --json`,
		Args: noArgs,
	}
	f := cmd.Flags()
	f.Float64SliceVar(&megapixels, "megapixels", []float64{0.3072, 1, 3, 12, 48},
		"`SIZES` of the photographs in millions of pixels")
	f.IntVar(&r.Size, "size", 224, "height and width of the model's images, 1 to 4096")
	f.StringVar(&r.Resize, "resize", "stretch", "`WAY` to resize: stretch, crop, crop:SHARE or pad")
	f.IntVar(&r.Runs, "runs", bench.MinRuns, fmt.Sprintf("runs of each, %d to 1000", bench.MinRuns))
	jsonFlag(cmd, "print JSON")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		resize, err := imagefile.ParseResize(r.Resize)
		if err != nil {
			return usageErrorf("bench photos: %w", err)
		}
		if r.Size < 1 || r.Size > 4096 {
			return usageErrorf("bench photos: --size is %d; allowed are 1 to 4096", r.Size)
		}
		if r.Runs < bench.MinRuns || r.Runs > 1000 {
			return usageErrorf("bench photos: --runs is %d; allowed are %d to 1000",
				r.Runs, bench.MinRuns)
		}
		for _, m := range megapixels {
			if !(m >= bench.MinMegapixels) || m > bench.MaxMegapixels {
				return usageErrorf("bench photos: --megapixels has %v; allowed are %v to %v", m,
					bench.MinMegapixels, bench.MaxMegapixels)
			}
		}
		bar := newProgress(cmd.ErrOrStderr())
		defer bar.close()
		report := func(done, total int) { bar.report("photographs", done, total) }
		fit := imagefile.Fit{H: r.Size, W: r.Size, Ch: 3, Resize: resize}
		if r.Photos, err = bench.Photos(cmd.Context(), fit, megapixels, r.Runs, report); err != nil {
			return fmt.Errorf("bench photos: %w", err)
		}
		return tell(cmd, r, r.print)
	}
	return cmd
}

func (r photosReport) print(b *strings.Builder) {
	fmt.Fprintf(b, "to %d x %d pixels (%s), milliseconds of the processor, medians of %d runs\n",
		r.Size, r.Size, r.Resize, r.Runs)
	fmt.Fprintf(b, "%10s %12s %6s %10s %8s %8s %8s %8s\n", "megapixels", "size", "format", "bytes",
		"pixels", "decode", "resize", "all")
	for _, p := range r.Photos {
		fmt.Fprintf(b, "%10.3g %12s %6s %10d %8s %8.1f %8.1f %8.1f\n", p.Megapixels,
			fmt.Sprintf("%d x %d", p.Width, p.Height), p.Format, p.Bytes,
			fmt.Sprintf("%g x %g", p.Covers[0], p.Covers[1]), p.Decode.Median,
			p.Resize.Median, p.All.Median)
	}
}
