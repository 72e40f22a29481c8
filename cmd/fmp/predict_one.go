package main

import (
	"errors"
	"os"
	"runtime"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"golang.org/x/sys/cpu"

	"fmp/featurize/imagefile"
	"fmp/onnx"
	"fmp/onnx/cost"
	"fmp/onnx/engine"
	"fmp/onnx/engine/pure"
	"fmp/onnx/npy"
	"fmp/pipeline/classify"
)

// oneImage bounds the multiply-adds of one image that runs in Go where the engine is nobody's
// choice: ResNet-50 has 4.1 billion. Beyond, the ONNX Runtime makes up for its start. A variable
// for tests.
var oneImage = engine.Limits{Work: 1 << 32}

// openFor opens the classifier of a command's arguments for its images. Where these are all that it
// is for, one image has a way of its own.
func openFor(cmd *cobra.Command, cfg engineSettings, args []string, level float64,
	all bool) (*classify.Classifier, func(), error) {
	if all && runsAlone(cmd, cfg, args[1]) {
		return openForOne(cmd, cfg, args[0], level)
	}
	return openClassifier(cmd, cfg, args[0], level)
}

// openForOne opens a classifier for one image. The ONNX Runtime takes longer to start, and to lay
// out its weights, than the pure engine takes for all of it. A model that is too much work in Go,
// or has an operator that the pure engine lacks, still runs on the runtime, and so does one that
// rounds to bytes.
func openForOne(cmd *cobra.Command, cfg engineSettings, path string,
	level float64) (*classify.Classifier, func(), error) {
	if err := checkLevel(level); err != nil {
		return nil, nil, err
	}
	open, err := classify.Read(path, level)
	if err != nil {
		return nil, nil, usageError(err)
	}
	eng, err := pure.New(engine.Options{Threads: cfg.Engine.Threads})
	if err != nil {
		return nil, nil, usageError(err)
	}
	eng = cost.Bounded(smooth{engine.Under(cmd.Context(), eng)}, oneImage)
	c, err := open(eng)
	if err != nil { // the runtime's own words are the better ones
		if err := eng.Close(); err != nil {
			return nil, nil, err
		}
		return openedBy(cmd, cfg, func() (classify.Opener, error) { return open, nil })
	}
	return c, func() { c.Close(); eng.Close() }, nil
}

// smooth is an engine without models that round to bytes as they run. There engines differ by
// steps, so that an image alone would have another answer than in its folder.
type smooth struct{ engine.Engine }

// Load prepares a model. A classifier's file has neither functions nor graphs within its nodes, and
// weights that are stored as bytes round nothing.
func (e smooth) Load(m *onnx.Model) (engine.Session, error) {
	if slices.ContainsFunc(m.Graph.Nodes, func(n *onnx.Node) bool {
		return strings.HasPrefix(strings.TrimPrefix(n.Op, "Dynamic"), "Quantize") ||
			strings.HasPrefix(n.Op, "QLinear")
	}) {
		return nil, errors.New("the model rounds to bytes, to which each engine comes by its own sums")
	}
	return e.Engine.Load(m)
}

// runsAlone reports whether a path is one image, or one row of features, that runs on the pure
// engine: neither the engine nor the runtime's library or provider is chosen, and this processor
// has vectors that the pure engine multiplies in.
func runsAlone(cmd *cobra.Command, cfg engineSettings, path string) bool {
	if cmd.Flags().Changed("engine") || cfg.Engine.Name != "auto" || libraryIsNeeded(cfg.Engine) ||
		runtime.GOARCH != "arm64" && !(cpu.X86.HasAVX2 && cpu.X86.HasFMA) {
		return false
	}
	st, err := os.Stat(path)
	if err != nil || !st.Mode().IsRegular() {
		return false
	}
	if !strings.HasSuffix(strings.ToLower(path), ".npy") {
		return imagefile.IsImage(path)
	}
	const most = 1 << 20 // bytes of one row
	if st.Size() > most {
		return false
	}
	rows, err := npy.Load(path)
	return err == nil && len(rows.Shape) == 2 && rows.Shape[0] == 1
}
