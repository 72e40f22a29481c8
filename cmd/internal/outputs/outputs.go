// Package outputs checks the files that a command of fmp or fmp-edge writes, before its work. The
// command says which of its flags name outputs; none of these may be an input, or another output,
// by any name or link.
package outputs

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/spf13/pflag"

	"fmp/onnx/atomicfile"
	"fmp/onnx/regularfile"
	"fmp/pipeline/privacy"
)

// annotation marks a flag as the name of an output.
const annotation = "fmp.output"

// Kinds of outputs: of a file the folder must be there, and of made ones folders are made.
const (
	file = "file"
	made = "made"
)

// kept are flags of files that are read where they are there, and begun where they are not. An
// output in their place is refused before they are begun.
var kept = []string{"ledger", "state"}

// words are flags of names that people choose freely, and that a file may bear by chance.
var words = []string{"class-names", "client", "for", "groups", "host", "licence", "method",
	"model-version", "name", "only", "without"}

// Files marks flags as names of files that the command writes.
func Files(f *pflag.FlagSet, names ...string) { mark(f, file, names) }

// Made marks flags as names of files or folders that the command writes, with the folders that they
// lie in where these are missing.
func Made(f *pflag.FlagSet, names ...string) { mark(f, made, names) }

// Marked reports whether a flag names an output.
func Marked(f *pflag.Flag) bool { return len(f.Annotations[annotation]) > 0 }

// Free reports whether a flag's value is a name that people choose freely, and no file's.
func Free(f *pflag.Flag) bool { return slices.Contains(words, f.Name) }

// mark notes the kind of output at each flag. A name that is no flag is a fault of the program.
func mark(f *pflag.FlagSet, kind string, names []string) {
	for _, name := range names {
		if err := f.SetAnnotation(name, annotation, []string{kind}); err != nil {
			panic(err) // no such flag: a fault of the program
		}
	}
}

// output is one that a flag names. info is of the file that is there, by which links and other
// names of it are known.
type output struct {
	flag, path string
	info       fs.FileInfo // nil: not there yet
}

// Check returns an error where an output of the command is one of its arguments, a file that
// another flag names, or another output: the same file by any name or link. So it does where an
// output cannot be written, for a reason that is known before any work. From then on no file that
// would be overwritten can be read ([regularfile.Guard]), also one named in a list or settings,
// until release is called.
func Check(f *pflag.FlagSet, args []string) (release func(), err error) {
	if err := empty(f); err != nil {
		return nil, err
	}
	var outputs []output
	f.VisitAll(func(flag *pflag.Flag) {
		path := flag.Value.String()
		if !Marked(flag) || path == "" || err != nil {
			return
		}
		if flag.Annotations[annotation][0] == file {
			if err = atomicfile.Ready(path); err != nil {
				err = fmt.Errorf("--%s: %w", flag.Name, err)
				return
			}
		}
		o := output{flag: flag.Name, path: path}
		o.info, _ = os.Stat(path) // nil where it is not there
		outputs = append(outputs, o)
	})
	if err != nil {
		return nil, err
	}
	for i, o := range outputs {
		for _, other := range outputs[:i] {
			if Same(o.path, other.path) {
				return nil, fmt.Errorf("--%s and --%s are one file, %s: give each a "+
					"name of its own", other.flag, o.flag, o.path)
			}
		}
	}
	if err := distinct(f, args, outputs); err != nil {
		return nil, err
	}
	var there []fs.FileInfo
	for _, o := range outputs {
		if o.info != nil && o.info.Mode().IsRegular() {
			there = append(there, o.info)
		}
	}
	return regularfile.Guard(there), nil
}

// Setting is the value of a flag that may be empty where it is given: it takes the place of another
// source's.
type Setting interface{ Setting() }

// empty returns an error for a flag that is given without text, as by "$(cat FILE)" of a file that
// is missing: a key, or whom an output is for, would be taken as not given.
func empty(f *pflag.FlagSet) (err error) {
	f.Visit(func(flag *pflag.Flag) {
		_, setting := flag.Value.(Setting)
		if flag.Value.Type() == "string" && flag.Value.String() == "" && !setting && err == nil {
			err = fmt.Errorf("--%s is empty: give it a value, or leave it out", flag.Name)
		}
	})
	return err
}

