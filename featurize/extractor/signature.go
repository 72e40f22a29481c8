package extractor

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"fmp/onnx"
	"fmp/onnx/pass"
)

// maxInputSide bounds the height and width that a model may ask for. Activations of one such image
// take about a gigabyte: see pixelMemory.
const maxInputSide = 2048

// signature is how a model takes images and returns features.
type signature struct {
	input  string
	dtype  onnx.DType // Float32 or Uint8
	nhwc   bool
	batch  int  // 0 where it is open
	h, w   int  // 0 where they are open
	open   bool // the model leaves both h and w open
	ch     int
	output string
	why    string // how output was chosen, for the notes
}

// read determines a model's signature for images of dataCh channels.
func read(m *onnx.Model, o Options, dataCh int) (signature, error) {
	s, err := readInput(m, o, dataCh)
	if err == nil {
		s.output, s.why, err = featureValue(m.Graph, o.Output)
	}
	return s, err
}

// channelsLast reports whether an input of four dimensions has its channels last, by a layout, in
// any case of its letters, or by the dimension of 1 or 3. Where both are, or neither is, the order
// is open. The dimension tells only where exactly one of axes 1 and 3 may be the channels. in.Shape
// has four dimensions.
func channelsLast(in onnx.ValueInfo, layout string) (bool, error) {
	switch strings.ToUpper(layout) {
	case "NCHW":
		return false, nil
	case "NHWC":
		return true, nil
	}
	isCh := func(d onnx.Dim) bool { return d.Size == 1 || d.Size == 3 }
	first, last := isCh(in.Shape[1]), isCh(in.Shape[3])
	if !first && !last && in.Shape[1].IsKnown() && in.Shape[3].IsKnown() {
		return false, fmt.Errorf("input %q is %s, of which no axis has 1 or 3 channels; export "+
			"the model for grey or RGB images", in.Name, showShape(in.Shape))
	}
	if first == last {
		return false, fmt.Errorf("input %q is %s, which may be NCHW or NHWC; say which with "+
			"extractor.layout", in.Name, showShape(in.Shape))
	}
	return last, nil
}

// readInput is read without the choice of the features. A side that the model leaves open is that
// of the options, and channels are the data's. All sizes are checked against their bounds.
func readInput(m *onnx.Model, o Options, dataCh int) (signature, error) {
	var s signature
	in, err := imageInput(m, o.Input)
	if err != nil {
		return s, err
	}
	s.input, s.dtype = in.Name, in.DType
	if in.DType != onnx.Float32 && in.DType != onnx.Uint8 {
		return s, fmt.Errorf("input %q takes %v; float32, float16 and uint8 are supported: "+
			"export the model with one of them", in.Name, in.DType)
	}
	if in.Shape != nil && len(in.Shape) != 4 {
		return s, fmt.Errorf("input %q is %s; an image model takes 4 dimensions, "+
			"[batch, channels, height, width] or [batch, height, width, channels]", in.Name,
			showShape(in.Shape))
	}
	if in.Shape == nil {
		// A shape that is not stated is four open dimensions.
		in.Shape = onnx.Shape("", "", "", "")
	}
	if s.nhwc, err = channelsLast(in, o.Layout); err != nil {
		return s, err
	}
	ch, h, w := in.Shape[1], in.Shape[2], in.Shape[3]
	if s.nhwc {
		h, w, ch = in.Shape[1], in.Shape[2], in.Shape[3]
	}
	s.ch = dataCh
	// A model for grey images takes colour ones too, and the other way round: pixels are converted.
	if ch.IsKnown() {
		s.ch = ch.Size
	}
	if s.ch != 1 && s.ch != 3 {
		return s, fmt.Errorf("input %q is %s with %d channels; 1 and 3 are supported (is "+
			"extractor.layout right?)", in.Name, showShape(in.Shape), s.ch)
	}
	s.open = !h.IsKnown() && !w.IsKnown()
	for _, d := range []struct {
		dim onnx.Dim
		to  *int
	}{{h, &s.h}, {w, &s.w}} {
		// A side that the model fixes counts; to ask for another is an error.
		*d.to = o.Side
		if d.dim.IsKnown() {
			if o.Side != 0 && o.Side != d.dim.Size {
				return s, fmt.Errorf("input %q is %s and a side of %d was asked for; "+
					"leave side out", in.Name, showShape(in.Shape), o.Side)
			}
			*d.to = d.dim.Size
		}
		if d.dim.Size == 0 || *d.to > maxInputSide {
			return s, fmt.Errorf("input %q is %s; allowed are 1 to %d pixels a side", in.Name,
				showShape(in.Shape), maxInputSide)
		}
	}
	if b := in.Shape[0]; b.IsKnown() {
		if b.Size < 1 || b.Size > 65536 {
			return s, fmt.Errorf("input %q has a batch of %d; allowed are 1 to 65536",
				in.Name, b.Size)
		}
		s.batch = b.Size
	}
	return s, nil
}

