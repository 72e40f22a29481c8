package models

import (
	"fmt"
	"slices"

	"fmp/onnx"
	"fmp/onnx/build"
	"fmp/onnx/check"
	"fmp/onnx/pass"
	"fmp/onnx/shape"
)

// UncalibratedOutput is an output of a classifier with a [Scaling]: uncalibrated [n, C] float32,
// its probabilities before it. Prediction sets are of these, as labelled images chose the scaling.
const UncalibratedOutput = "uncalibrated"

// SamplesOutput is the output samples [n, S, C] float32 of a classifier, the probabilities of each
// head.
const SamplesOutput = "samples"

// Kinds of [Scaling].
const (
	// Temperature divides all logits by one number (Guo et al. 2017, arXiv:1706.04599).
	Temperature = "temperature"
	// Vector has a factor and an offset for each class (vector scaling, the same source).
	Vector = "vector"
	// Matrix mixes the classes besides (structured matrix scaling; Berta, Bach and Jordan 2025,
	// arXiv:2511.03685).
	Matrix = "matrix"
)

// Scaling maps the log-probabilities z [C] of each head to logits
//
//	u_c = Factor_c z_c + Offset_c + sum_j z_j Mixing_jc
//
// whose softmax are the head's probabilities from then on. A factor of 1, no offset and no mixing
// leave probabilities as they are.
type Scaling struct {
	Kind   string    `json:"kind"`
	Factor []float32 `json:"factor"` // one for all classes, or one a class; 1/T of a temperature T
	// Offset [C] and Mixing [C, C] are nil where there are none.
	Offset []float32 `json:"offset,omitempty"`
	Mixing []float32 `json:"mixing,omitempty"`
}

// OriginScaling is the calibration of a classifier's probabilities, part of its [Origin].
type OriginScaling struct {
	Scaling
	// Images is the number of labelled images that it was fitted to, From the name of their source,
	// Folds the number of parts for each of which the others alone were fitted to make the scores.
	Images int    `json:"images"`
	From   string `json:"from"`
	Folds  int    `json:"folds"`
	// Before and After are scores on the images, After by folds.
	Before ScalingScores `json:"before"`
	After  ScalingScores `json:"after"`
}

// ScalingScores are scores of stated probabilities: the negative log-likelihood in nats, the
// expected calibration error, its mean where the probabilities are right, and the mean confidence
// less the accuracy. Perfect is above 0, as the images are finite in number.
type ScalingScores struct {
	NLL     float64 `json:"nll"`
	ECE     float64 `json:"ece"`
	Perfect float64 `json:"perfect_ece"`
	Gap     float64 `json:"gap"`
}

// check returns an error unless a scaling fits the number of classes.
func (s *Scaling) check(classes int) error {
	if n := len(s.Factor); n != 1 && n != classes || s.Offset != nil && len(s.Offset) != classes ||
		s.Mixing != nil && len(s.Mixing) != classes*classes {
		return fmt.Errorf("%d factors, %d offsets and %d numbers of a matrix for %d classes", n,
			len(s.Offset), len(s.Mixing), classes)
	}
	for _, v := range slices.Concat(s.Factor, s.Offset, s.Mixing) {
		// v - v is 0 for finite numbers alone.
		if v-v != 0 {
			return fmt.Errorf("a number is %v: want finite ones", v)
		}
	}
	return nil
}

// scaled names a value that a scaling adds.
func scaled(name string) string { return "calibration/" + name }

// producer returns the node that computes a value, nil for none. It takes O(nodes) steps.
func producer(g *onnx.Graph, value string) *onnx.Node {
	at := slices.IndexFunc(g.Nodes,
		func(n *onnx.Node) bool { return slices.Contains(n.Outputs, value) })
	if at < 0 {
		return nil
	}
	return g.Nodes[at]
}

