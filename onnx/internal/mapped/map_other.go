//go:build !unix

package mapped

import (
	"errors"
	"os"
)

// mapFile is not at hand: the file is read.
func mapFile(*os.File, int64) ([]byte, error) { return nil, errors.ErrUnsupported }
