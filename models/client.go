package models

import (
	"cmp"
	"fmt"

	"fmp/onnx"
	"fmp/onnx/build"
	"fmp/onnx/pass"
	"fmp/onnx/shape"
)

// narrow returns a value of floating-point numbers as float32, by a Cast where it is of others.
func narrow(g *onnx.Graph, v onnx.ValueInfo) onnx.ValueInfo {
	if !v.DType.IsFloat() || v.DType == onnx.Float32 {
		return v
	}
	cast := &onnx.Node{Op: "Cast", Inputs: []string{v.Name},
		Outputs: []string{pass.Free(g, v.Name+"/float32")},
		Attrs:   []onnx.Attr{onnx.IntAttr("to", int(onnx.Float32))}}
	g.Nodes, v.Name, v.DType = append(g.Nodes, cast), cast.Outputs[0], onnx.Float32
	return v
}

// Preprocessing describes how uint8 pixels become the input of an extractor, and how its features
// are standardised.
type Preprocessing struct {
	// Height and Width are the images' size in pixels, Channels their number of channels.
	Height, Width, Channels int
	// Mean and Std, one number per channel, apply to pixels scaled to 0..1; empty means 0 and 1.
	Mean, Std []float32
	// NHWC says that the extractor takes [batch, H, W, Ch]; otherwise it takes [batch, Ch, H, W].
	NHWC bool
	// Raw feeds the uint8 pixels unchanged.
	Raw bool
	// BGR says that the extractor takes the channels in the order blue, green, red; images stay
	// RGB. Mean and Std are in the extractor's order.
	BGR bool
	// Resize is how images of another shape are brought to this one beforehand: crop or pad; empty
	// means stretch.
	Resize string
	// Input and Output name the extractor's image input and features output; empty means the only
	// one. Features of rank 3 are averaged over the middle axis, those of rank 4 over the pixels.
	Input, Output string
	// FeatureMean and FeatureStd, dx numbers each, standardise the features; empty where the
	// extractor does so itself.
	FeatureMean, FeatureStd []float32
}

// ClientGraph fuses preprocessing, extractor and embedding into the one graph that a client runs:
//
//	images [n, H, W, Ch] uint8   raw pixels
//	labels [n] int64             classes 0 to C-1; an image of any other label is left out
//	points [s, dx+C], masses [s] the upload (k+C where the embedding's points have k coordinates)
//
// x and e are the manifests of extractor and embedding; a mismatch is an error. The result's
// manifest has kind client and names the extractor's digest. The extractor given is not changed.
// Steps: check sizes, find input and output, infer shapes, join preprocessing, extractor,
// labelling, embedding and upload. The manifest's provenance is the embedding's.
func ClientGraph(extractor *onnx.Model, x Manifest, embedding *onnx.Model, e Manifest,
	p Preprocessing) (m *onnx.Model, err error) {
	defer wrapped(&err, "fusing the client graph")
	if e.Kind != KindEmbedding || e.Dx < 1 || e.C < 2 || e.S < 1 {
		return nil,
			fmt.Errorf("%s has kind %q, dx %d, %d classes and s %d; want an embedding with all "+
				"three", e.name(), e.Kind, e.Dx, e.C, e.S)
	}
	if err := Match(x, e); err != nil {
		return nil, err
	}
	if p.Height < 1 || p.Width < 1 || p.Channels < 1 || p.Height > maxWidth || p.Width > maxWidth ||
		p.Channels > maxWidth {
		return nil, fmt.Errorf("images of %dx%d pixels with %d channels; allowed are 1 to %d",
			p.Height, p.Width, p.Channels, maxWidth)
	}
	extractor = onnx.Clone(extractor)
	if err := only(&p.Input, extractor.Graph.Inputs, "input"); err != nil {
		return nil, err
	}
	if err := only(&p.Output, extractor.Graph.Outputs, "output"); err != nil {
		return nil, err
	}
	if err := shape.Infer(extractor); err != nil {
		return nil, err
	}
	features, ok := extractor.Graph.Output(p.Output)
	if !ok {
		return nil, fmt.Errorf("the extractor has no output %q", p.Output)
	}
	features = narrow(extractor.Graph, features)
	p.Output, extractor.Graph.Outputs = features.Name, []onnx.ValueInfo{features}
	pass.RemoveUnused(extractor.Graph)
	pre, err := preprocessing(p)
	if err != nil {
		return nil, err
	}
	m, err = pass.Compose(pre, extractor, map[string]string{p.Input: "image"})
	if err != nil {
		return nil, err
	}
	labelled, err := labelling(p, len(features.Shape), e)
	if err != nil {
		return nil, err
	}
	if m, err = pass.Compose(m, labelled, map[string]string{"features": p.Output}); err != nil {
		return nil, err
	}
	m, err = pass.Compose(m, embedding, map[string]string{"points": "set", "weights": "present"})
	if err != nil {
		return nil, err
	}
	upload, err := uploading(e)
	if err != nil {
		return nil, err
	}
	// The embedding's own outputs have the names that the upload's need.
	out := onnx.Clone(m)
	points, masses := pass.Free(out.Graph, "embedded_points"), pass.Free(out.Graph, "embedded_masses")
	pass.Rename(out.Graph, map[string]string{"masses": masses, "compressed": points})
	if m, err = pass.Compose(out, upload, map[string]string{"batch_points": points,
		"batch_masses": masses}); err != nil {
		return nil, err
	}
	m.Graph.Name = "client"
	m.Producer, m.Metadata = "fmp", map[string]string{}
	f := Manifest{
		Kind: KindClient, Dx: e.Dx, C: e.C, D: e.D, S: e.S, K: e.K, ClassMeans: e.ClassMeans,
		Bytes: e.Bytes, Kappa: e.Kappa,
		KappaDeviation: e.KappaDeviation, Clip: e.Clip, Resize: p.Resize, Mean: p.Mean, Std: p.Std,
		Layout: "NHWC", Classes: e.Classes,
		Extractor: x.Digest, Licence: e.Licence, TrainingData: e.TrainingData, Command: e.Command,
		Seed: e.Seed, Config: e.Config,
	}
	f.Extractor = cmp.Or(f.Extractor, e.Extractor)
	if len(f.Classes) == 0 {
		f.Classes = x.Classes
	}
	return m, f.Write(m)
}

