// Package task makes federated classification tasks from a bank of labelled feature rows: who holds
// which points (homogeneous or Dirichlet), and, for meta-training, the names of the classes.
package task

import (
	"fmt"
	"math"
	"slices"

	"fmp/pipeline/point"
)

// Bank is N labelled feature rows that tasks draw from.
type Bank struct {
	// Dx is the number of features per row, and C the number of classes.
	Dx, C int
	// Features holds N rows of Dx numbers, row-major; Labels one class index, 0 to C-1, per row.
	Features []float32
	Labels   []int
	pools    [][]int // rows of each class, in order
}

// NewBank checks and indexes rows. It keeps the slices and does not change them. A wrong
// count, a label outside 0 to c-1, or a feature that is not finite is an error.
func NewBank(features []float32, dx int, labels []int, c int) (*Bank, error) {
	if dx < 1 || c < 2 {
		return nil, fmt.Errorf("bank: dx %d and %d classes; allowed are dx of 1 and more, and 2 "+
			"classes and more", dx, c)
	}
	if len(features) != len(labels)*dx {
		return nil, fmt.Errorf("bank: %d feature values for %d labels of dx %d; want %d: check "+
			"that features and labels come from the same images", len(features), len(labels),
			dx, len(labels)*dx)
	}
	for i, v := range features {
		if f := float64(v); math.IsNaN(f) || math.IsInf(f, 0) {
			return nil, fmt.Errorf("bank: feature %d of row %d is %v; allowed are finite "+
				"numbers: check the extractor and its input", i%dx, i/dx, v)
		}
	}
	b := &Bank{Dx: dx, C: c, Features: features, Labels: labels, pools: make([][]int, c)}
	for i, y := range labels {
		if y < 0 || y >= c {
			return nil, fmt.Errorf("bank: label %d of row %d; allowed are 0 to %d: check "+
				"dataset.classes", y, i, c-1)
		}
		b.pools[y] = append(b.pools[y], i)
	}
	return b, nil
}

// Choose returns a bank of the rows of the given classes, in the order of the rows; classes[i]
// becomes class i. It copies the features.
func (b *Bank) Choose(classes []int) (*Bank, error) {
	// label[c] is the new number of class c, -1 for classes that are left out.
	label := make([]int, b.C)
	for i := range label {
		label[i] = -1
	}
	for i, c := range classes {
		if c < 0 || c >= b.C || label[c] >= 0 {
			return nil, fmt.Errorf("bank: classes %v; allowed are different ones from 0 to %d",
				classes, b.C-1)
		}
		label[c] = i
	}
	var features []float32
	var labels []int
	for i, y := range b.Labels {
		if label[y] >= 0 {
			features, labels = append(features, b.Row(i)...), append(labels, label[y])
		}
	}
	return NewBank(features, b.Dx, labels, len(classes))
}

// Among is [Bank.Choose] that shares the rows: those of other classes stay, in no class, and are
// never drawn. It costs no copy of the features. Rows of other classes have the label -1. The
// classes must be different ones of the bank.
func (b *Bank) Among(classes []int) *Bank {
	out := &Bank{Dx: b.Dx, C: len(classes), Features: b.Features,
		Labels: make([]int, len(b.Labels))}
	for i := range out.Labels {
		out.Labels[i] = -1
	}
	for i, c := range classes {
		out.pools = append(out.pools, b.pools[c])
		for _, row := range b.pools[c] {
			out.Labels[row] = i
		}
	}
	return out
}

// Subset returns a bank of the given rows, in that order, with the same classes. It copies the
// features.
// A row may be given twice. Rows outside the bank panic.
func (b *Bank) Subset(rows []int) (*Bank, error) {
	features, labels := make([]float32, 0, len(rows)*b.Dx), make([]int, len(rows))
	for i, row := range rows {
		features, labels[i] = append(features, b.Row(row)...), b.Labels[row]
	}
	return NewBank(features, b.Dx, labels, b.C)
}

// Without returns a bank without the given rows; nil where less than half of the rows, or fewer
// than two of a class, are left.
// The classes stay as they are, which is why each must keep two rows.
func (b *Bank) Without(rows []int) (*Bank, error) {
	gone, held := make([]bool, b.Len()), make([]int, b.C)
	for _, i := range rows {
		gone[i] = true
	}
	var left []int
	for i, y := range b.Labels {
		if !gone[i] {
			left = append(left, i)
			held[y]++
		}
	}
	if 2*len(left) < b.Len() || slices.Min(held) < 2 {
		return nil, nil
	}
	return b.Subset(left)
}

// Len returns the number of rows.
func (b *Bank) Len() int { return len(b.Labels) }

// Row returns the features of row i, sharing memory with the bank.
func (b *Bank) Row(i int) []float32 { return b.Features[i*b.Dx : (i+1)*b.Dx] }

// Points returns the given rows as points of weight 1, with class c renamed names[c]; nil names
// keep the labels.
// Features are copied.
func (b *Bank) Points(rows, names []int) *point.Set {
	s := point.New(len(rows), b.Dx, b.C)
	for i, r := range rows {
		z := s.Row(i)
		copy(z, b.Row(r))
		y := b.Labels[r]
		if names != nil {
			y = names[y]
		}
		z[b.Dx+y] = 1
	}
	return s
}

// Clients returns the points of clients who hold the given rows, under the bank's own classes.
func (b *Bank) Clients(rows [][]int) []*point.Set {
	out := make([]*point.Set, len(rows))
	for i, r := range rows {
		out[i] = b.Points(r, nil)
	}
	return out
}
