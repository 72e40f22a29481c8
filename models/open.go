package models

import (
	"fmt"
	"maps"
	"math"
	"slices"

	"fmp/onnx"
	"fmp/onnx/build"
)

// Names of the open predictor's parameters, initializers of its graph. The coordinates use the
// first three.
const (
	OpenCentre     = "c"          // [dx], mean of the corpus
	OpenRadius     = "r"          // [], mean distance of the corpus from c
	OpenProjection = "projection" // [dx, k], where k < dx
	OpenOrigin     = "m0"         // [k], mean of the corpus's class means
	OpenWithin     = "within"     // [k, k], covariance within classes
	OpenBetween    = "between"    // [k, k], covariance of class means
	OpenKnown      = "known"      // [K, k], the corpus's class means
	OpenWidening   = "widening"   // [], h of the intervals
	// [], share of the fit's own covariance that posterior samples have; missing in older models,
	// where it is 0
	OpenScale = "scale"
	// [], deviation of the log temperature between tasks of the corpus; missing in older models,
	// where it is 0
	OpenDeviation = "deviation"
	// [4], [SizedEnds] of intervals: down and up of few images, then of many; missing in older
	// models
	OpenEnds = "ends"
)

// OpenScalars are the learned scalars, in order, each an initializer [].
var OpenScalars = []string{"log_nu0", "logit_delta", "log_eta", "log_b", "log_k0", "logit_gamma",
	"logit_s", "r0", "r1", "r2", "r3", "log_tau", "o1", "o2", "log_kappa", "r4"}

// OpenParameters are the parameters of an open predictor: the posterior of classes that the corpus
// lacks (pipeline/open). Matrices are row-major; the shapes are given with the names above.
type OpenParameters struct {
	Centre     []float32
	Radius     float32
	Projection []float32 // nil where coordinates are the softened features themselves
	Origin     []float32
	Within     []float32
	Between    []float32
	Known      []float32
	Widening   float32
	Scale      float32
	Deviation  float32
	Ends       SizedEnds
	Scalars    [16]float32
}

// learned returns the numbers that older models have not.
func (p *OpenParameters) learned() map[string]float32 {
	return map[string]float32{OpenScale: p.Scale, OpenDeviation: p.Deviation}
}

// tensors returns the parameters by name. Its errors name sizes that do not fit, numbers that are
// not finite, and scales out of bounds. Parameters of 0 that older models have not are left out.
// Slices are not copied.
func (p *OpenParameters) tensors() (map[string]*onnx.Tensor, error) {
	dx, k := len(p.Centre), len(p.Origin)
	if dx < 1 || dx > maxWidth || k < 1 || k > dx {
		return nil, fmt.Errorf("open predictor of %d features and %d coordinates; allowed are 1 "+
			"to %d features and as many coordinates at most", dx, k, maxWidth)
	}
	if len(p.Within) != k*k || len(p.Between) != k*k || len(p.Known) < 2*k || len(p.Known)%k != 0 ||
		(k < dx && len(p.Projection) != dx*k) || (k == dx && p.Projection != nil) {
		return nil, fmt.Errorf("open predictor of %d features and %d coordinates: moments of %d "+
			"and %d numbers, class means of %d and a projection of %d do not fit",
			dx, k, len(p.Within),
			len(p.Between), len(p.Known), len(p.Projection))
	}
	out := map[string]*onnx.Tensor{
		OpenCentre: onnx.NewTensor(p.Centre, dx), OpenRadius: onnx.NewTensor([]float32{p.Radius}),
		OpenOrigin: onnx.NewTensor(p.Origin, k),
		OpenWithin: onnx.NewTensor(p.Within, k, k), OpenBetween: onnx.NewTensor(p.Between, k, k),
		OpenKnown: onnx.NewTensor(p.Known, len(p.Known)/k, k),
	}
	if k < dx {
		out[OpenProjection] = onnx.NewTensor(p.Projection, dx, k)
	}
	out[OpenWidening] = onnx.NewTensor([]float32{p.Widening})
	for name, v := range p.learned() {
		if v != 0 {
			out[name] = onnx.NewTensor([]float32{v})
		}
	}
	if err := p.addEnds(out); err != nil {
		return nil, err
	}
	for i, name := range OpenScalars {
		out[name] = onnx.NewTensor([]float32{p.Scalars[i]})
	}
	if err := finite("open predictor", out); err != nil {
		return nil, err
	}
	if !(p.Radius > 0) || !(p.Widening > 0) {
		return nil, fmt.Errorf("open predictor: %s is %v and %s is %v; want numbers above 0",
			OpenRadius, p.Radius, OpenWidening, p.Widening)
	}
	for name, v := range p.learned() {
		if !(v >= 0 && v <= maxScale) {
			return nil, fmt.Errorf("open predictor: %s is %v; allowed are 0 to %d", name,
				v, maxScale)
		}
	}
	return out, nil
}

