package main

import (
	"fmt"
	"log/slog"
	"net"
	"time"

	"github.com/spf13/cobra"

	"fmp/featurize/imagefile"
	"fmp/models"
	"fmp/onnx/regularfile"
	"fmp/onnx/serde"
	"fmp/pipeline/classify"
	"fmp/pipeline/federate/loopback"
	"fmp/pipeline/federate/service"
	"fmp/pipeline/page"
)

// servedClassifier returns the file of the classifier that is served: with prediction sets of a
// level, 0 for the stored one, and adapted to the images of a camera, "" for none. A file that is
// changed by either says that it comes of the first, so that a notice of that one counts for it.
// The file is read within serde.MaxFileBytes. Without either the file's own bytes are served,
// signature and digest as they are.
// The file is read twice with either, once to run and once to change. The result is in memory
// alone.
func servedClassifier(cmd *cobra.Command, cfg engineSettings, path string, level float64,
	camera string, f imageFlags) ([]byte, error) {
	if level == 0 && camera == "" {
		data, err := regularfile.ReadFile(path, serde.MaxFileBytes)
		if err != nil {
			return nil, usageError(fmt.Errorf("classifier: %w", err))
		}
		return data, nil
	}
	c, closeAll, err := openClassifier(cmd, cfg, path, level)
	if err != nil {
		return nil, err
	}
	defer closeAll()
	m, about, err := models.Load(path)
	if err != nil {
		return nil, usageError(err)
	}
	digest := about.Digest
	// The level is part of the graph: the sets of the served model are of it.
	if level != 0 {
		if m, about, err = models.AtLevel(m, about, level); err != nil {
			return nil, usageError(err)
		}
		if err := about.Write(m); err != nil {
			return nil, err
		}
	}
	// The estimate is made by c, and the shift goes into the graph of m.
	if camera != "" {
		if err := adapt(cmd, c, camera, f); err != nil {
			return nil, err
		}
		if m, err = models.Adapted(m, c.Shift()); err != nil {
			return nil, err
		}
	}
	if err := models.Descends(m, digest); err != nil {
		return nil, err
	}
	return serde.Marshal(m)
}

// listening says how predictions are served. hosts are further names that requests may be for, as a
// proxy passes them on.
type listening struct {
	address string
	folder  string // of the page
	hosts   []string
	// reject is the probability below which an image is left to people.
	reject float64
	notice noticeFlags
	every  time.Duration // time between looks at the notice
}

// withoutListen refuses flags that go with --listen alone, and those that exclude each other
// without. It is asked by fmp predict with IMAGES.
func withoutListen(cmd *cobra.Command) error {
	if cmd.Flags().Changed("adapt") && cmd.Flags().Changed("error") {
		return usageErrorf("--error is proved by calibration images of the clients' cameras, and " +
			"--adapt is for another: give one of the two")
	}
	for _, name := range []string{"page", "host"} {
		if cmd.Flags().Changed(name) {
			return usageErrorf("--%s goes with --listen", name)
		}
	}
	return nil
}

// servePredictions answers requests for the predictions of a classifier, the file path with its
// bytes, on an address of loopback until the context ends or a notice names the classifier. Flags
// of images, and an address off loopback, are refused before the engine is opened. The address is
// taken last, so that a server that answers is ready.
// An interrupt ends it without an error, once the requests at work are answered or their time is
// over.
func servePredictions(cmd *cobra.Command, cfg engineSettings, path string, data []byte,
	o listening) error {
	for _, name := range []string{"error", "json", "csv", "count", "skip", "labels",
		imagefile.ByNumberFlag, "on-bad", "max-pixels"} {
		if name == "max-pixels" && cmd.Flags().Changed("adapt") {
			continue // it bounds the camera's images
		}
		if cmd.Flags().Changed(name) {
			return usageErrorf("--%s goes with IMAGES, and not with --listen", name)
		}
	}
	if err := classify.CheckReject(o.reject); err != nil {
		return usageError(err)
	}
	if !loopback.Address(o.address) {
		return usageErrorf("--listen %s is not loopback, such as 127.0.0.1:8080: predictions "+
			"without a round are for this machine; put a proxy with TLS before it, or "+
			"use fmp serve", o.address)
	}
	pages, err := page.Handler(o.folder)
	if err != nil {
		return usageError(fmt.Errorf("--page: %w", err))
	}
	running, stop := outlasting(cmd.Context())
	defer stop(nil)
	eng, err := openEngine(running, cfg.Engine, cfg.Engine.Threads, cmd.ErrOrStderr())
	if err != nil {
		return err
	}
	defer eng.Close()
	log := slog.New(slog.NewTextHandler(cmd.ErrOrStderr(), nil))
	tracer, closeTracer, err := openTracer("fmp predict", log)
	if err != nil {
		return err
	}
	defer closeTracer()
	// The classifier is opened from the bytes, which the notice is compared with too.
	h, closeClassifier, err := service.Classifier(eng, data, pages, o.reject, log, tracer)
	if err != nil {
		return usageError(fmt.Errorf("classifier %s: %w", path, err))
	}
	defer closeClassifier()
	superseded, err := o.notice.watch(cmd.Context(), o.every, path, data, log)
	if err != nil {
		return err
	}
	l, err := net.Listen("tcp", o.address)
	if err != nil {
		return usageError(fmt.Errorf("--listen: %w", err))
	}
	srv := service.HTTPServer(h, nil, o.hosts...)
	// The room lets the goroutine end where nobody reads its error.
	failed := make(chan error, 1)
	go func() { failed <- srv.Serve(l) }()
	fmt.Fprintf(cmd.OutOrStdout(), "predictions of %s on http://%s\n", path, l.Addr())
	var why error
	within := afterSignal
	select {
	case <-cmd.Context().Done():
	case why = <-superseded:
		within = afterNotice
	case err := <-failed:
		return err
	}
	drain(srv, stop, within)
	return why // the end by a notice is an error, and the end by an interrupt is not
}
