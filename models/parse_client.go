package models

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"

	"fmp/onnx"
	"fmp/onnx/check"
	"fmp/onnx/pass"
	"fmp/onnx/serde"
	"fmp/onnx/shape"
)

// ParsedClient is a fused client graph taken apart by somebody who does not trust its maker.
type ParsedClient struct {
	// Features maps images [n, H, W, Ch] uint8 to features [n, dx]: preprocessing, extractor, and
	// averages and standardisation of its output.
	Features *onnx.Model
	// Embedding maps set [1, n, dx+C], features with labels, and present [1, n], 1 for each, to
	// points [s, dx+C] (k+C where it has k) and masses [s]. That of class means is of two classes,
	// whatever C is: a mean is of the rows of its class alone.
	Embedding *onnx.Model
	// Extractor is the extractor's digest (docs/formats.md), Nodes and Numbers its numbers of nodes
	// and of constants' elements, and Bytes the size of these.
	Extractor      string
	Nodes, Numbers int
	Bytes          int64
	// Pixels is the number of numbers in an image.
	Pixels int
}

// ParseClient takes a client graph of the given manifest apart, and returns an error unless
//
//   - all but the extractor is, node by node, the output of [ClientGraph]: operators, attributes,
//     wiring, constants, and element types and shapes of the numbers that are a model's own,
//   - the extractor reads the preprocessed images and nothing else,
//   - the extractor's operations, their order and the shapes of their values follow from the
//     images' shape alone ([Steady]).
//
// The error names the node that differs. The extractor itself may compute anything: it is for the
// owner of the images to approve, by its digest.
func ParseClient(m *onnx.Model, f Manifest) (*ParsedClient, error) {
	t := &taker{model: m, manifest: f, maker: m.Graph.Makers()}
	if err := t.take(); err != nil {
		return nil, fmt.Errorf("the client graph is not one that fmp fuse makes: %w", err)
	}
	return t.parts()
}

// taker takes a client graph apart. Fields are set in the order of the steps of take.
type taker struct {
	model    *onnx.Model
	manifest Manifest
	maker    map[string]*onnx.Node
	images   onnx.ValueInfo
	p        Preprocessing

	image, raw string // the extractor's input, and its output
	// the features of the labelled points, and the values between these and the embedding
	features, set, counts string
	nodes                 []*onnx.Node // of the extractor

	means *onnx.Model // the embedding of class means, of two classes
}

// take finds all parts. Every node must belong to one part, so that none computes beside them.
func (t *taker) take() error {
	g, f := t.model.Graph, t.manifest
	if err := t.closed(); err != nil {
		return err
	}
	var pictured bool
	t.images, pictured = g.Input("images")
	labels, labelled := g.Input("labels")
	if !pictured || !labelled || len(g.Inputs) != 2 || t.images.DType != onnx.Uint8 ||
		len(t.images.Shape) != 4 || labels.DType != onnx.Int64 || len(labels.Shape) != 1 {
		return fmt.Errorf("its inputs are %v; want images (uint8, [n, H, W, Ch]) and labels "+
			"(int64, [n])", g.Inputs)
	}
	for i, d := range t.images.Shape[1:] {
		if !d.IsKnown() || d.Size < 1 || d.Size > maxWidth {
			return fmt.Errorf("axis %d of its images is %v; want a size of 1 to %d", i+1,
				d, maxWidth)
		}
	}
	t.p.Height, t.p.Width, t.p.Channels = t.images.Shape[1].Size, t.images.Shape[2].Size,
		t.images.Shape[3].Size
	if err := t.roomFor(f); err != nil {
		return err
	}
	seen := map[*onnx.Node]bool{}
	for _, step := range []func(map[*onnx.Node]bool) error{t.embedding, t.labelling,
		t.preprocessing, t.network} {
		if err := step(seen); err != nil {
			return err
		}
	}
	for _, n := range g.Nodes {
		if !seen[n] {
			return fmt.Errorf("%s belongs to none of preprocessing, extractor and embedding",
				n.Label())
		}
	}
	return nil
}

