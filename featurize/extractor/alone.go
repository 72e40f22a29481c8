package extractor

import (
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"

	"fmp/featurize/dataset"
	"fmp/onnx"
	"fmp/onnx/op"
	"fmp/onnx/pass"
	"fmp/onnx/shape"
)

// maxApart is how far an image's features beside another image may be from those of it alone, as a
// share of their norm: rounding stays below, ranges that a model chooses by the batch do not.
const maxApart = 0.003

// leastApart is how far the features of a dark and of a bright image are apart at least, as a share
// of their norm: rounding differs between engines by a tenth of it.
const leastApart = 1e-5

// trialSide is the height and width of the drawn images where a model takes any: two images at once
// of a large size take more memory than a batch may.
const trialSide = 224

// beside refuses a model that gives a drawn image, bright or dark, other features beside the other
// one than alone: whatever its operators, the batch or chance then has a part in them. It refuses
// one that gives both the same features but for rounding, too: classes would be told apart by that.
// Features in coarse steps may be equal of these two, and must be others of a ramp then.
func (x *Extractor) beside() error {
	small := *x
	if x.sig.open {
		small.sig.h, small.sig.w = min(x.sig.h, trialSide), min(x.sig.w, trialSide)
	}
	alone, rows, err := small.drawn()
	if err != nil && small.sig != x.sig { // its layers may want the size after all
		alone, rows, err = x.drawn()
	}
	if err != nil {
		return err
	}
	if rows != nil && (len(alone[0]) != len(alone[1]) || len(rows) != 2*len(alone[0])) {
		return fmt.Errorf("an image has %d features and %d beside another; the "+
			"number of features must not depend on the batch: export a model that computes each "+
			"image by itself", len(alone[1]), len(rows)/2)
	}
	var worst float64
	// ranges that the bright image sets cost the dark one more, and sums may run either way
	if rows != nil {
		worst = max(apart(alone[0], rows[:len(alone[0])]), apart(alone[1], rows[len(alone[0]):]))
	}
	if worst > maxApart {
		return fmt.Errorf("the features of an image change by %.2g of their norm beside another "+
			"image: they depend on its batch or on chance; export a model that computes each "+
			"image by itself (PyTorch: net.eval(), running statistics in batch normalisation, "+
			"attention with batch_first; static quantisation)", worst)
	}
	// Features that are all 0 say nothing: a small network may know neither image.
	other := alone[1]
	if alone[2] != nil {
		other = alone[2]
	}
	if slices.ContainsFunc(other, func(v float32) bool { return v != 0 }) &&
		len(alone[0]) == len(other) && apart(other, alone[0]) < leastApart {
		return errors.New("the features of a dark and of a bright image are equal but for " +
			"rounding: they do not depend on the image; check extractor.mean, extractor.std, the " +
			"preset, and the layer that features are taken from")
	}
	return nil
}

// drawn returns the features of a dark image and of a bright one, each alone and then both at once;
// these are nil where the model is one for one image, or may be. Where the two have equal features,
// those of a grey ramp are third.
func (x *Extractor) drawn() (alone [3][]float32, rows []float32, err error) {
	size := x.sig.h * x.sig.w * x.sig.ch
	drawn := &dataset.Images{N: 3, H: x.sig.h, W: x.sig.w, Ch: x.sig.ch, Pix: make([]uint8, 3*size)}
	r := rand.New(rand.NewPCG(1, 2)) //nolint:gosec // images of a test, not secrets
	for i := range size {
		drawn.Pix[i], drawn.Pix[size+i] = uint8(r.IntN(32)), uint8(r.IntN(256))
		drawn.Pix[2*size+i] = uint8(255 * i / size) //nolint:gosec // below 256
	}
	// The ramp is tried only where it can tell more: see beside.
	for i := range alone {
		if i == 2 && !slices.Equal(alone[0], alone[1]) {
			break
		}
		if alone[i], _, err = x.batch(x.sessions[0], drawn, i, i+1, x.buffer()); err != nil {
			return alone, nil, fmt.Errorf("trying the model on a drawn image: %w", err)
		}
	}
	if x.sig.batch == 1 {
		return alone, nil, nil
	}
	rows, _, err = x.batch(x.sessions[0], drawn, 0, 2, x.buffer())
	// Where images go through one at a time, two are not asked of it.
	if err != nil && x.opt.Batch == 1 {
		return alone, nil, nil
	}
	if err != nil {
		return alone, nil, fmt.Errorf("trying the model on two images: %w", err)
	}
	return alone, rows, nil
}

