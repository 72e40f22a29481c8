package kernel

import (
	"math"
	"sync"

	"fmp/onnx"
	"fmp/onnx/internal/try"
)

// A 3x3 convolution that moves by single positions is done as Winograd's minimal filtering F(2x2,
// 3x3) (Lavin and Gray 2016, arXiv:1509.09308), which multiplies 16 times where the definition does
// 36 times: for every 2x2 outputs, a tile,
//
//	Y = Aᵀ [sum over channels of (G g Gᵀ) ∘ (Bᵀ d B)] A
//
// of the weights g and the 4x4 inputs d that they see. The sums over channels are 16 matrix
// products of all tiles.
type winograd struct {
	rows, cols, group int // of a group's weights: output and input channels
	weights           []float32
	once              sync.Once
	left              []float32 // [group, rows / winogradRows, 16, packed rows x cols]
}

const (
	tileMatrices = 16
	// Of few tiles the weights are read for little, and there are more of them.
	winogradTiles = 32
	winogradLarge = 1 << 16 // weights of nine positions
	// winogradWork is how many numbers the tiles in work may have, so that they stay in the
	// second-level cache, and winogradRows how many output channels are computed of them at a time,
	// so that their sums stay there as well.
	winogradWork = 1 << 18
	winogradRows = 4 * panelRows
)

// newWinograd returns nil where the convolution is not one that is done so, or its weights are too
// large to be kept.
func newWinograd(s *Spec, win window, group int) *winograd {
	weights := s.constant(1)
	one := func(v []int) bool { return product(v) == 1 } // product(nil) is 1
	if !havePanels || s.Reproducible || weights == nil || weights.DType != onnx.Float32 ||
		len(weights.Shape) != 4 || !one(win.stride) ||
		!one(win.dilation) {
		return nil
	}
	g := &winograd{rows: weights.Shape[0] / group, cols: weights.Shape[1], group: group}
	if weights.Shape[2] != 3 || weights.Shape[3] != 3 || g.rows < winogradLeast ||
		g.cols < winogradLeast ||
		!s.keeps(group, tileMatrices, padRows(g.rows), g.cols) {
		return nil
	}
	g.weights = weights.F32()
	return g
}

// pack transforms the weights, when they are first wanted. Transformed weights are 16/9 as many
// numbers, rounded once to float32 from float64.
func (g *winograd) pack() {
	g.left = make([]float32, g.group*tileMatrices*padRows(g.rows)*g.cols)
	part, to := make([]float32, tileMatrices*winogradRows*g.cols), g.left
	for k := range g.group {
		for row := 0; row < g.rows; row += winogradRows {
			rows := min(winogradRows, g.rows-row)
			size := rows * g.cols
			for i := range size {
				u := filtered((*[9]float32)(g.weights[((k*g.rows+row)*g.cols+i)*9:]))
				for t, v := range u {
					part[t*size+i] = v
				}
			}
			for t := range tileMatrices {
				packed := padRows(rows) * g.cols
				packLeft(to[:packed], dense(part[t*size:(t+1)*size], rows, g.cols))
				to = to[packed:]
			}
		}
	}
}

// filtered is G g Gᵀ, where G is [1 0 0; ½ ½ ½; ½ -½ ½; 0 0 1]. g is in row-major order, and so is
// u.
func filtered(g *[9]float32) (u [tileMatrices]float32) {
	line := func(a, b, c float64) [4]float64 {
		return [4]float64{a, (a + b + c) / 2,
			(a - b + c) / 2, c}
	}
	var half [3][4]float64
	for x := range 3 {
		half[x] = line(float64(g[x]), float64(g[3+x]), float64(g[6+x]))
	}
	for y := range 4 {
		for x, v := range line(half[0][y], half[1][y], half[2][y]) {
			u[4*y+x] = float32(v)
		}
	}
	return u
}

// always reports whether an output of any number of tiles is worth it.
func (g *winograd) always() bool { return g.rows*g.cols < winogradLarge }

// suits reports whether an output of size sp is worth it, and a line of its tiles no more than a
// few times the tiles in work. The answer depends on shapes alone, so that an image's result does
// not depend on its batch.
func (g *winograd) suits(sp []int) bool {
	if g == nil {
		return false
	}
	high, wide := (sp[0]+1)/2, (sp[1]+1)/2
	return (g.always() || high*wide >= winogradTiles) &&
		wide <= 8*winogradWork/tileMatrices/(winogradRows+g.cols)
}

// most is how many tiles are in work: whole panels.
func (g *winograd) most() int {
	return max(panelCols, winogradWork/tileMatrices/(winogradRows+g.cols)/panelCols*panelCols)
}

// winogradRun is the work of one call, in items: some lines of tiles of one image, or some images.
// Sums do not depend on the items, so that they may on the threads.
type winogradRun struct {
	*winograd
	v                   *convolution[float32]
	phases              *phases
	high, wide          int // in tiles
	lines, images       int // of an item
	columns, packedRows int // of a matrix of tiles
}

