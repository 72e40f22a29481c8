package imagefile

import "image"

// nearWhole reports whether a fit has a picture of w x h pixels, as it is stored, at more than half
// its resolution along an axis: the way that colours are enlarged shows there, and is averaged out
// below.
func (f Fit) nearWhole(w, h int, o orientation) bool {
	if f.H == 0 {
		return true
	}
	across, down := f.stored(w, h, o)
	return across.from < 2*across.to || down.from < 2*down.to
}

// enlarge brings colours of half the resolution, along one axis or both, to that of the luma, as
// libjpeg, libwebp and browsers do: along an axis a pixel has 3/4 of the nearest and 1/4 of the
// next one. Along both axes that is (9 a + 3 b + 3 c + d + 8) / 16.
func enlarge(p *image.YCbCr) {
	half, size := image.Point{1, 1}, p.Rect.Size()
	switch p.SubsampleRatio {
	case image.YCbCrSubsampleRatio420:
	case image.YCbCrSubsampleRatio422:
		half.Y = 0
	case image.YCbCrSubsampleRatio440:
		half.X = 0
	default:
		return
	}
	p.Cb, p.Cr = enlarged(p.Cb, p.CStride, size, half), enlarged(p.Cr, p.CStride, size, half)
	p.CStride, p.SubsampleRatio = size.X, image.YCbCrSubsampleRatio444
}

// enlarged returns a plane at a size, of half of it along the axes where half is 1. Pixel line y
// lies in line c of the plane, and line c' is the next one on its side. Where half.Y is 1, lines
// are blended as 3 c + c' first; columns are alike.
func enlarged(plane []uint8, stride int, size, half image.Point) []uint8 {
	out, n := make([]uint8, size.X*size.Y), (size.X+half.X)>>half.X
	blended := make([]uint16, n+2) // of two lines, times 4, with one more at either end
	for y := range size.Y {
		line := plane[(y>>half.Y)*stride:][:n]
		other := line
		if next := y/2 - 1 + 2*(y&1); half.Y == 1 && next >= 0 && next < (size.Y+1)/2 {
			other = plane[next*stride:][:n]
		}
		within := blended[1:][:n]
		for x, v := range other[:n] {
			within[x] = 3*uint16(line[x]) + uint16(v)
		}
		blended[0], blended[n+1] = blended[1], blended[n]
		to := out[y*size.X:][:size.X]
		if half.X == 0 {
			for x := range to {
				to[x] = uint8((blended[x+1] + 2) >> 2)
			}
			continue
		}
		before, here := blended[0], blended[1]
		for k, next := range blended[2:][:len(to)/2] {
			at, pair := 3*here+8, to[2*k:][:2]
			pair[0], pair[1] = uint8((at+before)>>4), uint8((at+next)>>4)
			before, here = here, next
		}
		if x := len(to) - 1; x&1 == 0 {
			to[x] = uint8((3*blended[x/2+1] + blended[x/2] + 8) >> 4)
		}
	}
	return out
}
