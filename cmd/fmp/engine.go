package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"

	"fmp/onnx/engine"
	"fmp/onnx/engine/ort"
	"fmp/onnx/engine/pure"
	_ "fmp/onnx/integers" // quantised networks run on bytes
	"fmp/pipeline/settings"
)

// engineSettings are those of a command that runs models and reads no other setting.
type engineSettings struct {
	Engine settings.Engine `yaml:"engine" json:"engine"`
}

// openEngine makes the engine that the settings ask for. auto is ort where its library is found and
// else pure, with a line on stderr that says so. Threads is the number of threads of one operator:
// 1 where figures must not depend on it (work is then shared among goroutines, see package ort),
// cfg.Threads where only speed counts. When ctx is done, so are the runs of the engine's sessions.
// A missing library gives exit code 3, a wrong setting 2. The caller closes the engine, after its
// sessions. ort may be opened several times in one process, with the library that was loaded first.
// cfg is not changed, and the engine's own name says which one runs. Threads of 0 stand for one a
// core.
func openEngine(ctx context.Context, cfg settings.Engine, threads int,
	stderr io.Writer) (engine.Engine, error) {
	// A provider asked for by name is never left out: figures of another device would pass for its
	// own.
	inGo := func() (engine.Engine, error) {
		if cfg.Provider != "" && cfg.Provider != "cpu" {
			return nil, fmt.Errorf("engine.provider is %q; engine pure runs on cpu alone, for "+
				"others use engine ort", cfg.Provider)
		}
		return pure.New(engine.Options{Threads: threads})
	}
	var e engine.Engine
	var err error
	switch cfg.Name {
	case "ort", "auto":
		// Other errors than a missing library end the command, also under auto: a library that is
		// there and does not work is a fault to be mended.
		e, err = ort.New(ort.Options{Threads: threads, Provider: cfg.Provider,
			Library: cfg.Library})
		// Under ort, libraryIsNeeded is true, so that only auto goes on below.
		if errors.Is(err, ort.ErrNoLibrary) {
			// A library or a provider asked for by name is not passed over in silence.
			if libraryIsNeeded(cfg) {
				return nil, missingError(err)
			}
			fmt.Fprintln(stderr, "No ONNX Runtime library was found: running on the pure-Go "+
				"engine, which is slower (make setup fetches the library).")
			e, err = inGo()
		}
	case "pure":
		e, err = inGo()
	default:
		err = fmt.Errorf("engine.name is %q; allowed are auto, ort, pure", cfg.Name)
	}
	if err != nil {
		return nil, usageError(err)
	}
	return engine.Under(ctx, e), nil
}

// libraryIsNeeded reports whether the settings or the environment ask for the ONNX Runtime by name,
// so that the pure engine must not take its place. cpu is the provider of both engines. The
// environment counts as a person's wish as well as a setting does. An engine named pure needs none,
// whatever else is set.
func libraryIsNeeded(cfg settings.Engine) bool {
	if cfg.Name == "pure" {
		return false
	}
	return cfg.Name == "ort" || cfg.Library != "" || os.Getenv(ort.LibraryEnv) != "" ||
		(cfg.Provider != "" && cfg.Provider != "cpu")
}
