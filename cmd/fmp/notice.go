package main

import (
	"context"
	"errors"
	"log/slog"
	"time"

	"github.com/spf13/cobra"

	"fmp/pipeline/client"
	"fmp/pipeline/federate/wire"
)

// noticeFlags are the flags of the commands that heed a notice of superseded classifiers. Without
// file the notice beside the classifier is read, where there is one.
type noticeFlags struct{ file, server string }

// bind declares the flags.
func (f *noticeFlags) bind(cmd *cobra.Command) {
	cmd.Flags().StringVar(&f.file, "notice", "",
		"`FILE` of the round's notice of superseded versions (/v1/rounds/N/notice of fmp serve; "+
			"default: the classifier's name with .notice, if it is there)")
	cmd.Flags().StringVar(&f.server, "server-key", "",
		"public `KEY` of the round's server (base64), which must have signed the notice")
}

// heed returns an error for a classifier that the notice names, and for a notice that cannot be
// read. A superseded classifier has exit code 1, and a notice that cannot be read is a usage error.
func (f *noticeFlags) heed(classifier string) error {
	err := client.Heed(classifier, f.file, f.server)
	if err == nil || errors.Is(err, wire.ErrSuperseded) {
		return err
	}
	return usageError(err)
}

// noticeEvery is how often a classifier that is served is looked up in its notice. A notice that
// comes beside a served classifier ends the serving within ten seconds.
const noticeEvery = 10 * time.Second

// watch sends the error of a notice that names the classifier in data, which was read from a path,
// once there is one. A notice that cannot be read is logged, as it may be on its way. The channel
// has room for the error, so that the watch ends whether it is read or not. A fault of the notice
// is logged once, until it changes. The first look is at once. It is of the classifier in data,
// whichever file takes its place meanwhile.
func (f *noticeFlags) watch(ctx context.Context, every time.Duration, path string, data []byte,
	log *slog.Logger) (<-chan error, error) {
	heed, err := client.Heeder(path, f.file, f.server, data)
	if err != nil {
		return nil, usageError(err)
	}
	superseded := make(chan error, 1)
	go func() {
		for said := ""; ; {
			err := heed()
			if errors.Is(err, wire.ErrSuperseded) {
				superseded <- err
				return
			}
			text := ""
			if err != nil {
				if text = err.Error(); text != said {
					log.Error("the notice of superseded versions is not read", "error", err)
				}
			}
			said = text
			select {
			case <-ctx.Done():
				return
			case <-time.After(every):
			}
		}
	}()
	return superseded, nil
}
