package shape

import (
	"fmt"
	"math"

	"fmp/onnx"
)

// inferResize: sizes are given, or floor(size x scale). Upsample has only scales (an attribute at opset 7).
func inferResize(c *call) error {
	x := c.in[0]
	c.set(0, x.dtype, nil)
	if !x.ranked() {
		return nil
	}
	scaleAt, sizeAt := 1, -1
	if c.node.Op == "Resize" && c.opset >= 11 {
		scaleAt, sizeAt = 2, 3
	}
	out := append([]expr{}, x.shape...)
	axes := make([]int, len(out))
	for i := range axes {
		axes[i] = i
	}
	if c.opset >= 18 {
		if c.attrs.Has("axes") {
			axes = c.attrs.Ints("axes")
		}
		if _, err := axesOf(axes, len(out)); err != nil {
			return err
		}
	}
	var sizes []expr
	if sizeAt > 0 && c.has(sizeAt) {
		var err error
		if sizes, err = c.given(c.in[sizeAt]); err != nil {
			return err
		}
		if len(sizes) == 0 {
			sizes = c.unknownSizes(len(axes))
		}
	}
	if sizes != nil && len(sizes) != len(axes) {
		return fmt.Errorf("%d sizes for %d axes", len(sizes), len(axes))
	}
	var scales []float32
	if f, ok := c.node.Attr("scales"); ok && c.node.Op == "Upsample" {
		scales = f.Floats
	} else if t := c.arg(scaleAt).constant(); t != nil && sizes == nil {
		scales = t.F32()
	}
	if scales != nil && len(scales) != len(axes) && sizes == nil {
		return fmt.Errorf("%d scales for %d axes", len(scales), len(axes))
	}
	policy := c.attrs.Str("keep_aspect_ratio_policy") // there is none before operator set 18
	stretch := policy == "" || policy == "stretch"
	for i, a := range axes {
		a, _ = axis(a, len(out))
		switch {
		case sizes != nil && stretch:
			out[a] = sizes[i]
		case scales != nil && sizes == nil:
			s := float64(scales[i])
			if !(s > 0) || s > onnx.MaxElements {
				return fmt.Errorf("the scale of axis %d is %v", a, s)
			}
			if v, ok := out[a].value(); ok {
				if float64(v)*s > onnx.MaxElements {
					return fmt.Errorf("scale %v makes axis %d of size %d larger than %d", s, a, v, onnx.MaxElements)
				}
				out[a] = constant(int(float64(v) * s))
			} else if s == math.Trunc(s) {
				out[a] = out[a].times(constant(int(s)))
			} else {
				out[a] = c.inf.unknownSize()
			}
		default:
			out[a] = c.inf.unknownSize()
		}
	}
	c.set(0, x.dtype, out)
	return nil
}

// inferGridSample: input [N, C, D1, ...], grid [N, O1, ..., n] -> [N, C, O1, ...].
func inferGridSample(c *call) error {
	x, grid := c.in[0].shape, c.in[1].shape
	c.set(0, c.in[0].dtype, nil)
	if x == nil || grid == nil {
		return nil
	}
	if len(x) != len(grid) || len(x) < 3 {
		return fmt.Errorf("input and grid are of rank %d and %d; they must be the same, 3 or more", len(x), len(grid))
	}
	n, err := meet(x[0], grid[0])
	if err != nil {
		return fmt.Errorf("batches of input and grid: %w", err)
	}
	out := append([]expr{n, x[1]}, grid[1:len(grid)-1]...)
	c.set(0, c.in[0].dtype, out)
	return nil
}

func inferAffineGrid(c *call) error {
	size, err := c.given(c.in[1])
	c.set(0, c.in[0].dtype, nil)
	if err != nil || len(size) < 3 {
		return err
	}
	out := append([]expr{size[0]}, size[2:]...)
	c.set(0, c.in[0].dtype, append(out, constant(len(size)-2)))
	return nil
}
