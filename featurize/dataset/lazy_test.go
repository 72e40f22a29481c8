package dataset

import (
	"context"
	"errors"
	"fmt"
	"image"
	"image/color"
	"io/fs"
	"math"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"fmp/featurize/imagefile"
	"fmp/featurize/imagefile/imagefiletest"
	"fmp/onnx/must"
)

// noise returns a picture that differs with seed.
func noise(w, h, seed int, grey bool) image.Image {
	if grey {
		im := image.NewGray(image.Rect(0, 0, w, h))
		for i := range im.Pix {
			im.Pix[i] = uint8((i*i + 31*seed) % 251)
		}
		return im
	}
	im := image.NewNRGBA(image.Rect(0, 0, w, h))
	for i := range im.Pix {
		im.Pix[i] = uint8((i*i+31*seed)%251) | uint8(i%4/3*255)
	}
	return im
}

// photos writes a folder of pictures: three classes, of sizes that differ where mixed, with train
// and test folders where split.
func photos(t *testing.T, n int, mixed, grey, split bool) string {
	t.Helper()
	dir := t.TempDir()
	for i := range n {
		h, ext, part := 12, "png", ""
		if mixed {
			h += i % 5
		}
		if split {
			part = []string{"train", "train", "test"}[i/3%3]
		}
		im := noise(16, h, i, grey)
		data := imagefiletest.PNG(t, im)
		if i%4 == 3 {
			ext, data = "jpg", imagefiletest.JPEG(t, im, 0)
		}
		imagefiletest.Write(t, filepath.Join(dir, part, fmt.Sprint("c", i%3), fmt.Sprintf("%d.%s", i, ext)), data)
	}
	return dir
}

// TestLazy: a folder whose images are decoded when they are asked for is the one whose images are
// held in memory.
func TestLazy(t *testing.T) {
	plainDir, mixed, split := photos(t, 40, false, false, false), photos(t, 40, true, false, false),
		photos(t, 40, true, true, true)
	headless := photos(t, 40, true, false, false)
	imagefiletest.Write(t, filepath.Join(headless, "c1/none.png"), []byte("no picture"))
	imagefiletest.Write(t, filepath.Join(headless, "c0/none.png"), nil)
	for name, o := range map[string]Options{
		"one size":      {Name: plainDir},
		"mixed":         {Name: mixed},
		"fitted":        {Name: mixed, Fit: imagefile.Fit{H: 8, W: 9, Resize: imagefile.Pad}},
		"grey, split":   {Name: split},
		"class choice":  {Name: mixed, Classes: "0,2"},
		"exclusion":     {Name: split, Classes: "2", Exclude: "c2"},
		"headless":      {Name: headless, Skip: true},
		"held out":      {Name: split, Test: 0},
		"no test class": {Name: withoutTest(t, split), Test: 0.5},
	} {
		want, err := Load(t.Context(), o)
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		o.Hold = 1
		got, err := Load(t.Context(), o)
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		if !slices.Equal(got.Classes, want.Classes) ||
			!slices.Equal(got.ExtraClasses, want.ExtraClasses) || !slices.Equal(got.Bad, want.Bad) ||
			!slices.Equal(got.Notes, want.Notes) || got.Digest == want.Digest || want.Train.Lazy() {
			t.Errorf("%s: %+v; want %+v", name, got, want)
		}
		for k, p := range []*Labelled{&got.Train, &got.Test, &got.Extra} {
			of := []*Labelled{&want.Train, &want.Test, &want.Extra}[k]
			if p.N == 0 && of.N == 0 {
				continue
			}
			if !p.Lazy() || p.Pix != nil || p.N != of.N || !slices.Equal(p.Labels, of.Labels) {
				t.Fatalf("%s, part %d: %d images with labels %v; want %d with %v", name,
					k, p.N, p.Labels, of.N, of.Labels)
			}
			some := must.Get(p.Range(Range{1, p.N}))(t)
			held, bad, err := some.Images.Load(t.Context(), 1, some.N)
			if err != nil || len(bad) > 0 || !slices.Equal(held.Pix, of.Pix[2*len(of.At(0)):]) ||
				held.H != of.H || held.W != of.W ||
				held.Ch != of.Ch {
				t.Errorf("%s, part %d: pixels differ: %v %v", name, k, bad, err)
			}
			few := must.Get(p.Subset([]int{p.N - 1, 0}))(t)
			if few, err = few.Load(t.Context()); err != nil ||
				!slices.Equal(few.Pix, append(slices.Clone(of.At(p.N-1)), of.At(0)...)) {
				t.Errorf("%s, part %d: chosen pixels differ: %v", name, k, err)
			}
		}
	}
}

