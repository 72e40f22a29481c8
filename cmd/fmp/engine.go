package main

import (
	"errors"
	"io"

	"fmp/onnx/engine"
	"fmp/onnx/engine/ort"
	"fmp/pipeline/experiment"
)

// openEngine makes the engine that the settings ask for. auto is ort where its library is found. Threads
// is the number of threads of one operator: 1 where figures must not depend on it (work is then shared
// among goroutines, see package ort), cfg.Threads where only speed counts. A missing library gives exit
// code 3, a wrong setting 2.
func openEngine(cfg experiment.Engine, threads int, stderr io.Writer) (engine.Engine, error) {
	opts := engine.Options{Threads: threads, Provider: cfg.Provider, Library: cfg.Library}
	switch cfg.Name {
	case "ort", "auto":
		e, err := ort.New(opts)
		if errors.Is(err, ort.ErrNoLibrary) {
			return nil, missingError(err)
		}
		return e, usageError(err)
	}
	return nil, usageErrorf("engine.name is %q; allowed are auto, ort", cfg.Name)
}
