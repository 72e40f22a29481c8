package effect

import (
	"math"
	"testing"

	"gonum.org/v1/gonum/floats"
	"gonum.org/v1/gonum/mat"

	"fmp/models/rng"
	"fmp/onnx/must"
)

// TestEvident: effects below the noise, of clients that hold few classes each, are evident; class
// means without effects, with or without a client that lies about each class or a client of much
// noise, are not.
func TestEvident(t *testing.T) {
	const k, held = 24, 4
	for _, c := range []struct {
		name      string
		shift, by float64 // of all clients, and the lies of client 0
		want      bool
	}{{"none", 0, 0, false}, {"a liar", 0, 3, false}, {"small", 0.45, 0, true},
		{"and a liar", 1, 3, true}} {
		for i := range 10 {
			r := rng.New(uint64(i), "evident", c.name)
			class := make([][]float64, 8)
			for y := range class {
				class[y] = normal(r.NormFloat64, k, 2)
			}
			cells := make([][]cell, 10)
			for m := range cells {
				shift := normal(r.NormFloat64, k, c.shift)
				for _, y := range r.Perm(len(class))[:held] {
					x := normal(r.NormFloat64, k, 1/1.7)
					floats.Add(x, shift)
					floats.Add(x, class[y])
					if m == 0 {
						floats.Add(x, normal(r.NormFloat64, k, c.by))
					}
					cells[m] = append(cells[m], cell{y, 10, 3, x})
				}
			}
			for _, of := range []form{none, isotropic} {
				s := must.Get(fitted(cells, len(class), k, of))(t)
				if bound, exact := s.bound(), s.evidence(); bound > exact+1e-6 || bound < exact-10*k {
					t.Errorf("%s: round %d: the bound is %.1f, the evidence %.1f", c.name,
						i, bound, exact)
				}
			}
			if got, err := evident(cells, len(class), k, k); err != nil || got != c.want {
				t.Errorf("%s: round %d: evident is %v, %v", c.name, i, got, err)
			}
		}
	}
}

// evidence returns what bound is below, from the joint normal of all class means.
func (s *shrinkage) evidence() (out float64) {
	var all []cell
	var owner []int
	for m, of := range s.cells {
		for _, l := range of {
			all, owner = append(all, l), append(owner, m)
		}
	}
	v := mat.NewSymDense(len(all), nil)
	for i, l := range all {
		for j := i; j < len(all); j++ {
			var sum float64
			if i == j {
				sum = s.noise[owner[i]] / l.a
			}
			if l.class == all[j].class {
				sum += s.between
			}
			if owner[i] == owner[j] {
				sum += s.rest
			}
			v.SetSym(i, j, sum)
		}
	}
	var c mat.Cholesky
	if !c.Factorize(v) {
		return math.NaN()
	}
	x, u := mat.NewVecDense(len(all), nil), mat.NewVecDense(len(all), nil)
	for d := range s.k {
		for i, l := range all {
			x.SetVec(i, l.x[d]-s.centre[d])
			out -= math.Log(l.a) / 2
		}
		if err := c.SolveVecTo(u, x); err != nil {
			return math.NaN()
		}
		out -= (c.LogDet() + mat.Dot(x, u)) / 2
	}
	return out
}
