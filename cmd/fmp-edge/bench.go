package main

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"slices"
	"strconv"
	"time"

	"github.com/spf13/pflag"

	"fmp/featurize/imagefile"
	"fmp/onnx/engine/pure"
	"fmp/onnx/printable"
	"fmp/pipeline/client"
)

// benched is the output of bench; times in milliseconds. Median and Min are of all runs, the first
// among them.
type benched struct {
	// Images are those of one upload, and Threads those of one operator, 0 for one a core.
	Images  int `json:"images"`
	Threads int `json:"threads"`
	// Load is the time to open the graph, and First that of the first upload, with cold caches.
	Load       float64 `json:"load_ms"`
	First      float64 `json:"first_ms"`
	Min        float64 `json:"min_ms"`
	Median     float64 `json:"median_ms"`
	Throughput float64 `json:"images_per_second"`
	// PeakMemory is the largest resident size of the process in MiB, where the system tells it;
	// else 0.
	PeakMemory float64 `json:"peak_memory_mib"`
}

// benchCommand measures uploads of noise. Each run draws the same images, so that runs do equal
// work. Throughput is images over the median time. A private graph is measured up to its
// coordinates, without sums and noise.
var benchCommand = command{
	name: "bench", args: "--model FILE",
	short:   "Measure time and memory of a client graph on drawn images",
	example: "  fmp-edge bench --model client.onnx --images 50 --threads 1",
	flags: func(f *pflag.FlagSet) func(context.Context, []string, io.Writer, io.Writer) error {
		model := f.String("model", "", "client graph that fmp fuse wrote")
		images := f.Int("images", 50, "images of an upload")
		runs := f.Int("runs", 5, "how often to measure, 1 to 10000")
		threads := f.Int("threads", 0, "threads of one operator; 0 is one a core")
		asJSON := f.Bool("json", false, "print JSON")
		return func(ctx context.Context, args []string, out, _ io.Writer) error {
			if *model == "" || len(args) > 0 {
				return usagef("bench: give --model and nothing else; see fmp-edge bench --help")
			}
			if *images < 1 || *images > maxItems || *runs < 1 || *runs > 10_000 {
				return usagef("bench: --images %d and --runs %d; allowed are 1 to %d "+
					"and 1 to 10000", *images, *runs, maxItems)
			}
			if *threads < 0 || *threads > pure.MaxThreads {
				return usagef("bench: --threads %d; allowed are 0 (one a core) to %d", *threads,
					pure.MaxThreads)
			}
			start := time.Now()
			c, err := openClient(*model, *threads)
			if err != nil {
				return refused("bench", err)
			}
			b := benched{Images: *images, Threads: *threads, Load: ms(time.Since(start))}
			var times []float64
			for range *runs {
				start := time.Now()
				// The generator is seeded anew for each run, so that every run has the same pixels.
				src := &noise{n: *images, c: c.Manifest.C, r: rand.New(rand.NewPCG(1, 2))}
				if c.Private() {
					_, _, err = c.Coordinates(ctx, src, client.Options{})
				} else {
					_, _, _, err = c.Points(ctx, src, client.Options{})
				}
				if err != nil {
					return err
				}
				times = append(times, ms(time.Since(start)))
			}
			// It is taken before the times are sorted.
			b.First = times[0]
			slices.Sort(times)
			b.Min, b.Median, b.PeakMemory = times[0], times[len(times)/2], peakMemory()
			b.Throughput = float64(*images) / b.Median * 1000
			if *asJSON {
				return printable.WriteJSON(out, b)
			}
			_, err = fmt.Fprintf(out, "load:    %.1f ms\nfirst:   %.1f ms for %d images\n"+
				"median:  %.1f ms (least %.1f), %.0f images/s\nmemory:  %.1f MiB at most\n", b.Load,
				b.First, b.Images, b.Median, b.Min, b.Throughput, b.PeakMemory)
			return err
		}
	},
}

// ms is a time in milliseconds, to the microsecond.
func ms(d time.Duration) float64 { return float64(d.Microseconds()) / 1000 }

// noise is a source of random images. Labels are the classes in turn. It draws uniform bytes, and
// costs the decoding of no file.
type noise struct {
	n, c, at int
	r        *rand.Rand
}

func (s *noise) Len() int     { return s.n }
func (s *noise) Close() error { return nil }

func (s *noise) Next(_ context.Context, dst []uint8) (imagefile.Item, error) {
	for i := range dst {
		dst[i] = uint8(s.r.UintN(256))
	}
	s.at++
	return imagefile.Item{Label: s.at % s.c}, nil
}

// peakMemory is the largest resident size so far in MiB, from Linux's /proc; 0 elsewhere. VmHWM is
// in kB. The peak is of the whole process, its start among it.
func peakMemory() float64 {
	data, err := os.ReadFile("/proc/self/status")
	if err != nil {
		return 0
	}
	for _, line := range bytes.Split(data, []byte("\n")) {
		if f := bytes.Fields(line); len(f) == 3 && string(f[0]) == "VmHWM:" {
			if kb, err := strconv.ParseFloat(string(f[1]), 64); err == nil {
				return kb / 1024
			}
		}
	}
	return 0
}
