package dataset

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"image/jpeg"
	"image/png"
	"path/filepath"

	"image"

	"golang.org/x/image/draw"

	"fmp/featurize/imagefile"
	"fmp/featurize/imagefile/dicom"
	"fmp/onnx/atomicfile"
)

// How [WritePhotos] writes images: the magnification, the JPEG quality (JPEG and PNG alternate),
// and one in how many JPEGs is stored rotated.
const (
	photoScale   = 4
	photoQuality = 92
	photoTurned  = 3
)

// WriteDICOM writes a data set of grey images in the form of a hospital's:
// DIR/train/CLASS/0001.dcm, magnified four times in each direction, 16 bits of grey, uncompressed,
// of nobody. Its classes must be usable as names of folders.
func WriteDICOM(dir string, ds *Dataset) error {
	if ds.Train.Ch != 1 {
		return fmt.Errorf("images of %d channels are not written as DICOM; those of 1 are",
			ds.Train.Ch)
	}
	return eachPhoto(dir, ds,
		func(_ int, src image.Image, box image.Rectangle) ([]byte, string, error) {
			im := image.NewGray16(box)
			draw.CatmullRom.Scale(im, box, src, src.Bounds(), draw.Src, nil)
			var b bytes.Buffer
			err := dicom.Encode(&b, im)
			return b.Bytes(), "dcm", err
		})
}

// WritePhotos writes a data set in the form of users' photographs: DIR/train/CLASS/0001.png and
// 0002.jpg, magnified four times in each direction, and every third JPEG as a phone held upright
// stores it, rotated, with its orientation in the EXIF data.
func WritePhotos(dir string, ds *Dataset) error {
	// The order is fixed, so that two calls write the same names and orientations.
	return eachPhoto(dir, ds,
		func(i int, src image.Image, box image.Rectangle) ([]byte, string, error) {
			im := image.NewNRGBA(box)
			draw.CatmullRom.Scale(im, box, src, src.Bounds(), draw.Src, nil)
			var b bytes.Buffer
			if i%2 == 0 {
				err := png.Encode(&b, im)
				return b.Bytes(), "png", err
			}
			turned := i/2%photoTurned == photoTurned-1
			if turned {
				im = lying(im)
			}
			err := jpeg.Encode(&b, im, &jpeg.Options{Quality: photoQuality})
			if err != nil || !turned {
				return b.Bytes(), "jpg", err
			}
			return onItsSide(b.Bytes()), "jpg", nil
		})
}

// eachPhoto writes the files of a data set, each as made returns it for image i in a box of its
// magnified size, with the end of its name. Numbers go through a part, from 1, whatever the class.
// Files that are there are replaced, each whole or not at all. An error leaves the earlier ones.
func eachPhoto(dir string, ds *Dataset, made func(i int, src image.Image,
	box image.Rectangle) (data []byte, ext string, err error)) error {
	for _, k := range []struct {
		name string
		part *Labelled
	}{{"train", &ds.Train}, {"test", &ds.Test}} {
		for i := range k.part.N {
			p := k.part
			data, ext, err := made(i, imagefile.Raw(p.At(i), p.H, p.W, p.Ch),
				image.Rect(0, 0, photoScale*p.W, photoScale*p.H))
			if err != nil {
				return err
			}
			path := filepath.Join(dir, k.name, ds.Classes[p.Labels[i]],
				fmt.Sprintf("%04d.%s", i+1, ext))
			if err := atomicfile.WriteBytes(path, data); err != nil {
				return err
			}
		}
	}
	return nil
}

// lying returns a picture rotated by 90 degrees to the left: rotated back to the right it is
// upright.
func lying(im *image.NRGBA) *image.NRGBA {
	w, h := im.Rect.Dx(), im.Rect.Dy()
	out := image.NewNRGBA(image.Rect(0, 0, h, w))
	for y := range h {
		for x := range w {
			out.SetNRGBA(y, w-1-x, im.NRGBAAt(x, y))
		}
	}
	return out
}

// onItsSide inserts EXIF data after the first two bytes of a JPEG: orientation 6, to be rotated by
// 90 degrees to the right. The directory of the EXIF data has one entry, tag 0x0112 of one short
// (type 3). The EXIF data are in big-endian TIFF (MM, 42), with the first directory at offset 8 and
// none after it. They stand in a segment APP1 of the JPEG, whose length counts its own two bytes.
func onItsSide(jpeg []byte) []byte {
	be := binary.BigEndian
	tiff := append([]byte("Exif\x00\x00MM\x00*"), 0, 0, 0, 8, 0, 1) // one entry
	tiff = be.AppendUint32(be.AppendUint16(be.AppendUint16(tiff, 0x0112), 3), 1)
	tiff = append(tiff, 0, 6, 0, 0, 0, 0, 0, 0)
	out := append(be.AppendUint16([]byte{0xff, 0xd8, 0xff, 0xe1}, uint16(len(tiff)+2)), tiff...)
	return append(out, jpeg[2:]...)
}
