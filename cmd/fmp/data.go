package main

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"

	"fmp/cmd/internal/outputs"
	"fmp/featurize/dataset"
	"fmp/featurize/digits"
	"fmp/featurize/store"
	"fmp/onnx/atomicfile"
	"fmp/onnx/suggest"
)

// newDataCommand groups the commands on data sets. Given alone it prints its help. Commands that
// read images find a data set by the same rules as these (dataset.Find).
func newDataCommand() *cobra.Command {
	return group(&cobra.Command{
		Use:   "data",
		Short: "List, show, download, import and draw data sets",
		Long: `Data sets are looked for in the data folder: --dataset.dir, else $FMP_DATA, else fmp/data in the
user's cache folder. The drawn ones, digits and digits-color, need no files.`,
		Example: `  fmp data list
  fmp data pull mnist
  fmp data show --dataset digits -o digits.png`,
	}, newDataListCommand(), newDataShowCommand(), newDataPullCommand(),
		newDataImportCommand(), newDataSynthCommand())
}

// dirFlag binds the flag for the data folder. It is called as the setting is, dataset.dir, so that
// one name does for these commands and for a run. These commands read no settings file: their only
// other sources are $FMP_DATA and the user's cache folder.
func dirFlag(cmd *cobra.Command, dir *string) {
	cmd.Flags().StringVar(dir, "dataset.dir", "",
		"data folder; empty means $FMP_DATA, then the cache")
}

// onBadFlag binds the flag for images of folders that cannot be read; skipBad reads it. The default
// is to fail: images that are missing unseen would change every figure that follows.
func onBadFlag(cmd *cobra.Command, onBad *string) {
	cmd.Flags().StringVar(onBad, "on-bad", "fail",
		"what to do about images of a folder that cannot be read: fail or skip; all are named")
}

// newDataListCommand declares fmp data list, whose JSON is a list of [dataset.Status]. It reads the
// names of files, and decodes no image. A data set that is missing is no error here: its line has
// the remedy.
func newDataListCommand() *cobra.Command {
	var dir string
	cmd := &cobra.Command{
		Use:   "list",
		Short: "List the data sets: which are there, where, and how to get the others",
		Example: `  fmp data list
  fmp data list --json`,
		Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			// A folder without access, or none, gives a list in which data sets are missing.
			list := dataset.List(dir)
			return tabulate(cmd, list, func(w io.Writer) {
				for _, s := range list {
					fmt.Fprintf(w, "%s\t%s\t%s\n", s.Name, s.Kind, whereIs(s))
				}
			})
		},
	}
	dirFlag(cmd, &dir)
	jsonFlag(cmd, "print JSON")
	return cmd
}

// whereIs tells where a data set is, or how to get it. One without a download has the remedy of its
// own error.
func whereIs(s dataset.Status) string {
	if s.Present {
		return s.Where
	}
	if _, err := dataset.LookupPublished(s.Name); err != nil {
		return "missing: " + s.Missing
	}
	return "missing: fmp data pull " + s.Name
}

// newDataShowCommand declares fmp data show. Images in the order of their classes make no parts.
// They are shown nevertheless, with a note: the sheet is where such an order is seen. All images
// are read and hashed first: the digest covers them. The sheet is written next, and the text comes
// last, so that it never names a file that is not there. An error before the sheet leaves nothing
// behind.
//
// Counts are of the training images alone, by class. Parts are those of dataset.DefaultFractions: a
// half for the extractor, 3/8 for the corpus, 1/8 for clients. Sizes of the sheet are checked by
// dataset.ContactSheet, after the images are read: 16 times magnification, 1000 columns and 1 GiB
// of pixels at most.
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
				"class_counts": counts, "splits": splits, "notes": ds.Notes,
				"digest": ds.Digest, "sheet": out,
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
	outFlag(cmd, &out, "out", "", "PNG `FILE` of the contact sheet")
	f.StringVar(&part, "part", "train", "images of the sheet: train or test")
	f.IntVar(&cols, "columns", 20, "images in a row")
	f.IntVar(&scale, "scale", 2, "magnification of the sheet, 1 to 16")
	jsonFlag(cmd, "print JSON")
	return cmd
}

// checkShow refuses a seed for a data set that is not drawn, and a sheet that is no PNG. seed says
// that one was given. Both are refused before images are read. A seed that nothing reads would let
// two equal sheets look as if they were drawn apart.
func checkShow(name, sheet string, seed bool) error {
	// A seed of 0 that is given is refused too: seed tells that the flag was set, not its value.
	if _, drawn := digits.VariantByName(name); !drawn && seed {
		return usageErrorf("--seed is for drawn data sets; %s is read from files", name)
	}
	if sheet != "" && !strings.EqualFold(filepath.Ext(sheet), ".png") {
		return usageErrorf("--out %s: a contact sheet is a PNG; name it so", sheet)
	}
	return nil
}

