package models

import (
	"fmt"
	"math"

	"fmp/onnx"
	"fmp/onnx/build"
)

// EfficientNetLite is a network of the EfficientNet family (Tan & Le 2019, arXiv:1905.11946)
// without squeeze-and-excitation and with ReLU6 in place of swish, as published for small devices
// (EfficientNet-Lite): inverted residuals of depthwise convolutions (Sandler et al. 2018,
// arXiv:1801.04381).
type EfficientNetLite struct {
	Side int // height and width of an image
	// factors of channels and of blocks in a stage; stem, head and the first and last stage's depth
	// are not scaled
	Width, Depth float64
}

// EfficientNetFeatures is the number of features of an image, the means of the last convolution's
// channels.
const EfficientNetFeatures = 1280

// stage is a run of blocks of one kind; the first has the stride and changes the number of
// channels.
type stage struct{ blocks, kernel, stride, expand, in, out int }

var stages = [...]stage{{1, 3, 1, 1, 32, 16}, {2, 3, 2, 6, 16, 24}, {2, 5, 2, 6, 24, 40},
	{3, 3, 2, 6, 40, 80}, {3, 5, 1, 6, 80, 112}, {4, 5, 2, 6, 112, 192}, {1, 3, 1, 6, 192, 320}}

// liteEpsilon is added to the variances of the batch normalisations.
const liteEpsilon = 1e-3

// channels scales a number of channels to a multiple of 8 that is at least .9 of the product.
func (e EfficientNetLite) channels(n int) int {
	w := float64(n) * e.Width
	to := max(8, int(w+4)/8*8)
	if float64(to) < 0.9*w {
		to += 8
	}
	return to
}

// efficientNet builds the graph from the published values.
type efficientNet struct {
	EfficientNetLite
	b      *build.Builder
	values map[string]*onnx.Tensor
	side   int // of the maps so far
	err    error
}

// Model builds the graph from images, float32 [n, 3, Side, Side], (pixel - 127) / 128, to features,
// float32 [n, 1280], with the values of the published PyTorch model by name; batch normalisations
// are folded into the convolutions before them.
func (e EfficientNetLite) Model(values map[string]*onnx.Tensor) (*onnx.Model, error) {
	n := &efficientNet{EfficientNetLite: e, b: build.New("efficientnet-lite"),
		values: values, side: e.Side}
	x := n.b.Input("image", onnx.Float32, "n", 3, e.Side, e.Side)
	x = n.clip(n.conv(x, "_conv_stem", "_bn0", filter{3, 32, 3, 2, 1}))
	block := 0
	for i, s := range stages {
		in, out, blocks := e.channels(s.in), e.channels(s.out), s.blocks
		if i == 0 {
			in = s.in
		}
		if i > 0 && i < len(stages)-1 {
			blocks = int(math.Ceil(e.Depth * float64(blocks)))
		}
		for k := range blocks {
			if k > 0 {
				s.stride, in = 1, out
			}
			x = n.block(x, fmt.Sprintf("_blocks.%d.", block), s, in, out)
			block++
		}
	}
	x = n.clip(n.conv(x, "_conv_head", "_bn1",
		filter{e.channels(stages[len(stages)-1].out), EfficientNetFeatures, 1, 1, 1}))
	n.b.Output(FeaturesOutput, n.b.ReduceMean(x, false, 2, 3))
	if n.err != nil {
		return nil, fmt.Errorf("EfficientNet-Lite: %w", n.err)
	}
	m, err := n.b.Model()
	if err != nil {
		return nil, fmt.Errorf("EfficientNet-Lite: %w", err)
	}
	return m, Manifest{Kind: KindExtractor, Dx: EfficientNetFeatures, Mean: gray3(127. / 255),
		Std: gray3(128. / 255), Layout: "NCHW",
		Resize: "crop"}.Write(m)
}

// gray3 is one number for each of three channels.
func gray3(v float32) []float32 { return []float32{v, v, v} }

// block is an inverted residual: expansion, depthwise convolution, projection, and the input added
// where shapes agree.
func (n *efficientNet) block(x build.Ref, name string, s stage, in, out int) build.Ref {
	y, wide := x, in*s.expand
	if s.expand != 1 {
		y = n.clip(n.conv(y, name+"_expand_conv", name+"_bn0", filter{in, wide, 1, 1, 1}))
	}
	y = n.clip(n.conv(y, name+"_depthwise_conv", name+"_bn1",
		filter{wide, wide, s.kernel, s.stride, wide}))
	y = n.conv(y, name+"_project_conv", name+"_bn2", filter{wide, out, 1, 1, 1})
	if s.stride == 1 && in == out {
		y = n.b.Add(y, x)
	}
	return y
}

// clip is ReLU6, min(max(x, 0), 6).
func (n *efficientNet) clip(x build.Ref) build.Ref {
	return n.b.Op("Clip", []build.Ref{x, n.b.F32(0), n.b.F32(6)})
}

// value returns a published tensor of the given shape.
func (n *efficientNet) value(name string, shape ...int) []float32 {
	t := n.values[name]
	if n.err == nil && (t == nil || t.DType != onnx.Float32 ||
		fmt.Sprint(t.Shape) != fmt.Sprint(shape)) {
		n.err = fmt.Errorf("%s is %v; want float32 %v", name, t, shape)
	}
	if n.err != nil {
		return onnx.ZerosF32(shape...).F32()
	}
	return t.F32()
}

// filter is the shape of a convolution.
type filter struct{ in, out, kernel, stride, groups int }

// conv is a convolution with the normalisation behind it folded in: w' = w g/sqrt(v + eps), b' = b
// - m g/sqrt(v + eps). Maps are padded as TensorFlow pads them, to ceil(side / stride), the odd
// pixel below and at the right.
func (n *efficientNet) conv(x build.Ref, name, norm string, f filter) build.Ref {
	w := n.value(name+".weight", f.out, f.in/f.groups, f.kernel, f.kernel)
	g, b := n.value(norm+".weight", f.out), n.value(norm+".bias", f.out)
	m, v := n.value(norm+".running_mean", f.out), n.value(norm+".running_var", f.out)
	folded, bias := make([]float32, len(w)), make([]float32, f.out)
	for o := range f.out {
		by := float64(g[o]) / math.Sqrt(float64(v[o])+liteEpsilon)
		bias[o] = float32(float64(b[o]) - float64(m[o])*by)
		each := len(w) / f.out
		for i := o * each; i < (o+1)*each; i++ {
			folded[i] = float32(float64(w[i]) * by)
		}
	}
	to := (n.side + f.stride - 1) / f.stride
	pad := max(0, (to-1)*f.stride+f.kernel-n.side)
	n.side = to
	return n.b.Op("Conv", []build.Ref{x,
		n.b.Param(name+".weight", onnx.NewTensor(folded, f.out, f.in/f.groups, f.kernel, f.kernel)),
		n.b.Param(name+".bias", onnx.NewTensor(bias, f.out))},
		onnx.IntsAttr("kernel_shape", f.kernel, f.kernel),
		onnx.IntsAttr("strides", f.stride, f.stride),
		onnx.IntAttr("group", f.groups), onnx.IntsAttr("pads", pad/2, pad/2, pad-pad/2, pad-pad/2))
}
