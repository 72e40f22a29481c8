package experiment

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"
)

// Summary describes one run directory in a list.
type Summary struct {
	Path     string `json:"path"`
	Identity string `json:"identity"`
	// Date is when results were last written.
	Date    time.Time `json:"date"`
	Dataset string    `json:"dataset"`
	// Extractor is the name of the extractor's file, or "shipped".
	Extractor string    `json:"extractor"`
	Methods   []string  `json:"methods"`
	Seeds     int       `json:"seeds"`
	Finished  int       `json:"finished"` // cells
	Cells     int       `json:"cells"`
	Records   []Record  `json:"-"` // of the finished cells
	Manifest  *Manifest `json:"-"`
}

// maxListDepth bounds the depth of the search for runs, so that a large folder is not walked whole.
const maxListDepth = 4

// List returns the run directories in and below root, in the order of their paths, those that links
// lead to from elsewhere among them. It does not search inside a run directory, nor further behind
// a link. A folder that cannot be read is in the error, once, and hides no other: the runs are
// returned with it. Nothing is written or locked, so that runs at work are listed as they are.
func List(root string) ([]Summary, error) {
	var out []Summary
	var bad []error
	real, err := resolved(root) // a walk does not follow its root where that is a link
	if err != nil {
		return nil, fmt.Errorf("looking for runs in %s: %w; give a folder that can be read", root,
			err)
	}
	err = filepath.WalkDir(real, func(path string, e fs.DirEntry, err error) error {
		if err != nil {
			bad = append(bad, Unread(root, err))
			return nil
		}
		if !e.IsDir() && !leadsOut(path, real) {
			return nil
		}
		rel, err := filepath.Rel(real, path)
		if err != nil {
			return Unread(root, err)
		}
		if strings.Count(rel, string(filepath.Separator)) >= maxListDepth {
			return fs.SkipDir
		}
		s, err := Summarise(filepath.Join(root, rel))
		if err != nil {
			bad = append(bad, Unread(root, err))
		}
		if err != nil && e.IsDir() && closed(path) {
			return fs.SkipDir // the walk would name it again, or everything in it
		}
		if s == nil {
			return nil
		}
		if out = append(out, *s); e.IsDir() {
			return fs.SkipDir
		}
		return nil
	})
	return out, errors.Join(append(bad, err)...)
}

// Unread is the error of a folder below root that cannot be read as a run; err names the folder.
func Unread(root string, err error) error {
	remedy := "move the folder elsewhere, or run again"
	if errors.Is(err, fs.ErrPermission) {
		remedy = "permit reading it, or move it elsewhere"
	}
	return fmt.Errorf("looking for runs in %s: %w; %s", root, err, remedy)
}

// closed reports whether permissions keep the files of a folder from being looked up. A folder
// without that file is not closed.
func closed(dir string) bool {
	_, err := os.Lstat(filepath.Join(dir, RunFile))
	return errors.Is(err, fs.ErrPermission)
}

// resolved is the whole path of a folder, without links.
func resolved(path string) (string, error) {
	path, err := filepath.EvalSymlinks(path)
	if err != nil {
		return "", err
	}
	return filepath.Abs(path)
}

// leadsOut reports whether a path is a link to a folder that is not below root, where it would be
// found twice.
func leadsOut(path, root string) bool {
	target, err := resolved(path)
	if err != nil {
		return false
	}
	st, err := os.Stat(target)
	if err != nil || !st.IsDir() {
		return false
	}
	rel, err := filepath.Rel(root, target)
	return err != nil || !filepath.IsLocal(rel)
}

// Summarise reads the results in a run directory so far; nil if it is not a run. A cell counts as
// finished in the journal and in the results, and once where a run was killed between both. Records
// of the results replace none of the journal: of two of a cell the first is kept, and these are
// equal.
func Summarise(path string) (*Summary, error) {
	m, err := ReadManifest(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	c, err := ReadConfig(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil // stopped before the run started
	}
	if err != nil {
		return nil, err
	}
	cells, err := Cells(&c)
	if err != nil {
		return nil, fmt.Errorf("run directory %s: %w", path, err)
	}
	s := &Summary{Path: path, Identity: m.Identity, Dataset: c.Dataset.Label(),
		Extractor: "shipped", Seeds: c.Seeds, Cells: len(cells), Manifest: m}
	if name := m.Files["extractor"]; name != "" {
		s.Extractor = name
	}
	for _, name := range []string{RunFile, ResultsFile, JournalFile} {
		if st, err := os.Stat(filepath.Join(path, name)); err == nil && st.ModTime().After(s.Date) {
			s.Date = st.ModTime()
		}
	}
	var whole bool // results.jsonl
	// The results come second, so that whole is theirs.
	for _, name := range []string{JournalFile, ResultsFile} {
		var rs []Record
		if rs, whole, err = readRecords(filepath.Join(path, name)); err != nil {
			return nil, err
		}
		s.Records = append(s.Records, rs...)
	}
	lacks := c.lacking(m.Methods, s.Records)
	s.Records = sortRecords(s.Records, cells)
	s.Finished = len(s.Records)
	for _, c := range cells {
		if !slices.Contains(s.Methods, c.Method) {
			s.Methods = append(s.Methods, c.Method)
		}
	}
	if _, err := os.Stat(filepath.Join(path, ResultsFile)); err == nil {
		if whole && s.Finished > 0 {
			s.Cells = s.Finished + len(lacks) // an earlier version had fewer methods
		}
		outside, err := readOutside(path)
		if err != nil {
			return nil, err
		}
		for _, r := range outside {
			if s.Records = append(s.Records, r); !slices.Contains(s.Methods, r.Method) {
				s.Methods = append(s.Methods, r.Method)
			}
		}
	}
	return s, nil
}
