package digits

import (
	"image"
	"image/draw"
	"math"
	"math/rand/v2"

	"golang.org/x/image/vector"
)

// Bounds of the random distortions, chosen so that a linear model on features of 20 clients' points
// is right on nine images in ten or a few more, and one client's alone clearly less often.
const (
	maxTurn    = 0.42  // rotation, radians either way
	maxShear   = 0.35  // pixels sideways for a pixel of height, either way
	minHeight  = 0.50  // of the image's side
	maxHeight  = 0.82  // of the image's side
	maxStretch = 0.28  // width against height, natural logarithm
	maxShift   = 0.09  // of the image's side
	warpSize   = 0.055 // deviation of a knot, of the image's side
	warpGrid   = 4     // knots along each axis
	minLeft    = 0.5   // share of the ink that erosion must leave
	over       = 2     // drawn this many times larger, then averaged down
)

// pen draws single images of one size; it is reused from image to image, by one goroutine. The
// rasteriser and both masks are its own, so that drawing allocates little.
type pen struct {
	// side is that of an image in pixels, big that of the drawing, over times as many.
	side, big int
	ras       *vector.Rasterizer
	// mask holds the ink, 0 to 255. A filter writes to temp, and both change places.
	mask, temp *image.Alpha
}

// newPen returns a pen for images of a side in pixels.
func newPen(side int) *pen {
	big := side * over
	return &pen{
		side: side, big: big, ras: vector.NewRasterizer(big, big),
		mask: image.NewAlpha(image.Rect(0, 0, big, big)),
		temp: image.NewAlpha(image.Rect(0, 0, big, big)),
	}
}

// uniform draws from -a to a. The end a itself is not drawn, as Float64 stays below 1.
func uniform(r *rand.Rand, a float64) float64 { return a * (2*r.Float64() - 1) }

// between draws from lo to hi.
func between(r *rand.Rand, lo, hi float64) float64 { return lo + (hi-lo)*r.Float64() }

// place returns a random map of the plane from a glyph's coordinates to the big image's pixels:
// stretch, shear, rotation, size and shift, then an elastic warp. The warp moves the outline by
// random displacements at the knots of a grid, interpolated smoothly between them, after Simard,
// Steinkraus and Platt (ICDAR 2003).
// A point q goes to c + R h (s q.x - k q.y, q.y) with rotation R, height h, stretch s and shear k,
// and from there by the warp. width is the glyph's, in units of its height. The order of the draws
// is part of the images: see Version. A glyph's coordinates are those of [outline].
func (p *pen) place(r *rand.Rand, width float64) func(pt) pt {
	side := float64(p.big)
	h := side * between(r, minHeight, maxHeight)
	sx := math.Exp(uniform(r, maxStretch))
	if w := width * sx * h; w > 0.9*side { // a wide digit keeps inside the image
		sx *= 0.9 * side / w
	}
	turn, shear := uniform(r, maxTurn), uniform(r, maxShear)
	sin, cos := math.Sincos(turn)
	cx, cy := side*(0.5+uniform(r, maxShift)), side*(0.5+uniform(r, maxShift))
	var knots [warpGrid][warpGrid]pt
	for i := range knots {
		for j := range knots[i] {
			knots[i][j] = pt{r.NormFloat64() * warpSize * side, r.NormFloat64() * warpSize * side}
		}
	}
	return func(q pt) pt {
		x, y := h*(sx*q.x-shear*q.y), h*q.y
		x, y = cx+cos*x-sin*y, cy+sin*x+cos*y
		// Below the last knot by a little, so that there is a next one.
		// With g in units of knots, the warp is the mean of the four knots around it, weighted by
		// smooth.
		gx := math.Max(0, math.Min(warpGrid-1.001, x/side*(warpGrid-1)))
		gy := math.Max(0, math.Min(warpGrid-1.001, y/side*(warpGrid-1)))
		i, j := int(gy), int(gx)
		tx, ty := smooth(gx-float64(j)), smooth(gy-float64(i))
		a := mix(pt{}, 0, knots[i][j], 1-tx, knots[i][j+1], tx)
		b := mix(pt{}, 0, knots[i+1][j], 1-tx, knots[i+1][j+1], tx)
		d := mix(pt{}, 0, a, 1-ty, b, ty)
		return pt{x + d.x, y + d.y}
	}
}

