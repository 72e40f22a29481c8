package kernel

import (
	"fmt"
	"math"
)

// GridSample: mode bilinear, nearest or bicubic; padding_mode zeros, border or reflection; align_corners = 0. x [n, c, h, w], grid
// [n, oh, ow, 2] of (x, y) in -1..1; out = [n, c, oh, ow]. Position in pixels:
//
//	align_corners 1: (g + 1) (size - 1) / 2        0: ((g + 1) size - 1) / 2
func init() {
	register(Def{Op: "GridSample", Since: 16, Half: true, New: newGridSample})
}

type gridSample struct {
	mode, padding string
	align         bool
}

func newGridSample(s *Spec) (Kernel, error) {
	g := gridSample{mode: s.str("mode"), padding: s.str("padding_mode"), align: s.bool("align_corners")}
	switch g.mode {
	case "linear":
		g.mode = "bilinear"
	case "cubic":
		g.mode = "bicubic"
	case "bilinear", "nearest", "bicubic":
	default:
		return nil, fmt.Errorf("mode %q is not supported", g.mode)
	}
	switch g.padding {
	case "zeros", "border", "reflection":
	default:
		return nil, fmt.Errorf("padding_mode %q is not supported", g.padding)
	}
	return numeric(s, sampleGrid[float32](g), sampleGrid[float64](g))
}

// pixel is the position of a grid coordinate.
func (g gridSample) pixel(v float64, size int) float64 {
	if g.align {
		return (v + 1) * float64(size-1) / 2
	}
	return ((v+1)*float64(size) - 1) / 2
}

// reflect folds a position back between the borders.
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

// index is the offset of a whole position, which may lie outside.
func (g gridSample) index(y, x float64, h, w int) (int, bool) {
	switch g.padding {
	case "zeros":
		if y < 0 || x < 0 || y > float64(h-1) || x > float64(w-1) {
			return 0, false
		}
	case "reflection":
		y, x = g.reflect(y, h), g.reflect(x, w)
	}
	y, x = min(max(math.RoundToEven(y), 0), float64(h-1)), min(max(math.RoundToEven(x), 0), float64(w-1))
	return int(y)*w + int(x), true
}

func sampleGrid[T floating](g gridSample) Kernel {
	return func(c *Call) error {
		xs, gs := c.In[0].Shape, c.In[1].Shape
		if len(xs) != 4 || len(gs) != 4 || gs[3] != 2 || gs[0] != xs[0] {
			return fmt.Errorf("input %v and grid %v: [n, c, h, w] and [n, oh, ow, 2] are expected", xs, gs)
		}
		h, w, pos := xs[2], xs[3], gs[1]*gs[2]
		out, err := c.New(0, c.In[0].DType, []int{xs[0], xs[1], gs[1], gs[2]})
		if err != nil {
			return err
		}
		x, grid, o := data[T](c.In[0]), data[T](c.In[1]), data[T](out)
		if len(o) == 0 {
			return nil
		}
		if h*w == 0 {
			return fmt.Errorf("input of shape %v has nothing to sample", xs)
		}
		for i := range grid {
			if v := float64(grid[i]); v != v || math.Abs(v) > 1e9 {
				return fmt.Errorf("the grid holds %v", v)
			}
		}
		c.Parallel(xs[0], work(pos, xs[1], 16), func(lo, hi int) {
			for n := lo; n < hi; n++ {
				for p := 0; p < pos; p++ {
					px, py := g.pixel(float64(grid[(n*pos+p)*2]), w), g.pixel(float64(grid[(n*pos+p)*2+1]), h)
					if g.mode != "bicubic" {
						switch g.padding {
						case "border":
							px, py = min(max(px, 0), float64(w-1)), min(max(py, 0), float64(h-1))
						case "reflection":
							px, py = g.reflect(px, w), g.reflect(py, h)
						}
					}
					var wx, wy []float64
					x0, y0 := math.Floor(px), math.Floor(py)
					switch g.mode {
					case "nearest":
						x0, y0 = math.RoundToEven(px), math.RoundToEven(py)
						wx, wy = []float64{1}, []float64{1}
					case "bilinear":
						wx, wy = []float64{1 - (px - x0), px - x0}, []float64{1 - (py - y0), py - y0}
					default:
						r := resizing{mode: "cubic", cubic: -0.75}
						wx, wy = r.tapsAt(px-x0+8, 64).weight, r.tapsAt(py-y0+8, 64).weight
						x0, y0 = x0-1, y0-1
					}
					for ch := range xs[1] {
						plane := x[(n*xs[1]+ch)*h*w:][:h*w]
						sum := 0.0
						for i, a := range wy {
							for j, b := range wx {
								if at, ok := g.index(y0+float64(i), x0+float64(j), h, w); ok && a*b != 0 {
									sum += a * b * float64(plane[at])
								}
							}
						}
						o[(n*xs[1]+ch)*pos+p] = T(sum)
					}
				}
			}
		})
		return nil
	}
}
