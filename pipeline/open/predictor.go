package open

import (
	"cmp"
	"fmt"
	"math"

	"gonum.org/v1/gonum/mat"

	"fmp/models"
	"fmp/onnx"
	"fmp/onnx/dense"
	"fmp/pipeline/internal/moment"
)

// Scalars are the learned scalars, in the order of [models.OpenScalars].
type Scalars [16]float64

// Indices of [Scalars]. LogNu0, LogKappa, LogitDelta and LogitGamma determine the metric, on which
// the eigenvectors depend.
const (
	LogNu0 = iota
	LogitDelta
	LogEta
	LogB
	LogK0
	LogitGamma
	LogitS
	R0
	R1
	R2
	R3
	LogTau
	O1
	O2
	LogKappa
	R4
)

// Start holds the initial values of training.
var Start = Scalars{LogNu0: math.Log(150), LogKappa: math.Log(20), R0: -0.5, R1: -0.45}

// Moments are the moments of a corpus's softened features, with k coordinates per row.
type Moments struct {
	// M0 is the mean of the class means [k], W the within-class covariance and B the covariance of
	// the class means, [k, k].
	M0   []float64
	W, B *mat.SymDense
}

// Predictor is the open form of the predictor: coordinates and moments of a corpus, and the
// scalars.
type Predictor struct {
	Coordinates
	Moments
	Scalars Scalars
	// Widening is h of the corpus.
	Widening float64
	// Scale is the share of the fit's own covariance that posterior samples have (sample.Refit); 0
	// in models made before it was learned.
	Scale float64
	// Deviation is the standard deviation of the log of the best temperature of tasks of classes
	// left out of the corpus; 0 in models made before it was learned.
	Deviation float64
	// Ends are how far intervals reach; zero in models made before they were learned.
	Ends models.SizedEnds
	// Known holds the class means of the corpus [classes, k].
	Known *mat.Dense
}

// defaultDeviation is the Deviation of models made before it was learned: .05 to .14 on four
// corpora.
const defaultDeviation = 0.1

// TemperatureSpread returns Deviation, or its default.
func (p *Predictor) TemperatureSpread() float64 { return cmp.Or(p.Deviation, defaultDeviation) }

// MaxCoordinates is the default maximum number of coordinates: with more, the eigendecomposition of
// a task, whose time grows with their cube, would take seconds.
const MaxCoordinates = 128

// Widen estimates h from the classes of the corpus, given the coordinates of all rows
// (widening.go).
func (p *Predictor) Widen(rows []float64, labels []int) error {
	k := p.K()
	g, err := p.geometry(&p.Scalars, &Stats{Scatter: mat.NewSymDense(k, nil)})
	if err != nil {
		return err
	}
	classes, _ := p.Known.Dims()
	own := make([]Scatter, classes)
	for y := range own {
		own[y] = Scatter{mat.NewSymDense(k, nil), -1}
	}
	d := mat.NewVecDense(k, nil)
	for i, y := range labels {
		for j, v := range p.Known.RawRowView(y) {
			d.SetVec(j, rows[i*k+j]-v)
		}
		own[y].Of.SymRankOne(own[y].Of, 1, d)
		own[y].DF++
	}
	p.Widening = 1
	if h, weight := g.widening(own); weight > 0 {
		p.Widening = h
	}
	return nil
}

// floor is the lower bound of the eigenvalues of B, relative to the largest: the class means of few
// classes do not span all directions.
const floor = 1e-4

// worst bounds the condition number of the within-class covariance.
const worst = 1e6

// fewRows is the weight of the mean variance in the within-class covariance if a corpus has fewer
// than two rows per coordinate: W is 0.8 W + 0.2 tr(W)/k I then.
const fewRows = 0.2

