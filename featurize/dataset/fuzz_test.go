package dataset

import (
	"bytes"
	"encoding/binary"
	"image"
	"testing"

	"fmp/featurize/imagefile"
)

func FuzzIDXImages(f *testing.F) {
	f.Add(idx(0x803, []uint32{2, 3, 4}, ramp(24)))
	f.Add(idx(0x804, []uint32{1, 2, 2, 3}, ramp(12)))
	f.Add(idx(0x803, []uint32{1 << 31, 1 << 31, 1 << 31}, nil))
	f.Add([]byte{0, 0, 8})
	f.Fuzz(func(t *testing.T, data []byte) {
		for _, size := range []int64{-1, int64(len(data))} {
			im, err := decodeIDXImages(bytes.NewReader(data), size)
			if err == nil && (checkSize(im.N, im.H, im.W, im.Ch) != nil || len(im.Pix) != im.N*im.H*im.W*im.Ch || len(im.Pix) > len(data)) {
				t.Errorf("%d bytes gave %dx%dx%dx%d", len(data), im.N, im.H, im.W, im.Ch)
			}
		}
	})
}

func FuzzIDXLabels(f *testing.F) {
	f.Add(idx(0x801, []uint32{3}, []byte{1, 2, 3}))
	f.Add(idx(0x801, []uint32{1 << 31}, nil))
	f.Fuzz(func(t *testing.T, data []byte) {
		labels, err := decodeIDXLabels(bytes.NewReader(data), int64(len(data)))
		if err == nil && len(labels) != len(data)-8 {
			t.Errorf("%d bytes gave %d labels", len(data), len(labels))
		}
	})
}

func FuzzCIFAR(f *testing.F) {
	f.Add(cifar(1, 0, 9), false)
	f.Add(cifar(2, 99), true)
	f.Add([]byte("short"), false)
	f.Fuzz(func(t *testing.T, data []byte, fine bool) {
		labelBytes, classes := 1, 10
		if fine {
			labelBytes, classes = 2, 100
		}
		p, err := decodeCIFAR(bytes.NewReader(data), int64(len(data)), labelBytes, classes)
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

func FuzzImage(f *testing.F) {
	small := image.NewGray(image.Rect(0, 0, 3, 2))
	var b bytes.Buffer
	if err := encodePNG(&b, small); err != nil {
		f.Fatal(err)
	}
	f.Add(b.Bytes())
	wide := bytes.Clone(b.Bytes())
	binary.BigEndian.PutUint32(wide[16:], 1<<30)
	f.Add(wide)
	f.Add(jpegBytes(f, small))
	f.Fuzz(func(t *testing.T, data []byte) {
		im, err := Decode(data)
		if err != nil {
			return
		}
		s := im.Bounds()
		if s.Dx() < 1 || s.Dy() < 1 || s.Dx() > MaxImageSide || s.Dy() > MaxImageSide || s.Dx()*s.Dy() > MaxImagePixels {
			t.Errorf("an image of %v passed", s)
		}
		if s.Dx()*s.Dy() <= 1<<16 { // scaling a large one tells nothing more
			imagefile.Pixels(im, 5, 7, 3, make([]uint8, 105))
		}
	})
}
