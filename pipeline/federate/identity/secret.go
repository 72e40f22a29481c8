package identity

import (
	"crypto/rand"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

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

// CheckSecret returns an error for a file that [ReadSecret] refuses for its permissions.
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
		"%s: its mode %04o lets other users read or change the secret in it; run: chmod 600 %s", path,
		info.Mode().Perm(), path)
}

// SaveSecret writes a new file, readable by its owner alone, atomically. If the file exists, it is
// left unchanged and SaveSecret returns an error.
func SaveSecret(path string, data []byte) (err error) {
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return err
	}
	there := fmt.Errorf("%s is there already and is not overwritten; give another name, or remove it: %w",
		path, fs.ErrExist)
	if _, err := os.Lstat(path); err == nil {
		return there
	}
	// A name of its own until it is whole: another process takes none that is half written.
	whole := fmt.Sprintf("%s.%s.tmp", path, rand.Text())
	if err := atomicfile.WritePrivate(whole, data); err != nil {
		return err
	}
	defer os.Remove(whole)
	if err := os.Link(whole, path); errors.Is(err, fs.ErrExist) {
		return there
	} else if err == nil {
		return nil
	}
	return os.Rename(whole, path) // a file system without links
}