// withoutTest removes a class's test images.
func withoutTest(t *testing.T, split string) string {
	t.Helper()
	dir := t.TempDir()
	must.Do(t, os.CopyFS(dir, os.DirFS(split)))
	must.Do(t, os.RemoveAll(filepath.Join(dir, "test/c1")))
	return dir
}

// TestLazyDigest: the digest of a set of files is that of their contents, names of classes, labels
// and shape, wherever they lie.
func TestLazyDigest(t *testing.T) {
	from := photos(t, 30, false, false, true)
	digest := func(change func(dir string, o *Options)) string {
		t.Helper()
		dir := t.TempDir()
		must.Do(t, os.CopyFS(dir, os.DirFS(from)))
		o := Options{Name: dir, Hold: 1, Classes: "c0,c1", Fit: imagefile.Fit{H: 8, W: 8}}
		if change != nil {
			change(dir, &o)
		}
		ds := must.Get(Load(t.Context(), o))(t)
		return ds.Digest
	}
	flip := func(name string) func(string, *Options) {
		return func(dir string, _ *Options) {
			data := must.Get(os.ReadFile(filepath.Join(dir, name)))(t)
			data[len(data)-1] ^= 1 // beyond the header
			imagefiletest.Write(t, filepath.Join(dir, name), data)
		}
	}
	seen := map[string]string{digest(nil): "none"}
	if seen[digest(nil)] == "" {
		t.Error("the digest depends on the folder")
	}
	for name, change := range map[string]func(string, *Options){
		"a training image": flip("train/c0/0.png"),
		"a test image":     flip("test/c1/7.jpg"),
		"an extra image":   flip("train/c2/5.png"),
		"the size":         func(_ string, o *Options) { o.Fit.H = 9 },
		"the way":          func(_ string, o *Options) { o.Fit.Resize = imagefile.Crop },
		"the classes":      func(_ string, o *Options) { o.Classes = "c0,c2" },
		"one image less": func(dir string, _ *Options) {
			os.Remove(filepath.Join(dir, "train/c0/0.png"))
		},
	} {
		d := digest(change)
		if seen[d] != "" {
			t.Errorf("%s changes nothing, or what %s does", name, seen[d])
		}
		seen[d] = name
	}
}

// TestDecoding: files give these pixels. Where this fails on purpose, raise decoding.
func TestDecoding(t *testing.T) {
	ds := must.Get(Load(t.Context(),
		Options{Name: photos(t, 40, true, false, false), Fit: imagefile.Fit{H: 8, W: 9}}))(t)
	const want = "6 de7532bea853bc971972b4c77a719b473035c49ba3a68c13c848c1d20aadfdc4"
	if got := fmt.Sprint(decoding, " ", ds.Digest); got != want {
		t.Errorf("version and digest of pixels: %s; want %s", got, want)
	}
}

// TestUndecoded: images that cannot be decoded are reported and black; files that cannot be read
// are an error.
func TestUndecoded(t *testing.T) {
	dir := photos(t, 12, false, false, false)
	cut := imagefiletest.PNG(t, noise(16, 12, 99, false))
	for _, name := range []string{"c0/cut.png", "c1/cut.png"} {
		imagefiletest.Write(t, filepath.Join(dir, name), cut[:len(cut)-30])
	}
	ds := must.Get(Load(t.Context(), Options{Name: dir, Hold: 1}))(t)
	all := map[string]bool{}
	for _, p := range []*Labelled{&ds.Train, &ds.Test} {
		held, bad := must.Get2(p.Images.Load(t.Context(), 0, p.N))(t)
		for _, b := range bad {
			name := p.Names([]int{b.Index})[0]
			all[name] = true
			if !strings.Contains(b.Err.Error(), filepath.FromSlash(name)) ||
				slices.ContainsFunc(held.At(b.Index), func(v uint8) bool { return v != 0 }) {
				t.Errorf("%s: %v", name, b.Err)
			}
		}
		if _, err := p.Load(t.Context()); (err != nil) != (len(bad) > 0) {
			t.Errorf("%d of a part cannot be decoded, and the error is %v", len(bad), err)
		}
	}
	if len(all) != 2 || !all["c0/cut.png"] || !all["c1/cut.png"] {
		t.Errorf("undecoded are %v", all)
	}
	gone := filepath.Join(dir, filepath.FromSlash(ds.Train.Names([]int{0})[0]))
	must.Do(t, os.Remove(gone))
	if _, _, err := ds.Train.Images.Load(t.Context(), 0, 1); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("a file that is gone: %v", err)
	}
	for _, r := range [][2]int{{-1, 0}, {2, 1}, {0, ds.Train.N + 1}} {
		must.Fail(ds.Train.Images.Load(t.Context(), r[0], r[1]))(t, "", r, ds.Train.N)
	}
}

