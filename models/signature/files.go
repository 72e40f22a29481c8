package signature

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"unicode/utf8"

	"fmp/onnx/regularfile"
)

// digests returns the SHA-256 in hex of the file at path, under the name [single], or of every file of a folder that is not ignored.
func digests(path string, ignored []string) (map[string]string, error) {
	st, err := os.Stat(path)
	if err != nil {
		return nil, err
	}
	out := map[string]string{}
	if !st.IsDir() {
		f, err := regularfile.Open(path)
		if err != nil {
			return nil, err
		}
		out[single], err = sum(f)
		return out, err
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

// sum returns the SHA-256 of a file, and closes it.
func sum(f *os.File) (string, error) {
	defer f.Close()
	h := sha256.New()
	if _, err := io.Copy(h, f); err != nil {
		return "", err
	}
	return hex.EncodeToString(h.Sum(nil)), nil
}