// NewMoments computes the moments of n rows of k numbers (row-major) with labels 0 to c-1. It needs
// at least two classes, and two rows of every class. known are the class means [c, k].
func NewMoments(rows []float64, k int, labels []int,
	c int) (m Moments, known *mat.Dense, err error) {
	if k < 1 || len(rows) == 0 || len(rows) != len(labels)*k {
		return m, nil, fmt.Errorf("moments: %d numbers for %d rows of %d; want whole rows",
			len(rows), len(labels), k)
	}
	of, err := moment.Compute(mat.NewDense(len(labels), k, rows), labels, c, 2)
	if err != nil {
		return m, nil, err
	}
	m.M0, m.W = of.Centre, of.Within
	// too few rows for the covariance to have full rank, or to derive a metric from it
	if len(labels)-c < 2*k {
		m.W = moment.Shrunk(m.W, fewRows)
	}
	// A feature that is the same in all images, as a dead unit's, has no variance; float32 keeps no
	// covariance that is singular.
	if c, ok := factor(m.W); !ok || c.Cond() > worst {
		if m.W, err = raise(m.W, 1/worst); err != nil {
			return m, nil, fmt.Errorf("moments: covariance within classes: %w", err)
		}
	}
	if m.B, err = raise(of.Between(m.W), floor); err != nil {
		return m, nil, fmt.Errorf("moments: covariance of the class means: %w", err)
	}
	return m, of.Means, nil
}

// raise raises the eigenvalues of a to at least the given share of the largest: with a = Q diag(v)
// Q' it returns Q diag(max(v_j, share max v)) Q'. Without an eigenvalue above 0 it is an error.
func raise(a *mat.SymDense, share float64) (*mat.SymDense, error) {
	values, q, ok := moment.Eigen(a)
	if !ok {
		return nil, fmt.Errorf("its eigenvalues did not converge; check that features are finite " +
			"and vary")
	}
	top := values[len(values)-1]
	if !(top > 0) {
		return nil, fmt.Errorf("its largest eigenvalue is %v; the class means do not differ by "+
			"more than noise", top)
	}
	k := a.SymmetricDim()
	for j := range k {
		s := math.Sqrt(math.Max(values[j], share*top))
		for i := range k {
			q.Set(i, j, q.At(i, j)*s)
		}
	}
	out := mat.NewSymDense(k, nil)
	out.SymOuterK(1, q)
	return out, nil
}

// FromModel reads an open predictor from its model (models.NewOpen).
func FromModel(m *onnx.Model) (*Predictor, error) {
	v, err := models.OpenValues(m)
	if err != nil {
		return nil, err
	}
	k := len(v.Origin)
	p := &Predictor{
		Coordinates: Coordinates{Centre: dense.As[float64](v.Centre), Radius: float64(v.Radius)},
		Moments: Moments{M0: dense.As[float64](v.Origin),
			W: moment.Symmetric(moment.Rows(v.Within, k)),
			B: moment.Symmetric(moment.Rows(v.Between, k))},
		Known: mat.NewDense(len(v.Known)/k, k, dense.As[float64](v.Known)),
	}
	if v.Projection != nil {
		p.Projection = mat.NewDense(len(v.Centre), k, dense.As[float64](v.Projection))
	}
	for i, s := range v.Scalars {
		p.Scalars[i] = float64(s)
	}
	p.Widening, p.Scale, p.Deviation, p.Ends = float64(v.Widening), float64(v.Scale),
		float64(v.Deviation), v.Ends
	if _, ok := factor(p.W); !ok {
		return nil, fmt.Errorf("open predictor: its covariance within classes is not positive " +
			"definite; make the model anew with fmp train open")
	}
	return p, nil
}

// Model returns the predictor as a model (models.NewOpen).
func (p *Predictor) Model() (*onnx.Model, error) {
	v := models.OpenParameters{Centre: dense.As[float32](p.Centre), Radius: float32(p.Radius),
		Origin: dense.As[float32](p.M0), Within: dense.As[float32](full(p.W)),
		Between: dense.As[float32](full(p.B)), Known: dense.As[float32](p.Known.RawMatrix().Data)}
	if p.Projection != nil {
		v.Projection = dense.As[float32](p.Projection.RawMatrix().Data)
	}
	for i, s := range p.Scalars {
		v.Scalars[i] = float32(s)
	}
	v.Widening, v.Scale, v.Deviation, v.Ends = float32(p.Widening), float32(p.Scale),
		float32(p.Deviation), p.Ends
	return models.NewOpen(v)
}

func full(a *mat.SymDense) []float64 { return mat.DenseCopyOf(a).RawMatrix().Data }

func factor(a mat.Symmetric) (*mat.Cholesky, bool) {
	var c mat.Cholesky
	ok := c.Factorize(a)
	return &c, ok
}
