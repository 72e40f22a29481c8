package identity

import (
	"crypto/rand"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"fmp/onnx/atomicfile"
	"fmp/onnx/regularfile"
)

// ReadSecret reads a file of at most limit bytes that holds a key, a token or credentials. A file
// that other users can read or change is refused: its secret may be known to them. A group may read
// a file of root's, as system administrators hand secrets to services. On Windows, where
// permissions are no mode bits, every file is accepted.
func ReadSecret(path string, limit int64) ([]byte, error) {
	if err := CheckSecret(path); err != nil {
		return nil, err
	}
	return regularfile.ReadFile(path, limit)
}

// CheckSecret returns an error for a file that [ReadSecret] refuses for its permissions. The file
// is not opened: another package may read it, as that of a certificate's key.
func CheckSecret(path string) error {
	info, err := os.Stat(path)
	if err != nil {
		return err
	}
	open := exposed(info)
	if open == 0 {
		return nil
	}
	return fmt.Errorf(
		"%s: its mode %04o lets other users read or change the secret in it; run: chmod 600 %s",
		path, info.Mode().Perm(), path)
}

// SaveSecret writes a new file, readable by its owner alone, atomically. If the file exists, it is
// left unchanged and SaveSecret returns an error. Its folder is made where it is missing. Data are
// on the disk before the file has its name, but where links are not to be had.
func SaveSecret(path string, data []byte) error {
	dir := filepath.Dir(path)
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	// A folder may be written to and not read.
	_ = atomicfile.RemoveStale(dir, unfinished, time.Hour)
	// A name of its own until it is whole: another process takes none that is half written. The
	// name is short, as path's may be as long as the file system allows.
	whole := dir + "/" + unfinished + rand.Text() + ".tmp"
	err := writeNew(whole, data)
	if err == nil {
		err = link(whole, path)
	}
	// There are no links here, or it is an error that is to name path.
	if err != nil && !errors.Is(err, fs.ErrExist) {
		err = writeNew(path, data)
	}
	os.Remove(whole)
	if errors.Is(err, fs.ErrExist) {
		err = fmt.Errorf("%s is there already and is not overwritten; give another name, or "+
			"remove it: %w", path, fs.ErrExist)
	}
	return err
}

// unfinished begins the names of files that SaveSecret has not finished.
const unfinished = ".secret."

// link is a variable so that a test can have a file system without links. A rename would replace a
// file that is there; a link does not.
var link = os.Link

// writeNew writes a file that its owner alone can read, unless one is there, and removes it if that
// fails. O_EXCL has the file system decide, so that of two processes one alone writes. Bytes are
// synced before the file is closed.
func writeNew(path string, data []byte) error {
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return err
	}
	if _, err = f.Write(data); err == nil {
		err = f.Sync()
	}
	if f.Close(); err != nil {
		os.Remove(path)
	}
	return err
}