// closed returns an error where the graph has more inputs or outputs than its parts take, or gives
// a value twice.
func (t *taker) closed() error {
	g := t.model.Graph
	if len(t.model.Functions) > 0 {
		return fmt.Errorf("it defines functions of its own")
	}
	if len(g.Optional) > 0 {
		return fmt.Errorf("its constant %q is an input as well", g.Optional[0].Name)
	}
	if _, ok := g.Output("points"); len(g.Outputs) != 2 || !ok {
		return fmt.Errorf("its outputs are %v; want points and masses", g.Outputs)
	}
	return check.Model(t.model)
}

// roomFor returns an error where a manifest states sizes that the graph's own constants do not
// have: but for dx numbers, the graph built for comparison is no larger than the one given. It
// keeps a small file from asking for a large graph to be built. Of class means in k coordinates (0:
// none), and of s points of an embedding of width d, the graph must hold
//
//	C + dx k, and C^2 up to maxNamed classes
//	C + d^2 (1 + blocks) + s d + hidden d
//
// numbers at least.
func (t *taker) roomFor(f Manifest) error {
	have := 0.0
	for _, c := range t.model.Graph.Initializers {
		have += float64(c.Len())
	}
	dx, c, s, k := float64(f.Dx), float64(f.C), float64(f.S), float64(f.K)
	want := c
	switch {
	case f.Dx < 1 || f.C < 2 || f.S < 1 || f.Dx > maxWidth || f.C > maxWidth ||
		f.S > maxSize || f.K > f.Dx:
		return fmt.Errorf("its manifest says dx %d, %d classes, k %d and s %d; allowed are dx "+
			"and s from 1, classes from 2, to %d, and k to dx", f.Dx, f.C, f.K, f.S, maxWidth)
	case f.ClassMeans:
		if want += dx * k; f.C <= maxNamed {
			want += c * c
		}
	default:
		e, err := t.config()
		if err != nil {
			return err
		}
		d := float64(e.Dim)
		want += d*d*float64(1+e.Blocks) + s*d + d*float64(max(e.Hidden, 0))
	}
	if want > have {
		return fmt.Errorf("its manifest states sizes of %.0f numbers, and it has %.0f", want, have)
	}
	return nil
}

// config returns the configuration of an embedding of points, which the manifest has.
func (t *taker) config() (EmbeddingConfig, error) {
	var e EmbeddingConfig
	f := t.manifest
	if err := json.Unmarshal([]byte(f.Config), &e); err != nil {
		return e, fmt.Errorf("its manifest has no configuration of the embedding: %w", err)
	}
	if err := e.fill(); err != nil {
		return e, err
	}
	if e.Dx != f.Dx || e.C != f.C || e.Size != f.S || e.Dim > maxWidth || e.Hidden < 0 ||
		e.Hidden > maxWidth {
		return e, fmt.Errorf("its manifest says dx %d, %d classes and s %d, and the "+
			"configuration of its embedding dx %d, %d and %d, width %d and %d hidden units",
			f.Dx, f.C, f.S, e.Dx, e.C,
			e.Size, e.Dim, e.Hidden)
	}
	return e, nil
}

