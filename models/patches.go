package models

import (
	"fmt"
	"slices"

	"fmp/onnx"
	"fmp/onnx/build"
)

// Patches is an extractor of one layer: filters learned from patches of images, a threshold, max
// pooling, and a linear projection (Coates, Ng and Lee, AISTATS 2011, with max pooling and a
// projection in place of sums over quadrants). It is learned in seconds without gradients, see
// featurize/patches.
type Patches struct {
	// Height and Width are the images' size in pixels, Channels their number of channels.
	Height, Width, Channels int
	// Filters are [k, Channels, side, side]; Threshold is subtracted from their responses, of which
	// the positive part is kept. Absolute takes the responses' absolute values first, so that dark
	// on light and light on dark look alike.
	Filters   *onnx.Tensor
	Threshold float32
	Absolute  bool
	// Pool is the side and stride of the windows that keep their maximum.
	Pool int
	// Projection is [k * cells, dx] and Offset [dx]; nil returns the pooled responses themselves.
	Projection, Offset *onnx.Tensor
}

// Cells returns the number of pooling windows of an image, over both axes.
func (p Patches) Cells() int {
	side := p.Filters.Shape[2]
	return ((p.Height - side + 1) / p.Pool) * ((p.Width - side + 1) / p.Pool)
}

// Model builds the graph from image [batch, Channels, Height, Width], pixels scaled to 0..1, to
// features [batch, dx].
func (p Patches) Model() (*onnx.Model, error) {
	if p.Filters == nil || len(p.Filters.Shape) != 4 || p.Filters.Shape[1] != p.Channels ||
		p.Pool < 1 || p.Cells() < 1 {
		return nil, fmt.Errorf("patches: filters %v and pooling %d do not fit images of %dx%dx%d",
			p.Filters, p.Pool, p.Height, p.Width, p.Channels)
	}
	k := p.Filters.Shape[0]
	b := build.New("patches")
	x := b.Input("image", onnx.Float32, "batch", p.Channels, p.Height, p.Width)
	filters := b.Param("filters", p.Filters)
	if p.Absolute {
		x = b.Op("Abs", []build.Ref{b.Op("Conv", []build.Ref{x, filters})})
		x = b.Relu(b.Sub(x, b.F32(p.Threshold)))
	} else {
		bias := slices.Repeat([]float32{-p.Threshold}, k)
		x = b.Relu(b.Op("Conv", []build.Ref{x, filters, b.Param("bias", onnx.NewTensor(bias, k))}))
	}
	x = b.Op("MaxPool", []build.Ref{x}, onnx.IntsAttr("kernel_shape", p.Pool, p.Pool),
		onnx.IntsAttr("strides", p.Pool, p.Pool))
	x = b.Op("Flatten", []build.Ref{x})
	if p.Projection != nil {
		x = b.Op("Gemm", []build.Ref{x, b.Param("projection", p.Projection),
			b.Param("offset", p.Offset)})
	}
	b.Output("features", x)
	return b.Model()
}