// run convolves.
func (g *winograd) run(v *convolution[float32]) {
	g.once.Do(g.pack)
	r := &winogradRun{winograd: g, v: v, high: (v.sp[0] + 1) / 2, wide: (v.sp[1] + 1) / 2,
		packedRows: padRows(g.rows)}
	// Even and odd columns apart, the columns of neighbouring tiles are side by side: for
	// processors that have no lanes for tiles.
	w := window{size: []int{4, 4}, dilation: []int{1, 1}, stride: []int{1, 2},
		begin: v.window.begin}
	r.phases = try.Get(newPhases(w, v.xs[2:], []int{2*r.high - 1, r.wide}))
	n, tiles := v.xs[0], r.high*r.wide
	most := g.most()
	if t := v.env.Threads; t > 1 {
		most = min(most, max(32, (tiles*n*g.group+t-1)/t))
	}
	r.lines, r.images = min(r.high, max(1, most/r.wide)), 1
	if r.lines == r.high {
		r.images = min(n, max(1, most/tiles))
	}
	r.columns = padColumns(r.images*r.lines*r.wide) + 16 // rows are written past their ends
	parts, blocks := (r.high+r.lines-1)/r.lines, (n+r.images-1)/r.images
	v.Parallel(g.group*blocks*parts, work(g.rows, g.cols, r.images, r.lines, r.wide, 4),
		func(from, to int) {
			split := scratch[float32](v.Call, r.phases.len())
			clear(split)
			in, sums := scratch[float32](v.Call, tileMatrices*g.cols*r.columns),
				scratch[float32](v.Call, tileMatrices*winogradRows*r.columns)
			pair := scratch[float32](v.Call, 2, (2*r.images*r.lines*r.wide+15)/16*16)
			var lanes *tileLanes
			for at := from; at < to; at++ {
				i := r.item(at%parts, at/parts%g.group, at/parts/g.group)
				lanes = layTiles(i, lanes)
				i.lanes = lanes
				i.transform(in, split)
				for row := 0; row < g.rows; row += winogradRows {
					i.multiply(sums, in, row)
					i.finish(sums, pair, row)
				}
			}
		})
}

// winogradItem is group of images n from image on, lines of tiles from first to last.
type winogradItem struct {
	*winogradRun
	group, image, n, first, last int
	each                         int // tiles of an image
	// nil where lines are copied to lie as vectors want them
	lanes *tileLanes
}

// item is the work on some lines of tiles (part) of a group of a block of images.
func (r *winogradRun) item(part, group, block int) winogradItem {
	i := winogradItem{winogradRun: r, group: group, image: block * r.images, first: part * r.lines}
	i.last, i.n = min(r.high, i.first+r.lines), min(r.images, r.v.xs[0]-i.image)
	i.each = (i.last - i.first) * r.wide
	return i
}

// transform sets v to Bᵀ d B of the item's tiles. v is [16, channels, columns]. The padding counts
// as zeros.
func (i winogradItem) transform(v, split []float32) {
	p, size, channels := i.phases, i.v.in, i.winograd.cols
	for ch := range channels {
		to := v[ch*i.columns:]
		if i.lanes != nil {
			i.lanes.in(to, channels*i.columns,
				i.v.x[((i.image*i.winograd.group+i.group)*channels+ch)*size:], i.v.xs[3])
			continue
		}
		for n := range i.n {
			splitInto(p, split, i.v.x[(((i.image+n)*i.winograd.group+i.group)*channels+ch)*size:][:size],
				2*i.first, 2*i.last+2)
			for line := i.first; line < i.last; line++ {
				tilesIn(to[n*i.each+(line-i.first)*i.wide:], channels*i.columns,
					split[2*line*p.wide:], p.wide, p.high*p.wide, i.wide)
			}
		}
	}
}

// multiply sets m to winogradRows of the weights, from row on, times v. m is [16, winogradRows,
// columns], one matrix product for each element of a tile.
func (i winogradItem) multiply(m, v []float32, row int) {
	g, rows := i.winograd, min(winogradRows, i.winograd.rows-row)
	packed := padRows(rows) * g.cols
	for t := range tileMatrices {
		left, c := g.left[tileMatrices*(i.group*i.packedRows+row)*g.cols+t*packed:][:packed],
			m[t*winogradRows*i.columns:]
		multiplyWhole(left, v[t*g.cols*i.columns:], c[:winogradRows*i.columns], rows, i.n*i.each,
			g.cols, i.columns)
	}
}

