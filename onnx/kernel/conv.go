package kernel

import (
	"fmt"
	"slices"
	"sync"

	"fmp/onnx"
)

// Conv: group = 1, window attributes as in newWindow; x [n, ci, in...], w [co, ci/group, size...], b [co]:
//
//	out[n, co, p...] = b[co] + sum_{c, q} w[co, c, q] x[n, c + ci/group · g, p · stride - begin + q · dilation]
//
// Computed as a matrix product: columns of x under the window (im2col), a tile of output positions at a time so
// that memory stays bounded, times w; 3x3 windows by fewer products (winograd), one channel at a time by none (depthwise). What
// follows it on each channel is done to every tile (after).
func init() {
	register(Def{Op: "Conv", Since: 1, Half: true, New: newConv})
}

// columnBytes bounds the im2col tile of one thread.
const columnBytes = 512 << 10

func newConv(s *Spec) (Kernel, error) {
	w, err := newWindow(s)
	if err != nil {
		return nil, err
	}
	group := s.int("group")
	if group < 1 {
		return nil, fmt.Errorf("group %d: at least 1 is expected", group)
	}
	f := &filters{group: group, tiles: newWinograd(s, w, group)}
	if m := s.constant(1); m != nil && m.DType == onnx.Float32 && len(m.Shape) > 1 && (f.tiles == nil || !f.tiles.always()) && s.keeps(group, padRows(m.Shape[0]/group), product(m.Shape[1:])) {
		f.weights = m
	}
	return numeric(s, convOf[float32](w, group, newAfter(s), f), convOf[float64](w, group, nil, nil))
}

// filters are the weights of a convolution as its products read them. Where they are known before the model runs, they are laid out
// once, when they are first wanted.
type filters struct {
	weights *onnx.Tensor // nil where they are not known, or too large to be kept
	group   int

	once   sync.Once
	packed []float32 // every group's, [output channels, input channels and positions] as packLeft has it
	tiles  *winograd // nil where the convolution cannot be done so
}

// pack lays out the weights w in dst.
func (f *filters) pack(dst []float32, w *onnx.Tensor) []float32 {
	og, k := w.Shape[0]/f.group, product(w.Shape[1:])
	packed := padRows(og) * k
	for g := range f.group {
		packLeft(dst[g*packed:(g+1)*packed], dense(w.F32()[g*og*k:(g+1)*og*k], og, k))
	}
	return dst
}

// convShape checks x and w against each other and fits the window.
func convShape(w window, group int, xs, ws []int) (window, []int, error) {
	if len(xs) < 3 || len(ws) != len(xs) {
		return w, nil, fmt.Errorf("input %v and weights %v: [n, channels, axes...] and as many axes are expected", xs, ws)
	}
	if xs[1] != ws[1]*group || ws[0]%group != 0 {
		return w, nil, fmt.Errorf("input %v, weights %v and group %d do not match: %d channels where the weights take %d", xs, ws, group, xs[1], ws[1]*group)
	}
	if w.size != nil && !slices.Equal(w.size, ws[2:]) {
		return w, nil, fmt.Errorf("kernel_shape %v differs from the weights' %v", w.size, ws[2:])
	}
	w.size = ws[2:]
	return w.fit(xs[2:])
}

