// The program scaling draws the figure of docs/speed.md: how processor time grows with the points,
// features and classes of a fit, and with the points drawn. Every point is the least of three runs
// on one thread; dashed lines grow in proportion.
//
//	go run ./docs/figures/scaling docs/figures/scaling.svg
//
// It prints the numbers as well, and takes a minute.
package main

import (
	"context"
	"fmt"
	"math"

	"gonum.org/v1/plot/plotter"

	"fmp/docs/internal/panels"
	"fmp/onnx/engine"
	"fmp/onnx/engine/ort"
	"fmp/pipeline/lab/bench"
)

func main() {
	panels.Main("scaling FILE.svg",
		func(a []string) error { return run(context.Background(), a[0]) })
}

func run(ctx context.Context, path string) error {
	eng, err := ort.New(ort.Options{Threads: 1})
	if err != nil {
		return err
	}
	defer eng.Close()
	eng = engine.Under(ctx, eng)
	var plots []*panels.Panel
	for _, c := range []struct {
		title string
		sizes []int
		make  func(ctx context.Context, size int) (func() error, error)
	}{
		{"fit: points", []int{100, 300, 1000, 3000, 10_000, 30_000, 100_000},
			func(ctx context.Context, n int) (func() error, error) {
				return bench.Fit(ctx, n, 64, 10)
			}},
		{"fit of 1,000: features", []int{32, 64, 128, 256, 512, 1024},
			func(ctx context.Context, d int) (func() error, error) {
				return bench.Fit(ctx, 1000, d, 10)
			}},
		{"fit of 2,000: classes", []int{3, 10, 30, 100, 300, 1000},
			func(ctx context.Context, k int) (func() error, error) {
				return bench.Fit(ctx, 2000, 64, k)
			}},
		{"points drawn by attention", []int{100, 300, 1000, 3000, 10_000},
			func(ctx context.Context, n int) (func() error, error) {
				do, _, err := bench.Draw(ctx, eng, n) // the session ends with the program
				return do, err
			}},
	} {
		p, err := curve(ctx, c.title, c.sizes, c.make)
		if err != nil {
			return fmt.Errorf("%s: %w", c.title, err)
		}
		plots = append(plots, p)
	}
	return panels.Save(path, plots...)
}

// curve measures the work of every size: the least of three runs, at least a microsecond, as the
// axis is logarithmic.
func curve(ctx context.Context, title string, sizes []int,
	work func(context.Context, int) (func() error, error)) (*panels.Panel, error) {
	var at plotter.XYs
	for _, n := range sizes {
		do, err := work(ctx, n)
		if err != nil {
			return nil, err
		}
		c := bench.Timed("fmp", do)
		least := math.Inf(1)
		for range 3 {
			took, err := c.Once()
			if err != nil {
				return nil, err
			}
			least = min(least, took.Seconds())
		}
		fmt.Printf("%s\t%d\t%.3g s\n", title, n, least)
		at = append(at, plotter.XY{X: float64(n), Y: math.Max(least, 1e-6)})
	}
	return panels.Growth(title, "seconds", at), nil
}
