package kernel

import (
	"math"
	"sync"

	"fmp/onnx"
)

// A 3x3 convolution that moves by single positions is done as Winograd's minimal filtering F(2x2, 3x3) (Lavin and Gray 2016,
// arXiv:1509.09308), which multiplies 16 times where the definition does 36 times: for every 2x2 outputs, a tile,
//
//	Y = Aᵀ [sum over channels of (G g Gᵀ) ∘ (Bᵀ d B)] A
//
// of the weights g and the 4x4 inputs d that they see. The sums over channels are 16 matrix products of all tiles.
type winograd struct {
	rows, cols, group int // of a group's weights: output and input channels
	weights           []float32
	once              sync.Once
	left              []float32 // [group, 16, packed rows x cols]
}

const (
	tileMatrices = 16
	// Of few tiles the weights are read for little, and there are more of them.
	winogradTiles = 32
	winogradLarge = 1 << 16 // weights of nine positions
	// winogradWork is how many numbers the tiles in work may have, so that they stay in the second-level cache.
	winogradWork = 1 << 18
)

// newWinograd returns nil where the convolution is not one that is done so, or its weights are too large to be kept.
func newWinograd(s *Spec, win window, group int) *winograd {
	weights := s.constant(1)
	one := func(v []int) bool { return product(v) == 1 } // product(nil) is 1
	if !havePanels || weights == nil || weights.DType != onnx.Float32 || len(weights.Shape) != 4 || !one(win.stride) || !one(win.dilation) {
		return nil
	}
	g := &winograd{rows: weights.Shape[0] / group, cols: weights.Shape[1], group: group}
	if weights.Shape[2] != 3 || weights.Shape[3] != 3 || g.rows < winogradLeast || g.cols < winogradLeast || !s.keeps(group, tileMatrices, padRows(g.rows), g.cols) {
		return nil
	}
	g.weights = weights.F32()
	return g
}

// pack transforms the weights, when they are first wanted.
func (g *winograd) pack() {
	packed, w, group := padRows(g.rows)*g.cols, g.weights, g.group
	g.left = make([]float32, group*tileMatrices*packed)
	part := make([]float32, tileMatrices*g.rows*g.cols)
	for k := range group {
		for i := range g.rows * g.cols {
			u := filtered((*[9]float32)(w[(k*g.rows*g.cols+i)*9:]))
			for t, v := range u {
				part[t*g.rows*g.cols+i] = v
			}
		}
		for t := range tileMatrices {
			packLeft(g.left[(k*tileMatrices+t)*packed:][:packed], dense(part[t*g.rows*g.cols:(t+1)*g.rows*g.cols], g.rows, g.cols))
		}
	}
}

