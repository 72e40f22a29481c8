package imagefile

import (
	"bytes"
	"encoding/base64"
	"image"
	"testing"

	"fmp/onnx/must"
)

// A fax of 8 x 2 pixels, CCITT's group 4 as Pillow writes it: black, black, five white, black.
const fax = "SUkqAA4AAAAufgAgAgAJAAABAwABAAAACAAAAAEBAwABAAAAAgAAAAIBAwABAAAAAQAAAAMBAwABAAAABAAAAAYBAwABAAAAAQAA" +
	"ABEBBAABAAAACAAAABYBAwABAAAAAgAAABcBBAABAAAABQAAABwBAwABAAAAAQAAAAAAAAA="

// TestFax: the two ways in which a fax may say that 0 is black or white are each other's negative.
func TestFax(t *testing.T) {
	black := must.Get(base64.StdEncoding.DecodeString(fax))(t)
	white := bytes.Replace(black, []byte{6, 1, 3, 0, 1, 0, 0, 0, 1}, []byte{6, 1, 3, 0, 1, 0, 0, 0, 0}, 1)
	// the compression as a number of 32 bits
	long := bytes.Replace(black, []byte{3, 1, 3, 0, 1, 0, 0, 0, 4}, []byte{3, 1, 4, 0, 1, 0, 0, 0, 4}, 1)
	if bytes.Equal(white, black) || bytes.Equal(long, black) {
		t.Fatal("the fax has other tags")
	}
	of := []byte{0, 0, 255, 255, 255, 255, 255, 0}
	for _, c := range []struct {
		data []byte
		want []byte
	}{{black, of}, {long, of}, {white, []byte{255, 255, 0, 0, 0, 0, 0, 255}}} {
		im := must.Get(decodeOther(t.Context(), c.data))(t).(*image.Gray)
		if !bytes.Equal(im.Pix[:8], c.want) || !bytes.Equal(im.Pix[im.Stride:][:8], c.want) {
			t.Errorf("pixels are %v; want rows of %v", im.Pix, c.want)
		}
	}
}
