//go:build !unix

package mapped

import (
	"errors"
	"os"
)

// mapFile is not at hand: the file is read.
func mapFile(*os.File, string, int64) (*os.File, []byte, error) {
	return nil, nil, errors.ErrUnsupported
}
