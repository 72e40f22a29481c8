package featurize

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"hash"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"fmp/featurize/dataset"
	"fmp/featurize/extractor"
	"fmp/onnx"
	"fmp/onnx/atomicfile"
	"fmp/onnx/npy"
	"fmp/onnx/regularfile"
)

// saveEvery is the interval at which unfinished features are saved.
const saveEvery = 20 * time.Second

// cachePath returns the cache file of a data set's features, training images before test images; "" without a cache.
func cachePath(dir string, ds *dataset.Dataset, x *extractor.Extractor) string {
	switch dir {
	case "none":
		return ""
	case "":
		root, err := os.UserCacheDir()
		if err != nil {
			return ""
		}
		dir = filepath.Join(root, "fmp", "features")
	}
	sum := sha256.Sum256([]byte(x.Digest() + ds.Digest))
	return filepath.Join(dir, hex.EncodeToString(sum[:])[:32]+".npy")
}

// extract computes the features of training images and the first test images, [all, dx], in chunks of whole batches. With a cache, partial
// results are saved beside it every saveEvery and when ctx ends; the next call resumes from them and returns the same features.
func extract(ctx context.Context, ds *dataset.Dataset, x *extractor.Extractor, test int, path string,
	progress func(done, total int)) ([]float32, error) {
	dx, total := x.Dx(), ds.Train.N+test
	chunk := 8 * x.Batch()
	partial := ""
	if path != "" {
		partial = path + ".partial"
	}
	rows, _ := loadRows(partial, -1, dx)
	if n := len(rows) / dx; n > total || !starts(n, chunk, ds.Train.N) {
		rows = nil
	}
	saved := time.Now()
	for len(rows) < total*dx {
		at := len(rows) / dx
		part, from, to := &ds.Train, at, ds.Train.N
		if at >= ds.Train.N {
			part, from = &ds.Test, at-ds.Train.N
			to = test
		}
		some, err := part.Range(dataset.Range{From: from, To: min(from+chunk, to)})
		if err != nil {
			return nil, err
		}
		var step func(int, int)
		if progress != nil {
			step = func(done, _ int) { progress(at+done, total) }
		}
		more, err := x.Features(ctx, &some.Images, step)
		if err != nil {
			if ctx.Err() != nil && len(rows) > 0 {
				err = errors.Join(err, saveRows(partial, rows, dx))
			}
			return nil, err
		}
		rows = append(rows, more...)
		if time.Since(saved) > saveEvery && len(rows) < total*dx {
			// If this cannot be saved, only the chance to resume is lost.
			_ = saveRows(partial, rows, dx)
			saved = time.Now()
		}
	}
	if partial != "" {
		_ = errors.Join(os.Remove(partial), os.Remove(sumPath(partial))) // a short run has saved none
	}
	return rows, nil
}

// starts reports whether a chunk begins after n images, train of which are training images.
func starts(n, chunk, train int) bool {
	if n >= train {
		n -= train
	}
	return n%chunk == 0
}

// sumPath returns the path of the file beside a cache that holds its SHA-256, in the format of sha256sum.
func sumPath(path string) string { return path + ".sha256" }

func sumLine(h hash.Hash, path string) string {
	return hex.EncodeToString(h.Sum(nil)) + "  " + filepath.Base(path) + "\n"
}

// loadRows reads n rows of dx features (any number of rows for n -1). It returns nil rows where the cache cannot be used,
// and a note with the reason where the file exists: a damaged one would change results unnoticed.
func loadRows(path string, n, dx int) (rows []float32, note string) {
	if path == "" {
		return nil, ""
	}
	f, err := regularfile.Open(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, ""
	}
	damaged := fmt.Sprintf("the cached features in %s do not match their digest: they are computed anew", filepath.Base(path))
	if err != nil {
		return nil, damaged
	}
	defer f.Close()
	h := sha256.New()
	t, err := npy.Read(io.TeeReader(f, h))
	sum, err2 := regularfile.ReadFile(sumPath(path), 1<<10)
	if err != nil || err2 != nil || string(sum) != sumLine(h, path) || len(t.Shape) != 2 || t.Shape[1] != dx || (n >= 0 && t.Shape[0] != n) {
		return nil, damaged
	}
	return t.F32(), ""
}

// saveRows writes rows, then their digest: an unfinished cache has no digest that matches.
func saveRows(path string, rows []float32, dx int) error {
	if path == "" {
		return nil
	}
	h := sha256.New()
	err := atomicfile.Write(path, func(w io.Writer) error {
		return npy.Write(io.MultiWriter(w, h), onnx.NewTensor(rows, len(rows)/dx, dx))
	})
	if err != nil {
		return err
	}
	return atomicfile.WriteBytes(sumPath(path), []byte(sumLine(h, path)))
}
