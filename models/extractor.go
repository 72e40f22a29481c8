package models

import (
	"fmt"
	"math"
	"strings"

	"fmp/onnx"
	"fmp/onnx/build"
	"fmp/onnx/optim"
)

// Extractor is the configuration of a small residual network (He, Zhang, Ren and Sun 2016,
// arXiv:1512.03385) that maps images to features:
//
//	x0 = relu(N(conv3x3(image)))                                       Widths[0] channels
//	for every further width:  x = relu(N(conv3x3(pool2x2(x)))),        Widths[i] channels
//	                          x = x + relu(N(conv3x3(relu(N(conv3x3(x))))))  where Residual[i-1]
//	features = standardised(mean over positions of x, times a [Widths[last], Dx] matrix)
//
// N is batch normalisation (Ioffe and Szegedy 2015, arXiv:1502.03167), over the batch in training
// and with stored statistics in the exported model.
type Extractor struct {
	Channels int    `json:"channels"` // of the image: 1 or 3
	Height   int    `json:"height"`   // of the image, pixels
	Width    int    `json:"width"`    // of the image, pixels
	Widths   []int  `json:"widths"`   // channels of each stage
	Residual []bool `json:"residual"` // one for each width after the first
	Dx       int    `json:"dx"`       // number of features
	// Mirror makes the exported model average over an image and its mirror image, before the
	// matrix. It doubles the cost of a forward pass and does not affect training.
	Mirror bool `json:"mirror,omitempty"`
}

// Names of the inputs and outputs of extractor graphs.
const (
	ImageInput  = "image"  // [batch, Channels, Height, Width], normalised
	TargetInput = "target" // [batch, classes], label probabilities
	// [batch, classes], 0 for a class that the image may have, a large negative number for others
	AllowedInput   = "allowed"
	FeaturesOutput = "features" // [batch, Dx]
	LogitsOutput   = "logits"   // [batch, classes]
	LossOutput     = "loss"     // scalar
)

// The weight of the old running statistics in a training step, and the constant added to variances.
const (
	normMomentum = 0.95
	normEpsilon  = 1e-5
	// standardisation of the features: without learned scale and shift.
	standardize = "standardize"
)

// DefaultExtractor returns the configuration for a data set's image size: three stages for images
// of 32 pixels, two for smaller ones.
func DefaultExtractor(channels, height, width, dx int) Extractor {
	e := Extractor{Channels: channels, Height: height, Width: width, Dx: dx}
	if min(height, width) >= 32 {
		e.Widths, e.Residual = []int{24, 48, 96, 192}, []bool{true, true, true}
	} else {
		e.Widths, e.Residual = []int{8, 16, 32}, []bool{true, true}
	}
	return e
}

// check returns an error for sizes out of their bounds. Each pooling halves the sides, which must
// not come to 0.
func (e Extractor) check() error {
	if e.Channels != 1 && e.Channels != 3 {
		return fmt.Errorf("extractor: %d channels; allowed are 1 (grey) and 3 (RGB)", e.Channels)
	}
	if len(e.Widths) < 2 || len(e.Residual) != len(e.Widths)-1 {
		return fmt.Errorf("extractor: %d widths and %d residual flags; want at least two widths, "+
			"and a flag for each after the first", len(e.Widths), len(e.Residual))
	}
	for _, w := range e.Widths {
		if w < 1 || w > 4096 {
			return fmt.Errorf("extractor: width %d; allowed are 1 to 4096 channels", w)
		}
	}
	if e.Dx < 1 || e.Dx > 4096 {
		return fmt.Errorf("extractor: dx is %d; allowed are 1 to 4096", e.Dx)
	}
	if smallest := 1 << (len(e.Widths) - 1); e.Height < smallest || e.Width < smallest ||
		e.Height > 1024 || e.Width > 1024 {
		return fmt.Errorf(
			"extractor: images of %d x %d; with %d widths, allowed are sides of %d to 1024 pixels",
			e.Height,
			e.Width, len(e.Widths), smallest)
	}
	return nil
}

// Loss builds the training graph: inputs image, target, allowed and the running statistics; outputs
// loss, the mean cross-entropy of a linear head on the features, and the new running statistics
// (named new_ and the input). Statistics start from [Extractor.Statistics]. The loss is -mean_i
// sum_c target_ic log softmax(logits_i + allowed_i)_c.
func (e Extractor) Loss(classes int, seed uint64) (*onnx.Model, error) {
	if err := e.check(); err != nil {
		return nil, err
	}
	if classes < 2 {
		return nil, fmt.Errorf("extractor: %d classes; want at least 2", classes)
	}
	b := build.New("extractor training")
	n := network{Extractor: e, b: b, w: newWeights(b, seed), training: true}
	x := n.image()
	target := b.Input(TargetInput, onnx.Float32, "batch", classes)
	allowed := b.Input(AllowedInput, onnx.Float32, "batch", classes)
	logits := n.head(n.features(x), classes)
	logp := b.Op("LogSoftmax", []build.Ref{b.Add(logits, allowed)}, onnx.IntAttr("axis", 1))
	each := b.ReduceSum(b.Mul(target, logp), false, 1)
	b.Output(LossOutput, b.Op("Neg", []build.Ref{b.ReduceMean(each, false, 0)}))
	return b.Model()
}