// embedding compares the part from set and present to the outputs. Of class means the embedding is
// built again for two classes, with the parameters that were found.
func (t *taker) embedding(seen map[*onnx.Node]bool) error {
	f := t.manifest
	// A private round clips coordinates of class means, and moments are of class means alone.
	switch {
	case f.Clip > 0 && (f.K < 1 || !f.ClassMeans):
		return fmt.Errorf("its manifest says that points are clipped, and not which coordinates " +
			"they have")
	case f.ClassMeans && f.S != f.C:
		return fmt.Errorf("its manifest says class means of %d classes and %d points", f.C, f.S)
	case f.Bytes > 0 && (f.Clip > 0 || !f.ClassMeans):
		return fmt.Errorf("its manifest says moments, and not of class means, or of a private " +
			"round")
	}
	e, err := t.embeddingOf(f.C)
	if err != nil {
		return err
	}
	up, err := uploading(f)
	if err != nil {
		return err
	}
	u, err := t.match(up, seen, [2]string{"points", "points"}, [2]string{"masses", "masses"})
	if err != nil {
		return err
	}
	if u, err = t.match(e, seen, [2]string{"compressed", u.bound["batch_points"]},
		[2]string{"masses", u.bound["batch_masses"]}); err != nil {
		return err
	}
	t.set, t.counts = u.bound["points"], u.bound["weights"]
	if !f.ClassMeans {
		return nil
	}
	if t.means, err = t.embeddingOf(2); err != nil {
		return err
	}
	for _, name := range Parameters(e) {
		if err := setParameter(t.means.Graph, name, t.model.Graph, u.bound[name]); err != nil {
			return err
		}
	}
	pass.Rename(t.means.Graph, map[string]string{"points": ValueSet, "weights": ValuePresent,
		ConjCompressed: "points"})
	return pass.Upgrade(t.means, int(min(t.model.Opset(), onnx.MaxOpset)))
}

// embeddingOf builds the embedding that the manifest tells of, for a number of classes, with
// numbers that do not matter. Parameters are compared by type and shape, so that any numbers serve.
func (t *taker) embeddingOf(classes int) (*onnx.Model, error) {
	if t.manifest.ClassMeans {
		return t.manifest.means(classes)
	}
	c, err := t.config()
	if err != nil {
		return nil, err
	}
	return NewEmbedding(c, 0)
}

// means builds an embedding of class means as embeddingOf does.
func (f Manifest) means(classes int) (*onnx.Model, error) {
	if f.Bytes == 0 {
		return classMeansEmbedding(ConjugateConfig{Dx: f.Dx, C: classes, K: f.K})
	}
	c := MomentsConfig{Dx: f.Dx, C: classes, Bytes: f.Bytes}
	if f.K > 0 {
		c.Basis = onnx.ZerosF32(f.Dx, f.K)
	}
	return MomentsEmbedding(c)
}

// OfTwoClasses returns an embedding of class means for two classes in place of its own: the mean of
// a class is of its rows alone, and takes no table of many classes.
func OfTwoClasses(m *onnx.Model) (*onnx.Model, error) {
	f, err := ReadManifest(m)
	if err != nil {
		return nil, err
	}
	e, err := f.means(2)
	if err != nil {
		return nil, err
	}
	for _, name := range Parameters(e) {
		if err := setParameter(e.Graph, name, m.Graph, name); err != nil {
			return nil, fmt.Errorf("%s: %w", f.name(), err)
		}
	}
	f.C, f.S, f.Classes = 2, 2, nil
	return e, f.Write(e)
}

// setParameter makes a value of another graph the parameter of a graph: an initializer, or the Cast
// of one that is stored as float16. g then shares the tensor with the other graph.
func setParameter(g *onnx.Graph, name string, of *onnx.Graph, value string) error {
	if t := of.Initializers[value]; t != nil {
		g.Initializers[name] = t
		return nil
	}
	cast := producer(of, value)
	if cast == nil || cast.Op != "Cast" || of.Initializers[cast.Input(0)] == nil {
		return fmt.Errorf("it has no parameter %q; want an embedding of class means", name)
	}
	delete(g.Initializers, name)
	n := *cast
	n.Name, n.Inputs, n.Outputs = name+"/cast", []string{name + "/half"}, []string{name}
	g.Initializers[n.Inputs[0]] = of.Initializers[cast.Inputs[0]]
	g.Nodes = append([]*onnx.Node{&n}, g.Nodes...)
	return nil
}

