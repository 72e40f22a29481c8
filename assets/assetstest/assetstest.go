// Package assetstest gives tests access to the models that come with the program.
package assetstest

import (
	"os"
	"path/filepath"
	"testing"

	"fmp/assets"
	"fmp/models"
	"fmp/onnx"
	"fmp/onnx/must"
	"fmp/onnx/serde"
)

// Data returns the contents of a shipped model's file.
func Data(t testing.TB, dataset, kind string) []byte {
	t.Helper()
	return must.Get(assets.Model(dataset, kind))(t)
}

// File writes a shipped model to a file of the test's own and returns its path.
func File(t testing.TB, dataset, kind string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), kind+".onnx")
	must.Do(t, os.WriteFile(path, Data(t, dataset, kind), 0o644))
	return path
}

// Load reads a shipped model and its manifest, digest included.
func Load(t testing.TB, dataset, kind string) (*onnx.Model, models.Manifest) {
	t.Helper()
	return must.Get2(models.Load(File(t, dataset, kind)))(t)
}

// PrivateClient returns the file of the client graph of a private round behind the digits'
// extractor, as fmp fuse --upload private writes it.
func PrivateClient(t testing.TB) []byte {
	t.Helper()
	x, f := Load(t, "digits", models.KindExtractor)
	p, _ := Load(t, "digits", models.KindPrivate)
	e := must.Get(models.PrivateEmbedding(p, f.C, nil))(t)
	ef := must.Get(models.ReadManifest(e))(t)
	g := must.Get(models.ClientGraph(x, f, e, ef,
		models.Preprocessing{Height: 28, Width: 28, Channels: 1, Mean: f.Mean, Std: f.Std}))(t)
	return must.Get(serde.Marshal(g))(t)
}
