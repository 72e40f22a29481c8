package main

import (
	"fmt"
	"os"
	"path/filepath"

	"github.com/spf13/cobra"

	"fmp/cmd/internal/outputs"
	"fmp/featurize/extractor"
	"fmp/models"
	"fmp/onnx"
	"fmp/onnx/pass"
	"fmp/onnx/serde"
)

func newONNXHalfCommand() *cobra.Command {
	var out string
	var least int
	cmd := &cobra.Command{
		Use:   "half MODEL",
		Short: "Store a model's weights in half precision: half the file, float32 arithmetic as before",
		Long: `Write MODEL with its large float32 weights stored as float16, each followed by a Cast back to
float32 that runtimes work out once, when they load it. Weights are rounded to 11 significant bits;
nothing else changes. Weights that half precision does not hold stay as they are: with values beyond
65504, or so small, below .00006, that more bits would be lost, in the whole tensor or in more than a
sixteenth of its rows along the first axis. A manifest of ours is kept, its command line completed, and
a side-car file of MODEL is written again as OUT.yaml.`,
		Example: `  fmp onnx half extractor.onnx -o small.onnx`,
		Args:    exactArgs("MODEL"),
		RunE: func(cmd *cobra.Command, args []string) error {
			if out == "" {
				return usageErrorf("-o is not given; name the file to write")
			}
			if least < 0 {
				return usageErrorf("--least is %d; allowed are 0 and up", least)
			}
			m, err := serde.Load(args[0])
			if err != nil {
				return usageError(err)
			}
			if err := checkModel(m); err != nil {
				return usageError(fmt.Errorf("%s: %w", args[0], err))
			}
			n, beyond := pass.StoreHalf(m, least)
			if n == 0 {
				return usageErrorf("%s has no float32 weight of %d elements or more whose values half "+
					"precision can hold; nothing was written", args[0], least)
			}
			if err := checkModel(m); err != nil {
				return err
			}
			if err := descends(m, args[0], "fmp onnx half"); err != nil {
				return err
			}
			if err := serde.Save(out, m); err != nil {
				return err
			}
			f, _ := models.ReadManifest(m) // another program's model has none
			if err := keepSidecar(args[0], out, f, extractor.Options{}); err != nil {
				return err
			}
			before, after, err := sizes(args[0], out)
			if err != nil {
				return err
			}
			kept := ""
			if beyond > 0 {
				kept = fmt.Sprintf(", %d kept whose values it does not hold", beyond)
			}
			return say(cmd, map[string]any{"file": out, "tensors": n, "kept": beyond, "bytes": after,
				"bytes_before": before},
				"%s: %d tensors in half precision%s, %d bytes (%d before)\n", out, n, kept,
				after, before)
		},
	}
	cmd.Flags().StringVarP(&out, "out", "o", "", "file to write")
	outputs.Files(cmd.Flags(), "out")
	cmd.Flags().IntVar(&least, "least", 1024, "elements that a tensor must have to be stored so")
	jsonFlag(cmd, "print JSON")
	return cmd
}

// sizes returns the bytes of a model, and of the one that was made of it.
func sizes(model, made string) (before, after int64, err error) {
	if before, err = bytesOf(model); err == nil {
		after, err = bytesOf(made)
	}
	return before, after, err
}

// bytesOf returns the bytes of a model's file and of those that hold its external data.
func bytesOf(model string) (int64, error) {
	data, err := serde.ReadFile(model)
	if err != nil {
		return 0, fmt.Errorf("measuring the model: %w", err)
	}
	names, err := serde.Externals(data)
	if err != nil {
		return 0, fmt.Errorf("measuring the model: %s: %w", model, err)
	}
	n := int64(len(data))
	for _, name := range names {
		st, err := os.Stat(filepath.Join(filepath.Dir(model), name))
		if err != nil {
			return 0, fmt.Errorf("measuring the model: %w", err)
		}
		n += st.Size()
	}
	return n, nil
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
