package experiment

import (
	"fmp/pipeline/settings"
	"path/filepath"
)

// Portable returns the settings without paths of this machine, as a run directory keeps them: it
// may be committed or shared. A path inside the working folder is kept. Other paths of models are
// reduced to the file's name (run.json has its digest, and --extractor, --predictor or --embedding
// give its path), that of a data set's folder to "./" and its name; the folders of data and results
// and the library's path are left out, as the defaults find them.
func (c Config) Portable() Config {
	for _, p := range []*string{&c.Extractor.Model, &c.Conjugate.Model, &c.Predictor.Model,
		&c.Embedding.Model, &c.Open.Model} {
		if !inside(*p) {
			*p = filepath.Base(*p)
		}
	}
	for _, p := range []*string{&c.Dataset.Name, &c.Corpus.Dataset} {
		if !inside(*p) {
			// "./" marks it as a folder, not one of the program's data sets.
			*p = "./" + settings.Dataset{Name: *p}.Label()
		}
	}
	for _, p := range []*string{&c.Dataset.Dir, &c.Output.Dir, &c.Engine.Library} {
		if !inside(*p) {
			*p = ""
		}
	}
	return c
}

// inside reports whether a path reveals nothing of the machine: it is empty, a name, or inside the
// working folder.
func inside(path string) bool { return path == "" || filepath.IsLocal(path) }

// fileNames returns the names, without folders, of the models that the settings give as files.
func (c Config) fileNames() map[string]string {
	out := map[string]string{}
	for kind, path := range map[string]string{"extractor": c.Extractor.Model,
		"conjugate": c.Conjugate.Model, "predictor": c.Predictor.Model,
		"embedding": c.Embedding.Model, "open": c.Open.Model} {
		if path != "default" && path != "untrained" {
			out[kind] = filepath.Base(path)
		}
	}
	return out
}
