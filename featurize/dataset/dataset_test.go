package dataset

import (
	"bytes"
	"compress/gzip"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"image"
	"image/color"
	"image/png"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"fmp/featurize/imagefile"
	"fmp/featurize/imagefile/imagefiletest"
	"fmp/onnx/must"
)

func gz(data []byte) []byte {
	var b bytes.Buffer
	w := gzip.NewWriter(&b)
	w.Write(data)
	w.Close()
	return b.Bytes()
}

func ramp(n int) []byte {
	out := make([]byte, n)
	for i := range out {
		out[i] = byte(i * 7)
	}
	return out
}

// goodIDX is a folder of 20 + 10 images of 4x5 pixels.
func goodIDX(t *testing.T) string {
	dir := t.TempDir()
	for _, p := range []struct {
		name string
		n    int
	}{{"train", 20}, {"t10k", 10}} {
		labels := make([]byte, p.n)
		for i := range labels {
			labels[i] = byte(i % 10)
		}
		imagefiletest.Write(t, filepath.Join(dir, p.name+"-images-idx3-ubyte"),
			imagefiletest.IDX(0x803, []uint32{uint32(p.n), 4, 5}, ramp(p.n*20)...))
		imagefiletest.Write(t, filepath.Join(dir, p.name+"-labels-idx1-ubyte.gz"),
			gz(imagefiletest.IDX(0x801, []uint32{uint32(p.n)}, labels...)))
	}
	return dir
}

func TestIDX(t *testing.T) {
	dir := goodIDX(t)
	ds := must.Get(Load(context.Background(), Options{Name: dir}))(t)
	if ds.Train.N != 20 || ds.Test.N != 10 || ds.Train.H != 4 || ds.Train.W != 5 || ds.Train.Ch != 1 ||
		len(ds.Classes) != 10 {
		t.Errorf("read %dx%dx%dx%d and %d, %d classes", ds.Train.N, ds.Train.H, ds.Train.W, ds.Train.Ch,
			ds.Test.N, len(ds.Classes))
	}
	if !bytes.Equal(ds.Train.At(1), ramp(40)[20:]) || ds.Train.Labels[13] != 3 {
		t.Error("pixels or labels are out of order")
	}
	out := filepath.Join(t.TempDir(), "again")
	must.Do(t, WriteIDX(out, ds))
	again := must.Get(Load(context.Background(), Options{Name: out}))(t)
	if again.Digest != ds.Digest {
		t.Error("what was written reads back as something else")
	}
}

func TestIDXColourReadsBack(t *testing.T) {
	ds := &Dataset{Classes: []string{"a", "b"}}
	ds.Train = Labelled{Images: Images{N: 4, H: 2, W: 3, Ch: 3, Pix: ramp(72)},
		Labels: []int{0, 1, 1, 0}}
	ds.Test = Labelled{Images: Images{N: 2, H: 2, W: 3, Ch: 3, Pix: ramp(36)}, Labels: []int{0, 1}}
	dir := filepath.Join(t.TempDir(), "c")
	must.Do(t, WriteIDX(dir, ds))
	got := must.Get(Load(context.Background(), Options{Name: dir}))(t)
	if want, err := ds.digest(t.Context(), nil); err != nil || got.Digest != want ||
		got.Train.Ch != 3 {
		t.Errorf("read back %+v", got)
	}
}

