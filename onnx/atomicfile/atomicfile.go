// Package atomicfile writes files that are there whole or not at all.
package atomicfile

import (
	"errors"
	"fmt"
	"hash/fnv"
	"io"
	"io/fs"
	"math/rand/v2"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// Write calls write with a temporary file beside path, syncs it and renames it to path. Where
// anything fails the temporary file is removed and the file at path is untouched. Missing parent
// folders are made; a temporary file for the same path that is older than an hour is removed: its
// program was killed. An object there that is no regular file (a folder, a device) is refused:
// renaming would put a file in the place of /dev/null. A symbolic link stays, and its target is
// replaced. Others may read the file unless the umask says otherwise.
func Write(path string, write func(io.Writer) error) error { return writeMode(path, 0o644, write) }

// WritePrivate writes data as Write does, to a file that its owner alone can read, also where one
// that others could read was there.
func WritePrivate(path string, data []byte) error {
	return writeMode(path, 0o600, func(w io.Writer) error { _, err := w.Write(data); return err })
}

func writeMode(path string, mode fs.FileMode, write func(io.Writer) error) (err error) {
	target, err := resolve(path)
	if err != nil {
		return fmt.Errorf("writing %s: %w", path, err)
	}
	dir := filepath.Dir(target)
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return fmt.Errorf("writing %s: %w", path, err)
	}
	prefix := temporary(target)
	if err := RemoveStale(dir, prefix, time.Hour); err != nil {
		return fmt.Errorf("writing %s: %w", path, err)
	}
	f, err := create(dir, prefix, mode)
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
	if err := f.Sync(); err != nil {
		return fmt.Errorf("writing %s: %w", path, err)
	}
	if err := f.Close(); err != nil {
		return fmt.Errorf("writing %s: %w", path, err)
	}
	if err := replace(f.Name(), target); err != nil {
		return fmt.Errorf("writing %s: %w", path, err)
	}
	return nil
}

// replace renames a file. Windows refuses that while anybody reads the one that is replaced, as
// scanners for viruses do, for a moment.
func replace(from, to string) error {
	rename := func() error { return os.Rename(from, to) }
	if runtime.GOOS != "windows" {
		return rename()
	}
	return patiently(rename, 2*time.Second)
}

// patiently tries again, for as long as given, where Windows says that a file is in use.
func patiently(try func() error, within time.Duration) (err error) {
	for start := time.Now(); ; time.Sleep(time.Millisecond) {
		if err = try(); !inUse(err) || time.Since(start) > within {
			return err
		}
	}
}

// inUse reports whether an error is Windows' of a file that another program has open.
func inUse(err error) bool {
	const sharing = syscall.Errno(32) // ERROR_SHARING_VIOLATION
	return errors.Is(err, fs.ErrPermission) || errors.Is(err, sharing)
}

// maxPrefix bounds the beginning of a temporary file's name, in bytes: file systems allow names of
// 255, of which 17 are the rest.
const maxPrefix = 255 - 17

// temporary begins the names of a file's temporary files: with its own name, or with a hash of
// that where it is too long for more to follow.
func temporary(target string) string {
	prefix := "." + filepath.Base(target) + "."
	if len(prefix) > maxPrefix {
		h := fnv.New128a() // a cryptographic hash would be 200 kB of a program
		h.Write([]byte(prefix))
		prefix = fmt.Sprintf(".%x.", h.Sum(nil))
	}
	return prefix
}

// create makes a temporary file of a new name, less the permissions of the umask, which
// os.CreateTemp does not read.
func create(dir, prefix string, mode fs.FileMode) (*os.File, error) {
	for {
		f, err := os.OpenFile(filepath.Join(dir, prefix+strconv.FormatUint(rand.Uint64(), 36)+".tmp"),
			os.O_RDWR|os.O_CREATE|os.O_EXCL, mode)
		var at *fs.PathError
		// the temporary name says nothing to anybody
		if errors.As(err, &at) && !errors.Is(err, fs.ErrExist) {
			return nil, fmt.Errorf("the folder %s cannot be written to: %w", dir, at.Err)
		}
		if !errors.Is(err, fs.ErrExist) {
			return f, err
		}
	}
}

// Ready returns an error unless a file of this name can be written, as far as that is known before
// any work: its folder is there ([HasFolder]) and can be written to, and nothing but a regular file
// is in the way.
func Ready(path string) error {
	target, err := resolve(path)
	if err != nil {
		return fmt.Errorf("%s: %w", path, err)
	}
	if err := HasFolder(target); err != nil {
		return err
	}
	f, err := create(filepath.Dir(target), temporary(target), 0o600)
	if err != nil {
		return fmt.Errorf("%s: %w", path, err)
	}
	return errors.Join(f.Close(), os.Remove(f.Name()))
}

// HasFolder returns an error, which is an [fs.ErrNotExist], unless the folder that path lies in is
// there: a folder with a mistyped name is not made.
func HasFolder(path string) error {
	dir := filepath.Dir(path)
	st, err := os.Stat(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("%s: the folder %s is not there: make it, or mend the path: %w", path,
			dir, fs.ErrNotExist)
	}
	if err == nil && !st.IsDir() {
		err = fmt.Errorf("%s is no folder", dir)
	}
	if err != nil {
		return fmt.Errorf("%s: %w", path, err)
	}
	return nil
}

// RemoveStale removes the leavings of killed programs from a folder: files and folders of names
// that begin with prefix and end in .tmp, and that nobody has written to for as long as given.
func RemoveStale(dir, prefix string, age time.Duration) error {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return err
	}
	for _, e := range entries {
		if !strings.HasPrefix(e.Name(), prefix) || !strings.HasSuffix(e.Name(), ".tmp") {
			continue
		}
		st, err := e.Info()
		if errors.Is(err, fs.ErrNotExist) || err == nil && time.Since(st.ModTime()) < age {
			continue // finished meanwhile, or at work
		}
		if err == nil {
			err = os.RemoveAll(filepath.Join(dir, e.Name()))
		}
		if err != nil {
			return fmt.Errorf("removing what was left unfinished: %w", err)
		}
	}
	return nil
}

// resolve is the regular file that path stands for, or path itself where nothing is there yet.
func resolve(path string) (string, error) {
	st, err := os.Lstat(path)
	if errors.Is(err, syscall.ENAMETOOLONG) {
		return "", fmt.Errorf("its name is too long: shorten it: %w", syscall.ENAMETOOLONG)
	}
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
		return "", fmt.Errorf("it is no regular file (%v); give the name of a file",
			st.Mode().Type())
	}
	return path, nil
}

// WriteBytes writes data as Write does.
func WriteBytes(path string, data []byte) error {
	return Write(path, func(w io.Writer) error { _, err := w.Write(data); return err })
}