// headsOf returns the nodes from the heads' softmax to the mean over heads that a classifier's
// probabilities are. The path leads through a few nodes of operators that fmp pool writes, and
// another is an error.
func headsOf(g *onnx.Graph, probabilities string) ([]*onnx.Node, error) {
	var path []*onnx.Node
	for value := probabilities; ; {
		n := producer(g, value)
		if n == nil || len(n.Inputs) == 0 || len(path) > 8 {
			break
		}
		path = append(path, n)
		switch value = n.Inputs[0]; n.Op {
		case "Identity", "Transpose", "ReduceMean":
			continue
		case "Softmax":
			if a, ok := n.Attr("axis"); ok && a.Int != 2 && a.Int != -1 {
				return nil, fmt.Errorf("its heads are not along axis 2")
			}
			slices.Reverse(path)
			return path, nil
		}
		break
	}
	return nil, fmt.Errorf("its %s are no mean of heads' softmaxes, as fmp pool writes them",
		probabilities)
}

// WithSamples returns a classifier whose output samples has the probabilities of each head before
// any scaling. The model given is not changed.
func WithSamples(classifier *onnx.Model) (m *onnx.Model, err error) {
	defer wrapped(&err, "reading the heads")
	m = onnx.Clone(classifier)
	from := "probabilities"
	if _, ok := m.Graph.Output(UncalibratedOutput); ok {
		from = UncalibratedOutput
	}
	path, err := headsOf(m.Graph, from)
	if err != nil {
		return nil, err
	}
	dropOutputs(m.Graph, SamplesOutput)
	mean := slices.IndexFunc(path, func(n *onnx.Node) bool { return n.Op == "ReduceMean" })
	if mean < 0 {
		return nil, fmt.Errorf("there is no mean over them")
	}
	pass.Rename(m.Graph, map[string]string{SamplesOutput: scaled("old")})
	m.Graph.Nodes = append(m.Graph.Nodes,
		&onnx.Node{Name: SamplesOutput, Op: "Identity", Inputs: []string{path[mean].Inputs[0]},
			Outputs: []string{SamplesOutput}})
	m.Graph.Outputs = append(m.Graph.Outputs,
		onnx.ValueInfo{Name: SamplesOutput, DType: onnx.Float32,
			Shape: []onnx.Dim{onnx.Symbolic("n"), onnx.Symbolic("s"), onnx.Symbolic("c")}})
	m.Graph.Values = nil
	return m, shape.Infer(m)
}

// dropOutputs takes outputs of some names off a graph.
func dropOutputs(g *onnx.Graph, names ...string) {
	g.Outputs = slices.DeleteFunc(g.Outputs,
		func(v onnx.ValueInfo) bool { return slices.Contains(names, v.Name) })
}

// WithScaling returns a classifier whose heads state the probabilities that a scaling makes of
// theirs, in place of an earlier scaling, and without prediction sets: [WithSets] adds them again.
// The ends of intervals, where the classifier has them, move with the probability's log-odds: their
// distances from it are multiplied by Factor. The classifier itself is not changed. An earlier
// scaling is taken out first, so that scalings do not add up.
func WithScaling(classifier *onnx.Model, s OriginScaling) (m *onnx.Model, err error) {
	defer wrapped(&err, "calibrating probabilities")
	f, err := ReadManifest(classifier)
	if err != nil {
		return nil, err
	}
	if f.Kind != KindClassifier {
		return nil, fmt.Errorf("the model is %q: want a classifier", f.Kind)
	}
	if err := s.check(f.C); err != nil {
		return nil, err
	}
	origin, err := ReadOrigin(f)
	if err != nil {
		return nil, err
	}
	m = onnx.Clone(classifier)
	g := m.Graph
	g.Values = nil
	if err := unscale(g); err != nil {
		return nil, err
	}
	path, err := headsOf(g, "probabilities")
	if err != nil {
		return nil, err
	}
	// The heads as they were go on to uncalibrated.
	to := map[string]string{"probabilities": UncalibratedOutput}
	for _, n := range path {
		was := *n
		was.Name, was.Inputs, was.Outputs = scaled(n.Name), slices.Clone(n.Inputs),
			slices.Clone(n.Outputs)
		for i, v := range was.Inputs {
			if v, ok := to[v]; ok {
				was.Inputs[i] = v
			}
		}
		for i, v := range was.Outputs {
			if to[v] == "" {
				to[v] = scaled(v)
			}
			was.Outputs[i] = to[v]
		}
		g.Nodes = append(g.Nodes, &was)
	}
	logits, err := s.nodes(g, path[0].Inputs[0], f.C)
	if err != nil {
		return nil, err
	}
	path[0].Inputs[0] = logits
	if err := s.intervals(g); err != nil {
		return nil, err
	}
	g.Outputs = append(g.Outputs, onnx.ValueInfo{Name: UncalibratedOutput, DType: onnx.Float32,
		Shape: []onnx.Dim{onnx.Symbolic("n"), onnx.Known(f.C)},
		Doc:   "Probabilities before they were calibrated, which prediction sets are of."})
	if err := pass.SortNodes(g); err != nil {
		return nil, err
	}
	before := onnx.Graph{Outputs: slices.Clone(g.Outputs)}
	if err := shape.Infer(m); err != nil {
		return nil, err
	}
	keepDocs(g, &before)
	if err := check.Model(m); err != nil {
		return nil, err
	}
	origin.Scaling, origin.Sets = &s, nil
	return m, f.writeOrigin(m, origin)
}