func TestBadIDX(t *testing.T) {
	idx := imagefiletest.IDX
	images := func(n uint32) []byte { return idx(0x803, []uint32{n, 4, 5}, ramp(400)...) }
	packed := gz(images(20))
	for name, c := range map[string]struct {
		file string
		data []byte
		want string
	}{
		"wrong magic": {"train-images-idx3-ubyte", idx(0x802, []uint32{20, 4, 5}, ramp(400)...),
			"wrong magic number"},
		"float elements": {"train-images-idx3-ubyte", idx(0xd03, []uint32{20, 4, 5}, ramp(400)...),
			"wrong magic number"},
		"no header":        {"train-images-idx3-ubyte", []byte{0, 0}, "truncated"},
		"half a header":    {"train-images-idx3-ubyte", images(20)[:11], "truncated"},
		"truncated":        {"train-images-idx3-ubyte", images(20)[:300], "truncated"},
		"goes on":          {"train-images-idx3-ubyte", append(images(20), 1), "goes on"},
		"too many claimed": {"train-images-idx3-ubyte", idx(0x803, []uint32{4e9, 4, 5}), "at most"},
		"huge sides": {"train-images-idx3-ubyte", idx(0x803, []uint32{1, 1 << 31, 1 << 31}),
			"allowed are"},
		"no pixels": {"train-images-idx3-ubyte", idx(0x803, []uint32{20, 0, 5}), "allowed are"},
		"other count": {"train-images-idx3-ubyte", idx(0x803, []uint32{19, 4, 5}, ramp(380)...),
			"do not belong together"},
		"other size":   {"t10k-images-idx3-ubyte", idx(0x803, []uint32{10, 5, 5}, ramp(250)...), "must agree"},
		"labels magic": {"train-labels-idx1-ubyte", images(20), "wrong magic number"},
		"empty":        {"t10k-images-idx3-ubyte", idx(0x803, []uint32{0, 4, 5}), "10 labels"},
		"gzip bomb": {"train-images-idx3-ubyte.gz", gz(append(images(20), make([]byte, 50<<20)...)),
			"goes on"},
		"gzip cut short": {"train-images-idx3-ubyte.gz", packed[:len(packed)-12], ""},
	} {
		t.Run(name, func(t *testing.T) {
			dir := goodIDX(t)
			must.Do(t, os.RemoveAll(filepath.Join(dir, strings.TrimSuffix(c.file, ".gz"))))
			imagefiletest.Write(t, filepath.Join(dir, c.file), c.data)
			must.Fail(Load(context.Background(), Options{Name: dir}))(t, c.want)
		})
	}
	t.Run("missing file", func(t *testing.T) {
		dir := goodIDX(t)
		os.Remove(filepath.Join(dir, "t10k-images-idx3-ubyte"))
		if _, err := Load(context.Background(), Options{Name: dir}); !errors.Is(err, ErrNotFound) {
			t.Error(err)
		}
	})
}

func cifar(labelBytes int, labels ...byte) []byte {
	var out []byte
	for i, y := range labels {
		rec := make([]byte, labelBytes+cifarPixels)
		rec[labelBytes-1] = y
		for k := range cifarPixels {
			rec[labelBytes+k] = byte(k/1024*80 + i)
		}
		out = append(out, rec...)
	}
	return out
}

func TestCIFAR10(t *testing.T) {
	dir := t.TempDir()
	imagefiletest.Write(t, filepath.Join(dir, "data_batch_2.bin"), cifar(1, 0, 1, 2, 3, 4, 5, 6, 7, 8, 9))
	imagefiletest.Write(t, filepath.Join(dir, "data_batch_4.bin"), cifar(1, 9, 8))
	imagefiletest.Write(t, filepath.Join(dir, "test_batch.bin"), cifar(1, 3, 4))
	ds := must.Get(Load(context.Background(), Options{Name: dir}))(t)
	if ds.Train.N != 12 || ds.Train.Labels[10] != 9 || ds.Classes[9] != "truck" {
		t.Errorf("%d training images, labels %v", ds.Train.N, ds.Train.Labels)
	}
	if !slices.Equal(ds.Train.At(3)[:6], []byte{3, 83, 163, 3, 83, 163}) {
		t.Errorf("pixels are not interleaved: %v", ds.Train.At(3)[:6])
	}
	if len(ds.Notes) != 1 || !strings.Contains(ds.Notes[0], "lacks batches 1 3 5") {
		t.Errorf("notes %q", ds.Notes)
	}
}

func TestClassSubset(t *testing.T) {
	dir := t.TempDir()
	imagefiletest.Write(t, filepath.Join(dir, "train.bin"), cifar(2, 3, 0, 1, 2, 3, 0))
	imagefiletest.Write(t, filepath.Join(dir, "test.bin"), cifar(2, 1, 0, 3))
	ds := must.Get(Load(context.Background(), Options{Name: dir, Classes: "2"}))(t)
	if !slices.Equal(ds.Train.Labels, []int{0, 1, 0}) ||
		!slices.Equal(ds.Extra.Labels, []int{3, 2, 3}) ||
		!slices.Equal(ds.Test.Labels, []int{1, 0}) {
		t.Errorf("train %v, extra %v, test %v", ds.Train.Labels, ds.Extra.Labels, ds.Test.Labels)
	}
	if ds.Extra.At(1)[0] != 3 {
		t.Errorf("extra image 1 is record %d; want 3", ds.Extra.At(1)[0])
	}
}