func convOf[T floating](win window, group int, then *after, f *filters) Kernel {
	var zero T
	elem := 4
	if _, ok := any(zero).(float64); ok {
		elem = 8
	}
	return func(c *Call) error {
		xs, ws := c.In[0].Shape, c.In[1].Shape
		w, sp, err := convShape(win, group, xs, ws)
		if err != nil {
			return err
		}
		var bias []T
		if b := c.in(2); b != nil {
			if b.Len() != ws[0] {
				return fmt.Errorf("bias has %d elements for %d output channels", b.Len(), ws[0])
			}
			bias = data[T](b)
		}
		out, err := c.New(0, c.In[0].DType, append([]int{xs[0], ws[0]}, sp...))
		if err != nil {
			return err
		}
		x, wt, o := data[T](c.In[0]), data[T](c.In[1]), data[T](out)
		cg, og := ws[1], ws[0]/group // channels of a group
		in, pos, q := product(xs[2:]), product(sp), product(w.size)
		if len(o) == 0 {
			return nil
		}
		k := cg * q
		if cg == 1 && og == 1 && len(xs) < 5 {
			return depthwise(c, o, x, wt, bias, xs, sp, w, then)
		}
		direct, times := pointwise(w), multiply[T]
		finished := func(dst matrix[T], channel int) {
			if then != nil {
				then.apply(any(dst).(matrix[float32]), channel)
			}
		}
		// Panels or not is a matter of the weights alone, so that an image's result does not depend on its batch.
		inPanels := elem == 4 && panels(og, panelLeast, k)
		if !inPanels && finite(dense(x, 1, len(x))) {
			times = multiplyFinite[T] // looked at once, not once a tap
		}
		// One item is one tile of one group of one image, or of a block of images where a plane is small: independent of
		// all others.
		tile, block := min(pos, max(tileCols, columnBytes/elem/max(k, 1)/tileCols*tileCols)), 1
		var left []float32 // every group's weights, copied once for all tiles and images
		packed := padRows(og) * k
		if inPanels {
			if f.tiles.suits(sp) {
				return f.tiles.run(c, any(o).([]float32), any(x).([]float32), any(bias).([]float32), xs, sp, w, then)
			}
			if f.weights != nil {
				f.once.Do(func() { f.packed = f.pack(make([]float32, group*packed), f.weights) })
				left = f.packed
			} else {
				left = f.pack(Scratch[float32](c, group*packed), c.In[1])
			}
			block = max(1, min(xs[0], tileCols/pos))
		}
		var ph *phases
		if !direct {
			if ph, err = newColumns(xs[2:], sp, w); err != nil {
				return err
			}
		}
		tiles, blocks := (pos+tile-1)/tile, (xs[0]+block-1)/block
		c.Parallel(blocks*group*tiles, work(og, k, tile, block)/4, func(lo, hi int) {
			var col, sum, split []T
			if ph != nil {
				split = Scratch[T](c, ph.len())
				clear(split)
			}
			if !direct || block > 1 {
				col = Scratch[T](c, k, tile, block)
			}
			if block > 1 {
				sum = Scratch[T](c, og, tile, block)
			}
			for item := lo; item < hi; item++ {
				t, g, n := item%tiles, item/tiles%group, item/tiles/group*block
				p0, p1 := t*tile, min(pos, (t+1)*tile)
				weights := dense(wt[g*og*k:(g+1)*og*k], og, k)
				times := times
				if inPanels {
					times = func(a, b, c matrix[T]) {
						multiplyPacked(left[g*packed:(g+1)*packed], any(a).(matrix[float32]), any(b).(matrix[float32]), any(c).(matrix[float32]))
					}
				}
				if block > 1 { // of which tiles are whole planes
					images := min(block, xs[0]-n)
					cols := images * pos
					for i := range images {
						src := x[((n+i)*group+g)*cg*in : ((n+i)*group+g+1)*cg*in]
						columns(col[i*pos:], cols, src, cg, xs[2:], sp, w, ph, split, 0, pos)
					}
					dst := dense(sum[:og*cols], og, cols)
					start(dst, bias, g*og)
					times(weights, dense(col[:k*cols], k, cols), dst)
					finished(dst, g*og)
					for i := range images {
						to := o[((n+i)*group+g)*og*pos:]
						for r := range og {
							copy(to[r*pos:(r+1)*pos], sum[r*cols+i*pos:])
						}
					}
					continue
				}
				src := x[(n*group+g)*cg*in : (n*group+g+1)*cg*in]
				dst := matrix[T]{data: o[(n*group+g)*og*pos+p0:], rows: og, cols: p1 - p0, stride: pos}
				start(dst, bias, g*og)
				if direct {
					times(weights, matrix[T]{data: src[p0:], rows: k, cols: p1 - p0, stride: in}, dst)
				} else {
					columns(col, p1-p0, src, cg, xs[2:], sp, w, ph, split, p0, p1)
					times(weights, dense(col[:k*(p1-p0)], k, p1-p0), dst)
				}
				finished(dst, g*og)
			}
		})
		return nil
	}
}

// start fills each row of dst with its bias, that of row 0 being bias[from], or zeros where there is none.
func start[T floating](dst matrix[T], bias []T, from int) {
	for r := range dst.rows {
		row := dst.data[r*dst.stride : r*dst.stride+dst.cols]
		if bias != nil {
			fillRange(row, bias[from+r])
		} else {
			clear(row)
		}
	}
}

// pointwise says that the columns are the input itself.
func pointwise(w window) bool {
	for k := range w.size {
		if w.size[k] != 1 || w.stride[k] != 1 || w.begin[k] != 0 || w.end[k] != 0 {
			return false
		}
	}
	return true
}

