package rival

import (
	"context"
	"fmt"

	"gonum.org/v1/gonum/floats"
	"gonum.org/v1/gonum/mat"

	"fmp/pipeline/erm"
	"fmp/pipeline/internal/memo"
	"fmp/pipeline/posterior"
)

// fed3r is federated recursive ridge regression (Fanì et al. 2024, arXiv 2406.01116, equations 3 to
// 5): client m uploads A_m = sum x x' and b_m = sum x e_y' over its points, with a 1 appended for
// the bias; the server adds them up and solves
//
//	T = (sum_m A_m + l2 I)^-1 sum_m b_m,   T_c <- T_c / |T_c|
//
// where the columns are normalised against unequal class sizes (section 4.1 there). To use it as a
// softmax classifier the paper divides the logits by a temperature of 0.1, which the head has
// before a temperature is tuned.
var fed3r = method{
	Info{Name: "Fed3R", Title: "ridge regression of the labels, from the clients' second moments",
		Group: OneShot,
		Cite: "Fed3R: Fanì, Camoriano, Caputo and Ciccone 2024, Accelerating heterogeneous federated " +
			"learning with closed-form classifiers, ICML, arXiv:2406.01116",
		Param: ParamL2, Grid: gridL2},
	func(_ context.Context, t *Task, s Settings) (*posterior.Result, error) {
		const softmaxTemperature = 0.1
		d := t.dx + 1
		sums, err := memo.Once(t.memo, "fed3r",
			func() (*secondMoments, error) { return t.secondMoments(), nil })
		if err != nil {
			return nil, err
		}
		a, b := mat.NewSymDense(d, nil), sums.b
		a.CopySym(sums.a)
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

// secondMoments are the sums of x x' and x e_y' over all rows x, with a 1 appended.
type secondMoments struct {
	a *mat.SymDense
	b *mat.Dense
}

func (t *Task) secondMoments() *secondMoments {
	d := t.dx + 1
	a, b := mat.NewSymDense(d, nil), mat.NewDense(d, t.c, nil)
	x := mat.NewVecDense(d, nil)
	for _, set := range t.in.Clients {
		for i := range set.N {
			row, w := set.Row(i), float64(set.W[i])
			for j, v := range row[:t.dx] {
				x.SetVec(j, float64(v))
			}
			x.SetVec(t.dx, 1)
			a.SymRankOne(a, w, x)
			for c, y := range row[t.dx:] {
				if y != 0 {
					for j := range d {
						b.Set(j, c, b.At(j, c)+w*float64(y)*x.AtVec(j))
					}
				}
			}
		}
	}
	return &secondMoments{a, b}
}
