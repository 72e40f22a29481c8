package atomicfile

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"time"

	"github.com/gofrs/flock"
)

// LockFile is a file that [Lock] leaves in a folder, or beside a file with the file's name before
// it, where the system does not lock folders, and a locked file cannot be written to (Windows).
const LockFile = ".lock"

// Lock takes a folder or a file, which must be there, for this process until it is closed or the
// process ends, however it ends. ok is false where another has it. File systems without locks let
// everybody in.
func Lock(path string) (lock io.Closer, ok bool, err error) {
	st, err := os.Stat(path)
	if err != nil {
		return nil, false, err
	}
	l := flock.New(path, flock.SetFlag(os.O_RDONLY))
	if runtime.GOOS == "windows" {
		if st.IsDir() {
			path = filepath.Join(path, LockFile)
		} else {
			path += LockFile
		}
		l = flock.New(path)
	}
	ok, err = l.TryLock()
	switch {
	case errors.Is(err, fs.ErrNotExist) || errors.Is(err, fs.ErrPermission):
		return nil, false, fmt.Errorf("locking %s: %w", path, err)
	case err != nil:
		return l, true, nil // a file system without locks
	}
	return l, ok, nil
}

// lockWithin bounds how long [Take] waits for other processes.
const lockWithin = 20 * time.Second

// Take is [Lock] that waits while another process has the folder or file, for 20 s at most.
func Take(path string) (io.Closer, error) {
	for start := time.Now(); ; time.Sleep(10 * time.Millisecond) {
		lock, ok, err := Lock(path)
		if err != nil || ok {
			return lock, err
		}
		if time.Since(start) > lockWithin {
			return nil, fmt.Errorf("%s: another process has had it for %v: run again once it has ended", path, lockWithin)
		}
	}
}
