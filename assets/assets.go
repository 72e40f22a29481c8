// Package assets holds what the program carries inside: settings files by name, and the trained models of
// the data sets that it knows.
package assets

import (
	"embed"
	"errors"
	"fmt"
	"io/fs"
	"path"
	"strings"
)

//go:embed configs
var configs embed.FS

//go:embed models
var models embed.FS

// ConfigNames lists the settings files that come with the program.
func ConfigNames() []string {
	entries, err := configs.ReadDir("configs")
	if err != nil {
		return nil // the folder is embedded; there is always one
	}
	var out []string
	for _, e := range entries {
		if n, ok := strings.CutSuffix(e.Name(), ".yaml"); ok {
			out = append(out, n)
		}
	}
	return out
}

// Config is the settings file called name (YAML), such as "demo".
func Config(name string) ([]byte, error) {
	b, err := configs.ReadFile("configs/" + name + ".yaml")
	if err != nil {
		return nil, fmt.Errorf("no settings file called %q comes with the program; there are %s", name, strings.Join(ConfigNames(), ", "))
	}
	return b, nil
}

// Datasets lists the data sets that models come with the program for.
func Datasets() []string {
	entries, err := models.ReadDir("models")
	if err != nil {
		return nil // the folder is embedded; there is always one
	}
	var out []string
	for _, e := range entries {
		if e.IsDir() {
			out = append(out, e.Name())
		}
	}
	return out
}

// Model is the shipped model of a data set: kind is extractor, conjugate, predictor, embedding or client, the file
// models/DATASET/KIND.onnx. The error wraps [fs.ErrNotExist] where none is shipped.
func Model(dataset, kind string) ([]byte, error) {
	if strings.ContainsAny(dataset, `/\`) {
		return nil, fmt.Errorf("no %s for data set %q comes with the program: %w", kind, dataset, fs.ErrNotExist)
	}
	b, err := models.ReadFile(path.Join("models", dataset, kind+".onnx"))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("no %s for data set %q comes with the program: %w", kind, dataset, fs.ErrNotExist)
	}
	return b, err
}