// printDataset writes the numbers of a data set, its classes, and the file of its contact sheet, if
// there is one. counts are training images by class; thirty classes are named at most. The parts
// are in images. The digest comes last: two data sets with one digest have the same images, labels
// and classes. Only the error of the last line is returned: a stream that has failed once fails
// again.
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
		// Thirty fill some lines of a terminal, and --json names all.
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

// newDataPullCommand declares fmp data pull. Where a download fails, the remedy that is told is an
// import of the same files. The name is checked before the network is touched, and so is the
// folder. A file is written where nothing reads it until its checksum and its content are right.
// After an error or an interrupt the downloads stay in DIR/.downloads, and the next call resumes
// them (store.Pull).
func newDataPullCommand() *cobra.Command {
	var dir string
	cmd := &cobra.Command{
		Use:   "pull NAME",
		Short: "Download a data set's official files, check them, and unpack them",
		Long: `Download ` + suggest.Or(dataset.Published()...) + ` from where they are published into the
data folder. Every file is checked against its published checksum and must be readable before it
appears under its name. A download
that was stopped resumes when the same command is given again; a data set that is there already is
left as it is.`,
		Example: `  fmp data pull mnist
  fmp data pull cifar10 --dataset.dir /data`,
		Args: exactArgs("the name of a data set"),
		RunE: func(cmd *cobra.Command, args []string) error {
			s, err := dataset.LookupPublished(args[0])
			if err != nil {
				return usageError(err)
			}
			to, err := store.Dir(dir)
			if err != nil {
				return usageError(err)
			}
			bar := newProgress(cmd.ErrOrStderr())
			// The total is negative where the server does not state it, and 0 tells the bar so. An
			// int of 32 bits holds 2 TiB of them.
			const unit = 1 << 10 // progress counts KiB
			d := &store.Downloader{Progress: func(name string, done, total int64) {
				bar.report(name+" (KiB)", int(done/unit), int(max(total, 0)/unit))
			}}
			folder, err := store.Pull(cmd.Context(), s, to, d)
			bar.close()
			if err != nil {
				// Not of usage: the network or the publisher's server is at fault, so that the exit
				// code is 1.
				return fmt.Errorf("%w\nWith the files at hand, from %s, give: fmp data "+
					"import FOLDER", err, s.Home)
			}
			return say(cmd, map[string]string{"name": s.Name, "folder": folder},
				"%s is in %s\n", s.Name, folder)
		},
	}
	dirFlag(cmd, &dir)
	jsonFlag(cmd, "print JSON")
	return cmd
}

// newDataImportCommand declares fmp data import. The set is read whole before its name is taken.
// The order is: the folder to write to, the value of --on-bad, the format and the name, the images.
// A name that is taken is refused before images are read, unless --replace is given.
//
// The source is left as it is. It is copied under a name that nothing reads, and renamed at the
// end. An error or an interrupt so leaves no half of a set. With --on-bad skip files that cannot be
// read are named on stderr, one a line, and are not copied.
func newDataImportCommand() *cobra.Command {
	var dir, name, onBad string
	var replace bool
	cmd := &cobra.Command{
		Use:   "import FOLDER",
		Short: "Copy a data set that you have into the data folder",
		Long: `Copy a data set into the data folder after reading it whole: a folder of IDX files, of CIFAR's
binary records, or of images by class (train/CLASS/... and test/CLASS/..., or CLASS/...), or CIFAR's
official archive. Afterwards it has a name: --dataset NAME.`,
		Example: `  fmp data import ~/Downloads/cifar-10-batches-bin
  fmp data import ./photos --name flowers`,
		Args: exactArgs("a folder"),
		RunE: func(cmd *cobra.Command, args []string) error {
			to, err := store.Dir(dir)
			if err != nil {
				return usageError(err)
			}
			skip, err := skipBad(onBad)
			if err != nil {
				return err
			}
			got, folder, bad, err := store.Import(cmd.Context(), args[0], name, to, replace, skip)
			// A file that may not be read is a fault of the machine and no wrong usage: the exit
			// code is 1.
			if errors.Is(err, fs.ErrPermission) {
				return err
			}
			if err != nil {
				return usageError(err)
			}
			for _, path := range bad {
				fmt.Fprintf(cmd.ErrOrStderr(), "%s: left out: %s cannot be read\n",
					cmd.CommandPath(), path)
			}
			return say(cmd, map[string]any{"name": got, "folder": folder, "left_out": len(bad)},
				"%s is in %s; use it with --dataset %s\n", got, folder, got)
		},
	}
	dirFlag(cmd, &dir)
	f := cmd.Flags()
	f.StringVar(&name, "name", "",
		"name to give it; default the folder's own, or CIFAR's official one")
	onBadFlag(cmd, &onBad)
	f.BoolVar(&replace, "replace", false, "replace a data set of that name")
	jsonFlag(cmd, "print JSON")
	return cmd
}

