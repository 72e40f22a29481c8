package learn

import (
	"math"
	"math/rand/v2"

	"fmp/featurize/dataset"
)

// Augment says how training images are varied, anew each time they are seen. Numbers are in pixels
// of the stored image.
type Augment struct {
	Flip  bool `json:"flip"`  // mirror left and right, half the time
	Shift int  `json:"shift"` // move by up to this many pixels along each axis
	// blank a square of this side (DeVries and Taylor 2017, arXiv:1708.04552); 0 none
	Cutout int `json:"cutout"`
}

// put writes image i, varied, to dst as [Ch, H, W]. Pixels moved in from outside and pixels cut out
// are set to the mean, zero. The numbers that it draws do not depend on the image. A square that is
// cut out has its centre anywhere, and may reach beyond the border. s has the number of each pixel
// of a channel ([extractor.Scaled]). dst has Ch H W numbers. Values are standardised, so that 0 is
// the mean of a channel. r is drawn from in a fixed order: flip, shift down, shift across, cutout.
func (a Augment) put(dst []float32, images *dataset.Images, i int, s [][256]float32, r *rand.Rand) {
	h, w, ch := images.H, images.W, images.Ch
	flip := a.Flip && r.IntN(2) == 0
	dy, dx := 0, 0
	if a.Shift > 0 {
		dy, dx = r.IntN(2*a.Shift+1)-a.Shift, r.IntN(2*a.Shift+1)-a.Shift
	}
	cy, cx := -1, -1
	if a.Cutout > 0 {
		cy, cx = r.IntN(h), r.IntN(w)
	}
	pix := images.At(i)
	for y := range h {
		sy := y + dy
		for x := range w {
			sx := x + dx
			at := y*w + x
			out := sy < 0 || sy >= h || sx < 0 || sx >= w
			// Cutout is of places in the result, not in the source, so that a flip does not move
			// it.
			if cy >= 0 && !out {
				half := a.Cutout / 2
				out = y >= cy-half && y < cy-half+a.Cutout && x >= cx-half && x < cx-half+a.Cutout
			}
			if out {
				for c := range ch {
					dst[c*h*w+at] = 0
				}
				continue
			}
			if flip {
				sx = w - 1 - sx
			}
			p := pix[(sy*w+sx)*ch:]
			for c := range ch {
				dst[c*h*w+at] = s[c][p[c]]
			}
		}
	}
}

// vary writes pixels [h, w, ch], flipped and shifted, to dst; pixels moved in from outside repeat
// the edge. dst and pix must not overlap. Nothing is cut out.
func (a Augment) vary(dst, pix []uint8, h, w, ch int, r *rand.Rand) {
	flip := a.Flip && r.IntN(2) == 0
	dy, dx := r.IntN(2*a.Shift+1)-a.Shift, r.IntN(2*a.Shift+1)-a.Shift
	for y := range h {
		sy := min(max(y+dy, 0), h-1)
		for x := range w {
			sx := min(max(x+dx, 0), w-1)
			if flip {
				sx = w - 1 - sx
			}
			copy(dst[(y*w+x)*ch:][:ch], pix[(sy*w+sx)*ch:])
		}
	}
}

// pixelStatistics returns the mean and standard deviation of each channel over images whose pixels
// are scaled to 0..1. Sums are of whole numbers, and so exact. A channel without variation has a
// deviation of 0.001, to divide by. With p the pixels of a channel it is
//
//	mean = E p / 255,   std = max(sqrt(E p^2 - (E p)^2)/255, 0.001)
//
// Sums of 64 bits hold the squares of 10^14 pixels. The images must be in memory.
func pixelStatistics(images *dataset.Images) (mean, std []float32) {
	ch := images.Ch
	sum, square := make([]int64, ch), make([]int64, ch)
	for k, p := range images.Pix {
		v := int64(p)
		sum[k%ch] += v
		square[k%ch] += v * v
	}
	n := float64(len(images.Pix) / ch)
	mean, std = make([]float32, ch), make([]float32, ch)
	for c := range ch {
		m := float64(sum[c]) / n
		v := float64(square[c])/n - m*m
		mean[c] = float32(m / 255)
		std[c] = max(float32(math.Sqrt(max(v, 0))/255), 1e-3)
	}
	return mean, std
}