// smooth has slope 0 at 0 and at 1, so that a warp has no creases along the grid's lines. It is 3
// t^2 - 2 t^3, the Hermite step from 0 to 1.
func smooth(t float64) float64 { return t * t * (3 - 2*t) }

// fill rasterises polygons, mapped by move, into the mask. The ink of before is lost.
// Polygons are closed here.
func (p *pen) fill(o outline, move func(pt) pt) {
	p.ras.Reset(p.big, p.big)
	p.ras.DrawOp = draw.Src
	for _, c := range o {
		for k, q := range c {
			m := move(q)
			if k == 0 {
				p.ras.MoveTo(float32(m.x), float32(m.y))
			} else {
				p.ras.LineTo(float32(m.x), float32(m.y))
			}
		}
		p.ras.ClosePath()
	}
	p.ras.Draw(p.mask, p.mask.Bounds(), image.Opaque, image.Point{})
}

// width returns the width of an outline of height 1. Its box is centred at the origin, so that the
// farthest point tells.
func (o outline) width() float64 {
	w := 0.0
	for _, c := range o {
		for _, q := range c {
			w = math.Max(w, 2*math.Abs(q.x))
		}
	}
	return w
}

// digit draws a distorted digit into the mask: the placed outline, then stroke noise. Of ten digits
// three are thickened and two eroded, on average. None, one or two blurs follow.
func (p *pen) digit(r *rand.Rand, o outline) {
	p.fill(o, p.place(r, o.width()))
	switch k := r.IntN(10); {
	case k < 3:
		p.rank(true) // thicken
	case k < 5:
		before := p.mass()
		p.rank(false) // erode, unless that would leave too little of a thin stroke
		if p.mass() < minLeft*before {
			// The mask of before is in temp, unharmed, so that the erosion is undone without a
			// copy.
			p.mask, p.temp = p.temp, p.mask
		}
	}
	for range r.IntN(3) {
		p.blur()
	}
}

// mass returns the total ink in the mask.
func (p *pen) mass() float64 {
	sum := 0
	for _, v := range p.mask.Pix {
		sum += int(v)
	}
	return float64(sum)
}

// rank replaces each pixel by the largest (or smallest) of itself and its four neighbours. Beyond
// the border all is 0. It is a morphological dilation (or erosion) by a cross of five pixels.
func (p *pen) rank(largest bool) {
	n := p.big
	src, dst := p.mask.Pix, p.temp.Pix
	for y := range n {
		for x := range n {
			v := src[y*n+x]
			for _, d := range [4][2]int{{-1, 0}, {1, 0}, {0, -1}, {0, 1}} {
				u := uint8(0)
				if yy, xx := y+d[0], x+d[1]; yy >= 0 && yy < n && xx >= 0 && xx < n {
					u = src[yy*n+xx]
				}
				if largest {
					v = max(v, u)
				} else {
					v = min(v, u)
				}
			}
			dst[y*n+x] = v
		}
	}
	p.mask, p.temp = p.temp, p.mask
}

// blur averages each pixel with its eight neighbours. Beyond the border all is 0, so that ink fades
// towards it. The sum is divided by 9 at the border as well, and rounded down.
func (p *pen) blur() {
	n := p.big
	src, dst := p.mask.Pix, p.temp.Pix
	for y := range n {
		for x := range n {
			sum := 0
			for yy := max(0, y-1); yy <= min(n-1, y+1); yy++ {
				for xx := max(0, x-1); xx <= min(n-1, x+1); xx++ {
					sum += int(src[yy*n+xx])
				}
			}
			dst[y*n+x] = uint8(sum / 9)
		}
	}
	p.mask, p.temp = p.temp, p.mask
}

// down averages the mask down to the image's size; values are 0 to 1. dst is [side, side], row by
// row. Each pixel is the mean of over x over of the mask, by 255.
func (p *pen) down(dst []float64) {
	for y := range p.side {
		for x := range p.side {
			sum := 0
			for dy := range over {
				for dx := range over {
					sum += int(p.mask.Pix[(y*over+dy)*p.big+x*over+dx])
				}
			}
			dst[y*p.side+x] = float64(sum) / (255 * over * over)
		}
	}
}

