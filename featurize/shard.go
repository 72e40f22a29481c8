package featurize

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"fmp/featurize/dataset"
	"fmp/featurize/extractor"
	"fmp/onnx/atomicfile"
	"fmp/onnx/npy"
	"fmp/onnx/regularfile"
)

// MaxShards bounds the number of shards of a data set.
const MaxShards = 100_000

// Shard is a part of the stored features of a data set: those of the images From to To-1 of Total,
// training images before test images.
type Shard struct {
	Path  string `json:"path"`
	From  int    `json:"from"`
	To    int    `json:"to"`
	Total int    `json:"total"`
	// Cached reports whether the features were there already.
	Cached bool `json:"cached"`
	// LeftOut is the number of its images that cannot be decoded; their features are NaN.
	LeftOut int `json:"left_out,omitempty"`
	// Notes are the data set's remarks, which name files that are left out.
	Notes []string `json:"notes,omitempty"`
}

// RunShard computes shard i of n, counted from 0, of the features of a data set and stores it in
// the cache folder. Shards end where chunks of whole batches do, so that [Merge] makes of all n the
// file that [Run] stores, byte for byte. A shard that is there, alone or merged, is not computed
// again; one that was stopped resumes. Of n shards some are empty where there are fewer chunks:
// they have no file.
// Of k chunks a shard has those from i k / n to (i+1) k / n, rounded down: sizes differ by one
// chunk at most. Shards may be computed at once, by machines that share the folder or have their
// own. The error of images that cannot be decoded comes after the shard is stored.
func RunShard(ctx context.Context, ds *dataset.Dataset, x *extractor.Extractor, i, n int,
	c Config) (Shard, error) {
	if n < 1 || n > MaxShards || i < 0 || i >= n {
		return Shard{}, fmt.Errorf("shard %d of %d; want 0 to N-1 of N, and N at most %d",
			i, n, MaxShards)
	}
	g := newGrid(ds, x)
	k := g.count()
	s := Shard{Path: cachePath(c.Cache, ds, x), From: g.at(i * k / n), To: g.at((i + 1) * k / n),
		Total: g.train + g.test}
	if s.Path == "" {
		return s, errors.New("storing features: there is no cache folder: set XDG_CACHE_HOME")
	}
	if all, _ := loadRows(s.Path, s.Total, x.Dx()); all != nil {
		s.Cached = true
		err := s.decoded(ctx, ds, all[s.From*x.Dx():s.To*x.Dx()], x.Dx(), c.Skip)
		return s, err
	}
	if s.From > 0 || s.To < s.Total {
		s.Path = strings.TrimSuffix(s.Path, ".npy") + s.suffix()
	}
	if s.From == s.To {
		s.Path = ""
		return s, nil
	}
	rows, _ := loadRows(s.Path, s.To-s.From, x.Dx())
	if s.Cached = rows != nil; !s.Cached {
		var err error
		if rows, err = extract(ctx, ds, x, g, dataset.Range{From: s.From, To: s.To}, s.Path,
			c.Progress); err != nil {
			return s, err
		}
		if err := saveRows(s.Path, rows, x.Dx()); err != nil {
			return s, fmt.Errorf("storing features: %w", err)
		}
	}
	err := s.decoded(ctx, ds, rows, x.Dx(), c.Skip)
	return s, err
}

// decoded counts the images of rows, the shard's, that could not be decoded; without skip they are
// an error that names them. Only files that are decoded when asked for can be such.
func (s *Shard) decoded(ctx context.Context, ds *dataset.Dataset, rows []float32, dx int,
	skip bool) error {
	if !ds.Train.Lazy() {
		return nil
	}
	bad := undecoded(rows, dx)
	if s.LeftOut = len(bad); skip || len(bad) == 0 {
		return nil
	}
	for k := range bad {
		bad[k] += s.From
	}
	return refused(ctx, &ds.Train.Images, &ds.Test.Images, bad)
}

// Merged are the stored features of a data set, made of shards.
type Merged struct {
	Path   string `json:"path"`
	Images int    `json:"images"`
	Dx     int    `json:"dx"`
	Shards int    `json:"shards"`
}

// digestLength is the number of hexadecimal digits that the files of a data set begin with.
const digestLength = 32

// suffix returns the end of the name of a shard's file, in digits of one width: names sort as
// images do.
func (s Shard) suffix() string {
	return fmt.Sprintf(".%010d-%010d-of-%010d.npy", s.From, s.To, s.Total)
}

// parseShard reads the name of a shard's file. A name that Sscanf reads and suffix does not write,
// as one with more behind it, is none.
func parseShard(name string) (s Shard, ok bool) {
	if len(name) < digestLength {
		return s, false
	}
	_, err := fmt.Sscanf(name[digestLength:], ".%d-%d-of-%d.npy", &s.From, &s.To, &s.Total)
	return s, err == nil && name[digestLength:] == s.suffix()
}