// imageInput returns the model's only input; name is the one that was asked for, "" for any.
// Weights that exporters list among the inputs are not among these: they have initializers.
func imageInput(m *onnx.Model, name string) (onnx.ValueInfo, error) {
	ins := m.Graph.Inputs
	if len(ins) == 0 {
		return onnx.ValueInfo{}, fmt.Errorf("the model has no input")
	}
	if len(ins) > 1 {
		return onnx.ValueInfo{}, fmt.Errorf("the model has %d inputs (%s); an extractor takes "+
			"images alone: export it with the others fixed", len(ins), names(ins))
	}
	if name != "" && name != ins[0].Name {
		return onnx.ValueInfo{},
			fmt.Errorf("the model has no input %q; its input is %q", name, ins[0].Name)
	}
	return ins[0], nil
}

// Names that exporters commonly use for features.
var featureNames = []string{"features", "feature", "embedding", "embeddings", "image_features",
	"image_embeds", "representation"}

// featureValue chooses the value that holds the features. In order: the one asked for; an output
// with one of featureNames; for a single output that a last linear layer computes (a classifier's
// scores, perhaps through a softmax), the input of that layer; a single output as it is. Anything
// else is an error that lists the candidates. why ends the sentence "features are VALUE, ...". A
// node's name is tried where no value has the name.
func featureValue(g *onnx.Graph, asked string) (value, why string, err error) {
	maker := g.Makers()
	if asked != "" {
		if _, ok := g.Output(asked); ok || maker[asked] != nil {
			return asked, "as asked for", nil
		}
		if at := slices.IndexFunc(g.Nodes,
			func(n *onnx.Node) bool { return n.Name == asked && len(n.Outputs) > 0 }); at >= 0 {
			return g.Nodes[at].Outputs[0], "what the layer " + asked + " gives", nil
		}
		return "", "", fmt.Errorf("extractor.output is %q and the model has no such value; its "+
			"outputs are %s", asked, names(g.Outputs))
	}
	if len(g.Outputs) == 0 {
		return "", "", fmt.Errorf("the model has no output")
	}
	var found []string
	for _, o := range g.Outputs {
		if slices.Contains(featureNames, strings.ToLower(o.Name)) {
			found = append(found, o.Name)
		}
	}
	// Several names that fit are as unclear as none.
	if len(found) == 1 {
		return found[0], "by its name", nil
	}
	if len(g.Outputs) > 1 {
		cand := make([]string, len(g.Outputs))
		for i, o := range g.Outputs {
			cand[i] = fmt.Sprintf("%s %v%s", o.Name, o.DType, showShape(o.Shape))
		}
		return "", "", fmt.Errorf("the model has %d outputs, and it is not clear which holds the "+
			"features; name one with extractor.output: %s", len(g.Outputs),
			strings.Join(cand, ", "))
	}
	out := g.Outputs[0].Name
	if head := classifierHead(g, maker, out); head != "" {
		return head, fmt.Sprintf("the input of the last linear layer, whose output %q is taken "+
			"for class scores (extractor.output %s would take that itself)", out, out), nil
	}
	return out, "the only output", nil
}

