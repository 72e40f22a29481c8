package experiment

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

// shipped returns a model that comes with the program, with its manifest.
func shipped(dataset, kind string) (*onnx.Model, models.Manifest, error) {
	data, err := assets.Model(dataset, kind)
	if err != nil {
		return nil, models.Manifest{}, err
	}
	m, err := serde.Unmarshal(data)
	if err != nil {
		return nil, models.Manifest{}, fmt.Errorf("shipped %s of %s: %w", kind, dataset, err)
	}
	f, err := models.ReadManifest(m)
	if err != nil {
		return nil, models.Manifest{}, fmt.Errorf("shipped %s of %s: %w", kind, dataset, err)
	}
	f.Source, f.Digest = "shipped with the program for "+dataset, models.DigestBytes(data)
	return m, f, nil
}

// shippedFiles returns the models that come with the program, by the sha256 of their files.
var shippedFiles = sync.OnceValues(func() (map[string]shippedFile, error) {
	out := map[string]shippedFile{}
	for _, d := range assets.Datasets() {
		for _, kind := range []string{models.KindClient, models.KindEmbedding, models.KindPredictor, models.KindConjugate} {
			data, err := assets.Model(d, kind)
			if errors.Is(err, fs.ErrNotExist) {
				continue
			}
			if err != nil {
				return nil, err
			}
			out[models.DigestBytes(data)] = shippedFile{d, kind}
		}
	}
	return out, nil
})

type shippedFile struct{ dataset, kind string }

// ShippedModel returns the client graph, embedding or predictor (of either kind) that comes with the program and whose file has the
// given sha256, and the data set that it is for. The error wraps [fs.ErrNotExist] where there is none.
func ShippedModel(digest string) (m *onnx.Model, f models.Manifest, dataset string, err error) {
	all, err := shippedFiles()
	if err != nil {
		return nil, f, "", err
	}
	at, ok := all[digest]
	if !ok {
		return nil, f, "", fmt.Errorf("no model of sha256 %.12s comes with the program: %w", digest, fs.ErrNotExist)
	}
	m, f, err = shipped(at.dataset, at.kind)
	return m, f, at.dataset, err
}

// ShippedBehind returns the predictor that comes with the program for the extractor and the classes of a client graph's (or
// an embedding's) manifest: the conjugate one for uploads of class means. The error wraps [fs.ErrNotExist] where there is none.
func ShippedBehind(client models.Manifest) (*onnx.Model, models.Manifest, error) {
	if client.ClassMeans {
		return shippedBehind(client, models.KindConjugate)
	}
	return shippedBehind(client, models.KindPredictor)
}

// ShippedOpen returns the open predictor that comes with the program for the extractor of a client graph's manifest, whatever its
// classes. The error wraps [fs.ErrNotExist] where there is none.
func ShippedOpen(client models.Manifest) (*onnx.Model, models.Manifest, error) {
	client.C = 0
	return shippedBehind(client, models.KindOpen)
}

func shippedBehind(client models.Manifest, kind string) (*onnx.Model, models.Manifest, error) {
	for _, d := range assets.Datasets() {
		m, f, err := shipped(d, kind)
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			return nil, f, err
		}
		if client.Extractor != "" && f.Extractor == client.Extractor && models.Match(client, f) == nil {
			return m, f, nil
		}
	}
	return nil, models.Manifest{}, fmt.Errorf("no %s predictor behind extractor %.12s comes with the program: %w", kind, client.Extractor, fs.ErrNotExist)
}

// ShippedPrivate returns the private predictor that comes with the program for the extractor of a client graph's manifest. The error
// wraps [fs.ErrNotExist] where there is none.
func ShippedPrivate(client models.Manifest) (*onnx.Model, models.Manifest, error) {
	for _, d := range assets.Datasets() {
		m, f, err := shipped(d, models.KindPrivate)
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			return nil, f, err
		}
		if client.Extractor != "" && f.Extractor == client.Extractor {
			return m, f, nil
		}
	}
	return nil, models.Manifest{}, fmt.Errorf("no private predictor behind extractor %.12s comes with the program; fmp train private makes one, and --predictor FILE names it: %w", client.Extractor, fs.ErrNotExist)
}
