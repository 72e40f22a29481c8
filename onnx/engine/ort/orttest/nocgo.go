//go:build !cgo

package orttest

import (
	"errors"

	"fmp/onnx/engine"
)

func open() (e engine.Engine, missing bool, err error) {
	return nil, true, errors.New("this test was built without cgo")
}
