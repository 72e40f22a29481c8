package imagefile

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"hash/crc32"
	"image"
	"image/color"
	"slices"
	"testing"

	"fmp/featurize/imagefile/imagefiletest"
	codec "fmp/featurize/imagefile/jpeg"
)

// exif is a TIFF header with the orientation among other tags.
func exif(o orientation, order binary.AppendByteOrder) []byte {
	mark := "II*\x00"
	if order == binary.AppendByteOrder(binary.BigEndian) {
		mark = "MM\x00*"
	}
	d := order.AppendUint32([]byte(mark), 8)
	d = order.AppendUint16(d, 2)
	for _, e := range []struct{ tag, kind, value uint16 }{{0x010e, 2, 7}, {0x0112, 3, uint16(o)}} {
		d = order.AppendUint32(order.AppendUint16(order.AppendUint16(d, e.tag), e.kind), 1)
		d = order.AppendUint16(order.AppendUint16(d, e.value), 0)
	}
	return order.AppendUint32(d, 0)
}

// withEXIF puts EXIF data behind a JPEG's first two bytes, after another segment and padding.
func withEXIF(jpeg, tiff []byte) []byte {
	body := append([]byte("Exif\x00\x00"), tiff...)
	head := append(binary.BigEndian.AppendUint16([]byte{0xff, 0xd8, 0xff, 0xe0, 0, 4, 1, 2, 0xff, 0xff,
		0xe1}, uint16(len(body)+2)), body...)
	return append(head, jpeg[2:]...)
}

// withChunk puts an eXIf chunk behind a PNG's header.
func withChunk(png, tiff []byte) []byte {
	const head = 8 + 25 // signature and IHDR
	chunk := append([]byte("eXIf"), tiff...)
	out := append(bytes.Clone(png[:head]), binary.BigEndian.AppendUint32(nil, uint32(len(tiff)))...)
	out = append(out, chunk...)
	out = binary.BigEndian.AppendUint32(out, crc32.ChecksumIEEE(chunk))
	return append(out, png[head:]...)
}

// corners is a picture of which each quarter has a grey of its own: top left 0, top right 80,
// bottom left 160, bottom right 240, as they are to be shown.
func corners(w, h int, at func(x, y int) (int, int)) *image.Gray {
	im := image.NewGray(image.Rect(0, 0, w, h))
	for y := range h {
		for x := range w {
			sx, sy := at(x, y)
			v := 0
			if sx >= 16 {
				v = 80
			}
			if sy >= 8 {
				v += 160
			}
			im.SetGray(x, y, color.Gray{uint8(v)})
		}
	}
	return im
}

// TestOrientation: a picture of 32x16 stored in each of the eight ways is shown the same.
func TestOrientation(t *testing.T) {
	// Where the pixel that is stored at x, y is shown, by the definitions of EXIF: the row 0 and
	// column 0 of what is stored are at this side of the picture.
	shown := [9]func(x, y int) (int, int){
		1: func(x, y int) (int, int) { return x, y },           // top, left
		2: func(x, y int) (int, int) { return 31 - x, y },      // top, right
		3: func(x, y int) (int, int) { return 31 - x, 15 - y }, // bottom, right
		4: func(x, y int) (int, int) { return x, 15 - y },      // bottom, left
		5: func(x, y int) (int, int) { return y, x },           // left, top
		6: func(x, y int) (int, int) { return 31 - y, x },      // right, top
		7: func(x, y int) (int, int) { return 31 - y, 15 - x }, // right, bottom
		8: func(x, y int) (int, int) { return y, 15 - x },      // left, bottom
	}
	var want [3][]uint8
	fits := [3]Fit{{16, 32, 1, Stretch}, {8, 8, 1, Crop}, {32, 32, 1, Pad}}
	for o := orientation(1); o <= 8; o++ {
		w, h := 32, 16
		if o.swaps() {
			w, h = h, w
		}
		im := corners(w, h, shown[o])
		j, p := imagefiletest.JPEG(t, im, 100), imagefiletest.PNG(t, im)
		for name, data := range map[string][]byte{
			"jpeg little": withEXIF(j, exif(o, binary.LittleEndian)),
			"jpeg big":    withEXIF(j, exif(o, binary.BigEndian)),
			"png":         withChunk(p, exif(o, binary.BigEndian)),
		} {
			if c, err := Header(bytes.NewReader(data)); err != nil || c.Width != 32 || c.Height != 16 {
				t.Errorf("%s, orientation %d: %dx%d, %v; want 32x16", name, o, c.Width, c.Height, err)
			}
			for i, fit := range fits {
				pix := make([]uint8, fit.Size())
				if err := fit.Decode(t.Context(), data, pix); err != nil {
					t.Fatalf("%s, orientation %d: %v", name, o, err)
				}
				if want[i] == nil {
					want[i] = pix
				}
				for k := range pix {
					if d := int(pix[k]) - int(want[i][k]); d < -4 || d > 4 {
						t.Fatalf("%s, orientation %d, %+v: pixel %d is %d, upright %d", name, o, fit, k,
							pix[k], want[i][k])
					}
				}
			}
		}
	}
	at := func(i, x, y int) int { return int(want[i][y*fits[i].W+x]) }
	for _, c := range []struct {
		what        string
		i, x, y, is int
	}{
		{"top left", 0, 3, 3, 0}, {"top right", 0, 28, 3, 80}, {"bottom left", 0, 3, 12, 160},
		{"bottom right", 0, 28, 12, 240},
		{"cropped, top left", 1, 1, 1, 0}, {"cropped, bottom right", 1, 6, 6, 240},
		{"margin", 2, 16, 3, 0}, {"margin", 2, 16, 28, 0}, {"padded, bottom right", 2, 28, 20, 240},
	} {
		if v := at(c.i, c.x, c.y); v < c.is-6 || v > c.is+6 {
			t.Errorf("%s is %d, want %d", c.what, v, c.is)
		}
	}
}

