package main

import "github.com/spf13/cobra"

// newDataCommand groups the commands on data sets.
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

// dirFlag binds the flag for the data folder.
func dirFlag(cmd *cobra.Command, dir *string) {
	cmd.Flags().StringVar(dir, "dataset.dir", "", "data folder; empty means $FMP_DATA, then the cache")
}

// onBadFlag binds the flag for images of folders that cannot be read; skipBad reads it.
func onBadFlag(cmd *cobra.Command, onBad *string) {
	cmd.Flags().StringVar(onBad, "on-bad", "fail",
		"what to do about images of a folder that cannot be read: fail or skip; all are named")
}
