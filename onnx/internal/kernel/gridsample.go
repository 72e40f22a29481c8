package kernel

import (
	"fmt"
	"math"

	"fmp/onnx/internal/try"
)

// GridSample: mode linear, nearest or cubic; padding_mode zeros, border or reflection;
// align_corners = 0. x [n, c, d_1, ..., d_r], grid [n, o_1, ..., o_r, r] of positions in -1..1, the
// last axis first; out = [n, c, o_1, ..., o_r]. Position in pixels:
//
//	align_corners 1: (g + 1) (size - 1) / 2        0: ((g + 1) size - 1) / 2
func init() {
	register(Def{Op: "GridSample", Since: 16, Half: true, New: newGridSample})
}

// gridSample has the mode by its name of operator set 16, whatever the node's set calls it.
type gridSample struct {
	mode, padding string
	align         bool
}

// Operator set 20 calls the modes linear and cubic.
func newGridSample(s *Spec) (Kernel, error) {
	g := gridSample{mode: s.str("mode"), padding: s.str("padding_mode"),
		align: s.bool("align_corners")}
	switch g.mode {
	case "linear":
		g.mode = "bilinear"
	case "cubic":
		g.mode = "bicubic"
	}
	return numeric(s, sampleGrid[float32](g), sampleGrid[float64](g))
}

// pixel is the position of a grid coordinate. With align_corners, -1 and 1 are the centres of the
// outer pixels, else their outer edges.
func (g gridSample) pixel(v float64, size int) float64 {
	if g.align {
		return (v + 1) * float64(size-1) / 2
	}
	return ((v+1)*float64(size) - 1) / 2
}

// reflect folds a position back between the borders. The borders are the outer pixels' centres with
// align_corners, else their outer edges. The map is a triangle wave of period 2 (hi - lo). An axis
// of one pixel, whose centres coincide, gives that pixel.
func (g gridSample) reflect(v float64, size int) float64 {
	lo, hi := -0.5, float64(size)-0.5
	if g.align {
		lo, hi = 0, float64(size-1)
	}
	span := hi - lo
	if span <= 0 {
		return lo
	}
	d := math.Mod(math.Abs(v-lo), 2*span)
	if d > span {
		d = 2*span - d
	}
	return lo + d
}

// index is the place of a whole position on an axis, outside of which it may lie. false says that
// the place counts as zero and adds nothing.
func (g gridSample) index(v float64, size int) (int, bool) {
	switch g.padding {
	case "zeros":
		if v < 0 || v > float64(size-1) {
			return 0, false
		}
	case "reflection":
		v = g.reflect(v, size)
	}
	return int(min(max(math.RoundToEven(v), 0), float64(size-1))), true
}

// around are the whole positions, from the first on, that a position on an axis is made of, and
// their weights. For cubic weights the position stays as it is, and only the pixels around it are
// moved inside by index: the weights thus depend on the distance alone.
func (g gridSample) around(v float64, size int) (first float64, weight []float64) {
	if g.mode != "bicubic" {
		switch g.padding {
		case "border":
			v = min(max(v, 0), float64(size-1))
		case "reflection":
			v = g.reflect(v, size)
		}
	}
	first = math.Floor(v)
	switch g.mode {
	case "nearest":
		return math.RoundToEven(v), []float64{1}
	case "bilinear":
		return first, []float64{1 - (v - first), v - first}
	}
	// Weights depend on the fraction v - first. Eight in an axis of 64 is far enough from the ends
	// to have four pixels.
	r := resizing{mode: "cubic", cubic: -0.75}
	return first - 1, r.tapsAt(v-first+8, 64, 1).weight
}

// corner is an element of one channel and its weight.
type corner struct {
	at     int
	weight float64
}

// corners replaces to by the elements that the value at a position of the grid is made of. Weights
// multiply over the axes, so r axes have up to 2^r elements, or 4^r with cubic weights. Elements of
// weight 0 are left out: an infinite one there must not make the sum NaN.
func (g gridSample) corners(to []corner, sizes []int, pixel func(axis int) float64) []corner {
	to = append(to[:0], corner{0, 1})
	for k, size := range sizes {
		first, weight := g.around(g.pixel(pixel(k), size), size)
		n := len(to)
		for e := range n { // each gives way to those of its row, plane, ...
			c := to[e]
			for i, w := range weight {
				if p, ok := g.index(first+float64(i), size); ok && c.weight*w != 0 {
					to = append(to, corner{c.at*size + p, c.weight * w})
				}
			}
		}
		to = append(to[:0], to[n:]...)
	}
	return to
}

// sampleGrid finds the corners of a position once for all channels, and sums in float64. Threads
// divide the batch.
func sampleGrid[T floating](g gridSample) Kernel {
	return func(c *Call) error {
		xs, gs := c.In[0].Shape, c.In[1].Shape
		r := len(xs) - 2
		if r < 1 || len(gs) != len(xs) || gs[r+1] != r || gs[0] != xs[0] {
			return fmt.Errorf("input %v and grid %v: [n, c, d...] and [n, o..., number of d] are expected",
				xs, gs)
		}
		sizes, plane, points := xs[2:], product(xs[2:]), product(gs[1:r+1])
		out := try.Get(c.New(0, c.In[0].DType, append([]int{xs[0], xs[1]}, gs[1:r+1]...)))
		x, grid, o := data[T](c.In[0]), data[T](c.In[1]), data[T](out)
		if len(o) == 0 {
			return nil
		}
		if plane == 0 {
			return fmt.Errorf("input of shape %v has nothing to sample", xs)
		}
		// NaN is no position, and rounding would leave a very far one no fraction for its weights.
		for i := range grid {
			if v := float64(grid[i]); v != v || math.Abs(v) > 1e9 {
				return fmt.Errorf("the grid holds %v", v)
			}
		}
		c.Parallel(xs[0], work(points, xs[1], 16), func(lo, hi int) {
			var around []corner
			for n := lo; n < hi; n++ {
				for p := range points {
					at := grid[(n*points+p)*r:][:r]
					around = g.corners(around, sizes,
						func(axis int) float64 { return float64(at[r-1-axis]) })
					for ch := range xs[1] {
						from, sum := x[(n*xs[1]+ch)*plane:][:plane], 0.0
						for _, e := range around {
							sum += e.weight * float64(from[e.at])
						}
						o[(n*xs[1]+ch)*points+p] = T(sum)
					}
				}
			}
		})
		return nil
	}
}