// TestClassChoice: counts, names, numbers and ranges choose classes; the others are spare, and
// excluded ones are nowhere.
func TestClassChoice(t *testing.T) {
	dir := t.TempDir()
	imagefiletest.Write(t, filepath.Join(dir, "data_batch_1.bin"), cifar(1, 0, 1, 2, 3, 4, 5, 6, 7, 8, 9))
	imagefiletest.Write(t, filepath.Join(dir, "test_batch.bin"), cifar(1, 3, 5, 9))
	for _, c := range []struct {
		classes, exclude string
		want             string // names of the classes
		extra            int    // spare training images
		test             []int
	}{
		{classes: "0", want: "airplane automobile bird cat deer dog frog horse ship truck",
			test: []int{3, 5, 9}},
		{classes: "4", want: "airplane automobile bird cat", extra: 6, test: []int{3}},
		{classes: "dog, cat", want: "cat dog", extra: 8, test: []int{0, 1}},
		{classes: "0,3,7-9", want: "airplane cat horse ship truck", extra: 5, test: []int{1, 4}},
		{classes: "3-5", exclude: "0-2,truck", want: "cat deer dog", extra: 3, test: []int{0, 2}},
		{exclude: "6-8", want: "airplane automobile bird cat deer dog truck", test: []int{3, 5, 6}},
		{classes: "0", exclude: "6-8", want: "airplane automobile bird cat deer dog truck", test: []int{3, 5, 6}},
	} {
		ds, err := Load(context.Background(), Options{Name: dir, Classes: c.classes, Exclude: c.exclude})
		if err != nil {
			t.Errorf("%q without %q: %v", c.classes, c.exclude, err)
			continue
		}
		if got := strings.Join(ds.Classes, " "); got != c.want || ds.Extra.N != c.extra ||
			!slices.Equal(ds.Test.Labels, c.test) {
			t.Errorf("%q without %q: classes %s, %d spare images, test labels %v; want %s, %d, %v",
				c.classes, c.exclude, got, ds.Extra.N, ds.Test.Labels, c.want, c.extra, c.test)
		}
		for i, y := range ds.Train.Labels { // image k of the file is of class k
			if name := cifar10Classes[ds.Train.At(i)[0]]; name != ds.Classes[y] {
				t.Errorf("%q: a %s is called %s", c.classes, name, ds.Classes[y])
			}
		}
	}
	for _, c := range []struct{ classes, exclude, want string }{
		{"-1", "", "allowed are 2 to 10"}, {"1", "", "allowed are 2 to 10"},
		{"11", "", "such as 0,9 (numbers go from 0 to 9)"},
		{"cat,cow", "", "numbers or ranges (numbers go from 0 to 9)"},
		{"cat,dof", "", `"dof" is no class`}, {"dof,cat", "", "did you mean dog?"},
		{"3-10", "", "numbers go from 0 to 9"},
		{"5-3", "", "or range"}, {"2-4,3", "", "given twice"}, {"cat,3", "", "given twice"},
		{"3-3", "", "leaves 1 classes"},
		{"cat,dog", "dog", "chosen and excluded"}, {"2-9999999999", "", "numbers go from 0 to 9"},
		{"3,,4", "", "is no class"},
	} {
		must.Fail(Load(context.Background(),
			Options{Name: dir, Classes: c.classes, Exclude: c.exclude}))(t, c.want, c.classes, c.exclude)
	}
}

// TestNumberedClasses: where classes are called by numbers other than their order, numbers and both
// ends of ranges are names.
func TestNumberedClasses(t *testing.T) {
	for _, x := range []struct{ choice, names, want string }{
		{"1-5", "1 2 3 4 5 6 7 8 9", "1 2 3 4 5"},
		{"1,2,3,4,5", "1 2 3 4 5 6 7 8 9", "1 2 3 4 5"},
		{"1,2-3", "1 2 3 4", "1 2 3"},
		{"9-11", "1 10 11 2 9", "10 11 9"},
		{"1-3,10", "01 02 03 10", "01 02 03 10"},
		{"5-7,larch", "5 6 7 8 larch", "5 6 7 larch"},
		{"10-11", "0 1 2 3 4 5 6 7 8 9 A B", "A B"}, // digits in their own places
		{"0,1", "1 2 3 4", ""},
		{"4,0", "1 2 3 4", ""},
		{"3-5", "1 2 3 4", ""},
		{"2-3", "1 larch 3", ""},
	} {
		names := strings.Fields(x.names)
		got, err := parseClasses(x.choice, names)
		var chosen []string
		for _, c := range got {
			chosen = append(chosen, names[c])
		}
		if strings.Join(chosen, " ") != x.want || (err != nil) != (x.want == "") {
			t.Errorf("%s of %s: %v, %v; want %s", x.choice, x.names, chosen, err, x.want)
		}
	}
}