// uploading drops the leading axis of an embedding's outputs. Embeddings work on a batch of
// clients, which is one here.
func uploading(e Manifest) (*onnx.Model, error) {
	b := build.New("upload")
	z := b.Input("batch_points", onnx.Float32, 1, e.S, e.PointWidth()+e.C)
	w := b.Input("batch_masses", onnx.Float32, 1, e.S)
	b.Output("points", b.Squeeze(z, 0))
	b.Output("masses", b.Squeeze(w, 0))
	return b.Model()
}

// only sets an empty name to that of the only value in from; several values are an error.
func only(name *string, from []onnx.ValueInfo, what string) error {
	if *name != "" {
		return nil
	}
	if len(from) != 1 {
		return fmt.Errorf("the extractor has %d %ss; name the one that is meant", len(from), what)
	}
	*name = from[0].Name
	return nil
}

// preprocessing maps images, uint8 [n, H, W, Ch], to image, the extractor's input. Without Raw a
// pixel p becomes p/255, or (p/255 - mean)/std. The Gather of channels comes first, so that mean
// and std are in the extractor's order.
func preprocessing(p Preprocessing) (*onnx.Model, error) {
	if len(p.Mean) != len(p.Std) || (len(p.Mean) != 0 && len(p.Mean) != p.Channels) {
		return nil,
			fmt.Errorf(
				"%d means and %d standard deviations for %d channels; "+
					"give one of each a channel, or none", len(p.Mean), len(p.Std), p.Channels)
	}
	b := build.New("preprocessing")
	x := b.Input("images", onnx.Uint8, "n", p.Height, p.Width, p.Channels)
	if p.BGR {
		if p.Channels != 3 {
			return nil, fmt.Errorf("blue first is asked for, of images with %d channels; "+
				"it wants 3", p.Channels)
		}
		x = b.Op("Gather", []build.Ref{x, b.Axes(2, 1, 0)}, onnx.IntAttr("axis", 3))
	}
	if !p.Raw {
		x = b.Mul(b.Cast(x, onnx.Float32), b.F32(1.0/255))
		if len(p.Mean) > 0 {
			x = b.Div(b.Sub(x, b.Const(onnx.Vector(p.Mean...))), b.Const(onnx.Vector(p.Std...)))
		}
	} else if len(p.Mean) > 0 {
		return nil, fmt.Errorf("an extractor that takes uint8 pixels as they are has no mean and " +
			"standard deviation to be scaled by")
	}
	if !p.NHWC {
		x = b.Transpose(x, 0, 3, 1, 2)
	}
	b.Output("image", x)
	return b.Model()
}

// labelling maps features and labels to set, [1, n, dx+C], and present, [1, n], which is 0 for a
// label out of range. Labels become rows of 0 and 1, of which a label out of range has zeros alone:
// it adds no mass. A row of set is the features and these.
func labelling(p Preprocessing, rank int, e Manifest) (*onnx.Model, error) {
	if len(p.FeatureMean) != len(p.FeatureStd) ||
		(len(p.FeatureMean) != 0 && len(p.FeatureMean) != e.Dx) {
		return nil,
			fmt.Errorf(
				"%d means and %d standard deviations for %d features; "+
					"give one of each a feature, or none", len(p.FeatureMean),
				len(p.FeatureStd), e.Dx)
	}
	b := build.New("labelling")
	var h build.Ref
	switch {
	case rank == 2:
		h = b.Input("features", onnx.Float32, "n", e.Dx)
	case rank == 3:
		h = b.ReduceMean(b.Input("features", onnx.Float32, "n", "tokens", e.Dx), false, 1)
	case rank == 4 && p.NHWC:
		h = b.ReduceMean(b.Input("features", onnx.Float32, "n", "rows", "columns", e.Dx),
			false, 1, 2)
	case rank == 4:
		h = b.ReduceMean(b.Input("features", onnx.Float32, "n", e.Dx, "rows", "columns"),
			false, 2, 3)
	default:
		return nil, fmt.Errorf("features of rank %d; want 2, 3 or 4", rank)
	}
	if len(p.FeatureMean) > 0 {
		h = b.Div(b.Sub(h, b.Const(onnx.Vector(p.FeatureMean...))),
			b.Const(onnx.Vector(p.FeatureStd...)))
	}
	labels := b.Unsqueeze(b.Input("labels", onnx.Int64, "n"), 1)
	classes := make([]int64, e.C)
	for i := range classes {
		classes[i] = int64(i)
	}
	y := b.Cast(b.Op("Equal", []build.Ref{labels, b.Const(onnx.NewTensor(classes, 1, e.C))}),
		onnx.Float32)
	b.Output("set", b.Unsqueeze(b.Concat(1, h, y), 0))
	b.Output("present", b.Unsqueeze(b.ReduceSum(y, false, 1), 0))
	return b.Model()
}