// finish writes the outputs Aᵀ m A of winogradRows rows, from the first on, with bias and the
// operators that follow; pair has room for even lines and for odd ones.
func (i winogradItem) finish(m, pair []float32, first int) {
	rows, height, width := i.winograd.rows, i.v.sp[0], i.v.sp[1]
	for row := first; row < min(rows, first+winogradRows); row++ {
		channel := i.group*rows + row
		finish, from := i.v.then.spread(i.v.bias, channel), m[(row-first)*i.columns:]
		out := i.v.out[(i.image*i.winograd.group*rows+channel)*i.v.pos:]
		if i.lanes != nil {
			i.lanes.out(out, from, winogradRows*i.columns, &finish)
		} else {
			i.copyOut(out, from, pair, &finish)
		}
		for n := range i.n {
			plane := out[n*i.winograd.group*rows*i.v.pos:]
			i.v.then.bend(plane[2*i.first*width : min(2*i.last, height)*width])
		}
	}
}

// copyOut writes the outputs f of a channel, whose plane of the item's first image is at the
// beginning of out, by way of pair. An odd last line or column of outputs is computed and left out.
func (i winogradItem) copyOut(out, from, pair []float32, f *finish) {
	height, width, half, short := i.v.sp[0], i.v.sp[1], len(pair)/2, i.wide < 8
	if short { // lines of tiles that fill no vector are ended together
		tilesOut(pair, half, from, winogradRows*i.columns, i.n*i.each, f)
	}
	for n := range i.n {
		dst := out[n*i.winograd.group*i.winograd.rows*i.v.pos:][:i.v.pos]
		for line := i.first; line < i.last; line++ {
			at := n*i.each + (line-i.first)*i.wide
			switch {
			case short:
				at *= 2
			case width%16 == 0 && 2*line+2 <= height:
				tilesOut(dst[2*line*width:], width, from[at:], winogradRows*i.columns, i.wide, f)
				continue
			default:
				tilesOut(pair, half, from[at:], winogradRows*i.columns, i.wide, f)
				at = 0
			}
			for y := range min(2, height-2*line) {
				copy(dst[(2*line+y)*width:][:width], pair[y*half+at:])
			}
		}
	}
}

// tilesInGo sets dst[t ds + i] to element t of Bᵀ d B of n tiles side by side: even columns lie in
// src, line after line, odd ones at a distance. B is [1 0 -1 0; 0 1 1 0; 0 -1 1 0; 0 1 0 -1]ᵀ.
func tilesInGo(dst []float32, ds int, src []float32, line, odd, n int) {
	for i := range n {
		var d [4][4]float32
		for y := range 4 {
			even, odd := src[y*line+i:][:2], src[odd+y*line+i:][:2]
			d[y] = [4]float32{even[0], odd[0], even[1], odd[1]}
		}
		for y, v := range [4][4]float32{minus(d[0], d[2]), plus(d[1], d[2]), minus(d[2], d[1]),
			minus(d[1], d[3])} {
			to := dst[4*y*ds+i:]
			to[0], to[ds], to[2*ds], to[3*ds] = v[0]-v[2], v[1]+v[2], v[2]-v[1], v[1]-v[3]
		}
	}
}

// plus and minus are sums of lines of a tile, element by element.
func plus(a, b [4]float32) [4]float32 {
	return [4]float32{a[0] + b[0], a[1] + b[1], a[2] + b[2], a[3] + b[3]}
}

func minus(a, b [4]float32) [4]float32 {
	return [4]float32{a[0] - b[0], a[1] - b[1], a[2] - b[2], a[3] - b[3]}
}

// tilesOutGo sets two lines of dst, that far apart, to the outputs of n tiles, f of Aᵀ m A, of
// which element t lies at m[t ms + i]. A is [1 1 1 0; 0 1 -1 -1]ᵀ.
func tilesOutGo(dst []float32, line int, m []float32, ms, n int, f *finish) {
	for i := range n {
		var s [2][4]float32
		for x := range 4 {
			a, b, c, d := m[x*ms+i], m[(4+x)*ms+i], m[(8+x)*ms+i], m[(12+x)*ms+i]
			s[0][x], s[1][x] = a+b+c, b-c-d
		}
		for y, v := range s {
			dst[y*line+2*i], dst[y*line+2*i+1] = v[0]+v[1]+v[2], v[1]-v[2]-v[3]
		}
	}
	for y := range 2 {
		pair := dst[y*line:][:2*n]
		limitGo(pair, pair, f[0][0], f[1][0], f[2][0], f[3][0])
	}
}

// finish is the map of a channel's sums: scale, shift and bounds of limit, each in every lane of a
// vector.
type finish [4][8]float32

// spread returns the map of a channel's sums by bias and a, which may be nil. (v + bias) scale +
// shift = v scale + (bias scale + shift), in one product and one sum.
func (a *after) spread(bias []float32, channel int) (f finish) {
	scale, shift, lo, hi := float32(1), float32(0), float32(math.Inf(-1)), float32(math.Inf(1))
	if bias != nil {
		shift = bias[channel]
	}
	if a != nil {
		lo, hi = a.lo, a.hi
		if a.scale != nil {
			scale, shift = a.scale[channel], shift*a.scale[channel]+a.shift[channel]
		}
	}
	for i, v := range [4]float32{scale, shift, lo, hi} {
		fillRange(f[i][:], v)
	}
	return f
}