// checkDrawing refuses flags of fmp data synth that cannot be met. Nothing is drawn before. A
// folder that is not there is in order: writing makes it. The test is of the moment: a file that
// appears while images are drawn is not seen.
//
// Images are bounded by digits.MaxImages for each part. The refusal of --dicom with colour comes
// before that of an unknown variant, and both name the variant.
func checkDrawing(out string, c digits.Config, photos, scans bool) error {
	if out == "" {
		return usageErrorf("--out is not given; name the folder to write to")
	}
	// Other errors of the folder are met again, and told, when it is written.
	if st, err := os.Stat(out); err == nil && !st.IsDir() {
		return usageErrorf("--out %s is a file; name a folder", out)
	}
	// 0 would stand for the default in package digits, and is refused here as it was given.
	for _, n := range []struct {
		flag  string
		value int
	}{{"train", c.Train}, {"test", c.Test}} {
		if n.value < 1 || n.value > digits.MaxImages {
			return usageErrorf("--%s %d; allowed are 1 to %d images", n.flag, n.value,
				digits.MaxImages)
		}
	}
	if photos && scans {
		return usageErrorf("--photos and --dicom exclude each other")
	}
	if scans && c.Variant != digits.Grey {
		return usageErrorf("--dicom writes grey images, and --variant is %q; leave "+
			"--variant out", c.Variant)
	}
	if _, ok := digits.VariantByName(string(c.Variant)); !ok {
		return usageErrorf("--variant is %q; allowed are %s and %s", c.Variant, digits.Grey,
			digits.Color)
	}
	// Images of another drawing would be read with this one's.
	if entries, err := os.ReadDir(out); err == nil && len(entries) > 0 {
		return usageErrorf("--out %s holds files; name a new or empty folder", out)
	}
	return nil
}

// newDataSynthCommand declares fmp data synth. The folder must be new or empty. Equal seeds, sizes
// and variants give equal bytes on any number of threads: every image has a random stream of its
// own. Images are drawn in memory first and then written, so that wrong flags and an interrupt
// while drawing leave no folder. An error while writing may leave some of the files, and the folder
// must then be emptied for another try.
//
// A digit of 28 x 28 grey pixels takes 784 bytes of memory, one of 32 x 32 in colour 3072.
func newDataSynthCommand() *cobra.Command {
	var (
		c       digits.Config
		variant string
		out     string
		photos  bool
		scans   bool
	)
	cmd := &cobra.Command{
		Use:   "synth",
		Short: "Draw the embedded digits and write them as files",
		Long: `Draw printed digits in many typefaces, rotated, sheared, warped, thickened or eroded, blurred and
crossed by clutter; those of the test images are in other typefaces than those of the training
images. Variant digits is 28x28 grey, digits-color 32x32 colour on textured backgrounds. The same
seed and sizes give the same bytes.

Written are train-images, train-labels, t10k-images and t10k-labels (IDX; images in colour have a
fourth dimension) and classes.txt. With --photos they are PNG and JPEG files in train/CLASS and
test/CLASS, four times as large, some of them stored lying on their side as phones do. With --dicom
they are uncompressed DICOM files of 16-bit grey, in the same folders and of the same size, with an
empty name of the patient. fmp reads each of these back by the folder's path.`,
		Example: `  fmp data synth --out digits --seed 1
  fmp data synth --out photos --photos --train 60 --test 200
  fmp data synth --out scans --dicom --train 60 --test 200
  fmp data synth --out colour --variant digits-color --train 5000 --test 1000`,
		Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			c.Variant = digits.Variant(variant)
			if err := checkDrawing(out, c, photos, scans); err != nil {
				return err
			}
			bar := newProgress(cmd.ErrOrStderr())
			c.Progress = func(done, total int) { bar.report("drawing", done, total) }
			s, err := digits.Draw(cmd.Context(), c)
			bar.close()
			if err != nil {
				return usageError(err)
			}
			// It shares the pixels, so that they are in memory once.
			ds := dataset.FromDrawn(variant, s)
			// The flags --photos and --dicom exclude each other, as checkDrawing has seen.
			write := dataset.WriteIDX
			switch {
			case photos:
				write = dataset.WritePhotos
			case scans:
				write = dataset.WriteDICOM
			}
			if err := write(out, ds); err != nil {
				return err
			}
			return say(cmd, map[string]any{"folder": out, "variant": variant, "seed": c.Seed,
				"train": ds.Train.N, "test": ds.Test.N}, "%s: %d training and %d test images\n",
				out, ds.Train.N, ds.Test.N)
		},
	}
	f := cmd.Flags()
	f.StringVarP(&out, "out", "o", "", "new or empty `FOLDER` to write to")
	outputs.Made(f, "out")
	f.Uint64Var(&c.Seed, "seed", 0, "seed of the drawing")
	f.StringVar(&variant, "variant", string(digits.Grey), "digits or digits-color")
	f.IntVar(&c.Train, "train", digits.DefaultTrain, "number of training images")
	f.IntVar(&c.Test, "test", digits.DefaultTest, "number of test images")
	f.BoolVar(&photos, "photos", false,
		"write PNG and JPEG files in folders by class in place of IDX files")
	f.BoolVar(&scans, "dicom", false, "write DICOM files in folders by class in place of IDX files")
	jsonFlag(cmd, "print JSON")
	return cmd
}