func orientationOf(data []byte) orientation {
	r := bytes.NewReader(data)
	if !bytes.HasPrefix(data, []byte{0xff, 0xd8}) {
		return turning(r)
	}
	h, err := codec.ReadHeader(r)
	if err != nil {
		return upright
	}
	return tiffOrientation(h.Exif)
}

// TestWrittenOrientation: an orientation of 16 or of 32 bits counts. EXIF data that are not what they
// should be leave a picture as it is stored.
func TestWrittenOrientation(t *testing.T) {
	good := exif(6, binary.LittleEndian)
	far := bytes.Clone(good)
	binary.LittleEndian.PutUint32(far[4:], 1<<31)
	const kind, count, value = 8 + 2 + 12 + 2, 8 + 2 + 12 + 4, 8 + 2 + 12 + 8 // of the second entry
	with := func(at, v int, further ...int) []byte {                          // places and the bytes there
		d := bytes.Clone(good)
		for c := range slices.Chunk(append(further, at, v), 2) {
			d[c[0]] = byte(c[1])
		}
		return d
	}
	bigLong := exif(0, binary.BigEndian)
	bigLong[kind+1], bigLong[value+3] = 4, 8
	jpeg := []byte("\xff\xd8\xff\xc0\x00\x0b\x08\x00\x01\x00\x01\x01\x01\x11\x00\xff\xd9")
	for name, c := range map[string]struct {
		data []byte
		want orientation
	}{
		"nothing": {nil, upright}, "no image": {[]byte("GIF89a"), upright}, "no data": {jpeg, upright},
		"SHORT": {withEXIF(jpeg, good), 6}, "LONG": {withEXIF(jpeg, with(kind, 4)), 6},
		"LONG of the other order": {withEXIF(jpeg, bigLong), 8}, "LONG of a TIFF": {with(kind, 4), 6},
		"offset beyond": {withEXIF(jpeg, far), upright}, "cut": {withEXIF(jpeg, good)[:20], upright},
		"of another type": {withEXIF(jpeg, with(kind, 5)), upright},
		"two LONG":        {withEXIF(jpeg, with(kind, 4, count, 2)), upright},
		"9":               {withEXIF(jpeg, exif(9, binary.BigEndian)), upright},
		"0":               {withEXIF(jpeg, exif(0, binary.BigEndian)), upright},
		"LONG of 65,542":  {withEXIF(jpeg, with(kind, 4, value+2, 1)), upright},
		"other order":     {withEXIF(jpeg, append([]byte("XX*\x00"), good[4:]...)), upright},
	} {
		if o := orientationOf(c.data); o != c.want {
			t.Errorf("%s: orientation %d, want %d", name, o, c.want)
		}
	}
}

// FuzzOrientation: whatever the bytes, there is an answer of 1 to 8.
func FuzzOrientation(f *testing.F) {
	jpeg := []byte("\xff\xd8\xff\xc0\x00\x0b\x08\x00\x01\x00\x01\x01\x01\x11\x00\xff\xd9")
	for o := range orientation(10) {
		f.Add(withEXIF(jpeg, exif(o, binary.LittleEndian)))
		f.Add(withEXIF(jpeg, exif(o, binary.BigEndian)))
	}
	f.Add(withChunk(make([]byte, 50), exif(3, binary.BigEndian)))
	f.Fuzz(func(t *testing.T, data []byte) {
		if o := orientationOf(data); o < 1 || o > 8 {
			t.Error(fmt.Sprint("orientation ", o))
		}
	})
}
