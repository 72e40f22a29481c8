package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"

	"fmp/models"
	"fmp/onnx/atomicfile"
	"fmp/onnx/regularfile"
	"fmp/pipeline/federate"
	"fmp/pipeline/privacy"
	"fmp/pipeline/tally"
)

// content is a file that is to be written.
type content struct {
	path string
	data []byte
}

// held is a file that is whole on the disk beside its place before the budget is spent, so that
// none is spent where there is no space for it, and is moved there afterwards. Its name follows
// from its content: where a program is stopped between the two, the ledger's digest finds it.
type held struct{ path, aside string }

// heldAt is the file of this sha256 for a path.
func heldAt(path, digest string) held {
	if target, err := filepath.EvalSymlinks(path); err == nil {
		path = target // a link stays where it is
	}
	return held{path, filepath.Join(filepath.Dir(path), "."+digest[:min(16, len(digest))]+".held")}
}

// free returns an error where a private upload or a report with noise stands at a path, and its
// sha256 is none of these: it may be the only copy of one that was paid for.
func free(command, path string, mine ...string) error {
	data, err := regularfile.ReadOutput(path, federate.MaxBytes)
	if err != nil || slices.Contains(mine, models.DigestBytes(data)) {
		return nil
	}
	var r tally.Report
	kind := "a report with noise"
	if federate.IsRelease(data) {
		kind = "an upload of a private round"
	} else if json.Unmarshal(data, &r) != nil || r.Sigma == 0 {
		return nil
	}
	return usagef("%s: %s is %s already, another one than this or one that was changed: give "+
		"another output, or move it away", command, path, kind)
}

// put writes a file, unless it is to take the place of another one that was paid for.
func put(command, path string, data []byte, mine ...string) error {
	if err := free(command, path, mine...); err != nil {
		return err
	}
	return atomicfile.WritePrivate(path, data)
}

// digests are those of the files of a release; none where there is no release.
func digests(s *privacy.Spending) (all []string) {
	if s != nil {
		for _, f := range s.Files {
			all = append(all, f.Sha256)
		}
	}
	return all
}

// hold writes files aside: all of them, or none. They may take the place of those with digests of
// mine.
func hold(command string, files []content, mine ...string) (all heldFiles, err error) {
	for _, f := range files {
		if err := free(command, f.path, mine...); err != nil {
			all.drop()
			return nil, err
		}
		h := heldAt(f.path, models.DigestBytes(f.data))
		if err := atomicfile.WritePrivate(h.aside, f.data); err != nil {
			all.drop()
			return nil, fmt.Errorf("%s: it cannot be kept, and nothing was spent: %w", f.path, err)
		}
		all = append(all, h)
	}
	return all, nil
}

// heldFiles are the files of one release.
type heldFiles []held

// spend spends the release's budget; where that fails the files go, unless the ledger counts them.
func (all heldFiles) spend(l privacy.Ledger, s privacy.Spending, limit float64,
	again bool) (total float64, earlier int, err error) {
	total, earlier, err = l.Spend(s, limit, again)
	if err == nil {
		return total, earlier, nil
	}
	if was, failed := l.Find(s); failed == nil && (was == nil || !slices.Equal(was.Files, s.Files)) {
		all.drop()
	}
	return total, earlier, err
}

// place moves the files to their places, one after the other.
func (all heldFiles) place() error {
	for _, h := range all {
		if err := os.Rename(h.aside, h.path); err != nil {
			return err
		}
	}
	return nil
}

func (all heldFiles) drop() {
	for _, h := range all {
		os.Remove(h.aside)
	}
}

// paidFor returns a file of the ledger as it was written; nil where it is nowhere. One that a
// stopped program did not move to its place is moved now, unless another file is there.
func paidFor(f privacy.Written, most int64) []byte {
	h := heldAt(f.Path, f.Sha256)
	for _, path := range []string{f.Path, h.aside} {
		data, err := regularfile.ReadOutput(path, most)
		if err != nil || models.DigestBytes(data) != f.Sha256 {
			continue
		}
		if path == f.Path {
			heldFiles{h}.drop() // it was written to its place from there
		} else if _, err := os.Lstat(h.path); errors.Is(err, fs.ErrNotExist) {
			heldFiles{h}.place() //nolint:errcheck // it can be read where it is
		}
		return data
	}
	return nil
}