// filtered is G g Gᵀ, where G is [1 0 0; ½ ½ ½; ½ -½ ½; 0 0 1].
func filtered(g *[9]float32) (u [tileMatrices]float32) {
	line := func(a, b, c float64) [4]float64 { return [4]float64{a, (a + b + c) / 2, (a - b + c) / 2, c} }
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

// suits reports whether an output of such a size is, and a line of its tiles no more than a few times what there may be in work.
func (g *winograd) suits(sp []int) bool {
	if g == nil {
		return false
	}
	high, wide := (sp[0]+1)/2, (sp[1]+1)/2
	return (g.always() || high*wide >= winogradTiles) && wide <= 8*winogradWork/tileMatrices/(g.rows+g.cols)
}

// run convolves x, of shape xs, with spatial output sp.
func (g *winograd) run(c *Call, o, x, bias []float32, xs, sp []int, w window, then *after) error {
	g.once.Do(g.pack)
	high, wide := (sp[0]+1)/2, (sp[1]+1)/2 // in tiles
	tiles := high * wide
	// Even and odd columns apart, the columns of neighbouring tiles are side by side.
	p, err := newPhases(window{size: []int{4, 4}, dilation: []int{1, 1}, stride: []int{1, 2}, begin: w.begin}, xs[2:], []int{2*high - 1, wide})
	if err != nil {
		return err
	}
	// An item is some lines of tiles of one image, or some images; sums do not depend on it, so that it may on the threads.
	most := max(32, winogradWork/tileMatrices/(g.rows+g.cols))
	if t := c.env.Threads; t > 1 {
		most = min(most, max(32, (tiles*xs[0]*g.group+t-1)/t))
	}
	lines, images := min(high, max(1, most/wide)), 1
	if lines == high {
		images = min(xs[0], max(1, most/tiles))
	}
	parts, blocks := (high+lines-1)/lines, (xs[0]+images-1)/images
	columns := padColumns(images*lines*wide) + 8 // of a matrix of tiles: what is written goes past the end of a line
	rows := padRows(g.rows)
	packed, in, pos := rows*g.cols, xs[2]*xs[3], sp[0]*sp[1]
	c.Parallel(g.group*blocks*parts, work(g.rows, g.cols, images, lines, wide, 4), func(from, to int) {
		split := Scratch[float32](c, p.len())
		clear(split)
		v, m := Scratch[float32](c, tileMatrices*g.cols*columns), Scratch[float32](c, tileMatrices*rows*columns)
		pair := Scratch[float32](c, 2, (2*wide+15)/16*16)
		for item := from; item < to; item++ {
			first, k, image := item%parts*lines, item/parts%g.group, item/parts/g.group*images
			last, n := min(high, first+lines), min(images, xs[0]-image)
			each := (last - first) * wide // tiles of an image
			for i := range n {
				for ch := range g.cols {
					splitInto(p, split, x[(((image+i)*g.group+k)*g.cols+ch)*in:][:in], 2*first, 2*last+2)
					for line := first; line < last; line++ {
						tilesIn(v[ch*columns+i*each+(line-first)*wide:], g.cols*columns, split[2*line*p.wide:], p.wide, p.high*p.wide, wide)
					}
				}
			}
			for t := range tileMatrices {
				c := m[t*rows*columns : (t+1)*rows*columns]
				clear(c)
				multiplyWhole(g.left[(k*tileMatrices+t)*packed:][:packed], v[t*g.cols*columns:], c, g.rows, n*each, g.cols, columns)
			}
			for i := range n {
				for row := range g.rows {
					channel := k*g.rows + row
					finish := then.spread(bias, channel)
					dst := o[((image+i)*g.group*g.rows+channel)*pos:][:pos]
					for line := first; line < last; line++ {
						from := m[row*columns+i*each+(line-first)*wide:]
						if sp[1]%16 == 0 && 2*line+2 <= sp[0] {
							tilesOut(dst[2*line*sp[1]:], sp[1], from, rows*columns, wide, &finish)
							continue
						}
						tilesOut(pair, len(pair)/2, from, rows*columns, wide, &finish)
						for h := range min(2, sp[0]-2*line) {
							copy(dst[(2*line+h)*sp[1]:][:sp[1]], pair[h*len(pair)/2:])
						}
					}
				}
			}
		}
	})
	return nil
}

// tilesInGo sets dst[t ds + i] to element t of Bᵀ d B of n tiles side by side: even columns lie in src, line after line, odd ones
// at a distance. B is [1 0 -1 0; 0 1 1 0; 0 -1 1 0; 0 1 0 -1]ᵀ.
func tilesInGo(dst []float32, ds int, src []float32, line, odd, n int) {
	for i := range n {
		var d [4][4]float32
		for y := range 4 {
			even, odd := src[y*line+i:][:2], src[odd+y*line+i:][:2]
			d[y] = [4]float32{even[0], odd[0], even[1], odd[1]}
		}
		for y, v := range [4][4]float32{minus(d[0], d[2]), plus(d[1], d[2]), minus(d[2], d[1]), minus(d[1], d[3])} {
			to := dst[4*y*ds+i:]
			to[0], to[ds], to[2*ds], to[3*ds] = v[0]-v[2], v[1]+v[2], v[2]-v[1], v[1]-v[3]
		}
	}
}

func plus(a, b [4]float32) [4]float32 {
	return [4]float32{a[0] + b[0], a[1] + b[1], a[2] + b[2], a[3] + b[3]}
}

func minus(a, b [4]float32) [4]float32 {
	return [4]float32{a[0] - b[0], a[1] - b[1], a[2] - b[2], a[3] - b[3]}
}

// tilesOutGo sets two lines of dst, that far apart, to the outputs of n tiles, what f makes of Aᵀ m A, of which element t lies at
// m[t ms + i]. A is [1 1 1 0; 0 1 -1 -1]ᵀ.
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

// finish is what becomes of a channel's sums: scale, shift and bounds of limit, each in every lane of a vector.
type finish [4][8]float32

// spread is what bias and a, which may be nil, make of a channel.
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
