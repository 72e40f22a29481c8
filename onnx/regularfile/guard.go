package regularfile

import (
	"errors"
	"io/fs"
	"os"
	"slices"
	"sync"
)

// ErrOutput is wrapped by the error for a file that is to be overwritten by the command that reads
// it.
var ErrOutput = errors.New("it is an input, and an output of the same command would overwrite " +
	"it: give the output another name")

var guard struct {
	sync.Mutex
	files []fs.FileInfo
}

// Guard makes it an error, [ErrOutput], to open one of these files, which are to be overwritten,
// until release is called. A file is known by its identity, time and size, so that a file written
// meanwhile is none of them.
func Guard(files []fs.FileInfo) (release func()) {
	guard.Lock()
	defer guard.Unlock()
	guard.files = append(guard.files, files...)
	return func() {
		guard.Lock()
		defer guard.Unlock()
		guard.files = slices.DeleteFunc(guard.files,
			func(f fs.FileInfo) bool { return slices.Contains(files, f) })
	}
}

func guarded(st fs.FileInfo) bool {
	guard.Lock()
	defer guard.Unlock()
	return slices.ContainsFunc(guard.files, func(f fs.FileInfo) bool {
		return os.SameFile(f, st) && f.ModTime().Equal(st.ModTime()) && f.Size() == st.Size()
	})
}
