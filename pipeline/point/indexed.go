package point

import "slices"

// MaxDense is the number of label and feature values up to which [Set.Compact] keeps a set as it
// is.
const MaxDense = 1 << 17

// Features returns the features of point i. It shares memory with the set.
func (s *Set) Features(i int) []float32 {
	d := s.stride()
	return s.Z[i*d : i*d+s.Dx : i*d+s.Dx]
}

// stride returns the distance of rows in Z.
func (s *Set) stride() int {
	if s.Y != nil {
		return s.Dx
	}
	return s.Dx + s.C
}

// Shares calls do with each class whose probability in the label of point i is not 0, in ascending
// order.
func (s *Set) Shares(i int, do func(class int, p float32)) {
	if s.Y != nil {
		do(int(s.Y[i]), 1)
		return
	}
	for y, p := range s.Row(i)[s.Dx:] {
		if p != 0 {
			do(y, p)
		}
	}
}

// Small reports whether labels in Z are worth their memory: the set is small, and its labels have
// no more than four times as many numbers as its features.
func (s *Set) Small() bool { return s.N*(s.Dx+s.C) <= MaxDense && s.C <= 4*s.Dx }

// Compact returns the set with class indices for labels, where it is large and all its labels are
// of one class; otherwise the set itself.
func (s *Set) Compact() *Set {
	if s.Y != nil || s.Small() {
		return s
	}
	classes := s.Indices()
	if classes == nil {
		return s
	}
	out := &Set{N: s.N, Dx: s.Dx, C: s.C, Z: make([]float32, 0, s.N*s.Dx), W: s.W, Y: classes}
	for i := range s.N {
		out.Z = append(out.Z, s.Features(i)...)
	}
	return out
}

// Indices returns the class of each point; nil where a label has more than one class.
func (s *Set) Indices() []int32 {
	if s.Y != nil {
		return s.Y
	}
	out := make([]int32, s.N)
	for i := range out {
		label := s.Row(i)[s.Dx:]
		y := slices.Index(label, 1)
		if y < 0 {
			return nil
		}
		for c, p := range label {
			if p != 0 && c != y {
				return nil
			}
		}
		out[i] = int32(y)
	}
	return out
}

// Dense returns the set with labels in Z.
func (s *Set) Dense() *Set {
	if s.Y == nil {
		return s
	}
	out := New(s.N, s.Dx, s.C)
	copy(out.W, s.W)
	for i, y := range s.Y {
		row := out.Row(i)
		copy(row, s.Features(i))
		row[s.Dx+int(y)] = 1
	}
	return out
}
