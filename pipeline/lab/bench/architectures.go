package bench

import (
	"fmt"
	"math"
	"slices"

	"fmp/models/rng"
	"fmp/onnx"
	"fmp/onnx/build"
)

// layers builds architectures: convolutions with folded batch normalisation, and weights from N(0,
// 2 / fan in). Speed does not depend on the weights, so long as no activation leaves the normal
// range. With that variance, activations keep their size from layer to layer behind a ReLU (He and
// others 2015, "Delving deep into rectifiers").
type layers struct {
	*build.Builder
	n int // parameters made, of which names and seeds have the number
	// paddings are nodes of their own, computed from constants, as PyTorch exports "same" ones
	padded bool
}

// newLayers begins a graph of that name, whose input is images [batch, 3, 224, 224].
func newLayers(name string) (*layers, build.Ref) {
	l := &layers{Builder: build.New(name)}
	return l, l.Input("images", onnx.Float32, "batch", 3, 224, 224)
}

// weight adds a parameter from N(0, gain / fan), where fan is the product of all axes but the
// first. That is the fan in of a convolution [out, in, height, width].
func (l *layers) weight(gain float64, shape ...int) build.Ref {
	l.n++
	fan := 1
	for _, d := range shape[1:] {
		fan *= d
	}
	t := onnx.ZerosF32(shape...)
	rng.Normal(rng.New(1, "bench", "weights", l.n), t.F32())
	for i := range t.F32() {
		t.F32()[i] *= float32(math.Sqrt(gain / float64(fan)))
	}
	return l.Param(fmt.Sprint("w", l.n), t)
}

// conv is a convolution of size x size with bias, from in to out channels in groups. Paddings let
// sides shrink by the stride alone. The paddings of PyTorch's "same" are size - stride in all, the
// larger half behind. Others are size/2 at both ends. A fan in counts the channels of one group
// alone. The bias stands for the folded normalisation.
func (l *layers) conv(x build.Ref, in, out, size, stride, group int) build.Ref {
	w := l.weight(2, out, in/group, size, size)
	l.n++
	b := l.Param(fmt.Sprint("b", l.n), onnx.ZerosF32(out))
	p := size / 2
	if l.padded && p > 0 {
		before := (size - stride) / 2
		after := size - stride - before
		pads := l.Op("Concat", []build.Ref{l.Axes(0, 0, before, before),
			l.Axes(0, 0, after, after)}, onnx.IntAttr("axis", 0))
		x, p = l.Op("Pad", []build.Ref{x, pads}), 0
	}
	return l.Op("Conv", []build.Ref{x, w, b}, onnx.IntsAttr("kernel_shape", size, size),
		onnx.IntsAttr("strides", stride, stride), onnx.IntsAttr("pads", p, p, p, p),
		onnx.IntAttr("group", group))
}

// linear is x W + b along the last axis, from in to out numbers.
func (l *layers) linear(x build.Ref, in, out int) build.Ref {
	// [in, out], the layout of MatMul: fan in is the first axis.
	w := l.weight(float64(out)/float64(in), in, out)
	l.n++
	return l.Add(l.MatMul(x, w), l.Param(fmt.Sprint("b", l.n), onnx.ZerosF32(out)))
}

// done pools x, with the given number of channels, and maps it to 1000 logits. The pooling is the
// mean over both spatial axes.
func (l *layers) done(x build.Ref, channels int) (*onnx.Model, error) {
	l.Output("logits", l.linear(l.ReduceMean(x, false, 2, 3), channels, 1000))
	return l.Model()
}

// stem begins a residual network: a convolution of 7 x 7 and a pooling, each at every second
// position. Sides go from 224 to 112 and 56.
func (l *layers) stem(x build.Ref) build.Ref {
	return l.Op("MaxPool", []build.Ref{l.Relu(l.conv(x, 3, 64, 7, 2, 1))},
		onnx.IntsAttr("kernel_shape", 3, 3), onnx.IntsAttr("strides", 2, 2),
		onnx.IntsAttr("pads", 1, 1, 1, 1))
}

// resNet18 and resNet50 build networks of He et al. 2016, "Deep residual learning for image
// recognition", table 1.
func resNet18() (*onnx.Model, error) { return resNet("resnet18", []int{2, 2, 2, 2}, false) }