// classMeansEmbedding builds the client's part of a conjugate, open or private predictor, with
// numbers that do not matter: class means of w where k is above 0, else of phi. Class means need
// the centre and the radius alone, and in coordinates the map and the origin.
func classMeansEmbedding(c ConjugateConfig) (*onnx.Model, error) {
	values := map[string]*onnx.Tensor{ConjCentre: onnx.ZerosF32(c.Dx), ConjRadius: onnx.ZerosF32()}
	if c.K > 0 {
		values[ConjMap], values[ConjOrigin] = onnx.ZerosF32(c.Dx, c.K), onnx.ZerosF32(c.K)
	}
	g := newConjugate(c, "conjugate", values, slices.Collect(maps.Keys(values))...)
	g.upload(c.K > 0, g.phi)
	return g.b.Model()
}

// ClassMeansEmbedding returns the embedding of clients that send class means of dx features,
// softened about zero by a radius.
func ClassMeansEmbedding(dx, classes int, radius float32) (*onnx.Model, error) {
	m, err := classMeansEmbedding(ConjugateConfig{Dx: dx, C: classes})
	if err != nil {
		return nil, err
	}
	m.Graph.Initializers[ConjRadius] = onnx.Scalar(radius)
	f := Manifest{Kind: KindEmbedding, Dx: dx, C: classes, S: classes, ClassMeans: true}
	return m, f.Write(m)
}

// labelling compares the part from the extractor's output and the labels to set and present. A mean
// over axis 1 is that of tokens, over 1 and 2 that of pixels before channels, and over 2 and 3 that
// of pixels after them. Another is the extractor's own. Standardisation is recognised by its two
// constants of dx numbers. The labels must be the graph's own input, as otherwise another part
// could choose them.
func (t *taker) labelling(seen map[*onnx.Node]bool) error {
	at := t.set
	for range 2 { // what Output and Unsqueeze add
		if n := t.maker[at]; n != nil && (n.Op == "Identity" || n.Op == "Unsqueeze") {
			at = n.Input(0)
		}
	}
	join := t.maker[at]
	if join == nil || join.Op != "Concat" || len(join.Inputs) != 2 {
		return fmt.Errorf("the labelled points %q are not features beside labels", t.set)
	}
	t.features = join.Inputs[0]
	at = t.features
	if mean, std := t.affine(at, t.manifest.Dx); std != nil {
		t.p.FeatureMean, t.p.FeatureStd = mean, std
		at = t.maker[t.maker[at].Input(0)].Input(0)
	}
	p, rank := t.p, 2
	if n := t.maker[at]; n != nil && n.Op == "ReduceMean" {
		switch fmt.Sprint(t.axes(n)) {
		case "[1]":
			rank = 3
		case "[1 2]":
			rank, p.NHWC = 4, true
		case "[2 3]":
			rank, p.NHWC = 4, false
		}
	}
	want, err := labelling(p, rank, t.manifest)
	if err != nil {
		return err
	}
	u, err := t.match(want, seen, [2]string{"set", t.set}, [2]string{"present", t.counts})
	if err != nil {
		return err
	}
	if u.bound["labels"] != "labels" {
		return fmt.Errorf("labels are taken from %s; want the graph's input",
			u.describe(u.bound["labels"]))
	}
	t.raw = u.bound["features"]
	return nil
}

// axes returns the axes of a reduction that drops them, from an attribute or, from operator set 18
// on, an input. With anything beside these two the reduction is the extractor's own.
func (t *taker) axes(n *onnx.Node) []int64 {
	if keep, ok := n.Attr("keepdims"); !ok || keep.Int != 0 || len(n.Attrs)+len(n.Inputs) != 3 {
		return nil
	}
	if a, ok := n.Attr("axes"); ok {
		return a.Ints
	}
	if c := t.model.Graph.Initializers[n.Input(1)]; c != nil && c.DType == onnx.Int64 {
		return c.Data.([]int64)
	}
	return nil
}

