package featurize

import (
	"context"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"fmt"

	"fmp/featurize/dataset"
	"fmp/featurize/extractor"
)

// Rows computes, or reads from the cache folder (see [Config]), the features of further images of a
// data set's shape, standardised by stats if that is not nil. Stored are the rows before stats. The
// file is named by a SHA-256 of the four sizes as int64, little-endian, and of the pixels. Images
// of the same pixels share a file, whatever data set they are of. Images in files are an error. The
// result is the caller's.
func Rows(ctx context.Context, images *dataset.Images, x *extractor.Extractor, stats *Stats,
	cache string, progress func(done, total int)) ([]float32, error) {
	if images.Lazy() {
		return nil, fmt.Errorf("features of %d images: they are named by their pixels, which "+
			"must be in memory", images.N)
	}
	h := sha256.New()
	binary.Write(h, binary.LittleEndian, []int64{int64(images.N), int64(images.H),
		int64(images.W), int64(images.Ch)})
	h.Write(images.Pix)
	path := cachePath(cache,
		&dataset.Dataset{Digest: "images " + hex.EncodeToString(h.Sum(nil))}, x)
	rows, _ := loadRows(path, images.N, x.Dx())
	if rows == nil {
		var err error
		if rows, err = x.Features(ctx, images, progress); err != nil {
			return nil, fmt.Errorf("features of %d images: %w", images.N, err)
		}
		// The features are right without a cache; they will be computed again.
		_ = saveRows(path, rows, x.Dx())
	}
	if stats != nil {
		stats.Apply(rows)
	}
	return rows, nil
}
