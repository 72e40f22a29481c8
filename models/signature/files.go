package signature

import (
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	slashpath "path"
	"path/filepath"
	"unicode/utf8"

	"fmp/onnx/regularfile"
	"fmp/onnx/serde"
)

// digests returns the SHA-256 in hex of every file of a folder that is not ignored, or of the file
// at path: under the name [single], or where it is a model with data in other files, under its own
// name beside these. The folder is opened once and walked from there, so that no link leads out of
// it. More than [maxFiles] files are an error. A link or a device is an error, and so is a name
// that is not UTF-8. Sizes are not bounded, as files are hashed in pieces. Sub-folders without
// files leave no trace.
func digests(path string, ignored []string) (map[string]string, error) {
	st, err := os.Stat(path)
	if err != nil {
		return nil, err
	}
	out := map[string]string{}
	if !st.IsDir() {
		return ofFile(path)
	}
	root, err := os.OpenRoot(path)
	if err != nil {
		return nil, err
	}
	defer root.Close()
	err = fs.WalkDir(root.FS(), single, func(name string, d fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		// Ignored paths are not opened.
		case below(name, ignored) && d.IsDir():
			return fs.SkipDir
		case below(name, ignored) || d.IsDir():
			return nil
		case !d.Type().IsRegular():
			return fmt.Errorf("%s is a link or a device; want regular files alone", name)
		case !utf8.ValidString(name):
			return fmt.Errorf("the name %q is not UTF-8", name)
		case len(out) == maxFiles:
			return fmt.Errorf("more than %d files", maxFiles)
		}
		f, err := regularfile.OpenIn(root, name)
		if err != nil {
			return err
		}
		out[name], err = sum(f)
		return err
	})
	if err == nil && len(out) == 0 {
		err = errors.New("the folder has no files")
	}
	return out, err
}

// ofFile returns the digests of a file and of those that hold data of it. Data files must lie in
// the file's own folder or below, and be regular files, as another reader may follow a link
// elsewhere. Each folder on the way to a data file must be a folder and no link.
func ofFile(path string) (map[string]string, error) {
	f, err := regularfile.Open(path)
	if err != nil {
		return nil, err
	}
	digest, err := sum(f)
	if err != nil {
		return nil, err
	}
	names, err := beside(path, digest)
	if err != nil || len(names) == 0 {
		return map[string]string{single: digest}, err
	}
	dir, base := filepath.Split(path)
	root, err := os.OpenRoot(cmp.Or(dir, "."))
	if err != nil {
		return nil, err
	}
	defer root.Close()
	out := map[string]string{base: digest}
	for _, name := range names {
		switch {
		case !local(name) || name == base:
			return nil, fmt.Errorf("its data lie in %.200q, which is no other file of its folder",
				name)
		case len(out) == maxFiles:
			return nil, fmt.Errorf("more than %d files", maxFiles)
		}
		// a link could lead elsewhere for another reader
		for at := name; at != "."; at = slashpath.Dir(at) {
			if st, err := root.Lstat(filepath.FromSlash(at)); err != nil {
				return nil, err
			} else if at == name && !st.Mode().IsRegular() || at != name && !st.IsDir() {
				return nil, fmt.Errorf("%s is a link or a device; want regular files alone", at)
			}
		}
		f, err := regularfile.OpenIn(root, filepath.FromSlash(name))
		if err != nil {
			return nil, err
		}
		if out[name], err = sum(f); err != nil {
			return nil, err
		}
	}
	return out, nil
}

// beside returns the names of the files that hold data of a model, with slashes. A file of another
// kind has none. The file is read a second time, and must have the digest of the first. More than
// the largest message are no model: it has no such files. Without the second digest another file
// could be put in its place between hashing and reading.
func beside(path, digest string) ([]string, error) {
	st, err := os.Stat(path)
	if err != nil || st.Size() > serde.MaxFileBytes {
		return nil, err // protobuf has no messages as large
	}
	data, err := regularfile.ReadFile(path, serde.MaxFileBytes)
	if err != nil {
		return nil, err
	}
	if got := sha256.Sum256(data); hex.EncodeToString(got[:]) != digest {
		return nil, errors.New("it changed while it was read")
	}
	names, err := serde.Externals(data)
	if err != nil {
		return nil, fmt.Errorf("it is a model, and which files hold its data cannot be told: %w",
			err)
	}
	return names, nil
}

// sum returns the SHA-256 of a file, and closes it.
func sum(f *os.File) (string, error) {
	defer f.Close()
	h := sha256.New()
	if _, err := io.Copy(h, f); err != nil {
		return "", err
	}
	return hex.EncodeToString(h.Sum(nil)), nil
}