// apart is how far features are from others, as a share of the norm of these. It is |others -
// features| / |others|: infinite where others are all 0 and features are not. Equal features are 0
// apart, zeros too.
func apart(others, features []float32) float64 {
	var squares, norm float64
	for k, v := range others {
		d := float64(v) - float64(features[k])
		squares, norm = squares+d*d, norm+float64(v)*float64(v)
	}
	if squares == 0 {
		return 0
	}
	return math.Sqrt(squares / norm)
}

// plain returns a model that runs alike on every engine: one that computes in half precision
// becomes one of float32, and weights are standardised. Weights that are only stored
// in half precision stay so.
func plain(m *onnx.Model) (*onnx.Model, error) {
	if !takesHalf(m) && !halfInside(m) {
		return folded(m)
	}
	c := *m
	if err := pass.ToFloat32(&c); err != nil {
		return nil, err
	}
	return folded(&c)
}

// isHalf reports whether a type is one of half precision.
func isHalf(d onnx.DType) bool { return d == onnx.Float16 || d == onnx.BFloat16 }

// takesHalf reports whether a model has an input in half precision.
func takesHalf(m *onnx.Model) bool {
	return slices.ContainsFunc(m.Graph.Inputs,
		func(v onnx.ValueInfo) bool { return isHalf(v.DType) })
}

// halfInside reports whether a model computes in half precision behind inputs of another type.
// Constants are left out: weights that are only stored so are widened before use.
func halfInside(m *onnx.Model) bool {
	types, _ := shape.Types(m) // a contradiction is an engine's to tell
	computes := func(n *onnx.Node) bool {
		return n.Op != "Constant" && slices.ContainsFunc(n.Outputs,
			func(o string) bool { return isHalf(types[o].DType) })
	}
	return !takesHalf(m) && slices.ContainsFunc(m.Graph.Nodes, computes)
}

// folded returns a model whose batch normalisations of weights in training form are worked out:
// weight standardisation is exported so. A node whose operands are not constants stays, and is
// refused by evaluates where it varies.
func folded(m *onnx.Model) (*onnx.Model, error) {
	training := func(n *onnx.Node) bool {
		return n.Op == "BatchNormalization" && len(n.Outputs) > 0 && trains(m, n)
	}
	if !slices.ContainsFunc(m.Graph.Nodes, training) {
		return m, nil
	}
	known, err := shape.Follow(m, onnx.MaxElements, onnx.NewBudget(m))
	if err != nil {
		return nil, err
	}
	c := onnx.Clone(m)
	g := c.Graph
	read := map[string]bool{}
	for _, v := range g.Outputs {
		read[v.Name] = true
	}
	for _, n := range g.Nodes {
		for _, name := range n.Reads() {
			read[name] = true
		}
	}
	g.Nodes = slices.DeleteFunc(g.Nodes, func(n *onnx.Node) bool {
		// The moved statistics are not worked out, so that a node that gives them must stay.
		if !training(n) ||
			slices.ContainsFunc(n.Outputs[1:], func(o string) bool { return read[o] }) {
			return false
		}
		y := standardised(n, m.Opset(), known)
		if y != nil {
			g.Initializers[n.Outputs[0]] = y
		}
		return y != nil
	})
	pass.RemoveUnused(g)
	return c, nil
}

