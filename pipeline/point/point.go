// Package point holds weighted sets of data points z = (h, y): a feature row h of dx numbers and a
// label y on the C-simplex (one-hot for real data). Client data, uploads and drawn points are all
// such sets, in float32, the element type of graph inputs and outputs.
package point

import (
	"fmt"
	"math"
)

// Set is N weighted points. Z holds N rows of Dx features and C label probabilities, row-major; W
// holds N non-negative weights (1 for a real or drawn point, a mass for an uploaded one). Sets of
// many points of many classes may hold labels as class indices: Y, if not nil, has N of them, and Z
// then holds features alone.
type Set struct {
	N, Dx, C int
	Z        []float32
	W        []float32
	Y        []int32
}

// New returns a set of n zero points of weight 1.
func New(n, dx, c int) *Set {
	s := &Set{N: n, Dx: dx, C: c, Z: make([]float32, n*(dx+c)), W: make([]float32, n)}
	for i := range s.W {
		s.W[i] = 1
	}
	return s
}

// FromLabelled returns points of weight 1 from feature rows (n x dx, row-major) and class indices.
// Features are copied. Lengths that do not match and labels beyond 0 to c - 1 are errors.
func FromLabelled(features []float32, dx int, labels []int, c int) (*Set, error) {
	n := len(labels)
	if len(features) != n*dx {
		return nil, fmt.Errorf("points: %d feature values for %d labels of dx %d; want %d",
			len(features), n, dx, n*dx)
	}
	s := New(n, dx, c)
	for i, y := range labels {
		if y < 0 || y >= c {
			return nil, fmt.Errorf("points: label %d of point %d; allowed are 0 to %d", y, i, c-1)
		}
		row := s.Row(i)
		copy(row, features[i*dx:(i+1)*dx])
		row[dx+y] = 1
	}
	return s, nil
}

// Row returns point i: its features followed by its label. It shares memory with the set, unless
// that holds class indices.
func (s *Set) Row(i int) []float32 {
	d := s.Dx + s.C
	if s.Y != nil {
		row := make([]float32, d)
		copy(row, s.Features(i))
		row[s.Dx+int(s.Y[i])] = 1
		return row
	}
	return s.Z[i*d : (i+1)*d]
}

// Mass returns the sum of the weights.
func (s *Set) Mass() float64 {
	var m float64
	for _, w := range s.W {
		m += float64(w)
	}
	return m
}

// Norm returns the Euclidean norm of a row of features.
func Norm(row []float32) float64 {
	var sum float64
	for _, v := range row {
		sum += float64(v) * float64(v)
	}
	return math.Sqrt(sum)
}

// Held returns the set without its points of weight 0.
// Its memory is its own.
func (s *Set) Held() *Set {
	out, d := &Set{Dx: s.Dx, C: s.C}, s.stride()
	for i, w := range s.W {
		if w != 0 {
			out.N, out.Z, out.W = out.N+1, append(out.Z, s.Z[i*d:(i+1)*d]...), append(out.W, w)
			if s.Y != nil {
				out.Y = append(out.Y, s.Y[i])
			}
		}
	}
	return out
}

// Pool returns the union of sets, in order. It holds class indices where all sets do. Sets that
// differ in dx or C are an error.
// Its memory is its own, also for a single set.
func Pool(sets ...*Set) (*Set, error) {
	if len(sets) == 0 {
		return nil, fmt.Errorf("points: nothing to pool; give at least one set")
	}
	if err := alike(sets); err != nil {
		return nil, err
	}
	out := &Set{Dx: sets[0].Dx, C: sets[0].C}
	indexed := true
	for _, s := range sets {
		out.N += s.N
		indexed = indexed && s.Y != nil
	}
	if indexed {
		out.Y = make([]int32, 0, out.N)
	}
	out.Z, out.W = make([]float32, 0, out.N*out.stride()), make([]float32, 0, out.N)
	for _, s := range sets {
		if !indexed {
			s = s.Dense()
		}
		out.Z, out.W, out.Y = append(out.Z, s.Z...), append(out.W, s.W...), append(out.Y, s.Y...)
	}
	return out, nil
}

// alike returns an error if sets differ in dx or C.
func alike(sets []*Set) error {
	for i, s := range sets {
		if s.Dx != sets[0].Dx || s.C != sets[0].C {
			return fmt.Errorf(
				"points: set %d has dx %d and C %d, set 0 has %d and %d; pool sets of one kind", i,
				s.Dx, s.C,
				sets[0].Dx, sets[0].C)
		}
	}
	return nil
}

// top returns the most probable class of a label, the lowest at ties.
func top(label []float32) int {
	y := 0
	for c, p := range label {
		if p > label[y] {
			y = c
		}
	}
	return y
}

// Labelled returns the set as feature rows (N x Dx, row-major, copied) and the most probable class
// of each label, the lowest at ties.
func (s *Set) Labelled() (features []float32, labels []int) {
	features = make([]float32, 0, s.N*s.Dx)
	labels = make([]int, s.N)
	for i := range labels {
		features = append(features, s.Features(i)...)
		if s.Y != nil {
			labels[i] = int(s.Y[i])
		} else {
			labels[i] = top(s.Row(i)[s.Dx:])
		}
	}
	return features, labels
}