// TestEnvironment: what is at fault, the file or what it is read with.
func TestEnvironment(t *testing.T) {
	_, missing := os.Open(filepath.Join(t.TempDir(), "none"))
	for _, c := range []struct {
		err  error
		want bool
	}{
		{nil, false}, {imagefile.ErrSize, false}, {image.ErrFormat, false},
		{missing, true}, {fmt.Errorf("a.png: %w", missing), true}, {syscall.EIO, true},
		{&exec.Error{Name: "magick", Err: exec.ErrNotFound}, true},
		{fmt.Errorf("a HEIC image: %w", imagefile.ErrNoDecoder), true}, {context.Canceled, true},
		{fmt.Errorf("killed: %w", context.DeadlineExceeded), true},
	} {
		if got := environment(c.err); got != c.want {
			t.Errorf("%v: %v", c.err, got)
		}
	}
}

// TestHoldBounds: what may not be held is refused where nothing says that it may be decoded later.
func TestHoldBounds(t *testing.T) {
	dir := t.TempDir()
	tall := imagefiletest.PNG(t, plain(2, 2, color.White))
	for _, f := range []string{"a/1.png", "a/2.png", "b/1.png", "b/2.png"} {
		imagefiletest.WriteApart(t, filepath.Join(dir, f), tall)
	}
	o := Options{Name: dir, Fit: imagefile.Fit{H: MaxSide, W: MaxSide}, Hold: MaxBytes}
	for i := range 25 { // 29 images of 4096 x 4096 pixels and 3 channels: 1.4 GB
		imagefiletest.WriteApart(t, filepath.Join(dir, fmt.Sprintf("a/x%d.png", i)), tall)
	}
	ds, err := Load(t.Context(), o)
	if err != nil || !ds.Train.Lazy() {
		t.Fatalf("decoded later: %v", err)
	}
	must.Fail(ds.Train.Load(t.Context()))(t, "need more than", "all at once")
	o.Hold = 0
	must.Fail(Load(t.Context(), o))(t, "need more than", "held")
}

// TestSpread: ranges of a folder's files have their share of each class, and a class keeps its
// order. The bound is one image for the class's own places, and its share of one for each class.
func TestSpread(t *testing.T) {
	for name, sizes := range map[string][]int{"alike": {10, 10, 10, 10, 10, 10, 10, 10},
		"unlike": {16, 4, 1, 40, 9}, "one class": {7}, "one image": {1}} {
		var files []imageFile
		for c, n := range sizes {
			for i := range n {
				files = append(files, imageFile{path: fmt.Sprintf("%d/%02d", c, i), label: c})
			}
		}
		spread(files)
		total, last := float64(len(files)), map[int]string{}
		for _, f := range files {
			if f.path <= last[f.label] {
				t.Errorf("%s: %s comes after %s", name, f.path, last[f.label])
			}
			last[f.label] = f.path
		}
		for from := range files {
			has := make([]float64, len(sizes))
			for to := from; to < len(files); to++ {
				has[files[to].label]++
				for c, n := range sizes {
					share := float64(n) / total
					off := math.Abs(has[c] - share*float64(to+1-from))
					if off > 1+share*float64(len(sizes)) {
						t.Fatalf("%s: class %d is %v off its share of files %d to %d", name, c, off, from, to)
					}
				}
			}
		}
	}
}