// evaluates refuses a model that was exported in training form: its features would depend on which
// images share a batch (BatchNormalization by the batch's own statistics) or on chance (Dropout).
// Nodes whose operands no image reaches are let through, and so are those of a model for one image
// at a time. Dropout in training form is refused in any case.
func evaluates(m *onnx.Model) error {
	if !slices.ContainsFunc(m.Graph.Nodes,
		func(n *onnx.Node) bool { return trains(m, n) || ownStatistics(m, n) }) {
		return nil
	}
	known, err := shape.Follow(m, onnx.MaxElements, onnx.NewBudget(m))
	if err != nil {
		return err
	}
	types, err := shape.Types(m)
	if err != nil {
		return err
	}
	varies := map[string]bool{} // values that depend on the images
	for _, v := range m.Graph.Inputs {
		varies[v.Name] = true
	}
	for _, n := range m.Graph.Nodes {
		depends := slices.ContainsFunc(n.Reads(), func(r string) bool { return varies[r] })
		for _, o := range n.Outputs {
			varies[o] = depends && known.Constant(o) == nil
		}
		batch := types[n.Input(0)].Shape
		shared := len(batch) == 0 || batch[0].Size != 1
		switch training := trains(m, n); {
		case training && (n.Op == "Dropout" || depends && shared):
			return fmt.Errorf("node %q is %s in training form, so that the features of an "+
				"image would depend on the others of its batch or on chance; export the model in "+
				"evaluation form (PyTorch: net.eval() before torch.onnx.export)", n.Name, n.Op)
		case ownStatistics(m, n) && shared && (varies[n.Input(3)] || varies[n.Input(4)]):
			return fmt.Errorf("node %q is BatchNormalization by the statistics of its batch, so "+
				"that the features of an image would depend on the others; export a network that "+
				"keeps running statistics (PyTorch: track_running_stats=True)", n.Called())
		}
	}
	return nil
}

// trains reports whether a node is BatchNormalization or Dropout in training form.
// BatchNormalization says so by training_mode from operator set 14 on, and by more than one output
// from 7 on. Dropout says so by its third input from 12 on.
func trains(m *onnx.Model, n *onnx.Node) bool {
	opset := m.Opset()
	switch {
	case n.Domain != "":
	case n.Op == "BatchNormalization" && opset >= 14:
		return op.Attrs(n, int(opset)).Bool("training_mode")
	case n.Op == "BatchNormalization" && opset >= 7:
		return len(n.Outputs) > 1
	case n.Op == "Dropout" && opset >= 12:
		t := m.Graph.Initializers[n.Input(2)]
		for _, c := range m.Graph.Nodes {
			if a, ok := c.Attr("value"); ok && c.Op == "Constant" && n.Input(2) != "" &&
				c.Outputs[0] == n.Input(2) {
				t = a.Tensor
			}
		}
		if t != nil {
			v, ok := t.Data.([]bool)
			return ok && len(v) == 1 && v[0]
		}
	}
	return false
}

// ownStatistics reports whether the graph works out the statistics of a batch normalisation.
func ownStatistics(m *onnx.Model, n *onnx.Node) bool {
	return n.Op == "BatchNormalization" && n.Domain == "" &&
		(m.Graph.Initializers[n.Input(3)] == nil || m.Graph.Initializers[n.Input(4)] == nil)
}

// standardised is the value of a batch normalisation in training form of constants, each channel by
// its own mean and variance; nil where its operands are not known. y = scale (x - mean) /
// sqrt(variance + epsilon) + shift, with the variance divided by the number of values, summed in
// float64.
func standardised(n *onnx.Node, opset int64, known *shape.Facts) *onnx.Tensor {
	var in [3]*onnx.Tensor // x, scale and shift
	for i := range in {
		if in[i] = known.Constant(n.Input(i)); in[i] == nil || in[i].DType != onnx.Float32 {
			return nil
		}
	}
	x, y, channels := in[0].F32(), onnx.ZerosF32(in[0].Shape...), in[1].Len()
	if len(x) == 0 || len(y.Shape) < 2 || y.Shape[1] != channels || in[2].Len() != channels {
		return nil
	}
	rows := y.Shape[0]
	inner := len(x) / rows / channels
	epsilon := float64(op.Attrs(n, int(opset)).Float("epsilon"))
	for c := range channels {
		var sum, squares float64
		each := func(do func(at int)) {
			for r := range rows {
				for k := range inner {
					do((r*channels+c)*inner + k)
				}
			}
		}
		each(func(at int) { sum += float64(x[at]) })
		mean := sum / float64(rows*inner)
		each(func(at int) { squares += (float64(x[at]) - mean) * (float64(x[at]) - mean) })
		scale := float64(in[1].F32()[c]) / math.Sqrt(squares/float64(rows*inner)+epsilon)
		each(func(at int) {
			y.F32()[at] = float32((float64(x[at])-mean)*scale + float64(in[2].F32()[c]))
		})
	}
	return y
}
