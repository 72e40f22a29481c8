package erm_test

import (
	"context"
	"fmt"

	"fmp/pipeline/erm"
	"fmp/pipeline/point"
)

// three points on a line, of two classes: one left, one right, and between them one that is half of
// each.
func three(middle float32) *point.Set {
	set := point.New(3, 1, 2)
	// a row a point: the feature, then the label
	copy(set.Z, []float32{-1, 1, 0, 1, 0, 1, 0, 0.5, 0.5})
	copy(set.W, []float32{1, 1, middle})
	return set
}

// A head fitted to weighted points with soft labels. By symmetry its weight a solves 4 / (1 +
// exp(2a)) = 0.2 a.
func ExampleSolve() {
	p, err := erm.FromSets(0.1, three(3))
	if err != nil {
		fmt.Println(err)
		return
	}
	s, err := erm.Solve(context.Background(), p, erm.Options{})
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Printf("weight of the feature: %.4f %.4f\n", s.Theta.Row(0)[0], s.Theta.Row(0)[1])
	// Output: weight of the feature: -1.3235 1.3235
}

// Many problems are solved in parallel; the result does not depend on the number of threads.
func ExampleSolveAll() {
	var ps []*erm.Problem
	for _, l2 := range []float64{0.1, 1, 10} {
		p, err := erm.FromSets(l2, three(1))
		if err != nil {
			fmt.Println(err)
			return
		}
		ps = append(ps, p)
	}
	fits, err := erm.SolveAll(context.Background(), ps, erm.Options{Threads: 2})
	if err != nil {
		fmt.Println(err)
		return
	}
	for i, f := range fits {
		fmt.Printf("penalty %g: %.4f\n", ps[i].L2, f.Theta.Row(0)[1])
	}
	// Output:
	// penalty 0.1: 1.3235
	// penalty 1: 0.5213
	// penalty 10: 0.0909
}