// Merge makes, of the shards in a cache folder (see [Config]), the file that [Run] reads for each
// data set whose shards are all there, and removes them then. It holds one buffer in memory. Shards
// that are missing or do not match their digest are an error, which names the images; the other
// data sets are merged nevertheless. Shards of an earlier division beside them are an error, not a
// guess. Steps for a data set: check that they cover it, copy, write the digest, remove the shards.
func Merge(ctx context.Context, cache string) ([]Merged, error) {
	dir := cacheDir(cache)
	if dir == "" {
		return nil, errors.New("merging features: there is no cache folder: set XDG_CACHE_HOME")
	}
	entries, err := os.ReadDir(dir)
	if err != nil {
		return nil, fmt.Errorf("merging features: %w", err)
	}
	out := []Merged{} // an empty list in JSON
	var errs []error
	var shards []Shard
	// by name: the shards of a data set follow each other, in the order of its images
	for i, e := range entries {
		s, ok := parseShard(e.Name())
		if !ok {
			continue
		}
		s.Path = filepath.Join(dir, e.Name())
		shards = append(shards, s)
		name := e.Name()[:digestLength]
		if slices.ContainsFunc(entries[i+1:], func(e os.DirEntry) bool {
			_, ok := parseShard(e.Name())
			return ok && strings.HasPrefix(e.Name(), name)
		}) {
			continue
		}
		m, err := mergeShards(ctx, filepath.Join(dir, name+".npy"), shards)
		// a merging was stopped while it removed the shards
		if errors.Is(err, errMissing) && matches(m.Path) {
			err = removeShards(shards)
		}
		if err != nil {
			errs = append(errs, fmt.Errorf("merging features: %s: %w", name, err))
		} else {
			out = append(out, m)
		}
		shards = nil
	}
	return out, errors.Join(errs...)
}

// mergeShards writes the file at path of shards that cover it, and removes them. Shards must be in
// the order of their images. The file gets its digest before they are removed, so that a merging
// which is stopped can be finished. An error leaves the shards. It costs one read and one write of
// the features.
func mergeShards(ctx context.Context, path string, shards []Shard) (Merged, error) {
	m := Merged{Path: path, Images: shards[0].Total, Shards: len(shards)}
	at := 0
	// An empty shard at the end tells whether the last images are there.
	for _, s := range append(slices.Clone(shards),
		Shard{From: m.Images, To: m.Images, Total: m.Images}) {
		switch {
		case s.From > at:
			return m, fmt.Errorf("images %d to %d of %d are missing: %w", at, s.From-1,
				m.Images, errMissing)
		case s.From < at || s.To < s.From || s.Total != m.Images:
			return m, fmt.Errorf("%s overlaps others: remove the shards of one division; all of a "+
				"division have the same number of shards and extractor.batch",
				filepath.Base(s.Path))
		}
		at = s.To
	}
	h := sha256.New()
	err := atomicfile.Write(path, func(w io.Writer) error {
		w = io.MultiWriter(w, h)
		for i, s := range shards {
			if err := ctx.Err(); err != nil {
				return err
			}
			dx, err := s.copyTo(w, i == 0)
			if err == nil && i > 0 && dx != m.Dx {
				err = fmt.Errorf("%d features an image; the first shard has %d", dx, m.Dx)
			}
			if err != nil {
				return fmt.Errorf("shard %s: %w", filepath.Base(s.Path), err)
			}
			m.Dx = dx
		}
		return nil
	})
	if err == nil {
		err = atomicfile.WriteBytes(sumPath(path), []byte(sumLine(h, path)))
	}
	if err != nil {
		return m, err
	}
	return m, removeShards(shards)
}

// removeShards removes the files of shards and of their digests. The digest goes first: a shard
// without one would be computed anew, and no digest is left alone.
func removeShards(shards []Shard) (err error) {
	for _, s := range shards {
		err = errors.Join(err, os.Remove(sumPath(s.Path)), os.Remove(s.Path))
	}
	return err
}

// matches reports whether a file of stored features matches its digest.
func matches(path string) bool {
	f, err := regularfile.Open(path)
	if err != nil {
		return false
	}
	defer f.Close()
	h := sha256.New()
	_, err = io.Copy(h, f)
	return err == nil && agrees(h, path)
}

// errMissing is the error for images that no shard has.
var errMissing = errors.New("run fmp features --shard for them")

// copyTo writes the rows of a shard after, where first is set, the header of the whole file, and
// returns the number of features of a row. The digest is known behind the last row alone: the
// caller must drop the rows where it fails.
func (s Shard) copyTo(w io.Writer, first bool) (dx int, err error) {
	f, err := regularfile.Open(s.Path)
	if err != nil {
		return 0, err
	}
	defer f.Close()
	h := sha256.New()
	in := io.TeeReader(f, h)
	rows, dx, err := npy.ReadMatrixHeader(in)
	if err != nil {
		return 0, err
	}
	if rows != s.To-s.From {
		return 0, fmt.Errorf("%d rows; want %d", rows, s.To-s.From)
	}
	if first {
		if err := npy.WriteMatrixHeader(w, s.Total, dx); err != nil {
			return 0, err
		}
	}
	want := 4 * int64(rows) * int64(dx)
	n, err := io.Copy(w, in)
	if err != nil {
		return 0, err
	}
	if n != want || !agrees(h, s.Path) {
		return 0, fmt.Errorf("it does not match its digest: remove it and run fmp " +
			"features --shard again")
	}
	return dx, nil
}