// TestAdviceOnClasses: a refused count is followed by a list that is there.
func TestAdviceOnClasses(t *testing.T) {
	for names, want := range map[string]string{
		"1 2 3 4 5 6 7 8 9": "such as 1,9 (numbers are the classes' names)",
		"7 larch oak":       "such as 7,oak (numbers are the classes' names)",
		"cat dog ox":        "such as 0,2 (numbers go from 0 to 2)",
	} {
		must.Fail(nil, (&Dataset{Classes: strings.Fields(names)}).choose("1", ""))(t, want, names)
	}
}

// TestHoldOut: the last training images of the classes that have no test images are scored in place
// of these.
func TestHoldOut(t *testing.T) {
	dir := t.TempDir()
	imagefiletest.Write(t, filepath.Join(dir, "data_batch_1.bin"), cifar(1, 0, 1, 0, 1, 0, 1, 0, 2, 1, 2))
	imagefiletest.Write(t, filepath.Join(dir, "test_batch.bin"), cifar(1, 2))
	ds := must.Get(Load(context.Background(), Options{Name: dir, Classes: "3", Test: 0.5}))(t)
	if !slices.Equal(ds.Train.Labels, []int{0, 1, 0, 1, 2, 2}) ||
		!slices.Equal(ds.Test.Labels, []int{2, 0, 1, 0, 1}) ||
		ds.Test.At(2)[0] != 5 {
		t.Errorf("train %v, test %v", ds.Train.Labels, ds.Test.Labels)
	}
	for _, share := range []float64{-0.1, 1} {
		must.Fail(Load(context.Background(), Options{Name: dir, Classes: "2", Test: share}))(t, "", share)
	}
	imagefiletest.Write(t, filepath.Join(dir, "test_batch.bin"), cifar(1, 0, 1))
	must.Fail(Load(context.Background(), Options{Name: dir, Classes: "2", Test: 0.5}))(t,
		"test images of its own", "nothing to hold out")
}

// TestFolderOfTheFiles: dataset.dir may be the folder of the files itself.
func TestFolderOfTheFiles(t *testing.T) {
	dir := t.TempDir()
	imagefiletest.Write(t, filepath.Join(dir, "data_batch_1.bin"), cifar(1, 0, 1, 2, 3, 4, 5, 6, 7, 8, 9))
	imagefiletest.Write(t, filepath.Join(dir, "test_batch.bin"), cifar(1, 3))
	if got, err := Find("cifar10", dir); err != nil || got != dir {
		t.Errorf("%q, %v; want the folder itself", got, err)
	}
	if _, err := Find("mnist", dir); !errors.Is(err, ErrNotFound) {
		t.Errorf("MNIST in a folder of CIFAR-10: %v", err)
	}
}

// TestSame: one folder has many spellings, and a set that is drawn has none.
func TestSame(t *testing.T) {
	data := t.TempDir()
	for _, name := range []string{"mine", "other", "digits"} {
		imagefiletest.Write(t, filepath.Join(data, name, "data_batch_1.bin"), cifar(1, 0))
	}
	mine, link := filepath.Join(data, "mine"), filepath.Join(t.TempDir(), "link")
	must.Do(t, os.Symlink(mine, link))
	for _, c := range []struct {
		a, b string
		want bool
	}{
		{"mine", "mine", true}, {"missing", "missing", true}, {"mine", "missing", false},
		{mine, mine + "/", true}, {mine, link, true}, {"mine", mine, true},
		{mine, filepath.Join(data, "other"), false}, {"mine", "other", false},
		{"digits", "digits", true}, {"digits", filepath.Join(data, "digits"), false},
	} {
		if got, back := Same(c.a, c.b, data), Same(c.b, c.a, data); got != c.want || back != c.want {
			t.Errorf("%s and %s: %v, %v; want %v", c.a, c.b, got, back, c.want)
		}
	}
}

