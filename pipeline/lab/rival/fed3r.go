package rival

import (
	"context"
	"fmt"

	"gonum.org/v1/gonum/floats"
	"gonum.org/v1/gonum/mat"

	"fmp/pipeline/erm"
	"fmp/pipeline/posterior"
)

// fed3r is federated recursive ridge regression (Fanì et al. 2024, arXiv 2406.01116, equations 3
// to 5): client m uploads A_m = sum x x' and b_m = sum x e_y' over its points, with a 1 appended
// for the bias; the server adds them up and solves
//
//	T = (sum_m A_m + l2 I)^-1 sum_m b_m,   T_c <- T_c / |T_c|
//
// where the columns are normalised against unequal class sizes (section 4.1 there). To use it as a
// softmax classifier the paper divides the logits by a temperature of 0.1, which the head has
// before a temperature is tuned.
var fed3r = method{
	Info{Name: "Fed3R", Title: "ridge regression of the labels, from the clients' second moments",
		Group: OneShot,
		Cite: "Fed3R: Fanì, Camoriano, Caputo and Ciccone 2024, Accelerating heterogeneous " +
			"federated learning with closed-form classifiers, ICML, arXiv:2406.01116",
		Param: ParamL2, Grid: gridL2, Wide: gridRidge},
	func(_ context.Context, t *Task, s Settings) (*posterior.Result, error) {
		const softmaxTemperature = 0.1
		d := t.dx + 1
		a, b := t.secondMoments()
		for j := range d {
			a.SetSym(j, j, a.At(j, j)+s.L2)
		}
		var chol mat.Cholesky
		if !chol.Factorize(a) {
			return nil, fmt.Errorf("the second moments are singular with l2 %v; raise it", s.L2)
		}
		var solved mat.Dense
		if err := chol.SolveTo(&solved, b); err != nil {
			return nil, fmt.Errorf("the second moments with l2 %v: %w; raise it", s.L2, err)
		}
		theta := erm.NewTheta(d, t.c)
		for c := range t.c {
			column := mat.Col(nil, c, &solved)
			norm := floats.Norm(column, 2)
			if norm == 0 { // no client holds the class
				continue
			}
			for j, v := range column {
				theta.Row(j)[c] = v / norm / softmaxTemperature
			}
		}
		return &posterior.Result{Ensembles: []posterior.Ensemble{{theta}},
			UploadBytes: float32Bytes(d*(d+1)/2 + d*t.c)}, nil
	},
}

// gridRidge holds the values of l2 that are tried in hindsight. It is added to sums of squares of
// features, whose size goes with their number and scale, and NLL often has two minima. Few images
// to tune on often choose the wrong one of them, which costs up to .4 nats.
var gridRidge = []float64{0.03, 0.1, 0.3, 1, 3, 10, 30, 100, 300, 1e3, 3e3, 1e4, 3e4, 1e5, 3e5, 1e6}

// secondMoments returns the sums of x x', (dx+1) x (dx+1), and x e_y', (dx+1) x C, over all rows x
// with a 1 appended. The last column of the first is the sum of rows. The second gives it by a
// sum over classes, as a row's labels sum to 1.
func (t *Task) secondMoments() (a *mat.SymDense, b *mat.Dense) {
	sums, d := t.statistics(), t.dx
	a, b = mat.NewSymDense(d+1, nil), mat.NewDense(d+1, t.c, nil)
	a.CopySym(sums.second)
	b.Copy(sums.sum.T())
	b.SetRow(d, sums.count)
	for j := range d + 1 {
		a.SetSym(j, d, floats.Sum(b.RawRowView(j)))
	}
	return a, b
}
