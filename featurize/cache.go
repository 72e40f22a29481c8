package featurize

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"math"
	"os"
	"path/filepath"
	"time"

	"fmp/featurize/dataset"
	"fmp/featurize/extractor"
	"fmp/onnx"
	"fmp/onnx/npy"
)

// saveEvery is how often unfinished features are saved.
const saveEvery = 20 * time.Second

// cachePath is the file of a data set's features, training images before test images; "" for none.
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

// extract computes the features of training and test images, [all, dx], in chunks of whole batches. Where
// there is a cache, what is done is saved now and then beside it, and when ctx ends; the next call goes on
// from there, to the same features.
func extract(ctx context.Context, ds *dataset.Dataset, x *extractor.Extractor, path string, progress func(done, total int)) ([]float32, error) {
	dx, total := x.Dx(), ds.Train.N+ds.Test.N
	chunk := 8 * x.Batch()
	partial := ""
	if path != "" {
		partial = path + ".partial"
	}
	rows := loadRows(partial, -1, dx)
	if n := len(rows) / dx; n > total || !starts(n, chunk, ds.Train.N) {
		rows = nil
	}
	saved := time.Now()
	for len(rows) < total*dx {
		at := len(rows) / dx
		part, from := &ds.Train, at
		if at >= ds.Train.N {
			part, from = &ds.Test, at-ds.Train.N
		}
		some, err := part.Range(dataset.Range{From: from, To: min(from+chunk, part.N)})
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
			// Where it cannot be saved, only the chance to go on from here is lost.
			_ = saveRows(partial, rows, dx)
			saved = time.Now()
		}
	}
	if partial != "" {
		_ = os.Remove(partial) // there is none after a short run
	}
	return rows, nil
}

// starts says whether a chunk begins after n images, train of which are training images.
func starts(n, chunk, train int) bool {
	if n >= train {
		n -= train
	}
	return n%chunk == 0
}

// loadRows reads n rows of dx features (any number of rows for n -1). A file that is missing, of another
// shape or not finite does not count: nil.
func loadRows(path string, n, dx int) []float32 {
	if path == "" {
		return nil
	}
	t, err := npy.Load(path)
	if err != nil || len(t.Shape) != 2 || t.Shape[1] != dx || (n >= 0 && t.Shape[0] != n) {
		return nil
	}
	v := t.F32()
	for _, x := range v {
		if math.IsNaN(float64(x)) || math.IsInf(float64(x), 0) {
			return nil
		}
	}
	return v
}

func saveRows(path string, rows []float32, dx int) error {
	if path == "" {
		return nil
	}
	return npy.Save(path, onnx.NewTensor(rows, len(rows)/dx, dx))
}
