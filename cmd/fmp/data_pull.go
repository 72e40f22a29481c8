package main

import (
	"fmt"

	"github.com/spf13/cobra"

	"fmp/featurize/dataset"
	"fmp/featurize/store"
	"fmp/onnx/suggest"
)

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
			const unit = 1 << 10 // progress counts KiB
			d := &store.Downloader{Progress: func(name string, done, total int64) {
				bar.report(name+" (KiB)", int(done/unit), int(max(total, 0)/unit))
			}}
			folder, err := store.Pull(cmd.Context(), s, to, d)
			bar.close()
			if err != nil {
				return fmt.Errorf("%w\nWith the files at hand, from %s, give: fmp data import FOLDER", err,
					s.Home)
			}
			return say(cmd, map[string]string{"name": s.Name, "folder": folder},
				"%s is in %s\n", s.Name, folder)
		},
	}
	dirFlag(cmd, &dir)
	jsonFlag(cmd, "print JSON")
	return cmd
}
