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

// Unfinished features are saved every saveEvery, and less often where saving takes more than one
// part in saveShare of the time.
const (
	saveEvery = 20 * time.Second
	saveShare = 20
)

// cacheDir returns the folder of cached features that a setting means (see [Config]); "" without a
// cache.
func cacheDir(dir string) string {
	switch dir {
	case "none":
		return ""
	case "":
		root, err := os.UserCacheDir()
		if err != nil {
			return ""
		}
		return filepath.Join(root, "fmp", "features")
	}
	return dir
}

// cachePath returns the cache file of a data set's features, training images before test images; ""
// without a cache. Its name is of the digests of both: other preprocessing or other images have
// another file.
func cachePath(dir string, ds *dataset.Dataset, x *extractor.Extractor) string {
	if dir = cacheDir(dir); dir == "" {
		return ""
	}
	sum := sha256.Sum256([]byte(x.Digest() + ds.Digest))
	return filepath.Join(dir, hex.EncodeToString(sum[:])[:32]+".npy")
}

// grid divides the images of a data set, training images before test images, into chunks of whole
// batches. Features are computed chunk by chunk, so that they are the same numbers wherever a
// computation begins. The last chunk of either part may be smaller.
type grid struct{ train, test, chunk int }

// newGrid divides a data set into chunks of eight batches.
func newGrid(ds *dataset.Dataset, x *extractor.Extractor) grid {
	return grid{train: ds.Train.N, test: ds.Test.N, chunk: 8 * x.Batch()}
}

// count returns the number of chunks.
func (g grid) count() int { return (g.train+g.chunk-1)/g.chunk + (g.test+g.chunk-1)/g.chunk }

// at returns the image that chunk k begins with; for k = count the number of images.
func (g grid) at(k int) int {
	if first := (g.train + g.chunk - 1) / g.chunk; k >= first {
		return g.train + min((k-first)*g.chunk, g.test)
	}
	return k * g.chunk
}

// begins reports whether a chunk begins with image n, or ends with the last before it.
func (g grid) begins(n int) bool {
	if n >= g.train {
		return n == g.train+g.test || (n-g.train)%g.chunk == 0
	}
	return n%g.chunk == 0
}

// extract computes the features of a range of the images that g divides, [range, dx]. With a cache,
// partial results are saved beside it every saveEvery and when ctx ends; the next call resumes from
// them and returns the same features.
func extract(ctx context.Context, ds *dataset.Dataset, x *extractor.Extractor, g grid,
	r dataset.Range, path string, progress func(done, total int)) ([]float32, error) {
	dx, total := x.Dx(), r.Len()
	partial := ""
	if path != "" {
		partial = path + ".partial"
	}
	rows, _ := loadRows(partial, -1, dx)
	// Rows that end within a chunk were saved with another batch size: they are computed anew.
	if n := len(rows) / dx; n > total || !g.begins(r.From+n) {
		rows = nil
	}
	saved, pause := time.Now(), saveEvery
	for len(rows) < total*dx {
		done := len(rows) / dx
		at := r.From + done
		part, from, to := &ds.Train, at, min(r.To, g.train)
		if at >= g.train {
			part, from, to = &ds.Test, at-g.train, r.To-g.train
		}
		some, err := part.Range(dataset.Range{From: from, To: min(from+g.chunk, to)})
		if err != nil {
			return nil, err
		}
		var step func(int, int)
		if progress != nil {
			step = func(n, _ int) { progress(done+n, total) }
		}
		more, err := x.Features(ctx, &some.Images, step)
		if err != nil {
			if ctx.Err() != nil && len(rows) > 0 {
				err = errors.Join(err, saveRows(partial, rows, dx))
			}
			return nil, err
		}
		rows = append(rows, more...)
		if time.Since(saved) > pause && len(rows) < total*dx {
			began := time.Now()
			// If this cannot be saved, only the chance to resume is lost.
			_ = saveRows(partial, rows, dx)
			saved = time.Now()
			pause = max(saveEvery, saveShare*saved.Sub(began))
		}
	}
	if partial != "" {
		// a short run has saved none
		_ = errors.Join(os.Remove(partial), os.Remove(sumPath(partial)))
	}
	return rows, nil
}

// sumPath returns the path of the file beside a cache that holds its SHA-256, in the format of
// sha256sum.
func sumPath(path string) string { return path + ".sha256" }

// sumLine is the line of sha256sum for a hash of the file at path.
func sumLine(h hash.Hash, path string) string {
	return hex.EncodeToString(h.Sum(nil)) + "  " + filepath.Base(path) + "\n"
}

// agrees reports whether the hash of a cache's bytes is the one in the file beside it.
func agrees(h hash.Hash, path string) bool {
	sum, err := regularfile.ReadFile(sumPath(path), 1<<10)
	return err == nil && string(sum) == sumLine(h, path)
}

// loadRows reads n rows of dx features (any number of rows for n -1). It returns nil rows where the
// cache cannot be used, and a note with the reason where the file exists: a damaged one would
// change results unnoticed.
func loadRows(path string, n, dx int) (rows []float32, note string) {
	if path == "" {
		return nil, ""
	}
	f, err := regularfile.Open(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, ""
	}
	damaged := fmt.Sprintf("the cached features in %s do not match their digest: they are "+
		"computed anew", filepath.Base(path))
	if err != nil {
		return nil, damaged
	}
	defer f.Close()
	h := sha256.New()
	t, err := npy.Read(io.TeeReader(f, h))
	if err != nil || !agrees(h, path) || len(t.Shape) != 2 || t.Shape[1] != dx ||
		n >= 0 && t.Shape[0] != n {
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