// addEnds adds the ends of intervals where they were learned. Ends of zero mean that none were
// learned.
func (p *OpenParameters) addEnds(to map[string]*onnx.Tensor) error {
	if p.Ends == (SizedEnds{}) {
		return nil
	}
	ends := []float32{p.Ends.Few.Down, p.Ends.Few.Up, p.Ends.Many.Down, p.Ends.Many.Up}
	if !(slices.Min(ends) > 0 && slices.Max(ends) <= maxScale) {
		return fmt.Errorf("open predictor: %s are %v; allowed are numbers above 0 and up to %d",
			OpenEnds, ends, maxScale)
	}
	to[OpenEnds] = onnx.NewTensor(ends, len(ends))
	return nil
}

// maxScale bounds OpenScale, where 1 is the posterior of the fit, OpenDeviation, and the ends of
// intervals.
const maxScale = 16

// NewOpen builds an open predictor. Its graph maps features [n, dx] to the coordinates [n, k] of
// clients' class means and of the heads, phi(h) = (h - c)/sqrt(1 + |h - c|^2/r^2), projected where
// k < dx; the other parameters are read by the server's linear algebra. Sizes are checked before
// the graph is built. m0, the moments and the class means are initializers that no node reads.
func NewOpen(p OpenParameters) (*onnx.Model, error) {
	values, err := p.tensors()
	if err != nil {
		return nil, err
	}
	b := build.New("open")
	refs := map[string]build.Ref{}
	for _, name := range slices.Sorted(maps.Keys(values)) {
		refs[name] = b.Param(name, values[name])
	}
	phi := softened(b, b.Input("features", onnx.Float32, "n", len(p.Centre)), refs[OpenCentre],
		refs[OpenRadius])
	if p.Projection != nil {
		phi = b.MatMul(phi, refs[OpenProjection])
	}
	b.Output("coordinates", phi)
	return Manifest{Kind: KindOpen, Dx: len(p.Centre), C: len(p.Known) / len(p.Origin)}.of(b)
}

// OpenEmbedding returns the client's part of an open predictor as an embedding, which [ClientGraph]
// and pipeline/compress take: class means of phi, dx numbers, for as many classes as the clients
// have; one slot per class, of mass 0 where a client has no point of it. A conjugate predictor
// behind the same extractor and corpus reads the same points ([ConjugateEmbedding]). The classes'
// names are dropped, as clients have classes of their own. m is not changed.
func OpenEmbedding(m *onnx.Model, classes int) (*onnx.Model, error) {
	p, err := OpenValues(m)
	if err != nil {
		return nil, err
	}
	f, err := ReadManifest(m)
	if err != nil {
		return nil, err
	}
	c := ConjugateConfig{Dx: len(p.Centre), C: classes, K: len(p.Centre)}
	if err := c.check(); err != nil {
		return nil, err
	}
	g := newConjugate(c, "embedding", map[string]*onnx.Tensor{
		ConjCentre: onnx.NewTensor(p.Centre, c.Dx), ConjRadius: onnx.Scalar(p.Radius)},
		ConjCentre, ConjRadius)
	g.upload(false, g.phi)
	f.Kind, f.C, f.S, f.K, f.ClassMeans, f.Classes = KindEmbedding, classes, classes, 0, true, nil
	return f.of(g.b)
}