// Claim is Check for a file that no flag names, before anything is read. The name is of the
// program's choice, as beside another output.
func Claim(path string) (release func(), err error) {
	if err := atomicfile.Ready(path); err != nil {
		return nil, err
	}
	var there []fs.FileInfo
	if info, err := os.Stat(path); err == nil {
		there = append(there, info)
	}
	return regularfile.Guard(there), nil
}

// Beside returns an error where a file that the command writes beside the output of a flag cannot
// be written, or is one of some inputs or the file of a flag.
func Beside(f *pflag.FlagSet, flag, path string, inputs ...string) error {
	if err := atomicfile.Ready(path); err != nil {
		return fmt.Errorf("--%s: %w", flag, err)
	}
	o := output{flag: flag, path: path}
	o.info, _ = os.Stat(path) // nil where it is not there
	return distinct(f, inputs, []output{o})
}

// distinct returns an error where an output is an argument or the value of another flag.
func distinct(f *pflag.FlagSet, args []string, outputs []output) (err error) {
	clash := func(what, path string) error {
		info, failed := os.Stat(path)
		if failed != nil {
			return nil // no file, or one that the reading will complain of
		}
		for _, o := range outputs {
			if o.info != nil && os.SameFile(o.info, info) {
				return fmt.Errorf("--%s %s: it is %s too, which would be overwritten: give "+
					"another name", o.flag, o.path, what)
			}
		}
		return nil
	}
	for _, a := range args {
		if err := clash("the input "+a, a); err != nil {
			return err
		}
	}
	f.Visit(func(flag *pflag.Flag) {
		if Marked(flag) || Free(flag) {
			return
		}
		if slices.Contains(kept, flag.Name) {
			if taken := begun(flag, outputs); taken != nil {
				err = errors.Join(err, taken)
				return
			}
		}
		for _, path := range paths(flag.Value) {
			err = errors.Join(err, clash(fmt.Sprintf("the file of --%s", flag.Name), path))
		}
	})
	return err
}

// begun returns an error where an output is a file that the command keeps, or a ledger's seal:
// neither need be there yet. Files that are there are known by their identity, others by their
// name.
func begun(flag *pflag.Flag, outputs []output) error {
	for _, o := range outputs {
		name := flag.Value.String()
		for _, path := range (privacy.Ledger{Path: name}).Files() {
			if Same(o.path, path) {
				return fmt.Errorf("--%s %s: it is the file of --%s too, which would be "+
					"overwritten: give another name", o.flag, o.path, flag.Name)
			}
		}
	}
	return nil
}

// paths returns the parts of a flag's value that may be names of files: the value, its items, and
// the FILE of NAME=FILE. More of them than there are files do no harm: a name that is no file's is
// passed over.
func paths(v pflag.Value) []string {
	out := []string{v.String()}
	if s, ok := v.(pflag.SliceValue); ok {
		out = s.GetSlice()
	} else if strings.Contains(out[0], ",") {
		out = append(out, strings.Split(out[0], ",")...)
	}
	for _, p := range slices.Clone(out) {
		if _, value, ok := strings.Cut(p, "="); ok {
			out = append(out, value)
		}
	}
	return out
}

// Same reports whether two paths are of one file by any name or link. Where neither is there yet,
// names that differ by case alone are one, as on Windows, macOS and many a disk, and a link to a
// file that is not there is a name of its own.
func Same(a, b string) bool {
	x, errX := os.Stat(a)
	y, errY := os.Stat(b)
	if errX == nil || errY == nil {
		return errX == nil && errY == nil && os.SameFile(x, y)
	}
	a, errX = filepath.Abs(a)
	b, errY = filepath.Abs(b)
	up, other := filepath.Dir(a), filepath.Dir(b)
	return errX == nil && errY == nil && strings.EqualFold(filepath.Base(a), filepath.Base(b)) &&
		(up == a || other == b || Same(up, other)) // the first two: of a disk that is not there
}