// newColumns returns the phases that columns reads; nil where it reads the planes themselves.
func newColumns(in, out []int, w window) (*phases, error) {
	if len(in) > 2 || len(in) == 2 && product(w.stride) == 1 && out[1] == in[1] {
		return nil, nil
	}
	return newPhases(w, in, out)
}

// columns writes im2col for output positions p0 <= p < p1 to rows that lie cols apart:
// col[c q + tap, p - p0] = x[c, p · stride - begin + tap · dilation], 0 in the padding. split is memory for phases, of zeros where
// their padding lies.
func columns[T floating](col []T, cols int, x []T, channels int, in, out []int, w window, ph *phases, split []T, p0, p1 int) {
	q, size, width := product(w.size), product(in), p1-p0
	last := len(in) - 1
	tap, base := make([]int, len(in)), make([]int, len(in))
	for c := 0; c < channels; c++ {
		plane := x[c*size : (c+1)*size]
		if ph != nil {
			tapColumns(ph, col[c*q*cols:], cols, plane, split, p0, p1)
			continue
		}
		for t := 0; t < q; t++ {
			unravel(tap, t, w.size)
			row := col[(c*q+t)*cols : (c*q+t)*cols+width]
			if len(in) == 2 {
				shifted(row, plane, p0, out[1], tap[0]*w.dilation[0]-w.begin[0], tap[1]*w.dilation[1]-w.begin[1])
				continue
			}
			shift := tap[last]*w.dilation[last] - w.begin[last]
			// Runs along the last axis share all other coordinates.
			unravel(base, p0, out)
			for p := p0; p < p1; {
				run := min(out[last]-base[last], p1-p)
				off, inside := 0, true
				for k := 0; k < last; k++ {
					y := base[k]*w.stride[k] - w.begin[k] + tap[k]*w.dilation[k]
					if y < 0 || y >= in[k] {
						inside = false
						break
					}
					off = (off + y) * in[k+1]
				}
				seg := row[p-p0 : p-p0+run]
				if !inside {
					clear(seg)
				} else {
					line(seg, plane[off:off+in[last]], base[last]*w.stride[last]+shift, w.stride[last])
				}
				p += run
				next(base, out)
			}
		}
	}
}

// shifted copies a plane of lines of such a width, moved by so many lines and columns, from position p0 on; zeros come in at its
// ends. It is one copy of all lines, whose ends are cleared after.
func shifted[T floating](dst, plane []T, p0, width, lines, columns int) {
	from := p0 + lines*width + columns // where dst[0] lies in the plane
	skip := min(max(-from, 0), len(dst))
	n := skip
	if at := from + skip; skip < len(dst) && at < len(plane) {
		n += copy(dst[skip:], plane[at:])
	}
	clear(dst[:skip])
	clear(dst[n:])
	// Lines above and below the plane hold what columns moved there.
	above, below := -lines*width-p0, len(plane)-lines*width-p0
	clear(dst[:min(max(above, 0), len(dst))])
	clear(dst[min(max(below, 0), len(dst)):])
	if columns == 0 {
		return
	}
	a, b := 0, min(-columns, width) // columns of a line that are not there
	if columns > 0 {
		a, b = max(width-columns, 0), width
	}
	for line := -(p0 % width); line < len(dst); line += width {
		for i := max(line+a, 0); i < min(line+b, len(dst)); i++ {
			dst[i] = 0
		}
	}
}

// line copies src[at], src[at+step], ... to dst, zeros where that is outside src.
func line[T floating](dst, src []T, at, step int) {
	i := 0
	for ; i < len(dst) && at < 0; i++ {
		dst[i] = 0
		at += step
	}
	n := len(dst)
	if at < 0 || at >= len(src) {
		clear(dst[i:])
		return
	}
	n = min(n, i+(len(src)-at+step-1)/step)
	if step == 1 {
		copy(dst[i:n], src[at:])
	} else {
		for j := i; j < n; j++ {
			dst[j] = src[at]
			at += step
		}
	}
	clear(dst[n:])
}

// next moves coordinates to the beginning of the next line.
func next(at, shape []int) {
	last := len(shape) - 1
	at[last] = 0
	for k := last - 1; k >= 0; k-- {
		if at[k]++; at[k] < shape[k] {
			return
		}
		at[k] = 0
	}
}

// unravel writes the coordinates of the i-th position of a shape, in row-major order.
func unravel(at []int, i int, shape []int) {
	for k := len(shape) - 1; k >= 0; k-- {
		at[k] = i % shape[k]
		i /= shape[k]
	}
}
