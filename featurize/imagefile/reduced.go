package imagefile

import (
	"image"
	"math"

	"fmp/featurize/imagefile/jpeg"
)

const (
	// minSamples is how many samples of a reduced picture each pixel of the result has along an
	// axis, at least. From there on results lie within two levels of those of the whole picture, on
	// photographs, text, noise and edges of black and white (TestReducedIsWhole).
	minSamples = 3.25
	// levelBits are the fractional bits of resized components.
	levelBits = 4
)

// reduced is a JPEG that is decoded no further than a fit wants it: its components as they are
// stored, each of its own size. Planes hold the part that the fit wants, and lie in the memory of
// the decoder.
type reduced struct {
	*jpeg.Header
	planes []jpeg.Plane
}

// points returns how many points of each block a fit wants of a JPEG's components; nil where it
// wants the whole picture. Colours are mixed at the luma's resolution: one that is finer wants it.
func (f Fit) points(h *jpeg.Header, o orientation) []jpeg.Points {
	if x, y := h.Cover(0); f.H == 0 || len(h.Components) == 4 || x*y > 1 && !h.RGB() {
		return nil
	}
	across, down := f.stored(h.Width, h.Height, o)
	few := func(p part, cover int) int {
		n := 8
		// n is halved while blocks of n/2 points, p.from / (8 cover) of them, give each pixel
		// minSamples samples or more.
		for n > 1 && float64(p.from*n) >= minSamples*float64(16*cover*p.to) {
			n /= 2
		}
		return n
	}
	points := make([]jpeg.Points, len(h.Components))
	whole := true
	for i := range points {
		x, y := h.Cover(i)
		points[i] = jpeg.Points{X: few(across, x), Y: few(down, y)}
		whole = whole && points[i] == jpeg.Points{X: 8, Y: 8}
	}
	if whole || points[0] == (jpeg.Points{X: 8, Y: 8}) {
		return nil
	}
	return points
}

// part returns the pixels of a picture, as it is stored, that a fit wants, and a few around them:
// enlarged colours have a share of their neighbours. Nothing is all of them. The margin is four
// pixels on each side.
func (f Fit) part(p picture) image.Rectangle {
	if f.H == 0 {
		return image.Rectangle{}
	}
	across, down := f.stored(p.size.X, p.size.Y, p.by)
	x, y := across.start, down.start
	return image.Rect(x, y, x+across.from, y+down.from).Inset(-4)
}

// stored returns the parts along the lines and the columns of a picture as it is stored, with w
// pixels across and h down. Those of a mirrored axis begin as far from its other end.
func (f Fit) stored(w, h int, o orientation) (across, down part) {
	if o.swaps() {
		across, down = f.parts(w, h)
	} else {
		down, across = f.parts(h, w)
	}
	across.mirrored, down.mirrored = o.mirrors()
	if across.mirrored {
		across.start = w - across.start - across.from
	}
	if down.mirrored {
		down.start = h - down.start - down.from
	}
	return across, down
}

// pixels is [Fit.Pixels] for a reduced picture. right and below are the steps in dst from a sample
// of the stored picture to the next one of its line and of its column. They change places where the
// picture lies on its side. Samples are resized plane by plane, and joined at the end, so that no
// whole picture is held.
func (p *reduced) pixels(f Fit, o orientation, dst []uint8) {
	across, down := f.stored(p.Width, p.Height, o)
	right, below := f.Ch, f.W*f.Ch
	if o.swaps() {
		right, below = below, right
	}
	if f.Resize == Pad {
		clear(dst[:f.Size()])
	}
	dst = dst[across.at*right+down.at*below:]
	if len(p.planes) == 3 && !p.RGB() {
		p.colours()
	}
	levels := make([][]int32, len(p.planes))
	for i := range p.planes {
		levels[i] = resizePlane(&p.planes[i], across, down)
	}
	// The one plane of a grey picture serves as all three.
	red, green, blue := levels[0], levels[len(levels)/2], levels[len(levels)-1]
	for y := range down.to {
		for x := range across.to {
			k := y*across.to + x
			to := dst[y*below+x*right:][:f.Ch]
			r, g, b := levelOf(red[k]), levelOf(green[k]), levelOf(blue[k])
			if f.Ch == 1 {
				to[0] = Grey(r, g, b)
				continue
			}
			to[0], to[1], to[2] = r, g, b
		}
	}
}