func resNet50() (*onnx.Model, error) { return resNet("resnet50", []int{3, 4, 6, 3}, true) }

// resNet builds a residual network. A bottleneck's stride is in its middle convolution. blocks has
// the number of blocks of each of four stages. The first block of stages 2 to 4 halves the sides,
// and a convolution of 1 x 1 fits the shortcut where channels change. The paper's own bottleneck
// has its stride in the first convolution.
func resNet(name string, blocks []int, bottleneck bool) (*onnx.Model, error) {
	l, x := newLayers(name)
	x = l.stem(x)
	in := 64
	for stage, n := range blocks {
		wide := 64 << stage
		out := wide
		if bottleneck {
			out = 4 * wide
		}
		for block := range n {
			stride := 1
			if stage > 0 && block == 0 {
				stride = 2
			}
			var y build.Ref
			if bottleneck {
				y = l.Relu(l.conv(x, in, wide, 1, 1, 1))
				y = l.conv(l.Relu(l.conv(y, wide, wide, 3, stride, 1)), wide, out, 1, 1, 1)
			} else {
				y = l.conv(l.Relu(l.conv(x, in, out, 3, stride, 1)), out, out, 3, 1, 1)
			}
			if in != out {
				x = l.conv(x, in, out, 1, stride, 1)
			}
			x, in = l.Relu(l.Add(x, y)), out
		}
	}
	return l.done(x, in)
}

// relu6 returns an activation that is cut off at 6. Its bounds are made once and shared by all
// calls.
func (l *layers) relu6() func(build.Ref) build.Ref {
	low, high := l.F32(0), l.F32(6)
	return func(x build.Ref) build.Ref { return l.Op("Clip", []build.Ref{x, low, high}) }
}

// inverted is a block of an inverted residual network: in comes up to wide channels, goes through a
// window for each, and down to out.
type inverted struct {
	size, wide, out, stride int
	squeeze                 int // channels that scales are computed from, 0: none
	act                     func(build.Ref) build.Ref
	// of the scales: between their layers, and at their end
	inner, gate func(build.Ref) build.Ref
}

// inverted adds a block to x, of in channels. The input is added to the output where both have one
// shape. The last convolution has no activation: a linear bottleneck. Where b.wide is in, there is
// no convolution in front.
func (l *layers) inverted(x build.Ref, in int, b inverted) build.Ref {
	y := x
	if b.wide != in {
		y = b.act(l.conv(y, in, b.wide, 1, 1, 1))
	}
	y = b.act(l.conv(y, b.wide, b.wide, b.size, b.stride, b.wide))
	if b.squeeze > 0 {
		s := b.inner(l.conv(l.Op("GlobalAveragePool", []build.Ref{y}), b.wide, b.squeeze, 1, 1, 1))
		y = l.Mul(y, b.gate(l.conv(s, b.squeeze, b.wide, 1, 1, 1)))
	}
	if y = l.conv(y, b.wide, b.out, 1, 1, 1); b.stride == 1 && in == b.out {
		y = l.Add(x, y)
	}
	return y
}

// mobileNetV2 builds the network of Sandler et al. 2018, "MobileNetV2: inverted residuals and
// linear bottlenecks", table 2.
func mobileNetV2() (*onnx.Model, error) {
	l, x := newLayers("mobilenetv2")
	return l.mobile(x, []blocks{{1, 3, 16, 1, 1}, {6, 3, 24, 2, 2}, {6, 3, 32, 3, 2},
		{6, 3, 64, 4, 2}, {6, 3, 96, 3, 1}, {6, 3, 160, 3, 2}, {6, 3, 320, 1, 1}}, l.relu6(), nil)
}