// classifierHead returns the input of the last linear layer where one computes out: Gemm, or MatMul
// with Add, by constant weights, followed by nothing but softmax, sigmoid, reshaping and the like.
// Otherwise it returns "". It walks from out back along values that are scores still. A softmax
// behind the layer does not hide it. Of a head of two layers the last alone is cut off.
func classifierHead(g *onnx.Graph, maker map[string]*onnx.Node, out string) string {
	// No path has more steps than there are nodes, so that a cycle ends too.
	for range len(g.Nodes) {
		n := maker[out]
		switch {
		case n == nil:
			return ""
		case isBytes(n):
			out = n.Input(0)
			continue
		case n.Domain != "":
			return ""
		}
		switch n.Op {
		case "Identity", "Softmax", "LogSoftmax", "Sigmoid", "Cast", "Flatten",
			"Reshape", "Squeeze":
			out = n.Input(0)
		case "Add":
			// The bias is constant, and the product is not. Either operand may be the product, as
			// Add commutes.
			a, b := isConstant(g, maker, n.Input(0)), isConstant(g, maker, n.Input(1))
			switch {
			case a && !b:
				out = n.Input(1)
			case b && !a:
				out = n.Input(0)
			default:
				return ""
			}
			m := maker[out]
			// They are a DequantizeLinear and the QuantizeLinear before it.
			for range 2 { // a product that is stored in bytes
				if m != nil && isBytes(m) {
					m = maker[m.Input(0)]
				}
			}
			if m == nil || m.Op != "MatMul" {
				return ""
			}
		case "Gemm", "MatMul":
			if isConstant(g, maker, n.Input(1)) && !isConstant(g, maker, n.Input(0)) {
				// the layer reads the images themselves: there are no features
				if maker[n.Input(0)] == nil {
					return ""
				}
				return n.Input(0)
			}
			return ""
		default:
			return ""
		}
	}
	return ""
}

// isBytes reports whether a node rounds numbers to bytes or reads these. onnxruntime writes both
// in its own domain where they are of 16 bits.
func isBytes(n *onnx.Node) bool {
	return (n.Domain == "" || n.Domain == "com.microsoft") &&
		(n.Op == "QuantizeLinear" || n.Op == "DequantizeLinear")
}

// isConstant reports whether a value is an initializer, a Constant, or made from one by operators
// that keep its elements or round them. A chain of more than eight operators counts as none. The
// bound ends a cycle, too.
func isConstant(g *onnx.Graph, maker map[string]*onnx.Node, v string) bool {
	for range 8 {
		if _, ok := g.Initializers[v]; ok {
			return true
		}
		n := maker[v]
		if n == nil {
			return false
		}
		switch {
		case n.Op == "Constant":
			return true
		case isBytes(n) || n.Op == "Cast" || n.Op == "Transpose" || n.Op == "Identity":
			v = n.Input(0)
		default:
			return false
		}
	}
	return false
}

// prune returns the model with value as its only output, without the nodes and weights that value
// does not need. Weights that a caller may replace are constants. The original is not changed. The
// copy shares nodes and tensors with the original.
func prune(m *onnx.Model, value string) *onnx.Model {
	// Type and shape are those that the file states, where it does.
	out := onnx.ValueInfo{Name: value}
	if v, ok := m.Graph.Output(value); ok {
		out = v
	}
	for _, v := range m.Graph.Values {
		if v.Name == value {
			out = v
		}
	}
	c, g := *m, *m.Graph
	g.Outputs, g.Values = []onnx.ValueInfo{out}, nil
	g.Initializers, g.Optional = maps.Clone(g.Initializers), nil
	pass.RemoveUnused(&g)
	c.Graph = &g
	return &c
}

// names lists values for an error.
func names(vs []onnx.ValueInfo) string {
	out := make([]string, len(vs))
	for i, v := range vs {
		out[i] = v.Name
	}
	return strings.Join(out, ", ")
}

// showShape writes a shape for an error: open dimensions by their name, or as ?.
func showShape(shape []onnx.Dim) string {
	if shape == nil {
		return "[?]"
	}
	out := make([]string, len(shape))
	for i, d := range shape {
		switch {
		case d.IsKnown():
			out[i] = fmt.Sprint(d.Size)
		case d.Symbol != "":
			out[i] = d.Symbol
		default:
			out[i] = "?"
		}
	}
	return "[" + strings.Join(out, ", ") + "]"
}
