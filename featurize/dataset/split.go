package dataset

import (
	"errors"
	"fmt"
	"math"
	"slices"
)

// Fractions divide the training images of the chosen classes, in the order of the data set. They
// add up to at most 1. Images beyond the sum of the three are in no part.
type Fractions struct {
	Extractor float64 `json:"extractor"` // trains the feature extractor
	Corpus    float64 `json:"corpus"`    // the meta-training corpus
	Clients   float64 `json:"clients"`   // the clients of new tasks
}

// DefaultFractions are a half, 3/8 and 1/8. The clients of CIFAR-10 then share 6,250 images, those
// of MNIST 7,500.
var DefaultFractions = Fractions{Extractor: 0.5, Corpus: 0.375, Clients: 0.125}

// Range is the images with index From <= i < To.
type Range struct {
	From int `json:"from"`
	To   int `json:"to"`
}

// Len returns the number of images.
func (r Range) Len() int { return r.To - r.From }

// Indices lists the images.
func (r Range) Indices() []int {
	out := make([]int, r.Len())
	for i := range out {
		out[i] = r.From + i
	}
	return out
}

// Splits are three disjoint parts of a data set's training images. The extractor may also learn
// from all of Dataset.Extra. Test images belong to none: they are used for the reported figures
// only.
type Splits struct {
	Extractor Range `json:"extractor"`
	Corpus    Range `json:"corpus"`
	Clients   Range `json:"clients"`
}

// Split divides n training images. Boundaries are cumulative fractions rounded to whole images.
// Rounding cumulative sums, not each share, makes neighbours meet without a gap or an overlap. Only
// clients must have an image: a round may do without an extractor's part and a corpus.
func Split(n int, f Fractions) (Splits, error) {
	for _, v := range []float64{f.Extractor, f.Corpus, f.Clients} {
		if !(v >= 0 && v <= 1) {
			return Splits{}, fmt.Errorf("split: a fraction is %v; allowed are 0 to 1", v)
		}
	}
	// The margin lets three decimal fractions add up to 1 with rounding errors.
	if sum := f.Extractor + f.Corpus + f.Clients; sum > 1+1e-9 {
		return Splits{}, fmt.Errorf("split: the fractions %v, %v and %v add up to %v; at most "+
			"1 is allowed", f.Extractor, f.Corpus, f.Clients, sum)
	}
	at := func(v float64) int { return min(n, int(math.Round(v*float64(n)))) }
	a, b, c := at(f.Extractor), at(f.Extractor+f.Corpus), at(f.Extractor+f.Corpus+f.Clients)
	s := Splits{Extractor: Range{0, a}, Corpus: Range{a, b}, Clients: Range{b, c}}
	if s.Clients.Len() == 0 {
		return Splits{}, fmt.Errorf("split: %d training images leave none for clients "+
			"(fraction %v)", n, f.Clients)
	}
	return s, nil
}

// ErrSorted is wrapped by the error of [Dataset.Splits] for images in the order of their classes.
var ErrSorted = errors.New("training images are in the order of their classes")

// fewChanges is the number of changes of class, expected of images in random order, below which
// chance could pass for an order.
const fewChanges = 40

// Splits divides the data set's training images. With an error of [ErrSorted] the parts are those
// that the order gives, of which one lacks a class. Every part that has images should have all
// classes. A sorted data set has not, since parts are ranges. Callers that shuffle images may go on
// with the parts.
func (ds *Dataset) Splits(f Fractions) (Splits, error) {
	s, err := Split(ds.Train.N, f)
	if err != nil || !ds.sorted() {
		return s, err
	}
	for _, p := range []struct {
		name string
		of   Range
	}{{"extractor", s.Extractor}, {"corpus", s.Corpus}, {"clients", s.Clients}} {
		for y, class := range ds.Classes {
			if p.of.Len() > 0 && !slices.Contains(ds.Train.Labels[p.of.From:p.of.To], y) {
				return s, fmt.Errorf("split: %w, and the part dataset.splits.%s has none of "+
					"class %s: write the files in random order, or give the images in a folder "+
					"for each class", ErrSorted, p.name, class)
			}
		}
	}
	return s, nil
}

// sorted reports whether the class changes less than half as often, from one training image to the
// next, as in random order. Few changes tell nothing: see fewChanges. It takes O(N + classes)
// steps. The images are not looked at.
func (ds *Dataset) sorted() bool {
	count, changes := make([]float64, len(ds.Classes)), 0.
	for i, y := range ds.Train.Labels {
		count[y]++
		if i > 0 && y != ds.Train.Labels[i-1] {
			changes++
		}
	}
	// In random order, two neighbours are of one class with probability sum (n_c / N)^2: N - sum
	// n_c^2 / N changes are expected.
	expected := float64(ds.Train.N)
	for _, n := range count {
		expected -= n * n / float64(ds.Train.N)
	}
	return expected >= fewChanges && changes < expected/2
}