// Descends records in a classifier's provenance the digest of the classifier that it was made from.
func Descends(m *onnx.Model, digest string) error {
	f, err := ReadManifest(m)
	if err != nil {
		return err
	}
	o, err := ReadOrigin(f)
	if err != nil {
		return err
	}
	o.Of = append(o.Of, digest)
	return f.writeOrigin(m, o)
}

// unscale takes an earlier scaling and prediction sets out of a classifier's graph. Their nodes go,
// as nothing reads them.
func unscale(g *onnx.Graph) error {
	if _, ok := g.Output(UncalibratedOutput); ok {
		now, err := headsOf(g, "probabilities")
		if err != nil {
			return err
		}
		was, err := headsOf(g, UncalibratedOutput)
		if err != nil {
			return err
		}
		now[0].Inputs[0] = was[0].Inputs[0]
		if n := lacking(g); n != nil && n.Inputs[1] == scaled(lack) {
			n.Inputs[1] = computed(g, scaled(lack)).Inputs[0]
		}
		for _, end := range []string{"low", "high"} {
			if n := producer(g, scaled(end)); n != nil {
				g.Nodes = slices.DeleteFunc(g.Nodes,
					func(n *onnx.Node) bool { return slices.Contains(n.Outputs, end) })
				pass.Rename(g, map[string]string{scaled(end): end})
			}
		}
	}
	dropOutputs(g, SetOutput, UncalibratedOutput)
	pass.RemoveUnused(g)
	return nil
}

// nodes adds the nodes from logits to scaled ones, and returns the name of these. logits are [n, S,
// C]. Vectors and matrices need log-probabilities, as logits are known but for a constant.
func (s *Scaling) nodes(g *onnx.Graph, logits string, classes int) (string, error) {
	root := build.New("calibration")
	b := root.Scope("heads")
	x := root.Input("logits", onnx.Float32, "a", "b", classes)
	// One factor for all classes gives the same softmax of logits as they are.
	if s.Kind != Temperature {
		x = b.Op("LogSoftmax", []build.Ref{x}, onnx.IntAttr("axis", 2))
	}
	y := b.Mul(x, b.Param("factor", onnx.NewTensor(slices.Clone(s.Factor), len(s.Factor))))
	if s.Mixing != nil {
		y = b.Add(y, b.MatMul(x, b.Param("mixing",
			onnx.NewTensor(slices.Clone(s.Mixing), classes, classes))))
	}
	if s.Offset != nil {
		y = b.Add(y, b.Param("offset", onnx.NewTensor(slices.Clone(s.Offset), classes)))
	}
	root.Output("scaled", y)
	return scaled("scaled"), insert(g, root, map[string]string{"logits": logits})
}

