package featurize

import (
	"bytes"
	"fmt"
	"image"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"fmp/featurize/dataset"
	"fmp/featurize/imagefile"
	"fmp/featurize/imagefile/imagefiletest"
	"fmp/onnx/must"
)

// photos writes a folder of 100 grey pictures, 80 of them for training; the files called in cut end
// too early.
func photos(t *testing.T, cut ...string) string {
	t.Helper()
	dir := t.TempDir()
	for i := range 100 {
		im := image.NewGray(image.Rect(0, 0, 9, 8))
		for k := range im.Pix {
			im.Pix[k] = uint8((k*k + 17*i) % 251)
		}
		data := imagefiletest.PNG(t, im)
		name := fmt.Sprintf("%s/%s/%02d.png", []string{"train", "train", "train", "train", "test"}[i%5],
			[]string{"a", "b"}[i%2], i)
		if slices.Contains(cut, name) {
			data = data[:len(data)-20]
		}
		imagefiletest.Write(t, filepath.Join(dir, filepath.FromSlash(name)), data)
	}
	return dir
}

// openPhotos loads a folder for openTest's extractor: held in memory for hold 0, decoded when asked
// for with 1.
func openPhotos(t *testing.T, dir string, hold int64, skip bool) *dataset.Dataset {
	t.Helper()
	ds := must.Get(dataset.Load(t.Context(),
		dataset.Options{Name: dir, Fit: imagefile.Fit{H: 6, W: 6}, Hold: hold, Skip: skip}))(t)
	return ds
}

// rows returns the stored rows of a cache folder with one file of them, and the name of that.
func rows(t *testing.T, cache string) (string, []byte) {
	t.Helper()
	files := stored(t, cache)
	for name, data := range files {
		if len(files) == 2 && strings.HasSuffix(name, ".npy") {
			return name, data
		}
	}
	t.Fatalf("stored are %d files; want features and their digest", len(files))
	return "", nil
}

// TestLazyStore: files that are decoded when they are asked for give the stored features of images
// in memory, byte for byte, whole and in any number of shards; the extractor's threads and the
// order of shards play no part.
func TestLazyStore(t *testing.T) {
	dir := photos(t)
	held, whole := t.TempDir(), t.TempDir()
	of := must.Get(Run(t.Context(), openPhotos(t, dir, 0, false), openTest(t, 1, ""), Config{Cache: held}))(t)
	got := must.Get(Run(t.Context(), openPhotos(t, dir, 1, false), openTest(t, 2, ""),
		Config{Cache: whole}))(t)
	_, want := rows(t, held)
	name, data := rows(t, whole)
	if !bytes.Equal(data, want) || !slices.Equal(got.Train.Features, of.Train.Features) ||
		!slices.Equal(got.Test.Labels, of.Test.Labels) {
		t.Error("the features of files differ from those of images in memory")
	}
	for n := 1; n <= 5; n++ {
		cache := t.TempDir()
		for i := n - 1; i >= 0; i-- {
			must.Get(RunShard(t.Context(), openPhotos(t, dir, 1, false), openTest(t, 1+i%2, ""), i, n,
				Config{Cache: cache}))(t)
		}
		must.Get(Merge(t.Context(), cache))(t)
		if merged, data := rows(t, cache); merged != name || !bytes.Equal(data, want) {
			t.Errorf("%d shards: %s differs from the whole, %s", n, merged, name)
		}
	}
}

// TestLazyReadsOwnImages: a shard decodes its own images alone.
func TestLazyReadsOwnImages(t *testing.T) {
	dir := photos(t)
	ds := openPhotos(t, dir, 1, false)
	must.Do(t, os.RemoveAll(filepath.Join(dir, "test")))
	if _, err := RunShard(t.Context(), ds, openTest(t, 1, ""), 0, 3, Config{Cache: t.TempDir()}); err != nil {
		t.Errorf("a shard of training images reads test images: %v", err)
	}
	must.Fail(RunShard(t.Context(), ds, openTest(t, 1, ""), 2, 3, Config{Cache: t.TempDir()}))(t, "",
		"a shard whose files are gone is computed")
}

