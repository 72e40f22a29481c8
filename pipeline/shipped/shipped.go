// Package shipped returns the models that come with the program: by data set, by the digest of
// their file, or by the extractor that they were trained behind. Its errors wrap [fs.ErrNotExist]
// where the program carries no such model.
package shipped

import (
	"errors"
	"fmt"
	"io/fs"
	"sync"

	"fmp/assets"
	"fmp/models"
	"fmp/onnx"
	"fmp/onnx/serde"
)

// Load returns a data set's model of one kind, with its manifest.
func Load(dataset, kind string) (*onnx.Model, models.Manifest, error) {
	data, err := assets.Model(dataset, kind)
	if err != nil {
		return nil, models.Manifest{}, err
	}
	var f models.Manifest
	m, err := serde.Unmarshal(data)
	if err == nil {
		f, err = models.ReadManifest(m)
	}
	if err != nil {
		return nil, models.Manifest{}, fmt.Errorf("shipped %s of %s: %w", kind, dataset, err)
	}
	f.Source, f.Digest = "shipped with the program for "+dataset, models.DigestBytes(data)
	return m, f, nil
}

// file names a model that comes with the program.
type file struct{ dataset, kind string }

// files returns the models that rounds name by the sha256 of their files.
var files = sync.OnceValues(func() (map[string]file, error) {
	out := map[string]file{}
	for _, d := range assets.Datasets() {
		for _, kind := range []string{models.KindClient, models.KindEmbedding, models.KindPredictor,
			models.KindConjugate} {
			data, err := assets.Model(d, kind)
			if errors.Is(err, fs.ErrNotExist) {
				continue
			}
			if err != nil {
				return nil, err
			}
			out[models.DigestBytes(data)] = file{d, kind}
		}
	}
	return out, nil
})

// Dataset returns the data set of the client graph, embedding or predictor whose file has the given
// sha256.
func Dataset(digest string) (string, error) {
	at, err := lookup(digest)
	return at.dataset, err
}

func lookup(digest string) (file, error) {
	all, err := files()
	if err != nil {
		return file{}, err
	}
	at, ok := all[digest]
	if !ok {
		return file{}, fmt.Errorf("no model of sha256 %.12s comes with the program: %w",
			digest, fs.ErrNotExist)
	}
	return at, nil
}

// Model returns the client graph, embedding or predictor (of either kind) whose file has the given
// sha256.
func Model(digest string) (*onnx.Model, models.Manifest, error) {
	at, err := lookup(digest)
	if err != nil {
		return nil, models.Manifest{}, err
	}
	return Load(at.dataset, at.kind)
}

// Predictor returns the predictor for the extractor of a client graph's (or an embedding's)
// manifest: of as many classes or, for uploads of class means, the conjugate one of any.
func Predictor(client models.Manifest) (*onnx.Model, models.Manifest, error) {
	kind := models.KindPredictor
	if client.ClassMeans {
		kind, client.C = models.KindConjugate, 0
	}
	return behind(client, kind)
}

// Open returns the open predictor for the extractor of a client graph's manifest, for any classes.
func Open(client models.Manifest) (*onnx.Model, models.Manifest, error) {
	client.C = 0
	return behind(client, models.KindOpen)
}

// Private returns the private predictor for the extractor of a client graph's manifest.
func Private(client models.Manifest) (*onnx.Model, models.Manifest, error) {
	m, f, err := behind(client, models.KindPrivate)
	if errors.Is(err, fs.ErrNotExist) {
		err = fmt.Errorf("%w; fmp train private makes one, and --predictor FILE names it", err)
	}
	return m, f, err
}

// behind returns the first model of a kind that was trained behind the client's extractor and fits;
// a private predictor fits classes and class means of any number.
func behind(client models.Manifest, kind string) (*onnx.Model, models.Manifest, error) {
	for _, d := range assets.Datasets() {
		m, f, err := Load(d, kind)
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			return nil, f, err
		}
		if client.Extractor != "" && f.Extractor == client.Extractor &&
			(kind == models.KindPrivate || models.Match(client, f) == nil) {
			return m, f, nil
		}
	}
	return nil, models.Manifest{},
		fmt.Errorf("no %s predictor behind extractor %.12s comes with the program: %w", kind,
			client.Extractor, fs.ErrNotExist)
}
