package main

import (
	"errors"
	"fmt"
	"io"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"

	"fmp/cmd/internal/outputs"
	"fmp/featurize/dataset"
	"fmp/featurize/digits"
	"fmp/onnx/atomicfile"
)

func newDataShowCommand() *cobra.Command {
	var (
		o           dataset.Options
		out, part   string
		onBad       string
		cols, scale int
	)
	cmd := &cobra.Command{
		Use:   "show",
		Short: "Tell what a data set holds, and draw a contact sheet of its images",
		Long: `Print the number of images, their size, the classes and the parts of a data set. With --out a PNG is
written, with one row of images for each class.`,
		Example: `  fmp data show --dataset digits-color -o sheet.png
  fmp data show --dataset ./photos --json`,
		Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if part != "train" && part != "test" {
				return usageErrorf("--part is %q; allowed are train and test", part)
			}
			err := checkShow(o.Name, out, cmd.Flags().Changed("seed"))
			if err != nil {
				return err
			}
			if o.Skip, err = skipBad(onBad); err != nil {
				return err
			}
			bar := newProgress(cmd.ErrOrStderr())
			o.Progress = func(done, total int) { bar.report("data", done, total) }
			ds, err := dataset.Load(cmd.Context(), o)
			bar.close()
			if err != nil {
				return usageError(err)
			}
			splits, err := ds.Splits(dataset.DefaultFractions)
			if errors.Is(err, dataset.ErrSorted) { // shown, as here it can be seen
				ds.Notes = append(ds.Notes, err.Error())
			} else if err != nil {
				return usageError(err)
			}
			if out != "" {
				p := &ds.Train
				if part == "test" {
					p = &ds.Test
				}
				err := atomicfile.Write(out, func(w io.Writer) error {
					return dataset.ContactSheet(w, p, len(ds.Classes), cols, scale)
				})
				if err != nil {
					return usageError(err)
				}
			}
			counts := make([]int, len(ds.Classes))
			for _, y := range ds.Train.Labels {
				counts[y]++
			}
			return show(cmd, map[string]any{
				"name": ds.Name, "height": ds.Train.H, "width": ds.Train.W, "channels": ds.Train.Ch,
				"train": ds.Train.N, "test": ds.Test.N, "extra": ds.Extra.N, "classes": ds.Classes,
				"class_counts": counts, "splits": splits, "notes": ds.Notes, "digest": ds.Digest, "sheet": out,
			}, func(w io.Writer) error { return printDataset(w, ds, splits, counts, out) })
		},
	}
	f := cmd.Flags()
	f.StringVar(&o.Name, "dataset", "digits", "data set, or a folder of images by class")
	dirFlag(cmd, &o.Dir)
	f.StringVar(&o.Classes, "classes", "",
		"classes to keep: how many, or names, numbers and ranges (0,3,7-9); empty means all")
	onBadFlag(cmd, &onBad)
	f.Uint64Var(&o.Seed, "seed", 0, "seed of the drawn data sets")
	f.StringVarP(&out, "out", "o", "", "PNG `FILE` of the contact sheet")
	outputs.Files(cmd.Flags(), "out")
	f.StringVar(&part, "part", "train", "images of the sheet: train or test")
	f.IntVar(&cols, "columns", 20, "images in a row")
	f.IntVar(&scale, "scale", 2, "magnification of the sheet, 1 to 16")
	jsonFlag(cmd, "print JSON")
	return cmd
}

// checkShow refuses a seed for a data set that is not drawn, and a sheet that is no PNG.
func checkShow(name, sheet string, seed bool) error {
	if _, drawn := digits.VariantByName(name); !drawn && seed {
		return usageErrorf("--seed is for drawn data sets; %s is read from files", name)
	}
	if sheet != "" && !strings.EqualFold(filepath.Ext(sheet), ".png") {
		return usageErrorf("--out %s: a contact sheet is a PNG; name it so", sheet)
	}
	return nil
}

// printDataset writes the numbers of a data set, its classes, and the file of its contact sheet, if
// there is one.
func printDataset(w io.Writer, ds *dataset.Dataset, splits dataset.Splits, counts []int,
	sheet string) error {
	fmt.Fprintf(w, "%s: %d training and %d test images of %dx%d pixels, %d channels\n", ds.Name,
		ds.Train.N, ds.Test.N, ds.Train.H, ds.Train.W, ds.Train.Ch)
	fmt.Fprintf(w, "parts: extractor %d, corpus %d, clients %d", splits.Extractor.Len(),
		splits.Corpus.Len(), splits.Clients.Len())
	if ds.Extra.N > 0 {
		fmt.Fprintf(w, "; %d images of %d classes that were not chosen, for the extractor alone",
			ds.Extra.N, len(ds.ExtraClasses))
	}
	fmt.Fprintf(w, "\n%d classes:", len(ds.Classes))
	for i, c := range ds.Classes {
		if i == 30 {
			fmt.Fprintf(w, " ...")
			break
		}
		fmt.Fprintf(w, " %s (%d)", c, counts[i])
	}
	fmt.Fprintln(w)
	for _, n := range ds.Notes {
		fmt.Fprintf(w, "note: %s\n", n)
	}
	if sheet != "" {
		fmt.Fprintf(w, "contact sheet: %s\n", sheet)
	}
	_, err := fmt.Fprintf(w, "digest: %s\n", ds.Digest)
	return err
}
