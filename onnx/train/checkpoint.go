package train

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strconv"

	"fmp/onnx"
)

// A checkpoint is an ONNX file without nodes: the carried tensors are its initializers, and its metadata
// hold the step and what the run is a run of.
const (
	keyStep = "fmp.train.step"
	keyRun  = "fmp.train.run"
)

// saveCheckpoint writes the state before step t, whole or not at all.
func saveCheckpoint(path, run string, t int, state map[string]*onnx.Tensor) error {
	m := onnx.NewModel(&onnx.Graph{Name: "checkpoint", Initializers: state})
	m.Metadata[keyStep] = strconv.Itoa(t)
	m.Metadata[keyRun] = run
	return onnx.Save(path, m)
}

// loadCheckpoint reads a checkpoint; ok is false where there is none.
func loadCheckpoint(path, run string) (t int, state map[string]*onnx.Tensor, ok bool, err error) {
	if _, err := os.Stat(path); errors.Is(err, fs.ErrNotExist) {
		return 0, nil, false, nil
	}
	m, err := onnx.Load(path)
	if err != nil {
		return 0, nil, false, fmt.Errorf("checkpoint: %w; remove it to start afresh", err)
	}
	if have := m.Metadata[keyRun]; have != run {
		return 0, nil, false, fmt.Errorf("checkpoint %s is of another run (%q, this is %q); remove it to start afresh, or give this run a folder of its own", path, have, run)
	}
	t, err = strconv.Atoi(m.Metadata[keyStep])
	if err != nil || t < 0 {
		return 0, nil, false, fmt.Errorf("checkpoint %s: its step is %q; remove it to start afresh", path, m.Metadata[keyStep])
	}
	return t, m.Graph.Initializers, true, nil
}
