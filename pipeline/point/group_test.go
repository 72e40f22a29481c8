package point

import (
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"

	"fmp/onnx/must"
)

// sums are the mass of every class and the weighted sums of its rows.
func sums(s *Set) [][]float64 {
	_, labels := s.Labelled()
	out := make([][]float64, s.C)
	for c := range out {
		out[c] = make([]float64, 1+s.Dx+s.C)
	}
	for i, y := range labels {
		out[y][0] += float64(s.W[i])
		for j, v := range s.Row(i) {
			out[y][1+j] += float64(s.W[i]) * float64(v)
		}
	}
	return out
}

// Groups keep every class's mass and mean, are no more than asked for, and follow the points: the
// more there are, the more of the spread they keep.
func TestGroup(t *testing.T) {
	t.Parallel()
	r := rand.New(rand.NewPCG(1, 2))
	s := New(5000, 6, 4)
	for i := range s.N {
		y := r.IntN(3) // no point has class 3
		for j := range s.Dx {
			s.Row(i)[j] = float32(3*float64(y) + r.NormFloat64())
		}
		s.Row(i)[s.Dx+y], s.Row(i)[s.Dx+(y+1)%3] = 0.9, 0.1
		s.W[i] = float32(r.IntN(3)) // some weigh nothing
	}
	before, z := sums(s), slices.Clone(s.Z)
	spread := func(s *Set) (v float64) {
		for i := range s.N {
			for _, x := range s.Row(i)[:s.Dx] {
				v += float64(s.W[i]) * float64(x) * float64(x)
			}
		}
		return v
	}
	part := func(from, to int) *Set {
		d := s.Dx + s.C
		return &Set{N: to - from, Dx: s.Dx, C: s.C, Z: s.Z[from*d : to*d], W: s.W[from:to]}
	}
	group := func(most int, sets ...*Set) *Set {
		t.Helper()
		return must.Get(Group(most, sets...))(t)
	}
	last := 0.0
	for _, most := range []int{1, 3, 50, 700, 4999} {
		g := group(most, part(0, 2000), part(2000, 5000))
		if g.N > max(most, 3) || g.N < min(most, 3) {
			t.Errorf("%d groups, want at most %d", g.N, most)
		}
		for c, want := range before {
			for j, v := range sums(g)[c] {
				if math.Abs(v-want[j]) > 1e-4*(1+math.Abs(want[j])) {
					t.Errorf("%d groups: sum %d of class %d is %v, want %v", most, j, c, v, want[j])
				}
			}
		}
		if v := spread(g); v < last {
			t.Errorf("%d groups keep less of the spread, %v, than fewer did, %v", most, v, last)
		} else {
			last = v
		}
		if d := cmp.Diff(g, group(most, s)); d != "" {
			t.Errorf("the same set gives other groups: %s", d)
		}
	}
	if d := cmp.Diff(s, group(s.N, s)); d != "" {
		t.Error("a set that is small enough was changed")
	}
	must.Fail(Group(10, s, New(20, 6, 3)))(t, "set 1 has dx 6 and C 3", "sets of two kinds")
	if !slices.Equal(z, s.Z) {
		t.Error("the set was changed")
	}
	same := New(100, 2, 2)
	for i := range same.N {
		copy(same.Row(i), []float32{1, 2, 0, 1})
	}
	if g := group(10, same); g.N != 1 || g.W[0] != 100 || g.Z[1] != 2 {
		t.Errorf("100 equal points become %d, the first %v of mass %v", g.N, g.Z, g.W)
	}
}
