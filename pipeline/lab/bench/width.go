package bench

import (
	"context"
	"fmt"
	"os"

	"fmp/models/rng"
	"fmp/onnx"
	"fmp/pipeline/erm"
)

// FitSize is the size of a fit: N points, D rows of a head (features and the bias), C classes. Its
// head has D x C numbers.
type FitSize struct{ N, D, C int }

// strong is the number of directions that are stretched.
const strong = 32

// FitContenders returns a fit of that size by erm, and by the solvers of peers, each to the same
// gradient: 1e-6 of the sum of the points' lengths. The features are Gaussian with class means, as
// those of [Fit]; where stretched is set, 32 directions of them are up to ten times as long. Peers
// are started one by one, by the functions that come back with their names. end removes the files
// that peers read, and is to be called when all peers are started. With an error nothing is left.
// Peers get labels as class indices, as their users give them.
func FitContenders(ctx context.Context, peers Peers, s FitSize, stretched bool) (ours Contender,
	others map[string]func() (Contender, error), end func(), err error) {
	p, err := fitProblem(s, stretched)
	if err != nil {
		return Contender{}, nil, nil, err
	}
	y := make([]int64, s.N)
	for i := range y {
		y[i] = int64(i % s.C)
	}
	dir, err := saved(map[string]*onnx.Tensor{"l2": onnx.NewTensor([]float64{penalty}),
		"x0": onnx.NewTensor(p.X, p.N, p.D()), "y0": onnx.NewTensor(y, p.N),
		"w0": onnx.NewTensor(p.W, p.N)})
	end = func() { os.RemoveAll(dir) }
	if err != nil {
		end()
		return Contender{}, nil, nil, err
	}
	ours = Timed("fmp", func() error {
		_, err := erm.Solve(ctx, p, erm.Options{Tolerance: tolerance, Threads: 1})
		return err
	})
	others = map[string]func() (Contender, error){}
	for _, how := range []string{"lbfgs", "newton-cg", "scipy"} {
		others[how] = func() (Contender, error) {
			return peers.start(ctx, peer{"equal:" + how, how}, dir)
		}
	}
	return ours, others, end, nil
}

// fitProblem is the problem of [FitContenders]. Stretched directions are 10 to 2 times as long.
// They worsen the condition of the Hessian, on which methods of first order depend.
func fitProblem(s FitSize, stretched bool) (*erm.Problem, error) {
	r := rng.New(1, "scaling", s.N, s.D-1, s.C)
	set := labelled(r, classMeans(r, s.D-1, s.C), s.N, s.D-1, s.C)
	for i := range set.N {
		for j := range min(strong, set.Dx) {
			if stretched { // the first features are longer, the j-th 10 / (1 + j/8) times
				set.Row(i)[j] *= 10 / (1 + float32(j)/8)
			}
		}
	}
	return erm.FromSets(penalty, set)
}

// String is N x D x C.
func (s FitSize) String() string { return fmt.Sprintf("%d x %d x %d", s.N, s.D, s.C) }
