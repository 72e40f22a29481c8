package main

import (
	"errors"
	"fmt"
	"io/fs"

	"github.com/spf13/cobra"

	"fmp/featurize/store"
)

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
