package main

import (
	"os"
	"reflect"

	"github.com/spf13/pflag"

	"fmp/cmd/internal/outputs"
	"fmp/featurize/extractor"
	"fmp/models"
	"fmp/onnx"
	"fmp/onnx/atomicfile"
	"fmp/onnx/serde"
)

// sidecar is the side-car file OUT.yaml of a model that was made of another. Its lifetime is one
// command: made before the work, asked with fits, and written after the model.
type sidecar struct {
	// path is the model's name with .yaml.
	path   string
	output string // the value of features that it names; "": none
	data   []byte // nil: nothing is to be said
}

// newSidecar makes, before the work, the side-car of a model at out that takes images as the one at
// path does with x. Where the other's own metadata say it all it is written if always is set, or if
// another file would be taken for out's. Only the name is looked at, and nothing is written yet.
func newSidecar(f *pflag.FlagSet, path, out string, m models.Manifest, x extractor.Options,
	always bool) (*sidecar, error) {
	side, from, err := extractor.Sidecar(path)
	if err != nil {
		return nil, usageError(err)
	}
	s := &sidecar{path: out + ".yaml", output: side.Output}
	_, taken, unread := extractor.Sidecar(out)
	if !always && from == "" && taken == "" && reflect.ValueOf(x).IsZero() {
		return s, nil
	}
	if err := outputs.Beside(f, "out", s.path, from); err != nil {
		return nil, usageError(err)
	}
	// A file that can be read as a side-car is this program's to replace.
	if _, err := os.Lstat(s.path); err == nil && unread != nil {
		return nil, usageErrorf("%s: it is no side-car, and would be overwritten by that of %s: "+
			"%w; give the output another name", s.path, out, unread)
	}
	if s.data, err = extractor.NewSidecar(path, m, x); err != nil {
		return nil, usageError(err)
	}
	return s, nil
}

// fits returns an error where the side-car names features that a model lacks. It is asked before
// the model is written. extractor.Body finds the value or fails.
func (s *sidecar) fits(m *onnx.Model) error {
	if s.output == "" {
		return nil
	}
	if _, _, err := extractor.Body(m, extractor.Options{Output: s.output}); err != nil {
		return usageErrorf("the side-car names the features %q, which the model that would be "+
			"written lacks: name another value, or give it as an output of the model", s.output)
	}
	return nil
}

// save writes a model that was made of the one at path, then its side-car, and returns the bytes of
// both models. A fault of the side-car leaves the model in its place without it.
func (s *sidecar) save(m *onnx.Model, path, out string) (before, after int64, err error) {
	if err = s.fits(m); err == nil {
		err = serde.Save(out, m)
	}
	if err == nil {
		err = s.write()
	}
	if err != nil {
		return 0, 0, err
	}
	return sizes(path, out)
}

// write writes the side-car, where there is anything to say.
func (s *sidecar) write() error {
	if s.data == nil {
		return nil
	}
	return atomicfile.WriteBytes(s.path, s.data)
}

// noSidecar returns an error where a side-car that is there would be taken for that of a model
// whose own metadata say how images are fed to it, or that takes none. Empty names are passed over,
// for outputs that are optional.
func noSidecar(models ...string) error {
	for _, m := range models {
		if m == "" {
			continue
		}
		switch _, path, err := extractor.Sidecar(m); {
		case err != nil:
			return usageErrorf("%s is read as the side-car of %s, and cannot be: %w; move it "+
				"away, or give the output another name", path, m, err)
		case path != "":
			return usageErrorf("%s would say how images are fed to %s, and was made for another "+
				"model: move it away, or give the output another name", path, m)
		}
	}
	return nil
}