// Values returns the parameters and running statistics of a model made by [Extractor.Model], under
// their names in [Extractor.Loss], for a training run that continues from that model. The head is
// not included. Tensors are copies.
func (e Extractor) Values(m *onnx.Model) (map[string]*onnx.Tensor, error) {
	loss, err := e.Loss(2, 0)
	if err != nil {
		return nil, err
	}
	wanted := e.Statistics()
	for _, name := range Parameters(loss) {
		if !strings.HasPrefix(name, "head/") {
			wanted[name] = loss.Graph.Initializers[name]
		}
	}
	for name, want := range wanted {
		got := m.Graph.Initializers[name]
		if got == nil {
			return nil, fmt.Errorf("extractor: the model holds no %q; want one that fmp train "+
				"extractor made, with widths %v and dx %d", name, e.Widths, e.Dx)
		}
		if got.DType != want.DType || fmt.Sprint(got.Shape) != fmt.Sprint(want.Shape) {
			return nil, fmt.Errorf("extractor: the model's %q is %v; widths %v and dx %d want %v",
				name, got, e.Widths, e.Dx, want)
		}
		wanted[name] = got.Clone()
	}
	return wanted, nil
}

// Statistics returns the initial running statistics, by the names of the training graph's inputs.
func (e Extractor) Statistics() map[string]*onnx.Tensor {
	out := map[string]*onnx.Tensor{}
	for _, s := range e.norms() {
		out[s.name+"/mean"], out[s.name+"/var"] = onnx.ZerosF32(s.size), ones(s.size)
	}
	return out
}

// Model builds the inference graph, image to features, from the parameters and statistics of a
// training run. With classes > 0 it also has the output logits. Values that have no place in the
// graph, as the head's where classes is 0, are passed over.
func (e Extractor) Model(values map[string]*onnx.Tensor, classes int) (*onnx.Model, error) {
	if err := e.check(); err != nil {
		return nil, err
	}
	b := build.New("extractor")
	n := network{Extractor: e, b: b, w: newWeights(b, 0), stored: values}
	f := n.features(n.image())
	b.Output(FeaturesOutput, f)
	if classes > 0 {
		b.Output(LogitsOutput, n.head(f, classes))
	}
	m, err := b.Model()
	if err != nil {
		return nil, err
	}
	for name, t := range m.Graph.Initializers {
		if v, ok := values[name]; ok {
			if v.DType != t.DType || fmt.Sprint(v.Shape) != fmt.Sprint(t.Shape) {
				return nil, fmt.Errorf("extractor: %q is %v and the configuration wants %v",
					name, v, t)
			}
			m.Graph.Initializers[name] = v.Clone()
		}
	}
	return m, nil
}

// SetStandardization changes the standardisation of an extractor model made by [Extractor.Model],
// so that features that had the given mean and standard deviation get mean 0 and standard deviation
// 1. Stored are mean and variance (v) of x, and features are (x - mean)/sqrt(v + epsilon). With s =
// sqrt(v + epsilon) they become mean + s m and (s d)^2 - epsilon, for the given mean m and
// deviation d. m is changed in place. Statistics stay in float32, so that the result is right to
// its rounding.
func SetStandardization(m *onnx.Model, mean, std []float64) error {
	mt, vt := m.Graph.Initializers[standardize+"/mean"], m.Graph.Initializers[standardize+"/var"]
	if mt == nil || vt == nil || len(mean) != mt.Len() || len(std) != mt.Len() {
		return fmt.Errorf(
			"extractor: %d means and %d standard deviations do not fit the model's standardisation",
			len(mean), len(std))
	}
	for i := range mean {
		// The features so far were (raw - mean) / sqrt(var + epsilon).
		s := math.Sqrt(float64(vt.F32()[i]) + normEpsilon)
		if !(std[i] > 0) {
			return fmt.Errorf("extractor: feature %d has standard deviation %v; it is the same "+
				"for every image", i, std[i])
		}
		mt.F32()[i] += float32(s * mean[i])
		v := s * std[i]
		vt.F32()[i] = float32(v*v - normEpsilon)
	}
	return nil
}

// normSize is a normalisation with its number of channels.
type normSize struct {
	name string
	size int
}

// norms lists the normalisations in the order of the network.
func (e Extractor) norms() []normSize {
	out := []normSize{{"stem/norm", e.Widths[0]}}
	for i, w := range e.Widths[1:] {
		stage := fmt.Sprintf("stage%d", i+1)
		out = append(out, normSize{stage + "/norm", w})
		if e.Residual[i] {
			out = append(out, normSize{stage + "/block/norm1", w},
				normSize{stage + "/block/norm2", w})
		}
	}
	return append(out, normSize{standardize, e.Dx})
}

// network builds the layers of the training and the inference graph.
type network struct {
	Extractor
	b        *build.Builder
	w        layers
	training bool
	stored   map[string]*onnx.Tensor // statistics of the inference graph
}