// clutter draws a random stroke or blob into the mask, mostly off the centre. The mask is
// overwritten. Coordinates are in pixels of the large drawing. A blob's middle is at least 0.38 of
// the side from the centre, and a wedge's tip 0.32.
func (p *pen) clutter(r *rand.Rand) {
	side := float64(p.big)
	at := func() pt { return pt{between(r, 0, side), between(r, 0, side)} }
	var o outline
	switch r.IntN(3) {
	case 0: // a straight or bent stroke
		// A quadratic Bezier curve from a to b, widened by half to both sides along its normal:
		// q(t) = (1-t)^2 a + 2t(1-t) c + t^2 b, of direction d(t) = (1-t)(c-a) + t(b-c).
		a, b := at(), at()
		c := mix(pt{}, 0, a, 0.5, b, 0.5)
		c = pt{c.x + uniform(r, 0.3*side), c.y + uniform(r, 0.3*side)}
		half := between(r, 0.006, 0.022) * side
		var left, right []pt
		const steps = 12
		for k := range steps + 1 {
			t := float64(k) / steps
			q := mix(a, (1-t)*(1-t), c, 2*t*(1-t), b, t*t)
			d := mix(pt{}, 0, pt{c.x - a.x, c.y - a.y}, 1-t, pt{b.x - c.x, b.y - c.y}, t)
			// The small number keeps a curve of one point from dividing by 0.
			n := math.Hypot(d.x, d.y) + 1e-9
			nx, ny := -d.y/n*half, d.x/n*half
			left = append(left, pt{q.x + nx, q.y + ny})
			right = append(right, pt{q.x - nx, q.y - ny})
		}
		for k := len(right) - 1; k >= 0; k-- {
			left = append(left, right[k])
		}
		o = outline{left}
	case 1: // a blob near the border
		c, angle := pt{side / 2, side / 2}, between(r, 0, 2*math.Pi)
		dist := side * between(r, 0.38, 0.55)
		c.x, c.y = c.x+dist*math.Cos(angle), c.y+dist*math.Sin(angle)
		rx, ry := side*between(r, 0.03, 0.09), side*between(r, 0.03, 0.09)
		var ring []pt
		for k := range 16 {
			s, co := math.Sincos(2 * math.Pi * float64(k) / 16)
			ring = append(ring, pt{c.x + rx*co, c.y + ry*s})
		}
		o = outline{ring}
	default: // a wedge that reaches in from the border
		// Its far corners lie outside of the image: the rasteriser cuts them off.
		angle := between(r, 0, 2*math.Pi)
		s, co := math.Sincos(angle)
		tip := side * between(r, 0.32, 0.45)
		spread := between(r, 0.04, 0.14)
		mid := side / 2
		far := func(a float64) pt {
			s, co := math.Sincos(a)
			return pt{mid + side*co, mid + side*s}
		}
		o = outline{{{mid + tip*co, mid + tip*s}, far(angle - spread), far(angle + spread)}}
	}
	p.fill(o, func(q pt) pt { return q })
}

// grey draws a bright digit on black with fainter clutter and pixel noise. Layers are joined by
// their maximum. dst is [side, side].
func (p *pen) grey(r *rand.Rand, o outline, dst []uint8) {
	n := p.side * p.side
	ink, layer := make([]float64, n), make([]float64, n)
	p.digit(r, o)
	p.down(ink)
	// The peak stays below clutter's at times, so that brightness alone does not tell the digit.
	strengthen(ink, between(r, 0.6, 1))
	for range r.IntN(5) {
		p.clutter(r)
		p.down(layer)
		light := between(r, 0.25, 0.85)
		for i := range ink {
			ink[i] = math.Max(ink[i], light*layer[i])
		}
	}
	noise := between(r, 0, 0.2)
	// Noise is normal, cut off at black and white by toByte.
	for i := range dst {
		dst[i] = toByte(ink[i] + noise*r.NormFloat64())
	}
}

