package experiment

import (
	"path/filepath"
	"strings"
)

// Portable is the settings without places of the machine, as a run directory keeps them: it may be committed or
// shared. A path inside the working folder stays as it is. Of other paths of models the file's name is left
// (run.json has its digest, and --extractor, --predictor or --embedding say where it is), of a data set's folder
// "./" and its name; folders of data and results and the library's place are left out, as the defaults find them.
func (c Config) Portable() Config {
	for _, p := range []*string{&c.Extractor.Model, &c.Conjugate.Model, &c.Predictor.Model, &c.Embedding.Model, &c.Open.Model} {
		if !inside(*p) {
			*p = filepath.Base(*p)
		}
	}
	for _, p := range []*string{&c.Dataset.Name, &c.Corpus.Dataset} {
		if !inside(*p) {
			// With "./" it is a folder still, and not a data set of the program's.
			*p = "./" + Dataset{Name: *p}.Label()
		}
	}
	for _, p := range []*string{&c.Dataset.Dir, &c.Output.Dir, &c.Engine.Library} {
		if !inside(*p) {
			*p = ""
		}
	}
	return c
}

// Label is the data set's name as results call it: of a folder its own name, without the path.
func (d Dataset) Label() string {
	if !strings.ContainsAny(d.Name, `/\`) {
		return d.Name
	}
	if abs, err := filepath.Abs(d.Name); err == nil {
		return filepath.Base(abs)
	}
	return filepath.Base(d.Name)
}

// inside reports whether a path says nothing of the machine: empty, a name, or inside the working folder.
func inside(path string) bool { return path == "" || filepath.IsLocal(path) }

// fileNames are the names, without folders, of the models that the settings give as files.
func (c Config) fileNames() map[string]string {
	out := map[string]string{}
	for kind, path := range map[string]string{"extractor": c.Extractor.Model, "conjugate": c.Conjugate.Model, "predictor": c.Predictor.Model, "embedding": c.Embedding.Model, "open": c.Open.Model} {
		if path != "default" && path != "untrained" {
			out[kind] = filepath.Base(path)
		}
	}
	return out
}
