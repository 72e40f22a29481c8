//go:build cgo

package orttest

import (
	"errors"

	"fmp/onnx/engine"
	"fmp/onnx/engine/ort"
)

func open() (e engine.Engine, missing bool, err error) {
	e, err = ort.New(engine.Options{Threads: 1})
	return e, errors.Is(err, ort.ErrNoLibrary), err
}
