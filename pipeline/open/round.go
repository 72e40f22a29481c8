package open

import (
	"fmt"
	"math"

	"gonum.org/v1/gonum/mat"

	"fmp/models"
	"fmp/onnx"
	"fmp/onnx/dense"
	"fmp/pipeline/internal/moment"
)

// least is the smallest prior variance of a coordinate, in units of the within-class variance.
const least = 1e-6

// Round returns the conjugate predictor (models.NewConjugate) that the open form becomes once the
// uploads are in, and the posterior. Its coordinates are u = E^-1 (phi - mt), in which W is I and
// the prior is diagonal; its metric A = E'GE = LL', prior b lambda and temperature are estimated
// from the uploads. It reads class means of softened features. The posterior goes along, as fits
// and intervals read its Penalty, Doubt, Scale and Ends. With P the projection, or I, the map is V
// = P E^-T. The origin is mt E^-T, and u = phi V - origin.
// Numbers are computed in float64 and stored in float32. The errors are those of the posterior, a
// singular metric, and a graph that cannot be made.
func (p *Predictor) Round(s *Stats) (*onnx.Model, *Posterior, error) {
	q, err := p.Posterior(s)
	if err != nil {
		return nil, nil, err
	}
	dx, k := len(p.Centre), p.K()
	turn := mat.DenseCopyOf(q.g.inv.T()) // u = (phi - mt) E^-T
	var origin mat.Dense
	origin.Mul(mat.NewDense(1, k, q.Centre), turn)
	if p.Projection != nil {
		turn = new(mat.Dense)
		turn.Mul(p.Projection, q.g.inv.T())
	}
	chol, ok := factor(moment.Symmetric(q.g.inner)) // A = LL'
	if !ok {
		return nil, nil, fmt.Errorf("the metric of the round is singular; check the uploads for " +
			"numbers out of range")
	}
	var root mat.TriDense
	chol.LTo(&root)
	log := make([]float64, k)
	for j, v := range q.g.lambda {
		// The floor keeps the logarithm finite where the estimated variance is 0.
		log[j] = math.Log(math.Max(q.B*v, least))
	}
	values := map[string]*onnx.Tensor{
		models.ConjCentre:    onnx.NewTensor(dense.As[float32](p.Centre), dx),
		models.ConjRadius:    onnx.Scalar(float32(p.Radius)),
		models.ConjMap:       moment.Tensor(turn),
		models.ConjOrigin:    onnx.NewTensor(dense.As[float32](origin.RawMatrix().Data), k),
		models.ConjMetric:    moment.Tensor(&root),
		models.ConjLogLambda: onnx.NewTensor(dense.As[float32](log), k),
		models.ConjWidening:  onnx.Scalar(float32(p.widening(q.g, s))),
	}
	// All three sets of scalars have the round's values: one posterior serves samples, mean and
	// intervals.
	for _, set := range []string{models.ConjSample, models.ConjMean, models.ConjInterval} {
		for name, v := range map[string]float64{
			models.ConjLogRho: math.Log(q.Rho), models.ConjLogTau: p.Scalars[LogTau],
			models.ConjLogB:       0,   // the variances have b already
			models.ConjLogitGamma: -30, // and stay as they are, none shrunk to their mean
			models.ConjO1:         p.Scalars[O1], models.ConjO2: p.Scalars[O2] / float64(k),
		} {
			values[set+name] = onnx.Scalar(float32(v))
		}
	}
	classes, _ := s.Mean.Dims()
	m, err := models.NewConjugate(models.ConjugateConfig{Dx: dx, C: classes, K: k}, values)
	return m, q, err
}
