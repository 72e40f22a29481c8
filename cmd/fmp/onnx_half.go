package main

import (
	"fmt"
	"os"

	"github.com/spf13/cobra"

	"fmp/cmd/internal/outputs"
	"fmp/models"
	"fmp/onnx"
	"fmp/onnx/pass"
	"fmp/onnx/serde"
)

func newONNXHalfCommand() *cobra.Command {
	var out string
	var least int
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "half MODEL",
		Short: "Store a model's weights in half precision: half the file, float32 arithmetic as before",
		Long: `Write MODEL with its large float32 weights stored as float16, each followed by a Cast back to
float32 that runtimes work out once, when they load it. Weights are rounded to 11 significant bits;
nothing else changes. A manifest of ours is kept, its command line completed.`,
		Example: `  fmp onnx half extractor.onnx -o small.onnx`,
		Args:    exactArgs("MODEL"),
		RunE: func(cmd *cobra.Command, args []string) error {
			if out == "" {
				return usageErrorf("-o is not given; name the file to write")
			}
			m, err := serde.Load(args[0])
			if err != nil {
				return usageError(err)
			}
			if err := checkModel(m); err != nil {
				return usageError(fmt.Errorf("%s: %w", args[0], err))
			}
			n := pass.StoreHalf(m, least)
			if n == 0 {
				return usageErrorf("%s has no float32 weight of %d elements or more whose values half "+
					"precision can hold; nothing was written", args[0], least)
			}
			if err := descends(m, args[0], "fmp onnx half"); err != nil {
				return err
			}
			if err := serde.Save(out, m); err != nil {
				return err
			}
			before, err := os.Stat(args[0])
			if err != nil {
				return fmt.Errorf("measuring the model: %w", err)
			}
			after, err := os.Stat(out)
			if err != nil {
				return fmt.Errorf("measuring what was written: %w", err)
			}
			return say(cmd.OutOrStdout(), asJSON,
				map[string]any{"file": out, "tensors": n, "bytes": after.Size(),
					"bytes_before": before.Size()},
				"%s: %d tensors in half precision, %d bytes (%d before)\n", out, n,
				after.Size(), before.Size())
		},
	}
	cmd.Flags().StringVarP(&out, "out", "o", "", "file to write")
	outputs.Files(cmd.Flags(), "out")
	cmd.Flags().IntVar(&least, "least", 1024, "elements that a tensor must have to be stored so")
	cmd.Flags().BoolVar(&asJSON, "json", false, "print JSON")
	return cmd
}

// descends records in a model of the program's that the file at path was made into it by a command;
// a classifier then remains one that a notice of its round supersedes.
func descends(m *onnx.Model, path, command string) error {
	f, err := models.ReadManifest(m)
	if err != nil {
		return nil // another program's
	}
	if f.Command != "" {
		f.Command += " && " + command
		if err := f.Write(m); err != nil {
			return err
		}
	}
	if f.Kind != models.KindClassifier {
		return nil
	}
	digest, err := models.DigestFile(path, serde.MaxFileBytes)
	if err != nil {
		return err
	}
	return models.Descends(m, digest)
}