func TestBadCIFAR(t *testing.T) {
	good := cifar(1, 0, 1, 2, 3, 4, 5, 6, 7, 8, 9)
	for name, c := range map[string]struct {
		data []byte
		want string
	}{
		"truncated":          {good[:len(good)-1], "whole number"},
		"empty":              {nil, "whole number"},
		"label out of range": {cifar(1, 0, 1, 10), "record 2 has label 10"},
	} {
		dir := t.TempDir()
		imagefiletest.Write(t, filepath.Join(dir, "data_batch_1.bin"), c.data)
		imagefiletest.Write(t, filepath.Join(dir, "test_batch.bin"), good)
		must.Fail(Load(context.Background(), Options{Name: dir}))(t, c.want, name)
	}
}

func plain(w, h int, c color.Color) image.Image {
	im := image.NewRGBA(image.Rect(0, 0, w, h))
	for i := range w * h {
		im.Set(i%w, i/w, c)
	}
	return im
}

func TestFolder(t *testing.T) {
	dir := t.TempDir()
	for i := range 10 {
		name := string(rune('a'+i)) + ".png"
		red, clear := plain(8, 6, color.RGBA{200, 0, 0, 255}), plain(8, 6, color.RGBA{})
		imagefiletest.WriteApart(t, filepath.Join(dir, "red", name), imagefiletest.PNG(t, red))
		imagefiletest.WriteApart(t, filepath.Join(dir, "clear", "deep", name), imagefiletest.PNG(t, clear))
	}
	imagefiletest.WriteApart(t, filepath.Join(dir, "red", "z.JPG"),
		imagefiletest.JPEG(t, plain(16, 12, color.RGBA{0, 0, 200, 255}), 0))
	imagefiletest.Write(t, filepath.Join(dir, "red", "notes.txt"), []byte("x"))
	ds := must.Get(Load(context.Background(), Options{Name: dir}))(t)
	if ds.Train.N != 17 || ds.Test.N != 4 || ds.Train.H != 6 || ds.Train.W != 8 || ds.Train.Ch != 3 {
		t.Fatalf("%d training and %d test images of %dx%dx%d", ds.Train.N, ds.Test.N, ds.Train.H,
			ds.Train.W, ds.Train.Ch)
	}
	if !slices.Equal(ds.Classes, []string{"clear", "red"}) || len(ds.Notes) != 3 {
		t.Errorf("classes %v, notes %q", ds.Classes, ds.Notes)
	}
	for i, y := range ds.Test.Labels {
		want := []byte{200, 0, 0}
		if y == 0 {
			want = []byte{255, 255, 255} // transparent shows white
		}
		if got := ds.Test.At(i)[:3]; y == 0 && !slices.Equal(got, want) {
			t.Errorf("test image %d of %s begins with %v; want %v", i, ds.Classes[y], got, want)
		}
	}
	again, err := Load(context.Background(), Options{Name: dir})
	if err != nil || again.Digest != ds.Digest {
		t.Errorf("a second reading differs (%v)", err)
	}
	small, err := Load(context.Background(), Options{Name: dir, Fit: imagefile.Fit{H: 4, W: 4}})
	if err != nil || small.Train.H != 4 || small.Train.W != 4 {
		t.Errorf("resized: %v", err)
	}
}

func TestFolderWithSplit(t *testing.T) {
	dir := t.TempDir()
	grey := image.NewGray(image.Rect(0, 0, 3, 3))
	for _, p := range []string{"train/x/1.png", "train/y/1.png", "train/y/2.png", "test/y/1.png"} {
		imagefiletest.WriteApart(t, filepath.Join(dir, p), imagefiletest.PNG(t, grey))
	}
	ds := must.Get(Load(context.Background(), Options{Name: dir}))(t)
	if ds.Train.N != 3 || ds.Test.N != 1 || ds.Test.Labels[0] != 1 || ds.Train.Ch != 1 {
		t.Errorf("%+v", ds)
	}
	imagefiletest.WriteApart(t, filepath.Join(dir, "test/z/1.png"), imagefiletest.PNG(t, grey))
	must.Fail(Load(context.Background(), Options{Name: dir}))(t, `"z"`,
		"a test class without training images")
}

