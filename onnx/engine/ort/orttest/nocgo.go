//go:build !cgo

package orttest

import (
	"errors"

	"fmp/onnx/engine"
)

// cgo reports whether the test can load a library.
const cgo = false

func open() (e engine.Engine, missing bool, err error) {
	return nil, true, errors.New("this test was built without cgo")
}
