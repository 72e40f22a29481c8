// Package corrupt corrupts images at five severities, to test whether probabilities stay calibrated
// as accuracy falls (Hendrycks and Dietterich 2019, "Benchmarking neural network robustness to
// common corruptions and perturbations", arXiv 1903.12261). The corruptions are of the kinds of
// that benchmark, at about its strengths for images of 32 x 32 pixels; the images are computed
// here, not read from its files. Its weather and motion corruptions are left out.
package corrupt

import (
	"bytes"
	"context"
	"fmt"
	"image/jpeg"
	"math"
	"math/rand/v2"
	"slices"
	"strings"

	"gonum.org/v1/gonum/stat/distuv"

	"fmp/featurize/dataset"
	"fmp/featurize/imagefile"
)

// Severities is the number of severities; they are numbered from 1, the mildest.
const Severities = 5

// kind is one corruption: a strength for each severity, and a function that corrupts an image [H,
// W, Ch] of values 0 to 1 in place. Values are clipped to 0..1 afterwards. Noise is drawn in the
// order of the values, and the other kinds draw nothing.
type kind struct {
	name     string
	strength [Severities]float64
	do       func(im *picture, strength float64, r *rand.Rand)
}

// picture is one image of values 0 to 1, and the error of its corruption. v is [h, w, ch],
// row-major with channels last, as bytes of data sets are.
type picture struct {
	h, w, ch int
	v        []float64
	err      error
}

var kinds = []kind{
	{"gaussian-noise", [Severities]float64{0.04, 0.06, 0.08, 0.09, 0.10},
		func(im *picture, s float64, r *rand.Rand) {
			for i := range im.v {
				im.v[i] += s * r.NormFloat64()
			}
		}},
	// The number of photons per unit of intensity.
	{"shot-noise", [Severities]float64{500, 250, 100, 75, 50},
		func(im *picture, s float64, r *rand.Rand) {
			for i, v := range im.v {
				im.v[i] = distuv.Poisson{Lambda: max(v*s, 1e-9), Src: r}.Rand() / s
			}
		}},
	// The share of values that are set to black or white.
	{"impulse-noise", [Severities]float64{0.01, 0.02, 0.03, 0.05, 0.07},
		func(im *picture, s float64, r *rand.Rand) {
			for i := range im.v {
				if r.Float64() < s {
					im.v[i] = float64(r.IntN(2))
				}
			}
		}},
	// The standard deviation in pixels of an image 32 pixels wide.
	{"gaussian-blur", [Severities]float64{0.4, 0.6, 0.7, 0.8, 1},
		func(im *picture, s float64, _ *rand.Rand) {
			im.blur(s * float64(im.w) / 32)
		}},
	// The share of contrast that is left.
	{"contrast", [Severities]float64{0.75, 0.5, 0.4, 0.3, 0.15},
		func(im *picture, s float64, _ *rand.Rand) {
			for c := range im.ch {
				var mean float64
				for i := c; i < len(im.v); i += im.ch {
					mean += im.v[i] / float64(im.h*im.w)
				}
				for i := c; i < len(im.v); i += im.ch {
					im.v[i] = mean + s*(im.v[i]-mean)
				}
			}
		}},
	// The intensity that is added.
	{"brightness", [Severities]float64{0.05, 0.1, 0.15, 0.2, 0.3},
		func(im *picture, s float64, _ *rand.Rand) {
			for i := range im.v {
				im.v[i] += s
			}
		}},
	// The share of the width and height that remains; less than in the benchmark, whose mildest two
	// differ by alignment alone.
	{"pixelate", [Severities]float64{0.75, 0.65, 0.55, 0.45, 0.35},
		func(im *picture, s float64, _ *rand.Rand) {
			im.pixelate(s)
		}},
	// The JPEG quality.
	{"jpeg", [Severities]float64{80, 65, 58, 50, 40},
		func(im *picture, s float64, _ *rand.Rand) { im.err = im.compress(int(s)) }},
}