// image adds the input, [batch, channels, height, width].
func (n network) image() build.Ref {
	return n.b.Input(ImageInput, onnx.Float32, "batch", n.Channels, n.Height, n.Width)
}

// features adds the layers from image to features, [batch, dx]. With Mirror an image and its mirror
// image are averaged after pooling, outside of training.
func (n network) features(x build.Ref) build.Ref {
	mirror := n.Mirror && !n.training
	if mirror {
		columns := make([]int64, n.Width)
		for i := range columns {
			columns[i] = int64(n.Width - 1 - i)
		}
		x = n.b.Concat(0, x, n.b.Op("Gather", []build.Ref{x, n.b.Const(onnx.Vector(columns...))},
			onnx.IntAttr("axis", 3)))
	}
	x = n.unit("stem", "", x, n.Channels, n.Widths[0])
	for i, width := range n.Widths[1:] {
		stage := fmt.Sprintf("stage%d", i+1)
		x = n.b.Scope(stage).Op("AveragePool", []build.Ref{x}, onnx.IntsAttr("kernel_shape", 2, 2),
			onnx.IntsAttr("strides", 2, 2))
		x = n.unit(stage, "", x, n.Widths[i], width)
		if n.Residual[i] {
			h := n.unit(stage+"/block", "1", x, width, width)
			x = n.b.Scope(stage).Add(x, n.unit(stage+"/block", "2", h, width, width))
		}
	}
	last := n.Widths[len(n.Widths)-1]
	pooled := n.b.Op("Flatten", []build.Ref{n.b.Op("GlobalAveragePool", []build.Ref{x})})
	if mirror {
		pooled = n.b.ReduceMean(n.b.Reshape(pooled, 2, -1, last), false, 0)
	}
	h := n.w.Linear("project", pooled, last, n.Dx, gaussian(math.Sqrt(1/float64(last))), nil)
	return n.norm(standardize, h, n.Dx, n.b.Const(ones(n.Dx)), n.b.Const(onnx.ZerosF32(n.Dx)))
}

// ones returns a tensor of ones.
func ones(shape ...int) *onnx.Tensor {
	t := onnx.ZerosF32(shape...)
	for i := range t.F32() {
		t.F32()[i] = 1
	}
	return t
}

// unit is a 3x3 convolution, a normalisation and a relu. Weights are drawn with deviation sqrt(2/(9
// in)), which keeps the variance through a relu (He et al. 2015, arXiv:1502.01852).
func (n network) unit(scope, suffix string, x build.Ref, in, out int) build.Ref {
	w := n.w.Scope(scope)
	weight := w.Scope("conv"+suffix).Param("weight", gaussian(math.Sqrt(2/float64(9*in))),
		out, in, 3, 3)
	conv := w.b.Op("Conv", []build.Ref{x, weight},
		onnx.IntsAttr("kernel_shape", 3, 3), onnx.IntsAttr("pads", 1, 1, 1, 1))
	name := "norm" + suffix
	l := w.Scope(name)
	return w.b.Relu(n.norm(scope+"/"+name, conv, out, l.Param("scale", constant(1), out),
		l.Param("shift", constant(0), out)))
}

// norm is batch normalisation; name is that of its statistics. In training it normalises by the
// batch, and its outputs are the running statistics after it. new = 0.95 old + 0.05 batch, as
// ONNX's BatchNormalization has momentum.
func (n network) norm(name string, x build.Ref, size int, scale, shift build.Ref) build.Ref {
	epsilon := onnx.FloatAttr("epsilon", normEpsilon)
	if !n.training {
		get := func(what string) build.Ref {
			t := n.stored[name+"/"+what]
			if t == nil {
				t = onnx.ZerosF32(size)
				n.b.Fail("the statistics %s/%s are missing", name, what)
			}
			return n.b.Param(name+"/"+what, t.Clone())
		}
		return n.b.Op("BatchNormalization", []build.Ref{x, scale, shift, get("mean"), get("var")},
			epsilon)
	}
	mean := n.b.Input(name+"/mean", onnx.Float32, size)
	variance := n.b.Input(name+"/var", onnx.Float32, size)
	out := n.b.OpN("BatchNormalization", []build.Ref{x, scale, shift, mean, variance}, 3, epsilon,
		onnx.FloatAttr("momentum", normMomentum), onnx.IntAttr("training_mode", 1))
	n.b.Output(optim.NewPrefix+name+"/mean", out[1])
	n.b.Output(optim.NewPrefix+name+"/var", out[2])
	return out[0]
}

// head is a linear classifier of the features. Its logits are divided by sqrt(dx): otherwise
// features of unit variance would make it learn so much faster than the layers below that high
// rates diverge.
func (n network) head(features build.Ref, classes int) build.Ref {
	logits := n.w.Linear("head", features, n.Dx, classes, gaussian(0.5), constant(0))
	return n.b.Mul(logits, n.b.F32(float32(1/math.Sqrt(float64(n.Dx)))))
}