// TestFolderOfParts: folders that others call the parts of a data set are no classes, nor are two of
// which one is called so and both hold the same folders. Other folders of the same folders are told.
func TestFolderOfParts(t *testing.T) {
	grey := imagefiletest.PNG(t, image.NewGray(image.Rect(0, 0, 3, 3)))
	for _, c := range []struct {
		folders, inner string
		want           string // of the error, or of a note
	}{
		{"train val", "x y", "(train, val)"}, {"Training Testing", "x y", "rename"},
		{"train valid validation", "x y", "rename"}, {"Train Test", "x y", "rename"},
		{"train", "x y", "rename"}, {"train val", ".", "rename"},
		{"holdout train", "x y", "(holdout, train)"}, {"train eval", "x y", "rename"},
		{"bus car train", "day night", `note: class "bus" of `}, {"train bus", "day night", "other names"},
		{"train bus", ".", ""}, {"train bus", "x", ""}, {"test train val", "x y", ""},
		{"cat dog", "images", ""}, {"learn exam", "x y", `note: class "exam" of `},
	} {
		dir := t.TempDir()
		for _, folder := range strings.Fields(c.folders) {
			for _, inner := range strings.Fields(c.inner) {
				for _, name := range []string{"1.png", "2.png"} {
					imagefiletest.WriteApart(t, filepath.Join(dir, folder, inner, name), grey)
				}
			}
		}
		ds, err := Load(context.Background(), Options{Name: dir})
		got := ""
		if err != nil {
			got = err.Error()
		} else if i := slices.IndexFunc(ds.Notes,
			func(n string) bool { return strings.Contains(n, "name the folders of parts") }); i >= 0 {
			got = "note: " + ds.Notes[i]
		}
		if (got == "") != (c.want == "") || !strings.Contains(got, c.want) {
			t.Errorf("%s of %s: %q; want %q", c.folders, c.inner, got, c.want)
		}
	}
}

func TestBadImages(t *testing.T) {
	good := imagefiletest.PNG(t, plain(4, 4, color.White))
	bomb := slices.Clone(good)
	binary.BigEndian.PutUint32(bomb[16:], 60000) // width in IHDR; the checksum is then wrong as well
	for name, c := range map[string]struct {
		data []byte
		want string
	}{
		"not an image": {[]byte("hello"), "not a readable"},
		"truncated":    {good[:len(good)-20], "not a readable"},
		"bomb":         {bomb, "readable"},
		"empty":        {nil, "not a readable"},
	} {
		dir := t.TempDir()
		for _, f := range []string{"1.png", "2.png"} {
			imagefiletest.WriteApart(t, filepath.Join(dir, "a", f), imagefiletest.PNG(t, plain(4, 4, color.Black)))
			imagefiletest.WriteApart(t, filepath.Join(dir, "b", f), good)
		}
		imagefiletest.Write(t, filepath.Join(dir, "b/bad.png"), c.data)
		imagefiletest.Write(t, filepath.Join(dir, "a/deep/bad.jpg"), c.data)
		_, err := Load(context.Background(), Options{Name: dir})
		if err == nil || !strings.Contains(err.Error(), c.want) ||
			!strings.Contains(err.Error(), "bad.png") ||
			!strings.Contains(err.Error(), "bad.jpg") {
			t.Errorf("%s: error %v; want one with %q that names both files", name, err, c.want)
		}
		ds, err := Load(context.Background(), Options{Name: dir, Skip: true})
		if err != nil {
			t.Errorf("%s, skipped: %v", name, err)
			continue
		}
		if note := ds.Notes[len(ds.Notes)-1]; len(ds.Bad) != 2 ||
			!strings.Contains(note, "b/bad.png") ||
			!strings.Contains(note, "a/deep/bad.jpg") {
			t.Errorf("%s: %v were left out, and the note is %q", name, ds.Bad, note)
		}
		for _, p := range []*Labelled{&ds.Train, &ds.Test} {
			if len(p.Labels) != p.N || len(p.Pix) != p.N*p.H*p.W*p.Ch {
				t.Fatalf("%s: %d images with %d labels and %d bytes", name, p.N, len(p.Labels), len(p.Pix))
			}
			for i, y := range p.Labels {
				// a is black, b white
				if slices.ContainsFunc(p.At(i), func(v uint8) bool { return int(v) != 255*y }) {
					t.Errorf("%s: image %d is not of its class, %s", name, i, ds.Classes[y])
				}
			}
		}
		if ds.Train.N+ds.Test.N != 4 {
			t.Errorf("%s: %d training and %d test images; want 4 in all", name, ds.Train.N, ds.Test.N)
		}
	}
	none := t.TempDir()
	for _, f := range []string{"a/1.png", "a/2.png", "b/1.png", "b/2.png"} {
		imagefiletest.WriteApart(t, filepath.Join(none, f), nil)
	}
	must.Fail(Load(context.Background(), Options{Name: none, Skip: true}))(t,
		"0 training and 0 test images", "nothing left")
	must.Fail(imagefile.Header(bytes.NewReader(imagefiletest.PNG(t,
		image.NewGray(image.Rect(0, 0, imagefile.MaxSide+1, 1))))))(t, "allowed are", "too wide")
}