// color draws a digit in one colour on a texture of others, with clutter in a third. A layer of
// colour c with the ink a makes of the ground g
//
//	g + a (c - g)
//
// dst is [side, side, 3].
func (p *pen) color(r *rand.Rand, o outline, dst []uint8) {
	n := p.side * p.side
	ink, layer := make([]float64, n), make([]float64, n)
	ground := p.texture(r)
	var mean [3]float64
	for i := range n {
		for c := range 3 {
			mean[c] += ground[3*i+c] / float64(n)
		}
	}
	// Black or white is at least 0.5 from any lightness, so that some colours have the contrast
	// asked for. The loop ends with probability 1, after a few draws for the contrasts in use.
	paint := func(minContrast float64) [3]float64 {
		for {
			var col [3]float64
			for c := range col {
				col[c] = r.Float64()
			}
			// Contrast in lightness keeps the digit readable (ITU-R BT.601 weights).
			if d := 0.299*(col[0]-mean[0]) + 0.587*(col[1]-mean[1]) +
				0.114*(col[2]-mean[2]); math.Abs(d) >= minContrast {
				return col
			}
		}
	}
	// opacity is from 0 to 1.
	lay := func(mask []float64, col [3]float64, opacity float64) {
		for i := range n {
			a := opacity * mask[i]
			for c := range 3 {
				ground[3*i+c] += a * (col[c] - ground[3*i+c])
			}
		}
	}
	for range r.IntN(3) {
		p.clutter(r)
		p.down(layer)
		lay(layer, paint(0), between(r, 0.2, 0.5))
	}
	p.digit(r, o)
	p.down(ink)
	strengthen(ink, between(r, 0.8, 1))
	lay(ink, paint(0.4), 1)
	noise := between(r, 0, 0.05)
	for i := range dst {
		dst[i] = toByte(ground[i] + noise*r.NormFloat64())
	}
}

// strengthen scales ink so that its strongest pixel equals peak: a thin stroke survives erosion and
// blur. A mask without ink stays as it is.
func strengthen(ink []float64, peak float64) {
	top := 0.0
	for _, v := range ink {
		top = math.Max(top, v)
	}
	if top == 0 {
		return
	}
	for i := range ink {
		ink[i] *= peak / top
	}
}

// texture returns a background [side, side, 3] of values 0 to 1: two colours blended by a wave,
// smooth noise, checks or a gradient. The two colours differ by at most 0.22 in each channel, so
// that the ground is calmer than the digit.
func (p *pen) texture(r *rand.Rand) []float64 {
	var a, b [3]float64
	for c := range 3 {
		a[c] = r.Float64()
		b[c] = math.Max(0, math.Min(1, a[c]+uniform(r, 0.22)))
	}
	blend := p.pattern(r)
	out := make([]float64, 3*p.side*p.side)
	for y := range p.side {
		for x := range p.side {
			t := blend(float64(x)/float64(p.side), float64(y)/float64(p.side))
			for c := range 3 {
				out[3*(y*p.side+x)+c] = a[c] + t*(b[c]-a[c])
			}
		}
	}
	return out
}

// pattern returns a random function from the unit square to 0..1. It is a wave, checks, a gradient
// or smooth noise.
func (p *pen) pattern(r *rand.Rand) func(x, y float64) float64 {
	// Patterns lie at an angle, which the noise alone does not use.
	sin, cos := math.Sincos(between(r, 0, 2*math.Pi))
	freq, phase := between(r, 1, 7), between(r, 0, 2*math.Pi)
	switch r.IntN(4) {
	case 0:
		return func(x, y float64) float64 {
			return 0.5 + 0.5*math.Sin(2*math.Pi*freq*(cos*x+sin*y)+phase)
		}
	case 1:
		return func(x, y float64) float64 {
			u, v := cos*x+sin*y, cos*y-sin*x
			if (int(math.Floor(u*freq))+int(math.Floor(v*freq)))%2 == 0 {
				return 1
			}
			return 0
		}
	case 2:
		return func(x, y float64) float64 {
			return smooth(math.Max(0, math.Min(1, 0.5+cos*(x-0.5)+sin*(y-0.5))))
		}
	}
	// Smooth noise: random values at the knots of a grid, interpolated as a warp is.
	const knots = 8
	var v [knots][knots]float64
	for i := range v {
		for j := range v[i] {
			v[i][j] = r.Float64()
		}
	}
	return func(x, y float64) float64 {
		// Below the last knot by a little, so that there is a next one.
		gx, gy := x*(knots-1.001), y*(knots-1.001)
		i, j := int(gy), int(gx)
		tx, ty := smooth(gx-float64(j)), smooth(gy-float64(i))
		return (1-ty)*((1-tx)*v[i][j]+tx*v[i][j+1]) + ty*((1-tx)*v[i+1][j]+tx*v[i+1][j+1])
	}
}

// toByte returns a value of 0 to 1, cut off at both ends, as a byte.
func toByte(v float64) uint8 { return uint8(math.Round(255 * math.Max(0, math.Min(1, v)))) }
