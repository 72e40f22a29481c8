// Package assets embeds the files that the program ships with: settings files by name, and the
// trained models of the data sets that it knows.
package assets

import (
	"embed"
	"fmt"
	"io/fs"
	"path"
	"slices"
	"strings"

	"github.com/klauspost/compress/zstd"

	"fmp/assets/internal/planes"
)

//go:embed configs
var configs embed.FS

//go:embed models/*/*.planes models/*/*.zst models/*/*.upload
var models embed.FS

// ConfigNames lists the names of the settings files that come with the program.
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

// Config returns the settings file (YAML) called name, such as "demo".
func Config(name string) ([]byte, error) {
	b, err := configs.ReadFile("configs/" + name + ".yaml")
	if err != nil {
		return nil, fmt.Errorf("no settings file called %q comes with the program; there are %s",
			name, strings.Join(ConfigNames(), ", "))
	}
	return b, nil
}

// Datasets lists the data sets for which models come with the program.
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

// Kinds lists the models of a data set that come with the program.
func Kinds(dataset string) []string {
	entries, err := models.ReadDir(path.Join("models", dataset))
	if err != nil {
		return nil // a data set without models
	}
	var out []string
	for _, e := range entries {
		if kind, _, ok := strings.Cut(e.Name(), ".onnx"); ok {
			out = append(out, kind)
		}
	}
	return out
}

// maxModel bounds the size of a shipped model, in bytes.
const maxModel = 64 << 20

// Model returns the shipped model of a data set, the file models/DATASET/KIND.onnx; kind is
// extractor, conjugate, open, private, predictor, embedding or client. Models are stored packed
// ([planes]), and a client graph, which repeats the extractor, as its difference from it (zstd
// --patch-from, 3 KB for 2 MB). The error wraps [fs.ErrNotExist] where none is shipped.
func Model(dataset, kind string) ([]byte, error) {
	missing := fmt.Errorf("no %s for data set %q comes with the program: %w", kind,
		dataset, fs.ErrNotExist)
	if !slices.Contains(Datasets(), dataset) {
		return nil, missing
	}
	file := path.Join("models", dataset, kind+".onnx")
	if packed, err := models.ReadFile(file + ".planes"); err == nil {
		b, err := planes.Unpack(packed, maxModel)
		if err != nil {
			return nil, fmt.Errorf("the shipped %s for %s: %w", kind, dataset, err)
		}
		return b, nil
	}
	patch, err := models.ReadFile(file + ".zst")
	if err != nil {
		return nil, missing
	}
	extractor, err := Model(dataset, "extractor")
	if err != nil {
		return nil, err
	}
	dec, err := zstd.NewReader(nil, zstd.WithDecoderDictRaw(0, extractor),
		zstd.WithDecoderConcurrency(1))
	if err != nil {
		return nil, err
	}
	defer dec.Close()
	b, err := dec.DecodeAll(patch, nil)
	if err != nil {
		return nil, fmt.Errorf("the shipped %s for %s: %w", kind, dataset, err)
	}
	return b, nil
}

// Anchor returns the class means of images of a data set's corpus by which clients are judged, the
// upload models/DATASET/anchor.upload (fmp anchor). The error wraps [fs.ErrNotExist] where none is
// shipped.
func Anchor(dataset string) ([]byte, error) {
	data, err := models.ReadFile(path.Join("models", dataset, "anchor.upload"))
	if err != nil {
		return nil, fmt.Errorf("no anchor for data set %q comes with the program: %w",
			dataset, fs.ErrNotExist)
	}
	return data, nil
}
