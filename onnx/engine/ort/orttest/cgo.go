//go:build cgo

package orttest

import (
	"errors"

	"fmp/onnx/engine"
	"fmp/onnx/engine/ort"
)

// cgo reports whether the test can load a library.
const cgo = true

func open() (e engine.Engine, missing bool, err error) {
	e, err = ort.New(ort.Options{Threads: 1})
	return e, errors.Is(err, ort.ErrNoLibrary), err
}
