// Package atomicfile writes files that are there whole or not at all.
package atomicfile

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
)

// Write calls write with a temporary file beside path, syncs it and renames it to path. Where anything
// fails the temporary file is removed and whatever stood at path is untouched. Missing parent folders
// are made. What stands there and is no regular file (a folder, a device) is refused: renaming would put a file in
// the place of /dev/null. A symbolic link stays, and what it points to is replaced.
func Write(path string, write func(io.Writer) error) (err error) {
	target, err := resolve(path)
	if err != nil {
		return fmt.Errorf("writing %s: %w", path, err)
	}
	dir := filepath.Dir(target)
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return fmt.Errorf("writing %s: %w", path, err)
	}
	f, err := os.CreateTemp(dir, "."+filepath.Base(target)+".*.tmp")
	if err != nil {
		return fmt.Errorf("writing %s: %w", path, err)
	}
	defer func() {
		if err != nil {
			f.Close()
			os.Remove(f.Name())
		}
	}()
	if err := write(f); err != nil {
		return fmt.Errorf("writing %s: %w", path, err)
	}
	if err := f.Chmod(0o644); err != nil {
		return fmt.Errorf("writing %s: %w", path, err)
	}
	if err := f.Sync(); err != nil {
		return fmt.Errorf("writing %s: %w", path, err)
	}
	if err := f.Close(); err != nil {
		return fmt.Errorf("writing %s: %w", path, err)
	}
	if err := os.Rename(f.Name(), target); err != nil {
		return fmt.Errorf("writing %s: %w", path, err)
	}
	return nil
}

// resolve is the regular file that path stands for, or path itself where nothing is there yet.
func resolve(path string) (string, error) {
	st, err := os.Lstat(path)
	if err != nil {
		return path, nil // not there, or in a place that the writing will complain of
	}
	if st.Mode()&os.ModeSymlink != 0 {
		if path, err = filepath.EvalSymlinks(path); err != nil {
			return "", fmt.Errorf("following the symbolic link: %w", err)
		}
		if st, err = os.Lstat(path); err != nil {
			return "", err
		}
	}
	switch {
	case st.IsDir():
		return "", errors.New("it is a folder; give the name of a file")
	case !st.Mode().IsRegular():
		return "", fmt.Errorf("it is no regular file (%v); give the name of a file", st.Mode().Type())
	}
	return path, nil
}

// WriteBytes writes data as Write does.
func WriteBytes(path string, data []byte) error {
	return Write(path, func(w io.Writer) error { _, err := w.Write(data); return err })
}