// SameSoftening reports whether two models soften features with the same centre and radius
// (initializers [ConjCentre] and [ConjRadius]), within the difference that a few images left out of
// one of two corpora make (2% of the radius). It returns true where either model lacks them. Heads
// of one would read class means of the other as shifted features. With centres c and d, and radii
// r and q, it asks for
//
//	|c - d| <= 0.02 r,   |r - q| <= 0.02 r
func SameSoftening(a, b *onnx.Model) bool {
	of := func(m *onnx.Model) (c []float32, r float64) {
		x, y := m.Graph.Initializers[ConjCentre], m.Graph.Initializers[ConjRadius]
		if x == nil || y == nil || x.DType != onnx.Float32 || y.DType != onnx.Float32 ||
			y.Len() != 1 {
			return nil, 0
		}
		return x.F32(), float64(y.F32()[0])
	}
	x, r := of(a)
	y, q := of(b)
	if len(x) != len(y) || x == nil {
		return true
	}
	off := 0.0
	for i, v := range x {
		off += math.Pow(float64(v-y[i]), 2)
	}
	const most = 0.02
	return math.Sqrt(off) <= most*r && math.Abs(r-q) <= most*r
}

// SofteningOf returns the parameters by which a graph of class means of dx features softens these,
// [ConjCentre] and [ConjRadius], and in k coordinates (0: none) [ConjMap] and [ConjOrigin]: those
// of a client graph, an embedding or a predictor. Numbers that are stored in float16 are widened.
// The tensors are the model's own, unless they were widened.
func SofteningOf(m *onnx.Model, dx, k int) (map[string]*onnx.Tensor, error) {
	shapes, names := ConjugateConfig{Dx: dx, K: k}.shapes(), []string{ConjCentre, ConjRadius}
	if k > 0 {
		names = append(names, ConjMap, ConjOrigin)
	}
	values := map[string]*onnx.Tensor{}
	for _, name := range names {
		t := m.Graph.Initializers[name]
		if cast := producer(m.Graph, name); t == nil && cast != nil && cast.Op == "Cast" {
			if stored := m.Graph.Initializers[cast.Input(0)]; stored != nil &&
				stored.DType == onnx.Float16 {
				wide := make([]float32, stored.Len())
				for i := range wide {
					wide[i] = float32(stored.At(i))
				}
				t = onnx.NewTensor(wide, stored.Shape...)
			}
		}
		if !isTensor(t, onnx.Float32, shapes[name]...) {
			return nil, fmt.Errorf("%q, by which features of %d numbers are softened, is %v; "+
				"want %v numbers", name, dx, t, shapes[name])
		}
		values[name] = t
	}
	return values, nil
}

// OpenValues returns the parameters of an open predictor's model. The first parameter that is
// missing or of another rank makes the error. Sizes and bounds are checked as for a new model.
// Slices are the model's own: callers do not change them.
func OpenValues(m *onnx.Model) (OpenParameters, error) {
	var p OpenParameters
	_, err := manifestOf(m, KindOpen)
	if err != nil {
		return p, err
	}
	get := func(name string, rank int) []float32 {
		t := m.Graph.Initializers[name]
		if t == nil || t.DType != onnx.Float32 || len(t.Shape) != rank {
			if err == nil {
				err = fmt.Errorf("open predictor: parameter %q is %v; want float32 of rank %d: "+
					"make the model anew with fmp train open", name, t, rank)
			}
			return nil
		}
		return t.F32()
	}
	p.Centre, p.Origin, p.Within, p.Between, p.Known = get(OpenCentre, 1), get(OpenOrigin, 1),
		get(OpenWithin, 2), get(OpenBetween, 2),
		get(OpenKnown, 2)
	one := func(name string) (v float32) {
		if t := get(name, 0); len(t) == 1 {
			v = t[0]
		}
		return v
	}
	p.Radius, p.Widening = one(OpenRadius), one(OpenWidening)
	for name, to := range map[string]*float32{OpenScale: &p.Scale, OpenDeviation: &p.Deviation} {
		if m.Graph.Initializers[name] != nil {
			*to = one(name)
		}
	}
	if m.Graph.Initializers[OpenEnds] != nil {
		if v := get(OpenEnds, 1); len(v) == 4 {
			p.Ends = SizedEnds{Ends{v[0], v[1]}, Ends{v[2], v[3]}}
		} else if err == nil {
			err = fmt.Errorf(
				"open predictor: %s has %d numbers; want 4: make the model anew with fmp train "+
					"open", OpenEnds, len(v))
		}
	}
	if m.Graph.Initializers[OpenProjection] != nil {
		p.Projection = get(OpenProjection, 2)
	}
	for i, name := range OpenScalars {
		p.Scalars[i] = one(name)
	}
	if err != nil {
		return p, err
	}
	_, err = p.tensors()
	return p, err
}
