package imagefiletest

import (
	"bytes"
	"encoding/binary"
	"image"
	"image/jpeg"
)

// Sampled returns a JPEG of w by h pixels whose components have the given samples across and down,
// relative to each other, and the levels at each of their samples that levels returns. Each
// component is a scan of its own, made by image/jpeg as a grey picture of the component's size. The
// frame header joins them. Samples must be 1 to 4, and w and h below 65,536.
func Sampled(w, h int, samples [3][2]int, levels func(component, x, y int) uint8) []byte {
	across, down := 0, 0
	for _, s := range samples {
		across, down = max(across, s[0]), max(down, s[1])
	}
	frame := []byte{8, byte(h >> 8), byte(h), byte(w >> 8), byte(w), 3}
	var tables, scans []byte
	for i, s := range samples {
		frame = append(frame, byte(1+i), byte(s[0]<<4|s[1]), 0)
		im := image.NewGray(image.Rect(0, 0, (w*s[0]+across-1)/across, (h*s[1]+down-1)/down))
		for at := range im.Pix {
			im.Pix[at] = levels(i, at%im.Stride, at/im.Stride)
		}
		var grey bytes.Buffer
		if err := jpeg.Encode(&grey, im, &jpeg.Options{Quality: 100}); err != nil {
			panic(err)
		}
		data := grey.Bytes()
		// All have the same tables, so that those of the last serve.
		tables = nil
		for at := 2; ; {
			n := 2 + int(binary.BigEndian.Uint16(data[at+2:]))
			if data[at+1] == 0xda {
				data[at+5] = byte(1 + i) // of the component
				scans = append(scans, data[at:len(data)-2]...)
				break
			}
			if data[at+1] != 0xc0 {
				tables = append(tables, data[at:at+n]...)
			}
			at += n
		}
	}
	out := append([]byte{0xff, 0xd8}, tables...)
	out = append(out, 0xff, 0xc0, 0, byte(2+len(frame)))
	return append(append(append(out, frame...), scans...), 0xff, 0xd9)
}