// colours turns luma and chroma into red, green and blue. Levels that luma has beyond black and
// white are kept, as means of it want them; those that chroma brings beyond are cut off, as they
// are in each pixel of the whole picture.
func (p *reduced) colours() {
	luma := &p.planes[0]
	for i := range p.planes[1:] {
		p.planes[1+i] = spread(&p.planes[1+i], luma)
	}
	n := len(luma.Reduced)
	mix(luma.Reduced, p.planes[1].Reduced[:n], p.planes[2].Reduced[:n])
}

// mixGo turns luma and chroma, less 128, into red, green and blue in their places.
func mixGo(red, green, blue []int16) {
	green, blue = green[:len(red)], blue[:len(red)]
	for i, l := range red {
		c, y := chroma{}, int32(l)
		if green[i]|blue[i] != 0 {
			c = chromaOf(green[i], blue[i])
		}
		inside := min(127, max(-128, y))
		beyond := y - inside
		red[i] = int16(min(127, max(-128, inside+(c.red+1<<15)>>16)) + beyond)
		green[i] = int16(min(127, max(-128, inside+(c.green+1<<15)>>16)) + beyond)
		blue[i] = int16(min(127, max(-128, inside+(c.blue+1<<15)>>16)) + beyond)
	}
}

// spread returns a plane with a sample for each of another's, whose samples cover no more. It
// repeats samples and does not interpolate, as means over several follow.
func spread(p, like *jpeg.Plane) jpeg.Plane {
	if p.Across == like.Across && p.Down == like.Down {
		return *p
	}
	out := *like
	out.Reduced = make([]int16, len(like.Reduced))
	x, y := int(p.Across/like.Across), int(p.Down/like.Down)
	for i := range like.H {
		from, to := p.Reduced[i/y*p.Stride:], out.Reduced[i*like.Stride:][:like.W]
		for k := range to {
			to[k] = from[k/x]
		}
	}
	return out
}

// levelOf returns a level less 128, with levelBits, as a byte.
func levelOf(v int32) uint8 { return uint8(min(255, max(0, (v+1<<(levelBits-1))>>levelBits+128))) }

// resizePlane resizes a component, whose result has levelBits. It returns [down.to, across.to]
// levels less 128. Columns are resized before lines.
func resizePlane(p *jpeg.Plane, across, down part) []int32 {
	// A part may begin and end within samples: the axis weighs those by their share.
	window := func(w part, cover float64, before, size int) (int, *axis) {
		begin, end := float64(w.start)/cover, float64(w.start+w.from)/cover
		first, last := int(begin), min(before+size, int(math.Ceil(end)))
		return first - before, newAxisWithin(last-first, begin-float64(first), end-float64(first),
			w.to, w.mirrored)
	}
	x, columns := window(across, p.Across, p.X, p.W)
	y, rows := window(down, p.Down, p.Y, p.H)
	middle := make([]int16, columns.from+columns.taps)
	sums := make([]int32, columns.from)
	out := make([]int32, across.to*down.to)
	const keep = middleBits - levelBits
	// Sums have columns.bits + middleBits fractional bits.
	shift := columns.bits + keep
	for i := range rows.first {
		rows.downwardWords(middle[:columns.from], sums,
			p.Reduced[(y+rows.first[i])*p.Stride+x:], p.Stride, i)
		line := out[i*across.to:][:across.to]
		columns.along(line, middle)
		for k, v := range line {
			line[k] = (v + 1<<(shift-1)) >> shift
		}
	}
	return out
}
