package dataset

import (
	"bufio"
	"bytes"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io/fs"
	"math"
	"path/filepath"
	"strings"

	"fmp/models"
	"fmp/onnx/atomicfile"
	"fmp/onnx/regularfile"
)

// SumsFile is the file in a data set's folder that lists the SHA-256 of all others, in the format
// of sha256sum, which sha256sum -c reads. Where it exists, files that differ from it are refused as
// damaged.
const SumsFile = "SHA256SUMS"

// maxSums bounds a list of checksums: 64 MiB. A line has 67 bytes and a name, so that about half a
// million files of usual names fit.
const maxSums = 64 << 20

// WriteSums writes the [SumsFile] of a folder. Names that sha256sum writes with escapes are not
// listed. Of a folder without files there is no list. Links and folders are not listed either.
// Folders are walked in lexical order, so that the same files give the same list. It is written
// whole or not at all, and replaces an earlier one.
func WriteSums(ctx context.Context, dir string) error {
	var b bytes.Buffer
	err := filepath.WalkDir(dir, func(path string, e fs.DirEntry, err error) error {
		if err == nil {
			err = ctx.Err()
		}
		if err != nil || !e.Type().IsRegular() {
			return err
		}
		name, err := filepath.Rel(dir, path)
		name = listed(name, filepath.Separator)
		if err != nil || name == SumsFile || name == "" {
			return err
		}
		sum, err := models.DigestFile(path, math.MaxInt64)
		fmt.Fprintf(&b, "%s  %s\n", sum, name)
		return err
	})
	if err == nil && b.Len() > 0 {
		err = atomicfile.WriteBytes(filepath.Join(dir, SumsFile), b.Bytes())
	}
	if err != nil {
		return fmt.Errorf("listing checksums: %w", err)
	}
	return nil
}

// listed is the name in a list of a file whose folders a separator ends; empty where sha256sum
// would write it in another way.
func listed(name string, separator rune) string {
	name = strings.ReplaceAll(name, string(separator), "/")
	if strings.ContainsAny(name, "\\\n\r") {
		return ""
	}
	return name
}

// checkSums checks the files of a folder against its list. Missing and unlisted files are ignored.
// It reads every listed file whole. A folder without a list is taken as it is. Unlisted ones are
// for the user's additions, and missing ones for parts of a data set. A name that leads out of the
// folder is refused before its file is opened.
func checkSums(ctx context.Context, dir string) error {
	list := filepath.Join(dir, SumsFile)
	data, err := regularfile.ReadFile(list, maxSums)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	// The file of a write that was cut off may be empty. [WriteSums] writes no such list.
	if len(data) == 0 {
		return fmt.Errorf("%s: it is empty: get or import the data again, or remove the file "+
			"where the data are known to be right", list)
	}
	lines := bufio.NewScanner(bytes.NewReader(data))
	for n := 1; lines.Scan(); n++ {
		if err := ctx.Err(); err != nil {
			return err
		}
		// Two spaces, or one and *, come before the name: sha256sum's marks of text and of binary
		// files.
		want, name, ok := strings.Cut(lines.Text(), " ")
		name = strings.TrimLeft(name, " *")
		if !ok || len(want) != 2*sha256.Size || !filepath.IsLocal(filepath.FromSlash(name)) {
			return fmt.Errorf("%s: line %d is not a SHA-256 and the name of a file in the "+
				"folder, as sha256sum writes them", list, n)
		}
		got, err := models.DigestFile(filepath.Join(dir, filepath.FromSlash(name)), math.MaxInt64)
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			return err
		}
		if !strings.EqualFold(got, want) {
			return fmt.Errorf("%s has the SHA-256 %s and %s says %s: it was "+
				"damaged or changed; get the data again, or remove %s where the change is meant",
				filepath.Join(dir, name), got, SumsFile, want, SumsFile)
		}
	}
	if err := lines.Err(); err != nil {
		return fmt.Errorf("%s: %w", list, err)
	}
	return nil
}
