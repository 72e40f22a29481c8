package sample

import (
	"fmt"

	"gonum.org/v1/gonum/blas"

	"fmp/models"
	"fmp/onnx/dense"
	"fmp/pipeline/candidate"
	"fmp/pipeline/point"
)

// Corpus returns the images that the predictor holds, in the coordinates of [Conjugate.Map], as a
// corpus whose classes are the round's; nil where it holds none.
func (c *Conjugate) Corpus() (*candidate.Corpus, error) { return c.corpus() }

// readCorpus reads that of Corpus, which keeps it: it takes images x coordinates numbers.
func (c *Conjugate) readCorpus() (*candidate.Corpus, error) {
	rows, labels, err := models.Images(c.model)
	if err != nil || rows == nil {
		return nil, err
	}
	if err := ImagesFit(len(labels), c.config.K, c.config.C); err != nil {
		return nil, err
	}
	rows, labels = thinned(rows, labels, maxProducts/(c.config.K*c.config.C))
	at := c.heads(&point.Set{N: len(labels), Dx: c.config.Dx, C: c.config.C, Z: rows,
		Y: make([]int32, len(labels))})
	known, err := candidate.NewCorpus(at, c.config.K, labels, c.config.C)
	if err != nil {
		return nil, fmt.Errorf("conjugate predictor: %w", err)
	}
	return known, nil
}

// maxProducts bounds the products of one pass of a regression over the images: images x coordinates
// x classes, as of 108,000 images of 100 classes in 99 coordinates. Beyond it each class is
// thinned.
const maxProducts = 1 << 30

// ImagesFit returns an error for a corpus of which a round's regression reads too few images of
// each class: it has few, or classes and coordinates are many. Of N images in C classes and k
// coordinates it reads
//
//	min(N, maxProducts/(k C))/C
//
// of each class, which must be models.LeastImages at least.
func ImagesFit(images, coordinates, classes int) error {
	if n := min(images, maxProducts/(coordinates*classes)) / classes; n < models.LeastImages {
		return fmt.Errorf("images of the corpus: of %d in %d classes and %d coordinates a round "+
			"reads %d of each class, and needs %d; train the predictor without them",
			images, classes, coordinates, n,
			models.LeastImages)
	}
	return nil
}

// thinned returns about n of the rows with their labels: the same share of each class, at even
// steps, and one at least. Of N rows, row number r of a class, from 0, is kept where r is 0 or
//
//	floor(r n/N) > floor((r - 1) n/N)
func thinned(rows []float32, labels []int, n int) ([]float32, []int) {
	all := len(labels)
	if all <= n {
		return rows, labels
	}
	dx, seen := len(rows)/all, map[int]int{}
	var some []float32
	var of []int
	for i, y := range labels {
		rank := seen[y]
		seen[y]++
		if rank == 0 || rank*n/all > (rank-1)*n/all {
			some, of = append(some, rows[i*dx:(i+1)*dx]...), append(of, y)
		}
	}
	return some, of
}

// AtHeads returns class means, of w or of phi, in the coordinates of [Conjugate.Map].
func (c *Conjugate) AtHeads(means *point.Set) (*point.Set, error) {
	if err := c.fits(means); err != nil {
		return nil, err
	}
	of := means.Indices()
	if of == nil {
		return nil, fmt.Errorf("conjugate predictor: an uploaded point is of several classes; " +
			"want class means")
	}
	return &point.Set{N: means.N, Dx: c.config.K, C: means.C, Z: c.heads(means), Y: of,
		W: means.W}, nil
}

// heads returns rows of w or of phi in the coordinates of the heads, w R.
func (c *Conjugate) heads(set *point.Set) []float32 {
	k := c.config.K
	r, metric := make([]float64, set.N*k), c.values[models.ConjMetric].F32()
	dense.Gemm(blas.NoTrans, blas.NoTrans, 1, dense.General(set.N, k, c.leading(set, k)),
		dense.General(k, k, dense.As[float64](metric)), 0, dense.General(set.N, k, r))
	return dense.As[float32](r)
}
