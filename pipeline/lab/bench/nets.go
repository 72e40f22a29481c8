package bench

import (
	"context"
	"fmt"
	"math"

	"fmp/assets"
	"fmp/models"
	"fmp/models/rng"
	"fmp/onnx"
	"fmp/onnx/build"
	"fmp/onnx/engine"
	"fmp/onnx/engine/pure"
	"fmp/onnx/serde"
)

// net is a model that the engines run, with its inputs.
type net struct {
	name  string
	feeds map[string]*onnx.Tensor
	model func() (*onnx.Model, error)
}

// nets returns shipped graphs, and well-known architectures with random weights.
func nets() []net {
	shipped := func(dataset, kind string) func() (*onnx.Model, error) {
		return func() (*onnx.Model, error) {
			data, err := assets.Model(dataset, kind)
			if err != nil {
				return nil, err
			}
			return serde.Unmarshal(data)
		}
	}
	image := func(name string, n, side int) map[string]*onnx.Tensor {
		x := onnx.ZerosF32(n, 3, side, side)
		rng.Normal(rng.New(1, "bench", "images", n, side), x.F32())
		return map[string]*onnx.Tensor{name: x}
	}
	client := func(side, channels int) map[string]*onnx.Tensor {
		const n = 50
		r := rng.New(1, "bench", "client")
		x, y := make([]uint8, n*side*side*channels), make([]int64, n)
		for i := range x {
			x[i] = uint8(r.IntN(256))
		}
		for i := range y {
			y[i] = int64(r.IntN(classes))
		}
		return map[string]*onnx.Tensor{"images": onnx.NewTensor(x, n, side, side, channels), "labels": onnx.NewTensor(y, n)}
	}
	return []net{
		{"client graph of MNIST, 50 images", client(28, 1), shipped("mnist", models.KindClient)},
		{"client graph of CIFAR-10, 50 images", client(32, 3), shipped("cifar10", models.KindClient)},
		{"extractor of CIFAR-10, one image", image("image", 1, side), shipped("cifar10", models.KindExtractor)},
		{"extractor of CIFAR-10, 64 images", image("image", 64, side), shipped("cifar10", models.KindExtractor)},
		{"ResNet-18, one image of 224 x 224", image("images", 1, 224), resNet18},
		{"MobileNetV2, one image of 224 x 224", image("images", 1, 224), mobileNetV2},
		{"ViT (patches of 16, width 192, 12 blocks), one image of 224 x 224", image("images", 1, 224), tinyViT},
	}
}

// engines returns the contenders for a net: the pure engine and the other available one.
func engines(n net) func(ctx context.Context, b *Bench) ([]Contender, error) {
	return func(ctx context.Context, b *Bench) (out []Contender, err error) {
		m, err := n.model()
		if err != nil {
			return nil, err
		}
		ours, err := pure.New(engine.Options{Threads: 1})
		if err != nil {
			return nil, err
		}
		for _, e := range []engine.Engine{ours, b.Engine} {
			s, err := e.Load(m)
			if err != nil {
				return out, fmt.Errorf("%s: %w", e.Name(), err)
			}
			c := Timed(e.Name(), func() error {
				_, err := engine.Eval(s, n.feeds)
				return err
			})
			c.Close = s.Close
			out = append(out, c)
		}
		out[0].Name = "fmp, pure engine"
		files, fixed := map[string]*onnx.Tensor{}, onnx.Clone(m)
		for i, v := range fixed.Graph.Inputs { // tract wants sizes
			t := n.feeds[v.Name]
			for k, size := range t.Shape {
				v.Shape[k] = onnx.Known(size)
			}
			files[fmt.Sprint("in", i)] = t
		}
		for i := range fixed.Graph.Outputs {
			fixed.Graph.Outputs[i].Shape = nil
		}
		fixed.Graph.Values = nil
		data, err := serde.Marshal(fixed)
		if err != nil {
			return out, err
		}
		files["model"] = onnx.NewTensor(data, len(data))
		return b.with(ctx, out, files, peer{"net", "tract"})
	}
}

// layers builds architectures: convolutions with folded batch normalisation, and weights from N(0, 2 / fan in).
type layers struct {
	*build.Builder
	n int
}

func newLayers(name string) (*layers, build.Ref) {
	l := &layers{Builder: build.New(name)}
	return l, l.Input("images", onnx.Float32, "batch", 3, 224, 224)
}

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

func (l *layers) conv(x build.Ref, in, out, size, stride, group int) build.Ref {
	w := l.weight(2, out, in/group, size, size)
	l.n++
	b := l.Param(fmt.Sprint("b", l.n), onnx.ZerosF32(out))
	p := size / 2
	return l.Op("Conv", []build.Ref{x, w, b}, onnx.IntsAttr("kernel_shape", size, size), onnx.IntsAttr("strides", stride, stride),
		onnx.IntsAttr("pads", p, p, p, p), onnx.IntAttr("group", group))
}

func (l *layers) linear(x build.Ref, in, out int) build.Ref {
	// [in, out], the layout of MatMul: fan in is the first axis.
	w := l.weight(float64(out)/float64(in), in, out)
	l.n++
	return l.Add(l.MatMul(x, w), l.Param(fmt.Sprint("b", l.n), onnx.ZerosF32(out)))
}

