package dataset

import (
	"bytes"
	"context"
	"image"
	"os"
	"path/filepath"
	"testing"

	"fmp/featurize/imagefile"
	"fmp/featurize/imagefile/imagefiletest"
	"fmp/onnx/alloctest"
	"fmp/onnx/must"
)

// FuzzIDXImages: as many pixels as the header says, and at most 8 bytes of memory for each byte of
// the file.
func FuzzIDXImages(f *testing.F) {
	f.Add(imagefiletest.IDX(0x803, []uint32{2, 3, 4}, ramp(24)...))
	f.Add(imagefiletest.IDX(0x804, []uint32{1, 2, 2, 3}, ramp(12)...))
	f.Add(imagefiletest.IDX(0x803, []uint32{1 << 31, 1 << 31, 1 << 31}))
	f.Add([]byte{0, 0, 8})
	f.Fuzz(func(t *testing.T, data []byte) {
		for _, size := range []int64{-1, int64(len(data))} {
			var im *Images
			var err error
			alloctest.AtMost(t, 8*len(data),
				func() { im, err = decodeIDXImages(bytes.NewReader(data), size) })
			if err == nil && (checkSize(im.N, im.H, im.W, im.Ch) != nil ||
				len(im.Pix) != im.N*im.H*im.W*im.Ch || len(im.Pix) > len(data)) {
				t.Errorf("%d bytes gave %dx%dx%dx%d", len(data), im.N, im.H, im.W, im.Ch)
			}
		}
	})
}

// FuzzIDXLabels: as many labels as the header says, and at most 16 bytes of memory for each byte of
// the file.
func FuzzIDXLabels(f *testing.F) {
	f.Add(imagefiletest.IDX(0x801, []uint32{3}, 1, 2, 3))
	f.Add(imagefiletest.IDX(0x801, []uint32{1 << 31}))
	f.Fuzz(func(t *testing.T, data []byte) {
		for _, size := range []int64{-1, int64(len(data))} {
			var labels []int
			var err error
			alloctest.AtMost(t, 16*len(data),
				func() { labels, err = decodeIDXLabels(bytes.NewReader(data), size) })
			if err == nil && len(labels) != len(data)-8 {
				t.Errorf("%d bytes gave %d labels", len(data), len(labels))
			}
		}
	})
}

// FuzzCIFAR: whole records, labels of known classes, and at most 2 bytes of memory for each byte of
// the file.
func FuzzCIFAR(f *testing.F) {
	f.Add(cifar(1, 0, 9), false)
	f.Add(cifar(2, 99), true)
	f.Add([]byte("short"), false)
	f.Fuzz(func(t *testing.T, data []byte, fine bool) {
		labelBytes, classes := 1, 10
		if fine {
			labelBytes, classes = 2, 100
		}
		var p *Labelled
		var err error
		alloctest.AtMost(t, 2*len(data),
			func() { p, err = decodeCIFAR(bytes.NewReader(data), int64(len(data)), labelBytes, classes) })
		if err != nil {
			return
		}
		if p.N*(labelBytes+cifarPixels) != len(data) || len(p.Pix) != p.N*cifarPixels {
			t.Errorf("%d bytes gave %d images", len(data), p.N)
		}
		for i, y := range p.Labels {
			if y < 0 || y >= classes {
				t.Errorf("label %d of record %d", y, i)
			}
		}
	})
}

// FuzzClassNames: names for all classes, and at most 64 bytes of memory for each byte of the file.
func FuzzClassNames(f *testing.F) {
	f.Add([]byte("apple\nbaby\n"), uint8(2))
	f.Add([]byte("\r\n\n\x00"), uint8(200))
	f.Add(bytes.Repeat([]byte("x"), 600), uint8(1))
	path := filepath.Join(f.TempDir(), "classes.txt")
	f.Fuzz(func(t *testing.T, data []byte, n uint8) {
		must.Do(t, os.WriteFile(path, data, 0o644))
		alloctest.AtMost(t, 64*(len(data)+int(n)), func() {
			names, _, err := classNames(path, int(n))
			if err == nil && len(names) < int(n) {
				t.Errorf("%d names for %d classes", len(names), n)
			}
		})
	})
}

// FuzzFolder reads a folder of four images of two classes, one of them whatever the fuzzer makes: a
// data set of the size that it says, or an error. FuzzDecode in imagefile bounds the memory of one
// image; a folder takes besides that what its data set holds and 32 bytes for each pixel that is
// resized. Images of more than 65,536 pixels, which take long, are left out.
func FuzzFolder(f *testing.F) {
	small := imagefiletest.PNG(f, image.NewGray(image.Rect(0, 0, 3, 2)))
	f.Add(small, uint8(0))
	f.Add(imagefiletest.JPEG(f, image.NewRGBA(image.Rect(0, 0, 8, 5)), 0), uint8(4))
	f.Add([]byte("no image"), uint8(0))
	f.Add([]byte("no image"), uint8(128))
	dir := f.TempDir()
	for _, name := range []string{"a/0.png", "a/1.png", "b/0.png", "b/1.png"} {
		imagefiletest.WriteApart(f, filepath.Join(dir, name), small)
	}
	f.Fuzz(func(t *testing.T, data []byte, side uint8) {
		skip := side >= 128
		if h, err := imagefile.Header(bytes.NewReader(data)); err == nil && h.Width*h.Height > 1<<16 {
			t.Skip()
		}
		must.Do(t, os.WriteFile(filepath.Join(dir, "b/1.png"), data, 0o644))
		alloctest.AtMost(t, 64*len(data)+(24+32)*(1<<16)+1<<20, func() {
			ds, err := openFolder(context.Background(), dir,
				Options{Fit: imagefile.Fit{H: int(side % 32), W: int(side % 32)}, Skip: skip})
			if err != nil {
				return
			}
			if ds.Train.N+ds.Test.N+len(ds.Bad) != 4 || len(ds.Bad) > 0 && !skip ||
				len(ds.Train.Pix) != ds.Train.N*ds.Train.H*ds.Train.W*ds.Train.Ch {
				t.Errorf("%d training and %d test images of %dx%dx%d", ds.Train.N,
					ds.Test.N, ds.Train.H, ds.Train.W, ds.Train.Ch)
			}
		})
	})
}
