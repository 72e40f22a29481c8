package models

import (
	"fmt"
	"maps"
	"slices"

	"fmp/onnx"
	"fmp/onnx/build"
	"fmp/onnx/pass"
)

// AnySize returns a classifier that takes images of any height and width, all images of a call of
// one size:
//
//	images [n, height, width, Ch] uint8
//
// and resizes them in the graph to the size of the given classifier, which its manifest then
// states, the way that its manifest says. The resized pixels are those of the programs, which
// resize images themselves ([FixedSize]): both compute with whole numbers.
//
// Resizing is R_y X R_xᵀ of each channel X. Row i of R has the weights k(|c_i - j| min(1, 1/s)) of
// pixels j, over their sum, with s = from / to, c_i = (i + 1/2) s - 1/2 and k the cubic convolution
// of Keys (1981) with a = -1/2 (Catmull-Rom): widened where it shrinks (s > 1), which is
// antialiasing. Weights are rounded to whole numbers of 2^-14 to 2^-16 that sum to one, pixels
// between the axes to 1/64, pixels at the end to levels. Operators of opset 17 suffice, as Resize
// with antialiasing asks for 18. The classifier is not changed.
func AnySize(classifier *onnx.Model) (m *onnx.Model, err error) {
	defer wrapped(&err, "taking images of any size")
	f, err := ReadManifest(classifier)
	if err != nil {
		return nil, err
	}
	in, ok := classifier.Graph.Input("images")
	if f.Kind != KindClassifier || !ok || in.DType != onnx.Uint8 || len(in.Shape) != 4 {
		return nil, fmt.Errorf("the model is %q with inputs %v: want a classifier of images",
			f.Kind, classifier.Graph.Inputs)
	}
	for _, d := range in.Shape[1:] {
		if !d.IsKnown() {
			return nil, fmt.Errorf("its images are %v: want a fixed height, width and number of "+
				"channels", in)
		}
	}
	f.Height, f.Width = in.Shape[1].Size, in.Shape[2].Size
	first, err := resizing(f, in.Shape[3].Size)
	if err != nil {
		return nil, err
	}
	behind := onnx.Clone(classifier)
	fitted := pass.Free(behind.Graph, "fitted")
	pass.Rename(behind.Graph, map[string]string{"images": fitted})
	m, err = pass.Compose(first, behind, map[string]string{fitted: resizedImages})
	if err != nil {
		return nil, err
	}
	pass.RemoveUnused(m.Graph) // constants of other ways to resize, of which the ONNX Runtime warns
	succeed(m, classifier)
	document(m.Graph, f)
	m.Doc = m.Graph.Doc
	return m, f.Write(m)
}

// succeed gives a model the name, the metadata and the outputs' doc strings of the one that it was
// made from.
func succeed(m, before *onnx.Model) {
	m.Graph.Name, m.Producer = before.Graph.Name, before.Producer
	m.Metadata = maps.Clone(before.Metadata) // the manifest that is written changes it
	keepDocs(m.Graph, before.Graph)
}

// keepDocs gives outputs the doc strings that they had in a graph before.
func keepDocs(g, before *onnx.Graph) {
	for i, v := range g.Outputs {
		if was, ok := before.Output(v.Name); ok {
			g.Outputs[i].Doc = was.Doc
		}
	}
}

// resizedImages names the images of one size within a classifier of images of any size.
const resizedImages = "resized"

// FixedSize returns a classifier of [AnySize] without its resizing: images [n, H, W, Ch] are those
// of the size that its manifest states. Other models are returned as they are. The node that gives
// the resized images is taken out, and those before it go as unread.
func FixedSize(classifier *onnx.Model, f Manifest) (*onnx.Model, error) {
	if f.Height == 0 {
		return classifier, nil
	}
	m := onnx.Clone(classifier)
	g := m.Graph
	at := slices.IndexFunc(g.Nodes,
		func(n *onnx.Node) bool { return len(n.Outputs) == 1 && n.Outputs[0] == resizedImages })
	in, ok := g.Input("images")
	if at < 0 || !ok || len(g.Inputs) != 1 || len(in.Shape) != 4 {
		return nil, fmt.Errorf("the manifest states images of %d x %d pixels, and no value %q of "+
			"the model holds them: it is none of fmp pool --any-size",
			f.Height, f.Width, resizedImages)
	}
	g.Nodes = slices.Delete(g.Nodes, at, at+1)
	g.Values = nil
	in.Name, in.Shape = resizedImages,
		[]onnx.Dim{in.Shape[0], onnx.Known(f.Height), onnx.Known(f.Width), in.Shape[3]}
	g.Inputs = []onnx.ValueInfo{in}
	pass.RemoveUnused(g)
	pass.Rename(g, map[string]string{resizedImages: "images"})
	return m, nil
}

// resizing maps images, uint8 [n, height, width, channels], to resized, uint8 [n, H, W, channels].
// [n, H, W Ch] is one matrix a picture for the rows: channels lie beside columns.
func resizing(f Manifest, channels int) (*onnx.Model, error) {
	b := build.New("resizing")
	images := b.Input("images", onnx.Uint8, "n", "height", "width", channels)
	size := b.Op("Shape", []build.Ref{images})
	r := resize{b: b, one: b.Axes(1), two: b.Axes(2)}
	rows, columns := r.part(b.Slice(size, 0, 1, 2), b.Slice(size, 0, 2, 3), f)
	// Whole numbers in float64: every runtime has the same pixels, in whatever order it adds.
	down, unit := r.weights(rows)
	x := b.MatMul(down, b.Cast(b.Reshape(images, 0, 0, -1), onnx.Float64))
	x = r.rounded(b.Div(x, b.Div(unit, r.number(resizeFraction))))
	x = b.Transpose(b.Reshape(x, 0, 0, -1, channels), 0, 3, 1, 2)
	across, unit := r.weights(columns)
	x = b.MatMul(x, b.Transpose(across, 1, 0))
	x = r.rounded(b.Div(x, b.Mul(unit, r.number(resizeFraction))))
	x = b.Op("Min", []build.Ref{b.Relu(x), r.number(255)})
	b.Output(resizedImages, b.Cast(b.Transpose(x, 0, 2, 3, 1), onnx.Uint8))
	return b.Model()
}