// done pools x, with the given number of channels, and maps it to 1000 logits.
func (l *layers) done(x build.Ref, channels int) (*onnx.Model, error) {
	l.Output("logits", l.linear(l.ReduceMean(x, false, 2, 3), channels, 1000))
	return l.Model()
}

// resNet18 builds the network of He et al. 2016, "Deep residual learning for image recognition", table 1.
func resNet18() (*onnx.Model, error) {
	l, x := newLayers("resnet18")
	x = l.Relu(l.conv(x, 3, 64, 7, 2, 1))
	x = l.Op("MaxPool", []build.Ref{x}, onnx.IntsAttr("kernel_shape", 3, 3), onnx.IntsAttr("strides", 2, 2), onnx.IntsAttr("pads", 1, 1, 1, 1))
	in := 64
	for stage, out := range []int{64, 128, 256, 512} {
		for block := range 2 {
			stride := 1
			if stage > 0 && block == 0 {
				stride = 2
			}
			y := l.conv(l.Relu(l.conv(x, in, out, 3, stride, 1)), out, out, 3, 1, 1)
			if stride != 1 {
				x = l.conv(x, in, out, 1, stride, 1)
			}
			x, in = l.Relu(l.Add(x, y)), out
		}
	}
	return l.done(x, in)
}

// mobileNetV2 builds the network of Sandler et al. 2018, "MobileNetV2: inverted residuals and linear bottlenecks", table 2.
func mobileNetV2() (*onnx.Model, error) {
	l, x := newLayers("mobilenetv2")
	low, high := l.F32(0), l.F32(6)
	relu6 := func(x build.Ref) build.Ref { return l.Op("Clip", []build.Ref{x, low, high}) }
	x = relu6(l.conv(x, 3, 32, 3, 2, 1))
	in := 32
	for _, s := range []struct{ t, c, n, s int }{{1, 16, 1, 1}, {6, 24, 2, 2}, {6, 32, 3, 2}, {6, 64, 4, 2}, {6, 96, 3, 1}, {6, 160, 3, 2},
		{6, 320, 1, 1}} {
		for i := range s.n {
			stride, wide, y := 1, in*s.t, x
			if i == 0 {
				stride = s.s
			}
			if s.t > 1 {
				y = relu6(l.conv(y, in, wide, 1, 1, 1))
			}
			y = l.conv(relu6(l.conv(y, wide, wide, 3, stride, wide)), wide, s.c, 1, 1, 1)
			if stride == 1 && in == s.c {
				y = l.Add(x, y)
			}
			x, in = y, s.c
		}
	}
	return l.done(relu6(l.conv(x, in, 1280, 1, 1, 1)), 1280)
}

// tinyViT builds the network of Dosovitskiy et al. 2021, "An image is worth 16x16 words", in the size of Touvron et al. 2021 (DeiT-Ti);
// it classifies the mean of the patches.
func tinyViT() (*onnx.Model, error) {
	const d, heads, side = 192, 3, 14
	l, x := newLayers("vit")
	w := l.weight(1, d, 3, 16, 16)
	x = l.Op("Conv", []build.Ref{x, w}, onnx.IntsAttr("kernel_shape", 16, 16), onnx.IntsAttr("strides", 16, 16))
	x = l.Transpose(l.Reshape(x, 0, d, side*side), 0, 2, 1)
	x = l.Add(x, l.weight(1, 1, side*side, d))
	norm := func(x build.Ref) build.Ref {
		l.n++
		one := onnx.ZerosF32(d)
		for i := range one.F32() {
			one.F32()[i] = 1
		}
		return l.Op("LayerNormalization", []build.Ref{x, l.Param(fmt.Sprint("g", l.n), one), l.Param(fmt.Sprint("s", l.n), onnx.ZerosF32(d))},
			onnx.IntAttr("axis", -1))
	}
	split := func(x build.Ref, perm ...int) build.Ref {
		return l.Transpose(l.Reshape(x, 0, 0, heads, d/heads), perm...)
	}
	scale, half, root, one := l.F32(float32(1/math.Sqrt(d/heads))), l.F32(0.5), l.F32(math.Sqrt2), l.F32(1)
	for range 12 {
		y := norm(x)
		q, k, v := split(l.Mul(l.linear(y, d, d), scale), 0, 2, 1, 3), split(l.linear(y, d, d), 0, 2, 3, 1), split(l.linear(y, d, d), 0, 2, 1, 3)
		y = l.MatMul(l.Softmax(l.MatMul(q, k), 3), v)
		x = l.Add(x, l.linear(l.Reshape(l.Transpose(y, 0, 2, 1, 3), 0, 0, d), d, d))
		y = l.linear(norm(x), d, 4*d)
		y = l.Mul(l.Mul(y, half), l.Add(l.Op("Erf", []build.Ref{l.Div(y, root)}), one)) // GELU
		x = l.Add(x, l.linear(y, 4*d, d))
	}
	l.Output("logits", l.linear(l.ReduceMean(norm(x), false, 1), d, 1000))
	return l.Model()
}