// affine returns mean and std where a value is (x - mean)/std with constants of n numbers. A
// division by a constant of another shape is the extractor's own.
func (t *taker) affine(name string, n int) (mean, std []float32) {
	div := t.maker[name]
	if div == nil || div.Op != "Div" || t.maker[div.Input(0)] == nil ||
		t.maker[div.Input(0)].Op != "Sub" {
		return nil, nil
	}
	a, b := t.model.Graph.Initializers[t.maker[div.Input(0)].Input(1)],
		t.model.Graph.Initializers[div.Input(1)]
	for _, c := range []*onnx.Tensor{a, b} {
		if !isTensor(c, onnx.Float32, n) {
			return nil, nil
		}
	}
	return a.F32(), b.F32()
}

// preprocessing compares the chain of nodes from images to the Identity that ends it.
func (t *taker) preprocessing(seen map[*onnx.Node]bool) error {
	readers := map[string][]*onnx.Node{}
	for _, n := range t.model.Graph.Nodes {
		for _, in := range n.Inputs {
			readers[in] = append(readers[in], n)
		}
	}
	t.p.Raw, t.p.NHWC = true, true
	at := "images"
	for t.image == "" {
		if len(readers[at]) != 1 || len(readers[at][0].Outputs) != 1 {
			return fmt.Errorf("%q, before the extractor, is read by %d nodes; want one", at,
				len(readers[at]))
		}
		n := readers[at][0]
		at = n.Outputs[0]
		switch n.Op {
		case "Gather":
			t.p.BGR = true
		case "Cast":
			t.p.Raw = false
		case "Transpose":
			t.p.NHWC = false
		case "Div":
			t.p.Mean, t.p.Std = t.affine(at, t.p.Channels)
		case "Mul", "Sub":
		case "Identity":
			t.image = at
		default:
			return fmt.Errorf("%s is %s, among nodes that prepare images", n.Label(), operation(n))
		}
	}
	want, err := preprocessing(t.p)
	if err != nil {
		return err
	}
	u, err := t.match(want, seen, [2]string{"image", t.image})
	if err != nil {
		return err
	}
	if u.bound["images"] != "images" {
		return fmt.Errorf("images are taken from %s; want the graph's input",
			u.describe(u.bound["images"]))
	}
	return nil
}

// network finds the extractor's nodes, from its output back to the prepared images. It walks
// without recursion, so that chains of any length take no stack.
func (t *taker) network(seen map[*onnx.Node]bool) error {
	own := map[string]bool{t.image: true}
	todo := []string{t.raw}
	for len(todo) > 0 {
		name := todo[len(todo)-1]
		todo = todo[:len(todo)-1]
		n := t.maker[name]
		if n == nil || own[name] {
			continue
		}
		if own[name] = true; !slices.Contains(t.nodes, n) {
			t.nodes = append(t.nodes, n)
		}
		if seen[n] {
			return fmt.Errorf("its extractor reads what %s computes, a node of another part",
				n.Label())
		}
		todo = append(todo, n.Reads()...) // of branches too, which are refused by name
	}
	for _, n := range t.nodes {
		seen[n] = true
	}
	return nil
}

// match compares a part with the graph that is built for it, brought to the client graph's operator
// set, from pairs of outputs on. Nodes that match are in seen from then on.
func (t *taker) match(want *onnx.Model, seen map[*onnx.Node]bool,
	outputs ...[2]string) (*matching, error) {
	if err := pass.Upgrade(want, int(min(t.model.Opset(), onnx.MaxOpset))); err != nil {
		return nil, err
	}
	u := newMatching(want, t.model.Graph, t.maker)
	u.seen = seen
	for _, pair := range outputs {
		if err := u.value(pair[0], pair[1]); err != nil {
			return nil, err
		}
	}
	return u, nil
}

// part returns the part of the graph that computes some values from others, as it is decoded from
// its canonical form, and the sha256 of that.
func (t *taker) part(name string, in, out []onnx.ValueInfo) (*onnx.Model, string, error) {
	data, err := canonical(t.model, name, in, out)
	if err != nil {
		return nil, "", fmt.Errorf("client graph, %s: %w", name, err)
	}
	digest := DigestBytes(data) // the model takes the bytes over
	m, err := serde.ClosedOwn(data)
	return m, digest, err
}