// Names returns the names of the kinds of corruption. The order is that of the table of kinds. The
// slice is the caller's.
func Names() []string {
	var out []string
	for _, k := range kinds {
		out = append(out, k.name)
	}
	return out
}

// Apply returns images with the corruption called name at a severity from 1 to Severities; random
// numbers are drawn from r, image by image. An unknown name or severity is an error. images stays
// as it is. An error names the image, and nothing is returned beside it.
func Apply(images *dataset.Images, name string, severity int,
	r *rand.Rand) (*dataset.Images, error) {
	if severity < 1 || severity > Severities {
		return nil, fmt.Errorf("corruption %s: severity %d; allowed are 1 to %d", name,
			severity, Severities)
	}
	at := slices.IndexFunc(kinds, func(k kind) bool { return k.name == name })
	if at < 0 {
		return nil, fmt.Errorf("no corruption %q; there are %s", name, strings.Join(Names(), ", "))
	}
	out := *images
	out.Pix = make([]uint8, len(images.Pix))
	im := &picture{h: images.H, w: images.W, ch: images.Ch,
		v: make([]float64, images.H*images.W*images.Ch)}
	for i := range images.N {
		for j, v := range images.At(i) {
			im.v[j] = float64(v) / 255
		}
		kinds[at].do(im, kinds[at].strength[severity-1], r)
		if im.err != nil {
			return nil, fmt.Errorf("image %d: %w", i, im.err)
		}
		im.pixels(out.At(i))
	}
	return &out, nil
}

// Inverted returns images with every value v replaced by 255 - v, as inputs unlike any of their
// classes. Edges stay where they are.
func Inverted(images *dataset.Images) *dataset.Images {
	out := *images
	out.Pix = make([]uint8, len(images.Pix))
	for i, v := range images.Pix {
		out.Pix[i] = 255 - v
	}
	return &out
}

// Rotated returns images turned counter-clockwise by 90° times quarters. Images that are not
// square are an error. Quarter turns move whole pixels, and so need no interpolation, which would
// be a corruption of its own. A negative number turns clockwise. Pixel (x, y) goes to (y, side-1-x)
// at each turn.
func Rotated(images *dataset.Images, quarters int) (*dataset.Images, error) {
	if images.H != images.W {
		return nil, fmt.Errorf("rotation: images are %d x %d pixels; want square ones",
			images.H, images.W)
	}
	out := *images
	out.Pix = slices.Clone(images.Pix)
	side, ch := images.W, images.Ch
	for range (quarters%4 + 4) % 4 {
		from := slices.Clone(out.Pix)
		for i := range images.N {
			image := i * side * side * ch
			for y := range side {
				for x := range side {
					copy(out.Pix[image+((side-1-x)*side+y)*ch:][:ch], from[image+(y*side+x)*ch:])
				}
			}
		}
	}
	return &out, nil
}

// Noise returns n images of the same shape with independent uniform pixels. Natural images have
// neighbours that agree, which these lack: they belong to no class.
func Noise(images *dataset.Images, n int, r *rand.Rand) *dataset.Images {
	out := &dataset.Images{N: n, H: images.H, W: images.W, Ch: images.Ch,
		Pix: make([]uint8, n*images.H*images.W*images.Ch)}
	for i := range out.Pix {
		out.Pix[i] = uint8(r.IntN(256))
	}
	return out
}

// Shaped returns images resized and converted to the size and channels of like. Stretching keeps
// the whole picture, at the price of its proportions.
func Shaped(images, like *dataset.Images) *dataset.Images {
	fit := imagefile.Fit{H: like.H, W: like.W, Ch: like.Ch, Resize: imagefile.Stretch}
	out := &dataset.Images{N: images.N, H: like.H, W: like.W, Ch: like.Ch,
		Pix: make([]uint8, images.N*fit.Size())}
	for i := range images.N {
		fit.Pixels(imagefile.Raw(images.At(i), images.H, images.W, images.Ch), out.At(i))
	}
	return out
}