// TestListed: files in folders are in the list of checksums on every system.
func TestListed(t *testing.T) {
	for _, c := range []struct {
		name, want string
		separator  rune
	}{
		{"train/0/a.png", "train/0/a.png", '/'},
		{`train\0\a.png`, "train/0/a.png", '\\'},
		{`train/a\b.png`, "", '/'},
		{"a\nb.png", "", '/'},
	} {
		if got := listed(c.name, c.separator); got != c.want {
			t.Errorf("%q, %q: %q, want %q", c.name, c.separator, got, c.want)
		}
	}
}

func TestNotFound(t *testing.T) {
	empty := t.TempDir()
	for _, name := range []string{"mnist", "cifar10", "cifar100", "nosuch", "./nosuch", empty} {
		_, err := Load(context.Background(), Options{Name: name, Dir: empty})
		if !errors.Is(err, ErrNotFound) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestSplit(t *testing.T) {
	for _, n := range []int{8, 16, 1001, 30000, 60000} {
		s := must.Get(Split(n, DefaultFractions))(t)
		if s.Extractor.From != 0 || s.Extractor.To != s.Corpus.From || s.Corpus.To != s.Clients.From ||
			s.Clients.To != n {
			t.Errorf("%d images: %+v do not adjoin", n, s)
		}
	}
	s, _ := Split(60000, DefaultFractions)
	if s.Extractor.Len() != 30000 || s.Corpus.Len() != 22500 || s.Clients.Len() != 7500 {
		t.Errorf("60000 images: %+v", s)
	}
	for _, f := range []Fractions{{0.5, 0.5, 0.1}, {-0.1, 0.5, 0.5}, {1, 0, 0}, {0.5, 0.5, 0}} {
		must.Fail(Split(100, f))(t, "", f)
	}
}

// TestSortedFile: images in the order of their classes are refused where a part lacks a class, and
// an order that chance makes is not.
func TestSortedFile(t *testing.T) {
	repeat := func(n int, labels ...int) (out []int) {
		for _, y := range labels {
			out = append(out, slices.Repeat([]int{y}, n)...)
		}
		return out
	}
	mixed := slices.Repeat([]int{0, 1, 2, 3}, 50)
	var hundred []int
	for y := range 100 {
		hundred = append(hundred, y)
	}
	rare := slices.Clone(mixed)
	rare[7] = 4
	for name, c := range map[string]struct {
		labels  []int
		classes int
		f       Fractions
		want    string
	}{
		"sorted":             {repeat(50, 0, 1, 2, 3), 4, DefaultFractions, "splits.extractor has none of class 2"},
		"backwards":          {repeat(50, 3, 2, 1, 0), 4, DefaultFractions, "splits.extractor has none of class 0"},
		"two files":          {repeat(25, 0, 1, 2, 3, 0, 1, 2, 3), 4, DefaultFractions, "splits.corpus"},
		"threes":             {repeat(3, hundred...), 100, DefaultFractions, "splits.extractor"},
		"clients alone":      {repeat(50, 0, 1, 2, 3), 4, Fractions{Clients: 1}, ""},
		"some of them":       {repeat(50, 0, 1, 2, 3), 4, Fractions{Clients: .5}, "splits.clients"},
		"mixed":              {mixed, 4, DefaultFractions, ""},
		"a class of one":     {rare, 5, DefaultFractions, ""},
		"chance could be it": {repeat(30, 0, 1), 2, DefaultFractions, ""},
	} {
		ds := &Dataset{Train: Labelled{Images: Images{N: len(c.labels)}, Labels: c.labels}}
		for y := range c.classes {
			ds.Classes = append(ds.Classes, strconv.Itoa(y))
		}
		s, err := ds.Splits(c.f)
		if errors.Is(err, ErrSorted) != (c.want != "") || err != nil && !strings.Contains(err.Error(), c.want) ||
			s.Clients.Len() == 0 {
			t.Errorf("%s: %+v, %v; want %q", name, s, err, c.want)
		}
	}
}

func TestContactSheet(t *testing.T) {
	p := &Labelled{Images: Images{N: 3, H: 4, W: 4, Ch: 1, Pix: ramp(48)}, Labels: []int{0, 1, 1}}
	var b bytes.Buffer
	must.Do(t, ContactSheet(&b, p, 2, 2, 2))
	im, err := png.Decode(&b)
	if err != nil || im.Bounds().Dx() != 2*10+2 || im.Bounds().Dy() != 2*10+2 {
		t.Errorf("%v %v", im.Bounds(), err)
	}
	must.Fail(ContactSheet(&b, p, 2, 0, 2))(t, "", "no columns")
}

// realData is the folder of real data sets, or a skip.
func realData(t *testing.T) string {
	t.Helper()
	for _, d := range Dirs("") {
		if isDir(d) {
			return d
		}
	}
	t.Skip("no real data: set FMP_DATA to a folder with MNIST/, cifar-10-batches-bin/, cifar-100-binary/")
	return ""
}

func TestRealData(t *testing.T) {
	if testing.Short() {
		t.Skip("reads 300 MB; not with -short")
	}
	dir := realData(t)
	for _, c := range []struct {
		name           string
		classes        string
		h, ch, k, test int
	}{{"mnist", "", 28, 1, 10, 10000}, {"cifar10", "0", 32, 3, 10, 10000},
		{"cifar100", "20", 32, 3, 20, 2000}} {
		ds, err := Load(context.Background(), Options{Name: c.name, Dir: dir, Classes: c.classes})
		if errors.Is(err, ErrNotFound) {
			t.Logf("%s is not there", c.name)
			continue
		}
		if err != nil {
			t.Fatal(err)
		}
		if ds.Train.H != c.h || ds.Train.Ch != c.ch || len(ds.Classes) != c.k || ds.Test.N != c.test ||
			ds.Train.N < 10000 {
			t.Errorf("%s: %d training and %d test images of %dx%d, %d classes", c.name, ds.Train.N,
				ds.Test.N, ds.Train.H, ds.Train.Ch, len(ds.Classes))
		}
		must.Get(ds.Splits(DefaultFractions))(t)
	}
}

// TestFolderCopies: copies of a file count once, and no training image is one of a test image, in
// folders with and without train and test, decoded at once or later. What is left out is named.
func TestFolderCopies(t *testing.T) {
	for parts, most := range map[string]int{"": 21, "train test": 43} { // 40, and image 0 of both classes
		dir, n := t.TempDir(), 0
		for _, part := range strings.Split(parts, " ") {
			for _, class := range []string{"x", "y"} {
				for i := range 10 { // image 0 is in both parts
					data := imagefiletest.PNG(t, plain(2, 2, color.RGBA{uint8(10 * i), class[0], uint8(i * len(part)), 255}))
					for _, name := range []string{"%d.png", "again/%d.png"} {
						imagefiletest.Write(t, filepath.Join(dir, part, class, fmt.Sprintf(name, i)), data)
						n++
					}
				}
			}
		}
		// An image of both classes, and where there are two parts of both.
		both := imagefiletest.PNG(t, plain(2, 2, color.RGBA{1, 2, 3, 255}))
		for _, name := range []string{"train/x/b.png", "test/y/b.png"} {
			if parts == "" {
				name = strings.TrimPrefix(strings.TrimPrefix(name, "train/"), "test/")
			}
			imagefiletest.Write(t, filepath.Join(dir, name), both)
			n++
		}
		for _, hold := range []int64{0, 1} {
			ds := must.Get(Load(t.Context(), Options{Name: dir, Hold: hold}))(t)
			train, test := must.Get(ds.Train.Load(t.Context()))(t), must.Get(ds.Test.Load(t.Context()))(t)
			seen := map[string]bool{}
			for i := range test.N {
				seen[string(test.At(i))] = true
			}
			for i := range train.N {
				if seen[string(train.At(i))] {
					t.Errorf("%q, hold %d: training image %d is a test image", parts, hold, i)
				}
			}
			left := n - ds.Train.N - ds.Test.N
			if said := strings.Join(ds.Notes, "\n"); !strings.Contains(said, fmt.Sprintf("%d files were left out", left)) ||
				!strings.Contains(said, "copies of a file count once") || left > most || left < most-1 || len(seen) != test.N {
				t.Errorf("%q, hold %d: %d of %d are left out, %d of %d test images differ: %s", parts, hold, left, n,
					len(seen), test.N, said)
			}
		}
	}
}
