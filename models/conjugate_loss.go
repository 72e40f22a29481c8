package models

import (
	"fmt"
	"maps"
	"math"
	"slices"

	"fmp/onnx"
	"fmp/onnx/build"
)

// draws adds the points that a fit would take. Their classes alternate in a fixed order, so that
// labels add no noise; a class's weight is the exponential of its offset, which the fit turns back
// into the offset.
func (g conjugate) draws(p moments, mass, mean, mu build.Ref) {
	b := g.b
	noise := b.Input("noise", onnx.Float32, "S", "f", g.K)
	count := b.Slice(b.Op("Shape", []build.Ref{noise}), 0, 1, 2)
	turn := b.Op("Mod", []build.Ref{b.Op("Range",
		[]build.Ref{b.Const(onnx.Scalar[int64](0)), b.Squeeze(count, 0),
			b.Const(onnx.Scalar[int64](1))}), b.Const(onnx.Scalar(int64(g.C)))})
	around := b.Op("Gather", []build.Ref{b.MatMul(b.Squeeze(mu, 0), g.refs[ConjMetric]), turn},
		onnx.IntAttr("axis", 1))
	e := b.Mul(b.Exp(b.Mul(b.F32(-0.5), g.refs[ConjSample+ConjLogRho])), noise)
	labels := b.Op("Gather", []build.Ref{g.eye(), turn}, onnx.IntAttr("axis", 0))
	shape := b.Concat(0, b.Op("Shape", []build.Ref{noise}, onnx.IntAttr("end", 1)), count)
	all := b.Op("Expand", []build.Ref{labels, b.Concat(0, shape, b.Axes(g.C))})
	b.Output(ConjDrawn, b.Concat(1, b.Concat(2, b.Add(around, e), all),
		b.Concat(2, b.Sub(around, e), all)))
	share := b.Mul(b.F32(float32(g.C)), b.Softmax(b.Squeeze(g.offset(ConjSample, p), 0), 0))
	half := b.Op("Expand", []build.Ref{b.Op("Gather", []build.Ref{share, turn},
		onnx.IntAttr("axis", 0)), shape})
	b.Output(ConjDrawnWeights, b.Concat(1, half, half))
	b.Output(ConjContext, b.Squeeze(b.Concat(2, b.MatMul(mean, g.refs[ConjMetric]),
		b.Unsqueeze(g.eye(), 0)), 0))
	b.Output(ConjContextMasses, b.Squeeze(mass, 0))
}

// ConjugateLoss configures the graph of the training loss.
type ConjugateLoss struct {
	ConjugateConfig
	// Values are the initial parameters.
	Values map[string]*onnx.Tensor
	// Set is the prefix, such as [ConjSample], of the scalars that the heads use.
	Set string
	// Learn lists the scalars of the set that are learned, by their names without the prefix.
	Learn []string
	// Moves lists the matrices that are learned too, each with a factor: the parameter is its
	// initial value plus the factor times a learned matrix of its shape that starts at zero, so
	// that one learning rate of Adam suits all.
	Moves map[string]float64
	// Samples is S, Joint the number J of points in a batch of the joint score.
	Samples, Joint int
}

// ConjMove is the prefix of the name of the learned matrix that is added to a parameter (see
// [ConjugateLoss].Moves).
const ConjMove = "move/"

// Model builds the loss
//
//	-log mean_s p_s(y|x), averaged over points,
//	- 1/J log mean_s prod_{j of a batch} p_s(y_j|x_j), averaged over batches,
//	+ 0.01 (o1^2 + o2^2)
//
// with inputs rows [T, n, dx] and labels [T, n, C] of the clients of T tasks, targets [T, h, dx],
// target_labels [T, h, C], batches [T, h, B] (how often a point is in a batch) and latent [T, S, C,
// k]; outputs loss, nll and joint. It returns the names of the parameters to be learned.
func (l ConjugateLoss) Model() (*onnx.Model, []string, error) {
	if err := l.checkValues(l.Values); err != nil {
		return nil, nil, err
	}
	if l.Samples < 1 || l.Joint < 1 {
		return nil, nil, fmt.Errorf("loss of the conjugate predictor with %d samples and batches "+
			"of %d points; allowed are numbers from 1", l.Samples, l.Joint)
	}
	b := build.New("conjugate-loss")
	g := conjugate{ConjugateConfig: l.ConjugateConfig, b: b, refs: map[string]build.Ref{}}
	var params []string
	for _, name := range slices.Sorted(maps.Keys(l.shapes())) {
		t := l.Values[name]
		if by := l.Moves[name]; by != 0 {
			params = append(params, ConjMove+name)
			g.refs[name] = b.Add(b.Const(t),
				b.Mul(b.F32(float32(by)), b.Param(ConjMove+name, onnx.ZerosF32(t.Shape...))))
			continue
		}
		g.refs[name] = b.Param(name, t)
	}
	for _, name := range l.Learn {
		params = append(params, l.Set+name)
	}
	rows, labels := b.Input("rows", onnx.Float32, "tasks", "n", l.Dx),
		b.Input("labels", onnx.Float32, "tasks", "n", l.C)
	targets, truth := b.Input("targets", onnx.Float32, "tasks", "h", l.Dx),
		b.Input("target_labels", onnx.Float32, "tasks", "h", l.C)
	batches := b.Input("batches", onnx.Float32, "tasks", "h", "B")
	latent := b.Input("latent", onnx.Float32, "tasks", l.Samples, l.C, l.K)
	mass, mean := g.classMeans(g.phi(rows), labels)
	p := g.posterior(l.Set, mass, g.coordinates(mean))
	w, bias := g.head(l.Set, p, g.sample(l.Set, p, latent))
	z := g.logits(b.MatMul(g.coordinates(g.phi(targets)), g.refs[ConjMetric]), w, bias)
	g.scores(l.Set, l.Samples, l.Joint, z, truth, batches)
	m, err := b.Model()
	return m, params, err
}

// scores adds the outputs nll, joint and loss, which includes a penalty on o1 and o2 of a set, for
// logits z [T, S, h, C]. lp is the log-probability of the true class, and nll and joint are in nats
// a point.
func (g conjugate) scores(set string, samples, joint int, z, truth, batches build.Ref) {
	b, o1, o2 := g.b, g.refs[set+ConjO1], g.refs[set+ConjO2]
	// [T, S, h]
	lp := b.ReduceSum(b.Mul(b.Op("LogSoftmax", []build.Ref{z}, onnx.IntAttr("axis", 3)),
		b.Unsqueeze(truth, 1)), false, 3)
	score := func(lp build.Ref, points int) build.Ref {
		mix := b.Op("ReduceLogSumExp", []build.Ref{lp}, onnx.IntsAttr("axes", 1),
			onnx.IntAttr("keepdims", 0))
		return b.Mul(b.F32(-1/float32(points)),
			b.Sub(b.ReduceMean(mix, false, 0, 1), b.F32(float32(math.Log(float64(samples))))))
	}
	nll, all := score(lp, 1), score(b.MatMul(lp, batches), joint)
	b.Output("loss", b.Add(b.Add(nll, all), b.Mul(b.F32(0.01),
		b.Add(b.Mul(o1, o1), b.Mul(o2, o2)))))
	b.Output("nll", nll)
	b.Output("joint", all)
}
