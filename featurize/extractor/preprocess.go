package extractor

import (
	"fmp/featurize/dataset"
	"fmp/featurize/imagefile"
	"fmp/onnx"
)

// buffer is one worker's memory for a batch. It is not safe for several goroutines.
type buffer struct {
	tensor *onnx.Tensor
	pix    []uint8 // one image at the model's size, [h, w, ch]
	// The value that is fed for a pixel of each channel and value, for models of either type.
	bytes  [][256]uint8
	floats [][256]float32
}

// buffer returns the memory for one worker. Tables of 256 numbers a channel take the place of a
// division for each pixel.
func (x *Extractor) buffer() *buffer {
	b := &buffer{pix: make([]uint8, x.sig.h*x.sig.w*x.sig.ch), bytes: make([][256]uint8, x.sig.ch),
		floats: Scaled(x.mean, x.std)}
	for c := range b.bytes {
		for p := range 256 {
			b.bytes[c][p] = uint8(p)
		}
	}
	return b
}

// Scaled returns the number that each pixel p of a channel is fed as, (p/255 - mean) / std, one of
// each a channel. A mean and a deviation are of pixels scaled to 0..1, as most networks publish
// theirs.
func Scaled(mean, std []float32) [][256]float32 {
	s := make([][256]float32, len(mean))
	for c := range s {
		for p := range 256 {
			s[c][p] = (float32(p)/255 - mean[c]) / std[c]
		}
	}
	return s
}

// feed makes the model's input for images from..to-1: resized, converted in channels, scaled and
// laid out. A model with a fixed batch gets copies of the last image to fill it. The tensor is the
// buffer's, and is written over by the next call. A copy of an image costs the time of one, and
// gives features that are cut off by the caller.
func (x *Extractor) feed(images *dataset.Images, from, to int, buf *buffer) (*onnx.Tensor, error) {
	s := &x.sig
	n := to - from
	if s.batch > 0 {
		n = s.batch
	}
	if buf.tensor == nil || buf.tensor.Shape[0] != n {
		shape := []int{n, s.ch, s.h, s.w}
		if s.nhwc {
			shape = []int{n, s.h, s.w, s.ch}
		}
		t, err := onnx.Zeros(s.dtype, shape...)
		if err != nil {
			return nil, err
		}
		buf.tensor = t
	}
	size := s.h * s.w * s.ch
	for i := range n {
		at := min(from+i, to-1)
		if src := images.At(at); images.H == s.h && images.W == s.w && images.Ch == s.ch {
			copy(buf.pix, src)
		} else {
			x.fit.Pixels(imagefile.Raw(src, images.H, images.W, images.Ch), buf.pix)
		}
		if x.bgr {
			for k := 0; k < len(buf.pix); k += 3 {
				buf.pix[k], buf.pix[k+2] = buf.pix[k+2], buf.pix[k]
			}
		}
		if s.dtype == onnx.Uint8 {
			arrange(buf.tensor.U8()[i*size:(i+1)*size], buf.pix, s, buf.bytes)
		} else {
			arrange(buf.tensor.F32()[i*size:(i+1)*size], buf.pix, s, buf.floats)
		}
	}
	return buf.tensor, nil
}

// arrange writes pixels [h, w, ch] in the model's layout, each mapped by its channel's table. Value
// k of channel c goes to c h w + k (NCHW) or to k ch + c (NHWC).
func arrange[T uint8 | float32](dst []T, pix []uint8, s *signature, table [][256]T) {
	plane := s.h * s.w
	for c := range s.ch {
		fed, at, step := &table[c], c*plane, 1
		if s.nhwc {
			at, step = c, s.ch
		}
		for k := range plane {
			dst[at+k*step] = fed[pix[k*s.ch+c]]
		}
	}
}
