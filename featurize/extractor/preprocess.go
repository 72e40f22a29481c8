package extractor

import (
	"image"

	"golang.org/x/image/draw"

	"fmp/featurize/dataset"
	"fmp/onnx"
)

// buffer is one worker's memory for a batch.
type buffer struct {
	tensor *onnx.Tensor
	small  *image.RGBA
	pix    []uint8 // one image at the model's size, [h, w, ch]
}

func (x *Extractor) buffer() *buffer {
	return &buffer{pix: make([]uint8, x.sig.h*x.sig.w*x.sig.ch)}
}

// feed makes the model's input for images from..to-1: resized, converted in channels, scaled and laid out.
// A model with a fixed batch gets copies of the last image to fill it.
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
		x.fit(images, min(from+i, to-1), buf)
		if s.dtype == onnx.Uint8 {
			arrange(buf.tensor.U8()[i*size:(i+1)*size], buf.pix, s, func(p uint8, _ int) uint8 { return p })
		} else {
			arrange(buf.tensor.F32()[i*size:(i+1)*size], buf.pix, s, func(p uint8, c int) float32 {
				return (float32(p)/255 - x.mean[c]) / x.std[c]
			})
		}
	}
	return buf.tensor, nil
}

// arrange writes pixels [h, w, ch] in the model's layout, each through f.
func arrange[T uint8 | float32](dst []T, pix []uint8, s *signature, f func(p uint8, c int) T) {
	plane := s.h * s.w
	for k := range plane {
		for c := range s.ch {
			at := c*plane + k
			if s.nhwc {
				at = k*s.ch + c
			}
			dst[at] = f(pix[k*s.ch+c], c)
		}
	}
}

// fit leaves image i in buf.pix at the model's size and channels. Grey becomes three equal channels; colour
// becomes grey by 0.299 R + 0.587 G + 0.114 B (ITU-R BT.601). Sizes are changed by Catmull-Rom interpolation,
// each axis by its own factor.
func (x *Extractor) fit(images *dataset.Images, i int, buf *buffer) {
	s := &x.sig
	src := images.At(i)
	h, w, ch := images.H, images.W, images.Ch
	if h != s.h || w != s.w {
		full := image.NewRGBA(image.Rect(0, 0, w, h))
		for k := range h * w {
			p := full.Pix[4*k : 4*k+4]
			if ch == 1 {
				p[0], p[1], p[2] = src[k], src[k], src[k]
			} else {
				copy(p, src[3*k:3*k+3])
			}
			p[3] = 255
		}
		if buf.small == nil {
			buf.small = image.NewRGBA(image.Rect(0, 0, s.w, s.h))
		}
		draw.CatmullRom.Scale(buf.small, buf.small.Bounds(), full, full.Bounds(), draw.Src, nil)
		for k := range s.h * s.w {
			p := buf.small.Pix[4*k : 4*k+3]
			put(buf.pix, k, s.ch, p[0], p[1], p[2], ch == 1)
		}
		return
	}
	if ch == s.ch {
		copy(buf.pix, src)
		return
	}
	for k := range h * w {
		if ch == 1 {
			put(buf.pix, k, s.ch, src[k], src[k], src[k], true)
		} else {
			put(buf.pix, k, s.ch, src[3*k], src[3*k+1], src[3*k+2], false)
		}
	}
}

func put(pix []uint8, k, ch int, r, g, b uint8, grey bool) {
	switch {
	case ch == 3:
		pix[3*k], pix[3*k+1], pix[3*k+2] = r, g, b
	case grey:
		pix[k] = r
	default:
		pix[k] = uint8((299*int(r) + 587*int(g) + 114*int(b) + 500) / 1000)
	}
}