// mobileNetV3 builds the large network of Howard et al. 2019, "Searching for MobileNetV3", table 1.
func mobileNetV3() (*onnx.Model, error) {
	l, x := newLayers("mobilenetv3")
	hard := func(x build.Ref) build.Ref { return l.Op("HardSwish", []build.Ref{x}) }
	gate := func(x build.Ref) build.Ref {
		return l.Op("HardSigmoid", []build.Ref{x}, onnx.FloatAttr("alpha", 1.0/6),
			onnx.FloatAttr("beta", 0.5))
	}
	x = hard(l.conv(x, 3, 16, 3, 2, 1))
	in := 16
	for i, b := range []inverted{
		{size: 3, wide: 16, out: 16, stride: 1}, {size: 3, wide: 64, out: 24, stride: 2},
		{size: 3, wide: 72, out: 24, stride: 1},
		{size: 5, wide: 72, out: 40, stride: 2, squeeze: 24},
		{size: 5, wide: 120, out: 40, stride: 1, squeeze: 32},
		{size: 5, wide: 120, out: 40, stride: 1, squeeze: 32},
		{size: 3, wide: 240, out: 80, stride: 2}, {size: 3, wide: 200, out: 80, stride: 1},
		{size: 3, wide: 184, out: 80, stride: 1}, {size: 3, wide: 184, out: 80, stride: 1},
		{size: 3, wide: 480, out: 112, stride: 1, squeeze: 120},
		{size: 3, wide: 672, out: 112, stride: 1, squeeze: 168},
		{size: 5, wide: 672, out: 160, stride: 2, squeeze: 168},
		{size: 5, wide: 960, out: 160, stride: 1, squeeze: 240},
		{size: 5, wide: 960, out: 160, stride: 1, squeeze: 240},
	} {
		if b.act, b.inner, b.gate = hard, l.Relu, gate; i < 6 {
			b.act = l.Relu
		}
		x, in = l.inverted(x, in, b), b.out
	}
	x = l.Op("GlobalAveragePool", []build.Ref{hard(l.conv(x, in, 960, 1, 1, 1))})
	return l.done(hard(l.conv(x, 960, 1280, 1, 1, 1)), 1280)
}

// efficientNetB0 builds the network of Tan and Le 2019, "EfficientNet: rethinking model scaling for
// convolutional neural networks", table 1.
func efficientNetB0() (*onnx.Model, error) {
	l, x := newLayers("efficientnet-b0")
	sigmoid := func(x build.Ref) build.Ref { return l.Op("Sigmoid", []build.Ref{x}) }
	silu := func(x build.Ref) build.Ref { return l.Mul(x, sigmoid(x)) }
	return l.mobile(x, efficientBlocks, silu,
		func(b *inverted, in int) { b.squeeze, b.inner, b.gate = in/4, silu, sigmoid })
}

// efficientNetLite0 builds that network as mobile devices take it: without scales of channels, and
// with activations cut off at 6 (Liu 2020, "Higher accuracy on vision models with
// EfficientNet-Lite"), in PyTorch's form.
func efficientNetLite0() (*onnx.Model, error) {
	l, x := newLayers("efficientnet-lite0")
	l.padded = true
	return l.mobile(x, efficientBlocks, l.relu6(), nil)
}

// blocks is a row of a network's table: t times as many channels within n blocks of c channels,
// with windows of a size; the first of them has the stride s.
type blocks struct{ t, size, c, n, s int }

// efficientBlocks are those of EfficientNet-B0.
var efficientBlocks = []blocks{{1, 3, 16, 1, 1}, {6, 3, 24, 2, 2}, {6, 5, 40, 2, 2},
	{6, 3, 80, 3, 2}, {6, 5, 112, 3, 1}, {6, 5, 192, 4, 2}, {6, 3, 320, 1, 1}}

// mobile builds a network of inverted residuals; scales, nil for none, readies those of a block's
// channels.
func (l *layers) mobile(x build.Ref, rows []blocks, act func(build.Ref) build.Ref,
	scales func(b *inverted, in int)) (*onnx.Model, error) {
	x = act(l.conv(x, 3, 32, 3, 2, 1))
	in := 32
	for _, s := range rows {
		for i := range s.n {
			b := inverted{size: s.size, wide: in * s.t, out: s.c, stride: 1, act: act}
			if scales != nil {
				scales(&b, in)
			}
			if i == 0 {
				b.stride = s.s
			}
			x, in = l.inverted(x, in, b), s.c
		}
	}
	return l.done(act(l.conv(x, in, 1280, 1, 1, 1)), 1280)
}