// beyond names the variance that heads lack (ClassifierParts.Beyond), and lack that of scaled ones.
const beyond, lack = "beyond", "lack"

// computed is the producer of a value, or that of the one which it is a copy of.
func computed(g *onnx.Graph, value string) *onnx.Node {
	n := producer(g, value)
	if n != nil && n.Op == "Identity" {
		return producer(g, n.Inputs[0])
	}
	return n
}

// lacking returns the node that adds to the variance of log-odds over heads the one that they lack;
// nil where none does.
func lacking(g *onnx.Graph) *onnx.Node {
	n := computed(g, "low")
	for _, step := range []struct {
		op    string
		input int
	}{{"Sigmoid", 0}, {"Sub", 1}, {"Mul", 1}, {"Sqrt", 0}} {
		if n == nil || n.Op != step.op {
			return nil
		}
		n = producer(g, n.Inputs[step.input])
	}
	if n == nil || n.Op != "Add" {
		return nil
	}
	return n
}

// intervals moves the ends of intervals with the probabilities. Their distances in log-odds are
// multiplied by Factor: those of heads are so already, and the variance that heads lack is by its
// square. With l the log-odds of a probability before, and l' after, an end e becomes
//
//	l' + Factor (e - l)
func (s *Scaling) intervals(g *onnx.Graph) error {
	if n := lacking(g); n != nil && moves(g, n.Inputs[0], 0) {
		root := build.New("calibration")
		b := root.Scope(lack)
		factor := b.Param("factor", onnx.NewTensor(slices.Clone(s.Factor), len(s.Factor)))
		root.Output(lack, b.Mul(root.Input("variance", onnx.Float32, "c"), b.Mul(factor, factor)))
		if err := insert(g, root, map[string]string{"variance": n.Inputs[1]}); err != nil {
			return err
		}
		n.Inputs[1] = scaled(lack)
	}
	for _, end := range []string{"low", "high"} {
		if n := producer(g, end); n == nil || len(n.Inputs) == 0 {
			continue
		} else if moves(g, n.Inputs[0], 0) {
			// ends of the heads' own spread are made of their scaled probabilities already
			continue
		}
		outputs := slices.Clone(g.Outputs)
		pass.Rename(g, map[string]string{end: scaled(end)})
		g.Outputs = outputs
		root := build.New("calibration")
		b := root.Scope(end)
		was, before, now := root.Input("was", onnx.Float32, "n", "c"),
			root.Input("before", onnx.Float32, "n", "c"),
			root.Input("now", onnx.Float32, "n", "c")
		off := b.Mul(b.Sub(logOdds(b, was), logOdds(b, before)),
			b.Param("factor", onnx.NewTensor(slices.Clone(s.Factor), len(s.Factor))))
		root.Output(end, b.Op("Sigmoid", []build.Ref{b.Add(logOdds(b, now), off)}))
		from := map[string]string{"was": scaled(end), "before": UncalibratedOutput,
			"now": "probabilities", end: end}
		if err := insert(g, root, from); err != nil {
			return err
		}
	}
	return nil
}

// moves reports whether a value is computed from scaled logits. Sixteen nodes back are looked at,
// more than lie between heads and ends. It bounds the recursion too.
func moves(g *onnx.Graph, value string, depth int) bool {
	n := producer(g, value)
	if value == scaled("scaled") || n == nil || depth > 16 {
		return value == scaled("scaled")
	}
	return slices.ContainsFunc(n.Inputs, func(v string) bool { return moves(g, v, depth+1) })
}

// insert adds the nodes of a builder to a graph under names of the scaling's own, its inputs
// replaced.
func insert(g *onnx.Graph, b *build.Builder, inputs map[string]string) error {
	m, err := b.Model()
	if err != nil {
		return err
	}
	for v := range m.Graph.Initializers {
		if _, taken := g.Input(scaled(v)); taken {
			return fmt.Errorf("its graph has an input %q already", scaled(v))
		}
	}
	graft(g, m.Graph, inputs, scaled)
	g.Nodes = append(g.Nodes, m.Graph.Nodes...)
	return nil
}
