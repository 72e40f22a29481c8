package dataset

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"fmp/featurize/digits"
	"fmp/onnx/suggest"
)

// ErrNotFound is wrapped by the error that [Find] returns where no folder holds the data set.
// Errors of [Load] wrap it too.
var ErrNotFound = errors.New("not found")

// Dirs lists the data folders in the order they are searched: the setting alone where it is given,
// else $FMP_DATA, then fmp/data in the user's cache folder. A folder in the list need not exist.
func Dirs(setting string) []string {
	if setting != "" {
		return []string{setting}
	}
	var out []string
	if d := os.Getenv("FMP_DATA"); d != "" {
		out = append(out, d)
	}
	if c, err := os.UserCacheDir(); err == nil {
		out = append(out, filepath.Join(c, "fmp", "data"))
	}
	return out
}

// Find returns the folder that holds the data set called name: the path itself where name is one
// (it holds a separator or is "."), else a folder in one of [Dirs], or the folder of the setting
// where that holds the files itself. Of several folders the first one that holds a data set of any
// format is taken. Names are not tried as paths: a folder of the working directory called mnist is
// none of MNIST.
func Find(name, setting string) (string, error) {
	if strings.ContainsAny(name, `/\`) || name == "." || name == ".." {
		if !isDir(name) {
			return "", fmt.Errorf("%w: %s is no folder; give a folder of images by class, "+
				"or a name: %s", ErrNotFound, name, strings.Join(Names(), ", "))
		}
		return name, nil
	}
	// A data set that has no entry lies in a folder of its own name.
	of, official := Lookup(name)
	if len(of.Folders) == 0 {
		of.Folders = []string{name}
	}
	var tried []string
	for _, d := range Dirs(setting) {
		for _, f := range of.Folders {
			p := filepath.Join(d, f)
			if _, err := Detect(p); err == nil {
				return p, nil
			}
		}
		// The setting may name the folder of the files itself.
		// Its format must be that of the data set, or its name the one that was asked for.
		// Otherwise any folder would pass for any name.
		if kind, err := Detect(d); setting != "" && err == nil &&
			(kind == of.Kind || of.Kind == "" && filepath.Base(d) == name) {
			return d, nil
		}
		tried = append(tried, d)
	}
	if official && of.Files == nil {
		return "", fmt.Errorf("%w in %s; get it from %s and give fmp data import FOLDER --name %s",
			ErrNotFound, strings.Join(tried, ", "), of.Home, name)
	}
	if official {
		return "", fmt.Errorf("%w in %s; get it with `fmp data pull %s`, or name its folder with "+
			"--dataset.dir", ErrNotFound, strings.Join(tried, ", "), name)
	}
	// The names in the searched folders serve the suggestion alone.
	known := Names()
	for _, d := range tried {
		for _, s := range imported(d) {
			if !slices.Contains(known, s) {
				known = append(known, s)
			}
		}
	}
	return "", fmt.Errorf("%w in %s; known names are %s; a folder of images is given by its "+
		"path (./%s)%s", ErrNotFound, strings.Join(tried, ", "), strings.Join(known, ", "), name,
		suggest.DidYouMean(name, known))
}

// Same reports whether two names are of one data set: the same name, or of the same folder however
// it is spelt. setting is that of [Dirs]. Drawn data sets are the same only by name. The comparison
// is of the folders on the disk ([os.SameFile]), so that links and spellings do not matter.
func Same(a, b, setting string) bool {
	if a == b {
		return true
	}
	folder := func(name string) os.FileInfo {
		if _, drawn := digits.VariantByName(name); drawn {
			return nil
		}
		path, err := Find(name, setting)
		if err != nil {
			return nil
		}
		st, _ := os.Stat(path) // nil where it cannot be read
		return st
	}
	x, y := folder(a), folder(b)
	return x != nil && y != nil && os.SameFile(x, y)
}

// Status says whether a data set can be read, and from where.
type Status struct {
	Name    string `json:"name"`
	Present bool   `json:"present"`
	Where   string `json:"where"`             // a folder, or "drawn from a seed"
	Kind    Kind   `json:"kind,omitempty"`    // format of the files
	Missing string `json:"missing,omitempty"` // why it cannot be read
}

// List returns the status of every data set of [Names], and of other folders in the data folders
// that hold one. Data sets of the list of [All] come first. A folder under several data folders is
// listed once for each. Nothing but names of files is read.
func List(setting string) []Status {
	var out []Status
	taken := map[string]bool{}
	for _, k := range All() {
		n := k.Name
		if k.Kind == "" {
			out = append(out, Status{Name: n, Present: true, Where: "drawn from a seed"})
			continue
		}
		s := Status{Name: n}
		if p, err := Find(n, setting); err != nil {
			s.Missing = err.Error()
		} else {
			s.Present, s.Where = true, p
			// Find has detected it, so that no error is left.
			s.Kind, _ = Detect(p)
			taken[p] = true
		}
		out = append(out, s)
	}
	for _, d := range Dirs(setting) {
		for _, name := range imported(d) {
			p := filepath.Join(d, name)
			if taken[p] {
				continue
			}
			if kind, err := Detect(p); err == nil {
				out = append(out, Status{Name: name, Present: true, Where: p, Kind: kind})
			}
		}
	}
	return out
}

// imported lists the folders of a data folder that hold a data set, the official ones apart, in
// order. A folder that cannot be read has none. Hidden folders are passed over:
// [fmp/featurize/store] unpacks there.
func imported(dir string) []string {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return nil
	}
	official := map[string]bool{}
	for _, k := range All() {
		for _, n := range k.Folders {
			official[n] = true
		}
	}
	var out []string
	for _, e := range entries {
		if official[e.Name()] || strings.HasPrefix(e.Name(), ".") {
			continue
		}
		if _, err := Detect(filepath.Join(dir, e.Name())); err == nil {
			out = append(out, e.Name())
		}
	}
	return out
}

// Kind is a format of data set files.
type Kind string

// The formats that can be read.
const (
	KindIDX      Kind = "idx"
	KindCIFAR10  Kind = "cifar10"
	KindCIFAR100 Kind = "cifar100"
	KindFolder   Kind = "folder"
)

// Detect determines the format of the data set in a folder from the names of its files. Contents
// are checked when they are read. Folders of classes come last, as beside other files there may be
// folders of any kind. Its error wraps [ErrNotFound] where no format is recognised. IDX and
// CIFAR-10 are recognised by any one of their files, so that their reader names a missing one.
func Detect(dir string) (Kind, error) {
	if !isDir(dir) {
		return "", fmt.Errorf("%w: no folder %s", ErrNotFound, dir)
	}
	// Any batch will do: some may be missing.
	if p, _ := filepath.Glob(filepath.Join(globQuote(dir), "data_batch_*.bin")); len(p) > 0 {
		return KindCIFAR10, nil
	}
	if isFile(filepath.Join(dir, "train.bin")) && isFile(filepath.Join(dir, "test.bin")) {
		return KindCIFAR100, nil
	}
	for _, f := range idxFiles {
		if findIDX(dir, f) != "" {
			return KindIDX, nil
		}
	}
	entries, err := os.ReadDir(dir)
	if err != nil {
		return "", err
	}
	// Links to folders count, as isDir follows them.
	for _, e := range entries {
		if !strings.HasPrefix(e.Name(), ".") && isDir(filepath.Join(dir, e.Name())) {
			return KindFolder, nil
		}
	}
	return "", fmt.Errorf("%w: %s holds neither IDX files (train-images-idx3-ubyte "+
		"...), nor CIFAR batches (data_batch_1.bin ... or train.bin and test.bin), nor a folder "+
		"for each class", ErrNotFound, dir)
}

// globQuote escapes the characters that filepath.Glob reads as a pattern.
func globQuote(s string) string {
	return strings.NewReplacer(`*`, `[*]`, `?`, `[?]`, `[`, `[[]`).Replace(s)
}

// isFile reports whether path is an existing regular file, or a link to one.
func isFile(path string) bool {
	st, err := os.Stat(path)
	return err == nil && st.Mode().IsRegular()
}
