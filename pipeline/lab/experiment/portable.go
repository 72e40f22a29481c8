package experiment

import (
	"path/filepath"
	"slices"

	"fmp/pipeline/settings"
)

// Portable returns the settings without paths of this machine, as a run directory keeps them: it
// may be committed or shared. A path inside the working folder is kept. Other paths of models are
// reduced to the file's name (run.json has its digest, and --extractor, --predictor or --embedding
// give its path), those of data sets' folders to "./" and their names; the folders of data and
// results and the library's path are left out, as the defaults find them.
func (c Config) Portable() Config {
	for _, p := range c.models() {
		if !inside(*p) {
			*p = filepath.Base(*p)
		}
	}
	sets := []*string{&c.Dataset.Name, &c.Corpus.Dataset}
	c.Scores.Other = slices.Clone(c.Scores.Other)
	for i := range c.Scores.Other {
		sets = append(sets, &c.Scores.Other[i])
	}
	for _, p := range sets {
		if !inside(*p) {
			// "./" marks it as a folder, not one of the program's data sets.
			*p = "./" + label(*p)
		}
	}
	for _, p := range []*string{&c.Dataset.Dir, &c.Output.Dir, &c.Engine.Library} {
		if !inside(*p) {
			*p = ""
		}
	}
	return c
}

// label returns the name that a data set has in results ([settings.Dataset.Label]).
func label(name string) string { return settings.Dataset{Name: name}.Label() }

// inside reports whether a path reveals nothing of the machine: it is empty, a name, or inside the
// working folder.
func inside(path string) bool { return path == "" || filepath.IsLocal(path) }

// models returns the settings of models, by kind.
func (c *Config) models() map[string]*string {
	return map[string]*string{"extractor": &c.Extractor.Model, "conjugate": &c.Conjugate.Model,
		"predictor": &c.Predictor.Model, "embedding": &c.Embedding.Model, "open": &c.Open.Model,
		"private": &c.Privacy.Model}
}

// fileNames returns the names, without folders, of the models that the settings give as files.
func (c Config) fileNames() map[string]string {
	out := map[string]string{}
	for kind, path := range c.models() {
		if (kind != "private" || c.Privacy.Epsilon > 0) &&
			!slices.Contains([]string{"default", "untrained", "none"}, *path) {
			out[kind] = filepath.Base(*path)
		}
	}
	return out
}
