package models

import (
	"fmt"
	"slices"

	"fmp/onnx"
)

// OfClasses returns a conjugate predictor for classes of the given names, in their order, with the
// images of these alone, or with none where they are under [LeastImages] a class; f is the
// predictor's manifest. Parameters are those of all classes: they know of no single one. It is nil
// where the predictor lacks a name. A name given twice is an error.
func OfClasses(m *onnx.Model, f Manifest, names []string) (*onnx.Model, Manifest, error) {
	if slices.Equal(names, f.Classes) {
		return m, f, nil
	}
	to := make([]int, len(f.Classes)) // number of each class, from 1; 0: it is none of them
	for i, name := range names {
		at := slices.Index(f.Classes, name)
		if at < 0 {
			return nil, Manifest{}, nil
		}
		if to[at] > 0 {
			return nil, Manifest{}, fmt.Errorf("conjugate predictor: class %q is named twice", name)
		}
		to[at] = i + 1
	}
	c, values, err := ConjugateValues(m)
	if err != nil {
		return nil, Manifest{}, err
	}
	if len(f.Classes) != c.C {
		return nil, Manifest{}, fmt.Errorf("conjugate predictor: %d names of %d classes",
			len(f.Classes), c.C)
	}
	held, err := readImages(m, c.Dx, c.C)
	if err != nil {
		return nil, Manifest{}, err
	}
	c.C = len(names)
	out, err := NewConjugate(c, values)
	if err != nil {
		return nil, Manifest{}, err
	}
	if held != nil {
		held.keep(out, c, to)
	}
	f.C, f.Classes = c.C, slices.Clone(names)
	return out, f, f.Write(out)
}

// keep gives a predictor those images of classes that have a number in to, from 1, under it. Rows
// stay as they are packed, with the scale of all. Too few images leave the predictor without any.
// Rows are copied. The bound is on their number over all classes: a class may have none.
func (t *images) keep(out *onnx.Model, c ConjugateConfig, to []int) {
	packed, dx := t.packed.Data.([]int8), c.Dx
	var some []int8
	var of []int32
	for i, y := range t.labels.Data.([]int32) {
		if n := to[y]; n > 0 {
			some, of = append(some, packed[i*dx:(i+1)*dx]...), append(of, int32(n-1))
		}
	}
	if len(of) < LeastImages*c.C {
		return
	}
	in := out.Graph.Initializers
	in[conjImages], in[conjImagesScale] = onnx.NewTensor(some, len(of), dx), t.scale
	in[conjImagesLabels] = onnx.NewTensor(of, len(of))
}
