package main

import (
	"errors"

	"github.com/spf13/cobra"

	"fmp/pipeline/client"
	"fmp/pipeline/federate/wire"
)

// noticeFlags are the flags of the commands that heed a notice of superseded classifiers.
type noticeFlags struct{ file, server string }

func (f *noticeFlags) bind(cmd *cobra.Command) {
	cmd.Flags().StringVar(&f.file, "notice", "",
		"`FILE` of the round's notice of superseded versions (/v1/rounds/N/notice of fmp serve; "+
			"default: the classifier's name with .notice, if it is there)")
	cmd.Flags().StringVar(&f.server, "server-key", "",
		"public `KEY` of the round's server (base64), which must have signed the notice")
}

// heed returns an error for a classifier that the notice names, and for a notice that cannot be
// read.
func (f *noticeFlags) heed(classifier string) error {
	err := client.Heed(classifier, f.file, f.server)
	if err == nil || errors.Is(err, wire.ErrSuperseded) {
		return err
	}
	return usageError(err)
}