// parts cuts the graph. Its results are decoded from canonical forms, that of the extractor from
// the bytes of its digest. An owner thus runs the very bytes that were hashed.
func (t *taker) parts() (*ParsedClient, error) {
	f, n := t.manifest, onnx.Symbolic("n")
	images, image := t.images, onnx.ValueInfo{Name: t.image, DType: onnx.Float32}
	images.Shape = append([]onnx.Dim{n}, images.Shape[1:]...)
	if image.Shape = images.Shape; !t.p.NHWC {
		image.Shape = []onnx.Dim{n, images.Shape[3], images.Shape[1], images.Shape[2]}
	}
	if t.p.Raw {
		image.DType = onnx.Uint8
	}
	raw, features := onnx.ValueInfo{Name: t.raw, DType: onnx.Float32},
		onnx.ValueInfo{Name: t.features, DType: onnx.Float32}
	m, _, err := t.part("preprocessing", []onnx.ValueInfo{images}, []onnx.ValueInfo{image})
	if err != nil {
		return nil, err
	}
	a := &ParsedClient{Pixels: t.p.Height * t.p.Width * t.p.Channels}
	extractor, digest, err := t.part("network", []onnx.ValueInfo{image}, []onnx.ValueInfo{raw})
	if err != nil {
		return nil, fmt.Errorf("its extractor: %w", err)
	}
	a.Extractor, a.Nodes = digest, len(extractor.Graph.Nodes)
	for _, c := range extractor.Graph.Initializers {
		a.Numbers, a.Bytes = a.Numbers+c.Len(), a.Bytes+c.DType.RawBytes(c.Len())
	}
	then := []*onnx.Model{extractor}
	if t.raw != t.features {
		last, _, err := t.part("standardisation", []onnx.ValueInfo{raw}, []onnx.ValueInfo{features})
		if err != nil {
			return nil, err
		}
		then = append(then, last)
	}
	pass.Rename(m.Graph, map[string]string{m.Graph.Inputs[0].Name: "images"})
	for _, next := range then {
		link := map[string]string{next.Graph.Inputs[0].Name: m.Graph.Outputs[0].Name}
		if m, err = pass.Compose(m, next, link); err != nil {
			return nil, fmt.Errorf("client graph, features: %w", err)
		}
	}
	m.Graph.Name = "features"
	pass.Rename(m.Graph, map[string]string{m.Graph.Outputs[0].Name: ValueFeatures})
	m.Graph.Outputs[0].Shape = []onnx.Dim{n, onnx.Known(f.Dx)}
	if a.Features, err = inferred(m); err != nil {
		return nil, err
	}
	if m = t.means; m == nil {
		one := onnx.Known(1)
		if m, _, err = t.part("embedding", []onnx.ValueInfo{
			{Name: t.set, DType: onnx.Float32, Shape: []onnx.Dim{one, n, onnx.Known(f.Dx + f.C)}},
			{Name: t.counts, DType: onnx.Float32, Shape: []onnx.Dim{one, n}},
		}, []onnx.ValueInfo{{Name: "points", DType: onnx.Float32},
			{Name: "masses", DType: onnx.Float32}}); err != nil {
			return nil, err
		}
		g := m.Graph
		pass.Rename(g, map[string]string{g.Inputs[0].Name: ValueSet, g.Inputs[1].Name: ValuePresent,
			g.Outputs[0].Name: "points", g.Outputs[1].Name: "masses"})
	}
	if a.Embedding, err = inferred(m); err != nil {
		return nil, err
	}
	return a, Steady(a.Features)
}

// inferred returns a part of a client graph with the shapes that follow, checked.
func inferred(m *onnx.Model) (*onnx.Model, error) {
	if err := shape.Infer(m); err != nil {
		return nil, fmt.Errorf("client graph, %s: %w", m.Graph.Name, err)
	}
	return m, check.Model(m)
}