// TestLazySkip: images that cannot be decoded are named where they are an error, once all others
// are stored, and left out where they may be: what remains is what remains of images in memory.
// Shards store what a run without them does.
func TestLazySkip(t *testing.T) {
	cut := []string{"train/a/00.png", "train/b/33.png", "train/a/96.png", "test/b/49.png"}
	dir := photos(t, cut...)
	whole, cache := t.TempDir(), t.TempDir()
	names := func(text string) (n int) {
		for _, c := range cut {
			n += strings.Count(text, filepath.FromSlash(c))
		}
		return n
	}
	if _, err := Run(t.Context(), openPhotos(t, dir, 1, false), openTest(t, 1, ""),
		Config{Cache: whole}); err == nil ||
		names(err.Error()) != 4 || !strings.Contains(err.Error(), "--on-bad skip") {
		t.Errorf("the error does not name each image once: %v", err)
	}
	name, want := rows(t, whole)
	named, left := 0, 0
	for i := range 3 {
		ds := openPhotos(t, dir, 1, true)
		for _, skip := range []bool{false, true, false} {
			s, err := RunShard(t.Context(), ds, openTest(t, 1, ""), i, 3, Config{Cache: cache, Skip: skip})
			if (err == nil) != skip {
				t.Errorf("shard %d, skip %v: %v", i, skip, err)
			}
			if skip {
				left += s.LeftOut
			} else {
				named += names(err.Error())
			}
		}
	}
	if named != 8 || left != 4 {
		t.Errorf("shards name %d images and leave out %d; want 8, in two attempts, and 4", named, left)
	}
	must.Get(Merge(t.Context(), cache))(t)
	if merged, data := rows(t, cache); merged != name || !bytes.Equal(data, want) {
		t.Error("shards with images that cannot be decoded merge to another file than a run's")
	}
	for i := range 2 {
		if s, err := RunShard(t.Context(), openPhotos(t, dir, 1, true), openTest(t, 1, ""), 0, 1,
			Config{Cache: cache, Skip: i > 0}); !s.Cached ||
			s.LeftOut != 4 || (err == nil) != (i > 0) {
			t.Errorf("of the merged file: %+v, %v", s, err)
		}
	}
	for _, test := range []int{0, 15} {
		of := must.Get(Run(t.Context(), openPhotos(t, dir, 0, true), openTest(t, 1, ""),
			Config{Cache: "none"}))(t)
		ds := openPhotos(t, dir, 1, true)
		got := must.Get(Run(t.Context(), ds, openTest(t, 1, ""),
			Config{Cache: cache, Skip: true, Test: test}))(t)
		n := len(got.Test.Labels)
		if !got.Cached || !slices.Equal(got.Train.Labels, of.Train.Labels) ||
			!slices.Equal(got.Test.Labels, of.Test.Labels[:n]) || got.Splits != of.Splits ||
			!slices.Equal(got.Train.Features, of.Train.Features) ||
			!slices.Equal(got.Test.Features, of.Test.Features[:n*of.Dx]) || got.Train.N != 77 ||
			got.Test.N != n || test == 0 && n != 19 || n < test-1 ||
			names(got.Notes[len(got.Notes)-1]) < 3 {
			t.Errorf("%d tests: %d training and %d test images, splits %+v; want %d, %d, %+v: %q", test,
				got.Train.N, got.Test.N, got.Splits, of.Train.N, of.Test.N, of.Splits, got.Notes)
		}
		if ds.Train.N != 77 || len(ds.Test.Names(nil)) != 0 || test == 0 && ds.Test.N != 19 {
			t.Errorf("the data set keeps %d training and %d test images", ds.Train.N, ds.Test.N)
		}
		if _, err := ds.Train.Load(t.Context()); err != nil {
			t.Errorf("what is left cannot be decoded: %v", err)
		}
	}
}

// TestRowsInMemory: features that are named by their pixels are of images in memory alone.
func TestRowsInMemory(t *testing.T) {
	ds := openPhotos(t, photos(t), 1, false)
	must.Fail(Rows(t.Context(), &ds.Test.Images, openTest(t, 1, ""), nil, t.TempDir(), nil))(t, "",
		"files are named by no pixels")
}