// convNeXt builds the network of Liu et al. 2022, "A ConvNet for the 2020s", in the smallest size
// of timm (Atto), as PyTorch exports it: norms and products see channels last, between
// transpositions.
func convNeXt() (*onnx.Model, error) {
	l, x := newLayers("convnext")
	widths := []int{40, 80, 160, 320}
	patches := func(x build.Ref, in, out, size int) build.Ref { // of size x size, without overlap
		l.n++
		return l.Op("Conv", []build.Ref{x, l.weight(1, out, in, size, size),
			l.Param(fmt.Sprint("b", l.n), onnx.ZerosF32(out))}, onnx.IntsAttr("strides",
			size, size))
	}
	last := func(x build.Ref) build.Ref { return l.Transpose(x, 0, 2, 3, 1) }
	first := func(x build.Ref) build.Ref { return l.Transpose(x, 0, 3, 1, 2) }
	x = first(l.norm(last(patches(x, 3, widths[0], 4)), widths[0]))
	for stage, blocks := range []int{2, 2, 6, 2} {
		d := widths[stage]
		if stage > 0 {
			x = patches(first(l.norm(last(x), d/2)), d/2, d, 2)
		}
		for range blocks {
			y := l.norm(last(l.conv(x, d, d, 7, 1, d)), d)
			y = l.linear(l.gelu(l.linear(y, d, 4*d)), 4*d, d)
			x = l.Add(x, first(l.Mul(y, l.weight(1, d))))
		}
	}
	return l.done(x, widths[3])
}

// norm normalises the last axis, of d numbers.
func (l *layers) norm(x build.Ref, d int) build.Ref {
	l.n++
	one := slices.Repeat([]float32{1}, d)
	return l.Op("LayerNormalization", []build.Ref{x,
		l.Param(fmt.Sprint("g", l.n), onnx.Vector(one...)),
		l.Param(fmt.Sprint("s", l.n), onnx.ZerosF32(d))}, onnx.IntAttr("axis", -1))
}

// gelu is x/2 (1 + erf(x / sqrt(2))), of which a constant node is made anew each time.
func (l *layers) gelu(x build.Ref) build.Ref {
	erf := l.Op("Erf", []build.Ref{l.Div(x, l.F32(math.Sqrt2))})
	return l.Mul(l.Mul(x, l.F32(0.5)), l.Add(erf, l.F32(1)))
}

// tinyViT builds the network of Dosovitskiy et al. 2021, "An image is worth 16x16 words", in the
// size of Touvron et al. 2021 (DeiT-Ti); it classifies the mean of the patches. Queries are scaled
// by 1/sqrt(64), the root of a head's width, before the product with the keys.
func tinyViT() (*onnx.Model, error) {
	const d, heads, side = 192, 3, 14
	l, x := newLayers("vit")
	w := l.weight(1, d, 3, 16, 16)
	x = l.Op("Conv", []build.Ref{x, w}, onnx.IntsAttr("kernel_shape", 16, 16),
		onnx.IntsAttr("strides", 16, 16))
	x = l.Transpose(l.Reshape(x, 0, d, side*side), 0, 2, 1)
	x = l.Add(x, l.weight(1, 1, side*side, d))
	norm := func(x build.Ref) build.Ref { return l.norm(x, d) }
	split := func(x build.Ref, perm ...int) build.Ref {
		return l.Transpose(l.Reshape(x, 0, 0, heads, d/heads), perm...)
	}
	scale := l.F32(float32(1 / math.Sqrt(d/heads)))
	for range 12 {
		y := norm(x)
		q, k, v := split(l.Mul(l.linear(y, d, d), scale), 0, 2, 1, 3),
			split(l.linear(y, d, d), 0, 2, 3, 1), split(l.linear(y, d, d), 0, 2, 1, 3)
		y = l.MatMul(l.Softmax(l.MatMul(q, k), 3), v)
		x = l.Add(x, l.linear(l.Reshape(l.Transpose(y, 0, 2, 1, 3), 0, 0, d), d, d))
		y = l.linear(norm(x), d, 4*d)
		x = l.Add(x, l.linear(l.gelu(y), 4*d, d))
	}
	l.Output("logits", l.linear(l.ReduceMean(norm(x), false, 1), d, 1000))
	return l.Model()
}
