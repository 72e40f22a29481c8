package train

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"fmp/onnx"
	"fmp/onnx/build"
	"fmp/onnx/pass"
)

// Names of the values that [WithLoss] adds to a model.
const (
	LossOutput  = "loss"
	TargetInput = "target"
)

// Losses of scores y [batch, ...] and a target, each the mean over the batch:
//
//	cross-entropy  target [batch, classes], probabilities: -Σ_c t'_c log softmax(y)_c, t' = (1 - s) t + s/classes, s the smoothing
//	               (Szegedy et al. 2016, arXiv:1512.00567, section 7)
//	binary         target of y's shape, 0 to 1: softplus(y) - t y, the cross-entropy of sigmoid(y), mean over all elements
//	mse            target of y's shape: (y - t)², mean over all elements
//	contrastive    target [batch, 1], labels: supervised contrastive loss (Khosla et al. 2020, arXiv:2004.11362, equation 2) of y/|y|
//	               at a temperature; rows without another of their label in the batch count 0
const (
	CrossEntropy = "cross-entropy"
	Binary       = "binary"
	MSE          = "mse"
	Contrastive  = "contrastive"
)

// LossNames lists the losses.
var LossNames = []string{CrossEntropy, Binary, MSE, Contrastive}

// Loss is a loss that a model is trained on.
type Loss struct {
	Name        string  // one of LossNames
	Smoothing   float64 // of the labels of cross-entropy, 0 to below 1
	Temperature float64 // of contrastive; default 0.1
}

// Check returns an error unless the loss is one of LossNames, with numbers that it takes.
func (l Loss) Check() error {
	switch {
	case !slices.Contains(LossNames, l.Name):
		return fmt.Errorf("loss %q; allowed are %s", l.Name, strings.Join(LossNames, ", "))
	case !(l.Smoothing >= 0 && l.Smoothing < 1):
		return fmt.Errorf("smoothing %v; allowed are 0 to below 1", l.Smoothing)
	case !(l.Temperature >= 0):
		return fmt.Errorf("temperature %v; allowed are 0 and up", l.Temperature)
	}
	return nil
}

// WithLoss returns the part of a model that computes the scores, an output or any value in between,
// followed by the loss. Its inputs are those of m that it needs and "target", its outputs the
// scores and "loss", a scalar. m is not changed.
func WithLoss(m *onnx.Model, scores onnx.ValueInfo, l Loss) (*onnx.Model, error) {
	part := onnx.Clone(m)
	part.Graph.Outputs = []onnx.ValueInfo{scores}
	pass.RemoveUnused(part.Graph)
	if _, taken := part.Graph.Input(TargetInput); taken {
		return nil, fmt.Errorf("input %q: examples give the target of the loss under this name; export the model "+
			"with another name for its input", TargetInput)
	}
	// The part's value and the loss's are both outputs: the loss reads the first under another
	// name.
	loss, err := l.model(scores)
	if err != nil {
		return nil, fmt.Errorf("loss %q of %q: %w", l.Name, scores.Name, err)
	}
	copied := scores
	copied.Name = "loss/scores"
	identity := &onnx.Node{Name: copied.Name, Op: "Identity", Inputs: []string{scores.Name},
		Outputs: []string{copied.Name}}
	part.Graph.Nodes = append(part.Graph.Nodes, identity)
	part.Graph.Outputs = append(part.Graph.Outputs, copied)
	return pass.Compose(part, loss, map[string]string{"scores": copied.Name})
}

// model returns the loss as a model of scores and target. Sizes of the scores that are open stay
// open in the target.
func (l Loss) model(scores onnx.ValueInfo) (*onnx.Model, error) {
	if err := l.Check(); err != nil {
		return nil, err
	}
	n := len(scores.Shape)
	if n == 0 || (n != 2 && (l.Name == CrossEntropy || l.Name == Contrastive)) {
		return nil, fmt.Errorf("scores are %v; want [batch, classes]", scores)
	}
	dims := make([]any, n)
	for i, d := range scores.Shape {
		if dims[i] = any(d.Symbol); d.IsKnown() {
			dims[i] = d.Size
		}
	}
	b := build.New("loss")
	y := b.Input("scores", onnx.Float32, dims...)
	var each build.Ref
	switch l.Name {
	case CrossEntropy:
		if !scores.Shape[1].IsKnown() {
			return nil, fmt.Errorf("scores are %v; the number of classes must be fixed", scores)
		}
		t := b.Input(TargetInput, onnx.Float32, dims...)
		if l.Smoothing > 0 {
			t = b.Add(b.Mul(t, b.F32(float32(1-l.Smoothing))),
				b.F32(float32(l.Smoothing/float64(scores.Shape[1].Size))))
		}
		each = b.Mul(b.F32(-1), b.ReduceSum(
			b.Mul(t, b.Op("LogSoftmax", []build.Ref{y}, onnx.IntAttr("axis", 1))), false, 1))
	case Binary:
		each = b.Sub(b.Op("Softplus", []build.Ref{y}),
			b.Mul(b.Input(TargetInput, onnx.Float32, dims...), y))
	case MSE:
		d := b.Sub(y, b.Input(TargetInput, onnx.Float32, dims...))
		each = b.Mul(d, d)
	case Contrastive:
		each = l.contrastive(b, y, b.Input(TargetInput, onnx.Float32, dims[0], 1))
	}
	b.Output(LossOutput, b.Op("ReduceMean", []build.Ref{each}, onnx.IntAttr("keepdims", 0)))
	return b.Model()
}

// contrastive is a row's loss, with z = y/|y|, temperature τ and P the other rows of its label:
//
//	-1/|P| Σ_{p ∈ P} log (e^(z_i·z_p/τ) / Σ_{a ≠ i} e^(z_i·z_a/τ))
//
// Subtracting 1e9 closes the place of the row itself. Memory is that of a few matrices [batch,
// batch]. The addend 1e-12 keeps a row of zeros from a division by 0.
func (l Loss) contrastive(b *build.Builder, y, label build.Ref) build.Ref {
	temperature := cmp.Or(l.Temperature, 0.1)
	z := b.Div(y, b.Sqrt(b.Add(b.ReduceSum(b.Mul(y, y), true, 1), b.F32(1e-12))))
	s := b.Mul(b.MatMul(z, b.Transpose(z, 1, 0)), b.F32(float32(1/temperature)))
	self := b.Op("EyeLike", []build.Ref{s}, onnx.IntAttr("dtype", int(onnx.Float32)))
	same := b.Mul(b.Cast(b.Op("Equal", []build.Ref{label, b.Transpose(label, 1, 0)}), onnx.Float32),
		b.Sub(b.F32(1), self))
	logp := b.Op("LogSoftmax", []build.Ref{b.Sub(s, b.Mul(self, b.F32(1e9)))},
		onnx.IntAttr("axis", 1))
	positives := b.Op("Max", []build.Ref{b.ReduceSum(same, false, 1), b.F32(1)})
	return b.Mul(b.F32(-1), b.Div(b.ReduceSum(b.Mul(same, logp), false, 1), positives))
}

// Target returns the target of a loss for classes, of labels 0 to classes - 1 (it panics on
// others): their numbers [n, 1] for contrastive, else probabilities [n, classes].
func Target(labels []int, classes int, loss string) *onnx.Tensor {
	if loss == Contrastive {
		t := onnx.ZerosF32(len(labels), 1)
		for i, y := range labels {
			t.F32()[i] = float32(y)
		}
		return t
	}
	t := onnx.ZerosF32(len(labels), classes)
	for i, y := range labels {
		t.F32()[i*classes+y] = 1
	}
	return t
}
