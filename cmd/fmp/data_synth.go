package main

import (
	"os"

	"github.com/spf13/cobra"

	"fmp/cmd/internal/outputs"
	"fmp/featurize/dataset"
	"fmp/featurize/digits"
)

// checkDrawing refuses flags of fmp data synth that cannot be met.
func checkDrawing(out string, c digits.Config, photos, scans bool) error {
	if out == "" {
		return usageErrorf("--out is not given; name the folder to write to")
	}
	if st, err := os.Stat(out); err == nil && !st.IsDir() {
		return usageErrorf("--out %s is a file; name a folder", out)
	}
	for name, n := range map[string]int{"train": c.Train, "test": c.Test} {
		if n < 1 || n > digits.MaxImages {
			return usageErrorf("--%s %d; allowed are 1 to %d images", name, n, digits.MaxImages)
		}
	}
	if photos && scans {
		return usageErrorf("--photos and --dicom exclude each other")
	}
	if scans && c.Variant != digits.Grey {
		return usageErrorf("--dicom writes grey images, and --variant is %q; leave --variant out", c.Variant)
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
			ds := dataset.FromDrawn(variant, s)
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
			return say(cmd, map[string]any{"folder": out, "variant": variant, "seed": c.Seed, "train": ds.Train.N,
				"test": ds.Test.N}, "%s: %d training and %d test images\n", out,
				ds.Train.N, ds.Test.N)
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
