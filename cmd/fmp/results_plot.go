package main

import (
	"cmp"
	"fmt"
	"io"
	"path/filepath"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"fmp/cmd/internal/outputs"
	"fmp/onnx/atomicfile"
	"fmp/onnx/suggest"
	"fmp/pipeline/lab/experiment"
	"fmp/pipeline/lab/report"
)

func newResultsPlotCommand() *cobra.Command {
	var file, x, y string
	var rows []string
	var filter resultsFilter
	cmd := &cobra.Command{
		Use:   "plot RUN...",
		Short: "Draw a figure of runs against a setting in which they differ, such as a grid's",
		Long: `Draw one figure of several runs, a line for each method, against a setting in which alone the
runs differ (fmp grid makes such runs). A panel is as wide as a column of a journal, 3.5 inches; the
colours can be told apart with every kind of colour vision. --output ends in .svg (vectors) or .png.`,
		Example: `  fmp results plot grids/points/* --x federation.points --y NLL -o points.svg
  fmp results plot grids/points/* --x federation.points --y ECE --rows FMP,FedCGS \
    --partition homogeneous -o points.svg`,
		Args: rangeArgs(2, 0, "RUN"),
	}
	f := cmd.Flags()
	f.StringVarP(&file, "output", "o", "", "file to write: .svg or .png (required)")
	f.StringVar(&x, "x", "", "`setting` along the axis, such as federation.points (default: the one "+
		"in which the runs differ)")
	f.StringVar(&y, "y", "NLL", "`column` of the tables that is drawn")
	f.StringSliceVar(&rows, "rows", nil, "only these methods")
	outputs.Files(f, "output")
	filter.bind(cmd)
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		runs, err := filter.read(args)
		if err != nil {
			return err
		}
		keys, err := differing(args)
		if err != nil {
			return usageError(err)
		}
		if x == "" && len(keys) == 1 {
			x = keys[0]
		}
		if x == "" {
			return usageErrorf("say with --x along which setting; the runs differ in %s",
				cmp.Or(strings.Join(keys, ", "), "none"))
		}
		var at []report.At
		for i, dir := range args {
			value, known, err := experiment.Setting(dir, x)
			if err == nil && value == "" {
				err = fmt.Errorf("--x is %q, which is no setting%s", clip(x),
					suggest.DidYouMean(x, known))
			}
			if err != nil {
				return usageError(err)
			}
			ts, err := filter.tables(dir, runs[i])
			if err != nil {
				return err
			}
			if ts, err = report.Choose(ts, nil, rows); err != nil {
				return usageError(err)
			}
			at = append(at, report.At{Value: value, Tables: ts})
		}
		if keys = apart(keys, x); len(keys) > 0 {
			return usageErrorf("plotting against %s: a line would join runs that differ in other settings "+
				"too: %s; name runs that differ in this one alone", x, strings.Join(keys, ", "))
		}
		figure, err := report.Lines(at, x, y)
		if err != nil {
			return usageError(err)
		}
		ext := strings.ToLower(filepath.Ext(file))
		write, ok := map[string]func(io.Writer) error{".svg": figure.SVG, ".png": figure.PNG}[ext]
		if !ok {
			return usageErrorf("--output is %q; want a file that ends in .svg or .png", clip(file))
		}
		if err := atomicfile.Write(file, write); err != nil {
			return err
		}
		_, err = fmt.Fprintf(cmd.OutOrStdout(), "%s: %s. %s\n", file, figure.Title, figure.Caption)
		return err
	}
	return cmd
}

// differing returns the settings in which runs differ: those that decide a figure, and the data
// set, which a table has in its title and a line has not.
func differing(dirs []string) ([]string, error) {
	keys, _, err := experiment.Varied(dirs)
	if err != nil {
		return nil, err
	}
	var names, images []string
	for _, dir := range dirs {
		c, err := experiment.ReadConfig(dir)
		if err != nil {
			return nil, err
		}
		m, err := experiment.ReadManifest(dir)
		if err != nil {
			return nil, err
		}
		names, images = append(names, c.Dataset.Name), append(images, m.Data["images"])
	}
	differ := func(of []string) bool {
		return slices.ContainsFunc(of, func(v string) bool { return v != of[0] })
	}
	// how many images are taken, and of which classes, are settings
	own := slices.ContainsFunc(keys, func(k string) bool { return strings.HasPrefix(k, "dataset.") })
	if differ(names) || differ(images) && !own {
		keys = append(keys, "dataset.name")
	}
	return keys, nil
}

// apart returns the keys of settings that must not differ along setting x. Models follow the
// extractor that they are made behind, and a data set has settings of its own.
func apart(keys []string, x string) []string {
	return slices.DeleteFunc(slices.Clone(keys), func(k string) bool {
		return k == x || x == "dataset.name" || x == "extractor.model" && strings.HasSuffix(k, ".model")
	})
}