// pixels writes the values, clipped to 0..1, as bytes. Values are rounded to the nearest of the 256
// levels.
func (p *picture) pixels(to []uint8) {
	for j, v := range p.v {
		to[j] = uint8(math.Round(255 * min(max(v, 0), 1)))
	}
}

// blur convolves rows, then columns, with a Gaussian cut off at three standard deviations; edge
// pixels are repeated beyond the edge. A Gaussian is separable: two passes of O(h w ch reach) take
// the place of one of reach squared.
func (p *picture) blur(sd float64) {
	reach := int(math.Ceil(3 * sd))
	// k_i = exp(-(i/sd)^2/2) / sum of all, for whole i of -reach to reach.
	kernel := make([]float64, 2*reach+1)
	var sum float64
	for i := range kernel {
		d := float64(i-reach) / sd
		kernel[i] = math.Exp(-d * d / 2)
		sum += kernel[i]
	}
	out := make([]float64, len(p.v))
	for axis := range 2 {
		for y := range p.h {
			for x := range p.w {
				for c := range p.ch {
					var v float64
					for i, k := range kernel {
						sx, sy := x, y
						if axis == 0 {
							sx = min(max(x+i-reach, 0), p.w-1)
						} else {
							sy = min(max(y+i-reach, 0), p.h-1)
						}
						v += k / sum * p.v[(sy*p.w+sx)*p.ch+c]
					}
					out[(y*p.w+x)*p.ch+c] = v
				}
			}
		}
		p.v, out = out, p.v
	}
}

// pixelate shrinks the image by averaging to a share of its width and height, and enlarges it again
// by repeating pixels. Small pixel (x, y) covers the source from x w_0/w to (x+1) w_0/w across, and
// likewise down. Source pixels at its edge count by the area that it covers, so that no row is lost
// by rounding.
func (p *picture) pixelate(share float64) {
	h, w := max(1, int(float64(p.h)*share)), max(1, int(float64(p.w)*share))
	small := make([]float64, h*w*p.ch)
	for y := range h {
		for x := range w {
			y0, y1 := float64(y)*float64(p.h)/float64(h), float64(y+1)*float64(p.h)/float64(h)
			x0, x1 := float64(x)*float64(p.w)/float64(w), float64(x+1)*float64(p.w)/float64(w)
			for sy := int(y0); sy < min(int(math.Ceil(y1)), p.h); sy++ {
				for sx := int(x0); sx < min(int(math.Ceil(x1)), p.w); sx++ {
					// The part of a source pixel that the small pixel covers.
					area := (min(y1, float64(sy+1)) - max(y0, float64(sy))) *
						(min(x1, float64(sx+1)) - max(x0, float64(sx)))
					for c := range p.ch {
						small[(y*w+x)*p.ch+c] += area / ((y1 - y0) * (x1 - x0)) *
							p.v[(sy*p.w+sx)*p.ch+c]
					}
				}
			}
		}
	}
	for y := range p.h {
		for x := range p.w {
			copy(p.v[(y*p.w+x)*p.ch:][:p.ch], small[(y*h/p.h*w+x*w/p.w)*p.ch:])
		}
	}
}

// compress encodes the image as a JPEG and decodes it again. Go's encoder halves the resolution of
// colour across and down, and that of grey not at all. Decoding fits the picture to its own size,
// which moves no pixel.
func (p *picture) compress(quality int) error {
	pix := make([]uint8, len(p.v))
	p.pixels(pix)
	var b bytes.Buffer
	if err := jpeg.Encode(&b, imagefile.Raw(pix, p.h, p.w, p.ch),
		&jpeg.Options{Quality: quality}); err != nil {
		return fmt.Errorf("JPEG: %w", err)
	}
	fit := imagefile.Fit{H: p.h, W: p.w, Ch: p.ch}
	if err := fit.Decode(context.Background(), b.Bytes(), pix); err != nil {
		return fmt.Errorf("JPEG: %w", err)
	}
	for j, v := range pix {
		p.v[j] = float64(v) / 255
	}
	return nil
}
